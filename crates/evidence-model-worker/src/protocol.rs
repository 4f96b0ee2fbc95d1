//! The messages between page and worker.

use evidence_agent::Message;
use evidence_qwen::constraint::Tool;
use serde::{Deserialize, Serialize};

/// What the page asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Comes back with every event of this request.
    pub id: u32,
    /// What is asked.
    #[serde(flatten)]
    pub command: Command,
}

/// What the worker can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Command {
    /// Loads a model in place of the one that was loaded.
    Load {
        /// Where from.
        source: Source,
        /// What computes.
        #[serde(default)]
        backend: BackendChoice,
    },
    /// Replies to a conversation.
    Generate {
        /// The conversation.
        messages: Vec<Message>,
        /// How to reply.
        #[serde(default)]
        options: GenerateOptions,
    },
    /// Stops the reply that is being made, within one token.
    Cancel,
    /// Gives the model's memory back.
    Unload,
    /// Describes adapter and model.
    Info,
    /// Lists the checkpoints in the browser's storage.
    Cached,
    /// Deletes one of them.
    Delete {
        /// Its key in the list.
        key: String,
    },
}

/// Where a checkpoint comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Source {
    /// A folder on a server; the address of its files without their names.
    Url {
        /// Relative addresses are relative to the worker's script.
        url: String,
    },
    /// A repository of the Hugging Face hub.
    Hub {
        /// `owner/name`.
        repository: String,
        /// A branch, a tag or a commit.
        #[serde(default = "main_revision")]
        revision: String,
    },
    /// Files that the person chose or dropped: the message's `files`, an array
    /// of `File`.
    Files,
}

fn main_revision() -> String {
    "main".to_owned()
}

/// What computes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// WebGPU, or the CPU for a small model where there is none.
    #[default]
    Auto,
    /// WebGPU or nothing.
    Wgpu,
    /// The CPU.
    Flex,
}

/// How a reply is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GenerateOptions {
    /// 0 takes the likeliest token each time.
    pub temperature: f32,
    /// Candidates that are considered, 0 for as many as there are.
    pub top_k: usize,
    /// Share of the probability that is considered.
    pub top_p: f32,
    /// What repeated tokens are made less likely by. 1 is off.
    pub repetition_penalty: f32,
    /// The same seed gives the same reply.
    pub seed: u64,
    /// Longest reply in tokens.
    pub max_tokens: usize,
    /// Whether the model may think before it replies.
    pub enable_thinking: bool,
    /// Holds the reply to one action with one of these tools.
    pub constrain_to: Option<Vec<Tool>>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            repetition_penalty: 1.0,
            seed: 0,
            max_tokens: 1024,
            enable_thinking: false,
            constrain_to: None,
        }
    }
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    /// The worker listens. It comes once, without being asked.
    Ready,
    /// A file is being downloaded.
    Download {
        /// The file.
        file: String,
        /// Bytes that are there.
        loaded: u64,
        /// Bytes in all, where the server tells.
        total: Option<u64>,
    },
    /// Weights are being put on the device.
    Progress {
        /// Bytes of weights that are there.
        loaded: u64,
        /// Bytes in all.
        total: u64,
    },
    /// The model is ready.
    Loaded {
        /// The model.
        model: ModelDescription,
        /// Why the CPU computes, when it was not chosen.
        fallback: Option<String>,
    },
    /// A block of the prompt was read.
    Prefill {
        /// Tokens that the model knows.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token of the reply.
    Token {
        /// The text that became complete with it.
        text: String,
        /// Tokens of the reply so far.
        count: usize,
    },
    /// The reply is complete.
    Done {
        /// All of it.
        text: String,
        /// `stop`, `length` or `cancelled`.
        finish: String,
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Those of them that had to be computed.
        computed_tokens: usize,
        /// Milliseconds until the first token could be chosen.
        prefill_ms: f64,
        /// Tokens of the reply.
        reply_tokens: usize,
        /// Milliseconds from the first token to the last.
        decode_ms: f64,
        /// Tokens in the key-value cache.
        context_tokens: usize,
    },
    /// Adapter and model.
    Info {
        /// The adapter, if one could be asked for.
        adapter: Option<AdapterDescription>,
        /// The model, if one is loaded.
        model: Option<ModelDescription>,
    },
    /// The checkpoints in the browser's storage.
    Cached {
        /// Them.
        checkpoints: Vec<CachedCheckpoint>,
    },
    /// The model's memory was given back.
    Unloaded,
    /// What was asked cannot be done.
    Error {
        /// A sentence for the person.
        message: String,
    },
}

/// An adapter, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdapterDescription {
    /// Its name, as far as the browser tells.
    pub name: String,
    /// Whether it computes on the CPU.
    pub is_software: bool,
    /// Whether it computes in half precision.
    pub has_f16: bool,
    /// Bytes of the largest buffer.
    pub max_buffer_bytes: u64,
}

/// A loaded model, for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelDescription {
    /// `wgpu` or `flex`.
    pub backend: String,
    /// The adapter, on `wgpu`.
    pub adapter: Option<AdapterDescription>,
    /// Layers of the decoder.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Longest context in tokens.
    pub max_context: usize,
    /// Bytes of weights that each token reads.
    pub weight_bytes: u64,
    /// Tokens in the key-value cache.
    pub context_tokens: usize,
}

/// A checkpoint in the browser's storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedCheckpoint {
    /// Names it when it is to be deleted.
    pub key: String,
    /// Where it came from.
    pub url: String,
    /// Bytes of its files.
    pub byte_count: u64,
}
