// The agent loop under contract B, as an application gets it: the built package in Chromium, over
// each kind of store.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { launch } from "./chromium.mjs";
import { openLibrary } from "./library.mjs";

/** What a bounded result may have, and one message. */
const MAX_RESULT_BYTES = 16 * 1024;

let browser;
let page;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());
beforeEach(async () => {
  await Promise.all(browser.contexts().map((context) => context.close()));
  page = await openLibrary(await browser.newContext());
  await page.evaluate(() => {
    // A store of the host: a Map, whose every call can be made to fail.
    window.mapStore = () => {
      const values = new Map();
      const same = (one, other) =>
        one === undefined || other === undefined
          ? one === other
          : one.length === other.length && one.every((byte, index) => byte === other[index]);
      const store = {
        // Which call fails, counted from 0, with what.
        failAt: Infinity,
        failure: undefined,
        calls: 0,
        answer(act) {
          if (this.calls++ >= this.failAt) throw this.failure;
          return act();
        },
        async get(keys) {
          return this.answer(() => keys.map((key) => values.get(key)));
        },
        async list(prefix) {
          return this.answer(() => [...values.keys()].filter((key) => key.startsWith(prefix)));
        },
        async commit({ expect, put, delete: gone }) {
          return this.answer(() => {
            if (!expect.every(([key, value]) => same(values.get(key), value))) {
              throw Object.assign(new Error("changed"), { code: "conflict" });
            }
            gone.forEach((key) => values.delete(key));
            put.forEach(([key, value]) => values.set(key, value));
          });
        },
      };
      return store;
    };
    window.openKind = (kind) =>
      window.library.openStore(kind === "custom" ? { kind, store: window.mapStore() } : { kind });
    window.log = Array.from({ length: 10_000 }, (_, line) => `line ${line} é\n`).join("");
    window.lastResult = (messages) => JSON.parse(messages.at(-1).content.replace("Tool result:\n", ""));
    // A generator that answers with each of the replies, which may be made from the conversation.
    window.replying = (...replies) => ({ messages }) => {
      const reply = replies.shift();
      return JSON.stringify(typeof reply === "function" ? reply(messages) : reply);
    };
  });
});

