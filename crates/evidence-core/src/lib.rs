//! The rules of bounded evidence, and nothing else.
//!
//! An agent's tool can return far more text than its model should read. The rules here decide what
//! the model sees instead (a bounded [`observation`]), how it asks for exact bytes ([`range`]), and
//! how the complete bytes are identified and checked ([`digest`], [`artifact`], [`chunk`]).
//!
//! This crate knows nothing of files, databases, clocks, randomness or asynchrony: bytes and numbers
//! come in, bytes and decisions go out. Every other crate of the project calls these rules; none
//! restates one.

#![no_std]

extern crate alloc;

pub mod artifact;
pub mod chunk;
pub mod digest;
mod json;
pub mod limits;
pub mod observation;
pub mod range;

pub use artifact::{ArtifactDescriptor, ArtifactId};
pub use digest::Sha256Digest;
pub use limits::EvidenceLimits;
