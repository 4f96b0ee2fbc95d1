// Blobs that fail, in Node by way of jco. That no failure makes the component itself trap is tested in
// wasmtime, at every call; here is what only jco does with what a host in JavaScript throws.

import assert from "node:assert/strict";
import { test } from "node:test";
import { MapBlobs, open } from "../../crates/evidence-component/examples/host.mjs";
import { directory } from "./transpiled.mjs";

class FailingBlobs extends MapBlobs {
  thrown = undefined;

  commit(batch) {
    if (this.thrown !== undefined) throw this.thrown;
    super.commit(batch);
  }
}

const text = "line\n".repeat(1000);

test("an error with the payload of a blob error is answered with its code", async () => {
  const blobs = new FailingBlobs();
  const { artifacts, toolOutput } = await open(directory, blobs);
  const cases = [
    [{ tag: "exhausted" }, "storage-exhausted", "storage-exhausted"],
    [{ tag: "unavailable", val: "gone" }, "storage-unavailable", "storage-unavailable"],
    [{ tag: "damaged", val: "torn" }, "storage-damaged", "integrity-failure"],
    [{ tag: "conflict" }, "storage-conflict", "conflict"],
  ];
  for (const [payload, code, tag] of cases) {
    blobs.thrown = Object.assign(new Error(), { payload });
    assert.throws(() => artifacts.bound("s", text), (thrown) => thrown.code === code);
    assert.throws(
      () => toolOutput.createJob("s", "j", 1n),
      (thrown) => thrown.code.tag === tag && thrown.message !== "",
    );
  }
  blobs.thrown = undefined;
  assert.deepEqual(blobs.list(""), []);
  assert.ok(artifacts.bound("s", text).artifact.byteCount === 5000n);
});

test("any other exception comes back as it is; nothing was stored, and a new instance goes on", async () => {
  const blobs = new FailingBlobs();
  const { artifacts } = await open(directory, blobs);
  blobs.thrown = new Error("a bug of the host");
  assert.throws(() => artifacts.bound("s", text), blobs.thrown);
  assert.deepEqual(blobs.list(""), []);
  blobs.thrown = undefined;
  const again = await open(directory, blobs);
  assert.ok(again.artifacts.bound("s", text).artifact.byteCount === 5000n);
});

test("what jco does to strings: half a surrogate pair is replaced, a byte order mark is not", async () => {
  const { artifacts } = await open(directory, new MapBlobs());
  const stored = (text) => {
    const { artifactId } = artifacts.put("s", text);
    return Buffer.from(artifacts.read("s", artifactId)).toString();
  };
  // Hosts refuse it before, as the example does.
  assert.equal(stored("a\ud800"), "a\ufffd");
  assert.equal(stored("\ufeffa"), "\ufeffa");
});
