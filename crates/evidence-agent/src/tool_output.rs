//! The workspace and the generator of runs under contract B.
//!
//! Both contracts work over one [`Store`]; which of them holds is chosen by what wraps a run's
//! workspace.

use evidence_core::cursor::ReadArguments;
use evidence_core::envelope::{self, EnvelopeTooLarge, MaxInputBytes};
use evidence_core::process::{POLL_TOOL, START_TOOL, STOP_TOOL};
use evidence_core::tool_output::READ_TOOL;
use evidence_core::{JobId, RawJson, SessionId, ToolResult};
use evidence_store::{Store, ToolOutputError, ToolOutputs};

use crate::action::{ToolCall, ToolName};
use crate::generator::{Generator, GeneratorError};
use crate::message::Message;
use crate::policy::ToolPolicy;
use crate::process::{NoProcesses, ProcessCall, ProcessError, ProcessTools};
use crate::workspace::{ToolError, Workspace};

/// Wraps a workspace: every result is a serialized [`ToolResult`] of at most 16 KiB, what is larger
/// is stored whole, and [`READ_TOOL`] reads it by cursor. Where there are processes, their tools are
/// there too; what may be started is the wrapped workspace's to say.
#[derive(Debug)]
pub struct ToolOutputWorkspace<W, S, P = NoProcesses> {
    workspace: W,
    outputs: ToolOutputs<S>,
    session: SessionId,
    job: JobId,
    processes: P,
    provenance: Option<String>,
}

impl<W: Workspace, S: Store> ToolOutputWorkspace<W, S> {
    /// Wraps `workspace`; its results belong to `job`, an active job of the authenticated `session`.
    pub const fn new(
        workspace: W,
        outputs: ToolOutputs<S>,
        session: SessionId,
        job: JobId,
    ) -> Self {
        Self {
            workspace,
            outputs,
            session,
            job,
            processes: NoProcesses,
            provenance: None,
        }
    }
}

impl<W: Workspace, S: Store, P: ProcessTools> ToolOutputWorkspace<W, S, P> {
    /// The same with `processes`, which are recorded in the same store.
    pub fn with_processes<Q: ProcessTools>(self, processes: Q) -> ToolOutputWorkspace<W, S, Q> {
        ToolOutputWorkspace {
            workspace: self.workspace,
            outputs: self.outputs,
            session: self.session,
            job: self.job,
            processes,
            provenance: self.provenance,
        }
    }

    /// The wrapped workspace.
    pub const fn workspace(&self) -> &W {
        &self.workspace
    }

    /// The wrapped workspace, to change it from outside of a run.
    pub const fn workspace_mut(&mut self) -> &mut W {
        &mut self.workspace
    }

    /// Where the complete results are.
    pub const fn outputs(&self) -> &ToolOutputs<S> {
        &self.outputs
    }

    /// The answer leaves room for the result around it and is never stored again.
    async fn read(&self, arguments: &ReadArguments) -> Result<ToolResult, ToolOutputError> {
        let answer = self
            .outputs
            .read_tool(&self.session, &self.job, arguments)
            .await?;
        Ok(ToolResult {
            data: RawJson::parse(&answer).ok(),
            ..ToolResult::from_text(true, String::new())
        })
    }

    async fn call_process(
        &mut self,
        call: &ToolCall,
        process: &ProcessCall,
    ) -> Result<String, ToolError> {
        if let ProcessCall::Start(start) = process {
            match self.workspace.authorize(call, &start.argv).await {
                Err(ToolError::Refused(sentence)) => {
                    return Ok(ToolResult::from_text(false, sentence).serialize());
                }
                answer => answer?,
            }
        }
        let answer = self
            .processes
            .call(&self.session, &self.job, None, process)
            .await;
        match answer {
            Ok(outcome) => {
                self.provenance = outcome.reference;
                Ok(outcome.result)
            }
            Err(ProcessError::ToolOutput(error)) => Self::refused(error),
            Err(error) => Ok(ToolResult::from_text(false, error.to_string()).serialize()),
        }
    }

    /// What the model is told in place of a result; an error ends the run.
    fn refused(error: ToolOutputError) -> Result<String, ToolError> {
        match error {
            // The model can ask for something else.
            ToolOutputError::Unavailable
            | ToolOutputError::Integrity
            | ToolOutputError::Read(_)
            | ToolOutputError::ResultTooLarge { .. } => {
                Ok(ToolResult::from_text(false, error.to_string()).serialize())
            }
            error => Err(error.into()),
        }
    }
}

