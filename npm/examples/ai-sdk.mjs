// The Vercel AI SDK: what tools answer is bounded, and the model reads the rest with one more tool.
//
// The model here is a script, so that this runs as it is; put a real one in its place.

import { generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { openStore } from "bounded-evidence";
import { boundTools } from "bounded-evidence/ai-sdk";
import { z } from "zod";

const store = await openStore({ kind: "memory" });
const output = store.toolOutput("my-session");
await output.createJob("my-job");

const log = `${"compiling\n".repeat(5_000)}error[E0282]: type annotations needed\n${"compiling\n".repeat(5_000)}`;
const tools = boundTools(
  {
    build: tool({
      description: "Builds the project and answers the log.",
      inputSchema: z.object({ target: z.string() }),
      execute: async () => log,
    }),
  },
  { output, job: "my-job" },
);

const { text, steps } = await generateText({ model: scripted(), tools, prompt: "Why does the build fail?", stopWhen: stepCountIs(8) });
await output.setStatus("my-job", "completed");

const [shown] = steps[0].toolResults;
console.log(JSON.stringify(shown.output).length, "bytes reach the model instead of", log.length);
console.log(text);

/** Builds, reads where the excerpt says that something is left out, and answers with the error. */
function scripted() {
  const usage = { inputTokens: { total: 0 }, outputTokens: { total: 0 } };
  const call = (toolName, input) => ({
    content: [{ type: "tool-call", toolCallId: toolName, toolName, input: JSON.stringify(input) }],
    finishReason: { unified: "tool-calls" },
    usage,
    warnings: [],
  });
  const lastResult = (prompt) => prompt.at(-1).content[0].output.value;
  return new MockLanguageModelV3({
    doGenerate: async ({ prompt }) => {
      if (prompt.at(-1).role === "user") return call("build", { target: "all" });
      const { data, text } = lastResult(prompt);
      if (data) return call(data.tool, { sha256: data.sha256, offset: 54_990, limit: 8192 });
      return {
        content: [{ type: "text", text: text.split("\\n").find((line) => line.includes("error[")) }],
        finishReason: { unified: "stop" },
        usage,
        warnings: [],
      };
    },
  });
}
