// Each example, as a reader of it runs it.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";

const examples = fileURLToPath(new URL("../examples/", import.meta.url));
const run = async (name, ...more) =>
  (await promisify(execFile)(process.execPath, [path.join(examples, name), ...more])).stdout.trim().split("\n");

test("plain tools", async () => {
  assert.deepEqual(await run("plain.mjs"), [
    "511 characters reach the model instead of 100038",
    "error[E0282]: type annotations needed",
  ]);
});

test("the Vercel AI SDK", async () => {
  assert.deepEqual(await run("ai-sdk.mjs"), [
    "16382 bytes reach the model instead of 100038",
    "error[E0282]: type annotations needed",
  ]);
});

test("a process", async () => {
  const [ended, line] = await run("processes.mjs");
  assert.match(ended, /^exited after \d{5} bytes$/);
  assert.match(line, /^compiled \d{4} of 3000$/);
});

test("a directory, in two runs", async (context) => {
  const parent = await mkdtemp(path.join(tmpdir(), "bounded-evidence-"));
  context.after(() => rm(parent, { recursive: true }));
  const directory = path.join(parent, "evidence");
  const [stored] = await run("directory.mjs", directory);
  const artifact = stored.slice("stored: ".length);
  const again = await run("directory.mjs", directory);
  assert.equal(again[0], `from an earlier run: ${artifact} 160025 bytes`);
});

test("a worker of Node", async () => {
  const source = `
    import { parentPort } from "node:worker_threads";
    import { boundTools, openStore } from "bounded-evidence";
    const artifacts = (await openStore({ kind: "memory" })).artifacts("job");
    parentPort.postMessage(await boundTools({ get: () => "x".repeat(1000) }, { artifacts }).get());
  `;
  const address = new URL(`data:text/javascript,${encodeURIComponent(source.replaceAll('"bounded-evidence"', `"${import.meta.resolve("bounded-evidence")}"`))}`);
  const worker = new Worker(address);
  const shown = await new Promise((resolve, reject) => worker.on("message", resolve).on("error", reject));
  await worker.terminate();
  assert.ok(shown.startsWith("Tool result externalized:\n"));
});

test("every example is a page", async () => {
  const files = (await readdir(examples, { recursive: true })).filter((name) => /\.m?js$/.test(name));
  assert.equal(files.length, 8);
  for (const name of files) {
    const lines = (await readFile(path.join(examples, name), "utf8")).split("\n").length;
    assert.ok(lines <= 60, `${name} has ${lines} lines`);
  }
});