for (const kind of ["memory", "indexeddb", "custom"]) {
  test(`a large result is an excerpt that the model reads on by cursor, ${kind}`, async () => {
    const { outcome, stored, artifacts, log } = await page.evaluate(async (kind) => {
      const output = (await window.openKind(kind)).toolOutput("session");
      await output.createJob("job");
      const read = (messages) => {
        const result = window.lastResult(messages);
        const [, start] = /\[\.\.\. bytes (\d+) to/.exec(result.text);
        return { tool: "akh_read_tool_output", sha256: result.data.sha256, offset: Number(start), limit: 8192 };
      };
      const outcome = await output.runAgent("job", {
        task: "find line 5000",
        files: { log: window.log },
        generate: window.replying({ tool: "read_file", path: "log" }, read, { final: "done" }),
      });
      const artifacts = await output.artifacts("job");
      const stored = new TextDecoder().decode(await output.readWhole("job", artifacts[0].sha256));
      return { outcome, stored, artifacts, log: window.log };
    }, kind);

    assert.equal(outcome.reason, "completed", outcome.error);
    assert.equal(outcome.final, "done");
    // Nothing is lost, nothing over 16 KiB reaches the model.
    assert.deepEqual(JSON.parse(stored), { success: true, text: log, data: null, receipt: null });
    for (const { result } of outcome.events) {
      assert.ok(Buffer.byteLength(result ?? "") <= MAX_RESULT_BYTES);
    }
    const [excerpt, range] = outcome.events.map(({ result }) => JSON.parse(result ?? "null"));
    assert.equal(excerpt.success, true);
    assert.equal(excerpt.data.kind, "tool_output_ref");
    assert.equal(excerpt.data.job_id, "job");
    assert.equal(excerpt.data.path, artifacts[0].path);
    assert.equal(excerpt.data.bytes, artifacts[0].byteCount);
    // The event that records the call bears the reference.
    assert.deepEqual(JSON.parse(outcome.events[0].provenance), excerpt.data);
    assert.equal(outcome.events[1].provenance, undefined);
    // The read is exact and was not stored again.
    const bytes = Buffer.from(stored);
    const { offset, next_offset: end, text, done } = range.data;
    assert.equal(text, bytes.subarray(offset, end).toString());
    assert.ok(end - offset > 8000 && !done);
    assert.equal(artifacts.length, 1);
  });
}

test("small results, refusals and exit codes are structured results as well", async () => {
  const results = await page.evaluate(async () => {
    const output = (await window.openKind("memory")).toolOutput("session");
    await output.createJob("job");
    const { events } = await output.runAgent("job", {
      task: "t",
      files: { small: "é" },
      policy: { allowedCommands: [["make"]] },
      commands: { make: () => ({ exitCode: 2, stderr: "no rule" }) },
      generate: window.replying(
        { tool: "read_file", path: "small" },
        { tool: "read_file", path: "missing" },
        { tool: "run_command", argv: ["make"] },
        { tool: "akh_read_tool_output", sha256: "0".repeat(64), offset: 0, limit: 1 },
        { final: "done" },
      ),
    });
    return events.flatMap(({ result }) => (result === null ? [] : [JSON.parse(result)]));
  });
  assert.deepEqual(
    results.map(({ success, data }) => [success, data]),
    [[true, null], [false, null], [false, { exit_code: 2 }], [false, null]],
  );
  assert.equal(results[0].text, "é");
  assert.match(results[2].text, /no rule/);
  assert.match(results[3].text, /not available/);
});

test("a conversation over max_input_bytes is not sent", async () => {
  const outcome = await page.evaluate(async () => {
    const output = (await window.openKind("memory")).toolOutput("session");
    await output.createJob("job");
    let asked = 0;
    const run = (maxInputBytes) =>
      output.runAgent("job", {
        task: "t".repeat(5000),
        maxInputBytes,
        generate: () => {
          asked += 1;
          return '{"final":"done"}';
        },
      });
    const refused = await run(5000);
    const askedBefore = asked;
    return { refused, askedBefore, sent: (await run(50_000)).final };
  });
  assert.equal(outcome.refused.reason, "generator_failed");
  assert.match(outcome.refused.error, /5000/);
  assert.equal(outcome.askedBefore, 0);
  assert.equal(outcome.sent, "done");
});

test("a message over 64 KiB is not sent", async () => {
  const { reason, error, events } = await page.evaluate(async () => {
    const output = (await window.openKind("memory")).toolOutput("session");
    await output.createJob("job");
    return output.runAgent("job", {
      task: "t".repeat(65_536),
      agentLimits: { maxContextChars: 1_000_000 },
      generate: () => '{"final":"done"}',
    });
  });
  assert.deepEqual([reason, events.length], ["generator_failed", 0]);
  assert.match(error, /65536/);
});

test("a run needs an active job of its own session", async () => {
  const codes = await page.evaluate(async () => {
    const store = await window.openKind("memory");
    const output = store.toolOutput("session");
    await output.createJob("job");
    await output.createJob("ended");
    await output.setStatus("ended", "completed");
    const options = () => ({
      task: "t",
      files: { small: "text" },
      generate: window.replying({ tool: "read_file", path: "small" }, { final: "done" }),
    });
    const ended = await output.runAgent("ended", options());
    return {
      unknown: await window.settled(output.runAgent("unknown", options())),
      foreign: await window.settled(store.toolOutput("other").runAgent("job", options())),
      ended: [ended.reason, ended.error],
    };
  });
  const unavailable = { code: "unavailable", isEvidenceError: true };
  assert.deepEqual([codes.unknown, codes.foreign], [unavailable, unavailable]);
  assert.equal(codes.ended[0], "storage_failed");
  assert.match(codes.ended[1], /the job has ended/);
});

test("a store that fails at any call ends the run without an excerpt, and nothing is half stored", async () => {
  const rounds = await page.evaluate(async () => {
    const rounds = [];
    for (const code of ["exhausted", "unreachable"]) {
      for (let failAt = 0; ; failAt += 1) {
        const store = window.mapStore();
        const output = (await window.library.openStore({ kind: "custom", store })).toolOutput("session");
        await output.createJob("job");
        store.calls = 0;
        store.failAt = failAt;
        store.failure = Object.assign(new Error("the host's disk"), { code });
        const settled = await window.settled(
          output.runAgent("job", {
            task: "t",
            files: { log: window.log },
            generate: window.replying({ tool: "read_file", path: "log" }, { final: "done" }),
          }),
        );
        store.failAt = Infinity;
        const { artifactBytes, artifactCount } = await output.job("job");
        const listed = await output.artifacts("job");
        rounds.push({ code, settled, used: [artifactBytes, artifactCount, listed.length] });
        if (settled.value?.reason === "completed") break;
      }
    }
    return rounds;
  });
  const codes = { exhausted: "storage_exhausted", unreachable: "storage_unavailable" };
  assert.ok(rounds.length >= 8, `${rounds.length} rounds`);
  for (const { code, settled, used } of rounds) {
    if (settled.value?.reason === "completed") {
      assert.equal(used[2], 1);
      continue;
    }
    assert.deepEqual(used, [0, 0, 0]);
    if (settled.value) {
      assert.equal(settled.value.reason, "storage_failed");
      assert.match(settled.value.error, code === "exhausted" ? /exhausted/ : /the host's disk/);
      assert.doesNotMatch(settled.value.events[0].result, /line 1 /);
    } else {
      // The first call asks for the job.
      assert.deepEqual(settled, { code: codes[code], isEvidenceError: true });
    }
  }
});
