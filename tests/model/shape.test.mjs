// A checkpoint of exactly Qwen3-0.6B's shape, with random weights in MLX's 4 bits: it is downloaded, loaded and
// decoded in Chromium on the adapter that every machine has, and is never whole in the worker's memory.

import assert from "node:assert/strict";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";

import { QWEN3_0_6B, writeCheckpoint } from "./random-checkpoint.mjs";
import { Host } from "./server.mjs";
import { ask, at, launch, openWorker, peakMemory } from "./worker.mjs";

const NAME = "qwen3-0.6b-shape";

let browser, host, directory;
before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "evidence-shape-"));
  await writeCheckpoint(path.join(directory, NAME), QWEN3_0_6B);
  host = await Host.start({ checkpoints: directory });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await host?.stop();
  if (directory) {
    await rm(directory, { recursive: true });
  }
});

test("a checkpoint of Qwen3-0.6B's shape loads and decodes, and is never whole in the worker's memory", async (context) => {
  const { size } = await stat(path.join(directory, NAME, "model.safetensors"));
  assert.ok(size > 335e6 && size < 336e6, `${size} bytes`);
  const page = await openWorker(browser, host);
  const seconds = async (action) => {
    const start = performance.now();
    const answer = await action();
    return [answer, ((performance.now() - start) / 1e3).toFixed(1)];
  };
  const load = () => ask(page, { type: "load", source: at(host, NAME), backend: "wgpu" });
  const [loaded, firstTime] = await seconds(load);
  assert.equal(loaded.type, "loaded", loaded.message);
  assert.equal(loaded.model.layers, 28);
  assert.ok(Math.abs(loaded.model.deviceBytes - size) < size / 100, `${loaded.model.deviceBytes} bytes on the device`);
  // Its memory only grows, so that this is the most that it ever had. The tab's is told below and not judged: it is the
  // browser's when what came through it is let go of.
  const { workerBytes } = await ask(page, { type: "info" });
  assert.ok(workerBytes < 0.75 * size, `${workerBytes} bytes of the worker`);
  const { tab, device } = await peakMemory(browser);

  const [again, keptTime] = await seconds(load);
  assert.equal(again.type, "loaded", again.message);
  const measured = await ask(page, { type: "measure", promptTokens: 32, decodeTokens: 4 });
  assert.equal(measured.type, "measured", measured.message);
  assert.ok(measured.prefillRate > 0 && measured.decodeRate > 0);
  const megabytes = (bytes) => `${Math.round(bytes / 1e6)} MB`;
  context.diagnostic(`loaded in ${firstTime} s with its download, in ${keptTime} s from the browser's storage`);
  context.diagnostic(
    `most memory: ${megabytes(workerBytes)} of the worker, ${megabytes(tab)} of the tab, ` +
      `${megabytes(device)} of the device's process`,
  );
  context.diagnostic(
    `${measured.prefillRate.toFixed(2)} tokens/s of a prompt, ${measured.decodeRate.toFixed(2)} decoded, ` +
      `${(measured.weightBandwidth / 1e9).toFixed(2)} GB/s of weights, ` +
      `${Math.round(100 * measured.productShare)}% of it in products`,
  );
});
