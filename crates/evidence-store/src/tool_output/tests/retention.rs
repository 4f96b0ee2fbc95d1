//! Sweeps, in memory and in a directory.

use evidence_core::process::Stream;
use evidence_core::retention::{ARTIFACT_LIFETIME_MS, CAPTURE_LIFETIME_MS, OwnerState};

use super::processes::{begin, ended, finish, launch, process, request};
use super::stores::{FailingStore, InterferingStore};
use super::*;
use crate::tool_output::retention::Swept;

const DAY: u64 = CAPTURE_LIFETIME_MS;
const WEEK: u64 = ARTIFACT_LIFETIME_MS;

fn sweep(outputs: &ToolOutputs<impl Store>, now_ms: u64) -> Swept {
    let planned = block_on(outputs.plan_sweep(now_ms, None)).unwrap();
    let swept = block_on(outputs.sweep(now_ms, None)).unwrap();
    assert_eq!(planned, swept, "what is planned is what is done");
    swept
}

fn complete(outputs: &ToolOutputs<impl Store>, now_ms: u64) {
    let (s, j) = (session("s"), job("j"));
    block_on(outputs.set_status(&s, &j, JobStatus::Completed, now_ms)).unwrap();
}

#[test]
fn captures_live_24_hours_independent_of_permanent_receipts() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let end = ended("process-1", &vec![7; 100_000], b"x");
    finish(&outputs, &end, 1000).unwrap();
    assert!(sweep(&outputs, 1000 + DAY - 1).is_empty());
    let swept = sweep(&outputs, 1000 + DAY);
    assert_eq!(
        swept.captures,
        [(session("s"), job("j"), process("process-1"))]
    );
    assert_eq!(swept.jobs, []);
    assert_eq!(keys(outputs.store(), "tool-output/s/j/capture/"), [""; 0]);
    // The receipts and the record of the process stay; a read is unavailable, never empty.
    assert!(matches!(
        begin(&outputs, "c1"),
        Ok(crate::tool_output::processes::Begun::Answered(_))
    ));
    let (s, j) = (session("s"), job("j"));
    let record = block_on(outputs.process(&s, &j, &process("process-1"))).unwrap();
    assert_eq!(record.facts(process("process-1")), None);
    let read = outputs.read_capture(&s, &j, &end.facts, Stream::Stdout, 0..1);
    assert_eq!(block_on(read), Err(ToolOutputError::Unavailable));
    assert!(sweep(&outputs, 1000 + 2 * DAY).is_empty());
}

#[test]
fn artifacts_survive_archival_and_expire_7_days_after_their_job_became_terminal() {
    let root = tempfile::tempdir().unwrap();
    let outputs = with_job(block_on(DirectoryStore::open(root.path())).unwrap());
    let result = result_of(100_000, 1);
    record(&outputs, &result).unwrap();
    let sha256 = sha256_of(&result);
    complete(&outputs, 1000);
    let (s, j) = (session("s"), job("j"));
    block_on(outputs.set_status(&s, &j, JobStatus::Archived, 5 * DAY)).unwrap();
    assert!(sweep(&outputs, 1000 + WEEK - 1).is_empty());
    assert_eq!(
        read_all(&outputs, "j", sha256, 8192).unwrap(),
        result.serialize()
    );
    assert_eq!(sweep(&outputs, 1000 + WEEK).jobs, [(s, j)]);
    // Chunks, manifests, counters and indexes are gone together.
    assert_eq!(keys(outputs.store(), ""), ["retention/clock"]);
    let read = read_all(&outputs, "j", sha256, 8192);
    assert_eq!(read, Err(ToolOutputError::Unavailable));
}

#[test]
fn a_job_whose_process_runs_is_not_inactive() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    complete(&outputs, 1000);
    assert!(sweep(&outputs, 100 * DAY).is_empty());
    finish(&outputs, &ended("process-1", b"late", b""), 101 * DAY).unwrap();
    assert!(sweep(&outputs, 101 * DAY + WEEK - 1).jobs.is_empty());
    assert_eq!(sweep(&outputs, 101 * DAY + WEEK).jobs.len(), 1);
}

