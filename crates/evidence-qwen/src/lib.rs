//! Qwen models on Burn: a decoder for Qwen3, Qwen2 and the Llama layout that
//! runs on WebGPU, in a browser and natively, and on the CPU.
//!
//! ```text
//! CheckpointSource ── Config, Checkpoint ── HostMatrix ── Engine (device memory)
//!      folder, URL, files     config, headers       one tensor at a time
//!
//! messages ── ChatTemplate ── Tokenizer ── Decoder ── candidates ── Constraint, Sampling ── text
//! ```
//!
//! What must stay true:
//!
//! - A checkpoint is input from anywhere: whatever is in it, it loads or is
//!   refused with a sentence that names the culprit; nothing panics.
//! - A weight is on the device as it is in the file, packed, and in this
//!   machine's memory one tensor at a time.
//! - Logits stay on the device; a handful of candidates leave it.
//! - Nothing in a message becomes a special token.
//! - No operation reads back synchronously: a browser cannot.
//!
//! The crate knows the agent's messages and its generator trait; it knows
//! nothing of stores, pages or workers.

pub mod bench;
pub mod chat;
pub mod check;
pub mod checkpoint;
pub mod config;
pub mod constraint;
mod decoder;
mod engine;
pub mod generator;
mod matrix;
pub mod model;
pub mod safetensors;
pub mod sampling;
pub mod source;
pub mod tokenizer;

pub use checkpoint::weight_byte_count;
pub use decoder::LoadError;
pub use engine::DeviceError;
pub use engine::gpu::{AdapterInfo, Gpu, Plan};
pub use generator::ModelGenerator;
pub use model::{Backend, Finish, GenerateError, Generation, Model, ModelInfo, Options, Step};
