//! The agent loop over functions of JavaScript.

use std::cell::RefCell;
use std::pin::pin;

use evidence_agent::workspace::{
    Approval, CommandOutput, CommandRunner, MemoryTree, Operator, ToolWorkspace,
};
use evidence_agent::{
    AgentLimits, BoundedEvidenceWorkspace, EnvelopeGenerator, Generator, GeneratorError, Message,
    Run, RunEvent, RunOutcome, StepEvent, StopReason, ToolCall, ToolError, ToolName,
    ToolOutputWorkspace, ToolPolicy, Workspace,
};
use evidence_core::envelope::MaxInputBytes;
use evidence_core::{EvidenceLimits, JobId, SessionId};
use evidence_store::{ArtifactStore, ToolOutputs};
use futures_util::future::{Either, select};
use js_sys::{Function, JSON, Promise};
use serde::{Serialize, Serializer};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::AbortSignal;

use crate::argument::{Argument, call};
use crate::artifacts::{Artifacts, evidence_limits, object};
use crate::error::{Failure, Result};
#[cfg(feature = "processes")]
use crate::processes::Processes;
use crate::store::AnyStore;
use crate::tool_output::{ToolOutput, job_id, max_input_bytes};

/// The most bytes of all files together: they stand in the memory of this instance.
const MAX_FILES_BYTES: usize = 256 * 1024 * 1024;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** One message of the conversation. */
export interface Message {
  /** Who wrote it. */
  role: "system" | "user" | "assistant";
  /** What they wrote. */
  content: string;
}

/** A tool with its arguments, as the model names it. */
export interface ToolCall {
  /** Its name. */
  tool: "list_files" | "read_file" | "write_file" | "edit_file" | "run_command" | "akh_read_tool_output" | "exec_start" | "exec_poll" | "exec_stop";
  /** Its arguments, by their names. */
  arguments: Record<string, string | number | string[]>;
}

/** What a reply of the model asks for. */
export type Action =
  | ToolCall
  | {
      /** The answer that ends the run. */
      final: string;
    };

/** One step of a run. */
export interface StepEvent {
  /** From 1. */
  step: number;
  /** What the model wrote. */
  response: string;
  /** What that asked for, if it was an action. */
  action: Action | null;
  /** What the model is told; nothing after the final action. */
  result: string | null;
  /** The JSON of the reference to the complete result, when that was stored (contract B). */
  provenance?: string;
}

/** What `onEvent` is told. */
export type RunEvent =
  /** The model is about to read the whole conversation. */
  | {
      /** Which event this is. */
      type: "prompt";
      /** From 1. */
      step: number;
      /** All that the model reads. */
      messages: Message[];
    }
  /** A step is over. */
  | ({
      /** Which event this is. */
      type: "step";
    } & StepEvent);

/** What a command left; an exit code of null: it was killed. */
export interface CommandOutput {
  /** How it exited; null where it was killed. */
  exitCode: number | null;
  /** What it wrote to its standard output; nothing when left out. */
  stdout?: string | Uint8Array;
  /** What it wrote to its standard error; nothing when left out. */
  stderr?: string | Uint8Array;
}

