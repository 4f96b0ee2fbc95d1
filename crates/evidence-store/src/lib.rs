//! Where the bytes live.
//!
//! A [`Store`] is a small transactional map from keys to bytes: read some keys as of one moment,
//! list keys, commit a batch entirely or not at all. Everything that the contracts ask of storage is
//! built on these three calls, once, above the trait: [`blob`] cuts bytes into verified chunks,
//! [`artifacts`] is the artifact store of contract A, [`tool_output`] holds the jobs and the tool
//! output of contract B. Stores know nothing of contracts.
//!
//! - [`MemoryStore`]: for tests and for pages that keep nothing.
//! - `DirectoryStore`: a directory of immutable commit files (native).
//! - `IndexedDbStore`: one database of a browser's origin (WebAssembly, with the feature
//!   `browser`).

pub mod artifacts;
pub mod blob;
mod digest;
#[cfg(not(target_arch = "wasm32"))]
mod directory;
#[cfg(all(target_arch = "wasm32", feature = "browser"))]
mod host_lock;
#[cfg(all(target_arch = "wasm32", feature = "browser"))]
mod indexed_db;
mod maybe_send;
mod memory;
mod record;
mod store;
pub mod tool_output;

pub use artifacts::{ArtifactError, ArtifactStore, Scope};
#[cfg(not(target_arch = "wasm32"))]
pub use directory::DirectoryStore;
#[cfg(all(target_arch = "wasm32", feature = "browser"))]
pub use host_lock::HostLock;
#[cfg(all(target_arch = "wasm32", feature = "browser"))]
pub use indexed_db::{IndexedDbStore, persist};
pub use maybe_send::{MaybeSend, MaybeSync};
pub use memory::MemoryStore;
pub use record::{Record, RecordError};
pub use store::{Batch, Expectation, Key, Store, StoreError};
pub use tool_output::{Outcome, ToolOutputError, ToolOutputs};
