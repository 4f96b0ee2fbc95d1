//! What a page and the model's Web Worker say to each other.
//!
//! A [`Request`] with an id goes in, [`Event`]s with that id come out, the last
//! of them `loaded`, `checked`, `measured`, `done`, `info`, `cached`, `unloaded`
//! or `error`. Two come without being asked: `ready` once, and `failed` when the
//! worker can answer nothing any more.
//!
//! A crate of its own, so that a page can speak to a model without compiling one.

use evidence_agent::{Message, ToolName};
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
    /// Loads a model and compares it with what a reference computed: the file
    /// `expected.json` beside the checkpoint.
    Check {
        /// Where from.
        source: Source,
        /// What computes.
        #[serde(default)]
        backend: BackendChoice,
    },
    /// Measures how fast the loaded model is.
    Measure {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens to decode.
        decode_tokens: usize,
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
    /// How each token is chosen.
    pub sampling: Sampling,
    /// Longest reply in tokens.
    pub max_tokens: usize,
    /// Whether the model may think before it replies.
    pub enable_thinking: bool,
    /// Holds the reply to one action: a call of one of these tools, or the end.
    pub constrain_to: Option<Vec<ToolName>>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            sampling: Sampling::default(),
            max_tokens: 1024,
            enable_thinking: false,
            constrain_to: None,
        }
    }
}

/// How each token is chosen: the likeliest, unless something else is said.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Sampling {
    /// 0 takes the likeliest token each time.
    pub temperature: f32,
    /// Candidates that are considered, 0 for as many as there are.
    pub top_k: usize,
    /// Share of the probability that is considered.
    pub top_p: f32,
    /// What repeated tokens are made less likely by. 1 is off.
    pub repetition_penalty: f32,
    /// The same seed gives the same reply. Numbers in JavaScript end at 2^53.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            repetition_penalty: 1.0,
            seed: 0,
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
    /// The model was compared.
    Checked {
        /// What was compared and how it went, a line each.
        report: String,
        /// How many comparisons did not pass.
        failed: usize,
    },
    /// The model was measured.
    Measured {
        /// Tokens of the prompt a second.
        prefill_rate: f64,
        /// Decoded tokens a second.
        decode_rate: f64,
        /// Bytes of weights read a second while decoding.
        weight_bandwidth: f64,
        /// Bytes that leave the device for each decoded token.
        read_back_bytes_per_token: u64,
        /// The matrix products of one token, and of a block of a prompt.
        products: Vec<ProductMeasurement>,
        /// Which share of a decoded token's time they are.
        product_share: f64,
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
        /// Why it ended.
        finish: Finish,
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
        /// Why there is no adapter.
        no_adapter: Option<String>,
        /// The model, if one is loaded.
        model: Option<ModelDescription>,
        /// Bytes of the worker's own memory, which only ever grows.
        worker_bytes: u64,
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
    /// The worker broke and has to be started again. Nothing comes after it.
    Failed {
        /// A sentence for the person.
        message: String,
    },
}

/// How long one of a model's matrix products takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProductMeasurement {
    /// Rows of the matrix.
    pub rows: usize,
    /// Its columns.
    pub cols: usize,
    /// Tokens that are multiplied at a time.
    pub tokens: usize,
    /// Milliseconds of one product.
    pub ms: f64,
    /// Bytes of weights that it reads.
    pub weight_bytes: u64,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// The token limit or the context ended it.
    Length,
    /// The page ended it.
    Cancelled,
}

/// An event with the request that it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// The request's id. Events that nobody asked for have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// An adapter, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdapterDescription {
    /// Its name, as far as the browser tells; often empty.
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
    /// The adapter, `None` on the CPU.
    pub adapter: Option<AdapterDescription>,
    /// Layers of the decoder.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Longest context in tokens.
    pub max_context: usize,
    /// How the model's authors sample, if they say so.
    pub default_sampling: Option<Sampling>,
    /// Bytes of weights that each token reads.
    pub weight_bytes_per_token: u64,
    /// Bytes of weights, keys and values on the device.
    pub device_bytes: u64,
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

#[cfg(test)]
mod tests {
    use evidence_agent::Role;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_says_only_what_it_must() {
        let request: Request = serde_json::from_value(json!({
            "id": 1,
            "type": "load",
            "source": {"kind": "hub", "repository": "Qwen/Qwen3-0.6B-MLX-4bit"},
        }))
        .unwrap();
        let source = Source::Hub {
            repository: "Qwen/Qwen3-0.6B-MLX-4bit".to_owned(),
            revision: "main".to_owned(),
        };
        let backend = BackendChoice::Auto;
        assert_eq!(
            request,
            Request {
                id: 1,
                command: Command::Load { source, backend }
            }
        );
        let request: Request = serde_json::from_value(json!({
            "id": 2,
            "type": "generate",
            "messages": [{"role": "user", "content": "hi"}],
            "options": {"maxTokens": 5, "constrainTo": ["read_file", "akh_read_tool_output"]},
        }))
        .unwrap();
        let options = GenerateOptions {
            max_tokens: 5,
            constrain_to: Some(vec![ToolName::ReadFile, ToolName::ReadToolOutput]),
            ..GenerateOptions::default()
        };
        let messages = vec![Message::new(Role::User, "hi")];
        assert_eq!(
            request,
            Request {
                id: 2,
                command: Command::Generate { messages, options }
            }
        );
    }

    #[test]
    fn an_event_carries_the_id_of_its_request() {
        let envelope = Envelope {
            id: Some(7),
            event: Event::Token {
                text: "a".to_owned(),
                count: 1,
            },
        };
        let json = json!({"id": 7, "type": "token", "text": "a", "count": 1});
        assert_eq!(serde_json::to_value(&envelope).unwrap(), json);
        assert_eq!(serde_json::from_value::<Envelope>(json).unwrap(), envelope);
        let ready = Envelope {
            id: None,
            event: Event::Ready,
        };
        assert_eq!(
            serde_json::to_value(&ready).unwrap(),
            json!({"type": "ready"})
        );
    }
}
