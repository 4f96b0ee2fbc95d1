// What `bounded-evidence model-check` and `bench --model` do natively, in Chromium:
//
//   MODEL_WORKER=target/model-worker CHROMIUM=/usr/bin/chromium node tests/model/run.mjs check FOLDER
//   … node tests/model/run.mjs bench FOLDER PROMPT_TOKENS DECODED_TOKENS

import path from "node:path";

import { Host } from "./server.mjs";
import { ask, at, launch, openWorker, peakMemory } from "./worker.mjs";

const [action, given, ...counts] = process.argv.slice(2);
const folder = path.resolve(given);

const [host, browser] = await Promise.all([Host.start({ checkpoints: path.dirname(folder) }), launch()]);
try {
  const page = await openWorker(browser, host);
  await (action === "check" ? check(page) : bench(page, ...counts.map(Number)));
} finally {
  await browser.close();
  await host.stop();
}

/** The answer of the worker, unless it is another than this one. */
async function expect(page, type, request) {
  const answer = await ask(page, request);
  if (answer.type !== type) throw new Error(answer.message);
  return answer;
}

const source = () => at(host, path.basename(folder));

async function check(page) {
  const { report, failed } = await expect(page, "checked", { type: "check", source: source(), backend: "wgpu" });
  process.stdout.write(report);
  process.exitCode = failed === 0 ? 0 : 1;
}

async function bench(page, promptTokens, decodeTokens) {
  const { model } = await expect(page, "loaded", { type: "load", source: source() });
  const measured = await expect(page, "measured", { type: "measure", promptTokens, decodeTokens });
  const { tab, device } = await peakMemory(browser);
  const megabytes = (bytes) => Math.round(bytes / 2 ** 20);
  console.log(`adapter: ${model.adapter ? model.adapter.name || "without a name" : "none, on the CPU"}`);
  console.log(`prefill: ${measured.prefillRate.toFixed(1)} tokens/s (${promptTokens} tokens)`);
  console.log(
    `decode: ${measured.decodeRate.toFixed(1)} tokens/s (${decodeTokens} tokens), ` +
      `${(measured.weightBandwidth / 1e9).toFixed(2)} GB/s of weights, ` +
      `${measured.readBackBytesPerToken} bytes read back a token`,
  );
  console.log(`products: ${Math.round(100 * measured.productShare)}% of a decoded token's time`);
  console.log(`peak memory: ${megabytes(tab)} MiB of the tab, ${megabytes(device)} MiB of the device's process`);
}
