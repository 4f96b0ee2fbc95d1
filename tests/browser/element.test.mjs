// <bounded-evidence-playground> inside of a page of the book.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { launch, pageUrl } from "./chromium.mjs";

const bookUrl = new URL("docs/", pageUrl).href;
const tutorial = new URL("tutorial.html", bookUrl).href;
const TAG = "bounded-evidence-playground";

let browser;
let context;
let page;
let faults;
let requests;

before(async () => {
  browser = await launch();
});
after(() => browser?.close());

beforeEach(async () => {
  context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
  page = await context.newPage();
  page.setDefaultTimeout(20_000);
  faults = [];
  requests = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") {
      faults.push(message.text());
    }
  });
  page.on("request", (request) => requests.push(request.url()));
});
afterEach(async () => {
  await context.close();
  assert.deepEqual(faults, []);
});

const element = (index) => page.locator(TAG).nth(index);

/** The page inside of an element, once it can be used. */
async function playground(index) {
  await element(index).scrollIntoViewIfNeeded();
  const frame = element(index).locator("iframe").contentFrame();
  await frame.locator("button.primary:enabled").waitFor();
  return frame;
}

async function runToEnd(frame) {
  await frame.locator("button.primary").click();
  await frame.locator(".outcome").waitFor();
  return frame.locator(".outcome").innerText();
}

const background = (frame) => frame.locator("body").evaluate((body) => getComputedStyle(body).backgroundColor);

test("nothing loads before the element is seen, and no model before a click", async () => {
  await page.goto(tutorial, { waitUntil: "networkidle" });
  const ofPage = () => requests.filter((url) => url.endsWith(".wasm") || url.includes("?embedded"));
  // The first is below the fold of a page of this height.
  await page.setViewportSize({ width: 1280, height: 300 });
  await page.reload({ waitUntil: "networkidle" });
  requests.length = 0;
  await page.reload({ waitUntil: "networkidle" });
  assert.deepEqual(ofPage(), []);
  assert.equal(await page.locator(`${TAG} iframe`).count(), 0);

  await playground(0);
  assert.equal(ofPage().filter((url) => url.includes("?embedded")).length, 1);
  assert.equal(await page.locator(`${TAG} iframe`).count(), 1, "the others are not seen yet");
  assert.deepEqual(requests.filter((url) => /model|safetensors|gguf/.test(url)), []);
});

test("several on a page run at the same time, each as it was set up", async () => {
  await page.goto(tutorial);
  const frames = [await playground(0), await playground(1), await playground(2)];
  for (const frame of frames) {
    await frame.locator("button.primary").click();
  }
  for (const frame of frames) {
    assert.match(await frame.locator(".outcome").innerText(), /final answer/);
  }
  const files = ["cargo-build.log", "pytest-unicode.log", "npm-node-gyp.log"];
  for (const [index, file] of files.entries()) {
    assert.match(await frames[index].locator(".timeline").innerText(), new RegExp(`read_file ${file}`));
  }
  // The third is under contract B.
  const last = await frames[2].locator("pre.exact[aria-label='What the model saw']").nth(1).textContent();
  assert.equal(JSON.parse(last).data.kind, "tool_output_ref");
});

test("the element is as high as what it holds, and no part of it scrolls by itself", async () => {
  await page.goto(tutorial);
  const frame = await playground(0);
  const heights = async () => ({
    element: Math.round((await element(0).boundingBox()).height),
    page: await frame.locator("html").evaluate((root) => Math.ceil(root.getBoundingClientRect().height) + 2),
  });
  await page.waitForFunction((tag) => document.querySelector(tag).shadowRoot.querySelector("iframe").style.height, TAG);
  const before = await heights();
  assert.equal(before.element, before.page);
  await runToEnd(frame);
  await frame.locator("pre.bytes").waitFor();
  await page.waitForTimeout(300);
  const after = await heights();
  assert.equal(after.element, after.page);
  assert.ok(after.element > before.element, "it grows with the run");
  const scrolls = await frame.locator("html").evaluate((root) => root.scrollHeight - root.clientHeight);
  assert.equal(scrolls, 0);
  await frame.getByRole("button", { name: "Reset" }).click();
  await page.waitForTimeout(300);
  assert.ok((await heights()).element < after.element, "and shrinks again");
});

test("no style leaks in or out", async () => {
  await page.goto(tutorial);
  const look = () =>
    page.evaluate((tag) => {
      const outside = [...document.querySelectorAll("body *")].filter((each) => !each.closest(tag));
      return outside.map((each) => {
        const { color, backgroundColor, font, margin, padding, border } = getComputedStyle(each);
        return [each.tagName, color, backgroundColor, font, margin, padding, border].join(" ");
      });
    }, TAG);
  const before = await look();
  const sheets = await page.evaluate(() => document.styleSheets.length);
  const frame = await playground(0);
  assert.deepEqual(await look(), before);
  assert.equal(await page.evaluate(() => document.styleSheets.length), sheets);
  const button = () => frame.locator("button.primary").evaluate((it) => JSON.stringify(getComputedStyle(it)));
  const inside = await button();
  await page.addStyleTag({ content: "* { color: red !important; font: 40px serif !important; letter-spacing: 1em }" });
  assert.equal(await button(), inside);
});

