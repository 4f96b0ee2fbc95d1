// How fast the model's worker is beside others, in one browser and one run:
//
// - its products of 4-bit weights, for each shape of Qwen3-0.6B, against onnxruntime-web's MatMulNBits and, for one
//   token, against a loop that only unpacks and multiplies;
// - whole decoding against llama.cpp as wllama packs it: of Qwen3-0.6B's shape, and of a small model's on the CPU.
//
//   MODEL_WORKER=target/model-worker CHROMIUM=/usr/bin/chromium node tests/model/peers-bench.mjs
//
// Weights are random. Ends with status 1 when a ratio misses the project's limit.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

import { QWEN3_0_6B, SMALL, writeCheckpoint, writeGguf } from "./random-checkpoint.mjs";
import { Host } from "./server.mjs";
import { ask, at, launch, openWorker } from "./worker.mjs";

/** Tokens of a prompt: a block of them, which products are measured with. */
const PROMPT = 128;
/** Tokens that are decoded. */
const DECODED = 16;

/** What the products are to be, by whether the adapter computes on the CPU and by how many tokens they are of. */
const TIMES_AS_FAST = { software: { 1: 10, 128: 3 }, hardware: { 1: 1.5, 128: 1.5 } };
const SHARE_OF_LOOP = 0.7;
const SHARE_OF_PRODUCTS = 0.6;

const directory = await mkdtemp(path.join(tmpdir(), "evidence-peers-"));
const [host, browser] = await Promise.all([Host.start({ checkpoints: directory }), launch()]);
try {
  await compare();
} finally {
  await browser.close();
  await host.stop();
  await rm(directory, { recursive: true });
}

async function compare() {
  for (const [name, shape] of Object.entries({ large: QWEN3_0_6B, small: SMALL })) {
    await writeCheckpoint(path.join(directory, name), shape);
    writeGguf(path.join(directory, `${name}.gguf`), shape);
  }
  const large = await worker("large", "wgpu");
  const { isSoftware, hasF16, name } = large.model.adapter;
  console.log(`adapter: ${name || "without a name"}${isSoftware ? ", computes on the CPU" : ""}, f16: ${hasF16}`);
  await products(large.measured.products, TIMES_AS_FAST[isSoftware ? "software" : "hardware"]);
  const share = large.measured.productShare;
  console.log("\na decoded token of Qwen3-0.6B's shape");
  verdict("  products, of its time", share, SHARE_OF_PRODUCTS);

  console.log("\nQwen3-0.6B's shape, tokens/s of a prompt and decoded");
  const peer = await wllama("large", true);
  rates("this worker, WebGPU", large.measured.prefillRate, large.measured.decodeRate);
  rates(`wllama, ${peer.isOnGpu ? "WebGPU" : "CPU, one thread"}`, peer.prefillRate, peer.decodeRate);
  // Where wllama is on the CPU there is nothing of the same kind to be held against.
  verdict("  decoding, times as fast", large.measured.decodeRate / peer.decodeRate, peer.isOnGpu ? 1 : undefined);

  console.log("\na small model's shape on the CPU, tokens/s of a prompt and decoded");
  const small = await worker("small", "flex");
  const smallPeer = await wllama("small", false);
  rates("this worker, one thread", small.measured.prefillRate, small.measured.decodeRate);
  rates("wllama, one thread", smallPeer.prefillRate, smallPeer.decodeRate);
  verdict("  decoding, times as fast", small.measured.decodeRate / smallPeer.decodeRate, 1);
}

/** Loads a checkpoint and measures it. */
async function worker(checkpoint, backend) {
  const page = await openWorker(browser, host);
  const loaded = await ask(page, { type: "load", source: at(host, checkpoint), backend });
  if (loaded.type !== "loaded") throw new Error(loaded.message);
  const measured = await ask(page, { type: "measure", promptTokens: PROMPT, decodeTokens: DECODED });
  if (measured.type !== "measured") throw new Error(measured.message);
  await page.close();
  return { model: loaded.model, measured };
}

async function products(ours, limits) {
  const page = await peers();
  console.log("\nproducts of 4-bit weights, ms");
  console.log("      shape  tokens      ours  onnxruntime  times     loop  GB/s of ours / of the loop");
  for (const { rows, cols, tokens, ms, weightBytes } of ours) {
    const shape = { rows, cols, tokens };
    const theirs = await page.evaluate(
      async (shape) => (await import("/peers/onnxruntime.mjs")).measure(shape),
      shape,
    );
    const columns = [
      `${rows}x${cols}`.padStart(11),
      String(tokens).padStart(7),
      ms.toFixed(2).padStart(9),
      theirs.toFixed(2).padStart(12),
      (theirs / ms).toFixed(1).padStart(6),
    ];
    const missed = [theirs / ms < limits[tokens]];
    if (tokens === 1) {
      const loop = await page.evaluate(async (shape) => (await import("/peers/loop.mjs")).measure(shape), shape);
      const [rate, loopRate] = [weightBytes / ms / 1e6, (rows * cols) / 2 / loop / 1e6];
      columns.push(loop.toFixed(2).padStart(8), `${rate.toFixed(2)} / ${loopRate.toFixed(2)}`);
      missed.push(rate / loopRate < SHARE_OF_LOOP);
    }
    if (missed.includes(true)) {
      columns.push("MISSED");
      process.exitCode = 1;
    }
    console.log(columns.join(" "));
  }
  console.log(`limits: ${limits[1]} and ${limits[128]} times as fast for 1 and 128 tokens, ${SHARE_OF_LOOP} of the loop's GB/s`);
  await page.close();
}

async function wllama(checkpoint, onGpu) {
  const page = await peers();
  const options = {
    url: `${host.url}checkpoints/${checkpoint}.gguf`,
    promptTokens: PROMPT,
    decodeTokens: DECODED,
    onGpu,
  };
  const answer = await page.evaluate(async (options) => (await import("/peers/wllama.mjs")).measure(options), options);
  await page.close();
  return answer;
}

/** A page of the host that can time what runs on it. */
async function peers() {
  const page = await browser.newPage();
  await page.goto(host.url);
  await page.evaluate(() => {
    /** The median of several runs, in milliseconds, after one that does not count. */
    window.timed = async (run) => {
      await run();
      const times = [];
      const end = performance.now() + 1000;
      while (times.length < 3 || (performance.now() < end && times.length < 25)) {
        const start = performance.now();
        await run();
        times.push(performance.now() - start);
      }
      return times.sort((a, b) => a - b)[times.length >> 1];
    };
  });
  return page;
}

function rates(name, prefill, decode) {
  console.log(`  ${name.padEnd(26)} ${prefill.toFixed(2).padStart(9)} ${decode.toFixed(2).padStart(9)}`);
}

/** Prints a ratio beside its limit, if it has one, and remembers one that misses it. */
function verdict(name, ratio, limit) {
  const missed = limit !== undefined && ratio < limit;
  const told = limit === undefined ? "" : ` (limit ${limit}${missed ? ", MISSED" : ""})`;
  console.log(`${name.padEnd(28)} ${ratio.toFixed(2).padStart(9)}${told}`);
  if (missed) process.exitCode = 1;
}
