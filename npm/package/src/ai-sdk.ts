/**
 * A middleware for the Vercel AI SDK: bounds what tools answer, and adds the tool that reads the rest.
 *
 * @packageDocumentation
 */

import { type Tool, type ToolSet, jsonSchema, tool as defineTool } from "ai";

import { library } from "./load.js";
import type {
  ReadAnswer,
  RecordedResult,
  ToolOutput,
  ToolResult,
} from "./wasm/evidence_wasm.js";

/** Where large results are kept. */
export interface BoundToolsOptions {
  /** The tool output of the session. */
  output: ToolOutput;
  /** The job that the results belong to. It must have been created, and not have ended. */
  job: string;
}

/** What stands for an output that is too large: at most 16 KiB of JSON. */
export interface BoundedOutput extends ToolResult {
  /** The reference to the complete result, by which the model reads it. */
  data: BoundedOutputReference;
}

/** The reference to a complete result that is stored. */
export interface BoundedOutputReference {
  /** Says that this is a reference. */
  kind: "tool_output_ref";
  /** The version of this form. */
  schema_version: 1;
  /** The job that the result belongs to. */
  job_id: string;
  /** The digest of the complete serialized result. */
  sha256: string;
  /** The size of the complete serialized result. */
  bytes: number;
  /** Where an endpoint answers it. */
  path: string;
  /** The tool that reads it. */
  tool: "akh_read_tool_output";
  /** The identifiers that the model needs to go on. */
  handles: { readonly [name: string]: string | number | boolean | null };
  /** There, and true, when some of them did not fit. */
  handles_elided?: true;
  /** What JSON can hold more. */
  readonly [name: string]: string | number | boolean | null | undefined | BoundedOutputReference["handles"];
}

/** The arguments of the tool that reads stored results. */
export interface ReadToolInput {
  /** The job whose result it is; the current job when left out. */
  job_id?: string;
  /** The digest of the result, as its reference has it. */
  sha256: string;
  /** Where to begin, in UTF-8 bytes. */
  offset: number;
  /** The most bytes, 1 to 8192. */
  limit: number;
}

/** A tool whose output may be replaced. */
export type BoundTool<T> =
  T extends Tool<infer Input, infer Output> ? ([Output] extends [never] ? T : Tool<Input, Output | BoundedOutput>) : T;

/** The same tools, and the one that reads stored results. */
export type BoundTools<T extends ToolSet> = { [K in keyof T]: BoundTool<T[K]> } & {
  /** Reads exact bytes of a stored result. */
  akh_read_tool_output: Tool<ReadToolInput, ReadAnswer>;
};

/**
 * Wraps the tools of `generateText`, `streamText` or an agent, so that no result over 16 KiB reaches
 * the model: a larger one is stored, and answered by a {@link BoundedOutput}. The model reads the rest
 * with the tool `akh_read_tool_output`, which is added.
 *
 * What is measured and stored is the JSON that the SDK sends. A tool with a `toModelOutput` of its own
 * has that bounded instead of its output: texts and JSON are, and images, files and what they weigh
 * pass. Errors are bounded like results. Tools that the SDK does not execute are left as they are.
 *
 * When storing fails, the tool has failed with the `EvidenceError`, and nothing of its result is shown.
 *
 * @param tools - The tools, by their names.
 * @param options - Where large results are kept.
 */
export function boundTools<T extends ToolSet>(tools: T, options: BoundToolsOptions): BoundTools<T> {
  const { EvidenceError, readToolSchema } = library();
  const reader: { name: string; description: string; parameters: object } = JSON.parse(readToolSchema());
  if (reader.name in tools) {
    throw new EvidenceError("invalid_argument", `tools has a ${reader.name} already; rename it, or wrap the tools once`);
  }
  const { output, job } = options;
  const readTool = defineTool({
    description: reader.description,
    inputSchema: jsonSchema<ReadToolInput>(reader.parameters),
    execute: async (input): Promise<ReadAnswer> => JSON.parse(await output.readTool(job, JSON.stringify(input))),
  });
  const wrapped = Object.entries(tools).map(([name, tool]) => [name, boundTool(tool, options)]);
  // fromEntries forgets the names.
  return Object.fromEntries([...wrapped, [reader.name, readTool]]) as unknown as BoundTools<T>;
}

