/**
 * The exact bytes of large tool results, kept outside a model's prompt: stores, artifacts, ranges and
 * tool output, and `boundTools` for tools that are plain functions.
 *
 * @packageDocumentation
 */

import { init } from "./load.js";
import { type EvidenceStore, type StoreOptions, openStore as open } from "./wasm/evidence_wasm.js";

export { type WasmSource, init } from "./load.js";
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
  type RangeResult,
  type ReadAnswer,
  type ReadOptions,
  type RecordOptions,
  type RecordedResult,
  type RunEvent,
  type RunOptions,
  type RunOutcome,
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
  readToolName,
  readToolSchema,
} from "./wasm/evidence_wasm.js";

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
