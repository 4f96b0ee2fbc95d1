//! Contract B through the loop.

use std::collections::VecDeque;
use std::sync::Arc;

use evidence_agent::workspace::{
    CommandOutput, CommandRunner, MemoryTree, ToolWorkspace, Unattended,
};
use evidence_agent::{
    AgentLimits, BoundedEvidenceWorkspace, EnvelopeGenerator, Generator, GeneratorError, Message,
    Run, RunEvent, RunOutcome, ScriptedGenerator, StopReason, ToolOutputWorkspace, ToolPolicy,
    Workspace,
};
use evidence_core::envelope::MaxInputBytes;
use evidence_core::{EvidenceLimits, JobId, SessionId};
use evidence_store::{ArtifactStore, MemoryStore, Store, ToolOutputs};
use futures_executor::block_on;
use serde_json::{Value, json};

/// Replies that are made from the conversation so far.
type Reply = fn(&[Message]) -> String;

struct Replies(VecDeque<Reply>);

impl Replies {
    fn new(replies: &[Reply]) -> Self {
        Self(replies.iter().copied().collect())
    }
}

impl Generator for Replies {
    async fn generate(
        &mut self,
        messages: &[Message],
        _on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        let reply = self.0.pop_front();
        reply
            .map(|reply| reply(messages))
            .ok_or_else(|| GeneratorError("no more replies".to_owned()))
    }
}

fn session() -> SessionId {
    "s".parse().unwrap()
}

fn job(name: &str) -> JobId {
    name.parse().unwrap()
}

fn tool_output<W: Workspace, S: Store + Clone>(
    workspace: W,
    store: &S,
    name: &str,
) -> ToolOutputWorkspace<W, S> {
    let outputs = ToolOutputs::new(store.clone());
    block_on(outputs.create_job(&session(), &job(name), 1)).unwrap();
    ToolOutputWorkspace::new(workspace, outputs, session(), job(name))
}

fn files(files: &[(&str, &str)]) -> ToolWorkspace<MemoryTree> {
    ToolWorkspace::new(files.iter().copied().collect(), ToolPolicy::default())
}

fn run(workspace: &mut impl Workspace, generator: &mut impl Generator) -> (Run, RunOutcome) {
    let limits = AgentLimits::new(8, 1_000_000, 3, 2).unwrap();
    let mut run = Run::new("task", workspace, limits);
    loop {
        let mut observe = |_: RunEvent<'_>| {};
        if let Some(outcome) = block_on(run.step(workspace, generator, &mut observe)) {
            return (run, outcome);
        }
    }
}

/// The tool result in the last message.
fn last_result(messages: &[Message]) -> Value {
    let content = &messages.last().unwrap().content;
    serde_json::from_str(content.strip_prefix("Tool result:\n").unwrap()).unwrap()
}

fn read_log(_: &[Message]) -> String {
    r#"{"tool":"read_file","path":"log"}"#.to_owned()
}

fn finish(_: &[Message]) -> String {
    r#"{"final":"done"}"#.to_owned()
}

/// Reads where the marker in the excerpt says that something is left out.
fn read_gap(messages: &[Message]) -> String {
    let result = last_result(messages);
    let text = result["text"].as_str().unwrap();
    let (_, rest) = text.split_once("[... bytes ").unwrap();
    let (start, _) = rest.split_once(' ').unwrap();
    let offset: u64 = start.parse().unwrap();
    json!({
        "tool": "akh_read_tool_output",
        "sha256": result["data"]["sha256"],
        "offset": offset,
        "limit": 100,
    })
    .to_string()
}

fn log() -> String {
    let lines: Vec<String> = (0..10_000).map(|line| format!("line {line} é")).collect();
    lines.join("\n")
}