/** What a run is made of. */
export interface RunOptions {
  /** What the model is asked to do. */
  task: string;
  /** The files of the workspace, by path. */
  files?: Record<string, string | Uint8Array>;
  /** Writes the model's reply. What it throws ends the run. */
  generate(request: { messages: Message[]; signal?: AbortSignal }): string | PromiseLike<string>;
  /** How much of a tool result reaches the model. */
  limits?: EvidenceLimits;
  /** How far a run may go. */
  agentLimits?: {
    /** The most replies; 8 when left out. */
    maxSteps?: number;
    /** The most code points of all messages; 48,000 when left out. */
    maxContextChars?: number;
    /** How many replies in a row that are no action end the run; 3 when left out. */
    maxInvalidActions?: number;
    /** How often in a row the same action is carried out; 2 when left out. */
    maxIdenticalActions?: number;
  };
  /** What the tools may do: read, when it is left out. */
  policy?: {
    /** Whether files may be written and edited; false when left out. */
    allowWrites?: boolean;
    /** The exact argument arrays that run_command and exec_start accept. */
    allowedCommands?: string[][];
    /** The most bytes of a file that is read. */
    maxFileBytes?: number;
    /** The most bytes of a file that is written. */
    maxWriteBytes?: number;
    /** The most entries of a list of files. */
    maxListEntries?: number;
  };
  /** Asked before anything changes: true, or a denial with or without its reason. */
  approve?(request: ToolCall & { signal?: AbortSignal }): boolean | string | PromiseLike<boolean | string>;
  /** The commands, by the first item of their argument arrays. */
  commands?: Record<
    string,
    (request: { argv: string[]; signal?: AbortSignal }) => CommandOutput | PromiseLike<CommandOutput>
  >;
  /** Told what happens as it happens. What it throws, the run rejects with. */
  onEvent?(event: RunEvent): void;
  /** Ends the run when it is aborted; the outcome's reason is "cancelled". */
  signal?: AbortSignal;
}

/** What a run under contract B is made of. */
export interface ToolOutputRunOptions extends Omit<RunOptions, "limits"> {
  /** The most bytes of the conversation as JSON, 1 to 8,388,608; that when left out. */
  maxInputBytes?: number;
}

/** How a run ended. */
export interface RunOutcome {
  /** Whether the model came to its final text. */
  completed: boolean;
  /** Why the run ended. */
  reason:
    | "completed"
    | "step_limit"
    | "context_limit"
    | "invalid_action_limit"
    | "repeated_action_limit"
    | "generator_failed"
    | "storage_failed"
    | "cancelled";
  /** The final text. */
  final: string | null;
  /** The steps until then. */
  events: StepEvent[];
  /** The files that the model wrote or edited, as they are now. */
  changedFiles: Record<string, string>;
  /** The sentence that the generator or the store failed with. */
  error?: string;
}
"#;

#[wasm_bindgen]
impl Artifacts {
    /// Runs the agent loop over a function that writes the replies. Large results of its tools are
    /// kept here, and range paths are answered from here.
    ///
    /// The outcome says how the run ended, also when that was a failure of the generator or of the
    /// store. The promise rejects for invalid options, and with what `onEvent` throws.
    #[wasm_bindgen(js_name = runAgent, unchecked_return_type = "RunOutcome")]
    pub async fn run_agent(
        &self,
        #[wasm_bindgen(unchecked_param_type = "RunOptions")] options: JsValue,
    ) -> Result<JsValue, JsValue> {
        let options = Argument::new("options", options);
        let limits = evidence_limits(options.field("limits")?)?;
        run(Contract::Ranges(self.store().clone(), limits), options).await
    }
}

#[wasm_bindgen]
impl ToolOutput {
    /// Runs the agent loop under contract B, with processes where `openProcesses` was called: every result of its tools is a structured one of at most
    /// 16 KiB, larger ones are stored in the job, and the model has a tool that reads them. The
    /// conversation is measured before each reply; one that is too large is not sent.
    ///
    /// Rejects with the code `unavailable` when the session has no such job, and otherwise as
    /// `Artifacts.runAgent` does.
    #[wasm_bindgen(js_name = runAgent, unchecked_return_type = "RunOutcome")]
    pub async fn run_agent(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(unchecked_param_type = "ToolOutputRunOptions")] options: JsValue,
    ) -> Result<JsValue, JsValue> {
        let job = job_id(job)?;
        let options = Argument::new("options", options);
        let limit = max_input_bytes(options.field("maxInputBytes")?)?;
        let outputs = self.outputs().clone();
        let found = outputs.job(self.session(), &job).await;
        found.map_err(Failure::from)?;
        let contract = Contract::ToolOutput {
            outputs,
            session: self.session().clone(),
            job,
            #[cfg(feature = "processes")]
            processes: self.processes(),
            #[cfg(not(feature = "processes"))]
            processes: evidence_agent::process::NoProcesses,
            limit,
        };
        run(contract, options).await
    }
}