test("the theme is that of the book, follows it, and the attribute overrules it", async () => {
  await page.goto(tutorial);
  const frame = await playground(0);
  const light = await background(frame);
  await page.evaluate(() => {
    document.documentElement.classList.replace("light", "navy");
  });
  await frame.locator("html[data-theme=dark]").waitFor();
  const dark = await background(frame);
  assert.notEqual(dark, light);
  await element(0).evaluate((it) => it.setAttribute("theme", "light"));
  await frame.locator("html[data-theme=light]").waitFor();
  assert.equal(await background(frame), light);
  // What was run is still there: a theme is no reason to begin anew.
  assert.equal(requests.filter((url) => url.includes("?embedded")).length, 1);
  await element(0).evaluate((it) => it.removeAttribute("theme"));
  await frame.locator("html[data-theme=dark]").waitFor();
});

test("attributes set the page up, and changing them sets it up anew", async () => {
  await page.goto(new URL("using/embedding.html", bookUrl).href);
  const frame = await playground(0);
  assert.match(await runToEnd(frame), /final answer/);
  assert.equal(await frame.locator(".step").count(), 3, "the script is the attribute's");
  const seen = await frame.locator("pre.exact[aria-label='What the model saw']").first().textContent();
  const byteCount = Buffer.byteLength(seen);
  assert.ok(byteCount > 512 && byteCount <= 640, `the limit is the attribute's: ${byteCount}`);
  assert.equal(await frame.locator("#setup").isVisible(), false);

  await element(0).evaluate((it) => {
    it.setAttribute("mode", "full");
    it.setAttribute("sample", "ld-libgit2.log");
    it.setAttribute("contract", "tool-output");
    it.removeAttribute("script");
  });
  await frame.locator(".file-name", { hasText: "ld-libgit2.log" }).waitFor();
  assert.equal(requests.filter((url) => url.includes("?embedded")).length, 2, "four changes are one");
  assert.equal(await frame.locator("#setup").isVisible(), true);
  assert.match(await frame.locator("#script").inputValue(), /akh_read_tool_output/);
  assert.match(await runToEnd(frame), /final answer/);
});

test("what cannot be fulfilled is said", async () => {
  await page.goto(new URL("playground.html", bookUrl).href);
  await element(0).evaluate((it) => {
    it.setAttribute("sample", "none.log");
    it.setAttribute("limits", "max_bytes=1");
    it.setAttribute("contract", "C");
    it.setAttribute("mode", "wide");
  });
  await element(0).scrollIntoViewIfNeeded();
  const frame = element(0).locator("iframe").contentFrame();
  const notices = frame.locator(".notice");
  await notices.nth(3).waitFor();
  const text = (await notices.allInnerTexts()).join("\n");
  for (const part of ["none.log", "max_bytes=1", '"C"', '"wide"']) {
    assert.ok(text.includes(part), `${part} is not in ${text}`);
  }
  await element(0).evaluate((it) => it.setAttribute("script", "x".repeat(9000)));
  await element(0).getByText("The attributes are too long").waitFor();
});

test("messages of others change nothing", async () => {
  await page.goto(tutorial);
  const frame = await playground(0);
  await page.waitForFunction((tag) => document.querySelector(tag).shadowRoot.querySelector("iframe").style.height, TAG);
  const height = (await element(0).boundingBox()).height;
  const theme = await frame.locator("html").getAttribute("data-theme");
  await page.evaluate((tag) => {
    window.postMessage({ type: tag, height: 7 }, "*");
    const other = document.createElement("iframe");
    other.srcdoc = `<script>parent.postMessage({ type: "${tag}", height: 9 }, "*");
      const { shadowRoot } = parent.document.querySelector("${tag}");
      shadowRoot.querySelector("iframe").contentWindow.postMessage({ type: "${tag}", theme: "dark" }, "*");</script>`;
    document.body.append(other);
  }, TAG);
  await page.waitForTimeout(500);
  assert.equal((await element(0).boundingBox()).height, height);
  assert.equal(await frame.locator("html").getAttribute("data-theme"), theme);
});

test("an element that is taken away and put back works again", async () => {
  await page.goto(tutorial);
  await playground(0);
  await page.evaluate((tag) => {
    const element = document.querySelector(tag);
    const place = element.parentNode;
    element.remove();
    place.append(element);
  }, TAG);
  assert.match(await runToEnd(await playground(0)), /final answer/);
});

test("the embedded page leads to the whole page, set up as it was", async () => {
  await page.goto(tutorial);
  const frame = await playground(2);
  const link = frame.getByRole("link", { name: "Open this in a page of its own" });
  const [tab] = await Promise.all([context.waitForEvent("page"), link.click()]);
  await tab.locator(".file-name", { hasText: "npm-node-gyp.log" }).waitFor();
  assert.equal(await tab.getByRole("radio", { name: "A bounded tool result" }).isChecked(), true);
  assert.equal(await tab.locator(".page-header").isVisible(), true);
  assert.doesNotMatch(tab.url(), /embedded|mode/);
});

// Set SCREENSHOTS to a directory to keep what this test looks at.
for (const colorScheme of ["light", "dark"]) {
  for (const width of [1440, 800, 375]) {
    test(`the book and what it embeds fit ${width} pixels, ${colorScheme}`, async () => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      for (const name of ["tutorial", "playground"]) {
        await page.goto(new URL(`${name}.html`, bookUrl).href);
        const frame = await playground(0);
        await runToEnd(frame);
        await frame.locator("pre.bytes").waitFor();
        const sideways = (root) => root.scrollWidth - root.clientWidth;
        assert.equal(await frame.locator("html").evaluate(sideways), 0, "the playground scrolls sideways");
        assert.equal(await page.locator("html").evaluate(sideways), 0, "the book scrolls sideways");
        if (process.env.SCREENSHOTS) {
          const path = join(process.env.SCREENSHOTS, `book-${name}-${colorScheme}-${width}.png`);
          await page.screenshot({ path, fullPage: true });
        }
      }
    });
  }
}