#[test]
fn a_large_result_is_an_excerpt_that_the_model_reads_on_by_cursor() {
    let log = log();
    let store = Arc::new(MemoryStore::new());
    let mut workspace = tool_output(files(&[("log", &log)]), &store, "j");
    let mut generator = Replies::new(&[read_log, read_gap, finish]);
    let (run, outcome) = run(&mut workspace, &mut generator);
    assert_eq!(outcome.reason, StopReason::Completed, "{outcome:?}");

    let bounded = last_result(&run.messages()[..4]);
    assert_eq!(bounded["success"], true);
    assert_eq!(bounded["data"]["kind"], "tool_output_ref");
    let answer = &last_result(&run.messages()[..6])["data"];
    let text = Value::from(log.as_str());
    let complete = format!(r#"{{"success":true,"text":{text},"data":null,"receipt":null}}"#);
    let start = usize::try_from(answer["offset"].as_u64().unwrap()).unwrap();
    let end = usize::try_from(answer["next_offset"].as_u64().unwrap()).unwrap();
    assert_eq!(answer["text"], complete[start..end]);
    assert!(end - start > 95);
}

#[test]
fn a_script_names_the_newest_tool_output_and_where_a_text_begins_in_it() {
    let store = Arc::new(MemoryStore::new());
    let log = log();
    let mut workspace = tool_output(files(&[("log", &log)]), &store, "j");
    let mut generator = ScriptedGenerator::with_tool_outputs(
        [
            r#"{"tool":"read_file","path":"log"}"#,
            r#"{"tool":"akh_read_tool_output","sha256":"{{sha256}}","offset":{{offset:line 5000 é\n}},"limit":12}"#,
            r#"{"final":"{{done}}"}"#,
        ],
        ToolOutputs::new(Arc::clone(&store)),
        session(),
        "j".parse().unwrap(),
    );
    let (run, outcome) = run(&mut workspace, &mut generator);
    assert_eq!(outcome.r#final.as_deref(), Some("{{done}}"), "{outcome:?}");
    assert_eq!(
        last_result(&run.messages()[..6])["data"]["text"],
        "line 5000 é"
    );
}

#[test]
fn the_event_that_records_the_finished_call_carries_the_reference_as_provenance() {
    let store = Arc::new(MemoryStore::new());
    let log = log();
    let mut workspace = tool_output(files(&[("log", &log), ("small", "x")]), &store, "j");
    let mut generator = Replies::new(&[
        |_| r#"{"tool":"read_file","path":"small"}"#.to_owned(),
        read_log,
        read_gap,
        finish,
    ]);
    let (run, outcome) = run(&mut workspace, &mut generator);
    let provenance: Vec<bool> = outcome
        .events
        .iter()
        .map(|event| event.provenance.is_some())
        .collect();
    assert_eq!(provenance, [false, true, false, false]);
    let reference = outcome.events[1].provenance.as_ref().unwrap();
    let reference: Value = serde_json::from_str(reference).unwrap();
    assert_eq!(reference, last_result(&run.messages()[..6])["data"]);
    // It is part of the event's JSON, and where there is none the event is as under contract A.
    let events = serde_json::to_value(&outcome.events).unwrap();
    assert!(events[1].get("provenance").is_some());
    assert!(events[0].get("provenance").is_none());
}

#[test]
fn every_result_takes_this_path_text_only_ones_and_refusals_too() {
    let store = Arc::new(MemoryStore::new());
    let mut workspace = tool_output(files(&[("log", "short")]), &store, "j");
    let mut generator = Replies::new(&[
        read_log,
        |_| r#"{"tool":"read_file","path":"missing"}"#.to_owned(),
        finish,
    ]);
    let (run, _) = run(&mut workspace, &mut generator);
    assert_eq!(
        last_result(&run.messages()[..4]),
        json!({"success": true, "text": "short", "data": null, "receipt": null})
    );
    let refused = last_result(&run.messages()[..6]);
    assert_eq!(refused["success"], false);
    assert_eq!(refused["data"], Value::Null);
}

struct Failing;

impl CommandRunner for Failing {
    async fn run(&mut self, _argv: &[String]) -> Result<CommandOutput, String> {
        Ok(CommandOutput {
            exit_code: Some(101),
            stdout: log().into_bytes(),
            stderr: b"failed".to_vec(),
        })
    }
}

#[test]
fn a_command_that_fails_keeps_its_success_and_its_exit_code_as_a_handle() {
    let policy = ToolPolicy {
        allowed_commands: vec![vec!["make".to_owned()]],
        ..ToolPolicy::default()
    };
    let tools = ToolWorkspace::with(MemoryTree::default(), policy, Failing, Unattended);
    let store = Arc::new(MemoryStore::new());
    let mut workspace = tool_output(tools, &store, "j");
    let mut generator = Replies::new(&[
        |_| r#"{"tool":"run_command","argv":["make"]}"#.to_owned(),
        finish,
    ]);
    let (run, _) = run(&mut workspace, &mut generator);
    let result = last_result(&run.messages()[..4]);
    assert_eq!(result["success"], false);
    assert_eq!(result["data"]["handles"], json!({"exit_code": 101}));
    assert!(
        result["text"]
            .as_str()
            .unwrap()
            .starts_with("exit code: 101\n")
    );
    assert!(
        result["text"]
            .as_str()
            .unwrap()
            .ends_with("stderr:\nfailed")
    );
}

#[test]
fn a_later_job_reads_a_prior_jobs_output_and_another_session_does_not() {
    let store = Arc::new(MemoryStore::new());
    let log = log();
    let mut first = tool_output(files(&[("log", &log)]), &store, "first");
    let (first_run, _) = run(&mut first, &mut Replies::new(&[read_log, finish]));
    let sha256 = last_result(&first_run.messages()[..4])["data"]["sha256"].clone();
    let read = json!({
        "tool": "akh_read_tool_output",
        "job_id": "first",
        "sha256": sha256,
        "offset": 0,
        "limit": 10,
    })
    .to_string();
    let read_as = |session: &str| {
        let outputs = ToolOutputs::new(Arc::clone(&store));
        let (session, job) = (session.parse().unwrap(), job(&format!("later-{session}")));
        block_on(outputs.create_job(&session, &job, 1)).unwrap();
        let mut workspace = ToolOutputWorkspace::new(files(&[]), outputs, session, job);
        let call = evidence_agent::Action::parse(&read, Some(&workspace.available_tools()));
        let Ok(evidence_agent::Action::Tool(call)) = call else {
            panic!("{call:?}");
        };
        let result = block_on(workspace.execute(&call)).unwrap();
        serde_json::from_str::<Value>(&result).unwrap()
    };
    assert_eq!(read_as("s")["data"]["text"], "{\"success\"");
    let denied = read_as("other");
    assert_eq!(denied["success"], false);
    assert_eq!(denied["text"], "this tool output is not available");
}

#[test]
fn the_tool_exists_in_runs_under_contract_b_alone() {
    let store = Arc::new(MemoryStore::new());
    let artifacts = ArtifactStore::new(Arc::clone(&store), "a".parse().unwrap());
    let limits = EvidenceLimits::default();
    let log = log();
    // Both contracts over the same store.
    let mut a = BoundedEvidenceWorkspace::new(files(&[("log", &log)]), artifacts, limits);
    let mut b = tool_output(files(&[("log", &log)]), &store, "j");
    let call: Reply = |_| {
        json!({"tool": "akh_read_tool_output", "sha256": "0".repeat(64), "offset": 0, "limit": 1})
            .to_string()
    };
    let (run_a, _) = run(&mut a, &mut Replies::new(&[call, read_log, finish]));
    assert_eq!(
        run_a.messages()[3].content,
        "Tool result:\nerror: unknown tool: akh_read_tool_output"
    );
    assert!(!run_a.messages()[0].content.contains("akh_read_tool_output"));
    assert!(
        run_a.messages()[5]
            .content
            .starts_with("Tool result:\nTool result externalized:\n")
    );
    let (run_b, _) = run(&mut b, &mut Replies::new(&[call, read_log, finish]));
    assert!(run_b.messages()[0].content.contains("akh_read_tool_output"));
    let unavailable = last_result(&run_b.messages()[..4]);
    assert_eq!(unavailable["text"], "this tool output is not available");
    assert_eq!(
        last_result(&run_b.messages()[..6])["data"]["kind"],
        "tool_output_ref"
    );
}

#[test]
fn a_read_whose_arguments_are_wrong_is_an_invalid_action_with_its_reason() {
    let store = Arc::new(MemoryStore::new());
    let mut workspace = tool_output(files(&[]), &store, "j");
    let mut generator = Replies::new(&[
        |_| r#"{"tool":"akh_read_tool_output","sha256":"x"}"#.to_owned(),
        |_| {
            json!({"tool": "akh_read_tool_output", "sha256": "0".repeat(64), "offset": -1, "limit": 1}).to_string()
        },
        finish,
    ]);
    let (run, _) = run(&mut workspace, &mut generator);
    assert_eq!(
        run.messages()[3].content,
        "Tool result:\nerror: missing fields for akh_read_tool_output: limit, offset"
    );
    let content = &run.messages()[5].content;
    assert!(
        content.starts_with("Tool result:\nerror: the arguments are"),
        "{content}"
    );
}

#[test]
fn a_result_that_cannot_be_stored_ends_the_run_and_is_not_shown() {
    let store = Arc::new(MemoryStore::new());
    let log = log();
    let mut workspace = tool_output(files(&[("log", &log)]), &store, "j");
    // The job ends beneath the run.
    let ended = evidence_core::JobStatus::Cancelled;
    block_on(
        workspace
            .outputs()
            .set_status(&session(), &job("j"), ended, 2),
    )
    .unwrap();
    let (run, outcome) = run(&mut workspace, &mut Replies::new(&[read_log, finish]));
    assert_eq!(outcome.reason, StopReason::StorageFailed);
    assert!(!run.messages().last().unwrap().content.contains("line 1"));
}

#[test]
fn the_final_escaped_message_and_the_complete_body_are_checked_and_nothing_is_dropped() {
    let store = Arc::new(MemoryStore::new());
    let checked = |task: &str, max_input_bytes: MaxInputBytes| {
        let mut workspace = tool_output(files(&[]), &store, "j");
        let mut generator = EnvelopeGenerator::new(Replies::new(&[finish]), max_input_bytes);
        let limits = AgentLimits::new(8, 1_000_000, 3, 2).unwrap();
        let mut run = Run::new(task, &workspace, limits);
        let outcome = block_on(run.step(&mut workspace, &mut generator, &mut |_| {})).unwrap();
        let body = serde_json::to_string(&run.messages()[..2]).unwrap();
        (outcome.reason, outcome.error, body.len())
    };
    let (reason, _, body_bytes) = checked("task", MaxInputBytes::default());
    assert_eq!(reason, StopReason::Completed);
    let limit = |bytes: usize| MaxInputBytes::new(i64::try_from(bytes).unwrap()).unwrap();
    assert_eq!(checked("task", limit(body_bytes)).0, StopReason::Completed);
    let (reason, error, _) = checked("task", limit(body_bytes - 1));
    assert_eq!(reason, StopReason::GeneratorFailed);
    assert!(error.unwrap().contains("nothing was dropped"));

    // {"role":"user","content":"…"} has 28 bytes around a content whose line feeds take two.
    let lines = "\n".repeat((64 * 1024 - 28) / 2);
    assert_eq!(
        checked(&lines, MaxInputBytes::default()).0,
        StopReason::Completed
    );
    let over = checked(&(lines + "\n"), MaxInputBytes::default());
    assert_eq!(over.0, StopReason::GeneratorFailed);
}
