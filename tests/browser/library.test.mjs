// The library for JavaScript, as an application gets it: the built package in Chromium.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { launch } from "./chromium.mjs";
import { limitQuota, openLibrary } from "./library.mjs";

let browser;
let context;
let page;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());
beforeEach(async () => {
  await context?.close();
  context = await browser.newContext();
  page = await openLibrary(context);
});

test("a refusal is an EvidenceError with a code and a stack", async () => {
  const error = await page.evaluate(async () => {
    const { EvidenceError, openStore } = window.library;
    const error = await openStore({ kind: "disk" }).catch((error) => error);
    return {
      isError: error instanceof Error && error instanceof EvidenceError,
      text: String(error),
      code: error.code,
      hasStack: error.stack.includes("EvidenceError"),
    };
  });
  assert.deepEqual(error, {
    isError: true,
    text: 'EvidenceError: options.kind must be "memory" or "indexeddb"',
    code: "invalid_argument",
    hasStack: true,
  });
});

test("artifacts survive a reload and are shared between tabs", async () => {
  const put = async (page, text) =>
    page.evaluate(async (text) => {
      window.store ??= await window.library.openStore({ kind: "indexeddb" });
      return window.store.artifacts("job").put(text);
    }, text);
  const list = (page) =>
    page.evaluate(async () => {
      window.store ??= await window.library.openStore({ kind: "indexeddb" });
      return window.store.artifacts("job").list();
    });
  const other = await openLibrary(context);
  const one = await put(page, "one");
  const both = [one.artifactId, (await put(other, "two")).artifactId].sort();
  assert.deepEqual(await list(page), both);
  // The same text at the same moment is stored once.
  const same = await Promise.all([put(page, "x".repeat(200_000)), put(other, "x".repeat(200_000))]);
  assert.deepEqual(same[0], same[1]);
  await page.close();
  page = await openLibrary(context);
  assert.deepEqual(await list(page), [...both, same[0].artifactId].sort());
});

test("a full disk in mid-put stores nothing and leaves what was there", async () => {
  // Chromium remembers for a while how much room it found: the limit comes before the first write.
  await limitQuota(page, 3_000_000);
  await page.evaluate(async () => {
    window.store = await window.library.openStore({ kind: "indexeddb" });
    window.artifacts = window.store.artifacts("job");
    window.earlier = await window.artifacts.put("earlier");
  });
  const refused = await page.evaluate(async () => {
    // Not to be compressed away: a browser may do that.
    window.large = window.hexadecimal(16 * 1024 * 1024);
    const refused = await window.settled(window.artifacts.put(window.large));
    const read = await window.artifacts.read(window.earlier.artifactId);
    return { refused, list: await window.artifacts.list(), earlier: new TextDecoder().decode(read) };
  });
  assert.deepEqual(refused.refused, { code: "storage_exhausted", isEvidenceError: true });
  assert.equal(refused.list.length, 1);
  assert.equal(refused.earlier, "earlier");

  const run = await page.evaluate(() =>
    window.artifacts.runAgent({
      task: "read it",
      files: { "large.log": window.large.slice(0, 1_000_000).repeat(8) },
      policy: { maxFileBytes: 20_000_000 },
      generate: () => '{"tool":"read_file","path":"large.log"}',
    }),
  );
  assert.equal(run.reason, "storage_failed");
  assert.match(run.error, /storage is exhausted/);
  assert.equal(run.events.length, 1);

  await limitQuota(page, undefined);
  const stored = await page.evaluate(() => window.settled(window.artifacts.put(window.large)));
  assert.equal(stored.value.byteCount, 16 * 1024 * 1024);
});

