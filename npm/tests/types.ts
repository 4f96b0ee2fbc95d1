// Compiled, never run: what the package's types allow and what they do not.

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { type LanguageModel, generateText, tool } from "ai";
import {
  type Artifacts,
  EvidenceError,
  type EvidenceErrorCode,
  type ReadAnswer,
  type Store,
  boundTools as boundPlainTools,
  init,
  openStore,
} from "bounded-evidence";
import { type BoundedOutput, boundTools } from "bounded-evidence/ai-sdk";
import { RANGE_URI_PREFIX, boundServer } from "bounded-evidence/mcp";
import { DirectoryStore } from "bounded-evidence/node";
import { z } from "zod";

export async function plain(artifacts: Artifacts): Promise<string> {
  await init(new URL("https://example.org/a.wasm"));
  await init(new Uint8Array(1));
  const tools = boundPlainTools(
    { build: async ({ target }: { target: string }) => target, list: () => "a" },
    { artifacts, limits: { maxInlineBytes: 1024 } },
  );
  const shown: string = await tools.build({ target: "all" });
  await tools.list();
  // @ts-expect-error its argument is an object with a target
  await tools.build("all");
  // @ts-expect-error a tool that there is not
  await tools.other();
  // @ts-expect-error a result is a text
  boundPlainTools({ build: () => 1 }, { artifacts });
  return shown + (await tools.read_file({ path: "a" }));
}

export async function sdk(model: LanguageModel): Promise<void> {
  const output = (await openStore({ kind: "memory" })).toolOutput("session");
  const build = tool({
    inputSchema: z.object({ target: z.string() }),
    execute: async ({ target }) => ({ log: target, lines: 1 }),
  });
  const ask = tool({ inputSchema: z.object({}) });
  const tools = boundTools({ build, ask }, { output, job: "job" });
  const { steps } = await generateText({ model, tools, prompt: "" });
  for (const result of steps.flatMap(({ toolResults }) => toolResults)) {
    if (result.dynamic) continue;
    if (result.toolName === "build") {
      const shown: { log: string; lines: number } | BoundedOutput = result.output;
      if ("data" in shown) shown.data.sha256.padEnd(64);
      else shown.lines.toFixed();
      result.input.target.trim();
    } else if (result.toolName === "akh_read_tool_output") {
      const answer: ReadAnswer = result.output;
      void answer.next_offset;
    }
  }
  // @ts-expect-error a job is needed
  boundTools({ build }, { output });
}

export async function server(artifacts: Artifacts): Promise<McpServer> {
  const prefix: string = RANGE_URI_PREFIX;
  void prefix;
  // @ts-expect-error artifacts are needed
  boundServer(new McpServer({ name: "a", version: "1" }), {});
  return boundServer(new McpServer({ name: "a", version: "1" }), { artifacts });
}

export async function directory(): Promise<EvidenceErrorCode | undefined> {
  await using directory = await DirectoryStore.open("evidence");
  const store: Store = directory;
  try {
    await openStore({ kind: "custom", store });
    // @ts-expect-error a custom store needs one
    await openStore({ kind: "custom" });
  } catch (error) {
    if (error instanceof EvidenceError) return error.code;
  }
  return undefined;
}
