//! What writes the replies of a run: a script or a model.

use evidence_agent::{Generator, GeneratorError, Message, ScriptedGenerator, ToolName};
use evidence_model_protocol::{Command, Event, GenerateOptions};
use leptos::prelude::*;

use super::worker::ModelWorker;
use super::{Figures, Live, Reply};
use crate::browser;
use crate::storage::PageStore;

/// The longest reply, in tokens: an action with a path is a few dozen.
const MAX_REPLY_TOKENS: usize = 512;

/// A script or a model.
#[derive(Debug)]
pub enum PageGenerator {
    /// A script's lines.
    Script(ScriptedGenerator<PageStore>),
    /// The model in the worker.
    Model(LiveGenerator),
}

/// Asks the model, and shows what it writes while it writes.
#[derive(Debug)]
pub struct LiveGenerator {
    live: Live,
    worker: ModelWorker,
    constrain_to: Option<Vec<ToolName>>,
}

impl LiveGenerator {
    /// A generator over the loaded model; `tools` are what a constrained reply may call.
    pub fn new(live: Live, worker: ModelWorker, tools: Vec<ToolName>) -> Self {
        Self {
            live,
            worker,
            constrain_to: live.constrained.get_untracked().then_some(tools),
        }
    }
}

impl Generator for PageGenerator {
    async fn generate(
        &mut self,
        messages: &[Message],
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        match self {
            Self::Script(script) => script.generate(messages, on_text).await,
            Self::Model(model) => model.generate(messages, on_text).await,
        }
    }
}

impl Generator for LiveGenerator {
    async fn generate(
        &mut self,
        messages: &[Message],
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        let options = GenerateOptions {
            max_tokens: MAX_REPLY_TOKENS,
            constrain_to: self.constrain_to.clone(),
            ..GenerateOptions::default()
        };
        let command = Command::Generate {
            messages: messages.to_vec(),
            options,
        };
        self.live.reply.set(Some(Reply::default()));
        let mut answers = self.worker.ask(command, &[]).await;
        loop {
            match answers.next().await {
                Event::Prefill { done, total } => self.live.change_reply(|reply| {
                    reply.read_tokens = done;
                    reply.prompt_tokens = total;
                    reply.began_ms = browser::monotonic_ms();
                }),
                Event::Token { text, count } => {
                    on_text(&text);
                    self.live.change_reply(|reply| {
                        reply.text.push_str(&text);
                        reply.tokens = count;
                    });
                }
                Event::Done {
                    text,
                    prompt_tokens,
                    computed_tokens,
                    prefill_ms,
                    reply_tokens,
                    decode_ms,
                    context_tokens,
                    finish: _,
                } => {
                    self.live.figures.set_value(Some(Figures {
                        prompt_tokens,
                        computed_tokens,
                        prefill_ms,
                        reply_tokens,
                        decode_ms,
                        context_tokens,
                    }));
                    return Ok(text);
                }
                Event::Error { message } => return Err(GeneratorError(message)),
                Event::Failed { message } => {
                    self.live.break_worker(message.clone());
                    return Err(GeneratorError(message));
                }
                // Nothing else answers this request.
                _ => {}
            }
        }
    }
}
