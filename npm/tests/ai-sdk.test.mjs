// The middleware for the Vercel AI SDK, in the SDK's own loop over its own model for tests.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { dynamicTool, generateText, jsonSchema, simulateReadableStream, stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { openStore } from "bounded-evidence";
import { boundTools } from "bounded-evidence/ai-sdk";
import { z } from "zod";

const LIMIT = 16 * 1024;
const usage = { inputTokens: { total: 0 }, outputTokens: { total: 0 } };

let output;
beforeEach(async () => {
  output = (await openStore({ kind: "memory" })).toolOutput("session");
  await output.createJob("job");
});

const inputSchema = z.object({});
const bound = (tools) => boundTools(tools, { output, job: "job" });
const called = (toolName, input) => ({
  content: [{ type: "tool-call", toolCallId: `call-${toolName}`, toolName, input: JSON.stringify(input) }],
  finishReason: { unified: "tool-calls" },
  usage,
  warnings: [],
});
const said = (text) => ({ content: [{ type: "text", text }], finishReason: { unified: "stop" }, usage, warnings: [] });

/** Runs the loop over these calls in turn; what the model was sent of each result. */
async function sent(tools, ...calls) {
  const model = new MockLanguageModelV3({
    doGenerate: [...calls.map(([name, input]) => called(name, input ?? {})), said("done")],
  });
  const { text } = await generateText({ model, tools, prompt: "go", stopWhen: stepCountIs(calls.length + 1) });
  assert.equal(text, "done");
  const prompt = model.doGenerateCalls.at(-1).prompt;
  return prompt.filter(({ role }) => role === "tool").map(({ content }) => content[0].output);
}

const reads = (sha256, offset = 0) => ["akh_read_tool_output", { sha256, offset, limit: 8192 }];
const whole = async (reference) => JSON.parse(new TextDecoder().decode(await output.readWhole("job", reference.sha256)));

test("a small output reaches the model as the tool answered it", async () => {
  const value = { list: [1, null, "x"], text: "y".repeat(15_000) };
  const tools = bound({
    text: tool({ inputSchema, execute: () => "text" }),
    json: tool({ inputSchema, execute: async () => value }),
    nothing: tool({ inputSchema, execute: () => undefined }),
  });
  assert.deepEqual(await sent(tools, ["text"], ["json"], ["nothing"]), [
    { type: "text", value: "text" },
    { type: "json", value },
    { type: "json", value: null },
  ]);
  assert.deepEqual(await output.artifacts("job"), []);
});

test("a large output is stored whole, and the model reads all of it by cursor", async () => {
  const value = { lines: Array.from({ length: 3_000 }, (_, line) => `${line} 漢字 "quoted"`) };
  const tools = bound({ get: tool({ inputSchema, execute: async () => value }) });
  const [shown] = await sent(tools, ["get"]);
  assert.equal(shown.type, "json");
  assert.ok(new TextEncoder().encode(JSON.stringify(shown.value)).length <= LIMIT);
  const { data, success } = shown.value;
  assert.equal(success, true);
  assert.deepEqual((await whole(data)).data, value);
  let text = "";
  for (let offset = 0; offset < data.bytes; ) {
    const [answer] = await sent(tools, reads(data.sha256, offset));
    assert.equal(answer.type, "json");
    text += answer.value.text;
    offset = answer.value.next_offset;
  }
  assert.deepEqual(JSON.parse(text).data, value);
});

test("the loop: the model calls a tool, reads a range, and goes on", async () => {
  const log = `${"ok\n".repeat(20_000)}the error\n${"ok\n".repeat(20_000)}`;
  const tools = bound({ build: tool({ inputSchema, execute: () => log }) });
  const [{ value }] = await sent(tools, ["build"]);
  const [, range] = await sent(tools, ["build"], reads(value.data.sha256, 80_000 - 8));
  assert.ok(range.value.text.includes("the error"));
  assert.ok(!value.text.includes("the error"));
});

test("a refused read is told to the model as an error, and the loop goes on", async () => {
  const [unknown, beyond] = await sent(bound({}), reads("0".repeat(64)), ["akh_read_tool_output", { sha256: "x", offset: 0, limit: 1 }]);
  for (const { type, value } of [unknown, beyond]) {
    assert.equal(type, "error-text");
    assert.ok(value.length < 300);
  }
});

