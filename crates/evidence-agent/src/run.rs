//! The loop (contract A).

use serde::Serialize;

use crate::action::{Action, ToolCall, ToolName};
use crate::generator::Generator;
use crate::limits::AgentLimits;
use crate::message::{Message, Role};
use crate::workspace::{ToolError, Workspace};

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model gave its final text.
    Completed,
    /// The model had all its replies.
    StepLimit,
    /// The next prompt would have been too long.
    ContextLimit,
    /// Too many replies in a row were no action.
    InvalidActionLimit,
    /// The model asked for the same thing too often.
    RepeatedActionLimit,
    /// The generator had no reply.
    GeneratorFailed,
    /// A result could not be stored; it was not shown either.
    StorageFailed,
    /// The host stopped the run.
    Cancelled,
}

/// What happened in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepEvent {
    /// From 1.
    pub step: usize,
    /// What the model wrote.
    pub response: String,
    /// What that asked for, if it was an action.
    pub action: Option<Action>,
    /// What the model is told; none after the final action.
    pub result: Option<String>,
    /// The reference to the complete result, if it was stored (contract B).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<String>,
}

/// What an observer is told while a run goes on.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The model is about to read `messages`.
    Prompt {
        /// From 1.
        step: usize,
        /// The whole conversation.
        messages: &'a [Message],
    },
    /// The model wrote a piece of its reply.
    Text {
        /// From 1.
        step: usize,
        /// The piece.
        text: &'a str,
    },
    /// A step is over.
    Step(&'a StepEvent),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunOutcome {
    /// Whether the model came to its final text.
    pub completed: bool,
    /// Why it ended.
    pub reason: StopReason,
    /// The final text.
    pub r#final: Option<String>,
    /// Every step.
    pub events: Vec<StepEvent>,
    /// What the workspace says was changed by commands.
    pub modified_files: Vec<String>,
    /// The sentence that a generator or a store failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A run in progress. Call [`Run::step`] until it answers an outcome, or [`Run::to_end`].
#[derive(Debug)]
pub struct Run {
    limits: AgentLimits,
    messages: Vec<Message>,
    events: Vec<StepEvent>,
    invalid_actions: usize,
    last_call: Option<ToolCall>,
    identical_calls: usize,
}

impl Run {
    /// Begins a run of `task` with the tools of `workspace`.
    pub fn new(task: &str, workspace: &impl Workspace, limits: AgentLimits) -> Self {
        let messages = vec![
            Message::new(Role::System, workspace.instructions()),
            Message::new(Role::User, task),
        ];
        Self {
            limits,
            messages,
            events: Vec::new(),
            invalid_actions: 0,
            last_call: None,
            identical_calls: 0,
        }
    }

    /// The conversation so far: what the model reads next.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The steps so far.
    pub fn events(&self) -> &[StepEvent] {
        &self.events
    }

    /// The outcome of ending the run here for `reason`.
    pub fn stop(&self, reason: StopReason, workspace: &impl Workspace) -> RunOutcome {
        RunOutcome {
            completed: reason == StopReason::Completed,
            reason,
            r#final: None,
            events: self.events.clone(),
            modified_files: workspace.modified_files(),
            error: None,
        }
    }

    /// Steps until the run ends.
    pub async fn to_end(
        mut self,
        workspace: &mut impl Workspace,
        generator: &mut impl Generator,
        observe: &mut dyn FnMut(RunEvent<'_>),
    ) -> RunOutcome {
        loop {
            if let Some(outcome) = self.step(workspace, generator, observe).await {
                return outcome;
            }
        }
    }

    /// Lets the model reply once and carries out what it asked for. The outcome is there when the
    /// run has ended; a later call would begin a step that the limits do not allow.
    ///
    /// Dropping the future cancels the step: the run is as it was before it, but for what the
    /// workspace had done by then.
    pub async fn step(
        &mut self,
        workspace: &mut impl Workspace,
        generator: &mut impl Generator,
        observe: &mut dyn FnMut(RunEvent<'_>),
    ) -> Option<RunOutcome> {
        if self.events.len() >= self.limits.max_steps() {
            return Some(self.stop(StopReason::StepLimit, workspace));
        }
        let chars: usize = self
            .messages
            .iter()
            .map(|m| m.content.chars().count())
            .sum();
        if chars > self.limits.max_context_chars() {
            return Some(self.stop(StopReason::ContextLimit, workspace));
        }
        let step = self.events.len() + 1;
        observe(RunEvent::Prompt {
            step,
            messages: &self.messages,
        });
        let mut on_text = |text: &str| observe(RunEvent::Text { step, text });
        let response = match generator.generate(&self.messages, &mut on_text).await {
            Ok(response) => response,
            Err(error) => {
                let outcome = self.stop(StopReason::GeneratorFailed, workspace);
                return Some(RunOutcome {
                    error: Some(error.to_string()),
                    ..outcome
                });
            }
        };
        let action = Action::parse(&response, Some(&workspace.available_tools()));
        let mut end = None;
        let mut failure = None;
        let (action, result) = match action {
            Err(error) => {
                self.invalid_actions += 1;
                if self.invalid_actions >= self.limits.max_invalid_actions() {
                    end = Some(StopReason::InvalidActionLimit);
                }
                (None, Some(error_line(&error)))
            }
            Ok(Action::Final(text)) => {
                end = Some(StopReason::Completed);
                (Some(Action::Final(text)), None)
            }
            Ok(Action::Tool(call)) => {
                self.invalid_actions = 0;
                let result = if self.repeats_too_often(&call) {
                    end = Some(StopReason::RepeatedActionLimit);
                    "error: identical action loop detected".to_owned()
                } else {
                    match workspace.execute(&call).await {
                        Ok(text) => text,
                        Err(error) => {
                            if !matches!(error, ToolError::Refused(_)) {
                                end = Some(StopReason::StorageFailed);
                                failure = Some(error.to_string());
                            }
                            error_line(&error)
                        }
                    }
                };
                (Some(Action::Tool(call)), Some(result))
            }
        };
        let provenance = workspace.take_provenance();
        self.record(
            StepEvent {
                step,
                response,
                action,
                result,
                provenance,
            },
            observe,
        );
        let outcome = self.stop(end?, workspace);
        let r#final = match self.events.last().and_then(|event| event.action.as_ref()) {
            Some(Action::Final(text)) => Some(text.clone()),
            _ => None,
        };
        Some(RunOutcome {
            r#final,
            error: failure,
            ..outcome
        })
    }

    /// Looking at a process again is how one waits for it: the steps alone bound that.
    fn repeats_too_often(&mut self, call: &ToolCall) -> bool {
        if call.name() == ToolName::PollProcess {
            return false;
        }
        if self.last_call.as_ref() == Some(call) {
            self.identical_calls += 1;
        } else {
            self.last_call = Some(call.clone());
            self.identical_calls = 1;
        }
        self.identical_calls > self.limits.max_identical_actions()
    }

    fn record(&mut self, event: StepEvent, observe: &mut dyn FnMut(RunEvent<'_>)) {
        self.messages
            .push(Message::new(Role::Assistant, event.response.as_str()));
        if let Some(result) = &event.result {
            self.messages
                .push(Message::new(Role::User, format!("Tool result:\n{result}")));
        }
        observe(RunEvent::Step(&event));
        self.events.push(event);
    }
}

/// What the model reads in place of a result: an error is one line that says so.
pub fn error_line(error: &impl std::fmt::Display) -> String {
    format!("error: {error}")
}
