// How long it takes to bound and store a result of 16 MiB, against the least that any such store
// does: WebCrypto's SHA-256 of the bytes, then one IndexedDB put of them, durable as well.
//
//   LIBRARY=target/npm/evidence-wasm CHROMIUM=/usr/bin/chromium node tests/browser/library-bench.mjs
//
// Ends with status 1 when the ratio is above the project's limit.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

import { chromium } from "playwright-core";

import { launchOptions } from "./chromium.mjs";
import { openLibrary } from "./library.mjs";

const LIMIT = 3;
const ROUNDS = 5;

// A profile on the disk: a private one would keep its databases in memory.
const profile = await mkdtemp(path.join(tmpdir(), "evidence-bench-"));
const context = await chromium.launchPersistentContext(profile, launchOptions());
try {
  const page = await openLibrary(context);
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
    const timed = async (act) => {
      const start = performance.now();
      await act();
      return performance.now() - start;
    };
    const results = [];
    for (let round = 0; round < rounds; round += 1) {
      const result = window.hexadecimal(16 * 1024 * 1024);
      const bytes = new TextEncoder().encode(result);
      const library = await timed(() => artifacts.bound(result));
      const digest = await timed(() => crypto.subtle.digest("SHA-256", bytes));
      const put = await timed(() => putAtOnce(bytes));
      results.push({ library, digest, put });
      await artifacts.deleteAll();
    }
    return results;
  }, ROUNDS);

  const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
  const of = (name) => median(rounds.map((round) => round[name]));
  const ratio = median(rounds.map(({ library, digest, put }) => library / (digest + put)));
  console.log(`16 MiB, median of ${ROUNDS} rounds:`);
  console.log(`  bound and store       ${of("library").toFixed(0)} ms`);
  console.log(`  WebCrypto SHA-256     ${of("digest").toFixed(0)} ms`);
  console.log(`  one IndexedDB put     ${of("put").toFixed(0)} ms`);
  console.log(`  ratio                 ${ratio.toFixed(2)} (limit ${LIMIT})`);
  process.exitCode = ratio <= LIMIT ? 0 : 1;
} finally {
  await context.close();
  await rm(profile, { recursive: true, force: true });
}
