//! The run: one step at a time, as far as the user lets it go.

use evidence_agent::{
    Action, BoundedEvidenceWorkspace, Message, Run, RunEvent, RunOutcome, ScriptedGenerator,
    StepEvent, StopReason, ToolCall, script_replies,
};
use evidence_core::observation::{EXTERNALIZED_HEADER, is_inline};
use evidence_core::range::{RANGE_HEADER, RangePath};
use evidence_core::{ArtifactId, EvidenceLimits};
use leptos::prelude::*;
use leptos::task::spawn_local;
use serde::Deserialize;

use crate::browser;
use crate::limits::{self, Limits};
use crate::measured::MeasuredWorkspace;
use crate::state::Playground;
use crate::storage::{Artifacts, PageStore};
use crate::text::range;

/// The pause between two steps, so that a run can be followed and stopped.
const PACE_MILLISECONDS: i32 = 250;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The model saw the complete result.
    Inline,
    /// The model saw an observation of this artifact.
    Externalized(ArtifactId),
    /// The model saw these bytes of this artifact.
    Range(ArtifactId, usize, usize),
    /// The model saw an error.
    Refused,
    /// There was no tool.
    Final,
}

/// A step as the timeline shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

/// A run in progress and everything that belongs to it.
#[derive(Debug)]
pub struct Session {
    run: Run,
    workspace: BoundedEvidenceWorkspace<MeasuredWorkspace, PageStore>,
    generator: ScriptedGenerator<PageStore>,
    limits: EvidenceLimits,
    /// How many bytes the observations have kept out of the conversation.
    kept_out_bytes: usize,
}

impl Session {
    fn new(page: Playground, artifacts: &Artifacts, limits: Limits) -> Self {
        let files = page.files.get_untracked();
        let workspace = BoundedEvidenceWorkspace::new(
            MeasuredWorkspace::new(files, limits::policy()),
            artifacts.clone(),
            limits.evidence,
        );
        let replies: Vec<String> = page.script.with_untracked(|text| {
            let replies = script_replies(text);
            replies.map(|(_, reply)| reply.to_owned()).collect()
        });
        let task = page.task.get_untracked();
        Self {
            run: Run::new(&task, &workspace, limits.agent),
            generator: ScriptedGenerator::new(replies, artifacts.clone()),
            workspace,
            limits: limits.evidence,
            kept_out_bytes: 0,
        }
    }

    /// Takes one step; the step is missing when the run ended before the model replied.
    async fn step(&mut self) -> (Option<Step>, Option<RunOutcome>) {
        let prompt_bytes = self.run.messages().iter().map(|m| m.content.len()).sum();
        let steps_before = self.run.events().len();
        let outcome = self
            .run
            .step(
                &mut self.workspace,
                &mut self.generator,
                &mut |_: RunEvent<'_>| {},
            )
            .await;
        let complete_bytes = self.workspace.workspace_mut().take_complete_bytes();
        let event = self.run.events().get(steps_before).cloned();
        let step = event.map(|event| self.describe(event, prompt_bytes, complete_bytes));
        (step, outcome)
    }

