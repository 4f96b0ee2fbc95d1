// llama.cpp in a browser, as wllama packs it.

import { Wllama } from "./node_modules/@wllama/wllama/esm/index.js";

const WASM = new URL("./node_modules/@wllama/wllama/esm/wasm/wllama.wasm", import.meta.url).href;

/** Tokens a second of reading a prompt and of decoding, and which backend really computed. */
export async function measure({ url, promptTokens, decodeTokens, onGpu }) {
  const log = [];
  const keep = (...parts) => log.push(parts.join(" "));
  const logger = { debug: keep, log: keep, warn: keep, error: keep };
  const wllama = new Wllama({ default: WASM }, { logger });
  const file = await (await fetch(url)).blob();
  await wllama.loadModel([file], {
    n_ctx: 512,
    n_batch: 128,
    n_threads: 1,
    n_gpu_layers: onGpu ? 999 : 0,
    warmup: false,
  });
  // Each of these letters is a token of the random vocabulary.
  const prompt = Array.from({ length: promptTokens }, (_, index) => "cdefghij"[index % 8]).join("");
  const options = { prompt, temperature: 0, max_tokens: decodeTokens, ignore_eos: true };
  // The first run prepares what later ones need.
  await wllama.createCompletion({ ...options, max_tokens: 1 });
  const { timings } = await wllama.createCompletion({ ...options, prompt: `z${prompt}`, cache_prompt: false });
  await wllama.exit();
  return {
    prefillRate: timings.prompt_per_second,
    decodeRate: timings.predicted_per_second,
    // It falls back to the CPU without a word but this one.
    isOnGpu: log.some((line) => /WebGPU\S* model buffer size/.test(line)),
  };
}
