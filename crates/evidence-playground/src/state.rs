//! What the page knows, in one struct of signals that every component shares.

use evidence_agent::RunOutcome;
use evidence_agent::workspace::MemoryTree;
use evidence_core::{EvidenceLimits, JobId, ProcessId};
use futures_util::future::AbortHandle;
use leptos::prelude::*;
use web_sys::BroadcastChannel;

use crate::artifacts::{ArtifactKey, Kept, KeptCapture, Loaded};
use crate::limits::LimitInputs;
use crate::live::{Decider, Live};
use crate::player::Recording;
use crate::processes::Watched;
use crate::runner::{Phase, Session, Step};
use crate::samples::{RecordedSample, Sample};
use crate::storage::Storage;

/// The page's state. It is `Copy`: a handle to signals that live as long as the page.
#[derive(Debug, Clone, Copy)]
pub struct Playground {
    /// What the model is asked.
    pub task: RwSignal<String>,
    /// The files that it may read.
    pub files: RwSignal<MemoryTree>,
    /// The samples that can be loaded.
    pub samples: RwSignal<Vec<Sample>>,
    /// The sample that is loaded.
    pub sample: RwSignal<Option<String>>,
    /// The recorded commands that can be chosen.
    pub recordings: RwSignal<Vec<RecordedSample>>,
    /// The recorded command that the model may start.
    pub recording: RwSignal<Option<Recording>>,
    /// The contract of the next run.
    pub contract: RwSignal<Contract>,
    /// The limits, as typed.
    pub limits: RwSignal<LimitInputs>,
    /// The script, as typed.
    pub script: RwSignal<String>,
    /// The script as the page wrote it last, to tell whether a person changed it.
    pub written_script: RwSignal<String>,
    /// The text that a written script looks for.
    pub needle: RwSignal<String>,
    /// The model that writes the replies where no script does.
    pub live: Live,

    /// Where the run stands.
    pub phase: RwSignal<Phase>,
    /// Whether a step is being carried out.
    pub busy: RwSignal<bool>,
    /// The steps so far.
    pub steps: RwSignal<Vec<Step>>,
    /// The processes of the run.
    pub processes: RwSignal<Vec<Watched>>,
    /// How the run ended.
    pub outcome: RwSignal<Option<RunOutcome>>,
    /// The first messages of the run: instructions and task.
    pub opening: RwSignal<Vec<String>>,
    /// What writes the replies of the run.
    pub run_decider: RwSignal<Decider>,
    /// The limits that the run began with.
    pub run_limits: RwSignal<EvidenceLimits>,
    /// The run itself, while no step is being carried out.
    pub session: StoredValue<Option<Session>, LocalStorage>,
    /// Stops the step that is being carried out.
    pub stopper: StoredValue<Option<AbortHandle>>,
    /// Counts runs and pauses, so that what an old one left over knows that it is old.
    pub turn: StoredValue<u64>,

    /// Where artifacts are kept; none while it is being opened.
    pub storage: RwSignal<Option<Storage>, LocalStorage>,
    /// Where other tabs are told that artifacts came or went.
    pub channel: StoredValue<Option<BroadcastChannel>, LocalStorage>,
    /// Why artifacts will not survive a reload, if they will not.
    pub not_kept: RwSignal<Option<String>>,
    /// Every artifact that is kept.
    pub artifacts: RwSignal<Vec<Kept>>,
    /// What was captured of processes.
    pub captures: RwSignal<Vec<KeptCapture>>,
    /// The artifact that is looked at.
    pub selected: RwSignal<Option<ArtifactKey>>,
    /// Its bytes.
    pub loaded: RwSignal<Loaded>,
    /// The bytes that are looked at.
    pub selection: RwSignal<Option<(usize, usize)>>,
    /// What is about to be deleted, once it is confirmed.
    pub deletion: RwSignal<Option<Deletion>>,

    /// What went wrong or must be known, the newest last.
    pub notices: RwSignal<Vec<Notice>>,
    /// What screen readers are told about the run.
    pub announcement: RwSignal<String>,
}

/// What large results become.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Contract {
    /// Contract A: bounded observations, read by range paths.
    #[default]
    RangePaths,
    /// Contract B: bounded tool results, read by cursor.
    ToolOutput,
}

/// What is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// One artifact; of contract B its whole job, whose chunks it shares.
    One(ArtifactKey),
    /// What was captured of a process.
    Capture(JobId, ProcessId),
    /// Everything.
    All,
}

/// A sentence for the user, until it is dismissed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Tells notices of the same text apart.
    pub id: u64,
    /// What happened and what to do.
    pub text: String,
}

impl Playground {
    /// The state of an empty page.
    pub fn new() -> Self {
        Self {
            task: RwSignal::default(),
            files: RwSignal::default(),
            samples: RwSignal::default(),
            sample: RwSignal::default(),
            recordings: RwSignal::default(),
            recording: RwSignal::default(),
            contract: RwSignal::default(),
            limits: RwSignal::default(),
            script: RwSignal::default(),
            written_script: RwSignal::default(),
            needle: RwSignal::default(),
            live: Live::new(),
            phase: RwSignal::default(),
            busy: RwSignal::default(),
            steps: RwSignal::default(),
            processes: RwSignal::default(),
            outcome: RwSignal::default(),
            opening: RwSignal::default(),
            run_decider: RwSignal::default(),
            run_limits: RwSignal::default(),
            session: StoredValue::new_local(None),
            stopper: StoredValue::new(None),
            turn: StoredValue::new(0),
            storage: RwSignal::new_local(None),
            channel: StoredValue::new_local(None),
            not_kept: RwSignal::default(),
            artifacts: RwSignal::default(),
            captures: RwSignal::default(),
            selected: RwSignal::default(),
            loaded: RwSignal::default(),
            selection: RwSignal::default(),
            deletion: RwSignal::default(),
            notices: RwSignal::default(),
            announcement: RwSignal::default(),
        }
    }

    /// The state of the page that a component belongs to.
    pub fn of_page() -> Self {
        expect_context()
    }

    /// Tells the user something.
    pub fn notify(self, text: impl Into<String>) {
        let text = text.into();
        self.notices.update(|notices| {
            // Saying it twice does not help.
            if notices.iter().any(|notice| notice.text == text) {
                return;
            }
            let id = notices.last().map_or(0, |notice| notice.id + 1);
            notices.push(Notice { id, text });
        });
    }

    /// Takes a notice away.
    pub fn dismiss(self, id: u64) {
        self.notices
            .update(|notices| notices.retain(|notice| notice.id != id));
    }
}