test("a small error passes unchanged; a large one is bounded, and stays an error", async () => {
  const message = `${"trace\n".repeat(10_000)}cause`;
  const tools = bound({
    small: tool({
      inputSchema,
      execute: () => {
        throw new TypeError("broken");
      },
    }),
    large: tool({ inputSchema, execute: () => Promise.reject(new Error(message)) }),
  });
  const [small, large] = await sent(tools, ["small"], ["large"]);
  assert.deepEqual(small, { type: "error-text", value: "broken" });
  assert.equal(large.type, "error-text");
  assert.ok(large.value.length <= LIMIT);
  const shown = JSON.parse(large.value);
  assert.equal(shown.success, false);
  assert.equal((await whole(shown.data)).text, message);
});

test("a tool's own toModelOutput is bounded in what it shows, and its images pass", async () => {
  const image = { type: "file-data", data: "A".repeat(100_000), mediaType: "image/png" };
  const text = "t".repeat(30_000);
  const tools = bound({
    image: tool({
      inputSchema,
      execute: () => ({ pixels: image.data }),
      toModelOutput: ({ output }) => ({ type: "content", value: [{ type: "text", text: "small" }, { ...image, data: output.pixels }] }),
    }),
    both: tool({
      inputSchema,
      execute: () => text,
      toModelOutput: ({ output }) => ({ type: "content", value: [{ type: "text", text: output }, image, { type: "text", text: "more" }] }),
    }),
    text: tool({ inputSchema, execute: () => 1, toModelOutput: () => ({ type: "text", value: text }) }),
    failed: tool({ inputSchema, execute: () => 1, toModelOutput: () => ({ type: "error-text", value: text }) }),
  });
  const [passed, both, bounded, failed] = await sent(tools, ["image"], ["both"], ["text"], ["failed"]);
  assert.deepEqual(passed, { type: "content", value: [{ type: "text", text: "small" }, image] });
  assert.equal(both.value.length, 2);
  assert.deepEqual(both.value[1], image);
  assert.deepEqual((await whole(JSON.parse(both.value[0].text).data)).data, [text, "more"]);
  assert.equal(bounded.type, "json");
  assert.equal((await whole(bounded.value.data)).text, text);
  assert.equal(failed.type, "error-json");
  assert.equal(failed.value.success, false);
});

test("the last value of a stream is bounded, and those before it are shown as they come", async () => {
  const log = "x".repeat(20_000);
  const tools = bound({
    grow: tool({
      inputSchema,
      async *execute() {
        yield "starting";
        yield log;
      },
    }),
    fail: tool({
      inputSchema,
      async *execute() {
        yield "starting";
        throw new Error(log);
      },
    }),
  });
  const stream = (chunks) => ({ stream: simulateReadableStream({ chunks: [{ type: "stream-start", warnings: [] }, ...chunks] }) });
  const call = (name) =>
    stream([
      { type: "tool-call", toolCallId: name, toolName: name, input: "{}" },
      { type: "finish", finishReason: { unified: "tool-calls" }, usage },
    ]);
  const end = stream([{ type: "finish", finishReason: { unified: "stop" }, usage }]);
  const model = new MockLanguageModelV3({ doStream: [call("grow"), call("fail"), end] });
  const preliminary = [];
  const { fullStream } = streamText({ model, tools, prompt: "go", stopWhen: stepCountIs(3) });
  for await (const part of fullStream) if (part.type === "tool-result" && part.preliminary) preliminary.push(part.output);
  assert.deepEqual(preliminary.slice(0, 2), ["starting", log]);
  const results = model.doStreamCalls.at(-1).prompt.filter(({ role }) => role === "tool").map(({ content }) => content[0].output);
  assert.equal((await whole(results[0].value.data)).text, log);
  assert.equal((await whole(JSON.parse(results[1].value).data)).text, log);
});

test("what cannot be stored is not shown", async () => {
  const tools = bound({
    large: tool({ inputSchema, execute: () => "x".repeat(17 * 1024 * 1024) }),
    later: tool({ inputSchema, execute: () => "y".repeat(20_000) }),
  });
  const [large] = await sent(tools, ["large"]);
  assert.equal(large.type, "error-text");
  assert.ok(large.value.length < 300);
  await output.setStatus("job", "completed");
  const [later] = await sent(tools, ["later"]);
  assert.equal(later.type, "error-text");
  assert.ok(later.value.length < 300);
});

test("dynamic tools are bounded, tools without execute are left as they are, and one name is taken", async () => {
  const elsewhere = tool({ inputSchema: jsonSchema({ type: "object" }) });
  const tools = bound({
    elsewhere,
    dynamic: dynamicTool({ inputSchema, execute: async () => "z".repeat(20_000) }),
  });
  assert.equal(tools.elsewhere, elsewhere);
  assert.equal(tools.dynamic.type, "dynamic");
  const [shown] = await sent(tools, ["dynamic"]);
  assert.equal(shown.value.data.kind, "tool_output_ref");
  assert.throws(() => bound(tools), { code: "invalid_argument" });
});