/// Under which contract a run's results are bounded, and where they are kept.
enum Contract {
    Ranges(ArtifactStore<AnyStore>, EvidenceLimits),
    ToolOutput {
        outputs: ToolOutputs<AnyStore>,
        session: SessionId,
        job: JobId,
        processes: MaybeProcesses,
        limit: MaxInputBytes,
    },
}

/// The processes of a run.
#[cfg(feature = "processes")]
type MaybeProcesses = Option<Processes>;
/// This build has none.
#[cfg(not(feature = "processes"))]
type MaybeProcesses = evidence_agent::process::NoProcesses;

async fn run(contract: Contract, options: Argument) -> Result<JsValue, JsValue> {
    let task = options.field("task")?.text()?;
    let files = files(&options)?;
    let agent_limits = agent_limits(options.field("agentLimits")?)?;
    let policy = policy(options.field("policy")?)?;
    let cancellation = Cancellation::new(options.field("signal")?)?;
    let callback = |name| Callback::new(name, &options.field(name)?, &cancellation);
    let generator = JsGenerator(callback("generate")?);
    let approve = options.field("approve")?.optional();
    let operator = JsOperator(approve.map(|_| callback("approve")).transpose()?);
    let commands = JsCommands::new(options.field("commands")?, &cancellation)?;
    let on_event = options.field("onEvent")?.optional();
    let on_event = on_event.map(|on_event| on_event.function()).transpose()?;

    let before = policy.allow_writes.then(|| files.clone());
    let tools = ToolWorkspace::with(files, policy, commands, operator);
    let (mut workspace, mut generator) = match contract {
        Contract::Ranges(store, limits) => (
            BoundedTools::Ranges(BoundedEvidenceWorkspace::new(tools, store, limits)),
            Replies::Unmeasured(generator),
        ),
        Contract::ToolOutput {
            outputs,
            session,
            job,
            processes,
            limit,
        } => (
            BoundedTools::ToolOutput(
                ToolOutputWorkspace::new(tools, outputs, session, job).with_processes(processes),
            ),
            Replies::Measured(EnvelopeGenerator::new(generator, limit)),
        ),
    };
    let mut run = Run::new(&task, &workspace, agent_limits);
    let thrown = RefCell::new(None);
    let mut observe = |event: RunEvent<'_>| {
        if let (Some(on_event), Some(event)) = (&on_event, Event::of(&event)) {
            let told = on_event.call1(&JsValue::UNDEFINED, &to_js(&event));
            let first = thrown.take();
            thrown.replace(first.or(told.err()));
        }
    };
    let mut aborted = JsFuture::from(cancellation.aborted.clone());
    let outcome = loop {
        if let Some(exception) = thrown.take() {
            return Err(exception);
        }
        if cancellation.is_aborted() {
            break None;
        }
        let step = pin!(run.step(&mut workspace, &mut generator, &mut observe));
        // The signal is asked first: an aborted generator may fail at the same moment.
        match select(&mut aborted, step).await {
            Either::Left(_) => break None,
            Either::Right((Some(outcome), _)) => break Some(outcome),
            Either::Right((None, _)) => {}
        }
    };
    // The last step's events were told too.
    if let Some(exception) = thrown.take() {
        return Err(exception);
    }
    let outcome = outcome.unwrap_or_else(|| run.stop(StopReason::Cancelled, &workspace));
    let after = workspace.files();
    Ok(to_js(&Outcome::new(&outcome, before.as_ref(), after)))
}

/// The tools of a run.
type Tools<'a> = ToolWorkspace<MemoryTree, JsCommands<'a>, JsOperator<'a>>;

