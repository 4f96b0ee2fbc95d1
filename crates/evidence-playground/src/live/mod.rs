//! The live run: a model in a Web Worker writes the replies, in place of a script.
//!
//! Nothing of the worker is loaded before the person chooses to run live.

mod generator;
mod place;
mod worker;

use evidence_model_protocol::{
    AdapterDescription, BackendChoice, CachedCheckpoint, Command, Event, ModelDescription,
};
use leptos::prelude::*;
use leptos::task::spawn_local;
use web_sys::File;

pub use self::generator::{LiveGenerator, PageGenerator};
use self::place::repository_of;
pub use self::place::{Bundled, Place, PlaceKind, name_of};
pub use self::worker::ModelWorker;
use crate::browser;
use crate::script;
use crate::state::Playground;

/// What writes the replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Decider {
    /// A script.
    #[default]
    Script,
    /// A model.
    Model,
}

/// What the page knows of the model.
#[derive(Debug, Clone, Copy)]
pub struct Live {
    /// What writes the replies of the next run.
    pub decider: RwSignal<Decider>,
    /// The kind of place that is chosen.
    pub kind: RwSignal<PlaceKind>,
    /// The bundled models.
    pub bundled: RwSignal<Vec<Bundled>>,
    /// The repository, as typed.
    pub repository: RwSignal<String>,
    /// The address, as typed.
    pub address: RwSignal<String>,
    /// The files that were chosen.
    pub files: RwSignal<Vec<File>, LocalStorage>,
    /// Whether the CPU is to compute although there is an adapter.
    pub on_cpu: RwSignal<bool>,
    /// Whether replies are held to one action.
    pub constrained: RwSignal<bool>,
    /// What computes, or why there is no adapter; none while it is being asked for.
    pub adapter: RwSignal<Option<Result<AdapterDescription, String>>>,
    /// The checkpoints in the browser's storage.
    pub cached: RwSignal<Vec<CachedCheckpoint>>,
    /// The model.
    pub model: RwSignal<ModelState>,
    /// The reply that is being written.
    pub reply: RwSignal<Option<Reply>>,
    /// What the last reply took.
    figures: StoredValue<Option<Figures>>,
    /// The worker, once it was needed.
    worker: StoredValue<Option<ModelWorker>, LocalStorage>,
    /// Counts loads, so that what an old one left over knows that it is old.
    load: StoredValue<u64>,
}

/// Where the model is.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ModelState {
    /// None was asked for.
    #[default]
    None,
    /// It is on its way.
    Loading(Loading),
    /// It can be run.
    Ready(Loaded),
    /// It could not be loaded, or broke: a sentence.
    Failed(String),
}

/// How far a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loading {
    /// What people call it.
    pub name: String,
    /// What is going on.
    pub stage: Stage,
}

/// What is going on while a model is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was heard yet.
    Begun,
    /// A file is being downloaded.
    Download {
        /// Its name.
        file: String,
        /// Bytes that are there.
        loaded: u64,
        /// Bytes in all, where the server tells.
        total: Option<u64>,
    },
    /// Weights are put on the device.
    Weights {
        /// Bytes that are there.
        loaded: u64,
        /// Bytes in all.
        total: u64,
    },
}

/// A model that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What people call it.
    pub name: String,
    /// The worker's description.
    pub model: ModelDescription,
    /// Why the CPU computes, when it was not chosen.
    pub fallback: Option<String>,
}

/// A reply that is being written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// Tokens of the prompt that the model has read.
    pub read_tokens: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// When the last block of the prompt was read.
    pub began_ms: u64,
    /// What is written so far.
    pub text: String,
    /// Tokens of that.
    pub tokens: usize,
}

/// What a reply took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that had to be computed.
    pub computed_tokens: usize,
    /// Milliseconds that they took.
    pub prefill_ms: f64,
    /// Tokens of the reply.
    pub reply_tokens: usize,
    /// Milliseconds that they took.
    pub decode_ms: f64,
    /// Tokens in the key-value cache.
    pub context_tokens: usize,
}

impl Figures {
    /// Tokens of the prompt a second.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.computed_tokens, self.prefill_ms)
    }

    /// Tokens of the reply a second.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.reply_tokens, self.decode_ms)
    }
}

