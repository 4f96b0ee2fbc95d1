// The page works from any path of a static host, and asks no other host for
// anything.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { launch, pageUrl } from "./chromium.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

test("the page loads below a path, by relative addresses only", async () => {
  const page = await browser.newPage();
  const requests = [];
  const faults = [];
  page.on("request", (request) => requests.push(request.url()));
  page.on("response", (response) => {
    if (!response.ok()) {
      faults.push(`${response.status()} ${response.url()}`);
    }
  });
  page.on("pageerror", (error) => faults.push(String(error)));

  await page.goto(pageUrl, { waitUntil: "networkidle" });
  await page.getByRole("heading", { level: 1 }).waitFor();

  assert.deepEqual(faults, []);
  assert.ok(requests.some((url) => url.endsWith(".wasm")));
  for (const url of requests) {
    assert.ok(url.startsWith(pageUrl), `${url} is outside of ${pageUrl}`);
  }
});