test("a page that is closed in mid-put leaves all of the artifact or none", async () => {
  for (const delay of [0, 20, 60, 120, 250]) {
    const closing = await openLibrary(context);
    const started = closing.evaluate(async (delay) => {
      const store = await window.library.openStore({ kind: "indexeddb" });
      const text = `${delay}`.padEnd(4 * 1024 * 1024, "0123456789abcdef");
      // Not awaited: the page goes away beneath it.
      store.artifacts("closing").put(text);
    }, delay);
    await started;
    await new Promise((resolve) => setTimeout(resolve, delay));
    await closing.close();
    const left = await page.evaluate(async () => {
      const artifacts = (await window.library.openStore({ kind: "indexeddb" })).artifacts("closing");
      const sizes = await Promise.all((await artifacts.list()).map(async (id) => (await artifacts.read(id)).length));
      const keys = await new Promise((resolve, reject) => {
        const open = indexedDB.open("bounded-evidence");
        open.onerror = () => reject(open.error);
        open.onsuccess = () => {
          const request = open.result.transaction("values").objectStore("values").getAllKeys();
          request.onsuccess = () => {
            open.result.close();
            resolve(request.result.length);
          };
        };
      });
      await artifacts.deleteAll();
      return { sizes, keys };
    });
    const whole = { sizes: [4 * 1024 * 1024], keys: 0 };
    if (left.keys > 0) {
      assert.deepEqual(left.sizes, whole.sizes, `after ${delay} ms`);
    } else {
      assert.deepEqual(left.sizes, [], `after ${delay} ms`);
    }
  }
});

test("bytes that were altered in the database are refused and not shown", async () => {
  const answers = await page.evaluate(async () => {
    const artifacts = (await window.library.openStore({ kind: "indexeddb" })).artifacts("job");
    const { descriptor } = await artifacts.bound("secret ".repeat(1000));
    await new Promise((resolve, reject) => {
      const open = indexedDB.open("bounded-evidence");
      open.onerror = () => reject(open.error);
      open.onsuccess = () => {
        const transaction = open.result.transaction("values", "readwrite");
        const cursor = transaction.objectStore("values").openCursor();
        cursor.onsuccess = () => {
          if (!cursor.result) return;
          if (cursor.result.key.includes("/chunk/")) {
            cursor.result.value[3] ^= 1;
            cursor.result.update(cursor.result.value);
          }
          cursor.result.continue();
        };
        transaction.oncomplete = () => {
          open.result.close();
          resolve();
        };
      };
    });
    const path = `.tool-artifacts/${descriptor.artifactId}/bytes/0-100`;
    return [await artifacts.readRange(path), await window.settled(artifacts.read(descriptor.artifactId))];
  });
  assert.deepEqual(answers, [
    { ok: false, text: "error: artifact digest does not match its recorded identity" },
    { code: "digest_mismatch", isEvidenceError: true },
  ]);
});

test("a store that another tab deletes says so, and opening it again works", async () => {
  const codes = await page.evaluate(async () => {
    const open = async () => (await window.library.openStore({ kind: "indexeddb" })).artifacts("job");
    const artifacts = await open();
    await artifacts.put("text");
    await new Promise((resolve, reject) => {
      const request = indexedDB.deleteDatabase("bounded-evidence");
      request.onsuccess = resolve;
      request.onerror = request.onblocked = reject;
    });
    return [await window.settled(artifacts.list()), await window.settled((await open()).list())];
  });
  assert.deepEqual(codes, [{ code: "storage_unavailable", isEvidenceError: true }, { value: [] }]);
});

test("a run tells its events as they happen and shows bounded results", async () => {
  const { outcome, told } = await page.evaluate(async () => {
    const artifacts = (await window.library.openStore({ kind: "memory" })).artifacts("job");
    const told = [];
    const log = `${"noise\n".repeat(2000)}error: the needle\n${"noise\n".repeat(2000)}`;
    const replies = [
      () => ({ tool: "read_file", path: "build.log" }),
      (messages) => {
        const { range_request } = JSON.parse(messages.at(-1).content.split("\n").at(-1));
        const start = log.indexOf("error");
        return { tool: "read_file", path: range_request.path.replace(/\/bytes\/.*/, `/bytes/${start}-${start + 17}`) };
      },
      (messages) => ({ final: JSON.parse(messages.at(-1).content.split("\n").at(-1)).data }),
    ];
    const outcome = await artifacts.runAgent({
      task: "find the error",
      files: { "build.log": log },
      generate: async ({ messages }) => JSON.stringify(replies.shift()(messages)),
      onEvent: (event) => told.push([event.type, event.step, event.messages?.length ?? event.result?.length ?? null]),
    });
    return { outcome, told };
  });
  assert.equal(outcome.final, "error: the needle");
  assert.equal(outcome.reason, "completed");
  assert.deepEqual(outcome.changedFiles, {});
  assert.deepEqual(
    told.map(([type, step]) => [type, step]),
    [["prompt", 1], ["step", 1], ["prompt", 2], ["step", 2], ["prompt", 3], ["step", 3]],
  );
  assert.ok(told[1][2] <= 512, "the model saw at most max_inline_bytes");
});

