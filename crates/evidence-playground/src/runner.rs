//! The run: one step at a time, as far as the user lets it go.

use evidence_agent::process::ProcessCall;
use evidence_agent::{
    Action, BoundedEvidenceWorkspace, EnvelopeGenerator, Message, Run, RunEvent, RunOutcome,
    ScriptedGenerator, StepEvent, StopReason, ToolCall, ToolOutputWorkspace, Workspace as _,
    script_replies,
};
use evidence_core::envelope::MaxInputBytes;
use evidence_core::observation::{EXTERNALIZED_HEADER, is_inline};
use evidence_core::process::PollArguments;
use evidence_core::range::{RANGE_HEADER, RangePath};
use evidence_core::{ArtifactId, EvidenceLimits, JobId, JobStatus, ProcessId, Sha256Digest};
use evidence_store::ToolOutputError;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable};
use leptos::prelude::*;
use leptos::task::spawn_local;
use serde::Deserialize;

use crate::artifacts::ArtifactKey;
use crate::browser;
use crate::limits::{self, Limits};
use crate::live::{Decider, Figures, LiveGenerator, PageGenerator};
use crate::measured::MeasuredWorkspace;
use crate::processes::{Observed, observed, started};
use crate::state::{Contract, Playground};
use crate::storage::{PageStore, Processes, RunJob, Storage};
use crate::text::{counted, grouped, range};

/// The pause between two steps, so that a run can be followed and stopped.
const PACE_MILLISECONDS: i32 = 250;

/// How many more of these pauses a running process gets.
const PAUSES_FOR_A_PROCESS: usize = 7;

/// Where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has happened yet.
    #[default]
    Ready,
    /// Steps follow one another.
    Running,
    /// It waits for the user.
    Paused,
    /// It has an outcome.
    Ended,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The model saw the complete result.
    Inline,
    /// The model saw an observation of this artifact, or its excerpt.
    Externalized(ArtifactKey),
    /// The model saw these bytes of this artifact.
    Range(ArtifactKey, usize, usize),
    /// The model saw so many bytes of what a process wrote.
    Streams(u64),
    /// The model saw an error.
    Refused,
    /// There was no tool.
    Final,
}

/// A step as the timeline shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// From 1.
    pub number: usize,
    /// What the model read before its reply.
    pub prompt_bytes: usize,
    /// What it would have read if every result stood in the conversation in full.
    pub unbounded_prompt_bytes: usize,
    /// What it replied, exactly.
    pub reply: String,
    /// The tool and its argument, or what else the reply was.
    pub title: String,
    /// What it saw then, exactly.
    pub result: Option<String>,
    /// The size of the complete result, where a tool had one.
    pub complete_bytes: Option<usize>,
    /// What that was.
    pub evidence: Evidence,
    /// The bytes of a process that it showed.
    pub observed: Option<Observed>,
    /// What the reply took, where a model wrote it.
    pub figures: Option<Figures>,
}

/// A run in progress and everything that belongs to it.
#[derive(Debug)]
pub struct Session {
    run: Run,
    bounds: Bounds,
    /// How many bytes the observations have kept out of the conversation.
    kept_out_bytes: usize,
}

/// What bounds the results of a run.
#[derive(Debug)]
enum Bounds {
    RangePaths {
        workspace: BoundedEvidenceWorkspace<MeasuredWorkspace, PageStore>,
        generator: PageGenerator,
        limits: EvidenceLimits,
    },
    ToolOutput {
        workspace: ToolOutputWorkspace<MeasuredWorkspace, PageStore, Option<Processes>>,
        generator: EnvelopeGenerator<PageGenerator>,
        storage: Storage,
        job: RunJob,
    },
}

