//! Messages in, messages out.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use evidence_agent::Message;
use evidence_core::Sha256Digest;
use evidence_model_protocol::{
    AdapterDescription, BackendChoice, Command, Envelope, Event, Finish, GenerateOptions,
    ModelDescription, ProductMeasurement, Request, Sampling, Source,
};
use evidence_qwen::constraint::ActionSchema;
use evidence_qwen::source::CheckpointSource;
use evidence_qwen::{
    Backend, Gpu, Model, Options, Step, bench, check, sampling, weight_byte_count,
};
use js_sys::{Array, JSON, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::MessageEvent;
use web_time::Instant;

use crate::cache;
use crate::download::{ChosenFiles, Downloads};
use crate::js::{breathe, describe, memory_byte_count, scope};

/// Bytes of weights that the CPU is still offered for: about a second a token.
const MAX_CPU_BYTES: u64 = 512 << 20;

#[wasm_bindgen]
extern "C" {
    /// Tells the page, once, that nothing more will come (worker.js).
    #[wasm_bindgen(js_namespace = globalThis)]
    fn failed(message: &str);
}

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

impl Reply {
    fn send(self, event: Event) {
        let envelope = Envelope { id: self.id, event };
        // An event is plain data, and a page that is gone receives nothing.
        if let Ok(json) = serde_json::to_string(&envelope)
            && let Ok(message) = JSON::parse(&json)
            && let Ok(scope) = scope()
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
    std::panic::set_hook(Box::new(|panic| {
        failed(&format!(
            "the model worker broke ({panic}); load the model again, or a smaller one"
        ));
    }));
    let scope = scope()?;
    let worker = Rc::new(Worker::default());
    let listener = Closure::<dyn Fn(MessageEvent)>::new(move |message: MessageEvent| {
        let worker = Rc::clone(&worker);
        spawn_local(async move { worker.receive(&message.data()).await });
    });
    scope.set_onmessage(Some(listener.as_ref().unchecked_ref()));
    // It listens as long as the worker lives.
    listener.forget();
    Reply { id: None }.send(Event::Ready);
    Ok(())
}

/// Files come beside the request, because they are no plain data.
fn parse(data: &JsValue) -> Result<Request, String> {
    let json = JSON::stringify(data).map_err(|error| describe(&error))?;
    serde_json::from_str(&String::from(json)).map_err(|error| error.to_string())
}

impl Worker {
    async fn receive(&self, data: &JsValue) {
        let request = match parse(data) {
            Ok(request) => request,
            Err(error) => {
                let id = Reflect::get(data, &"id".into()).ok();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "whatever the number is, it is sent back"
                )]
                let id = id.and_then(|id| id.as_f64()).map(|id| id as u32);
                let message = format!("the message is not understood: {error}");
                return Reply { id }.send(Event::Error { message });
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
            Command::Cached => cached().await,
            Command::Delete { key } => match cache::delete(&key).await {
                Ok(()) => cached().await,
                Err(error) => Err(format!("it cannot be deleted: {}", describe(&error))),
            },
            command => {
                if self.is_busy.replace(true) {
                    let message = "the model is at work; stop it first".to_owned();
                    return reply.send(Event::Error { message });
                }
                let answer = self.work(command, data, reply).await;
                self.is_busy.set(false);
                answer
            }
        };
        reply.send(answer.unwrap_or_else(|message| Event::Error { message }));
    }

    /// What needs the model, one at a time.
    async fn work(&self, command: Command, data: &JsValue, reply: Reply) -> Result<Event, String> {
        match command {
            Command::Load { source, backend } => {
                self.load(source, backend, data, false, reply).await
            }
            Command::Check { source, backend } => {
                self.load(source, backend, data, true, reply).await
            }
            Command::Unload => {
                self.model.take();
                Ok(Event::Unloaded)
            }
            command => {
                let mut model = self.model.take().ok_or("no model is loaded")?;
                self.is_cancelled.set(false);
                let answer = match command {
                    Command::Measure {
                        prompt_tokens,
                        decode_tokens,
                    } => self.measure(&mut model, prompt_tokens, decode_tokens).await,
                    Command::Generate { messages, options } => {
                        self.generate(&mut model, &messages, options, reply).await
                    }
                    // The other commands were answered before.
                    _ => Err("this is nothing that a model does".to_owned()),
                };
                *self.model.borrow_mut() = Some(model);
                answer
            }
        }
    }

    async fn info(&self) -> Event {
        let (gpu, no_adapter) = match self.gpu().await {
            Ok(gpu) => (Some(gpu), None),
            Err(message) => (None, Some(message)),
        };
        Event::Info {
            adapter: gpu.as_ref().map(|gpu| adapter(gpu.info())),
            no_adapter,
            model: self.model.borrow().as_ref().map(describe_model),
            worker_bytes: memory_byte_count(),
        }
    }

    async fn gpu(&self) -> Result<Gpu, String> {
        if let Some(gpu) = self.gpu.borrow().as_ref() {
            return Ok(gpu.clone());
        }
        let navigator = scope().map_err(|error| describe(&error))?.navigator();
        if !Reflect::get(&navigator, &"gpu".into()).is_ok_and(|gpu| gpu.is_truthy()) {
            return Err(
                "this browser offers no WebGPU here: it needs a recent version, and a page \
                 that came over https or from this machine"
                    .to_owned(),
            );
        }
        let gpu = Gpu::connect().await.map_err(|error| error.to_string())?;
        *self.gpu.borrow_mut() = Some(gpu.clone());
        Ok(gpu)
    }

    async fn load(
        &self,
        source: Source,
        backend: BackendChoice,
        data: &JsValue,
        compare: bool,
        reply: Reply,
    ) -> Result<Event, String> {
        // The old model makes room first.
        self.model.take();
        let mut progress = |file: &str, loaded, total| {
            reply.send(Event::Download {
                file: file.to_owned(),
                loaded,
                total,
            });
        };
        match source {
            Source::Files => {
                let files = Reflect::get(data, &"files".into())
                    .ok()
                    .and_then(|files| files.dyn_into::<Array>().ok())
                    .ok_or("no files came with the message")?;
                let source = ChosenFiles::new(&files);
                self.load_from(&source, backend, compare, reply).await
            }
            Source::Url { url } => {
                let source = Downloads::of_folder(absolute(&url)?, &mut progress).await;
                self.load_from(&source, backend, compare, reply).await
            }
            Source::Hub {
                repository,
                revision,
            } => {
                check_repository(&repository, &revision)?;
                let source = Downloads::of_repository(&repository, &revision, &mut progress)
                    .await
                    .map_err(|error| error.to_string())?;
                self.load_from(&source, backend, compare, reply).await
            }
        }
    }

    async fn load_from(
        &self,
        source: &impl CheckpointSource,
        choice: BackendChoice,
        compare: bool,
        reply: Reply,
    ) -> Result<Event, String> {
        let (backend, fallback) = self.choose_backend(source, choice).await?;
        let note = plan_note(source, &backend).await;
        let backend = with_remembered_plan(backend, note.as_deref()).await;
        let mut progress = |loaded, total| reply.send(Event::Progress { loaded, total });
        let loaded = Model::load(source, &backend, &mut progress).await;
        let mut model = loaded.map_err(|error| self.failed(&error))?;
        remember_plan(&model, note.as_deref()).await;
        let answer = if compare {
            let report = check::check(&mut model, source)
                .await
                .map_err(|error| error.to_string())?;
            Event::Checked {
                report: report.to_string(),
                failed: report.failed(),
            }
        } else {
            Event::Loaded {
                model: describe_model(&model),
                fallback,
            }
        };
        *self.model.borrow_mut() = Some(model);
        Ok(answer)
    }

    /// What computes, and why the CPU does where it was not chosen.
    async fn choose_backend(
        &self,
        source: &impl CheckpointSource,
        choice: BackendChoice,
    ) -> Result<(Backend, Option<String>), String> {
        let refusal = match choice {
            BackendChoice::Flex => return Ok((Backend::Flex, None)),
            BackendChoice::Wgpu => return Ok((Backend::Wgpu(self.gpu().await?), None)),
            BackendChoice::Auto => match self.gpu().await {
                Ok(gpu) => return Ok((Backend::Wgpu(gpu), None)),
                Err(refusal) => refusal,
            },
        };
        let bytes = weight_byte_count(source)
            .await
            .map_err(|error| error.to_string())?;
        if bytes > MAX_CPU_BYTES {
            return Err(format!(
                "{refusal}; the CPU is too slow for this model of {} MB, choose one of at most {}",
                bytes / 1_000_000,
                MAX_CPU_BYTES / 1_000_000
            ));
        }
        Ok((Backend::Flex, Some(refusal)))
    }

    /// After a failure of the device the next load asks for a new one.
    fn failed(&self, error: &dyn std::error::Error) -> String {
        self.gpu.take();
        error.to_string()
    }

    async fn measure(
        &self,
        model: &mut Model,
        prompt_tokens: usize,
        decode_tokens: usize,
    ) -> Result<Event, String> {
        let measurement = bench::measure(model, prompt_tokens, decode_tokens)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(Event::Measured {
            prefill_rate: measurement.prefill_rate(),
            decode_rate: measurement.decode_rate(),
            weight_bandwidth: measurement.weight_bandwidth(),
            read_back_bytes_per_token: measurement.read_back_bytes_per_token,
            product_share: measurement.product_share(),
            products: measurement.products.iter().map(describe_product).collect(),
        })
    }

    async fn generate(
        &self,
        model: &mut Model,
        messages: &[Message],
        options: GenerateOptions,
        reply: Reply,
    ) -> Result<Event, String> {
        let on_cpu = model.info().adapter.is_none();
        let options = resolve_options(&options);
        let start = Instant::now();
        let (mut first_token, mut last_token) = (start, start);
        let mut text = String::new();
        let mut reply_tokens = 0;
        let mut generation = model
            .reply(messages, &options)
            .map_err(|error| error.to_string())?;
        let prompt_tokens = generation.prompt_tokens();
        let computed_tokens = generation.pending_tokens();
        let finish = loop {
            // The CPU never waits, and a message comes in only while we do.
            if on_cpu {
                breathe().await;
            }
            if self.is_cancelled.get() {
                break Finish::Cancelled;
            }
            match generation
                .step()
                .await
                .map_err(|error| self.failed(&error))?
            {
                Step::Prefill { done, total } => {
                    (first_token, last_token) = (Instant::now(), Instant::now());
                    reply.send(Event::Prefill { done, total });
                }
                Step::Token { text: part, .. } => {
                    last_token = Instant::now();
                    reply_tokens += 1;
                    text.push_str(&part);
                    reply.send(Event::Token {
                        text: part,
                        count: reply_tokens,
                    });
                }
                Step::Done { finish, text: part } => {
                    text.push_str(&part);
                    break match finish {
                        evidence_qwen::Finish::Stop => Finish::Stop,
                        evidence_qwen::Finish::Length => Finish::Length,
                    };
                }
            }
        };
        drop(generation);
        Ok(Event::Done {
            text,
            finish,
            prompt_tokens,
            computed_tokens,
            prefill_ms: milliseconds(start, first_token),
            reply_tokens,
            decode_ms: milliseconds(first_token, last_token),
            context_tokens: model.info().context_tokens,
        })
    }
}

/// The name of the note that tells which kernels are the fastest for a model on
/// an adapter. `None` where there is nothing to choose.
async fn plan_note(source: &impl CheckpointSource, backend: &Backend) -> Option<String> {
    let Backend::Wgpu(gpu) = backend else {
        return None;
    };
    let byte_count = source.byte_count("config.json").await.ok()??;
    let config = source.read("config.json", 0..byte_count).await.ok()?;
    let config = Sha256Digest::of(&config);
    let known = format!("{} {:?} {config}", env!("CARGO_PKG_VERSION"), gpu.info());
    Some(format!("plan-{}", Sha256Digest::of(known.as_bytes())))
}

async fn with_remembered_plan(backend: Backend, note: Option<&str>) -> Backend {
    let (Backend::Wgpu(gpu), Some(note)) = (&backend, note) else {
        return backend;
    };
    let text = cache::read_note(note).await;
    match text.and_then(|text| serde_json::from_str(&text).ok()) {
        Some(plan) => Backend::Wgpu(gpu.clone().with_plan(plan)),
        // It is measured then.
        None => backend,
    }
}

async fn remember_plan(model: &Model, note: Option<&str>) {
    if let Some((plan, note)) = model.plan().zip(note)
        && let Ok(text) = serde_json::to_string(&plan)
    {
        // Where nothing can be kept, the next load measures again.
        let _ = cache::write_note(note, &text).await;
    }
}

async fn cached() -> Result<Event, String> {
    let checkpoints = cache::list().await.map_err(|error| describe(&error))?;
    Ok(Event::Cached { checkpoints })
}

fn milliseconds(start: Instant, end: Instant) -> f64 {
    (end - start).as_secs_f64() * 1e3
}

fn resolve_options(options: &GenerateOptions) -> Options {
    Options {
        sampling: sampling::Sampling {
            temperature: options.sampling.temperature,
            top_k: options.sampling.top_k,
            top_p: options.sampling.top_p,
            repetition_penalty: options.sampling.repetition_penalty,
            seed: options.sampling.seed,
        },
        max_tokens: options.max_tokens,
        enable_thinking: options.enable_thinking,
        tools: None,
        constraint: options.constrain_to.as_deref().map(ActionSchema::for_tools),
    }
}

/// The address of a folder, with its slash at the end.
fn absolute(url: &str) -> Result<String, String> {
    let scope = scope().map_err(|error| describe(&error))?;
    let folder = if url.ends_with('/') {
        url.to_owned()
    } else {
        format!("{url}/")
    };
    web_sys::Url::new_with_base(&folder, &scope.location().href())
        .map(|url| url.href())
        .map_err(|_| format!("{url:?} is no address"))
}

/// What becomes a part of an address must not change the rest of it.
fn check_repository(repository: &str, revision: &str) -> Result<(), String> {
    let is_name = |name: &str| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
    };
    match repository.split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) && is_name(revision) => Ok(()),
        _ => Err(format!(
            "{repository:?} at {revision:?} is no repository of the hub; they are named owner/name"
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

fn describe_product(product: &bench::ProductTime) -> ProductMeasurement {
    ProductMeasurement {
        rows: product.rows,
        cols: product.cols,
        tokens: product.tokens,
        ms: product.time.as_secs_f64() * 1e3,
        weight_bytes: product.weight_bytes,
    }
}

fn describe_model(model: &Model) -> ModelDescription {
    let info = model.info();
    ModelDescription {
        adapter: info.adapter.as_ref().map(adapter),
        layers: info.config.num_hidden_layers,
        hidden_size: info.config.hidden_size,
        vocab_size: info.config.vocab_size,
        max_context: info.config.max_position_embeddings,
        default_sampling: model.default_sampling().map(|sampling| Sampling {
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            repetition_penalty: sampling.repetition_penalty,
            seed: sampling.seed,
        }),
        weight_bytes_per_token: info.weight_bytes_per_token,
        device_bytes: info.device_bytes,
        context_tokens: info.context_tokens,
    }
}
