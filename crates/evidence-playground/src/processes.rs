//! The processes of the run, as a person watches them.

use evidence_agent::process::{ProcessCall, ProcessTools, ProcessView};
use evidence_agent::{Action, ToolCall};
use evidence_core::process::{ProcessStatus, StartArguments, StopArguments};
use evidence_core::{JobId, ProcessId};
use evidence_store::ToolOutputError;
use leptos::prelude::*;
use leptos::task::spawn_local;
use serde::Deserialize;

use crate::browser;
use crate::state::Playground;

/// How often a running process is looked at.
const INTERVAL_MS: i32 = 150;

/// A process of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Of which job.
    pub job: JobId,
    /// Which it is.
    pub id: ProcessId,
    /// What was started.
    pub argv: Vec<String>,
    /// How it stood when it was looked at last.
    pub view: Option<ProcessView>,
    /// Whether it was deleted with its run.
    pub is_deleted: bool,
    /// How long it has run, in milliseconds.
    pub ran_ms: u64,
}

impl Watched {
    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        let view = self.view.as_ref();
        !self.is_deleted && view.is_none_or(|view| view.status == ProcessStatus::Running)
    }
}

/// The bytes of a process that a poll has shown to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Of which process.
    pub process_id: ProcessId,
    /// Of its standard output.
    pub stdout: Vec<[u64; 2]>,
    /// Of its standard error.
    pub stderr: Vec<[u64; 2]>,
}

/// What the receipt in the result of a poll says.
pub fn observed(action: Option<&Action>, result: &str) -> Option<Observed> {
    #[derive(Deserialize)]
    struct Answer {
        receipt: Receipt,
    }
    #[derive(Deserialize)]
    struct Receipt {
        process_id: ProcessId,
        observed: Streams,
    }
    #[derive(Deserialize)]
    struct Streams {
        stdout: Vec<[u64; 2]>,
        stderr: Vec<[u64; 2]>,
    }
    let Some(Action::Tool(ToolCall::Process(_))) = action else {
        return None;
    };
    let Answer { receipt } = serde_json::from_str(result).ok()?;
    let Streams { stdout, stderr } = receipt.observed;
    Some(Observed {
        process_id: receipt.process_id,
        stdout,
        stderr,
    })
}

/// What a step started, if it started something.
pub fn started(action: Option<&Action>, result: &str) -> Option<(ProcessId, Vec<String>)> {
    #[derive(Deserialize)]
    struct Answer {
        data: Started,
    }
    #[derive(Deserialize)]
    struct Started {
        process_id: ProcessId,
    }
    let Some(Action::Tool(ToolCall::Process(ProcessCall::Start(StartArguments { argv, .. })))) =
        action
    else {
        return None;
    };
    let Answer { data } = serde_json::from_str(result).ok()?;
    Some((data.process_id, argv.clone()))
}

impl Playground {
    /// Watches a process until it has ended or the run is forgotten.
    pub fn watch(self, job: JobId, id: ProcessId, argv: Vec<String>) {
        let watched = Watched {
            job: job.clone(),
            id: id.clone(),
            argv,
            view: None,
            is_deleted: false,
            ran_ms: 0,
        };
        self.processes.update(|processes| processes.push(watched));
        spawn_local(async move {
            let start_ms = browser::monotonic_ms();
            while self.look_at_process(&job, &id, start_ms).await {
                browser::sleep(INTERVAL_MS).await;
            }
            // What it left is listed now.
            self.artifacts_changed().await;
        });
    }

    /// Looks at a process once; whether there will be more to see.
    async fn look_at_process(self, job: &JobId, id: &ProcessId, start_ms: u64) -> bool {
        let Some(storage) = self.storage.get_untracked() else {
            return false;
        };
        let view = match storage.processes.view(&storage.session, job, id).await {
            Ok(view) => Some(view),
            // The person deleted it, here or in another tab.
            Err(ToolOutputError::Unavailable) => None,
            Err(error) => {
                self.notify(format!("{id} cannot be looked at: {error}."));
                return false;
            }
        };
        let ran_ms = browser::monotonic_ms().saturating_sub(start_ms);
        let mut is_running = false;
        self.processes.update(|processes| {
            let found = processes.iter_mut();
            for process in found.filter(|process| process.job == *job && process.id == *id) {
                process.ran_ms = ran_ms;
                process.is_deleted = view.is_none();
                process.view.clone_from(&view);
                is_running = process.is_running();
            }
        });
        is_running
    }

    /// Whether a process of the run runs that is among these.
    pub fn process_runs(self, is_meant: impl Fn(&Watched) -> bool) -> bool {
        let runs = |process: &Watched| process.is_running() && is_meant(process);
        self.processes
            .with_untracked(|processes| processes.iter().any(runs))
    }

    /// Ends a process, as the model could.
    pub fn stop_process(self, job: JobId, id: ProcessId) {
        let Some(storage) = self.storage.get_untracked() else {
            return;
        };
        spawn_local(async move {
            let call = ProcessCall::Stop(StopArguments { process_id: id });
            let stopped = storage.processes.call(&storage.session, &job, None, &call);
            if let Err(error) = stopped.await {
                self.notify(format!("The process was not stopped: {error}."));
            }
        });
    }

    /// Ends the processes of the run, and forgets them; what they wrote is kept.
    pub fn leave_processes(self) {
        let processes = self
            .processes
            .try_update(std::mem::take)
            .unwrap_or_default();
        for process in processes.into_iter().filter(Watched::is_running) {
            self.stop_process(process.job, process.id);
        }
    }

    /// Looks again at every process of the run, after something was deleted.
    pub async fn look_at_all_processes(self) {
        for Watched {
            job, id, ran_ms, ..
        } in self.processes.get_untracked()
        {
            let start_ms = browser::monotonic_ms().saturating_sub(ran_ms);
            self.look_at_process(&job, &id, start_ms).await;
        }
    }
}