impl<W: Workspace, S: Store, P: ProcessTools> Workspace for ToolOutputWorkspace<W, S, P> {
    fn policy(&self) -> &ToolPolicy {
        self.workspace.policy()
    }

    fn available_tools(&self) -> Vec<ToolName> {
        let mut tools = self.workspace.available_tools();
        tools.push(ToolName::ReadToolOutput);
        tools.extend(self.processes.tools());
        tools
    }

    fn modified_files(&self) -> Vec<String> {
        self.workspace.modified_files()
    }

    async fn execute(&mut self, call: &ToolCall) -> Result<String, ToolError> {
        if let ToolCall::ReadToolOutput(arguments) = call {
            return match self.read(arguments).await {
                Ok(result) => Ok(result.serialize()),
                Err(error) => Self::refused(error),
            };
        }
        if let ToolCall::Process(process) = call {
            return self.call_process(call, process).await;
        }
        let result = match self.workspace.execute_structured(call).await {
            Ok(result) => result,
            Err(ToolError::Refused(sentence)) => ToolResult::from_text(false, sentence),
            Err(error) => return Err(error),
        };
        let recorded = self
            .outputs
            .record(&self.session, &self.job, None, result, None)
            .await;
        match recorded {
            Ok(outcome) => {
                self.provenance = outcome.reference;
                Ok(outcome.result)
            }
            Err(error) => Self::refused(error),
        }
    }

    fn instructions(&self) -> String {
        let instructions = self.workspace.instructions();
        let processes = if self.processes.tools().is_empty() {
            String::new()
        } else {
            format!(
                "\n\
                 Start one of these as a process, look at it until it has ended, or end it:\n\
                 {{\"tool\":\"{START_TOOL}\",\"argv\":[\"exact\",\"arguments\"]}}\n\
                 {{\"tool\":\"{POLL_TOOL}\",\"process_id\":\"...\"}}\n\
                 {{\"tool\":\"{STOP_TOOL}\",\"process_id\":\"...\"}}\n\
                 {POLL_TOOL} shows head and tail of the output. With stdout_offset or stderr_offset it \
                 answers exact bytes from there."
            )
        };
        format!(
            "{instructions}{processes}\n\
             Tool results are JSON: success, text, data and receipt.\n\
             A result whose data has the kind tool_output_ref is an excerpt. Read its exact bytes, from any offset, with:\n\
             {{\"tool\":\"{READ_TOOL}\",\"sha256\":\"...\",\"offset\":0,\"limit\":8192}}\n\
             Continue at next_offset until done is true."
        )
    }

    fn take_provenance(&mut self) -> Option<String> {
        self.provenance.take()
    }
}

/// Wraps a generator: what is too large for a provider is refused before it is sent, whole. Nothing is
/// dropped to make it fit.
///
/// What is measured is the conversation in the form that the chat interfaces of providers share, an
/// array of roles and contents. A generator whose body has more in it, such as schemas, measures that
/// body itself with [`evidence_core::envelope`].
#[derive(Debug)]
pub struct EnvelopeGenerator<G> {
    generator: G,
    max_input_bytes: MaxInputBytes,
}

impl<G: Generator> EnvelopeGenerator<G> {
    /// Wraps `generator`, whose input has at most `max_input_bytes`.
    pub const fn new(generator: G, max_input_bytes: MaxInputBytes) -> Self {
        Self {
            generator,
            max_input_bytes,
        }
    }

    fn check(&self, messages: &[Message]) -> Result<(), GeneratorError> {
        let json = |error: serde_json::Error| GeneratorError(error.to_string());
        let too_large = |error: EnvelopeTooLarge| GeneratorError(error.to_string());
        for message in messages {
            let message = serde_json::to_string(message).map_err(json)?;
            envelope::check_message(&message)
                .require()
                .map_err(too_large)?;
        }
        let body = serde_json::to_string(messages).map_err(json)?;
        self.max_input_bytes
            .check(&body)
            .require()
            .map_err(too_large)
    }
}

impl<G: Generator> Generator for EnvelopeGenerator<G> {
    async fn generate(
        &mut self,
        messages: &[Message],
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        self.check(messages)?;
        self.generator.generate(messages, on_text).await
    }
}
