import { Host } from "./server.mjs";
import { ask, at, launch, openWorker } from "./worker.mjs";
import { execSync } from "node:child_process";
const browser = await launch(); const host = await Host.start();
const rss = () => execSync("ps -eo rss,args --sort=-rss | grep -E 'type=(renderer|gpu-process)' | grep -v grep | awk '{print int($1/1024), ($0 ~ /gpu-process/ ? \"gpu\" : \"renderer\")}' | head -3").toString().trim().replaceAll("\n", "; ");
for (const backend of ["flex", "wgpu"]) {
  const page = await openWorker(browser, host);
  const t = Date.now();
  const loaded = await ask(page, { type: "load", source: at(host, "q06"), backend });
  console.log(backend, loaded.type, loaded.message ?? "", Date.now() - t, "ms;", rss());
  if (loaded.type === "loaded") {
    console.log(JSON.stringify(loaded.model));
    console.log(JSON.stringify(await ask(page, { type: "measure", promptTokens: 16, decodeTokens: 4 })), rss());
    console.log((await ask(page, { type: "info" })).workerBytes >> 20, "MiB of worker memory");
  }
  await page.close();
}
await browser.close(); await host.stop();
