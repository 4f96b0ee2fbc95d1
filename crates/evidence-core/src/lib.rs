//! The rules of bounded evidence, and nothing else.
//!
//! An agent's tool can return far more text than its model should read. The rules here decide what
//! the model sees instead, how it asks for exact bytes, and how the complete bytes are identified and
//! checked ([`digest`], [`artifact`], [`chunk`]). There are two contracts:
//!
//! - A, for tools that answer text: a bounded [`observation`] and [`range`] paths;
//! - B, for tools that answer a structured [`tool_result`]: bounding ([`tool_output`]), reading by
//!   [`cursor`], checks of the whole [`envelope`], whose output it is ([`job`]), what is seen of a
//!   running [`process`], and when what was stored expires ([`retention`]).
//!
//! Beyond both, and only where a host asks for it, a [`selection`] by lines or by a search.
//!
//! This crate knows nothing of files, databases, clocks, randomness or asynchrony: bytes and numbers
//! come in, bytes and decisions go out. Every other crate of the project calls these rules; none
//! restates one.

#![no_std]

extern crate alloc;

pub mod artifact;
pub mod chunk;
pub mod cursor;
pub mod digest;
pub mod envelope;
pub mod job;
mod json;
pub mod limits;
pub mod observation;
pub mod process;
pub mod range;
pub mod raw_json;
pub mod retention;
pub mod selection;
pub mod tool_output;
pub mod tool_result;

pub use artifact::{ArtifactDescriptor, ArtifactId};
pub use digest::Sha256Digest;
pub use job::{Generation, InvalidId, JobId, JobStatus, ProcessId, SessionId, ToolCallId};
pub use limits::EvidenceLimits;
pub use raw_json::RawJson;
pub use tool_output::ToolOutputRef;
pub use tool_result::ToolResult;