type AnyTool = Tool<unknown, unknown>;
type ModelOutput = Awaited<ReturnType<NonNullable<AnyTool["toModelOutput"]>>>;

function boundTool(tool: ToolSet[string], options: BoundToolsOptions): AnyTool {
  // Types of input and output do not matter here; they are the tool's own.
  const { execute, toModelOutput, ...rest } = tool as AnyTool;
  if (!execute) return tool as AnyTool;
  const boundExecute: typeof execute = (input, call) => {
    const answer = attempt(() => execute(input, call));
    // Whatever stands before the end of a stream is shown to people alone.
    if (isAsyncIterable(answer)) return boundLast(answer, options, toModelOutput === undefined);
    return (async () => {
      const value = await answer.catch((error: unknown) => throwBound(error, options));
      return toModelOutput ? value : boundValue(value, options);
    })();
  };
  const bound: Partial<AnyTool> = { ...rest, execute: boundExecute };
  if (toModelOutput) {
    bound.toModelOutput = async (given) => boundModelOutput(await toModelOutput(given), options);
  }
  return bound as AnyTool;
}

/** What a function answers: a stream, or a promise of a value, also when it throws. */
function attempt<T>(action: () => AsyncIterable<T> | PromiseLike<T> | T): AsyncIterable<T> | Promise<T> {
  try {
    const answer = action();
    return isAsyncIterable(answer) ? answer : Promise.resolve(answer);
  } catch (error) {
    return Promise.reject(error);
  }
}

function isAsyncIterable<T>(value: AsyncIterable<T> | unknown): value is AsyncIterable<T> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

async function* boundLast(
  answer: AsyncIterable<unknown>,
  options: BoundToolsOptions,
  bounded: boolean,
): AsyncGenerator<unknown, void> {
  let last: unknown;
  try {
    for await (last of answer) yield last;
  } catch (error) {
    await throwBound(error, options);
  }
  if (!bounded) return;
  const shown = await boundValue(last, options);
  if (shown !== last) yield shown;
}

/** The value itself where it is small. */
async function boundValue(value: unknown, options: BoundToolsOptions): Promise<unknown> {
  const { result, reference } = await record(true, value, options);
  return reference === null ? value : (JSON.parse(result) as BoundedOutput);
}

async function throwBound(error: unknown, options: BoundToolsOptions): Promise<never> {
  const message = error instanceof Error ? error.message : error;
  const { result, reference } = await record(false, message, options);
  throw reference === null ? error : new Error(result, { cause: error });
}

async function boundModelOutput(shown: ModelOutput, options: BoundToolsOptions): Promise<ModelOutput> {
  switch (shown.type) {
    case "text":
    case "json":
    case "error-text":
    case "error-json": {
      const success = shown.type === "text" || shown.type === "json";
      const { result, reference } = await record(success, shown.value, options);
      if (reference === null) return shown;
      return { ...shown, type: success ? "json" : "error-json", value: JSON.parse(result) };
    }
    case "content": {
      const texts = shown.value.filter((part) => part.type === "text");
      const text = texts.length === 1 ? texts[0]?.text : texts.map((part) => part.text);
      const { result, reference } = await record(true, text, options);
      if (reference === null) return shown;
      const others = shown.value.filter((part) => part.type !== "text");
      return { ...shown, value: [{ type: "text", text: result }, ...others] };
    }
    default:
      return shown;
  }
}

function record(success: boolean, value: unknown, { output, job }: BoundToolsOptions): Promise<RecordedResult> {
  // The JSON is what the SDK sends. A string is read as a text and not as JSON.
  const result = typeof value === "string" ? { success, text: value } : { success, text: "", data: value ?? null };
  return output.record(job, JSON.stringify(result));
}
