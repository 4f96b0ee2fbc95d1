// Compiled, never run: what the library's types allow and what they do not.

import init, {
  type Artifacts,
  type BoundedResult,
  type EnvelopeCheck,
  EvidenceError,
  type EvidenceErrorCode,
  type ReadAnswer,
  type RunOutcome,
  type Store,
  type ToolOutput,
  type ToolResult,
  checkEnvelope,
  checkMessage,
  isArtifactPath,
  openStore,
  persist,
  readToolName,
  readToolSchema,
} from "evidence-wasm";

export async function use(): Promise<RunOutcome | undefined> {
  await init();
  const granted: boolean = await persist();
  const store = await openStore(granted ? { kind: "indexeddb", name: "mine" } : { kind: "memory" });
  const artifacts: Artifacts = store.artifacts("job");

  const { artifactId, byteCount, sha256 } = await artifacts.put("text");
  const bytes: Uint8Array = await artifacts.read(artifactId);
  const ids: string[] = await artifacts.list();
  const bounded: BoundedResult = await artifacts.bound("text", { maxInlineBytes: 1024 });
  const stored: string | undefined = bounded.descriptor?.sha256;
  const { ok, text } = await artifacts.readRange(bounded.text, { maxRangeBytes: 4 });
  const path: boolean = isArtifactPath(text);
  void [byteCount, sha256, bytes, ids, stored, ok, path];

  const controller = new AbortController();
  try {
    return await artifacts.runAgent({
      task: "find the error",
      files: { "a.log": "text", "b.bin": new Uint8Array(1) },
      generate: async ({ messages, signal }) => {
        signal?.throwIfAborted();
        return messages.map(({ role, content }) => `${role}: ${content}`).join("\n");
      },
      policy: { allowWrites: true, allowedCommands: [["make", "test"]] },
      approve: ({ tool, arguments: { path } }) => tool === "write_file" || `not ${String(path)}`,
      commands: { make: ({ argv }) => ({ exitCode: argv.length, stdout: "ok" }) },
      agentLimits: { maxSteps: 3 },
      onEvent: (event) => {
        if (event.type === "step") {
          const result: string | null = event.result;
          void result;
        }
      },
      signal: controller.signal,
    });
  } catch (error) {
    if (error instanceof EvidenceError) {
      const code: EvidenceErrorCode = error.code;
      void code;
    }
    return undefined;
  } finally {
    await artifacts.delete(artifactId);
    await artifacts.deleteAll();
  }
}

export async function useToolOutput(store: Store): Promise<RunOutcome> {
  const output: ToolOutput = (await openStore({ kind: "custom", store })).toolOutput("session");
  const { status, terminalAtMs } = await output.createJob("job");
  const jobs: string[] = await output.jobs();
  const result: ToolResult = { success: true, text: "text", data: { id: "p", list: [1, null] }, receipt: "r" };
  const { result: shown, reference } = await output.record("job", result, { toolCallId: "c", handles: { id: "p" } });
  await output.record("job", '{"success":true,"text":"","data":9007199254740993}', { handles: "{}" });
  const [{ sha256, byteCount, path }] = await output.artifacts("job");
  const answer: ReadAnswer = await output.read("job", sha256, { offset: 0, limit: 8192 });
  await output.read("job", sha256);
  const forModel: string = await output.readTool("job", "{}");
  const bytes: Uint8Array = await output.readWhole("job", sha256);
  const check: EnvelopeCheck = checkEnvelope("body", 1024);
  const fits: boolean = checkEnvelope("body").fits && checkMessage("message").fits;
  const tool: [string, string] = [readToolName(), readToolSchema()];
  void [status, terminalAtMs, jobs, shown, reference, byteCount, path, answer.next_offset, forModel, bytes, check, fits, tool];
  const { artifactBytes }: { artifactBytes: number } = await output.job("job");
  void artifactBytes;
  const outcome = await output.runAgent("job", {
    task: "find the error",
    generate: () => "reply",
    maxInputBytes: 100_000,
    onEvent: (event) => void (event.type === "step" && event.provenance),
  });
  await output.setStatus("job", "completed");
  await output.deleteJob("job");
  return outcome;
}

export function mapStore(values: Map<string, Uint8Array>): Store {
  return {
    get: (keys) => keys.map((key) => values.get(key)),
    list: async (prefix) => [...values.keys()].filter((key) => key.startsWith(prefix)),
    commit: async (batch) => {
      for (const [key, value] of batch.expect) {
        const expected: Uint8Array | undefined = value;
        if (expected !== values.get(key)) throw Object.assign(new Error("changed"), { code: "conflict" });
      }
      for (const key of batch.delete) values.delete(key);
      for (const [key, value] of batch.put) values.set(key, value);
    },
  };
}

export async function misuseToolOutput(output: ToolOutput): Promise<void> {
  // @ts-expect-error a custom store needs one
  await openStore({ kind: "custom" });
  // @ts-expect-error a store has three functions
  await openStore({ kind: "custom", store: { get: () => [], list: () => [] } });
  // @ts-expect-error a result has a text
  await output.record("job", { success: true });
  // @ts-expect-error JSON holds no such value
  await output.record("job", { success: true, text: "", data: () => {} });
  // @ts-expect-error a status that does not exist
  await output.setStatus("job", "done");
  // @ts-expect-error contract A's limits
  await output.runAgent("job", { task: "t", generate: () => "", limits: {} });
}

export async function misuse(artifacts: Artifacts): Promise<void> {
  // @ts-expect-error a kind that does not exist
  await openStore({ kind: "disk" });
  // @ts-expect-error a memory store has no name
  await openStore({ kind: "memory", name: "x" });
  // @ts-expect-error bytes are no text
  await artifacts.put(new Uint8Array(1));
  // @ts-expect-error a run needs a generator
  await artifacts.runAgent({ task: "t" });
  // @ts-expect-error a misspelt limit
  await artifacts.bound("text", { max_inline_bytes: 512 });
  const error = new EvidenceError("invalid_argument", "m");
  // @ts-expect-error a code that does not exist
  void (error.code === "other");
}
