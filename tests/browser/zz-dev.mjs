import { Host } from "../model/server.mjs";
import { launch } from "../model/worker.mjs";
const host = await Host.start({page:true}); const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
const page = await context.newPage();
page.on("console", m => console.log("console:", m.text().slice(0,500)));
page.on("worker", w => { console.log("worker", w.url()); w.on("console", m=>console.log("w:", m.text())); });
page.on("pageerror", e => console.log("pageerror", e));
await page.goto(host.url);
await page.locator("#files-label + ul li").first().waitFor();
await page.getByRole("radio", { name: "A model, live" }).check();
for (let i=0;i<6;i++){ await page.waitForTimeout(2500); console.log(await page.locator("#adapter").innerText(), "|", await page.locator(".model-state").innerText()); }
await page.screenshot({path:"/tmp/qwen/shots/live.png"});
console.log(host.requests.join("\n"));
await browser.close(); await host.stop();
