//! Qwen models on Burn.

pub mod bench;
pub mod chat;
pub mod check;
pub mod checkpoint;
pub mod config;
pub mod constraint;
mod decoder;
mod engine;
mod matrix;
pub mod model;
pub mod safetensors;
pub mod sampling;
pub mod source;
pub mod tokenizer;

pub use chat::{Message, Role};
pub use checkpoint::weight_byte_count;
pub use decoder::LoadError;
pub use engine::DeviceError;
pub use engine::gpu::{AdapterInfo, Gpu, Plan};
pub use model::{Backend, Finish, GenerateError, Generation, Model, ModelInfo, Options, Step};
