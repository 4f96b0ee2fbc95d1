// A host of the component in JavaScript, with its blobs in a Map. Transpile the component first:
//
//   npx @bytecodealliance/jco transpile bounded_evidence.wasm --instantiation sync --name evidence -o evidence

import { readFileSync } from "node:fs";

/** What a function of the blobs throws so that the component knows what happened. */
class BlobError extends Error {
  constructor(payload) {
    super(payload.tag);
    this.payload = payload;
  }
}

export class MapBlobs {
  #values = new Map();

  get(keys) {
    return keys.map((key) => this.#values.get(key));
  }

  list(prefix) {
    return [...this.#values.keys()].filter((key) => key.startsWith(prefix));
  }

  commit({ expect, put, delete: removed }) {
    for (const { key, value } of expect) {
      if (!sameBytes(this.#values.get(key), value)) throw new BlobError({ tag: "conflict" });
    }
    for (const key of removed) this.#values.delete(key);
    for (const { key, value } of put) this.#values.set(key, value);
  }
}

const sameBytes = (a, b) =>
  a === undefined || b === undefined ? a === b : Buffer.from(a).equals(b);

/** An instance of the component, of the directory that it was transpiled to, over these blobs. */
export async function open(directory, blobs) {
  const { instantiate } = await import(new URL("evidence.js", directory));
  const core = (name) => new WebAssembly.Module(readFileSync(new URL(name, directory)));
  return instantiate(core, {
    "bounded-evidence:evidence/blobs": {
      get: (keys) => blobs.get(keys),
      list: (prefix) => blobs.list(prefix),
      commit: (batch) => blobs.commit(batch),
    },
  });
}

/** What the model sees of a tool's result, and what it is answered when it asks for a range of it. */
export async function example(directory) {
  const { artifacts } = await open(directory, new MapBlobs());
  const log = "   Compiling a crate\n".repeat(5000) + "error[E0282]: type annotations needed\n";
  // Half a surrogate pair has no bytes: it would be stored as another character.
  if (!log.isWellFormed()) throw new Error("the text has no exact UTF-8 bytes");
  const observation = artifacts.bound("my-session", log);
  // What is small is shown as it is.
  if (observation === undefined) return [log];
  const path = `.tool-artifacts/${observation.artifact.artifactId}/bytes/105000-105038`;
  const answer = artifacts.isArtifactPath(path) && artifacts.readRange("my-session", path);
  return [observation.text, answer.text];
}
