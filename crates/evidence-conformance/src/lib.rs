//! Runs the recorded behaviour of contract A's reference (`tests/vectors`) against this project.
//!
//! The same checks run natively over a directory and in a browser over IndexedDB: a [`Host`] says
//! which store and which tree of files.

#[cfg(target_arch = "wasm32")]
mod browser;
mod host;
mod report;
mod vectors;

#[cfg(not(target_arch = "wasm32"))]
pub use host::DirectoryHost;
pub use host::{Host, MemoryHost};
pub use report::{Failure, Report};
pub use vectors::{UnknownKind, VectorKind, check_file};
