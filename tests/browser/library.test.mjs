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
    text: 'EvidenceError: options.kind must be "memory", "indexeddb" or "custom"',
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

// Contract B over each kind of store: the sentences of the contract, as a page calls them.
for (const kind of ["memory", "indexeddb", "custom"]) {
  const withOutput = (act, argument) =>
    page.evaluate(
      async ([kind, act, argument]) => {
        const store = await window.library.openStore({ kind, store: window.mapStore() });
        const output = store.toolOutput("s");
        await output.createJob("j");
        const run = new Function("store", "output", "argument", `return (${act})(store, output, argument)`);
        return run(store, output, argument);
      },
      [kind, act.toString(), argument],
    );

  test(`${kind}: a result of 16,384 bytes passes unchanged and one of 16,385 is stored whole`, async () => {
    const result = await withOutput(async (store, output) => {
      const around = JSON.stringify({ success: true, text: "", data: null, receipt: null }).length;
      const of = (bytes) => ({ success: true, text: "x".repeat(bytes - around), data: null, receipt: null });
      const inline = await output.record("j", of(16_384));
      const stored = await output.record("j", of(16_385));
      const seen = JSON.parse(stored.result);
      const reference = JSON.parse(stored.reference);
      const whole = await output.readWhole("j", reference.sha256);
      const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
      return {
        unchanged: inline.result === JSON.stringify(of(16_384)) && inline.reference === null,
        bytes: new TextEncoder().encode(stored.result).length,
        sameReference: JSON.stringify(seen.data) === stored.reference,
        same: new TextDecoder().decode(whole) === JSON.stringify(of(16_385)),
        digest: [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("") === reference.sha256,
        artifacts: await output.artifacts("j"),
        reference,
        job: await output.job("j"),
      };
    });
    const { sha256, path } = result.reference;
    assert.ok(result.bytes <= 16_384);
    assert.deepEqual([result.unchanged, result.sameReference, result.same, result.digest], [true, true, true, true]);
    assert.equal(path, `/v1/jobs/j/tool-output/${sha256}`);
    assert.deepEqual(result.artifacts, [{ sha256, byteCount: 16_385, path }]);
    assert.deepEqual([result.job.status, result.job.artifactBytes, result.job.artifactCount], ["active", 16_385, 1]);
  });

  test(`${kind}: continuing at next_offset gives every byte once, whatever the code points are`, async () => {
    const result = await withOutput(async (store, output) => {
      const text = "é漢🙂\n\u0001\"\\".repeat(9000);
      const json = JSON.stringify({ success: false, text, data: { id: "p1" }, receipt: null });
      const { reference } = await output.record("j", json);
      const { sha256, bytes, handles } = JSON.parse(reference);
      let [read, asTool] = ["", ""];
      for (let [offset, done] = [0, false]; !done; ) {
        const answer = await output.read("j", sha256, { offset, limit: 8191 });
        read += answer.text;
        ({ next_offset: offset, done } = answer);
      }
      for (let [offset, done] = [0, false]; !done; ) {
        const answer = await output.readTool("j", JSON.stringify({ sha256, offset, limit: 8192 }));
        const again = await output.record("j", { success: true, text: answer });
        if (again.reference !== null) throw new Error("an answer was externalized");
        ({ next_offset: offset, done } = JSON.parse(answer));
        asTool += JSON.parse(answer).text;
      }
      return {
        exact: read === json && asTool === json,
        handles,
        end: await output.read("j", sha256, { offset: bytes }),
        bytes,
        refused: await Promise.all(
          [
            output.read("j", sha256, { offset: bytes + 1 }),
            output.read("j", sha256, { offset: json.indexOf("é") + 1 }),
            output.read("j", sha256, { offset: json.indexOf("é"), limit: 1 }),
            output.read("j", sha256, { limit: 0 }),
            output.read("j", sha256, { limit: 8193 }),
            output.readTool("j", JSON.stringify({ sha256, offset: bytes + 1, limit: 1 })),
            output.readTool("j", "{}"),
            output.readTool("none", JSON.stringify({ sha256, offset: 0, limit: 1, job_id: "j" })),
            output.read("j", "0".repeat(64)),
          ].map(window.settled),
        ),
      };
    });
    assert.equal(result.exact, true);
    assert.deepEqual(result.handles, { id: "p1" });
    assert.deepEqual([result.end.text, result.end.done, result.end.next_offset], ["", true, result.bytes]);
    const codes = ["out_of_range", "mid_codepoint", "mid_codepoint", "invalid_request", "invalid_request", "out_of_range", "invalid_request", "unavailable", "unavailable"];
    assert.deepEqual(result.refused, codes.map((code) => ({ code, isEvidenceError: true })));
  });

  test(`${kind}: JSON text keeps every number and name; an object keeps them or is refused`, async () => {
    const [text, object, refused] = await withOutput(async (store, output) => {
      const data = '{"n":[9007199254740993,-0,1e400,0.10],"n":1,"deep":' + "[".repeat(200) + "]".repeat(200) + "}";
      const json = `{"success":true,"text":"","data":${data},"receipt":${data}}`;
      const kept = (await output.record("j", json)).result === json;
      const object = await output.record("j", { success: true, text: "t", data: { a: 2 ** 53 + 2, b: undefined } });
      return [kept, object.result, await window.settled(output.record("j", { success: true, text: "", data: [-0] }))];
    });
    assert.equal(text, true);
    assert.equal(object, '{"success":true,"text":"t","data":{"a":9007199254740994},"receipt":null}');
    assert.equal(refused.code, "invalid_argument");
  });

  test(`${kind}: a receipt and handles that cannot fit are left out, and said to be`, async () => {
    const [small, large, handles] = await withOutput(async (store, output) => {
      const text = "x".repeat(20_000);
      const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`id${index}`, index]));
      const record = async (receipt, handles) => JSON.parse((await output.record("j", { success: false, text, receipt }, { handles })).result);
      const [small, large] = [await record({ exit: 1 }), await record("r".repeat(20_480))];
      return [small, large.receipt, (await record(null, { ...many, ["k".repeat(3000)]: 1 })).data];
    });
    assert.deepEqual([small.success, small.receipt, small.data.handles_elided], [false, { exit: 1 }, undefined]);
    assert.deepEqual([large.receipt_elided, large.bytes], [true, 20_482]);
    assert.ok(JSON.stringify(handles.handles).length <= 2048 && handles.handles_elided);
  });

  test(`${kind}: prior jobs need the same session exactly; ended jobs are read and take no results`, async () => {
    const result = await withOutput(async (store, output) => {
      const { reference } = await output.record("j", { success: true, text: "x".repeat(20_000) });
      const { sha256 } = JSON.parse(reference);
      const other = store.toolOutput("S");
      const ended = await output.setStatus("j", "completed");
      const again = await output.setStatus("j", "archived");
      await output.createJob("later");
      return {
        kept: ended.terminalAtMs !== null && ended.terminalAtMs === again.terminalAtMs,
        jobs: [await output.jobs(), await other.jobs()],
        later: JSON.parse(await output.readTool("later", JSON.stringify({ job_id: "j", sha256, offset: 0, limit: 9 }))).text,
        refused: await Promise.all(
          [
            other.read("j", sha256),
            other.job("j"),
            other.createJob("j"),
            other.deleteJob("j").then(() => output.job("j")).then(({ status }) => status),
            output.setStatus("j", "active"),
            output.record("j", { success: true, text: "late" }),
          ].map(window.settled),
        ),
      };
    });
    assert.equal(result.kept, true);
    assert.deepEqual(result.jobs, [["j", "later"], []]);
    assert.equal(result.later, '{"success');
    const codes = result.refused.map(({ code, value }) => code ?? value);
    assert.deepEqual(codes, ["unavailable", "unavailable", "conflict", "archived", "conflict", "conflict"]);
  });

  test(`${kind}: a second delivery of a tool call gets the first one's answer`, async () => {
    const [same, other, count] = await withOutput(async (store, output) => {
      const record = (text) => output.record("j", { success: true, text }, { toolCallId: "call-1" });
      const large = "x".repeat(20_000);
      const answers = await Promise.all([record(large), record(large), record(large)]);
      await output.setStatus("j", "failed");
      answers.push(await record(large));
      const same = new Set(answers.map((answer) => JSON.stringify(answer))).size;
      return [same, await window.settled(record("other")), (await output.job("j")).artifactCount];
    });
    assert.deepEqual([same, other.code, count], [1, "conflict", 1]);
  });

  test(`${kind}: one result is at most 16 MiB, and everything of a job goes together`, async () => {
    const result = await withOutput(async (store, output) => {
      const around = JSON.stringify({ success: true, text: "", data: null, receipt: null }).length;
      const of = (bytes) => ({ success: true, text: window.hexadecimal(bytes - around) });
      const { reference } = await output.record("j", of(16 * 1024 * 1024));
      const { sha256, bytes } = JSON.parse(reference);
      const refused = await window.settled(output.record("j", of(16 * 1024 * 1024 + 1)));
      const { length } = await output.readWhole("j", sha256);
      await output.deleteJob("j");
      const gone = await Promise.all([output.read("j", sha256), output.job("j")].map(window.settled));
      return { same: bytes === length, bytes, codes: [refused, ...gone].map(({ code }) => code), jobs: await output.jobs() };
    });
    assert.deepEqual(result, {
      same: true,
      bytes: 16 * 1024 * 1024,
      codes: ["result_too_large", "unavailable", "unavailable"],
      jobs: [],
    });
  });

  test(`${kind}: a run under contract B shows at most 16 KiB and reads the rest by cursor`, async () => {
    const outcome = await withOutput(async (store, output) => {
      const log = `${"noise\n".repeat(9000)}error: the needle\n${"noise\n".repeat(9000)}`;
      const replies = [
        () => ({ tool: "read_file", path: "build.log" }),
        (result) => ({ tool: "akh_read_tool_output", sha256: result.data.sha256, offset: 9000 * 7 + 24, limit: 17 }),
        (result) => ({ final: result.data.text }),
      ];
      const outcome = await output.runAgent("j", {
        task: "find the error",
        files: { "build.log": log },
        policy: { maxFileBytes: 1_000_000 },
        generate: ({ messages }) => {
          const { content } = messages.at(-1);
          return JSON.stringify(replies.shift()(content.startsWith("Tool result:\n") ? JSON.parse(content.slice(13)) : null));
        },
      });
      const refused = await window.settled(output.runAgent("none", { task: "t", generate: () => '{"final":"f"}' }));
      const measured = await output.runAgent("j", { task: "t", generate: () => '{"final":"f"}', maxInputBytes: 9 });
      return { ...outcome, refused: refused.code, measured: measured.reason, seen: outcome.events.map(({ result }) => result?.length) };
    });
    assert.deepEqual([outcome.final, outcome.reason], ["error: the needle", "completed"]);
    assert.ok(outcome.seen[0] <= 16_384);
    assert.equal(JSON.parse(outcome.events[0].provenance).kind, "tool_output_ref");
    assert.deepEqual(outcome.events[1].action.arguments.limit, 17);
    assert.deepEqual([outcome.refused, outcome.measured], ["unavailable", "generator_failed"]);
  });
}

