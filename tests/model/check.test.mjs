// The decoder in Chromium, on WebGPU and on the CPU, against what transformers computed.

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { after, before, test } from "node:test";

import { required } from "../browser/chromium.mjs";
import { Host } from "./server.mjs";
import { ask, at, launch, openWorker } from "./worker.mjs";

let browser, host;
before(async () => {
  [browser, host] = await Promise.all([launch(), Host.start()]);
});
after(async () => {
  await browser?.close();
  await host?.stop();
});

const entries = await readdir(required("CHECKPOINTS"), { withFileTypes: true });
const checkpoints = entries
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  // Its tokenizer is too large to be kept, and its weights are none.
  .filter((name) => name !== "qwen3-whole-tokenizer");

for (const backend of ["wgpu", "flex"]) {
  for (const checkpoint of checkpoints) {
    test(`${checkpoint} agrees with its reference on ${backend}`, async () => {
      const page = await openWorker(browser, host);
      const answer = await ask(page, { type: "check", source: at(host, checkpoint), backend });
      assert.equal(answer.type, "checked", answer.message);
      assert.equal(answer.failed, 0, answer.report);
      assert.match(answer.report, /[1-9]\d* passed, 0 failed\n$/);
      await page.close();
    });
  }
}
