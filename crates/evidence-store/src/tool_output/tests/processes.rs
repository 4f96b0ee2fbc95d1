//! What is recorded of processes and kept of their output.

use evidence_core::process::{
    MAX_CAPTURE_BYTES, POLL_TOOL, PollArguments, ProcessFacts, ProcessStatus, Stream, StreamFacts,
    request_digest,
};

use super::stores::FailingStore;
use super::*;
use crate::tool_output::processes::{Begun, EndedProcess, Launch, Observation, ProcessRecord};

pub fn request(text: &str) -> Sha256Digest {
    Sha256Digest::of(text.as_bytes())
}

/// The first start of the host of this name.
pub fn launch(host: &str) -> Launch {
    Launch {
        generation: host.parse().unwrap(),
        number: 1,
    }
}

pub fn process(name: &str) -> evidence_core::ProcessId {
    name.parse().unwrap()
}

/// Begins a process of the job `j` of the session `s`.
pub fn begin(outputs: &ToolOutputs<impl Store>, id: &str) -> Result<Begun, ToolOutputError> {
    let argv = request("argv");
    block_on(outputs.begin_process(&session("s"), &job("j"), &call(id), argv, &launch("host-1")))
}

pub fn ended(id: &str, stdout: &[u8], stderr: &[u8]) -> EndedProcess {
    EndedProcess {
        launch: launch("host-1"),
        facts: ProcessFacts {
            process_id: process(id),
            status: ProcessStatus::Exited,
            exit_code: Some(0),
            signal: None,
            stdout: StreamFacts::of(stdout, stdout.len() as u64),
            stderr: StreamFacts::of(stderr, stderr.len() as u64),
        },
        stdout: Bytes::copy_from_slice(stdout),
        stderr: Bytes::copy_from_slice(stderr),
    }
}

pub fn finish(
    outputs: &ToolOutputs<impl Store>,
    ended: &EndedProcess,
    now_ms: u64,
) -> Result<ProcessRecord, ToolOutputError> {
    block_on(outputs.finish_process(&session("s"), &job("j"), ended, now_ms))
}

fn observe(
    outputs: &ToolOutputs<impl Store>,
    id: &str,
    arguments: &str,
    answer: &str,
) -> Result<String, ToolOutputError> {
    let arguments = PollArguments::parse(arguments).unwrap();
    let observation = Observation::Cursor(answer.to_owned());
    let (s, j, id, request) = (
        session("s"),
        job("j"),
        call(id),
        request_digest(POLL_TOOL, &arguments),
    );
    let of = (&arguments.process_id, &launch("host-1"));
    let recorded = outputs.record_observation(&s, &j, &id, request, of, observation);
    Ok(block_on(recorded)?.result)
}

#[test]
fn a_process_is_recorded_before_it_starts_and_its_call_begins_it_once() {
    let outputs = with_job(MemoryStore::new());
    let Ok(Begun::New {
        process_id,
        outcome,
    }) = begin(&outputs, "c1")
    else {
        panic!("it is new");
    };
    assert_eq!(process_id, process("process-1"));
    assert!(
        outcome
            .result
            .contains(r#""data":{"process_id":"process-1","status":"running"}"#)
    );
    assert_eq!(begin(&outputs, "c1"), Ok(Begun::Answered(outcome)));
    assert!(
        matches!(begin(&outputs, "c2"), Ok(Begun::New { process_id, .. }) if process_id == process("process-2"))
    );
    let other = block_on(outputs.begin_process(
        &session("s"),
        &job("j"),
        &call("c1"),
        request("other"),
        &launch("host-1"),
    ));
    assert_eq!(other, Err(ToolOutputError::CallReused));
    let record = block_on(outputs.process(&session("s"), &job("j"), &process_id)).unwrap();
    assert_eq!(record.status, ProcessStatus::Running);
    assert_eq!(
        record.facts(process_id),
        None,
        "nothing is captured while it runs"
    );
}

#[test]
fn ownership_is_checked_on_every_call() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    finish(&outputs, &ended("process-1", b"secret", b""), 1).unwrap();
    for (session_id, job_id) in [("other", "j"), ("s", "k")] {
        let (session, job, id) = (session(session_id), job(job_id), process("process-1"));
        let (c1, c9) = (call("c1"), call("c9"));
        let host = launch("host-1");
        let begun = outputs.begin_process(&session, &job, &c9, request("x"), &host);
        assert_eq!(block_on(begun), Err(ToolOutputError::Unavailable));
        let unavailable = Some(ToolOutputError::Unavailable);
        assert_eq!(
            block_on(outputs.process(&session, &job, &id)).err(),
            unavailable
        );
        assert_eq!(
            block_on(outputs.interrupt_process(&session, &job, (&id, &host), 1)).err(),
            unavailable
        );
        let end = ended("process-1", b"", b"");
        assert_eq!(
            block_on(outputs.finish_process(&session, &job, &end, 1)).err(),
            unavailable
        );
        let facts = ended("process-1", b"secret", b"").facts;
        let read = outputs.read_capture(&session, &job, &facts, Stream::Stdout, 0..6);
        assert_eq!(block_on(read).err(), unavailable);
        let answered = outputs.answered_call(&session, &job, &c1, request("argv"));
        assert_eq!(block_on(answered), Ok(None));
    }
}

