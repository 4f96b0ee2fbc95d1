//! The worker's side of the messages.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use evidence_qwen::constraint::ActionSchema;
use evidence_qwen::sampling::Sampling;
use evidence_qwen::source::CheckpointSource;
use evidence_qwen::{Backend, Finish, Gpu, Model, Options, Step, weight_byte_count};
use js_sys::{Array, Reflect};
use serde::Serialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{DedicatedWorkerGlobalScope, MessageEvent};
use web_time::Instant;

use crate::download::{self, Downloads, DroppedFiles, describe, scope};
use crate::protocol::{
    AdapterDescription, BackendChoice, Command, Event, GenerateOptions, ModelDescription, Request,
    Source,
};

/// Bytes of weights that the CPU is still offered for: about a second a token.
const MAX_CPU_BYTES: u64 = 512 << 20;

/// What the worker holds between messages.
#[derive(Default)]
struct Worker {
    /// Not there while it is at work.
    model: RefCell<Option<Model>>,
    gpu: RefCell<Option<Gpu>>,
    is_busy: Cell<bool>,
    is_cancelled: Cell<bool>,
}

/// Sends the events of one request.
#[derive(Clone, Copy)]
struct Reply {
    id: Option<u32>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    #[serde(flatten)]
    event: &'a Event,
}

impl Reply {
    fn send(self, event: &Event) {
        let serializer = serde_wasm_bindgen::Serializer::json_compatible();
        let envelope = Envelope { id: self.id, event };
        // A page that is gone receives nothing.
        if let Ok(message) = envelope.serialize(&serializer)
            && let Ok(scope) = js_sys::global().dyn_into::<DedicatedWorkerGlobalScope>()
        {
            let _ = scope.post_message(&message);
        }
    }
}

/// Listens to the page.
///
/// # Errors
///
/// When this is no dedicated worker.
#[wasm_bindgen(start)]
pub fn start() -> Result<(), JsValue> {
    console_error_panic_hook::set_once();
    let scope: DedicatedWorkerGlobalScope = js_sys::global().dyn_into()?;
    let worker = Rc::new(Worker::default());
    let listener = Closure::<dyn Fn(MessageEvent)>::new(move |message: MessageEvent| {
        let worker = Rc::clone(&worker);
        spawn_local(async move { worker.receive(&message.data()).await });
    });
    scope.set_onmessage(Some(listener.as_ref().unchecked_ref()));
    // It listens as long as the worker lives.
    listener.forget();
    Reply { id: None }.send(&Event::Ready);
    Ok(())
}