#[test]
fn active_unknown_and_missing_jobs_keep_theirs_and_use_none_of_the_budget() {
    let outputs = ToolOutputs::new(MemoryStore::new());
    let s = session("s");
    let create = |name: &str, ended_at_ms: Option<u64>| {
        let j = job(name);
        block_on(outputs.create_job(&s, &j, 0)).unwrap();
        let result = result_of(20_000, 1);
        block_on(outputs.record(&s, &j, None, result, None)).unwrap();
        if let Some(now_ms) = ended_at_ms {
            block_on(outputs.set_status(&s, &j, JobStatus::Failed, now_ms)).unwrap();
        }
    };
    for index in 0..64 {
        create(&format!("unknown-{index}"), Some(0));
        put(
            outputs.store(),
            &format!("tool-output/s/unknown-{index}/job"),
            "damaged",
        );
        create(&format!("missing-{index}"), Some(0));
        let gone = Key::new(format!("tool-output/s/missing-{index}/job"));
        let batch = Batch {
            delete: vec![gone],
            ..Batch::default()
        };
        block_on(outputs.store().commit(batch)).unwrap();
        create(&format!("active-{index}"), None);
    }
    for index in 0..65 {
        create(&format!("terminal-{index}"), Some(index));
    }
    let kept = keys(outputs.store(), "").len()
        - 65 * keys(outputs.store(), "tool-output/s/terminal-0/").len()
        - 65;
    assert_eq!(sweep(&outputs, 2 * WEEK).jobs.len(), 64);
    let last = sweep(&outputs, 2 * WEEK).jobs;
    assert_eq!(
        last,
        [(session("s"), job("terminal-64"))],
        "the last to end"
    );
    assert!(sweep(&outputs, 2 * WEEK).is_empty());
    assert_eq!(keys(outputs.store(), "").len(), kept + 1, "and the clock");
}

#[test]
fn a_sweep_leaves_what_was_added_while_it_looked() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    complete(&outputs, 0);
    // The job is inactive when the sweep looks, and a poll is recorded before it deletes.
    finish(&outputs, &ended("process-1", b"x", b""), 0).unwrap();
    // The first commit is the clock's.
    let racing = InterferingStore::on_commit(outputs.store(), 1, || {
        let observation = crate::tool_output::processes::Observation::Cursor("seen".to_owned());
        let (s, j, p) = (session("s"), job("j"), call("p"));
        let of = (&process("process-1"), &launch("host-1"));
        let observed = outputs.record_observation(&s, &j, &p, request("p"), of, observation);
        block_on(observed).unwrap();
    });
    let swept = block_on(ToolOutputs::new(racing).sweep(WEEK, None)).unwrap();
    assert_eq!(swept.jobs, []);
    assert_eq!(
        sweep(&outputs, WEEK).jobs.len(),
        1,
        "the next one takes it whole"
    );
    assert_eq!(keys(outputs.store(), "tool-output/"), [""; 0]);
}

#[test]
fn a_put_that_reuses_a_chunk_beside_a_sweep_is_whole_or_refused() {
    let outputs = with_job(MemoryStore::new());
    let (one, two) = (result_of(100_000, 1), result_of(100_001, 1));
    record(&outputs, &one).unwrap();
    // The job ends and is swept after the second put has looked for the chunks that it shares.
    let interfering = InterferingStore::on_commit(outputs.store(), 0, || {
        complete(&outputs, 0);
        assert_eq!(sweep(&outputs, WEEK).jobs.len(), 1);
    });
    let outcome = record(&ToolOutputs::new(interfering), &two);
    assert_eq!(outcome.err(), Some(ToolOutputError::Unavailable));
    assert_eq!(keys(outputs.store(), "tool-output/"), [""; 0]);
}

#[test]
fn a_read_beside_a_sweep_is_answered_or_unavailable() {
    let outputs = with_job(MemoryStore::new());
    let result = result_of(100_000, 1);
    record(&outputs, &result).unwrap();
    complete(&outputs, 0);
    // Between the manifest and the chunks.
    let interfering = InterferingStore::on_get(outputs.store(), 1, || {
        sweep(&outputs, WEEK);
    });
    let read = read_all(
        &ToolOutputs::new(interfering),
        "j",
        sha256_of(&result),
        8192,
    );
    assert_eq!(read, Err(ToolOutputError::Unavailable));
}

