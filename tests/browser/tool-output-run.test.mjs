// The agent loop under contract B, as an application gets it: the built package in Chromium. That a
// large result is stored and read on by cursor is tested in library.test.mjs, over each kind of store;
// here is what ends a run, and what the model sees of all that is small.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { launch } from "./chromium.mjs";
import { openLibrary } from "./library.mjs";

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
    window.openOutput = async (store) => {
      const opened = await window.library.openStore(store ? { kind: "custom", store } : { kind: "memory" });
      return opened.toolOutput("session");
    };
    // A generator that answers with each of the replies.
    window.replying = (...replies) => () => JSON.stringify(replies.shift());
  });
});

test("small results, refusals and exit codes are structured results as well", async () => {
  const results = await page.evaluate(async () => {
    const output = await window.openOutput();
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
    const output = await window.openOutput();
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
    const output = await window.openOutput();
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
    const store = await window.library.openStore({ kind: "memory" });
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

test("a store that fails from any call on ends the run without an excerpt, and nothing is half stored", async () => {
  const rounds = await page.evaluate(async () => {
    const log = "a line of the log\n".repeat(10_000);
    const rounds = [];
    for (const code of ["exhausted", "unreachable"]) {
      for (let failing = 0; ; failing += 1) {
        const inner = window.mapStore();
        let calls = -Infinity;
        const failFrom = (name) => async (argument) => {
          calls += 1;
          if (calls > failing) throw Object.assign(new Error("the host's disk"), { code });
          return inner[name](argument);
        };
        const output = await window.openOutput({
          get: failFrom("get"),
          list: failFrom("list"),
          commit: failFrom("commit"),
        });
        await output.createJob("job");
        calls = 0;
        const settled = await window.settled(
          output.runAgent("job", {
            task: "t",
            files: { log },
            generate: window.replying({ tool: "read_file", path: "log" }, { final: "done" }),
          }),
        );
        calls = -Infinity;
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
      assert.doesNotMatch(settled.value.events[0].result, /a line of the log/);
    } else {
      // The first call asks for the job.
      assert.deepEqual(settled, { code: codes[code], isEvidenceError: true });
    }
  }
});