impl Worker {
    async fn receive(&self, data: &JsValue) {
        let request: Request = match serde_wasm_bindgen::from_value(data.clone()) {
            Ok(request) => request,
            Err(error) => {
                let id = Reflect::get(data, &"id".into())
                    .ok()
                    .and_then(|id| id.as_f64());
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "an id is a small number"
                )]
                let reply = Reply {
                    id: id.map(|id| id as u32),
                };
                let message = format!("the message is not understood: {error}");
                return reply.send(&Event::Error { message });
            }
        };
        let reply = Reply {
            id: Some(request.id),
        };
        let answer = match request.command {
            Command::Cancel => {
                self.is_cancelled.set(true);
                return;
            }
            Command::Info => Ok(self.info().await),
            Command::Cached => download::list()
                .await
                .map(|checkpoints| Event::Cached { checkpoints })
                .map_err(|error| describe(&error)),
            Command::Delete { key } => match download::delete(&key).await {
                Ok(()) => download::list()
                    .await
                    .map(|checkpoints| Event::Cached { checkpoints }),
                Err(error) => Err(error),
            }
            .map_err(|error| describe(&error)),
            Command::Load { .. } | Command::Generate { .. } | Command::Unload
                if self.is_busy.replace(true) =>
            {
                return reply.send(&Event::Error {
                    message: "the model is at work; stop it first".to_owned(),
                });
            }
            Command::Load { source, backend } => {
                let files = Reflect::get(data, &"files".into()).ok();
                let answer = self.load(source, backend, files, reply).await;
                self.is_busy.set(false);
                answer
            }
            Command::Generate { messages, options } => {
                self.is_cancelled.set(false);
                let answer = match self.model.take() {
                    Some(mut model) => {
                        let answer = self.generate(&mut model, &messages, options, reply).await;
                        *self.model.borrow_mut() = Some(model);
                        answer
                    }
                    None => Err("no model is loaded".to_owned()),
                };
                self.is_busy.set(false);
                answer
            }
            Command::Unload => {
                self.model.take();
                self.is_busy.set(false);
                Ok(Event::Unloaded)
            }
        };
        reply.send(&answer.unwrap_or_else(|message| Event::Error { message }));
    }

    async fn info(&self) -> Event {
        let gpu = self.gpu().await.ok();
        Event::Info {
            adapter: gpu.as_ref().map(|gpu| adapter(gpu.info())),
            model: self.model.borrow().as_ref().map(model_description),
        }
    }

    async fn gpu(&self) -> Result<Gpu, String> {
        if let Some(gpu) = self.gpu.borrow().as_ref() {
            return Ok(gpu.clone());
        }
        let gpu = Gpu::connect().await.map_err(|error| error.to_string())?;
        *self.gpu.borrow_mut() = Some(gpu.clone());
        Ok(gpu)
    }

    async fn load(
        &self,
        source: Source,
        backend: BackendChoice,
        files: Option<JsValue>,
        reply: Reply,
    ) -> Result<Event, String> {
        // The old model makes room first.
        self.model.take();
        let base = match source {
            Source::Files => {
                let files = files
                    .and_then(|files| files.dyn_into::<Array>().ok())
                    .ok_or("no files came with the message")?;
                let source = DroppedFiles::new(&files);
                return self.load_from(&source, backend, reply).await;
            }
            Source::Url { url } => absolute(&url)?,
            Source::Hub {
                repository,
                revision,
            } => hub_address(&repository, &revision)?,
        };
        let mut progress = |file: &str, loaded, total| {
            reply.send(&Event::Download {
                file: file.to_owned(),
                loaded,
                total,
            });
        };
        let source = Downloads::new(base, &mut progress).await;
        self.load_from(&source, backend, reply).await
    }

    async fn load_from(
        &self,
        source: &impl CheckpointSource,
        choice: BackendChoice,
        reply: Reply,
    ) -> Result<Event, String> {
        let (backend, fallback) = match choice {
            BackendChoice::Flex => (Backend::Flex, None),
            BackendChoice::Wgpu => (Backend::Wgpu(self.gpu().await?), None),
            BackendChoice::Auto => match self.gpu().await {
                Ok(gpu) => (Backend::Wgpu(gpu), None),
                Err(message) => {
                    let bytes = weight_byte_count(source)
                        .await
                        .map_err(|error| error.to_string())?;
                    if bytes > MAX_CPU_BYTES {
                        return Err(format!(
                            "{message}; this model's {} MB are too many for the CPU, \
                             choose a smaller one",
                            bytes >> 20
                        ));
                    }
                    (Backend::Flex, Some(message))
                }
            },
        };
        let mut progress = |loaded, total| reply.send(&Event::Progress { loaded, total });
        let loaded = Model::load(source, &backend, &mut progress).await;
        let model = loaded.map_err(|error| self.failed(&error))?;
        let description = model_description(&model);
        *self.model.borrow_mut() = Some(model);
        Ok(Event::Loaded {
            model: description,
            fallback,
        })
    }

    /// After a failure of the device the next load asks for a new one.
    fn failed(&self, error: &dyn std::error::Error) -> String {
        self.gpu.take();
        error.to_string()
    }

    async fn generate(
        &self,
        model: &mut Model,
        messages: &[evidence_agent::Message],
        options: GenerateOptions,
        reply: Reply,
    ) -> Result<Event, String> {
        let is_cpu = model.info().adapter.is_none();
        let options = resolve_options(options)?;
        let start = Instant::now();
        let mut first_token = start;
        let mut last_token = start;
        let mut text = String::new();
        let mut reply_tokens = 0;
        let mut generation = model
            .reply(messages, &options)
            .map_err(|error| error.to_string())?;
        let prompt_tokens = generation.prompt_tokens();
        let computed_tokens = generation.pending_tokens();
        let finish = loop {
            // The CPU never waits, and a message comes in only while we do.
            if is_cpu {
                breathe().await;
            }
            if self.is_cancelled.get() {
                break "cancelled";
            }
            match generation
                .step()
                .await
                .map_err(|error| self.failed(&error))?
            {
                Step::Prefill { done, total } => {
                    first_token = Instant::now();
                    last_token = first_token;
                    reply.send(&Event::Prefill { done, total });
                }
                Step::Token { text: part, .. } => {
                    last_token = Instant::now();
                    reply_tokens += 1;
                    text.push_str(&part);
                    reply.send(&Event::Token {
                        text: part,
                        count: reply_tokens,
                    });
                }
                Step::Done { finish, text: part } => {
                    text.push_str(&part);
                    break match finish {
                        Finish::Stop => "stop",
                        Finish::Length => "length",
                    };
                }
            }
        };
        drop(generation);
        Ok(Event::Done {
            text,
            finish: finish.to_owned(),
            prompt_tokens,
            computed_tokens,
            prefill_ms: milliseconds(start, first_token),
            reply_tokens,
            decode_ms: milliseconds(first_token, last_token),
            context_tokens: model.info().context_tokens,
        })
    }
}