#[test]
fn the_complete_captured_streams_are_committed_with_the_end_and_survive_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let open = || ToolOutputs::new(block_on(DirectoryStore::open(root.path())).unwrap());
    let outputs = with_job(WatchedStore::new(open().store().clone()));
    begin(&outputs, "c1").unwrap();
    let stdout: Vec<u8> = (0..=255).cycle().take(MAX_CAPTURE_BYTES).collect();
    let end = ended("process-1", &stdout, "é".as_bytes());
    outputs.store().forget_calls();
    let record = finish(&outputs, &end, 7).unwrap();
    assert_eq!(outputs.store().commits(), 1);
    assert_eq!(record.ended_at_ms, Some(7));
    let again = ended("process-1", b"something else", b"");
    assert_eq!(
        finish(&outputs, &again, 9).unwrap(),
        record,
        "it has ended once"
    );

    let restarted = open();
    let (s, j, id) = (session("s"), job("j"), process("process-1"));
    let record = block_on(restarted.process(&s, &j, &id)).unwrap();
    let facts = record.facts(id).unwrap();
    assert_eq!(facts, end.facts);
    let read = |stream, range| block_on(restarted.read_capture(&s, &j, &facts, stream, range));
    assert_eq!(
        read(Stream::Stdout, 500_000..508_192).unwrap(),
        stdout[500_000..508_192]
    );
    assert_eq!(read(Stream::Stderr, 0..2).unwrap(), "é".as_bytes());
}

#[test]
fn a_poll_is_answered_as_it_was_first_also_when_the_job_has_ended() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let arguments = r#"{"process_id":"process-1","stdout_offset":0}"#;
    assert_eq!(
        observe(&outputs, "p1", arguments, "first").as_deref(),
        Ok("first")
    );
    assert_eq!(
        observe(&outputs, "p1", arguments, "later").as_deref(),
        Ok("first")
    );
    let other = r#"{"process_id":"process-1","stdout_offset":1}"#;
    assert_eq!(
        observe(&outputs, "p1", other, "x"),
        Err(ToolOutputError::CallReused)
    );
    block_on(outputs.set_status(&session("s"), &job("j"), JobStatus::Completed, 5)).unwrap();
    assert_eq!(
        observe(&outputs, "p1", arguments, "x").as_deref(),
        Ok("first")
    );
    assert_eq!(
        observe(&outputs, "p2", arguments, "new").as_deref(),
        Ok("new")
    );
    assert_eq!(begin(&outputs, "c3"), Err(ToolOutputError::JobEnded));
    finish(&outputs, &ended("process-1", b"it may end", b""), 6).unwrap();
}

#[test]
fn a_plain_observation_is_bounded_and_keeps_its_first_answer() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let poll = request("poll");
    let observe = |size| {
        let observation = Observation::Plain(result_of(size, size));
        block_on(outputs.record_observation(
            &session("s"),
            &job("j"),
            &call("p"),
            poll,
            (&process("process-1"), &launch("host-1")),
            observation,
        ))
    };
    let first = observe(40_000).unwrap();
    assert!(first.result.len() <= tool_output::MAX_RESULT_BYTES);
    assert!(first.reference.is_some());
    assert_eq!(observe(50_000).unwrap(), first);
    assert_consistent(outputs.store(), "s", "j");
}

#[test]
fn a_start_that_failed_is_answered_with_the_reason_and_leaves_no_process() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let failed = ToolResult::from_text(false, "it did not start".to_owned());
    let (s, j) = (session("s"), job("j"));
    let (c1, id) = (call("c1"), process("process-1"));
    let of = (&id, &launch("host-1"));
    let abandoned = outputs.abandon_process(&s, &j, &c1, of, &failed);
    let outcome = block_on(abandoned).unwrap();
    assert_eq!(outcome.result, failed.serialize());
    assert_eq!(begin(&outputs, "c1"), Ok(Begun::Answered(outcome)));
    let gone = block_on(outputs.process(&s, &j, &process("process-1")));
    assert_eq!(gone.err(), Some(ToolOutputError::Unavailable));
    assert!(
        matches!(begin(&outputs, "c2"), Ok(Begun::New { process_id, .. }) if process_id == process("process-2"))
    );
}

