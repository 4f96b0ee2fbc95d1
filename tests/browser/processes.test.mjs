// Processes and retention (contract B) over each kind of store, as an application gets them: the built
// package with processes in Chromium. The same sentences are held for real children and over files in
// crates/evidence-agent/tests/processes.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";

import { launch } from "./chromium.mjs";
import { openLibrary } from "./library.mjs";

const MIB = 1024 * 1024;
const DAY_MS = 24 * 60 * 60 * 1000;

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** A page of a fresh profile, or another one of a profile that is there. */
async function open(t, context) {
  if (!context) {
    context = await browser.newContext();
    t.after(() => context.close());
  }
  const page = await openLibrary(context, "processes");
  await page.evaluate(prepare);
  return page;
}

/** Puts into the page what its tests share. */
function prepare() {
  const until = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve));
  // Where programs wait for the test, which may open a gate before its program has come to it.
  const gates = {};
  const gateOf = (name) => (gates[name] ??= Promise.withResolvers());
  window.openGate = (name) => gateOf(name).resolve();
  const gate = async (name) => {
    await gateOf(name).promise;
    delete gates[name];
  };
  const programs = {
    async *exit({ argv }) {
      yield { stdout: "out\n" };
      yield { stderr: "err\n" };
      yield { exitCode: Number(argv[1]) };
    },
    async *write({ argv }) {
      for (const [stream, text] of JSON.parse(argv[1])) {
        yield { [stream]: Array.isArray(text) ? new Uint8Array(text) : text };
      }
    },
    async *twice({ argv }) {
      yield { stdout: "one\n" };
      await gate(argv[1]);
      yield { stdout: "two\n" };
    },
    async *split() {
      yield { stdout: new Uint8Array([0x61, 0xf0, 0x9f]) };
      await gate("split");
      yield { stdout: new Uint8Array([0x98, 0x80]) };
    },
    async *huge() {
      const chunk = new Uint8Array(1_000_000).fill(0x78);
      for (let written = 0; written < 100; written += 1) yield { stdout: chunk };
      yield { stderr: "small" };
    },
    async *polite({ signal }) {
      yield { stdout: "begun\n" };
      await until(signal);
      yield { stdout: "ended as asked\n" };
      yield { exitCode: 0 };
    },
    async *deaf() {
      yield { stdout: "begun\n" };
      await new Promise(() => {});
    },
    async *fails() {
      yield { stdout: "so far\n" };
      throw new Error("the program broke");
    },
    *lists() {
      yield { stdout: "not asynchronous\n" };
      yield { exitCode: null };
    },
    async *confused() {
      yield { stdout: 7 };
    },
    async *misspells() {
      yield { stdout: "so far\n" };
      yield { exit_code: 2 };
    },
    async *raw() {
      yield new TextEncoder().encode("lost?\n");
    },
    async *returns() {
      yield { stdout: "so far\n" };
      return { stderr: "and the end\n", exitCode: 3 };
    },
    async *grumbles() {
      yield { stderr: "no line end" };
      throw new Error("the program broke");
    },
    async *tireless() {
      for (;;) yield { stdout: "x" };
    },
    never: () => new Promise(() => {}),
    late: () => new Promise((_, reject) => setTimeout(() => reject(new Error("no room")), 2500)),
    refuses: () => {
      throw new Error("there is no such program");
    },
    nothing: () => 7,
  };
  window.start = (request) => programs[request.argv[0]](request);
  window.openOutput = async (kind, { name, store = window.mapStore(), session = "s" } = {}) => {
    const opened = await window.library.openStore({ kind, name, store });
    const output = opened.toolOutput(session);
    await output.createJob("j");
    await output.openProcesses(window.start);
    window.opened = opened;
    window.output = output;
    return output;
  };
  // A store that takes nothing more while its disk is full.
  window.openLimited = async () => {
    const disk = { isFull: false };
    const store = window.mapStore();
    const { commit } = store;
    store.commit = (batch) => {
      if (disk.isFull) throw Object.assign(new Error("full"), { code: "exhausted" });
      return commit(batch);
    };
    await window.openOutput("custom", { store });
    return disk;
  };
  window.call = async (tool, args, id, output = window.output) => {
    const { result, reference } = await output.callProcessTool("j", tool, JSON.stringify(args), { toolCallId: id });
    const answer = JSON.parse(result);
    if (reference === null) return answer;
    // What was too large to be shown is read whole.
    return JSON.parse(new TextDecoder().decode(await output.readWhole("j", answer.data.sha256)));
  };
  window.run = async (...argv) => (await window.call("exec_start", { argv })).data.process_id;
  window.poll = (process_id) => window.call("exec_poll", { process_id });
  window.pollUntil = async (process_id, isSo) => {
    for (;;) {
      const answer = await window.poll(process_id);
      if (isSo(answer)) return answer;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  window.ended = (process_id) => window.pollUntil(process_id, ({ data }) => data.status !== "running");
  window.cursor = (process_id, offsets) => window.call("exec_poll", { process_id, ...offsets });
  /** All bytes of a stream that has ended, by cursor, as base64 of each slice. */
  window.slices = async (process_id, stream) => {
    const slices = [];
    for (let [offset, done] = [0, false]; !done; ) {
      const answer = await window.cursor(process_id, { [`${stream}_offset`]: offset, max_output_bytes: 8192 });
      slices.push(answer[stream].base64);
      ({ next_offset: offset, done } = answer[stream]);
    }
    return slices;
  };
}

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const joined = (slices) => Buffer.concat(slices.map((slice) => Buffer.from(slice, "base64")));
const refusal = (code) => ({ code, isEvidenceError: true });

for (const kind of ["memory", "indexeddb", "custom"]) {
  /** A test whose page has a job and processes in this kind of store. */
  const over = (name, act) =>
    test(`${kind}: ${name}`, { timeout: 120_000 }, async (t) => {
      const page = await open(t);
      await page.evaluate(async (kind) => void (await window.openOutput(kind)), kind);
      await act(page, t);
    });

  over("a plain poll shows both streams and how the process ended", async (page) => {
    const answer = await page.evaluate(async () => window.ended(await window.run("exit", "3")));
    assert.equal(answer.text, "stdout (4 bytes):\nout\nstderr (4 bytes):\nerr\n");
    assert.deepEqual([answer.success, answer.data.status, answer.data.exit_code], [false, "exited", 3]);
  });

  over("exec_poll keeps its 24 KiB per-stream head/tail clipping for plain polls", async (page) => {
    const lines = Array.from({ length: 20_000 }, (_, index) => `line ${index}\n`).join("");
    const [answer, slices] = await page.evaluate(async (lines) => {
      const process = await window.run("write", JSON.stringify([["stdout", lines], ["stderr", "few\n"]]));
      return [await window.ended(process), await window.slices(process, "stdout")];
    }, lines);
    const bytes = lines.length;
    assert.deepEqual(answer.receipt.observed, {
      stdout: [[0, 12_288], [bytes - 12_288, bytes]],
      stderr: [[0, 4]],
    });
    assert.ok(answer.text.includes(lines.slice(0, 12_288)) && answer.text.includes(lines.slice(-12_288)));
    assert.equal(joined(slices).toString(), lines);
  });

  over("a cursor poll answers the requested slice of a stream as text and base64", async (page) => {
    const [process, answer, refused] = await page.evaluate(async () => {
      const process = await window.run("write", JSON.stringify([["stdout", "hällö"], ["stderr", "e\n"]]));
      await window.ended(process);
      const refused = [{ stdout_offset: 2 }, { stdout_offset: 8 }, { stderr_offset: -1 }, { stdout_offset: 0, max_output_bytes: 8193 }];
      return [
        process,
        await window.cursor(process, { stdout_offset: 1, max_output_bytes: 3 }),
        await Promise.all(refused.map((offsets) => window.settled(window.cursor(process, offsets)))),
      ];
    });
    assert.deepEqual(answer, {
      cursor_mode: true,
      process_id: process,
      status: "exited",
      success: true,
      receipt: {
        kind: "exec_poll",
        schema_version: 1,
        process_id: process,
        status: "exited",
        observed: { stdout: [[1, 4]], stderr: [[0, 0]] },
        capture_truncated: { stdout: false, stderr: false },
      },
      exit_code: 0,
      stdout: { sha256: sha256("hällö"), bytes: 7, offset: 1, next_offset: 4, done: false, text: "äl", base64: "w6Rs" },
      stderr: { sha256: sha256("e\n"), bytes: 2, offset: 0, next_offset: 0, done: false, text: "", base64: "" },
    });
    const codes = ["mid_codepoint", "out_of_range", "invalid_request", "invalid_request"];
    assert.deepEqual(refused, codes.map(refusal));
  });

  over("text is there only where the complete captured stream is valid UTF-8", async (page) => {
    const [plain, answer] = await page.evaluate(async () => {
      const process = await window.run("write", JSON.stringify([["stdout", [0x6f, 0x6b, 0xff, 0]], ["stderr", "plain"]]));
      return [await window.ended(process), await window.cursor(process, { stdout_offset: 0, stderr_offset: 0 })];
    });
    assert.match(plain.text, /bytes 0 to 4 are not UTF-8[^]*stderr \(5 bytes\):\nplain\n/);
    assert.deepEqual([answer.stdout.text, answer.stdout.base64], [null, Buffer.from([0x6f, 0x6b, 0xff, 0]).toString("base64")]);
    assert.deepEqual([answer.stderr.text, answer.stderr.done], ["plain", true]);
  });

  over("a code point that is split between two writes is text", async (page) => {
    const [running, rest] = await page.evaluate(async () => {
      const process = await window.run("split");
      const running = await window.pollUntil(process, ({ text }) => text !== "");
      window.openGate("split");
      await window.ended(process);
      return [running, await window.cursor(process, { stdout_offset: 1 })];
    });
    assert.equal(running.text, "stdout (1 bytes, the first of 3):\na\n");
    assert.deepEqual([rest.stdout.text, rest.stdout.done], ["😀", true]);
  });

  over("the 1 MiB per-stream capture cap is explicit", async (page) => {
    const [answer, slices] = await page.evaluate(async () => {
      const process = await window.run("huge");
      return [await window.ended(process), await window.slices(process, "stdout")];
    });
    const { stdout, stderr } = answer.data;
    assert.deepEqual([stdout.bytes, stdout.total_bytes, stdout.capture_truncated], [MIB, 100_000_000, true]);
    assert.equal(stderr.capture_truncated, false);
    assert.deepEqual(answer.receipt.capture_truncated, { stdout: true, stderr: false });
    assert.ok(joined(slices).equals(Buffer.alloc(MIB, "x")));
  });

  over("replaying the same call returns the same observation", async (page) => {
    const [first, again, other] = await page.evaluate(async () => {
      const process = await window.run("twice", "replay");
      await window.pollUntil(process, ({ text }) => text !== "");
      const polls = [
        ["plain", { process_id: process }],
        ["cursor", { process_id: process, stdout_offset: 0 }],
      ];
      const answers = () => Promise.all(polls.map(([id, args]) => window.call("exec_poll", args, id)));
      const first = await answers();
      window.openGate("replay");
      await window.ended(process);
      const other = window.call("exec_poll", { process_id: process, stdout_offset: 1 }, "cursor");
      return [first, await answers(), await window.settled(other)];
    });
    assert.equal(first[1].stdout.text, "one\n");
    assert.deepEqual(again, first);
    assert.deepEqual(other, refusal("conflict"));
  });

  over("a second delivery of a start starts nothing, and two callers under one id see the same", async (page) => {
    const [starts, polls] = await page.evaluate(async () => {
      const start = () => window.call("exec_start", { argv: ["twice", "both"] }, "start");
      const starts = await Promise.all([start(), start(), start()]);
      const process_id = starts[0].data.process_id;
      const poll = () => window.call("exec_poll", { process_id }, "poll");
      const polls = await Promise.all([poll(), poll(), poll()]);
      window.openGate("both");
      await window.ended(process_id);
      return [starts, [...polls, await poll()]];
    });
    assert.equal(new Set(starts.map((answer) => JSON.stringify(answer))).size, 1);
    assert.equal(new Set(polls.map((answer) => JSON.stringify(answer))).size, 1);
  });

  over("ownership is checked on every call", async (page) => {
    const refused = await page.evaluate(async () => {
      const process_id = await window.run("twice", "owner");
      const other = window.opened.toolOutput("S");
      await other.openProcesses(window.start);
      const calls = [
        ["exec_start", { argv: ["exit", "0"] }],
        ["exec_poll", { process_id }],
        ["exec_poll", { process_id, stdout_offset: 0 }],
        ["exec_stop", { process_id }],
      ];
      const refused = await Promise.all(calls.map(([tool, args]) => window.settled(window.call(tool, args, undefined, other))));
      refused.push(await window.settled(window.call("exec_poll", { process_id: "process-99" })));
      window.openGate("owner");
      const { text } = await window.ended(process_id);
      return [...refused, text];
    });
    assert.deepEqual(refused.splice(0, 5), Array(5).fill(refusal("unavailable")));
    assert.deepEqual(refused, ["stdout (8 bytes):\none\ntwo\n"]);
  });

  over("exec_stop asks a process to end, lets go of one that does not, and keeps what both wrote", async (page) => {
    const answers = await page.evaluate(async () => {
      const stopped = async (program) => {
        const process_id = await window.run(program);
        await window.pollUntil(process_id, ({ text }) => text !== "");
        return window.call("exec_stop", { process_id });
      };
      return Promise.all([stopped("polite"), stopped("deaf")]);
    });
    assert.deepEqual(answers.map(({ data }) => [data.status, data.exit_code]), [["stopped", 0], ["stopped", null]]);
    assert.equal(answers[0].text, "stdout (21 bytes):\nbegun\nended as asked\n");
    assert.equal(answers[1].text, "stdout (6 bytes):\nbegun\n");
  });

  over("a hundred processes run at once", async (page) => {
    const texts = await page.evaluate(async () => {
      const names = Array.from({ length: 100 }, (_, index) => `gate-${index}`);
      const processes = await Promise.all(names.map((name) => window.run("twice", name)));
      for (const name of names) window.openGate(name);
      const answers = await Promise.all(processes.map(window.ended));
      return [new Set(processes).size, ...new Set(answers.map(({ text }) => text))];
    });
    assert.deepEqual(texts, [100, "stdout (8 bytes):\none\ntwo\n"]);
  });

  over("what a page's function throws or yields wrongly is an answer, and nothing is lost", async (page) => {
    const [starts, ends] = await page.evaluate(async () => {
      const starts = await Promise.all(
        [["refuses"], ["nothing"], ["unknown"]].map((argv) => window.call("exec_start", { argv })),
      );
      const ends = await Promise.all(
        ["fails", "lists", "confused", "misspells", "raw"].map(async (program) => window.ended(await window.run(program))),
      );
      return [starts, ends];
    });
    assert.deepEqual(starts.map(({ success }) => success), [false, false, false]);
    assert.match(starts[0].text, /did not start: there is no such program/);
    assert.match(starts[1].text, /must be an async iterable|must be an object/);
    assert.match(starts[2].text, /did not start/);
    assert.deepEqual(ends.map(({ success, data }) => [success, data.status, data.exit_code]), Array(5).fill([false, "exited", null]));
    assert.equal(ends[0].text, "stdout (7 bytes):\nso far\nstderr (18 bytes):\nthe program broke\n");
    assert.equal(ends[1].text, "stdout (17 bytes):\nnot asynchronous\n");
    assert.match(ends[2].text, /stdout must be/);
    for (const end of ends.slice(3)) assert.match(end.text, /must be an object with stdout, stderr or exitCode/);
  });

  over("what a generator returns is its last event", async (page) => {
    const { text, data } = await page.evaluate(async () => window.ended(await window.run("returns")));
    assert.deepEqual([data.status, data.exit_code], ["exited", 3]);
    assert.equal(text, "stdout (7 bytes):\nso far\nstderr (12 bytes):\nand the end\n");
  });

  over("a start that is not settled counts as started after two seconds, and can be stopped and closed", async (page) => {
    const [late, stopped, closed] = await page.evaluate(async () => {
      const [late, first, second] = await Promise.all([window.run("late"), window.run("never"), window.run("never")]);
      const stopped = await window.call("exec_stop", { process_id: first });
      const ended = await window.ended(late);
      await window.output.closeProcesses();
      await window.output.openProcesses(window.start);
      return [ended, stopped, await window.poll(second)];
    });
    assert.deepEqual([late.success, late.data.status, late.data.exit_code], [false, "exited", null]);
    assert.match(late.text, /stderr \(\d+ bytes\):\nthe process did not start: no room\n/);
    for (const answer of [stopped, closed]) {
      assert.deepEqual([answer.data.status, answer.data.exit_code], ["stopped", null]);
    }
  });

  over("closing does not wait for a start that is not settled", async (page) => {
    const answers = await page.evaluate(async () => {
      const starting = window.call("exec_start", { argv: ["never"] });
      await new Promise((resolve) => setTimeout(resolve, 100));
      await window.output.closeProcesses();
      await window.output.openProcesses(window.start);
      return [await starting, await window.poll("process-1")];
    });
    assert.deepEqual(answers.map(({ data }) => data.status), ["running", "stopped"]);
  });

  over("a process that never pauses keeps nobody waiting, and can be stopped", async (page) => {
    const answer = await page.evaluate(async () => {
      const process_id = await window.run("tireless");
      await window.pollUntil(process_id, ({ text }) => text !== "");
      return window.call("exec_stop", { process_id });
    });
    assert.equal(answer.data.status, "stopped");
    assert.ok(answer.data.stdout.total_bytes > 0);
  });

  over("what a process throws stands on a line of its own", async (page) => {
    const answer = await page.evaluate(async () => window.ended(await window.run("grumbles")));
    assert.equal(answer.text, "stderr (30 bytes):\nno line end\nthe program broke\n");
  });

  over("no more than 256 processes run, also when they are started at once", async (page) => {
    const [started, codes] = await page.evaluate(async () => {
      const starts = Array.from({ length: 300 }, (_, index) => window.settled(window.call("exec_start", { argv: ["twice", `${index}`] })));
      const refused = (await Promise.all(starts)).filter((answer) => answer?.isEvidenceError);
      return [300 - refused.length, [...new Set(refused.map(({ code }) => code))]];
    });
    assert.deepEqual([started, codes], [256, ["conflict"]]);
  });

  over("a job that is deleted takes its processes with it, and none is taken for one of a job created again", async (page) => {
    const [aborted, gone, answer, ofJobK] = await page.evaluate(async () => {
      let aborted = 0;
      await window.output.openProcesses((request) => {
        request.signal.addEventListener("abort", () => (aborted += 1));
        return window.start(request);
      });
      await window.output.createJob("k");
      const argv = JSON.stringify({ argv: ["twice", "k"] });
      await window.output.callProcessTool("k", "exec_start", argv);
      const first = await window.run("polite");
      await window.pollUntil(first, ({ text }) => text !== "");
      await window.output.deleteJob("j");
      await window.output.deleteJob("j");
      const gone = await window.settled(window.poll(first));
      await window.output.createJob("j");
      const second = await window.run("twice", "second");
      await new Promise((resolve) => setTimeout(resolve, 100));
      const stillRuns = (await window.poll(second)).data.status;
      window.openGate("second");
      window.openGate("k");
      const answer = await window.ended(second);
      const poll = () => window.output.callProcessTool("k", "exec_poll", '{"process_id":"process-1","stdout_offset":0}');
      let ofJobK;
      do ofJobK = JSON.parse((await poll()).result);
      while (ofJobK.status === "running");
      return [aborted, gone, [first === second, stillRuns, answer.text], ofJobK.stdout.text];
    });
    assert.equal(aborted, 1);
    assert.deepEqual(gone, refusal("unavailable"));
    assert.deepEqual(answer, [true, "running", "stdout (8 bytes):\none\ntwo\n"]);
    assert.equal(ofJobK, "one\ntwo\n");
  });

  over("processes of one program are left alone by others of it, also where there are no locks", async (page) => {
    const [other, own] = await page.evaluate(async () => {
      Object.defineProperty(navigator, "locks", { value: undefined });
      await window.output.openProcesses(window.start);
      const first = await window.run("twice", "first");
      const others = window.opened.toolOutput("S");
      await others.openProcesses(window.start);
      const other = await window.poll(first);
      // Opened anew, a session ends its own as it should.
      const second = await window.run("polite");
      await window.pollUntil(second, ({ text }) => text !== "");
      await window.output.openProcesses(window.start);
      return [other, await window.poll(second)];
    });
    assert.equal(other.data.status, "running");
    assert.equal(own.data.status, "stopped");
    assert.equal(own.text, "stdout (21 bytes):\nbegun\nended as asked\n");
  });

  over("the loop starts what its policy allows, and what the operator approves", async (page) => {
    const [results, asked] = await page.evaluate(async () => {
      const asked = [];
      const { events } = await window.output.runAgent("j", {
        task: "t",
        policy: { allowedCommands: [["exit", "0"], ["exit", "1"]] },
        approve: ({ tool, arguments: { argv } }) => {
          asked.push([tool, argv]);
          return argv[1] === "0" || "not today";
        },
        generate: ({ messages }) => {
          const step = (messages.length - 2) / 2;
          const process_id = () => /process-[0-9]+/.exec(messages.at(-1).content)[0];
          return JSON.stringify(
            [
              { tool: "exec_start", argv: ["exit", "2"] },
              { tool: "exec_start", argv: ["exit", "1"] },
              { tool: "exec_start", argv: ["exit", "0"] },
              () => ({ tool: "exec_stop", process_id: process_id() }),
              () => ({ tool: "exec_poll", process_id: process_id(), stdout_offset: 0 }),
              { final: "done" },
            ].map((action) => (typeof action === "function" ? action : () => action))[step](),
          );
        },
      });
      return [events.slice(0, 5).map(({ result }) => JSON.parse(result)), asked];
    });
    assert.match(results[0].text, /not allowed/);
    assert.match(results[1].text, /not today/);
    assert.deepEqual(asked, [["exec_start", ["exit", "1"]], ["exec_start", ["exit", "0"]]]);
    assert.equal(results[2].data.status, "running");
    assert.match(results[3].text, /stdout \(4 bytes\):\nout\n/);
    assert.equal(results[4].stdout.text, "out\n");
  });

  over("a plain poll is bounded like any other result, and one without processes is unavailable", async (page) => {
    const [sizes, codes] = await page.evaluate(async () => {
      const process_id = await window.run("write", JSON.stringify([["stdout", '"\n'.repeat(10_000)], ["stderr", "\u0001".repeat(9000)]]));
      await window.ended(process_id);
      const { result, reference } = await window.output.callProcessTool("j", "exec_poll", JSON.stringify({ process_id }));
      await window.output.closeProcesses();
      const call = (tool, args) => window.settled(window.output.callProcessTool("j", tool, args));
      return [
        [new TextEncoder().encode(result).length, reference === null],
        await Promise.all([call("exec_poll", JSON.stringify({ process_id })), call("exec_poll", "{}"), call("read_file", "{}"), call(7, "{}")]),
      ];
    });
    assert.ok(sizes[0] <= 16_384 && !sizes[1], `${sizes}`);
    assert.deepEqual(codes, ["unavailable", "invalid_request", "invalid_argument", "invalid_argument"].map(refusal));
  });

  over("closing ends what runs and stores it", async (page) => {
    const [view, answer] = await page.evaluate(async () => {
      const process_id = await window.run("polite");
      await window.pollUntil(process_id, ({ text }) => text !== "");
      await window.output.closeProcesses();
      const stored = await window.output.storedJobs();
      await window.output.openProcesses(window.start);
      return [stored[0].captures.map(({ bytes }) => bytes), await window.poll(process_id)];
    });
    assert.deepEqual([view, answer.data.status], [[21], "stopped"]);
  });

  over("captures live 24 hours, independent of permanent receipts; artifacts 7 days after their job ended", async (page) => {
    const seen = await page.evaluate(async (day) => {
      const process_id = await window.run("exit", "0");
      await window.ended(process_id);
      const frozen = () => window.call("exec_poll", { process_id, stdout_offset: 0 }, "frozen");
      const before = JSON.stringify(await frozen());
      const { reference } = await window.output.record("j", { success: true, text: "x".repeat(20_000) });
      const { sha256 } = JSON.parse(reference);
      await window.output.setStatus("j", "completed");
      await window.output.createJob("active");
      const stored = await window.output.storedJobs();

      // Both of the host's clocks, moved on together.
      const [wall, monotonic] = [Date.now(), performance.now()];
      let passed = 0;
      Date.now = () => wall + passed;
      performance.now = () => monotonic + passed;
      const seen = { stored: stored.map(({ job, owner, expiresAtMs }) => [job, owner, expiresAtMs !== null]), swept: [] };
      const sweep = async (at, options) => {
        passed = at;
        const { jobs, captures } = await window.opened.sweep(options);
        seen.swept.push([jobs.map(({ job }) => job), captures.map(({ processId }) => processId)]);
      };
      await sweep(day - 60_000);
      await sweep(day + 60_000, { dryRun: true });
      await sweep(day + 60_000);
      seen.cursor = await window.settled(window.cursor(process_id, { stdout_offset: 0 }));
      seen.plain = (await window.poll(process_id)).text;
      seen.sameReceipt = JSON.stringify(await frozen()) === before;
      seen.read = (await window.output.read("j", sha256)).bytes > 20_000;
      await window.output.setStatus("j", "archived");
      await sweep(7 * day - 60_000);
      await sweep(7 * day + 60_000);
      seen.gone = await window.settled(window.output.read("j", sha256));
      seen.jobs = await window.output.jobs();
      return seen;
    }, DAY_MS);
    assert.deepEqual(seen.stored, [["active", "active", false], ["j", "inactive", true]]);
    const none = [[], []];
    assert.deepEqual(seen.swept, [none, [[], ["process-1"]], [[], ["process-1"]], none, [["j"], []]]);
    assert.deepEqual(seen.cursor, refusal("unavailable"));
    assert.match(seen.plain, /its captured output has expired/);
    assert.deepEqual([seen.sameReceipt, seen.read], [true, true]);
    assert.deepEqual([seen.gone, seen.jobs], [refusal("unavailable"), ["active"]]);
  });

  over("clocks that jump backwards or a day forwards delete nothing early", async (page) => {
    const swept = await page.evaluate(async (day) => {
      await window.ended(await window.run("exit", "0"));
      await window.output.setStatus("j", "completed");
      const wall = Date.now();
      const swept = [];
      for (const jump of [0, 8 * day, -8 * day, 30 * day]) {
        Date.now = () => wall + jump;
        const { jobs, captures } = await window.opened.sweep();
        swept.push(jobs.length + captures.length);
      }
      return swept;
    }, DAY_MS);
    assert.deepEqual(swept, [0, 0, 0, 0]);
  });

  over("a capture that is deleted answers as an expired one, and its receipts stay", async (page) => {
    const [captures, cursor, same] = await page.evaluate(async () => {
      const process_id = await window.run("exit", "0");
      await window.ended(process_id);
      const frozen = () => window.call("exec_poll", { process_id, stdout_offset: 0 }, "frozen");
      const before = JSON.stringify(await frozen());
      await window.output.deleteCapture("j", process_id);
      await window.output.deleteCapture("j", process_id);
      await window.output.deleteCapture("j", "process-99");
      await window.output.deleteCapture("nowhere", process_id);
      const [{ captures }] = await window.output.storedJobs();
      const cursor = await window.settled(window.cursor(process_id, { stdout_offset: 0 }));
      return [captures, cursor, JSON.stringify(await frozen()) === before];
    });
    assert.deepEqual([captures, cursor, same], [[], refusal("unavailable"), true]);
  });
}

test("the complete streams are committed before anything of the end is shown", async (t) => {
  const page = await open(t);
  const [failed, shown, then] = await page.evaluate(async () => {
    const disk = await window.openLimited();
    const process_id = await window.run("twice", "commit");
    await window.pollUntil(process_id, ({ text }) => text !== "");
    disk.isFull = true;
    window.openGate("commit");
    await new Promise((resolve) => setTimeout(resolve, 50));
    const failed = [await window.settled(window.poll(process_id)), await window.settled(window.cursor(process_id, { stdout_offset: 0 }))];
    const shown = (await window.output.storedJobs())[0].captures.length;
    // The store has room again: nothing of it was lost.
    disk.isFull = false;
    return [failed, shown, (await window.poll(process_id)).text];
  });
  assert.deepEqual(failed, Array(2).fill(refusal("storage_exhausted")));
  assert.deepEqual([shown, then], [0, "stdout (8 bytes):\none\ntwo\n"]);
});

test("what a full store refused when processes were closed is stored by the next attempt", async (t) => {
  const page = await open(t);
  const [closed, opened, then] = await page.evaluate(async () => {
    const disk = await window.openLimited();
    const process_id = await window.run("twice", "full");
    await window.pollUntil(process_id, ({ text }) => text !== "");
    disk.isFull = true;
    const closed = await window.settled(window.output.closeProcesses());
    const opened = await window.settled(window.output.openProcesses(window.start));
    disk.isFull = false;
    await window.output.closeProcesses();
    await window.output.openProcesses(window.start);
    return [closed, opened, await window.poll(process_id)];
  });
  assert.deepEqual([closed, opened], Array(2).fill(refusal("storage_exhausted")));
  assert.deepEqual([then.text, then.data.status], ["stdout (4 bytes):\none\n", "stopped"]);
});

test("indexeddb: cursor reads survive a restart, and an interrupted process answers an explicit unavailable", async (t) => {
  const page = await open(t);
  const context = page.context();
  const [finished, running, first] = await page.evaluate(async () => {
    await window.openOutput("indexeddb");
    const finished = await window.run("exit", "0");
    await window.ended(finished);
    const running = await window.run("twice", "never");
    await window.pollUntil(running, ({ text }) => text !== "");
    return [finished, running, await window.call("exec_poll", { process_id: running, stdout_offset: 0 }, "frozen")];
  });
  await page.close();
  const later = await open(t, context);
  const seen = await later.evaluate(async ([finished, running]) => {
    await window.openOutput("indexeddb");
    return {
      read: (await window.cursor(finished, { stdout_offset: 0 })).stdout.text,
      plain: await window.poll(running),
      cursor: await window.settled(window.cursor(running, { stdout_offset: 0 })),
      stop: (await window.call("exec_stop", { process_id: running })).data.status,
      frozen: await window.call("exec_poll", { process_id: running, stdout_offset: 0 }, "frozen"),
    };
  }, [finished, running]);
  assert.equal(seen.read, "out\n");
  assert.deepEqual([seen.plain.success, seen.plain.data.status, seen.stop], [false, "interrupted", "interrupted"]);
  assert.match(seen.plain.text, /not available: the host that ran it ended/);
  assert.deepEqual(seen.cursor, refusal("unavailable"));
  assert.deepEqual(seen.frozen, first);
});

test("indexeddb: processes of a tab that lives are left alone by another, and read there once they have ended", async (t) => {
  const page = await open(t);
  const process = await page.evaluate(async () => {
    await window.openOutput("indexeddb");
    const process = await window.run("twice", "tab");
    await window.pollUntil(process, ({ text }) => text !== "");
    return process;
  });
  const other = await open(t, page.context());
  const beside = await other.evaluate(async (process) => {
    await window.openOutput("indexeddb");
    const stop = await window.call("exec_stop", { process_id: process });
    return [await window.poll(process), await window.settled(window.cursor(process, { stdout_offset: 0 })), stop.data.status];
  }, process);
  assert.deepEqual([beside[0].data.status, beside[0].success], ["running", false]);
  assert.match(beside[0].text, /another host runs it/);
  assert.deepEqual(beside.slice(1), [refusal("unavailable"), "running"]);
  const text = await page.evaluate(async (process) => {
    window.openGate("tab");
    return (await window.ended(process)).text;
  }, process);
  assert.equal(text, "stdout (8 bytes):\none\ntwo\n");
  assert.equal(await other.evaluate(async (process) => (await window.poll(process)).text, process), text);
});

test("indexeddb: a job that another tab deletes and creates again has none of the first tab's output", async (t) => {
  const first = await open(t);
  const name = "again";
  const running = await first.evaluate(async (name) => {
    await window.openOutput("indexeddb", { name });
    const process_id = await window.run("twice", "first");
    await window.pollUntil(process_id, ({ text }) => text !== "");
    return process_id;
  }, name);
  const second = await open(t, first.context());
  const again = await second.evaluate(async (name) => {
    await window.openOutput("indexeddb", { name });
    await window.output.deleteJob("j");
    await window.output.createJob("j");
    return window.run("split");
  }, name);
  assert.equal(again, running, "ids begin anew");
  const seen = await first.evaluate(async (process_id) => {
    window.openGate("first");
    await new Promise((resolve) => setTimeout(resolve, 300));
    return (await window.poll(process_id)).data.status;
  }, running);
  assert.equal(seen, "running", "it is the other tab's");
  const answer = await second.evaluate(async (process_id) => {
    await window.pollUntil(process_id, ({ text }) => text !== "");
    window.openGate("split");
    return window.ended(process_id);
  }, again);
  assert.equal(answer.text, "stdout (5 bytes):\na😀\n");
});

test("indexeddb: a sweep beside a read leaves it whole or unavailable, and one beside a put keeps what was put", async (t) => {
  const page = await open(t);
  const outcomes = await page.evaluate(async (day) => {
    const outcomes = { reads: [], puts: [] };
    const [wall, monotonic] = [Date.now(), performance.now()];
    let passed = 0;
    Date.now = () => wall + passed;
    performance.now = () => monotonic + passed;
    const output = await window.openOutput("indexeddb");
    const text = window.hexadecimal(200_000);
    for (let round = 0; round < 20; round += 1) {
      const job = `job-${round}`;
      await output.createJob(job);
      const { reference } = await output.record(job, { success: true, text });
      const { sha256 } = JSON.parse(reference);
      await output.setStatus(job, "completed");
      await window.opened.sweep();
      passed += 7 * day + 1000;
      // Another job of the same bytes is written while the first is swept.
      const next = `next-${round}`;
      await output.createJob(next);
      const [, read, put] = await Promise.all([
        window.opened.sweep(),
        window.settled(output.readWhole(job, sha256)),
        window.settled(output.record(next, { success: true, text })),
      ]);
      outcomes.reads.push(read.value ? read.value.length > 200_000 : read.code);
      outcomes.puts.push((await output.readWhole(next, JSON.parse(put.value.reference).sha256)).length > 200_000);
      outcomes.gone = await window.settled(output.readWhole(job, sha256));
    }
    return outcomes;
  }, DAY_MS);
  assert.ok(outcomes.reads.every((read) => read === true || read === "unavailable"), `${outcomes.reads}`);
  assert.ok(outcomes.puts.every((put) => put === true));
  assert.deepEqual(outcomes.gone, refusal("unavailable"));
});

test("indexeddb: active, unknown and missing jobs keep theirs and use none of the sweep's budget of 64 jobs", async (t) => {
  const page = await open(t);
  const [collected, kept] = await page.evaluate(async (day) => {
    const [wall, monotonic] = [Date.now(), performance.now()];
    let passed = 0;
    Date.now = () => wall + passed;
    performance.now = () => monotonic + passed;
    const output = await window.openOutput("indexeddb");
    for (const kind of ["unknown", "missing", "terminal"]) {
      for (let index = 0; index < (kind === "terminal" ? 65 : 64); index += 1) {
        const job = `${kind}-${index}`;
        await output.createJob(job);
        await output.record(job, { success: true, text: "x".repeat(17_000) });
        await output.setStatus(job, "completed");
      }
    }
    // Damage from outside: records that cannot be read, and records that are gone.
    const database = await new Promise((resolve, reject) => {
      const request = indexedDB.open("bounded-evidence");
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    const [name] = database.objectStoreNames;
    const transaction = database.transaction(name, "readwrite");
    const records = transaction.objectStore(name);
    for (let index = 0; index < 64; index += 1) {
      records.put(new Uint8Array([1, 2, 3]), `tool-output/s/unknown-${index}/job`);
      records.delete(`tool-output/s/missing-${index}/job`);
    }
    await new Promise((resolve) => (transaction.oncomplete = resolve));
    database.close();
    await window.opened.sweep();
    passed = 7 * day + 1000;
    const collected = [];
    for (let sweep = 0; sweep < 3; sweep += 1) collected.push((await window.opened.sweep()).jobs.length);
    const owners = (await output.storedJobs()).map(({ owner }) => owner);
    return [collected, ["active", "unknown", "missing", "inactive"].map((kind) => owners.filter((owner) => owner === kind).length)];
  }, DAY_MS);
  assert.deepEqual(collected, [64, 1, 0]);
  assert.deepEqual(kept, [1, 64, 64, 0]);
});