test("a store of the host that fails at every call in turn loses nothing and shows nothing unstored", async () => {
  const result = await page.evaluate(async () => {
    const result = { success: true, text: "é".repeat(100_000) };
    const json = JSON.stringify({ ...result, data: null, receipt: null });
    const outcomes = [];
    for (const code of ["conflict", "exhausted", "broken"]) {
      for (let failing = 0; ; failing += 1) {
        const inner = window.mapStore();
        let calls = 0;
        const failAt = (name) => async (argument) => {
          calls += 1;
          if (calls - 1 === failing) throw Object.assign(new Error("on purpose"), { code });
          return inner[name](argument);
        };
        const store = { get: failAt("get"), list: failAt("list"), commit: failAt("commit") };
        const opened = await window.library.openStore({ kind: "custom", store });
        const output = opened.toolOutput("s");
        // Each step is tried until it is done: at most one of its calls fails.
        const steps = [
          () => output.createJob("j"),
          () => output.record("j", result, { toolCallId: "c" }),
          async () => {
            const { sha256 } = JSON.parse((await output.record("j", result, { toolCallId: "c" })).reference);
            return new TextDecoder().decode(await output.readWhole("j", sha256)) === json;
          },
          () => output.job("j"),
          () => output.deleteJob("j"),
        ];
        const codes = [];
        const answers = [];
        for (const step of steps) {
          let settled = await window.settled(step());
          if (settled.code) {
            codes.push(settled.code);
            settled = await window.settled(step());
          }
          answers.push(settled);
        }
        const left = await inner.list("");
        outcomes.push({ code, codes, exact: answers[2].value, count: answers[3].value?.artifactCount, left: left.length });
        if (calls <= failing) break;
      }
    }
    return outcomes;
  });
  const expected = { conflict: ["conflict"], exhausted: ["storage_exhausted"], broken: ["storage_unavailable"] };
  assert.ok(result.length > 30, `${result.length} rounds`);
  for (const { code, codes, ...rest } of result) {
    assert.deepEqual(rest, { exact: true, count: 1, left: 0 });
    // A conflict of a commit is tried again beneath.
    if (codes.length > 0) assert.deepEqual(codes, expected[code]);
  }
  assert.deepEqual(result.filter(({ code }) => code === "broken").slice(0, -1).filter(({ codes }) => codes.length === 0), []);
});

