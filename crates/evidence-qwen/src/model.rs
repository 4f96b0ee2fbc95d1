//! A loaded model, and the replies that it gives.

use std::ops::ControlFlow;

use evidence_agent::Message;

use crate::bench::{ProductTime, time_products};
use crate::chat::{ChatTemplate, TemplateError, TokenizerConfig};
use crate::checkpoint::{CheckpointError, MAX_JSON_BYTES, read_config};
use crate::config::Config;
use crate::constraint::{ActionSchema, Constraint, TokenClasses};
use crate::decoder::{Decoder, LoadError, PREFILL_BLOCK};
use crate::engine::flex::FlexEngine;
use crate::engine::gpu::{AdapterInfo, CANDIDATE_BYTES, Gpu, GpuEngine, Plan};
use crate::engine::{Candidate, DeviceError};
use crate::sampling::{GenerationConfig, Random, Sampling, choose};
use crate::source::{CheckpointSource, read_text};
use crate::tokenizer::{TextStream, Tokenizer, TokenizerError};

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The conversation does not fit the model's context.
    #[error("the prompt has {tokens} tokens, but the model's context ends at {context}")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// The prompt has no tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A token of the prompt is beyond the vocabulary.
    #[error("the token {token} is beyond the model's vocabulary of {vocab_size}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Rows of the embedding.
        vocab_size: usize,
    },
    /// The checkpoint has no tokenizer, so it speaks in tokens only.
    #[error("the checkpoint has no tokenizer.json")]
    NoTokenizer,
    /// The conversation cannot be rendered.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The conversation cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No token of the vocabulary goes on with the action.
    #[error("the vocabulary has no token that goes on with the action; switch the constraint off")]
    NothingAllowed,
    /// The receiver of the reply broke it off.
    #[error("the reply was stopped")]
    Stopped,
}

/// Where a model computes.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "it is never one of many")]
pub enum Backend {
    /// Burn's CPU backend, one thread.
    Flex,
    /// Burn's wgpu backend on this adapter.
    Wgpu(Gpu),
}

/// How a reply is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How each token is chosen.
    pub sampling: Sampling,
    /// The reply ends after this many tokens at the latest.
    pub max_tokens: usize,
    /// Whether a template that asks may have the model think first. A
    /// constrained reply has no place for thoughts.
    pub enable_thinking: bool,
    /// The JSON of a list of tools, for templates that describe them.
    pub tools: Option<String>,
    /// Holds the reply to one action.
    pub constraint: Option<ActionSchema>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sampling: Sampling::GREEDY,
            max_tokens: 1024,
            enable_thinking: false,
            tools: None,
            constraint: None,
        }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// The token limit or the context ended it.
    Length,
}

/// What one step of a generation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A block of the prompt was read.
    Prefill {
        /// Tokens of the prompt that the model knows by now, those that it
        /// knew before included.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token was chosen.
    Token {
        /// The token.
        token: u32,
        /// The text that became complete with it, often empty.
        text: String,
    },
    /// The reply is complete.
    Done {
        /// Why it ended.
        finish: Finish,
        /// Text that was still to come: a character that was broken off.
        text: String,
    },
}

/// A model as it was loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// The decoder.
    pub config: Config,
    /// The adapter, `None` on the CPU.
    pub adapter: Option<AdapterInfo>,
    /// Bytes of weights that each token reads.
    pub weight_bytes_per_token: u64,
    /// Bytes of matrices, keys and values.
    pub device_bytes: u64,
    /// Tokens in the key-value cache.
    pub context_tokens: usize,
}

/// A decoder on one of the backends. A program holds one or two of them.
#[expect(clippy::large_enum_variant, reason = "it is never one of many")]
enum AnyDecoder {
    Flex(Decoder<FlexEngine>),
    Wgpu(Decoder<GpuEngine>),
}

/// The same expression for whichever decoder there is.
macro_rules! with_decoder {
    ($any:expr, $decoder:ident => $body:expr) => {
        match $any {
            AnyDecoder::Flex($decoder) => $body,
            AnyDecoder::Wgpu($decoder) => $body,
        }
    };
}