test("what onEvent throws is what the run rejects with", async () => {
  const { same, calls } = await page.evaluate(async () => {
    const artifacts = (await window.library.openStore({ kind: "memory" })).artifacts("job");
    const exception = { not: "an error" };
    let calls = 0;
    const thrown = await artifacts
      .runAgent({
        task: "t",
        generate: () => {
          calls += 1;
          return '{"tool":"list_files"}';
        },
        onEvent: () => {
          throw exception;
        },
      })
      .catch((thrown) => thrown);
    return { same: thrown === exception, calls };
  });
  assert.deepEqual({ same, calls }, { same: true, calls: 1 });
});

test("an AbortSignal ends a run at once, and what happened until then is kept", async () => {
  const result = await page.evaluate(async () => {
    const artifacts = (await window.library.openStore({ kind: "memory" })).artifacts("job");
    const run = (signal, generate) => artifacts.runAgent({ task: "t", generate, signal });

    // In the middle of a reply that never comes.
    const during = new AbortController();
    let given;
    let calls = 0;
    const hanging = await run(during.signal, ({ signal }) => {
      given = signal;
      calls += 1;
      if (calls === 1) return '{"tool":"list_files"}';
      setTimeout(() => during.abort(), 10);
      return new Promise(() => {});
    });
    // A reply that fails because of the same signal.
    const failing = new AbortController();
    const rejected = await run(failing.signal, ({ signal }) => {
      setTimeout(() => failing.abort(), 10);
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    });
    let asked = false;
    const before = await run(AbortSignal.abort(), () => {
      asked = true;
      return '{"final":"x"}';
    });
    // Aborted when the run is over: too late.
    const late = new AbortController();
    const over = await run(late.signal, () => '{"final":"x"}');
    late.abort();
    return {
      hanging: [hanging.reason, hanging.events.length, hanging.completed],
      given: given === during.signal,
      rejected: rejected.reason,
      before: [before.reason, asked],
      over: over.reason,
      usable: (await artifacts.put("still here")).byteCount,
    };
  });
  assert.deepEqual(result, {
    hanging: ["cancelled", 1, false],
    given: true,
    rejected: "cancelled",
    before: ["cancelled", false],
    over: "completed",
    usable: 10,
  });
});

test("an object that was freed throws, and the others go on", async () => {
  const result = await page.evaluate(async () => {
    const store = await window.library.openStore({ kind: "memory" });
    const freed = store.artifacts("job");
    const kept = store.artifacts("job");
    const pending = freed.put("in progress");
    const attempt = async (act) => {
      try {
        await act();
        return "done";
      } catch (error) {
        return error.constructor.name;
      }
    };
    const thrown = [
      // What is still in use is not given back, and not to be used again either.
      await attempt(() => freed.free()),
      await attempt(() => freed.list()),
      await attempt(() => freed.put.call({}, "x")),
      await attempt(() => freed.put.call(undefined, "x")),
    ];
    const { artifactId } = await pending;
    store.free();
    return { thrown, read: (await kept.read(artifactId)).length };
  });
  assert.deepEqual(result.read, 11);
  assert.ok(result.thrown.every((name) => name !== "done" && name !== "RuntimeError"), `${result.thrown}`);
});

test("it works in a module worker", async () => {
  const answer = await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const source = `
          import init, { openStore, persist } from "${location.origin}/evidence_wasm.js";
          await init();
          const store = await openStore({ kind: "indexeddb" });
          const { byteCount } = await store.artifacts("job").put("é");
          postMessage([byteCount, await persist()]);`;
        const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })), { type: "module" });
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = ({ message }) => reject(new Error(message));
      }),
  );
  assert.deepEqual(answer, [2, false]);
});

test("the types that come with it compile, and refuse what they should", async () => {
  const tsc = new URL("../../node_modules/typescript/bin/tsc", import.meta.url);
  const project = new URL("tsconfig.json", import.meta.url);
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, [fileURLToPath(tsc), "--project", fileURLToPath(project)]).catch((error) => error);
  assert.equal(stdout, "");
});
