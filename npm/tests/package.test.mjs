// The package as npm installs it: what is in it, how it is loaded, and tools that are plain functions.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { EvidenceError, boundTools, openStore } from "bounded-evidence";

const run = promisify(execFile);
const installed = fileURLToPath(new URL("../node_modules/bounded-evidence/", import.meta.url));
const examples = fileURLToPath(new URL("../examples/", import.meta.url));

let directory;
before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "bounded-evidence-"));
});
after(() => rm(directory, { recursive: true }));

/** Runs a module in a process of its own. */
const evaluate = (source, cwd = examples) => run(process.execPath, ["--input-type=module", "--eval", source], { cwd });

test("it is alone in a fresh project: no other package, no script, no network", async () => {
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", process.env.TARBALL], { cwd: directory });
  const packages = await readdir(path.join(directory, "node_modules"));
  assert.deepEqual(packages.filter((name) => !name.startsWith(".")), ["bounded-evidence"]);
  const plain = await readFile(path.join(examples, "plain.mjs"), "utf8");
  assert.match((await evaluate(plain, directory)).stdout, /^error\[E0282\]: type annotations needed$/m);
});

test("its version is the library's", async () => {
  const manifest = JSON.parse(await readFile(path.join(installed, "package.json"), "utf8"));
  const cargo = await readFile(new URL("../../Cargo.toml", import.meta.url), "utf8");
  assert.equal(manifest.version, /^version = "(.*)"$/m.exec(cargo)[1]);
});

