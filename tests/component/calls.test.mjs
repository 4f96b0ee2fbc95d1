// The calls of calls.jsonl, in Node by way of jco; crates/evidence-component/tests/wasmtime/calls.rs runs and
// records the same in wasmtime.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { MapBlobs, open } from "../../crates/evidence-component/examples/host.mjs";
import { directory } from "./transpiled.mjs";

const camel = (name) => name.replace(/-./g, (match) => match[1].toUpperCase());
const kebab = (name) => name.replace(/[A-Z]/g, (match) => `-${match.toLowerCase()}`);
const renamed = (fields, rename, convert) =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [rename(name), convert(value)]));

/** An argument as jco takes it. */
function argument(value) {
  if (value === null) return undefined;
  if (typeof value === "number") return BigInt(value);
  if (Array.isArray(value)) return value.map(argument);
  if (typeof value !== "object") return value;
  if (value.repeat !== undefined) {
    const [text, times] = value.repeat;
    return (value.before ?? "") + text.repeat(times) + (value.after ?? "");
  }
  return renamed(value, camel, argument);
}

/** What jco answered, as the file has it: a long text by its size and digest. */
function answered(value) {
  if (value === undefined) return null;
  if (typeof value === "bigint") return Number(value);
  if (value instanceof Uint8Array) return answered(Buffer.from(value).toString());
  if (typeof value === "string") {
    const bytes = Buffer.from(value);
    if (bytes.length <= 400) return value;
    return { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
  }
  if (Array.isArray(value)) return value.map(answered);
  return typeof value === "object" ? renamed(value, kebab, answered) : value;
}

test("every recorded call is answered as recorded: 142 of them", async () => {
  const lines = readFileSync(new URL("calls.jsonl", import.meta.url), "utf8").split("\n").filter(Boolean);
  let count = 0;
  for (const { name, steps } of lines.map((line) => JSON.parse(line))) {
    const component = await open(directory, new MapBlobs());
    for (const [index, { call, args, answer: expected }] of steps.entries()) {
      const [exported, method] = call.split(".").map(camel);
      const isResult = expected !== null && ["ok", "error"].includes(Object.keys(expected).join());
      let answer;
      try {
        answer = answered(component[exported][method](...args.map(argument)));
        if (isResult) answer = { ok: answer };
      } catch (thrown) {
        // What jco throws is the error as the interface has it.
        if (thrown instanceof Error) throw thrown;
        answer = { error: answered(thrown) };
      }
      assert.deepEqual(answer, expected, `${name}, step ${index + 1}: ${call}`);
      count += 1;
    }
  }
  assert.equal(count, 142);
});