/// A model with its tokenizer and template.
pub struct Model {
    decoder: AnyDecoder,
    tokenizer: Option<Tokenizer>,
    classes: TokenClasses,
    template: Result<ChatTemplate, TemplateError>,
    stop_tokens: Vec<u32>,
    sampling: Option<Sampling>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Model")
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Loads a checkpoint, tensor by tensor. `progress` is told the bytes of
    /// weights that were read and that there are.
    ///
    /// # Errors
    ///
    /// When a file is missing, damaged or of an unsupported kind, when the
    /// files do not fit each other, and when the device cannot hold the model.
    pub async fn load(
        source: &impl CheckpointSource,
        backend: &Backend,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, LoadError> {
        let config = read_config(source).await?;
        // The small files first: what they refuse costs no download.
        let tokenizer = match source
            .byte_count(TOKENIZER)
            .await
            .map_err(CheckpointError::from)?
        {
            Some(byte_count) => {
                let json = source
                    .read(TOKENIZER, 0..byte_count)
                    .await
                    .map_err(CheckpointError::from)?;
                Some(Tokenizer::parse(&json, config.vocab_size)?)
            }
            None => None,
        };
        let tokenizer_config = match text(source, "tokenizer_config.json").await? {
            Some(json) => TokenizerConfig::parse(&json)?,
            None => TokenizerConfig::default(),
        };
        let generation = generation_config(source).await?;
        let mut stop_tokens = generation.stop_tokens;
        let eos = tokenizer
            .as_ref()
            .zip(tokenizer_config.eos_token())
            .and_then(|(tokenizer, eos)| tokenizer.special_token(eos));
        stop_tokens.extend(eos);
        let jinja = text(source, "chat_template.jinja").await?;
        // A checkpoint without a usable template can still be checked.
        let template = ChatTemplate::new(jinja, tokenizer_config);
        let classes = tokenizer
            .as_ref()
            .map_or_else(TokenClasses::default, |tokenizer| {
                TokenClasses::new(tokenizer.token_bytes())
            });
        let decoder = match backend {
            Backend::Flex => {
                AnyDecoder::Flex(Decoder::load(FlexEngine, config, source, progress).await?)
            }
            Backend::Wgpu(gpu) => {
                let engine = GpuEngine::new(gpu.clone());
                let mut decoder = Decoder::load(engine, config, source, progress).await?;
                if let Some((engine, matrix)) = decoder.engine_and_largest() {
                    engine.tune(matrix).await?;
                }
                AnyDecoder::Wgpu(decoder)
            }
        };
        Ok(Self {
            decoder,
            tokenizer,
            classes,
            template,
            stop_tokens,
            sampling: generation.sampling,
        })
    }

    /// What was loaded.
    pub fn info(&self) -> ModelInfo {
        let adapter = match &self.decoder {
            AnyDecoder::Flex(_) => None,
            AnyDecoder::Wgpu(decoder) => Some(decoder.engine().gpu().info().clone()),
        };
        with_decoder!(&self.decoder, decoder => ModelInfo {
            config: decoder.config().clone(),
            adapter,
            weight_bytes_per_token: decoder.bytes_per_token(),
            device_bytes: decoder.byte_count(),
            context_tokens: decoder.seen().len(),
        })
    }

    /// The kernels that were chosen for this model on its adapter, to be
    /// remembered for the next load. `None` on the CPU.
    pub fn plan(&self) -> Option<Plan> {
        match &self.decoder {
            AnyDecoder::Flex(_) => None,
            AnyDecoder::Wgpu(decoder) => Some(decoder.engine().gpu().plan()),
        }
    }

    /// How the model's authors sample, if `generation_config.json` says so.
    pub fn default_sampling(&self) -> Option<Sampling> {
        self.sampling
    }

    /// The conversation as the template renders it, up to where the reply begins.
    ///
    /// # Errors
    ///
    /// When there is no template or it refuses the conversation.
    pub fn render(&self, messages: &[Message], options: &Options) -> Result<String, TemplateError> {
        let template = self.template.as_ref().map_err(Clone::clone)?;
        template.render(messages, options.tools.as_deref(), options.enable_thinking)
    }

    /// The tokens of a conversation. Nothing in a message or in the tools
    /// becomes a special token, whatever it looks like.
    ///
    /// # Errors
    ///
    /// When there is no tokenizer or template, or one of them refuses.
    pub fn encode_chat(
        &self,
        messages: &[Message],
        options: &Options,
    ) -> Result<Vec<u32>, GenerateError> {
        let tokenizer = self.tokenizer.as_ref().ok_or(GenerateError::NoTokenizer)?;
        let template = self.template.as_ref().map_err(Clone::clone)?;
        let texts = messages
            .iter()
            .map(|message| message.content.as_str())
            .chain(options.tools.as_deref());
        let mark = Tokenizer::unused_mark(&texts);
        let guarded: Vec<Message> = messages
            .iter()
            .map(|message| Message::new(message.role, tokenizer.guard(&message.content, mark)))
            .collect();
        let tools = options
            .tools
            .as_deref()
            .map(|tools| tokenizer.guard(tools, mark));
        let rendered = template.render(&guarded, tools.as_deref(), options.enable_thinking)?;
        Ok(tokenizer.encode(&rendered, mark)?)
    }

    /// The tokens of a text, in which special tokens are special.
    ///
    /// # Errors
    ///
    /// When there is no tokenizer or it refuses.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, GenerateError> {
        let tokenizer = self.tokenizer.as_ref().ok_or(GenerateError::NoTokenizer)?;
        Ok(tokenizer.encode(text, Tokenizer::unused_mark(&[text].into_iter()))?)
    }

