//! The library for JavaScript: the rules, the stores and the loop, as promises and plain objects.
//!
//! Conversions and errors, nothing else. What comes in is checked here (`argument`), every rule is
//! in the crates below, and what goes wrong is an `EvidenceError` with a `code` (`error`). The
//! TypeScript types stand beside the functions that they describe.
//!
//! ```js
//! import init, { openStore } from "evidence-wasm";
//!
//! await init();
//! const store = await openStore({ kind: "indexeddb" });
//! const artifacts = store.artifacts("job-1");
//! const { text } = await artifacts.bound(hugeToolResult);   // what the model reads
//! const range = await artifacts.readRange(pathFromTheModel); // exact bytes, when it asks
//!
//! const output = store.toolOutput("my-session");             // contract B: structured results
//! await output.createJob("job-1");
//! const { result } = await output.record("job-1", { success: true, text: hugeToolResult });
//! const answer = await output.readTool("job-1", argumentsOfTheModel);
//! ```
#![cfg(target_arch = "wasm32")]
// Every function is called from JavaScript, where each can throw for a bad argument; the codes that
// an `EvidenceError` has are told once, in the types.
#![allow(clippy::missing_errors_doc)]

mod agent;
mod argument;
mod artifacts;
mod error;
mod host_store;
#[cfg(feature = "processes")]
mod processes;
mod retention;
mod store;
mod tool_output;

pub use artifacts::{Artifacts, is_artifact_path};
pub use error::Failure;
#[cfg(feature = "processes")]
pub use processes::process_tool_schemas;
pub use store::{EvidenceStore, open_store, persist};
pub use tool_output::{
    ToolOutput, check_envelope, check_message, read_tool_name, read_tool_schema,
};