/// So many a second; none where too little happened to tell.
#[expect(
    clippy::cast_precision_loss,
    reason = "a rate is shown to a tenth, and a context has far fewer tokens than 2^53"
)]
pub fn rate(count: usize, milliseconds: f64) -> Option<f64> {
    (count > 0 && milliseconds > 0.0).then(|| count as f64 * 1e3 / milliseconds)
}

impl Live {
    /// Nothing is chosen and nothing loaded.
    pub fn new() -> Self {
        Self {
            decider: RwSignal::default(),
            kind: RwSignal::default(),
            bundled: RwSignal::default(),
            repository: RwSignal::default(),
            address: RwSignal::default(),
            files: RwSignal::new_local(Vec::new()),
            on_cpu: RwSignal::default(),
            constrained: RwSignal::new(true),
            adapter: RwSignal::default(),
            cached: RwSignal::default(),
            model: RwSignal::default(),
            reply: RwSignal::default(),
            figures: StoredValue::new(None),
            worker: StoredValue::new_local(None),
            load: StoredValue::new(0),
        }
    }

    /// Whether a model writes the replies of the next run.
    pub fn is_chosen(self) -> bool {
        self.decider.get() == Decider::Model
    }

    /// What writes the replies of a run with these tools; none without a model.
    pub fn worker(self) -> Option<ModelWorker> {
        let ready = self
            .model
            .with_untracked(|model| matches!(model, ModelState::Ready(_)));
        self.worker.get_value().filter(|_| ready)
    }

    /// What the last reply took.
    pub fn take_figures(self) -> Option<Figures> {
        self.reply.set(None);
        self.figures.try_update_value(Option::take).flatten()
    }

    fn change_reply(self, change: impl FnOnce(&mut Reply)) {
        self.reply.update(|reply| {
            if let Some(reply) = reply {
                change(reply);
            }
        });
    }

