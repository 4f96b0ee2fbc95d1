//! The four kinds of vectors (`tests/vectors/README.md`).

use std::collections::BTreeMap;

use bytes::Bytes;
use evidence_agent::workspace::{Approval, NoCommands, Operator, ToolWorkspace};
use evidence_agent::{
    Action, AgentLimits, Message, Role, Run, RunEvent, RunOutcome, ScriptedGenerator, ToolCall,
    ToolName, ToolPolicy, Workspace,
};
use evidence_core::chunk::CHUNK_BYTES;
use evidence_core::{ArtifactId, EvidenceLimits};
use evidence_store::blob::{self, Place};
use evidence_store::{ArtifactError, ArtifactStore, Batch, Scope, Store};
use serde::Deserialize;
use serde_json::Value;

use crate::host::{Bounded as _, Files, Host};
use crate::report::{Failure, Report, same, same_text};

/// What a vector file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorKind {
    /// Tool calls on one workspace and one store.
    Evidence,
    /// Whole runs.
    Loop,
    /// Replies and what they parse to.
    Protocol,
    /// Limits.
    Config,
}

/// The file's name says no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a vector file is named evidence.jsonl, loop.jsonl, protocol.jsonl or config.jsonl")]
pub struct UnknownKind;

impl VectorKind {
    /// The kind of a file, by its name.
    ///
    /// # Errors
    ///
    /// [`UnknownKind`].
    pub fn of_file(path: &str) -> Result<Self, UnknownKind> {
        let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
        match name.split('.').next() {
            Some("evidence") => Ok(Self::Evidence),
            Some("loop") => Ok(Self::Loop),
            Some("protocol") => Ok(Self::Protocol),
            Some("config") => Ok(Self::Config),
            _ => Err(UnknownKind),
        }
    }
}

/// Checks every line of a vector file.
pub async fn check_file(kind: VectorKind, lines: &str, host: &impl Host) -> Report {
    let mut report = Report::default();
    for (index, line) in lines
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
    {
        let outcome = match kind {
            VectorKind::Evidence => check_evidence(line, host).await,
            VectorKind::Loop => check_loop(line, host).await,
            VectorKind::Protocol => check_protocol(line),
            VectorKind::Config => check_config(line),
        };
        match outcome {
            Ok(()) => report.passed += 1,
            Err(message) => report.failures.push(Failure {
                name: name_of(line, index),
                message,
            }),
        }
    }
    report
}

fn name_of(line: &str, index: usize) -> String {
    let name = serde_json::from_str::<Value>(line)
        .ok()
        .and_then(|vector| vector.get("name")?.as_str().map(str::to_owned));
    name.unwrap_or_else(|| format!("line {}", index + 1))
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("not a vector: {error}"))
}

type LimitOverrides = BTreeMap<String, i64>;

fn evidence_limits(overrides: &LimitOverrides) -> Result<EvidenceLimits, String> {
    let limit = |name: &str, default| overrides.get(name).copied().unwrap_or(default);
    EvidenceLimits::new(
        limit("max_inline_bytes", 512),
        limit("preview_bytes", 64),
        limit("max_range_bytes", 512),
    )
    .map_err(|error| error.to_string())
}