test("tool output survives a reload, is shared between tabs, and what was altered is not shown", async () => {
  const record = (page, text) =>
    page.evaluate(async (text) => {
      const store = await window.library.openStore({ kind: "indexeddb" });
      window.output = store.toolOutput("s");
      await window.output.createJob("j");
      const { reference } = await window.output.record("j", { success: true, text });
      return JSON.parse(reference).sha256;
    }, text);
  const other = await openLibrary(context);
  const texts = ["a", "b", "a"].map((letter) => letter.repeat(100_000));
  const digests = await Promise.all([record(page, texts[0]), record(other, texts[1]), record(other, texts[2])]);
  assert.equal(digests[0], digests[2]);
  await page.close();
  page = await openLibrary(context);
  const answers = await page.evaluate(async ([sha256]) => {
    const output = (await window.library.openStore({ kind: "indexeddb" })).toolOutput("s");
    const before = await output.job("j");
    const read = await output.read("j", sha256, { offset: 90_000, limit: 3 });
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
    const after = await Promise.all([output.read("j", sha256), output.readWhole("j", sha256)].map(window.settled));
    return { count: before.artifactCount, text: read.text, codes: after.map(({ code }) => code) };
  }, digests);
  assert.deepEqual(answers, { count: 2, text: "aaa", codes: ["integrity_failure", "integrity_failure"] });
});

test("a full disk refuses a result whole, and the job goes on", async () => {
  await limitQuota(page, 3_000_000);
  const result = await page.evaluate(async () => {
    const output = (await window.library.openStore({ kind: "indexeddb" })).toolOutput("s");
    await output.createJob("j");
    const large = { success: true, text: window.hexadecimal(8 * 1024 * 1024) };
    const refused = await window.settled(output.record("j", large));
    const small = await output.record("j", { success: true, text: "small" });
    return { code: refused.code, small: small.result, ...(await output.job("j")) };
  });
  assert.deepEqual([result.code, result.artifactCount, result.artifactBytes], ["storage_exhausted", 0, 0]);
  assert.match(result.small, /small/);
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
