/**
 * All of `bounded-evidence`, and processes: what runs for a while, and is started, followed and stopped by
 * the model while every byte that it writes is kept. It is a WebAssembly of its own, some 30 KB larger.
 *
 * @packageDocumentation
 */

import type { WasmSource } from "./load.js";
import { loader } from "./processes-loader.js";
import { type EvidenceStore, type StoreOptions, openStore as open } from "./wasm/evidence_wasm_processes.js";

export type { WasmSource } from "./load.js";
export {
  type BoundTools,
  type BoundToolsOptions,
  type PlainTool,
  type PlainTools,
  boundTools,
} from "./plain.js";
export {
  type Action,
  type ArtifactDescriptor,
  type Artifacts,
  type BoundedResult,
  type CommandOutput,
  type EnvelopeCheck,
  EvidenceError,
  type EvidenceErrorCode,
  type EvidenceLimits,
  type EvidenceStore,
  type Job,
  type JobRecord,
  type JobStatus,
  type JsonValue,
  type Message,
  type ProcessEvent,
  type ProcessRequest,
  type RangeResult,
  type ReadAnswer,
  type ReadOptions,
  type RecordOptions,
  type RecordedResult,
  type RunEvent,
  type RunOptions,
  type RunOutcome,
  type StartProcess,
  type StepEvent,
  type Store,
  type StoreBatch,
  type StoreOptions,
  type StoredJob,
  type Swept,
  type ToolCall,
  type ToolOutput,
  type ToolOutputArtifact,
  type ToolOutputRunOptions,
  type ToolResult,
  type ValueOf,
  checkEnvelope,
  checkMessage,
  isArtifactPath,
  persist,
  processToolSchemas,
  readToolName,
  readToolSchema,
} from "./wasm/evidence_wasm_processes.js";

/**
 * Loads the WebAssembly. The first call decides from where, later ones wait for it; one that failed
 * may be repeated.
 *
 * `openStore` does it where nobody else did, so that it has to be called only to name another source
 * than the file in this package, and before the functions that need no store.
 *
 * @param source - An address, a response, bytes or a module: left out, the file in this package.
 */
export function init(source?: WasmSource): Promise<void> {
  return loader.init(source);
}

/**
 * Opens a store, and loads the WebAssembly before that where nobody did.
 *
 * Rejects with the code `storage_unavailable` when the browser lets this page store nothing, and when
 * another tab holds an older form of the database open.
 *
 * @param options - Memory, a database of this origin, or a store of the host.
 */
export async function openStore(options: StoreOptions): Promise<EvidenceStore> {
  await init();
  return open(options);
}
