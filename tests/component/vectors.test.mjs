// The recorded vectors of contract A, in Node by way of jco.
//
// The component is called as a workspace would call it: for paths of the namespace and with what reading
// a file answered. What a workspace refuses itself, a missing file or one that its policy forbids, never
// reaches the component; neither do the loop's own rules (protocol.jsonl, agent_limits in config.jsonl, and
// what a run of loop.jsonl does beside reading). Each of them is counted, so that nothing is left out unseen.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { MapBlobs, example, open } from "../../crates/evidence-component/examples/host.mjs";
import { directory, imported } from "./transpiled.mjs";

const vectors = (name) =>
  readFileSync(new URL(`../vectors/${name}`, import.meta.url), "utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));

/** Limits with the contract's own where a vector names none. */
function limitsOf(artifacts, named) {
  const limits = artifacts.defaultLimits();
  const names = {
    max_inline_bytes: "maxInlineBytes",
    preview_bytes: "previewBytes",
    max_range_bytes: "maxRangeBytes",
  };
  for (const [name, value] of Object.entries(named)) limits[names[name]] = BigInt(value);
  return limits;
}

/** What the model sees of a successful result. */
const shown = (artifacts, scope, text, limits) => artifacts.bound(scope, text, limits)?.text ?? text;

/** Changes the stored bytes of an artifact beneath the component. */
function tamper(blobs, scope, { artifact_id, kind, byte }) {
  const prefix = `artifact/${scope}/${artifact_id.slice("artifact-".length)}/chunk/`;
  const chunks = blobs.list(prefix);
  assert.equal(chunks.length, 1, "the vectors' artifacts have one chunk");
  const [key] = chunks;
  let [value] = blobs.get([key]);
  if (kind === "flip") value = value.with(byte, value[byte] ^ 1);
  else if (kind === "truncate") value = value.slice(0, -1);
  else if (kind === "append") value = new Uint8Array([...value, "x".charCodeAt(0)]);
  else assert.equal(kind, "remove");
  if (kind === "remove") blobs.commit({ expect: [], put: [], delete: [key] });
  else blobs.commit({ expect: [], put: [{ key, value }], delete: [] });
}

test("the component asks for nothing but the blobs", () => {
  assert.deepEqual(imported, ["bounded-evidence:evidence/blobs"]);
});

test("the example runs", async () => {
  const [observation, answer] = await example(directory);
  assert.ok(observation.startsWith("Tool result externalized:\n"));
  assert.ok(Buffer.byteLength(observation) <= 512);
  assert.match(answer, /^Artifact range:\n.*error\[E0282\]: type annotations needed/);
});

test("evidence.jsonl: all 115 vectors", async () => {
  const count = { vectors: 0, bounded: 0, ranges: 0, tampered: 0, refusedByTheWorkspace: 0 };
  for (const { name, files, limits: named, steps, artifacts: expected } of vectors("evidence.jsonl")) {
    const blobs = new MapBlobs();
    const { artifacts } = await open(directory, blobs);
    const limits = limitsOf(artifacts, named);
    for (const [index, step] of steps.entries()) {
      if (step.op === "tamper") {
        tamper(blobs, name, step);
        count.tampered += 1;
        continue;
      }
      assert.equal(step.tool, "read_file");
      const { path } = step.arguments;
      const where = `${name}, step ${index + 1}`;
      if (artifacts.isArtifactPath(path)) {
        const { ok, text } = artifacts.readRange(name, path, limits);
        assert.equal(text, step.result, where);
        assert.equal(ok, !text.startsWith("error: "), where);
        count.ranges += 1;
      } else if (step.result.startsWith("error: ")) {
        count.refusedByTheWorkspace += 1;
      } else {
        assert.equal(shown(artifacts, name, files[path], limits), step.result, where);
        count.bounded += 1;
      }
    }
    const isReadable = (id) => {
      try {
        return artifacts.read(name, id) instanceof Uint8Array;
      } catch (thrown) {
        // The reference counts an artifact whose bytes are gone as not stored.
        return thrown.code !== "artifact-unreadable";
      }
    };
    assert.deepEqual(artifacts.list(name).filter(isReadable).sort(), expected.sort(), name);
    count.vectors += 1;
  }
  assert.deepEqual(count, {
    vectors: 115,
    bounded: 115,
    ranges: 593,
    tampered: 10,
    refusedByTheWorkspace: 23,
  });
});

test("loop.jsonl: what the 42 runs read", async () => {
  const count = { runs: 0, bounded: 0, ranges: 0, otherTools: 0, refusedByTheWorkspace: 0, noCall: 0 };
  for (const { name, files, limits: named, run } of vectors("loop.jsonl")) {
    // A run may write a file that it reads later.
    const written = { ...files };
    const { artifacts } = await open(directory, new MapBlobs());
    const limits = limitsOf(artifacts, named);
    for (const { action, result, step } of run.events) {
      const where = `${name}, step ${step}`;
      const path = action?.arguments?.path;
      if (action?.tool === undefined || result === undefined || result === null) {
        count.noCall += 1;
      } else if (action.tool !== "read_file") {
        if (result.startsWith("wrote ")) written[path] = action.arguments.content;
        count.otherTools += 1;
      } else if (artifacts.isArtifactPath(path)) {
        assert.equal(artifacts.readRange(name, path, limits).text, result, where);
        count.ranges += 1;
      } else if (result.startsWith("error: ")) {
        count.refusedByTheWorkspace += 1;
      } else {
        assert.equal(shown(artifacts, name, written[path], limits), result, where);
        count.bounded += 1;
      }
    }
    count.runs += 1;
  }
  assert.deepEqual(count, {
    runs: 42,
    bounded: 39,
    ranges: 36,
    otherTools: 18,
    refusedByTheWorkspace: 8,
    noCall: 43,
  });
});

test("config.jsonl: the 11 limits of contract A; 5 are the loop's", async () => {
  const { artifacts } = await open(directory, new MapBlobs());
  const count = { checked: 0, ofTheLoop: 0 };
  for (const { limits, error } of vectors("config.jsonl")) {
    if (limits === undefined) {
      count.ofTheLoop += 1;
      continue;
    }
    const check = () => artifacts.checkLimits(limitsOf(artifacts, limits));
    if (error === undefined) check();
    else assert.throws(check, { code: "invalid-argument", message: error });
    count.checked += 1;
  }
  assert.deepEqual(count, { checked: 11, ofTheLoop: 5 });
});