    /// Begins a reply to a conversation.
    ///
    /// # Errors
    ///
    /// When the conversation cannot be rendered, encoded or held.
    pub fn reply<'a>(
        &'a mut self,
        messages: &[Message],
        options: &'a Options,
    ) -> Result<Generation<'a>, GenerateError> {
        let tokens = self.encode_chat(messages, options)?;
        self.continue_tokens(&tokens, options)
    }

    /// Begins a continuation of these tokens. What the model has seen of them
    /// already is not computed again.
    ///
    /// # Errors
    ///
    /// When there are none or too many, or one that the model does not know.
    pub fn continue_tokens<'a>(
        &'a mut self,
        tokens: &[u32],
        options: &'a Options,
    ) -> Result<Generation<'a>, GenerateError> {
        let Some(all_but_last) = tokens.len().checked_sub(1) else {
            return Err(GenerateError::EmptyPrompt);
        };
        let (context, vocab_size) = with_decoder!(&self.decoder, decoder => {
            (decoder.config().max_position_embeddings, decoder.config().vocab_size)
        });
        if tokens.len() > context {
            return Err(GenerateError::PromptTooLong {
                tokens: tokens.len(),
                context,
            });
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab_size) {
            return Err(GenerateError::UnknownToken {
                token: *token,
                vocab_size,
            });
        }
        let known = with_decoder!(&mut self.decoder, decoder => {
            let shared = decoder.seen().iter().zip(tokens).take_while(|(a, b)| a == b).count();
            // The last token passes again: its logits are wanted.
            let known = shared.min(all_but_last);
            decoder.truncate(known);
            known
        });
        Ok(Generation {
            random: Random::new(options.sampling.seed),
            constraint: options.constraint.as_ref().map(Constraint::new),
            options,
            input: tokens[known..].to_vec(),
            prompt_tokens: tokens.len(),
            produced: 0,
            context,
            finished: None,
            stops: true,
            stream: TextStream::default(),
            model: self,
        })
    }

    /// A whole reply. `on_step` may break it off between two tokens.
    ///
    /// # Errors
    ///
    /// As [`reply`](Self::reply), and when the device fails or `on_step` breaks.
    pub async fn generate(
        &mut self,
        messages: &[Message],
        options: &Options,
        on_step: &mut dyn FnMut(&Step) -> ControlFlow<()>,
    ) -> Result<String, GenerateError> {
        let mut generation = self.reply(messages, options)?;
        let mut reply = String::new();
        loop {
            let step = generation.step().await?;
            let is_done = matches!(step, Step::Done { .. });
            if let Step::Token { text, .. } | Step::Done { text, .. } = &step {
                reply.push_str(text);
            }
            if on_step(&step).is_break() && !is_done {
                return Err(GenerateError::Stopped);
            }
            if is_done {
                return Ok(reply);
            }
        }
    }

    /// Bytes that leave the device for each token that is sampled so.
    pub(crate) fn read_back_bytes(&self, sampling: &Sampling) -> u64 {
        match &self.decoder {
            AnyDecoder::Flex(_) => 0,
            AnyDecoder::Wgpu(_) => CANDIDATE_BYTES * sampling.candidate_count() as u64,
        }
    }

    /// Times the matrix products of so many tokens.
    pub(crate) async fn time_products(
        &self,
        tokens: usize,
    ) -> Result<Vec<ProductTime>, DeviceError> {
        with_decoder!(&self.decoder, decoder => time_products(decoder, tokens).await)
    }

    /// All logits after the last token of a prompt.
    pub(crate) async fn logits_after(&mut self, tokens: &[u32]) -> Result<Vec<f32>, GenerateError> {
        let options = Options::default();
        let mut generation = self.continue_tokens(tokens, &options)?;
        while !generation.input.is_empty() {
            generation.advance();
        }
        Ok(with_decoder!(&self.decoder, decoder => decoder.read_logits().await)?)
    }

    /// Waits until everything that was asked is computed.
    pub(crate) async fn finish(&self) -> Result<(), DeviceError> {
        with_decoder!(&self.decoder, decoder => decoder.finish().await)
    }

    /// Forgets the conversation.
    pub fn reset(&mut self) {
        with_decoder!(&mut self.decoder, decoder => decoder.truncate(0));
    }
}