impl Session {
    async fn new(
        page: Playground,
        storage: Storage,
        limits: Limits,
    ) -> Result<Self, ToolOutputError> {
        let files = page.files.get_untracked();
        let recording = page.recording.get_untracked();
        let workspace = MeasuredWorkspace::new(files, limits::policy(recording.as_ref()));
        let replies: Vec<String> = page.script.with_untracked(|text| {
            let replies = script_replies(text);
            replies.map(|(_, reply)| reply.to_owned()).collect()
        });
        // The button waits for the model, so that there is a worker where one is needed.
        let model = match page.live.decider.get_untracked() {
            Decider::Script => None,
            Decider::Model => page.live.worker(),
        };
        let generator = |tools, script| match model {
            Some(worker) => PageGenerator::Model(LiveGenerator::new(page.live, worker, tools)),
            None => PageGenerator::Script(script),
        };
        let task = page.task.get_untracked();
        let (run, bounds) = match page.contract.get_untracked() {
            Contract::RangePaths => {
                let artifacts = storage.artifacts;
                let script = ScriptedGenerator::new(replies, artifacts.clone());
                let workspace =
                    BoundedEvidenceWorkspace::new(workspace, artifacts, limits.evidence);
                let generator = generator(workspace.available_tools(), script);
                let bounds = |workspace| Bounds::RangePaths {
                    workspace,
                    generator,
                    limits: limits.evidence,
                };
                (Run::new(&task, &workspace, limits.agent), bounds(workspace))
            }
            Contract::ToolOutput => {
                let job = storage.create_run_job().await?;
                let Storage {
                    outputs, session, ..
                } = &storage;
                let script = ScriptedGenerator::with_tool_outputs(
                    replies,
                    outputs.clone(),
                    session.clone(),
                    job.id.clone(),
                );
                let workspace = ToolOutputWorkspace::new(
                    workspace,
                    outputs.clone(),
                    session.clone(),
                    job.id.clone(),
                )
                .with_processes(recording.map(|_| storage.processes.clone()));
                let generator = generator(workspace.available_tools(), script);
                let run = Run::new(&task, &workspace, limits.agent);
                let bounds = Bounds::ToolOutput {
                    workspace,
                    generator: EnvelopeGenerator::new(generator, MaxInputBytes::default()),
                    storage,
                    job,
                };
                (run, bounds)
            }
        };
        Ok(Self {
            run,
            bounds,
            kept_out_bytes: 0,
        })
    }