fn milliseconds(start: Instant, end: Instant) -> f64 {
    (end - start).as_secs_f64() * 1e3
}

/// Lets the events that are waiting happen.
async fn breathe() {
    let promise = js_sys::Promise::new(&mut |resolve, _| {
        if let Ok(scope) = scope() {
            let _ = scope.set_timeout_with_callback(&resolve);
        }
    });
    let _ = JsFuture::from(promise).await;
}

fn resolve_options(options: GenerateOptions) -> Result<Options, String> {
    let constraint = options
        .constrain_to
        .map(ActionSchema::new)
        .transpose()
        .map_err(|error| error.to_string())?;
    Ok(Options {
        sampling: Sampling {
            temperature: options.temperature,
            top_k: options.top_k,
            top_p: options.top_p,
            repetition_penalty: options.repetition_penalty,
            seed: options.seed,
        },
        max_tokens: options.max_tokens,
        enable_thinking: options.enable_thinking,
        tools: None,
        constraint,
    })
}

/// The address of a folder, with its slash at the end.
fn absolute(url: &str) -> Result<String, String> {
    let location = scope()?.location().href();
    let folder = if url.ends_with('/') {
        url.to_owned()
    } else {
        format!("{url}/")
    };
    web_sys::Url::new_with_base(&folder, &location)
        .map(|url| url.href())
        .map_err(|_| format!("{url:?} is no address"))
}

fn hub_address(repository: &str, revision: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
    };
    match repository.split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) && is_name(revision) => Ok(format!(
            "https://huggingface.co/{repository}/resolve/{revision}/"
        )),
        _ => Err(format!(
            "{repository:?} is no repository; they are named owner/name"
        )),
    }
}

fn adapter(info: &evidence_qwen::AdapterInfo) -> AdapterDescription {
    AdapterDescription {
        name: info.name.clone(),
        is_software: info.is_software,
        has_f16: info.has_f16,
        max_buffer_bytes: info.max_buffer_bytes,
    }
}

fn model_description(model: &Model) -> ModelDescription {
    let info = model.info();
    ModelDescription {
        backend: if info.adapter.is_some() {
            "wgpu"
        } else {
            "flex"
        }
        .to_owned(),
        adapter: info.adapter.as_ref().map(adapter),
        layers: info.config.num_hidden_layers,
        hidden_size: info.config.hidden_size,
        vocab_size: info.config.vocab_size,
        max_context: info.config.max_position_embeddings,
        weight_bytes: info.weight_bytes_per_token,
        context_tokens: info.context_tokens,
    }
}