/// The tools of a run under one of the contracts. One type, so that the loop is compiled once.
enum BoundedTools<'a> {
    Ranges(BoundedEvidenceWorkspace<Tools<'a>, AnyStore>),
    ToolOutput(ToolOutputWorkspace<Tools<'a>, AnyStore, MaybeProcesses>),
}

impl BoundedTools<'_> {
    fn files(&self) -> &MemoryTree {
        match self {
            Self::Ranges(workspace) => workspace.workspace().tree(),
            Self::ToolOutput(workspace) => workspace.workspace().tree(),
        }
    }
}

impl Workspace for BoundedTools<'_> {
    fn policy(&self) -> &ToolPolicy {
        match self {
            Self::Ranges(workspace) => workspace.policy(),
            Self::ToolOutput(workspace) => workspace.policy(),
        }
    }

    fn available_tools(&self) -> Vec<ToolName> {
        match self {
            Self::Ranges(workspace) => workspace.available_tools(),
            Self::ToolOutput(workspace) => workspace.available_tools(),
        }
    }

    fn modified_files(&self) -> Vec<String> {
        match self {
            Self::Ranges(workspace) => workspace.modified_files(),
            Self::ToolOutput(workspace) => workspace.modified_files(),
        }
    }

    async fn execute(&mut self, call: &ToolCall) -> Result<String, ToolError> {
        match self {
            Self::Ranges(workspace) => workspace.execute(call).await,
            Self::ToolOutput(workspace) => workspace.execute(call).await,
        }
    }

    fn instructions(&self) -> String {
        match self {
            Self::Ranges(workspace) => workspace.instructions(),
            Self::ToolOutput(workspace) => workspace.instructions(),
        }
    }

    fn take_provenance(&mut self) -> Option<String> {
        match self {
            Self::Ranges(workspace) => workspace.take_provenance(),
            Self::ToolOutput(workspace) => workspace.take_provenance(),
        }
    }
}

/// Who writes the replies, with or without the envelope's check.
enum Replies<'a> {
    Unmeasured(JsGenerator<'a>),
    Measured(EnvelopeGenerator<JsGenerator<'a>>),
}

impl Generator for Replies<'_> {
    async fn generate(
        &mut self,
        messages: &[Message],
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        match self {
            Self::Unmeasured(generator) => generator.generate(messages, on_text).await,
            Self::Measured(generator) => generator.generate(messages, on_text).await,
        }
    }
}

fn files(options: &Argument) -> Result<MemoryTree> {
    let Some(files) = options.field("files")?.optional() else {
        return Ok(MemoryTree::new());
    };
    let mut tree = MemoryTree::new();
    let mut total = 0;
    for (path, file) in files.record()? {
        let bytes = file.bytes()?;
        total += bytes.len();
        if total > MAX_FILES_BYTES {
            return Err(Failure::invalid(format!(
                "options.files must be at most {MAX_FILES_BYTES} bytes together"
            )));
        }
        tree.insert(path, bytes);
    }
    Ok(tree)
}

fn agent_limits(limits: Argument) -> Result<AgentLimits> {
    let default = AgentLimits::default();
    let Some(limits) = limits.optional() else {
        return Ok(default);
    };
    AgentLimits::new(
        limits.integer_or("maxSteps", default.max_steps())?,
        limits.integer_or("maxContextChars", default.max_context_chars())?,
        limits.integer_or("maxInvalidActions", default.max_invalid_actions())?,
        limits.integer_or("maxIdenticalActions", default.max_identical_actions())?,
    )
    .map_err(|error| Failure::invalid(format!("options.agentLimits: {error}")))
}