    /// Ends the job that the run belongs to, if it belongs to one: from now on its time runs.
    async fn end_job(&self, status: JobStatus) -> Result<(), ToolOutputError> {
        let Bounds::ToolOutput { storage, job, .. } = &self.bounds else {
            return Ok(());
        };
        let Storage {
            outputs, session, ..
        } = storage;
        match outputs
            .set_status(session, &job.id, status, browser::now_ms())
            .await
        {
            // It was deleted in the meantime.
            Err(ToolOutputError::Unavailable) => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Takes one step, which `stoppable` ends with the run; the step is missing when the run ended before
    /// the model replied.
    async fn step(&mut self, stoppable: AbortRegistration) -> (Option<Step>, Option<RunOutcome>) {
        let prompt_bytes = self.run.messages().iter().map(|m| m.content.len()).sum();
        let steps_before = self.run.events().len();
        let observe = &mut |_: RunEvent<'_>| {};
        let (outcome, complete_bytes) = match &mut self.bounds {
            Bounds::RangePaths {
                workspace,
                generator,
                ..
            } => {
                let step = self.run.step(workspace, generator, observe);
                let outcome = Abortable::new(step, stoppable).await;
                let stopped = || Some(self.run.stop(StopReason::Cancelled, workspace));
                let outcome = outcome.unwrap_or_else(|_| stopped());
                (outcome, workspace.workspace_mut().take_complete_bytes())
            }
            Bounds::ToolOutput {
                workspace,
                generator,
                ..
            } => {
                let step = self.run.step(workspace, generator, observe);
                let outcome = Abortable::new(step, stoppable).await;
                let stopped = || Some(self.run.stop(StopReason::Cancelled, workspace));
                let outcome = outcome.unwrap_or_else(|_| stopped());
                (outcome, workspace.workspace_mut().take_complete_bytes())
            }
        };
        let event = self.run.events().get(steps_before).cloned();
        let step = event.map(|event| self.describe(event, prompt_bytes, complete_bytes));
        (step, outcome)
    }

    /// The outcome of ending the run between two steps.
    fn stopped(&self) -> RunOutcome {
        match &self.bounds {
            Bounds::RangePaths { workspace, .. } => self.run.stop(StopReason::Cancelled, workspace),
            Bounds::ToolOutput { workspace, .. } => self.run.stop(StopReason::Cancelled, workspace),
        }
    }

    /// The process that a step started, if it started one.
    fn started(&self, step: &Step) -> Option<(ProcessId, Vec<String>)> {
        let mut events = self.run.events().iter();
        let event = events.find(|event| event.step == step.number)?;
        started(event.action.as_ref(), event.result.as_deref()?)
    }

    fn describe(
        &mut self,
        event: StepEvent,
        prompt_bytes: usize,
        complete_bytes: Option<usize>,
    ) -> Step {
        let unbounded_prompt_bytes = prompt_bytes + self.kept_out_bytes;
        let result = event.result.as_deref();
        let (evidence, complete_bytes) = match &self.bounds {
            Bounds::RangePaths { limits, .. } => {
                let action = event.action.as_ref();
                let evidence = evidence(action, result, complete_bytes, limits);
                (evidence, complete_bytes)
            }
            Bounds::ToolOutput { job, .. } => tool_output_evidence(&event, &job.id),
        };
        if let (Evidence::Externalized(_), Some(complete), Some(shown)) =
            (&evidence, complete_bytes, result)
        {
            self.kept_out_bytes += complete.saturating_sub(shown.len());
        }
        let observed = result.and_then(|result| observed(event.action.as_ref(), result));
        Step {
            observed,
            figures: None,
            number: event.step,
            prompt_bytes,
            unbounded_prompt_bytes,
            title: title(event.action.as_ref()),
            reply: event.response,
            result: event.result,
            complete_bytes,
            evidence,
        }
    }
}

/// What the model saw, told from the call and not from the looks of the text.
fn evidence(
    action: Option<&Action>,
    result: Option<&str>,
    complete_bytes: Option<usize>,
    limits: &EvidenceLimits,
) -> Evidence {
    let Some(result) = result else {
        return Evidence::Final;
    };
    if let Some(complete_bytes) = complete_bytes {
        if is_inline(complete_bytes, limits) {
            return Evidence::Inline;
        }
        let id = externalized(result);
        return id.map_or(Evidence::Refused, |id| Evidence::Externalized(of_id(id)));
    }
    let Some(Action::Tool(ToolCall::ReadFile { path })) = action else {
        return Evidence::Refused;
    };
    // No tool of the workspace succeeded, so that this is a range answer or an error.
    let answer = result.strip_prefix(RANGE_HEADER).and_then(|_| {
        let path = RangePath::parse(path).ok()?;
        let range = path.check(u64::MAX, limits.max_range_bytes()).ok()?;
        let key = of_id(path.artifact_id());
        Some(Evidence::Range(key, range.start, range.end))
    });
    answer.unwrap_or(Evidence::Refused)
}

const fn of_id(id: ArtifactId) -> ArtifactKey {
    ArtifactKey {
        sha256: id.sha256(),
        job: None,
    }
}

/// The same under contract B, told from what the step recorded; and the size of the complete result,
/// where a tool had one.
fn tool_output_evidence(event: &StepEvent, job: &JobId) -> (Evidence, Option<usize>) {
    #[derive(Deserialize)]
    struct Reference {
        job_id: JobId,
        sha256: Sha256Digest,
        bytes: usize,
    }
    #[derive(Deserialize)]
    struct Read {
        data: Option<Range>,
    }
    #[derive(Deserialize)]
    struct Range {
        offset: usize,
        next_offset: usize,
    }
    let Some(result) = event.result.as_deref() else {
        return (Evidence::Final, None);
    };
    let reference = event.provenance.as_deref().map(serde_json::from_str);
    if let Some(Ok(Reference {
        job_id,
        sha256,
        bytes,
    })) = reference
    {
        let key = ArtifactKey {
            sha256,
            job: Some(job_id),
        };
        return (Evidence::Externalized(key), Some(bytes));
    }
    let evidence = match &event.action {
        Some(Action::Tool(ToolCall::ReadToolOutput(arguments))) => {
            match serde_json::from_str(result) {
                Ok(Read {
                    data:
                        Some(Range {
                            offset,
                            next_offset,
                        }),
                }) => {
                    let key = ArtifactKey {
                        sha256: arguments.sha256,
                        job: Some(arguments.job_id.as_ref().unwrap_or(job).clone()),
                    };
                    Evidence::Range(key, offset, next_offset)
                }
                _ => Evidence::Refused,
            }
        }
        Some(Action::Tool(ToolCall::Process(_)))
            if let Some(Observed { stdout, stderr, .. }) =
                observed(event.action.as_ref(), result) =>
        {
            let ranges = stdout.iter().chain(&stderr);
            Evidence::Streams(ranges.map(|[start, end]| end - start).sum())
        }
        Some(Action::Tool(_)) if result.starts_with("{\"success\":true") => Evidence::Inline,
        _ => Evidence::Refused,
    };
    (evidence, None)
}

/// The identity in an observation's text.
fn externalized(observation: &str) -> Option<ArtifactId> {
    #[derive(Deserialize)]
    struct Identity {
        artifact_id: ArtifactId,
    }
    let json = observation.strip_prefix(EXTERNALIZED_HEADER)?;
    let identity: Identity = serde_json::from_str(json).ok()?;
    Some(identity.artifact_id)
}

fn title(action: Option<&Action>) -> String {
    match action {
        None => "not an action".to_owned(),
        Some(Action::Final(_)) => "final answer".to_owned(),
        Some(Action::Tool(call @ ToolCall::ReadToolOutput(arguments))) => {
            let tool = call.name().as_str();
            let offset = usize::try_from(arguments.request.offset()).unwrap_or(usize::MAX);
            format!("{tool} from {}", grouped(offset))
        }
        Some(Action::Tool(call @ ToolCall::Process(process))) => {
            let tool = call.name().as_str();
            let from = |offset: Option<u64>| {
                let offset = usize::try_from(offset?).ok()?;
                Some(grouped(offset))
            };
            match process {
                ProcessCall::Start(arguments) => match arguments.argv.first() {
                    Some(program) => format!("{tool} {program}"),
                    None => tool.to_owned(),
                },
                ProcessCall::Poll(PollArguments {
                    cursors: Some(cursors),
                    ..
                }) => {
                    let offsets = [from(cursors.stdout_offset), from(cursors.stderr_offset)];
                    match offsets {
                        [Some(stdout), Some(stderr)] => {
                            format!("{tool} stdout from {stdout}, stderr from {stderr}")
                        }
                        [Some(stdout), None] => format!("{tool} stdout from {stdout}"),
                        [None, stderr] => {
                            format!("{tool} stderr from {}", stderr.unwrap_or_default())
                        }
                    }
                }
                ProcessCall::Poll(_) | ProcessCall::Stop(_) => tool.to_owned(),
            }
        }
        Some(Action::Tool(call)) => {
            let tool = call.name().as_str();
            match call.path() {
                None => tool.to_owned(),
                Some(path) => match RangePath::parse(path) {
                    // The id is long, and it is shown with the reply.
                    Ok(_) => {
                        let positions = path.rsplit('/').next().unwrap_or_default();
                        format!("{tool} bytes {positions}")
                    }
                    Err(_) => format!("{tool} {path}"),
                },
            }
        }
    }
}

/// How a run ended and what to do about it.
pub fn explain(outcome: &RunOutcome, decider: Decider) -> String {
    let error = outcome.error.as_deref().unwrap_or_default();
    match (outcome.reason, decider) {
        (StopReason::Completed, _) => "The model gave its final answer.".to_owned(),
        (StopReason::StepLimit, Decider::Script) => {
            "The run used all its steps without a final answer. Raise max_steps, or let the script \
             end with a final action."
                .to_owned()
        }
        (StopReason::StepLimit, Decider::Model) => {
            "The run used all its steps without a final answer. Raise max_steps, or choose a larger \
             model."
                .to_owned()
        }
        (StopReason::ContextLimit, _) => {
            "The next prompt would have more characters than max_context_chars allows. Lower \
             max_inline_bytes, or raise max_context_chars."
                .to_owned()
        }
        (StopReason::InvalidActionLimit, Decider::Model) => {
            "As many replies in a row as max_invalid_actions allows were no action. Hold the replies \
             to one action, or choose a larger model."
                .to_owned()
        }
        (StopReason::InvalidActionLimit, Decider::Script) => {
            "As many replies in a row as max_invalid_actions allows were no action. Correct the \
             marked lines of the script."
                .to_owned()
        }
        (StopReason::RepeatedActionLimit, Decider::Model) => {
            "The model asked for the same thing more often in a row than max_identical_actions \
             allows. Word the task otherwise, or choose a larger model."
                .to_owned()
        }
        (StopReason::RepeatedActionLimit, Decider::Script) => {
            "The model asked for the same thing more often in a row than max_identical_actions \
             allows. Change the script so that it goes on."
                .to_owned()
        }
        (StopReason::GeneratorFailed, Decider::Script) => {
            format!("The script has no reply here: {error}.")
        }
        (StopReason::GeneratorFailed, Decider::Model) => {
            format!("The model did not reply: {error}.")
        }
        (StopReason::StorageFailed, _) => format!(
            "The result was not stored, and so it was not shown to the model either: {error}. \
             Artifacts that were stored before are untouched."
        ),
        (StopReason::Cancelled, _) => "The run was stopped.".to_owned(),
    }
}

impl Playground {
    /// Runs until the end, or until it is paused.
    pub fn run(self) {
        if self.busy.get_untracked() {
            return;
        }
        if self.phase.get_untracked() == Phase::Ended {
            self.reset();
        }
        let turn = self.next_turn();
        self.phase.set(Phase::Running);
        spawn_local(async move {
            while self.advance().await && self.turn.get_value() == turn {
                self.rest(turn).await;
                if self.turn.get_value() != turn {
                    break;
                }
            }
        });
    }

    /// The pause between two steps: longer while a process runs, so that there is something new to see.
    async fn rest(self, turn: u64) {
        browser::sleep(PACE_MILLISECONDS).await;
        let mut pauses = PAUSES_FOR_A_PROCESS;
        while pauses > 0 && self.turn.get_value() == turn && self.process_runs(|_| true) {
            browser::sleep(PACE_MILLISECONDS).await;
            pauses -= 1;
        }
    }

    /// Takes one step and waits.
    pub fn step(self) {
        if self.busy.get_untracked() || self.phase.get_untracked() == Phase::Ended {
            return;
        }
        self.pause();
        spawn_local(async move {
            self.advance().await;
        });
    }

    /// Lets the step that is being carried out be the last for now.
    pub fn pause(self) {
        self.next_turn();
        self.phase.set(Phase::Paused);
    }

    /// Ends the run at once, in the middle of a reply if there is one.
    pub fn stop(self) {
        self.next_turn();
        match self.stopper.get_value() {
            Some(stopper) => stopper.abort(),
            // Between two steps nothing can be stopped but what would follow.
            None => self.stop_between_steps(),
        }
    }

    fn stop_between_steps(self) {
        let session = self.session.try_update_value(Option::take).flatten();
        let Some(session) = session else {
            // It has not begun yet.
            return self.reset();
        };
        let outcome = session.stopped();
        self.end_job(session, JobStatus::Cancelled);
        self.finish(outcome);
    }

    fn finish(self, outcome: RunOutcome) {
        let decider = self.run_decider.get_untracked();
        self.announcement.set(explain(&outcome, decider));
        self.outcome.set(Some(outcome));
        self.phase.set(Phase::Ended);
    }

    /// Forgets the run; artifacts stay.
    pub fn reset(self) {
        self.next_turn();
        if let Some(stopper) = self.stopper.get_value() {
            stopper.abort();
        }
        let session = self.session.try_update_value(Option::take).flatten();
        if let Some(session) = session
            && self.phase.get_untracked() != Phase::Ended
        {
            self.end_job(session, JobStatus::Cancelled);
        }
        self.leave_processes();
        self.phase.set(Phase::Ready);
        self.steps.set(Vec::new());
        self.opening.set(Vec::new());
        self.outcome.set(None);
        self.announcement.set(String::new());
    }

    fn next_turn(self) -> u64 {
        self.turn.update_value(|turn| *turn += 1);
        self.turn.get_value()
    }

    fn end_job(self, session: Session, status: JobStatus) {
        spawn_local(async move {
            if let Err(error) = session.end_job(status).await {
                self.notify(format!("The end of the run was not recorded: {error}."));
            }
        });
    }

    /// Takes a step; whether there can be another.
    async fn advance(self) -> bool {
        self.busy.set(true);
        let Some(mut session) = self.take_session().await else {
            self.busy.set(false);
            return false;
        };
        let (stopper, stoppable) = AbortHandle::new_pair();
        self.stopper.set_value(Some(stopper));
        let (mut step, outcome) = session.step(stoppable).await;
        self.stopper.set_value(None);
        let figures = self.live.take_figures();
        if let Some(step) = &mut step {
            step.figures = figures;
        }
        self.busy.set(false);
        // The run was reset while the step was under way.
        if self.phase.get_untracked() == Phase::Ready {
            self.end_job(session, JobStatus::Cancelled);
            return false;
        }
        if let Some(outcome) = &outcome {
            let status = match outcome.reason {
                StopReason::Completed => JobStatus::Completed,
                StopReason::Cancelled => JobStatus::Cancelled,
                _ => JobStatus::Failed,
            };
            if let Err(error) = session.end_job(status).await {
                self.notify(format!("The end of the run was not recorded: {error}."));
            }
            // How long its artifacts are kept is known now.
            self.artifacts_changed().await;
        }
        if let (Some(step), Bounds::ToolOutput { job, .. }) = (&step, &session.bounds)
            && let Some((id, argv)) = session.started(step)
        {
            self.watch(job.id.clone(), id, argv);
        }
        self.session.set_value(Some(session));
        if let Some(step) = step {
            self.show(step).await;
        }
        if let Some(outcome) = outcome {
            self.finish(outcome);
            return false;
        }
        true
    }

    async fn take_session(self) -> Option<Session> {
        let session = self.session.try_update_value(Option::take).flatten();
        if session.is_some() {
            return session;
        }
        let contract = self.contract.get_untracked();
        let limits = self
            .limits
            .with_untracked(|limits| limits.check(contract).ok());
        let (Some(limits), Some(storage)) = (limits, self.storage.get_untracked()) else {
            // The buttons say which of the two is missing.
            self.phase.set(Phase::Ready);
            return None;
        };
        let session = match Session::new(self, storage, limits).await {
            Ok(session) => session,
            Err(error) => {
                self.notify(format!("The run could not begin: {error}."));
                self.phase.set(Phase::Ready);
                return None;
            }
        };
        // The run was reset while it began.
        if self.phase.get_untracked() == Phase::Ready {
            self.end_job(session, JobStatus::Cancelled);
            return None;
        }
        let content = |message: &Message| message.content.clone();
        self.opening
            .set(session.run.messages().iter().map(content).collect());
        self.run_limits.set(limits.evidence);
        self.run_decider.set(self.live.decider.get_untracked());
        Some(session)
    }

    /// Adds a step to the timeline and turns to what it is about.
    async fn show(self, step: Step) {
        self.announcement
            .set(format!("Step {}: {}.", step.number, step.title));
        let evidence = step.evidence.clone();
        self.steps.update(|steps| steps.push(step));
        match evidence {
            Evidence::Externalized(key) => {
                self.artifacts_changed().await;
                self.look_at(key, None);
            }
            Evidence::Range(key, start, end) => self.look_at(key, Some((start, end))),
            Evidence::Streams(_) | Evidence::Inline | Evidence::Refused | Evidence::Final => {}
        }
    }
}

/// What a step's badge says.
pub fn badge(step: &Step) -> String {
    match &step.evidence {
        Evidence::Inline => "complete".to_owned(),
        Evidence::Externalized(_) => "bounded".to_owned(),
        Evidence::Range(_, start, end) => format!("exact bytes {}", range(*start, *end)),
        Evidence::Streams(bytes) => {
            let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
            counted(bytes, "exact byte")
        }
        Evidence::Refused => "error".to_owned(),
        Evidence::Final => "final".to_owned(),
    }
}