fn agent_limits(overrides: &LimitOverrides) -> Result<AgentLimits, String> {
    let limit = |name: &str, default| overrides.get(name).copied().unwrap_or(default);
    AgentLimits::new(
        limit("max_steps", 8),
        limit("max_context_chars", 48_000),
        limit("max_invalid_actions", 3),
        limit("max_identical_actions", 2),
    )
    .map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct ConfigVector {
    limits: Option<LimitOverrides>,
    agent_limits: Option<LimitOverrides>,
    error: Option<String>,
}

fn check_config(line: &str) -> Result<(), String> {
    let vector: ConfigVector = parse(line)?;
    let error = match (&vector.limits, &vector.agent_limits) {
        (Some(limits), _) => evidence_limits(limits).err(),
        (None, Some(limits)) => agent_limits(limits).err(),
        (None, None) => return Err("not a vector: no limits".to_owned()),
    };
    same("error", &error, &vector.error)
}

#[derive(Deserialize)]
struct ProtocolVector {
    response: String,
    available: Option<Vec<String>>,
    action: Option<Value>,
    error: Option<String>,
    error_prefix: Option<String>,
}

fn check_protocol(line: &str) -> Result<(), String> {
    let vector: ProtocolVector = parse(line)?;
    let available: Option<Vec<ToolName>> = vector.available.map(|names| {
        ToolName::ALL
            .into_iter()
            .filter(|tool| names.iter().any(|name| name == tool.as_str()))
            .collect()
    });
    match Action::parse(&vector.response, available.as_deref()) {
        Ok(action) => {
            let action = serde_json::to_value(action).map_err(|error| error.to_string())?;
            same("action", &Some(action), &vector.action)
        }
        Err(error) => check_text(
            "error",
            &error.to_string(),
            vector.error,
            vector.error_prefix,
        ),
    }
}

/// A recorded text, or the beginning of one whose rest is a parser's own words.
fn check_text(
    what: &str,
    actual: &str,
    whole: Option<String>,
    prefix: Option<String>,
) -> Result<(), String> {
    match (whole, prefix) {
        (_, Some(prefix)) => {
            let end = actual.floor_char_boundary(prefix.len());
            same_text(what, &actual[..end], &prefix)
        }
        (Some(whole), None) => same_text(what, actual, &whole),
        (None, None) => same_text(what, actual, ""),
    }
}

#[derive(Deserialize)]
struct EvidenceVector {
    name: String,
    files: Files,
    limits: LimitOverrides,
    steps: Vec<EvidenceStep>,
    artifacts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum EvidenceStep {
    Execute {
        tool: String,
        arguments: Value,
        result: String,
    },
    Tamper {
        artifact_id: String,
        kind: String,
        byte: Option<usize>,
    },
}

async fn check_evidence<H: Host>(line: &str, host: &H) -> Result<(), String> {
    let vector: EvidenceVector = parse(line)?;
    let (store, scope) = (host.store().await?, scope(&vector.name)?);
    let artifacts = ArtifactStore::new(store.clone(), scope.clone());
    let inner = ToolWorkspace::new(host.tree(&vector.files)?, ToolPolicy::default());
    let limits = evidence_limits(&vector.limits)?;
    let mut workspace = <H::Bounded<_>>::new(inner, store, scope, limits);
    for (index, step) in vector.steps.iter().enumerate() {
        match step {
            EvidenceStep::Execute {
                tool,
                arguments,
                result,
            } => {
                let call = call(tool, arguments)?;
                let text = match workspace.execute(&call).await {
                    Ok(text) => text,
                    Err(error) => format!("error: {error}"),
                };
                same_text(&format!("result of step {}", index + 1), &text, result)?;
            }
            EvidenceStep::Tamper {
                artifact_id,
                kind,
                byte,
            } => {
                let id = artifact_id
                    .parse()
                    .map_err(|_| "not a vector: artifact_id")?;
                tamper(&artifacts, &vector.name, id, kind, *byte).await?;
            }
        }
    }
    let mut stored = Vec::new();
    for id in artifacts.list().await.map_err(|error| error.to_string())? {
        // The reference counts an artifact whose bytes are gone as not stored.
        if artifacts.read(id).await != Err(ArtifactError::Unreadable) {
            stored.push(id.to_string());
        }
    }
    let mut expected = vector.artifacts;
    expected.sort();
    same("artifacts", &stored, &expected)
}

fn scope(name: &str) -> Result<Scope, String> {
    name.parse()
        .map_err(|error| format!("not a vector: name: {error}"))
}

fn call(tool: &str, arguments: &Value) -> Result<ToolCall, String> {
    let mut action = arguments.clone();
    action["tool"] = tool.into();
    match Action::parse(&action.to_string(), None) {
        Ok(Action::Tool(call)) => Ok(call),
        Ok(Action::Final(_)) => Err("not a vector: a final is no tool call".to_owned()),
        Err(error) => Err(format!("not a vector: {error}")),
    }
}

/// Changes stored bytes beneath the artifact store, as somebody with access to the disk could.
async fn tamper<S: Store>(
    artifacts: &ArtifactStore<S>,
    name: &str,
    id: ArtifactId,
    kind: &str,
    byte: Option<usize>,
) -> Result<(), String> {
    let store = artifacts.store();
    let place = Place::under(&format!("artifact/{name}/{}/", id.sha256()));
    let manifest = blob::manifest(store, &place)
        .await
        .map_err(|error| error.to_string())?;
    let manifest = manifest.ok_or("not a vector: tampers with what is not stored")?;
    let position = byte.unwrap_or(
        usize::try_from(manifest.byte_count)
            .unwrap_or(0)
            .saturating_sub(1),
    );
    let digest = manifest
        .chunks
        .get(position / CHUNK_BYTES)
        .ok_or("not a vector: byte")?;
    let key = place.chunk_key(*digest);
    let value = store
        .get(std::slice::from_ref(&key))
        .await
        .map_err(|error| error.to_string())?;
    let mut value = value
        .into_iter()
        .flatten()
        .next()
        .ok_or("the chunk is not stored")?
        .to_vec();
    let mut batch = Batch::default();
    match kind {
        "flip" => value[position % CHUNK_BYTES] ^= 1,
        "truncate" => drop(value.pop()),
        "append" => value.push(b'x'),
        "remove" => batch.delete.push(key.clone()),
        _ => return Err(format!("not a vector: tamper kind {kind:?}")),
    }
    if batch.delete.is_empty() {
        batch.put.push((key, Bytes::from(value)));
    }
    store.commit(batch).await.map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct LoopVector {
    name: String,
    task: String,
    files: Files,
    limits: LimitOverrides,
    agent_limits: LimitOverrides,
    policy: PolicyOverrides,
    approve: Value,
    responses: Vec<String>,
    system_prompt: String,
    run: RecordedRun,
    prompts: Option<Vec<RecordedPrompt>>,
    files_after: Option<Files>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyOverrides {
    allow_writes: Option<bool>,
    allowed_commands: Option<Vec<Vec<String>>>,
    max_file_bytes: Option<usize>,
    max_write_bytes: Option<usize>,
    max_list_entries: Option<usize>,
}

impl PolicyOverrides {
    fn policy(self) -> ToolPolicy {
        let default = ToolPolicy::default();
        ToolPolicy {
            allow_writes: self.allow_writes.unwrap_or(default.allow_writes),
            allowed_commands: self.allowed_commands.unwrap_or(default.allowed_commands),
            max_file_bytes: self.max_file_bytes.unwrap_or(default.max_file_bytes),
            max_write_bytes: self.max_write_bytes.unwrap_or(default.max_write_bytes),
            max_list_entries: self.max_list_entries.unwrap_or(default.max_list_entries),
        }
    }
}

#[derive(Deserialize)]
struct RecordedRun {
    completed: bool,
    reason: String,
    r#final: Option<String>,
    events: Vec<RecordedEvent>,
    modified_files: Vec<String>,
}

#[derive(Deserialize)]
struct RecordedEvent {
    step: usize,
    response: String,
    action: Option<Value>,
    result: Option<String>,
    result_prefix: Option<String>,
}

#[derive(Debug, Deserialize, serde::Serialize)]
struct RecordedPrompt {
    messages: usize,
    roles: Vec<Role>,
    chars: usize,
    utf8_bytes: usize,
}

impl RecordedPrompt {
    fn of(messages: &[Message]) -> Self {
        Self {
            messages: messages.len(),
            roles: messages.iter().map(|message| message.role).collect(),
            chars: messages
                .iter()
                .map(|message| message.content.chars().count())
                .sum(),
            utf8_bytes: messages.iter().map(|message| message.content.len()).sum(),
        }
    }
}

/// The recorded operator: always the same answer.
struct RecordedOperator(Approval);

impl Operator for RecordedOperator {
    async fn approve(&mut self, _call: &ToolCall) -> Approval {
        self.0.clone()
    }
}

async fn check_loop<H: Host>(line: &str, host: &H) -> Result<(), String> {
    let vector: LoopVector = parse(line)?;
    let approval = match vector.approve {
        Value::Bool(true) => Approval::Approved,
        Value::Bool(false) => Approval::Denied(None),
        Value::String(reason) => Approval::Denied(Some(reason)),
        _ => return Err("not a vector: approve".to_owned()),
    };
    let (store, scope) = (host.store().await?, scope(&vector.name)?);
    let artifacts = ArtifactStore::new(store.clone(), scope.clone());
    let inner = ToolWorkspace::with(
        host.tree(&vector.files)?,
        vector.policy.policy(),
        NoCommands,
        RecordedOperator(approval),
    );
    let limits = evidence_limits(&vector.limits)?;
    let mut workspace = <H::Bounded<_>>::new(inner, store, scope, limits);
    let mut generator = ScriptedGenerator::new(vector.responses, artifacts);
    let run = Run::new(
        &vector.task,
        &workspace,
        agent_limits(&vector.agent_limits)?,
    );
    same_text(
        "system prompt",
        &run.messages()[0].content,
        &vector.system_prompt,
    )?;
    let mut prompts = Vec::new();
    let mut observe = |event: RunEvent<'_>| {
        if let RunEvent::Prompt { messages, .. } = event {
            prompts.push(RecordedPrompt::of(messages));
        }
    };
    let outcome = run
        .to_end(&mut workspace, &mut generator, &mut observe)
        .await;
    check_run(outcome, vector.run)?;
    if let Some(expected) = vector.prompts {
        same("prompts", &prompts, &expected)?;
    }
    if let Some(expected) = vector.files_after {
        same(
            "files afterwards",
            &host.files(workspace.inner().tree())?,
            &expected,
        )?;
    }
    Ok(())
}

fn check_run(outcome: RunOutcome, expected: RecordedRun) -> Result<(), String> {
    let reason = serde_json::to_value(outcome.reason).map_err(|error| error.to_string())?;
    same("reason", &reason, &Value::from(expected.reason))?;
    same("completed", &outcome.completed, &expected.completed)?;
    same("final", &outcome.r#final, &expected.r#final)?;
    same(
        "modified files",
        &outcome.modified_files,
        &expected.modified_files,
    )?;
    same(
        "number of events",
        &outcome.events.len(),
        &expected.events.len(),
    )?;
    for (event, expected) in outcome.events.into_iter().zip(expected.events) {
        let what = |part: &str| format!("{part} of step {}", expected.step);
        same(&what("number"), &event.step, &expected.step)?;
        same_text(&what("response"), &event.response, &expected.response)?;
        let action = event.action.map(serde_json::to_value).transpose();
        same(
            &what("action"),
            &action.map_err(|error| error.to_string())?,
            &expected.action,
        )?;
        match event.result {
            None => same(&what("result"), &None, &expected.result)?,
            Some(result) => {
                check_text(
                    &what("result"),
                    &result,
                    expected.result,
                    expected.result_prefix,
                )?;
            }
        }
    }
    Ok(())
}