fn policy(policy: Argument) -> Result<ToolPolicy> {
    let default = ToolPolicy::default();
    let Some(policy) = policy.optional() else {
        return Ok(default);
    };
    let allow_writes = match policy.field("allowWrites")?.optional() {
        Some(allowed) => allowed.boolean()?,
        None => default.allow_writes,
    };
    let allowed_commands = match policy.field("allowedCommands")?.optional() {
        Some(commands) => commands
            .list()?
            .iter()
            .map(|argv| argv.list()?.iter().map(Argument::text).collect())
            .collect::<Result<_>>()?,
        None => default.allowed_commands,
    };
    Ok(ToolPolicy {
        allow_writes,
        allowed_commands,
        max_file_bytes: policy.size_or("maxFileBytes", default.max_file_bytes)?,
        max_write_bytes: policy.size_or("maxWriteBytes", default.max_write_bytes)?,
        max_list_entries: policy.size_or("maxListEntries", default.max_list_entries)?,
    })
}

/// The caller's signal, if there is one.
#[derive(Debug)]
struct Cancellation {
    signal: Option<AbortSignal>,
    /// Settles when the signal is aborted.
    aborted: Promise,
    listener: Option<Function>,
}

impl Cancellation {
    fn new(signal: Argument) -> Result<Self> {
        let signal = match signal.optional() {
            Some(signal) => Some(signal.abort_signal()?),
            None => None,
        };
        let mut listener = None;
        let aborted = Promise::new(&mut |resolve, _| listener = Some(resolve));
        if let (Some(signal), Some(listener)) = (&signal, &listener) {
            // A signal that is one takes every listener.
            let _ = signal.add_event_listener_with_callback("abort", listener);
        }
        Ok(Self {
            signal,
            aborted,
            listener,
        })
    }

    fn is_aborted(&self) -> bool {
        self.signal.as_ref().is_some_and(AbortSignal::aborted)
    }

    /// A plain object with these fields, and the signal where there is one.
    fn request(&self, mut fields: Vec<(&'static str, JsValue)>) -> JsValue {
        if let Some(signal) = &self.signal {
            fields.push(("signal", signal.into()));
        }
        object(fields)
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        if let (Some(signal), Some(listener)) = (&self.signal, &self.listener) {
            let _ = signal.remove_event_listener_with_callback("abort", listener);
        }
    }
}

/// A function that the loop asks and waits for.
#[derive(Debug)]
struct Callback<'a> {
    name: String,
    function: Function,
    cancellation: &'a Cancellation,
}

impl<'a> Callback<'a> {
    fn new(name: &str, function: &Argument, cancellation: &'a Cancellation) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            function: function.function()?,
            cancellation,
        })
    }

    /// The answer, or a sentence when there is none.
    async fn call(&self, fields: Vec<(&'static str, JsValue)>) -> Result<Argument, String> {
        let request = self.cancellation.request(fields);
        match call(&self.function, &JsValue::UNDEFINED, &[request]).await {
            Ok(answer) => Ok(Argument::new(
                &format!("the answer of {}", self.name),
                answer,
            )),
            Err(exception) => {
                let message = Argument::new("exception", exception).message();
                Err(format!("{} failed: {message}", self.name))
            }
        }
    }
}

/// A function that writes the replies.
struct JsGenerator<'a>(Callback<'a>);

impl Generator for JsGenerator<'_> {
    async fn generate(
        &mut self,
        messages: &[Message],
        _on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        let reply = self.0.call(vec![("messages", to_js(&messages))]).await;
        let reply = reply.and_then(|reply| reply.text().map_err(Failure::into_message));
        reply.map_err(GeneratorError)
    }
}

/// A function that approves what changes something; without it the policy alone decides.
struct JsOperator<'a>(Option<Callback<'a>>);

