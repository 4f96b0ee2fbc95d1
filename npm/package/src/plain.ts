import { library } from "./load.js";
import type { Artifacts, EvidenceLimits } from "./wasm/evidence_wasm.js";

/** A tool: takes the arguments that the model wrote, and answers what it is to read. */
export type PlainTool = (input: any, ...more: any[]) => string | PromiseLike<string>;

/** Tools by their names. */
export type PlainTools = Readonly<Record<string, PlainTool>>;

/** Where large results are kept, and what large is. */
export interface BoundToolsOptions {
  /** Keeps what is too large, and answers ranges of it. */
  artifacts: Artifacts;
  /** How much reaches the model; contract A's own limits when left out. */
  limits?: EvidenceLimits;
}

/** The same tools, and `read_file`. */
export type BoundTools<T extends PlainTools> = {
  [K in keyof T]: (...input: Parameters<T[K]>) => Promise<string>;
} & {
  /** Answers the paths of artifacts, and hands other paths to the tool of this name, if there is one. */
  read_file(input: { path: string }): Promise<string>;
};

/**
 * Wraps tools that are plain functions, so that no result over the limit reaches the model: a large
 * one is stored, and what is answered in its place tells the model how to read exact ranges of it with
 * `read_file`. That tool is added where there is none; where there is one, paths of artifacts never
 * reach it.
 *
 * A refused range is an answer too, which begins with `error: `. What a tool throws passes unchanged.
 * When storing fails the call rejects with an `EvidenceError`, and nothing of the result must reach the
 * model.
 *
 * @param tools - The tools, by the names that the model knows.
 * @param options - Where large results are kept, and what large is.
 */
export function boundTools<const T extends PlainTools>(
  tools: T,
  { artifacts, limits }: BoundToolsOptions,
): BoundTools<T> {
  const bounded = Object.entries(tools).map(([name, tool]): [string, PlainTool] => [
    name,
    async (...input) => (await artifacts.bound(await tool(...input), limits)).text,
  ]);
  const wrapped = new Map(bounded);
  const readFile = wrapped.get("read_file");
  wrapped.set("read_file", async (input: { path: string }, ...more) => {
    if (library().isArtifactPath(input.path) || !readFile) {
      return (await artifacts.readRange(input.path, limits)).text;
    }
    return readFile(input, ...more);
  });
  // fromEntries forgets the names.
  return Object.fromEntries(wrapped) as unknown as BoundTools<T>;
}