test("the WebAssembly is loaded from bytes, from a module and from an address", async (context) => {
  const wasm = await readFile(path.join(installed, "dist/wasm/evidence_wasm_bg.wasm"));
  const server = createServer((_request, response) => {
    response.setHeader("content-type", "application/wasm");
    response.end(wasm);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  const bytes = `await readFile(fileURLToPath(import.meta.resolve("bounded-evidence/evidence_wasm_bg.wasm")))`;
  const address = `http://127.0.0.1:${server.address().port}/`;
  for (const source of [bytes, `new WebAssembly.Module(${bytes})`, `"${address}"`, `new URL("${address}")`, `fetch("${address}")`]) {
    const { stdout } = await evaluate(`
      import { readFile } from "node:fs/promises";
      import { fileURLToPath } from "node:url";
      import { init, isArtifactPath } from "bounded-evidence";
      await init(${source});
      console.log(isArtifactPath(".tool-artifacts/"));
    `);
    assert.equal(stdout, "true\n", source);
  }
});

test("the wrappers take the objects of the entry with processes, whose errors are the same", async () => {
  const { stdout } = await evaluate(`
    import { EvidenceError, boundTools, openStore } from "bounded-evidence/processes";
    import { EvidenceError as Other } from "bounded-evidence";
    import { boundTools as boundSdkTools } from "bounded-evidence/ai-sdk";
    const store = await openStore({ kind: "memory" });
    const shown = await boundTools({ get: () => "x".repeat(1000) }, { artifacts: store.artifacts("job") }).get();
    const output = store.toolOutput("session");
    console.log(shown.length <= 512, Object.keys(boundSdkTools({}, { output, job: "job" })), EvidenceError === Other);
  `);
  assert.equal(stdout, "true [ 'akh_read_tool_output' ] true\n");
});

test("the entry with processes has all of the other, and what describes their tools", async () => {
  const [plain, processes] = await Promise.all(["bounded-evidence", "bounded-evidence/processes"].map((name) => import(name)));
  assert.deepEqual(Object.keys(processes).sort(), [...Object.keys(plain), "processToolSchemas"].sort());
  const named = async (entry) => (await readFile(path.join(installed, "dist", `${entry}.d.ts`), "utf8")).match(/type \w+/g);
  const types = new Set(await named("processes"));
  assert.deepEqual((await named("index")).filter((type) => !types.has(type)), []);
});

test("loading that failed may be repeated", async () => {
  const { stdout } = await evaluate(`
    import { init, isArtifactPath } from "bounded-evidence";
    const failed = await init(new Uint8Array([1, 2, 3])).then(() => false, () => true);
    await init();
    console.log(failed, isArtifactPath("a"));
  `);
  assert.equal(stdout, "true false\n");
});

const artifacts = async () => (await openStore({ kind: "memory" })).artifacts("job");

test("a plain tool: a small result passes as it is, a large one is stored and read in ranges", async () => {
  const results = { small: "s".repeat(512), large: "l".repeat(513) };
  const tools = boundTools({ get: ({ name }) => results[name] }, { artifacts: await artifacts() });
  assert.equal(await tools.get({ name: "small" }), results.small);
  const shown = await tools.get({ name: "large" });
  assert.ok(shown.startsWith("Tool result externalized:\n") && shown.length <= 512);
  const { range_request: { tool, path } } = JSON.parse(shown.slice(shown.indexOf("{")));
  const answer = await tools[tool]({ path });
  assert.equal(JSON.parse(answer.slice(answer.indexOf("{"))).data, results.large.slice(0, 512));
});

test("a path of the artifacts never reaches the wrapped read_file, and other paths do", async () => {
  const seen = [];
  const read_file = ({ path }, more) => {
    seen.push([path, more]);
    return `contents of ${path}`;
  };
  const tools = boundTools({ read_file }, { artifacts: await artifacts() });
  assert.equal(await tools.read_file({ path: "a.txt" }, "more"), "contents of a.txt");
  assert.match(await tools.read_file({ path: ".tool-artifacts/x" }), /^error: /);
  assert.deepEqual(seen, [["a.txt", "more"]]);
  const alone = boundTools({}, { artifacts: await artifacts() });
  assert.match(await alone.read_file({ path: "a.txt" }), /^error: /);
});

test("what a plain tool throws passes unchanged, and a result that is not stored is not shown", async () => {
  const thrown = new Error("broken");
  const full = {
    get: (keys) => keys.map(() => undefined),
    list: () => [],
    commit: () => {
      throw Object.assign(new Error("no room"), { code: "exhausted" });
    },
  };
  const store = await openStore({ kind: "custom", store: full });
  const tools = boundTools(
    { fail: () => Promise.reject(thrown), large: () => "x".repeat(1000), surrogate: () => "\ud800" },
    { artifacts: store.artifacts("job") },
  );
  await assert.rejects(tools.fail(), (error) => error === thrown);
  await assert.rejects(tools.large(), (error) => error instanceof EvidenceError && error.code === "storage_exhausted");
  await assert.rejects(tools.surrogate(), { code: "lone_surrogate" });
});

test("the recorded observations and ranges of contract A, byte for byte", async () => {
  const lines = (await readFile(path.join(process.env.VECTORS, "evidence.jsonl"), "utf8")).trim().split("\n");
  let compared = 0;
  for (const [index, line] of lines.entries()) {
    const { files, limits: recorded, steps } = JSON.parse(line);
    const limits = {
      maxInlineBytes: recorded.max_inline_bytes,
      previewBytes: recorded.preview_bytes,
      maxRangeBytes: recorded.max_range_bytes,
    };
    const store = (await openStore({ kind: "memory" })).artifacts(`vector-${index}`);
    const tools = boundTools({ read_file: ({ path }) => files[path] }, { artifacts: store, limits });
    for (const { op, tool, arguments: input, result } of steps) {
      // The other tools and the refusals of the file system are the workspace's; what alters the
      // stored bytes is tested below this surface.
      if (op !== "execute") break;
      if (tool !== "read_file" || !(input.path in files || input.path.startsWith(".tool-artifacts/"))) continue;
      assert.equal(await tools.read_file(input), result);
      compared += 1;
    }
  }
  assert.ok(compared > 300, `${compared} compared`);
});