    /// The place that is chosen.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    fn place(self) -> Result<Place, String> {
        match self.kind.get_untracked() {
            PlaceKind::Bundled => self
                .bundled
                .with_untracked(|bundled| bundled.first().map(Bundled::place))
                .ok_or_else(|| "There is no bundled model here. Choose another.".to_owned()),
            PlaceKind::Hub => self.repository.with_untracked(|typed| Place::hub(typed)),
            PlaceKind::Address => self.address.with_untracked(|typed| Place::address(typed)),
            PlaceKind::Files => Place::files(self.files.get_untracked()),
        }
    }

    /// The worker, started if it is not there or broke.
    fn started(self) -> Result<ModelWorker, String> {
        if let Some(worker) = self.worker.get_value() {
            return Ok(worker);
        }
        let worker = ModelWorker::start()?;
        self.worker.set_value(Some(worker.clone()));
        Ok(worker)
    }

    /// Begins to be ready for a live run: starts the worker, and asks it for its adapter and what is kept.
    fn begin(self) {
        spawn_local(async move {
            match Bundled::list().await {
                Ok(list) => {
                    let any = !list.is_empty();
                    self.bundled.set(list);
                    if any {
                        self.kind.set(PlaceKind::Bundled);
                    }
                }
                Err(sentence) => self.model.set(ModelState::Failed(sentence)),
            }
        });
        spawn_local(async move {
            let worker = match self.started() {
                Ok(worker) => worker,
                Err(sentence) => return self.model.set(ModelState::Failed(sentence)),
            };
            match worker.ask_once(Command::Info).await {
                Ok(Event::Info {
                    adapter,
                    no_adapter,
                    ..
                }) => {
                    let none = || no_adapter.unwrap_or_default();
                    let adapter = adapter.ok_or_else(none);
                    self.on_cpu.set(adapter.is_err());
                    self.adapter.set(Some(adapter));
                }
                Ok(_) => {}
                Err(sentence) => return self.break_worker(sentence),
            }
            self.list_cached(worker.ask_once(Command::Cached).await);
        });
    }

    fn list_cached(self, answer: Result<Event, String>) {
        match answer {
            Ok(Event::Cached { checkpoints }) => self.cached.set(checkpoints),
            Ok(_) => {}
            Err(sentence) => self.model.set(ModelState::Failed(sentence)),
        }
    }

    fn break_worker(self, sentence: String) {
        self.worker.set_value(None);
        self.model.set(ModelState::Failed(sentence));
    }

    fn next_load(self) -> u64 {
        self.load.update_value(|load| *load += 1);
        self.load.get_value()
    }

    /// Loads the model that is chosen, in place of the one that is loaded.
    fn load(self) {
        let (place, worker) = match self.place().and_then(|place| Ok((place, self.started()?))) {
            Ok(chosen) => chosen,
            Err(sentence) => return self.model.set(ModelState::Failed(sentence)),
        };
        let Place {
            source,
            files,
            name,
        } = place;
        let backend = if self.on_cpu.get_untracked() {
            BackendChoice::Flex
        } else {
            BackendChoice::Auto
        };
        let load = self.next_load();
        let at = move |name: &str, stage| {
            let name = name.to_owned();
            self.model.set(ModelState::Loading(Loading { name, stage }));
        };
        at(&name, Stage::Begun);
        spawn_local(async move {
            let mut answers = worker.ask(Command::Load { source, backend }, &files).await;
            while self.load.get_value() == load {
                match answers.next().await {
                    // What stopped it has said so.
                    _ if self.load.get_value() != load => return,
                    Event::Download {
                        file,
                        loaded,
                        total,
                    } => at(
                        &name,
                        Stage::Download {
                            file,
                            loaded,
                            total,
                        },
                    ),
                    Event::Progress { loaded, total } => {
                        at(&name, Stage::Weights { loaded, total });
                    }
                    Event::Loaded { model, fallback } => {
                        self.model.set(ModelState::Ready(Loaded {
                            name,
                            model,
                            fallback,
                        }));
                        break;
                    }
                    Event::Error { message } => {
                        self.model.set(ModelState::Failed(message));
                        break;
                    }
                    Event::Failed { message } => return self.break_worker(message),
                    _ => {}
                }
            }
            self.list_cached(worker.ask_once(Command::Cached).await);
        });
    }

    /// Stops a load at once. What was downloaded stays, and the next load goes on from there.
    fn stop_loading(self) {
        self.next_load();
        // A worker waits for the network or the device as long as they like; its end takes no time.
        if let Some(worker) = self.worker.try_update_value(Option::take).flatten() {
            worker.end();
        }
        self.model.set(ModelState::None);
        self.refresh_cached();
    }

    fn refresh_cached(self) {
        spawn_local(async move {
            if let Ok(worker) = self.started() {
                self.list_cached(worker.ask_once(Command::Cached).await);
            }
        });
    }

    /// Deletes a checkpoint from the browser's storage.
    fn delete_cached(self, key: String) {
        spawn_local(async move {
            if let Ok(worker) = self.started() {
                self.list_cached(worker.ask_once(Command::Delete { key }).await);
            }
        });
    }

    /// Names a checkpoint that was downloaded before as the one to load.
    pub fn choose_cached(self, url: &str) {
        if let Some(repository) = repository_of(url) {
            self.repository.set(repository.to_owned());
            self.kind.set(PlaceKind::Hub);
        } else {
            self.address.set(url.to_owned());
            self.kind.set(PlaceKind::Address);
        }
    }
}

impl Playground {
    /// Changes what writes the replies.
    pub fn choose_decider(self, decider: Decider) {
        self.reset();
        self.live.decider.set(decider);
        if decider == Decider::Model && self.live.adapter.with_untracked(Option::is_none) {
            self.live.begin();
        }
    }

    /// Loads the model that is chosen. A run of the one before ends.
    pub fn load_model(self) {
        self.reset();
        self.live.load();
    }

    /// Stops the load.
    pub fn stop_loading(self) {
        self.live.stop_loading();
    }

    /// Makes the replies of the run the script, ready to be run again.
    pub fn keep_as_script(self) {
        let script = self.replies_as_script();
        self.choose_decider(Decider::Script);
        self.script.set(script);
    }

    /// Offers the replies of the run as a file.
    pub fn download_as_script(self) {
        if let Err(sentence) = browser::download("run.jsonl", self.replies_as_script().as_bytes()) {
            self.notify(sentence);
        }
    }

    fn replies_as_script(self) -> String {
        self.steps
            .with_untracked(|steps| script::of_replies(steps.iter().map(|step| &*step.reply)))
    }

    /// Deletes a checkpoint from the browser's storage.
    pub fn delete_model(self, key: String) {
        self.live.delete_cached(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_told_where_something_was_measured() {
        assert_eq!(rate(20, 500.0), Some(40.0));
        assert_eq!(rate(0, 500.0), None);
        assert_eq!(rate(20, 0.0), None);
    }
}
