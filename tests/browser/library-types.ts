// Compiled, never run: what the library's types allow and what they do not.

import init, {
  type Artifacts,
  type BoundedResult,
  EvidenceError,
  type EvidenceErrorCode,
  type RunOutcome,
  isArtifactPath,
  openStore,
  persist,
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