    fn describe(
        &mut self,
        event: StepEvent,
        prompt_bytes: usize,
        complete_bytes: Option<usize>,
    ) -> Step {
        let unbounded_prompt_bytes = prompt_bytes + self.kept_out_bytes;
        let result = event.result.as_deref();
        let evidence = evidence(event.action.as_ref(), result, complete_bytes, &self.limits);
        if let (Evidence::Externalized(_), Some(complete), Some(shown)) =
            (evidence, complete_bytes, result)
        {
            self.kept_out_bytes += complete.saturating_sub(shown.len());
        }
        Step {
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
        return externalized(result).map_or(Evidence::Refused, Evidence::Externalized);
    }
    let Some(Action::Tool(ToolCall::ReadFile { path })) = action else {
        return Evidence::Refused;
    };
    // No tool of the workspace succeeded, so that this is a range answer or an error.
    let answer = result.strip_prefix(RANGE_HEADER).and_then(|_| {
        let path = RangePath::parse(path).ok()?;
        let range = path.check(u64::MAX, limits.max_range_bytes()).ok()?;
        Some(Evidence::Range(path.artifact_id(), range.start, range.end))
    });
    answer.unwrap_or(Evidence::Refused)
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
pub fn explain(outcome: &RunOutcome) -> String {
    let error = outcome.error.as_deref().unwrap_or_default();
    match outcome.reason {
        StopReason::Completed => "The model gave its final answer.".to_owned(),
        StopReason::StepLimit => {
            "The run used all its steps without a final answer. Raise max_steps, or let the script \
             end with a final action."
                .to_owned()
        }
        StopReason::ContextLimit => {
            "The next prompt would have more characters than max_context_chars allows. Lower \
             max_inline_bytes, or raise max_context_chars."
                .to_owned()
        }
        StopReason::InvalidActionLimit => {
            "As many replies in a row as max_invalid_actions allows were no action. Correct the \
             marked lines of the script."
                .to_owned()
        }
        StopReason::RepeatedActionLimit => {
            "The model asked for the same thing more often in a row than max_identical_actions \
             allows. Change the script so that it goes on."
                .to_owned()
        }
        StopReason::GeneratorFailed => format!("The script has no reply here: {error}."),
        StopReason::StorageFailed => format!(
            "The result was not stored, and so it was not shown to the model either: {error}. \
             Artifacts that were stored before are untouched."
        ),
        StopReason::Cancelled => "The run was stopped.".to_owned(),
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
                browser::sleep(PACE_MILLISECONDS).await;
                if self.turn.get_value() != turn {
                    break;
                }
            }
        });
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

    /// Forgets the run; artifacts stay.
    pub fn reset(self) {
        self.next_turn();
        self.session.set_value(None);
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

    /// Takes a step; whether there can be another.
    async fn advance(self) -> bool {
        let Some(mut session) = self.take_session() else {
            return false;
        };
        self.busy.set(true);
        let (step, outcome) = session.step().await;
        self.busy.set(false);
        // The run was reset while the step was under way.
        if self.phase.get_untracked() == Phase::Ready {
            return false;
        }
        self.session.set_value(Some(session));
        if let Some(step) = step {
            self.show(step).await;
        }
        if let Some(outcome) = outcome {
            self.announcement.set(explain(&outcome));
            self.outcome.set(Some(outcome));
            self.phase.set(Phase::Ended);
            return false;
        }
        true
    }

    fn take_session(self) -> Option<Session> {
        let session = self.session.try_update_value(Option::take).flatten();
        if session.is_some() {
            return session;
        }
        let limits = self.limits.with_untracked(|limits| limits.check().ok());
        let (Some(limits), Some(artifacts)) = (limits, self.storage.get_untracked()) else {
            // The buttons say which of the two is missing.
            self.phase.set(Phase::Ready);
            return None;
        };
        let session = Session::new(self, &artifacts, limits);
        let content = |message: &Message| message.content.clone();
        self.opening
            .set(session.run.messages().iter().map(content).collect());
        self.run_limits.set(limits.evidence);
        Some(session)
    }

    /// Adds a step to the timeline and turns to what it is about.
    async fn show(self, step: Step) {
        self.announcement
            .set(format!("Step {}: {}.", step.number, step.title));
        let evidence = step.evidence;
        self.steps.update(|steps| steps.push(step));
        match evidence {
            Evidence::Externalized(id) => {
                self.artifacts_changed().await;
                self.look_at(id, None);
            }
            Evidence::Range(id, start, end) => self.look_at(id, Some((start, end))),
            Evidence::Inline | Evidence::Refused | Evidence::Final => {}
        }
    }
}

/// What a step's badge says.
pub fn badge(step: &Step) -> String {
    match step.evidence {
        Evidence::Inline => "complete".to_owned(),
        Evidence::Externalized(_) => "bounded".to_owned(),
        Evidence::Range(_, start, end) => format!("exact bytes {}", range(start, end)),
        Evidence::Refused => "error".to_owned(),
        Evidence::Final => "final".to_owned(),
    }
}