const TOKENIZER: &str = "tokenizer.json";

async fn text(
    source: &impl CheckpointSource,
    file: &str,
) -> Result<Option<String>, CheckpointError> {
    Ok(read_text(source, file, MAX_JSON_BYTES).await?)
}

async fn generation_config(
    source: &impl CheckpointSource,
) -> Result<GenerationConfig, CheckpointError> {
    // Without the one file the other names the stop tokens.
    for file in ["generation_config.json", "config.json"] {
        if let Some(json) = text(source, file).await? {
            return GenerationConfig::parse(&json)
                .map_err(|message| crate::source::SourceError::new(file, message).into());
        }
    }
    Ok(GenerationConfig::default())
}

/// A reply in the making. Whoever holds it decides after each step whether to
/// go on; dropping it stops the reply and keeps what was computed.
#[derive(Debug)]
pub struct Generation<'a> {
    model: &'a mut Model,
    options: &'a Options,
    random: Random,
    constraint: Option<Constraint<'a>>,
    /// Tokens that the model has yet to see.
    input: Vec<u32>,
    prompt_tokens: usize,
    produced: usize,
    context: usize,
    finished: Option<Finish>,
    stops: bool,
    stream: TextStream,
}

impl Generation<'_> {
    /// Tokens of the prompt that are yet to be computed.
    pub fn pending_tokens(&self) -> usize {
        self.input.len()
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Goes on where the model would stop, as a reference without stop tokens does.
    pub(crate) fn through_stop_tokens(mut self) -> Self {
        self.stops = false;
        self
    }

    /// Shows the model the next block of its input.
    fn advance(&mut self) {
        let count = self.input.len().min(PREFILL_BLOCK);
        let rest = self.input.split_off(count);
        let block = std::mem::replace(&mut self.input, rest);
        let is_last = self.input.is_empty();
        with_decoder!(&mut self.model.decoder, decoder => decoder.advance(&block, is_last));
    }

    /// One block of the prompt, or one token of the reply.
    ///
    /// # Errors
    ///
    /// When the device fails, or when the constraint leaves no token.
    pub async fn step(&mut self) -> Result<Step, GenerateError> {
        if let Some(finish) = self.finished {
            return Ok(self.done(finish));
        }
        if self.prompt_tokens + self.produced > self.context {
            return Ok(self.done(Finish::Length));
        }
        if !self.input.is_empty() {
            let is_prompt = self.produced == 0;
            self.advance();
            if is_prompt {
                // Waiting keeps the queue short, so that a reply stops at once.
                self.model.finish().await?;
                return Ok(Step::Prefill {
                    done: self.prompt_tokens - self.input.len(),
                    total: self.prompt_tokens,
                });
            }
        }
        if self.produced >= self.options.max_tokens {
            return Ok(self.done(Finish::Length));
        }
        let Some(token) = self.choose().await? else {
            return Ok(self.done(Finish::Stop));
        };
        self.produced += 1;
        self.input.push(token);
        let text = match &self.model.tokenizer {
            Some(tokenizer) => self.stream.push(tokenizer.token_bytes().of(token)),
            None => String::new(),
        };
        Ok(Step::Token { token, text })
    }
    fn done(&mut self, finish: Finish) -> Step {
        self.finished = Some(finish);
        Step::Done {
            finish,
            text: std::mem::take(&mut self.stream).finish(),
        }
    }

    /// The next token, `None` when the reply is complete.
    async fn choose(&mut self) -> Result<Option<u32>, GenerateError> {
        let sampling = self.options.sampling;
        self.penalize(sampling.repetition_penalty);
        let candidates = match &self.constraint {
            Some(constraint) if constraint.is_complete() => return Ok(None),
            Some(constraint) => self.allowed_candidates(constraint, sampling).await?,
            None => self.candidates(sampling.candidate_count(), None).await?,
        };
        let token = choose(&candidates, &sampling, &mut self.random);
        let Some(constraint) = &mut self.constraint else {
            return Ok(token.filter(|token| !self.stops || !self.model.stop_tokens.contains(token)));
        };
        let token = token.ok_or(GenerateError::NothingAllowed)?;
        if let Some(tokenizer) = &self.model.tokenizer {
            constraint.push(tokenizer.token_bytes().of(token));
        }
        Ok(Some(token))
    }

    async fn allowed_candidates(
        &self,
        constraint: &Constraint<'_>,
        sampling: Sampling,
    ) -> Result<Vec<Candidate>, GenerateError> {
        let tokenizer = self
            .model
            .tokenizer
            .as_ref()
            .ok_or(GenerateError::NoTokenizer)?;
        let tokens = tokenizer.token_bytes();
        let count = sampling.candidate_count();
        // Nearly always the likeliest token is allowed, and a greedy choice
        // needs no mask to find that out.
        if count == 1 {
            let candidates = self.candidates(1, None).await?;
            if candidates
                .iter()
                .all(|first| constraint.allows(tokens.of(first.token)))
            {
                return Ok(candidates);
            }
        }
        let vocab_size = with_decoder!(&self.model.decoder, decoder => decoder.config().vocab_size);
        let mask = constraint.mask(tokens, &self.model.classes, vocab_size);
        Ok(self.candidates(count, Some(&mask)).await?)
    }

    async fn candidates(
        &self,
        count: usize,
        allowed: Option<&[u32]>,
    ) -> Result<Vec<Candidate>, DeviceError> {
        with_decoder!(&self.model.decoder, decoder => decoder.candidates(count, allowed).await)
    }

    #[expect(clippy::float_cmp, reason = "exactly 1 is off")]
    fn penalize(&mut self, penalty: f32) {
        if penalty == 1.0 {
            return;
        }
        with_decoder!(&mut self.model.decoder, decoder => {
            let mut tokens = decoder.seen().to_vec();
            tokens.sort_unstable();
            tokens.dedup();
            decoder.penalize(&tokens, penalty);
        });
    }
}