#[test]
fn running_processes_are_listed_with_their_hosts_and_an_interrupted_one_stays_so() {
    let outputs = with_job(MemoryStore::new());
    for id in ["c1", "c2"] {
        begin(&outputs, id).unwrap();
    }
    finish(&outputs, &ended("process-1", b"done", b""), 1).unwrap();
    let (s, j) = (session("s"), job("j"));
    block_on(outputs.begin_process(&s, &j, &call("c3"), request("x"), &launch("host-2"))).unwrap();
    let running = block_on(outputs.running_processes()).unwrap();
    let running = running.iter();
    let running: Vec<_> = running
        .map(|process| {
            (
                process.process_id.as_str(),
                process.launch.generation.as_str(),
            )
        })
        .collect();
    assert_eq!(running, [("process-2", "host-1"), ("process-3", "host-2")]);
    let of = (&process("process-2"), &launch("host-1"));
    block_on(outputs.interrupt_process(&s, &j, of, 5)).unwrap();
    let late = ended("process-2", b"too late", b"");
    assert_eq!(
        finish(&outputs, &late, 6).unwrap().status,
        ProcessStatus::Interrupted
    );
    assert_eq!(block_on(outputs.running_processes()).unwrap().len(), 1);
}

#[test]
fn nothing_of_a_process_is_recorded_as_another_s_when_its_job_was_deleted_and_created_again() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let (s, j, id) = (session("s"), job("j"), process("process-1"));
    block_on(outputs.delete_job(&s, &j)).unwrap();
    block_on(outputs.create_job(&s, &j, 2)).unwrap();
    let c1 = call("c1");
    let second = Launch {
        number: 2,
        ..launch("host-1")
    };
    let begun = outputs.begin_process(&s, &j, &c1, request("argv"), &second);
    assert!(matches!(block_on(begun), Ok(Begun::New { process_id, .. }) if process_id == id));
    let before = keys(outputs.store(), "");

    let gone = Some(ToolOutputError::Unavailable);
    let first = launch("host-1");
    assert_eq!(
        finish(&outputs, &ended("process-1", b"of the first", b""), 3).err(),
        gone
    );
    let interrupted = outputs.interrupt_process(&s, &j, (&id, &first), 3);
    assert_eq!(block_on(interrupted).err(), gone);
    let failed = ToolResult::from_text(false, "the first did not start".to_owned());
    let abandoned = outputs.abandon_process(&s, &j, &c1, (&id, &first), &failed);
    assert_eq!(block_on(abandoned).err(), gone);
    let arguments = r#"{"process_id":"process-1","stdout_offset":0}"#;
    assert_eq!(observe(&outputs, "p1", arguments, "the first").err(), gone);

    assert_eq!(keys(outputs.store(), ""), before);
    let record = block_on(outputs.process(&s, &j, &id)).unwrap();
    assert_eq!(
        (record.launch(), record.status),
        (second, ProcessStatus::Running)
    );
}

#[test]
fn a_failing_store_records_an_end_whole_or_not_at_all() {
    let end = ended("process-1", &vec![7; 200_000], b"x");
    for fail_at in 0.. {
        let outputs = with_job(MemoryStore::new());
        begin(&outputs, "c1").unwrap();
        let failing = FailingStore::new(outputs.store(), fail_at, StoreError::Exhausted);
        let failing = ToolOutputs::new(failing);
        let outcome = finish(&failing, &end, 1);
        if !failing.store().has_failed() {
            assert!(fail_at >= 3, "the clock, the records, the commit");
            break;
        }
        assert_eq!(outcome.err(), Some(StoreError::Exhausted.into()));
        assert_eq!(keys(outputs.store(), "tool-output/s/j/capture/"), [""; 0]);
        let record = block_on(outputs.process(&session("s"), &job("j"), &process("process-1")));
        assert_eq!(record.unwrap().status, ProcessStatus::Running);
    }
}

#[test]
fn a_capture_that_is_not_what_was_written_is_an_integrity_failure() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let end = ended("process-1", &vec![7; 100_000], b"");
    finish(&outputs, &end, 1).unwrap();
    let read = || {
        let (s, j) = (session("s"), job("j"));
        block_on(outputs.read_capture(&s, &j, &end.facts, Stream::Stdout, 0..10)).map(drop)
    };
    assert_eq!(read(), Ok(()));
    for key in keys(outputs.store(), "tool-output/s/j/capture/process-1/stdout/") {
        let good = value(outputs.store(), &key).unwrap();
        let mut bad = good.to_vec();
        bad[0] ^= 1;
        put(outputs.store(), &key, bad);
        let touched = !key.contains("chunk") || good.len() == CHUNK_BYTES;
        assert_eq!(
            read(),
            if touched {
                Err(ToolOutputError::Integrity)
            } else {
                Ok(())
            }
        );
        put(outputs.store(), &key, good);
    }
}