impl Operator for JsOperator<'_> {
    async fn approve(&mut self, call: &ToolCall) -> Approval {
        let Some(approve) = &self.0 else {
            return Approval::Approved;
        };
        let request = vec![
            ("tool", call.name().as_str().into()),
            ("arguments", to_js(&call.arguments())),
        ];
        // Whatever is no clear approval is a denial.
        match approve.call(request).await {
            Ok(answer) if answer.is_text() => Approval::Denied(answer.text().ok()),
            Ok(answer) => match answer.boolean() {
                Ok(true) => Approval::Approved,
                Ok(false) => Approval::Denied(None),
                Err(failure) => Approval::Denied(Some(failure.into_message())),
            },
            Err(reason) => Approval::Denied(Some(reason)),
        }
    }
}

/// Functions in the place of programs.
struct JsCommands<'a>(Vec<(String, Callback<'a>)>);

impl<'a> JsCommands<'a> {
    fn new(commands: Argument, cancellation: &'a Cancellation) -> Result<Self> {
        let Some(commands) = commands.optional() else {
            return Ok(Self(Vec::new()));
        };
        let callback = |(name, function): (String, Argument)| {
            let callback = Callback::new(&format!("command {name}"), &function, cancellation)?;
            Ok((name, callback))
        };
        commands
            .record()?
            .into_iter()
            .map(callback)
            .collect::<Result<_>>()
            .map(Self)
    }
}

impl CommandRunner for JsCommands<'_> {
    async fn run(&mut self, argv: &[String]) -> Result<CommandOutput, String> {
        let mut commands = self.0.iter();
        let command = commands.find(|(name, _)| argv.first() == Some(name));
        let (_, command) = command.ok_or("this workspace does not have the command")?;
        let output = command.call(vec![("argv", to_js(&argv))]).await?;
        command_output(&output).map_err(Failure::into_message)
    }
}

fn command_output(output: &Argument) -> Result<CommandOutput> {
    let stream = |name| match output.field(name)?.optional() {
        Some(stream) => stream.bytes(),
        None => Ok(Vec::new()),
    };
    Ok(CommandOutput {
        exit_code: output.field("exitCode")?.exit_code()?,
        stdout: stream("stdout")?,
        stderr: stream("stderr")?,
    })
}

/// An event as JavaScript sees it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Event<'a> {
    Prompt {
        step: usize,
        messages: &'a [Message],
    },
    Step(&'a StepEvent),
}

impl<'a> Event<'a> {
    fn of(event: &RunEvent<'a>) -> Option<Self> {
        match *event {
            RunEvent::Prompt { step, messages } => Some(Self::Prompt { step, messages }),
            // A function answers with its whole reply: there are no pieces to tell of.
            RunEvent::Text { .. } => None,
            RunEvent::Step(step) => Some(Self::Step(step)),
        }
    }
}

/// An outcome as JavaScript sees it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    completed: bool,
    reason: StopReason,
    r#final: Option<&'a str>,
    events: &'a [StepEvent],
    #[serde(serialize_with = "as_object")]
    changed_files: Vec<(&'a str, &'a str)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> Outcome<'a> {
    fn new(outcome: &'a RunOutcome, before: Option<&MemoryTree>, after: &'a MemoryTree) -> Self {
        let changed_files = before.map_or_else(Vec::new, |before| {
            after
                .files()
                .filter(|(path, bytes)| before.get(path) != Some(*bytes))
                // The tools write nothing but text.
                .filter_map(|(path, bytes)| Some((path, std::str::from_utf8(bytes).ok()?)))
                .collect()
        });
        Self {
            completed: outcome.completed,
            reason: outcome.reason,
            r#final: outcome.r#final.as_deref(),
            events: &outcome.events,
            changed_files,
            error: outcome.error.as_deref(),
        }
    }
}

fn as_object<S: Serializer>(entries: &[(&str, &str)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().copied())
}

/// A plain value of JavaScript, by way of JSON.
fn to_js(value: &impl Serialize) -> JsValue {
    // These values have text keys: they have a JSON, and what has one can be parsed.
    serde_json::to_string(value)
        .ok()
        .and_then(|json| JSON::parse(&json).ok())
        .unwrap_or_default()
}