#[test]
fn clocks_that_jump_delete_nothing_early() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let start = 1000 * DAY;
    let minute = 60_000;
    block_on(outputs.sweep(start, None)).unwrap();
    finish(&outputs, &ended("process-1", b"x", b""), start).unwrap();
    // A day forwards, while a minute has passed.
    let limit_ms = Some(start + minute);
    assert!(
        block_on(outputs.sweep(start + DAY + minute, limit_ms))
            .unwrap()
            .is_empty()
    );
    // And back by two: what ends now is not a day old already.
    assert!(
        block_on(outputs.sweep(start - DAY, limit_ms))
            .unwrap()
            .is_empty()
    );
    complete(&outputs, start - DAY);
    let stored = block_on(outputs.stored_jobs()).unwrap();
    let since_ms = start + minute;
    assert_eq!(stored[0].owner, OwnerState::Inactive { since_ms });
    assert_eq!(stored[0].expires_at_ms, Some(since_ms + WEEK));
    assert_eq!(stored[0].captures[0].expires_at_ms, start + DAY);
    assert_eq!(stored[0].captures[0].bytes, 1);
}

#[test]
fn hosts_that_sweep_one_store_do_not_count_the_same_hours_twice() {
    let outputs = with_job(MemoryStore::new());
    begin(&outputs, "c1").unwrap();
    let start = 1000 * DAY;
    let first = block_on(outputs.sweep(start, None)).unwrap();
    assert_eq!(first.now_ms, start);
    finish(&outputs, &ended("process-1", b"x", b""), start).unwrap();
    // Half a day later each of two sweeps, and the clock jumps before each.
    for jump in [DAY, 2 * DAY] {
        let limit_ms = Some(first.now_ms + DAY / 2);
        let swept = block_on(outputs.sweep(start + DAY / 2 + jump, limit_ms)).unwrap();
        assert!(swept.is_empty());
        assert_eq!(swept.now_ms, start + DAY / 2);
    }
    let limit_ms = Some(start + DAY);
    let swept = block_on(outputs.sweep(start + 4 * DAY, limit_ms)).unwrap();
    assert_eq!(swept.captures.len(), 1);
}

#[test]
fn a_sweep_that_fails_or_dies_anywhere_leaves_whole_jobs() {
    for fail_at in 0.. {
        let outputs = with_job(MemoryStore::new());
        let result = result_of(100_000, 1);
        record(&outputs, &result).unwrap();
        begin(&outputs, "c1").unwrap();
        finish(&outputs, &ended("process-1", &vec![1; 70_000], b""), 0).unwrap();
        complete(&outputs, 6 * DAY);
        let failing = FailingStore::new(outputs.store(), fail_at, StoreError::Exhausted);
        let failing = ToolOutputs::new(failing);
        let swept = block_on(failing.sweep(2 * DAY, None))
            .and_then(|_| block_on(failing.sweep(20 * DAY, None)));
        if !failing.store().has_failed() {
            assert_eq!(swept.unwrap().jobs.len(), 1);
            break;
        }
        assert!(swept.is_err());
        if !keys(outputs.store(), "tool-output/").is_empty() {
            assert_eq!(
                read_all(&outputs, "j", sha256_of(&result), 8192),
                Ok(result.serialize())
            );
        }
        let (s, j) = (session("s"), job("j"));
        match block_on(outputs.process(&s, &j, &process("process-1"))) {
            Ok(record) => match record.facts(process("process-1")) {
                Some(facts) => {
                    let read = outputs.read_capture(&s, &j, &facts, Stream::Stdout, 0..70_000);
                    assert_eq!(block_on(read).unwrap().len(), 70_000);
                }
                None => assert_eq!(keys(outputs.store(), "tool-output/s/j/capture/"), [""; 0]),
            },
            Err(error) => assert_eq!(error, ToolOutputError::Unavailable),
        }
    }
}
