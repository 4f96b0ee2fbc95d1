//! Runs the recorded behaviour of contract A's reference (`tests/vectors`) against this project.
//!
//! The same checks run natively over a directory, in a browser over IndexedDB and on the WebAssembly
//! component: a [`Host`] says which store, which tree of files and which implementation.

#[cfg(target_arch = "wasm32")]
mod browser;
mod host;
mod report;
mod vectors;

#[cfg(not(target_arch = "wasm32"))]
pub use host::DirectoryHost;
pub use host::{Bounded, Files, Host, MemoryHost, memory_files, memory_tree};
pub use report::{Failure, Report};
pub use vectors::{UnknownKind, VectorKind, check_file};
