// What the library costs in a browser:
//
// - bounding and storing a result of 16 MiB, against the least that any such store does: WebCrypto's
//   SHA-256 of the bytes, then one IndexedDB put of them, durable as well;
// - reading 8 KiB out of a stored result of 16 MiB (contract B), against reading them out of one of
//   64 KiB. It is the browser's part of what `bounded-evidence bench store` measures natively.
//
//   LIBRARY=target/npm/evidence-wasm CHROMIUM=/usr/bin/chromium node tests/browser/library-bench.mjs
//
// Ends with status 1 when a ratio is above the project's limit.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

import { chromium } from "playwright-core";

import { launchOptions } from "./chromium.mjs";
import { openLibrary } from "./library.mjs";

const STORE_LIMIT = 3;
const STORE_ROUNDS = 5;

const READ_LIMIT = 1.5;
// Each round times several reads: a browser's clock has steps of up to 0.1 ms, and a median of single
// reads would hide those that touch two chunks.
const READ_ROUNDS = 41;
const READS_OF_A_ROUND = 24;

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** Prints a ratio beside its limit, and remembers one that is over it. */
function report(ratio, limit) {
  const reached = ratio <= limit;
  console.log(`  ratio                 ${ratio.toFixed(2)} (limit ${limit}${reached ? "" : ", OVER"})`);
  if (!reached) process.exitCode = 1;
}

async function storing(page) {
  const rounds = await page.evaluate(async (rounds) => {
    const store = await window.library.openStore({ kind: "indexeddb" });
    const artifacts = store.artifacts("bench");
    const database = await new Promise((resolve, reject) => {
      const request = indexedDB.open("baseline", 1);
      request.onupgradeneeded = () => request.result.createObjectStore("values");
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    const putAtOnce = (bytes) =>
      new Promise((resolve, reject) => {
        const transaction = database.transaction("values", "readwrite", { durability: "strict" });
        transaction.objectStore("values").put(bytes, "value");
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error);
      });
    const results = [];
    for (let round = 0; round < rounds; round += 1) {
      const result = window.hexadecimal(16 * 1024 * 1024);
      const bytes = new TextEncoder().encode(result);
      const library = await window.timed(() => artifacts.bound(result));
      const digest = await window.timed(() => crypto.subtle.digest("SHA-256", bytes));
      const put = await window.timed(() => putAtOnce(bytes));
      results.push({ library, digest, put });
      await artifacts.deleteAll();
    }
    return results;
  }, STORE_ROUNDS);

  const of = (name) => median(rounds.map((round) => round[name]));
  console.log(`16 MiB, median of ${STORE_ROUNDS} rounds:`);
  console.log(`  bound and store       ${of("library").toFixed(0)} ms`);
  console.log(`  WebCrypto SHA-256     ${of("digest").toFixed(0)} ms`);
  console.log(`  one IndexedDB put     ${of("put").toFixed(0)} ms`);
  report(median(rounds.map(({ library, digest, put }) => library / (digest + put))), STORE_LIMIT);
}

async function reading(page, kind) {
  const rounds = await page.evaluate(
    async ({ kind, rounds, reads }) => {
      const store = await window.library.openStore({ kind });
      const output = store.toolOutput("bench");
      await output.createJob("bench");
      const stored = async (byteCount) => {
        const empty = '{"success":true,"text":"","data":null,"receipt":null}'.length;
        const text = window.hexadecimal(byteCount - empty);
        const { reference } = await output.record("bench", { success: true, text });
        const { sha256, bytes } = JSON.parse(reference);
        if (bytes !== byteCount) throw new Error(`stored ${bytes} bytes and not ${byteCount}`);
        let position = 0;
        // A round of reads at places that are spread over the whole.
        return async () => {
          for (let read = 0; read < reads; read += 1) {
            position += 7_919_993;
            const offset = position % (byteCount - 8192);
            const { text } = await output.read("bench", sha256, { offset, limit: 8192 });
            if (text.length !== 8192) throw new Error(`read ${text.length} bytes`);
          }
        };
      };
      const fromLarge = await stored(16 * 1024 * 1024);
      const fromSmall = await stored(64 * 1024);
      // Compiled, and in whatever caches there are.
      await fromLarge();
      await fromSmall();
      const results = [];
      for (let round = 0; round < rounds; round += 1) {
        const large = await window.timed(fromLarge);
        const small = await window.timed(fromSmall);
        results.push({ large: large / reads, small: small / reads });
      }
      await output.deleteJob("bench");
      return results;
    },
    { kind, rounds: READ_ROUNDS, reads: READS_OF_A_ROUND },
  );

  const of = (name) => (1000 * median(rounds.map((round) => round[name]))).toFixed(0);
  console.log(`8 KiB, ${kind}, median of ${READ_ROUNDS} rounds of ${READS_OF_A_ROUND} reads:`);
  console.log(`  out of 16 MiB         ${of("large")} us`);
  console.log(`  out of 64 KiB         ${of("small")} us`);
  report(median(rounds.map(({ large, small }) => large / small)), READ_LIMIT);
}

// A profile on the disk: a private one would keep its databases in memory.
const profile = await mkdtemp(path.join(tmpdir(), "evidence-bench-"));
const context = await chromium.launchPersistentContext(profile, launchOptions());
try {
  const page = await openLibrary(context);
  await page.evaluate(() => {
    window.timed = async (act) => {
      const start = performance.now();
      await act();
      return performance.now() - start;
    };
  });
  await storing(page);
  await reading(page, "indexeddb");
  await reading(page, "memory");
} finally {
  await context.close();
  await rm(profile, { recursive: true, force: true });
}
