//! Contract B in memory and in a directory: one test or more for each sentence about storing and
//! reading, and what happens when the store fails.

mod faults;
mod kill;
mod processes;
mod random;
mod retention;
mod stores;

use std::fmt::Write as _;

use evidence_core::chunk::CHUNK_BYTES;
use evidence_core::{JobStatus, RawJson};
use futures_executor::block_on;

use self::stores::{Call, WatchedStore};
use super::*;
use crate::{DirectoryStore, MemoryStore};

fn session(name: &str) -> SessionId {
    name.parse().unwrap()
}

fn job(name: &str) -> JobId {
    name.parse().unwrap()
}

fn call(name: &str) -> ToolCallId {
    name.parse().unwrap()
}

/// A result whose serialization has exactly `byte_count`, made of lines that differ by `seed`.
fn result_of(byte_count: usize, seed: usize) -> ToolResult {
    let mut text = String::new();
    while text.len() < byte_count {
        let position = text.len();
        let _ = write!(text, "{seed}.{position:07} ");
    }
    text.truncate(byte_count - ToolResult::from_text(true, String::new()).serialized_byte_count());
    let result = ToolResult::from_text(true, text);
    assert_eq!(result.serialized_byte_count(), byte_count);
    result
}

fn sha256_of(result: &ToolResult) -> Sha256Digest {
    Sha256Digest::of(result.serialize().as_bytes())
}

/// Records `result` for the job `j` of the session `s`.
fn record(
    outputs: &ToolOutputs<impl Store>,
    result: &ToolResult,
) -> Result<Outcome, ToolOutputError> {
    block_on(outputs.record(&session("s"), &job("j"), None, result.clone(), None))
}

/// A store with the active job `j` of the session `s`.
fn with_job<S: Store>(store: S) -> ToolOutputs<S> {
    let outputs = ToolOutputs::new(store);
    block_on(outputs.create_job(&session("s"), &job("j"), 1)).unwrap();
    outputs
}

fn read_all(
    outputs: &ToolOutputs<impl Store>,
    job_id: &str,
    sha256: Sha256Digest,
    limit: u64,
) -> Result<String, ToolOutputError> {
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let request = ReadRequest::new(offset, limit)?;
        let range = block_on(outputs.read(&session("s"), &job(job_id), sha256, request))?;
        let answer = range.answer()?;
        text.push_str(answer.text);
        offset = answer.next_offset;
        if answer.done {
            return Ok(text);
        }
    }
}

fn read_whole(
    outputs: &ToolOutputs<impl Store>,
    job_id: &str,
    sha256: Sha256Digest,
) -> Result<Bytes, ToolOutputError> {
    block_on(outputs.read_whole(&session("s"), &job(job_id), sha256))
}

fn keys(store: &impl Store, prefix: &str) -> Vec<String> {
    let keys = block_on(store.list(prefix)).unwrap();
    keys.iter().map(|key| key.as_str().to_owned()).collect()
}

fn value(store: &impl Store, key: &str) -> Option<Bytes> {
    block_on(store.get(&[Key::new(key)])).unwrap().remove(0)
}

fn put(store: &impl Store, key: &str, value: impl Into<Bytes>) {
    let batch = Batch {
        put: vec![(Key::new(key), value.into())],
        ..Batch::default()
    };
    block_on(store.commit(batch)).unwrap();
}

/// Chunks, manifests and counters say the same: nothing is missing and nothing is left over.
fn assert_consistent(store: &impl Store, session: &str, job: &str) {
    let prefix = format!("tool-output/{session}/{job}/");
    let (mut bytes, mut count) = (0, 0);
    let mut named = std::collections::BTreeSet::new();
    for key in keys(store, &format!("{prefix}artifact/")) {
        let manifest = blob::decode_manifest(&value(store, &key).unwrap()).unwrap();
        assert!(key.ends_with(&manifest.sha256.to_string()));
        bytes += manifest.byte_count;
        count += 1;
        for (index, chunk) in manifest.chunks.iter().enumerate() {
            let key = format!("{prefix}chunk/{chunk}");
            manifest
                .verify(index, &value(store, &key).unwrap())
                .unwrap();
            named.insert(key);
        }
    }
    let chunks: std::collections::BTreeSet<String> = keys(store, &format!("{prefix}chunk/"))
        .into_iter()
        .collect();
    assert_eq!(chunks, named);
    if let Some(usage) = value(store, &format!("{prefix}usage")) {
        let usage: JobUsage = Record::decode(&usage).unwrap();
        assert_eq!((usage.artifact_bytes, usage.artifact_count), (bytes, count));
    } else {
        assert_eq!(keys(store, &prefix), Vec::<String>::new());
    }
}

#[test]
fn a_result_of_16_384_bytes_passes_unchanged_and_one_of_16_385_is_stored() {
    let outputs = with_job(MemoryStore::new());
    let small = result_of(16_384, 0);
    let outcome = record(&outputs, &small).unwrap();
    assert_eq!(outcome.result, small.serialize());
    assert_eq!(outcome.reference, None);
    assert_eq!(keys(outputs.store(), "tool-output/s/j/chunk/").len(), 0);

    let large = result_of(16_385, 0);
    let outcome = record(&outputs, &large).unwrap();
    assert!(outcome.result.len() <= 16_384);
    assert!(outcome.result.contains(&outcome.reference.unwrap()));
    let text = read_all(&outputs, "j", sha256_of(&large), 8192).unwrap();
    assert_eq!(text, large.serialize());
}

#[test]
fn all_bytes_are_committed_as_chunks_each_under_its_own_hash_before_the_excerpt_is_returned() {
    let store = WatchedStore::new(MemoryStore::new());
    let outputs = with_job(store);
    outputs.store().forget_calls();
    let result = result_of(200_000, 0);
    let outcome = record(&outputs, &result).unwrap();
    assert!(outcome.reference.is_some());
    assert_eq!(
        outputs.store().commits(),
        1,
        "everything in one transaction"
    );
    let chunks = keys(outputs.store(), "tool-output/s/j/chunk/");
    assert_eq!(chunks.len(), 200_000_usize.div_ceil(CHUNK_BYTES));
    for key in chunks {
        let chunk = value(outputs.store(), &key).unwrap();
        assert!(key.ends_with(&Sha256Digest::of(&chunk).to_string()));
    }
    assert_consistent(outputs.store(), "s", "j");
}

#[test]
fn one_serialized_result_is_at_most_16_mib() {
    let outputs = with_job(MemoryStore::new());
    let before = keys(outputs.store(), "");
    let over = ToolResult::from_text(true, "x".repeat(16 * 1024 * 1024 + 1 - 53));
    assert_eq!(
        record(&outputs, &over),
        Err(ToolOutputError::ResultTooLarge {
            byte_count: 16 * 1024 * 1024 + 1
        })
    );
    assert_eq!(keys(outputs.store(), ""), before);
    let exact = result_of(16 * 1024 * 1024, 0);
    record(&outputs, &exact).unwrap();
    let whole = read_whole(&outputs, "j", sha256_of(&exact));
    assert_eq!(whole.unwrap(), exact.serialize());
}

/// Sets the job's counters as if it held `artifact_bytes`.
fn fill_to(outputs: &ToolOutputs<MemoryStore>, artifact_bytes: u64) {
    let usage = JobUsage {
        artifact_bytes,
        process_count: 0,
        artifact_count: 9,
        change_count: 9,
    };
    let record = Record(usage).encode().unwrap();
    put(outputs.store(), "tool-output/s/j/usage", record);
}

#[test]
fn a_job_holds_at_most_128_mib_and_what_is_over_it_is_refused_not_dropped() {
    let outputs = with_job(MemoryStore::new());
    fill_to(&outputs, MAX_JOB_BYTES - 40_000);
    let before = keys(outputs.store(), "");
    assert_eq!(
        record(&outputs, &result_of(40_001, 0)),
        Err(ToolOutputError::JobFull)
    );
    assert_eq!(keys(outputs.store(), ""), before);
    record(&outputs, &result_of(40_000, 0)).unwrap();
    // What needs no room is still taken.
    record(&outputs, &result_of(40_000, 0)).unwrap();
    record(&outputs, &result_of(16_384, 0)).unwrap();
    assert_eq!(
        record(&outputs, &result_of(16_385, 1)),
        Err(ToolOutputError::JobFull)
    );
}

#[test]
fn identical_artifacts_are_counted_once_and_shared_chunks_are_stored_once() {
    let outputs = with_job(MemoryStore::new());
    let result = result_of(150_000, 0);
    let first = record(&outputs, &result).unwrap();
    assert_eq!(record(&outputs, &result).unwrap(), first);
    let (_, usage) = block_on(outputs.job(&session("s"), &job("j"))).unwrap();
    assert_eq!((usage.artifact_bytes, usage.artifact_count), (150_000, 1));
    // The same start, another end.
    let mut longer = result.clone();
    longer.text.push_str("more");
    record(&outputs, &longer).unwrap();
    let chunks = keys(outputs.store(), "tool-output/s/j/chunk/");
    assert_eq!(chunks.len(), 4, "two shared, two ends");
    assert_consistent(outputs.store(), "s", "j");
}

#[test]
fn a_chunk_that_repeats_inside_an_artifact_is_stored_once() {
    let outputs = with_job(MemoryStore::new());
    let result = ToolResult::from_text(true, "x".repeat(10 * CHUNK_BYTES));
    record(&outputs, &result).unwrap();
    assert_eq!(keys(outputs.store(), "tool-output/s/j/chunk/").len(), 3);
    let text = read_all(&outputs, "j", sha256_of(&result), 8191).unwrap();
    assert_eq!(text, result.serialize());
}

#[test]
fn each_read_fetches_and_verifies_only_the_chunks_it_needs() {
    let outputs = with_job(WatchedStore::new(MemoryStore::new()));
    let result = result_of(2_000_000, 0);
    record(&outputs, &result).unwrap();
    let read = |offset: usize, limit| {
        outputs.store().forget_calls();
        let request = ReadRequest::new(offset as u64, limit).unwrap();
        let (s, j) = (session("s"), job("j"));
        block_on(outputs.read(&s, &j, sha256_of(&result), request)).unwrap();
        outputs.store().calls()
    };
    // The manifest, then the chunks.
    assert_eq!(read(0, 8192), [Call::Get(1), Call::Get(1)]);
    assert_eq!(read(CHUNK_BYTES - 1, 2), [Call::Get(1), Call::Get(2)]);
    assert_eq!(read(CHUNK_BYTES, 8192), [Call::Get(1), Call::Get(1)]);
    assert_eq!(read(2_000_000, 1), [Call::Get(1), Call::Get(0)]);
}

#[test]
fn four_byte_characters_at_every_chunk_boundary_are_read_exactly() {
    for shift in 0..4 {
        let outputs = with_job(MemoryStore::new());
        let text = "x".repeat(shift) + &"🙂".repeat(CHUNK_BYTES / 2);
        let result = ToolResult::from_text(true, text);
        record(&outputs, &result).unwrap();
        for limit in [4099, 8192] {
            let text = read_all(&outputs, "j", sha256_of(&result), limit).unwrap();
            assert_eq!(text, result.serialize());
        }
    }
}

#[test]
fn prior_jobs_need_the_same_session_exactly() {
    let outputs = with_job(MemoryStore::new());
    let result = result_of(20_000, 0);
    record(&outputs, &result).unwrap();
    block_on(outputs.create_job(&session("s"), &job("later"), 1)).unwrap();
    block_on(outputs.create_job(&session("S"), &job("other"), 1)).unwrap();
    let request = ReadRequest::new(0, 8192).unwrap();
    let read = |by: &str| {
        let (by, job) = (session(by), job("j"));
        block_on(outputs.read(&by, &job, sha256_of(&result), request)).map(drop)
    };
    assert_eq!(read("s"), Ok(()), "also while a later job runs");
    for other in ["S", "s2", "s.", "-s"] {
        assert_eq!(read(other), Err(ToolOutputError::Unavailable));
    }
}

#[test]
fn unknown_expired_and_another_sessions_take_the_same_steps() {
    let outputs = with_job(WatchedStore::new(MemoryStore::new()));
    let result = result_of(20_000, 0);
    record(&outputs, &result).unwrap();
    block_on(outputs.create_job(&session("s"), &job("expired"), 1)).unwrap();
    block_on(outputs.delete_job(&session("s"), &job("expired"))).unwrap();
    let request = ReadRequest::new(0, 8192).unwrap();
    let mut seen = Vec::new();
    for (by, of, sha256) in [
        ("s", "unknown", sha256_of(&result)),
        ("s", "expired", sha256_of(&result)),
        ("other", "j", sha256_of(&result)),
        ("s", "j", Sha256Digest::of(b"never stored")),
    ] {
        outputs.store().forget_calls();
        let (by, of) = (session(by), job(of));
        let reads = block_on(outputs.read(&by, &of, sha256, request)).unwrap_err();
        let steps = outputs.store().calls();
        seen.push((reads, steps));
    }
    assert_eq!(seen[0], (ToolOutputError::Unavailable, vec![Call::Get(1)]));
    assert!(seen.iter().all(|steps| *steps == seen[0]));
}

#[test]
fn ownership_is_checked_on_every_call() {
    let outputs = with_job(MemoryStore::new());
    let other = session("other");
    let job = job("j");
    let unavailable = Err(ToolOutputError::Unavailable);
    assert_eq!(block_on(outputs.job(&other, &job)).map(drop), unavailable);
    let status = outputs.set_status(&other, &job, JobStatus::Failed, 1);
    assert_eq!(block_on(status).map(drop), unavailable);
    let result = outputs.record(&other, &job, None, result_of(100, 0), None);
    assert_eq!(block_on(result).map(drop), unavailable);
    block_on(outputs.delete_job(&other, &job)).unwrap();
    assert_eq!(
        block_on(outputs.create_job(&other, &job, 1)),
        Err(ToolOutputError::JobTaken)
    );
    let (record, created) = block_on(outputs.create_job(&session("s"), &job, 1)).unwrap();
    assert_eq!((record.status, created), (JobStatus::Active, false));
}

#[test]
fn a_second_delivery_of_a_tool_call_gets_the_same_answer() {
    let outputs = with_job(MemoryStore::new());
    let (s, j, c) = (session("s"), job("j"), call("call_1"));
    for bytes in [100, 20_000] {
        let c = call(&format!("{c}-{bytes}"));
        let result = result_of(bytes, 0);
        let deliver = |result: &ToolResult, handles: Option<&str>| {
            let handles = handles.map(|handles| Handles::parse(handles).unwrap());
            block_on(outputs.record(&s, &j, Some(&c), result.clone(), handles))
        };
        let first = deliver(&result, Some("{\"a\":1}")).unwrap();
        assert_eq!(first.reference.is_some(), bytes > 16_384);
        assert_eq!(deliver(&result, Some("{\"a\":1}")).unwrap(), first);
        for (result, handles) in [
            (&result_of(bytes, 1), Some("{\"a\":1}")),
            (&result, Some("{\"a\":2}")),
            (&result, None),
        ] {
            assert_eq!(deliver(result, handles), Err(ToolOutputError::CallReused));
        }
        assert_eq!(deliver(&result, Some("{\"a\":1}")).unwrap(), first);
    }
    assert_consistent(outputs.store(), "s", "j");
    // Also after the job has ended; a new call is refused then.
    block_on(outputs.set_status(&s, &j, JobStatus::Completed, 5)).unwrap();
    let c = call("call_1-100");
    let handles = Handles::parse("{\"a\":1}").unwrap();
    let again = outputs.record(&s, &j, Some(&c), result_of(100, 0), Some(handles));
    assert!(block_on(again).is_ok());
    assert_eq!(
        record(&outputs, &result_of(100, 0)),
        Err(ToolOutputError::JobEnded)
    );
}

#[test]
fn artifacts_survive_archival_and_the_time_of_ending_is_kept() {
    let outputs = with_job(MemoryStore::new());
    let result = result_of(20_000, 0);
    record(&outputs, &result).unwrap();
    let set =
        |status, now_ms| block_on(outputs.set_status(&session("s"), &job("j"), status, now_ms));
    assert_eq!(set(JobStatus::Active, 3).unwrap().terminal_at_ms, None);
    assert_eq!(set(JobStatus::Failed, 7).unwrap().terminal_at_ms, Some(7));
    assert_eq!(set(JobStatus::Failed, 8).unwrap().terminal_at_ms, Some(7));
    assert_eq!(set(JobStatus::Archived, 9).unwrap().terminal_at_ms, Some(7));
    assert_eq!(
        set(JobStatus::Active, 10),
        Err(ToolOutputError::StatusChange {
            from: JobStatus::Archived,
            to: JobStatus::Active
        })
    );
    let text = read_all(&outputs, "j", sha256_of(&result), 8192).unwrap();
    assert_eq!(text, result.serialize());
}

#[test]
fn chunks_manifests_counters_and_calls_go_together() {
    let outputs = with_job(MemoryStore::new());
    let (s, j) = (session("s"), job("j"));
    let neighbour = job("j.");
    block_on(outputs.create_job(&s, &neighbour, 1)).unwrap();
    for job in [&j, &neighbour] {
        let result = result_of(100_000, 0);
        block_on(outputs.record(&s, job, Some(&call("c")), result, None)).unwrap();
    }
    let kept = keys(outputs.store(), "tool-output/s/j./");
    block_on(outputs.delete_job(&s, &j)).unwrap();
    block_on(outputs.delete_job(&s, &j)).unwrap();
    assert_eq!(keys(outputs.store(), "tool-output/"), kept);
    assert_eq!(keys(outputs.store(), "job/"), ["job/j."]);
    let sha256 = sha256_of(&result_of(100_000, 0));
    assert_eq!(
        read_all(&outputs, "j", sha256, 8192),
        Err(ToolOutputError::Unavailable),
        "unavailable, never an empty text"
    );
}

#[test]
fn the_jobs_of_a_session_are_listed_and_no_other_sessions() {
    let outputs = with_job(MemoryStore::new());
    for (owner, name) in [("s", "i"), ("s", "job"), ("s2", "k")] {
        block_on(outputs.create_job(&session(owner), &job(name), 1)).unwrap();
    }
    record(&outputs, &result_of(20_000, 1)).unwrap();
    let jobs = |owner| block_on(outputs.jobs(&session(owner))).unwrap();
    assert_eq!(jobs("s"), ["i", "j", "job"].map(job));
    assert_eq!(jobs("s2"), [job("k")]);
    assert_eq!(jobs("nobody"), []);
    block_on(outputs.delete_job(&session("s"), &job("j"))).unwrap();
    assert_eq!(jobs("s"), ["i", "job"].map(job));
}

#[test]
fn the_tool_reads_the_current_job_unless_another_of_the_session_is_named() {
    let outputs = with_job(MemoryStore::new());
    let result = result_of(20_000, 1);
    record(&outputs, &result).unwrap();
    block_on(outputs.create_job(&session("s"), &job("later"), 1)).unwrap();
    let sha256 = sha256_of(&result);
    let read = |owner, current, named: &str| {
        let json = format!(r#"{{{named}"sha256":"{sha256}","offset":0,"limit":8192}}"#);
        let arguments = ReadArguments::parse(&json).unwrap();
        block_on(outputs.read_tool(&session(owner), &job(current), &arguments))
    };
    let answer = read("s", "j", "").unwrap();
    assert!(answer.contains(r#""bytes":20000,"offset":0,"#), "{answer}");
    assert_eq!(read("s", "later", r#""job_id":"j","#), Ok(answer));
    for (owner, current, named) in [
        ("s", "later", ""),
        ("s", "none", r#""job_id":"j","#),
        ("other", "j", ""),
    ] {
        let refused = read(owner, current, named);
        assert_eq!(refused, Err(ToolOutputError::Unavailable));
    }
}

#[test]
fn the_artifacts_of_a_job_are_listed_with_their_sizes() {
    let outputs = with_job(MemoryStore::new());
    let results = [result_of(20_000, 0), result_of(70_000, 1)];
    for result in &results {
        record(&outputs, result).unwrap();
    }
    let mut expected = results.map(|result| ArtifactDescriptor::of(&result.serialize()));
    expected.sort_by_key(|descriptor| descriptor.sha256);
    let listed = block_on(outputs.artifacts(&session("s"), &job("j"))).unwrap();
    assert_eq!(listed, expected);
}

#[test]
fn the_digests_of_a_job_s_artifacts_are_known_also_where_a_manifest_is_damaged() {
    let outputs = with_job(MemoryStore::new());
    let result = result_of(20_000, 0);
    record(&outputs, &result).unwrap();
    let sha256 = sha256_of(&result);
    put(
        outputs.store(),
        &format!("tool-output/s/j/artifact/{sha256}"),
        "damaged",
    );
    let (s, j) = (session("s"), job("j"));
    let listed = block_on(outputs.artifacts(&s, &j));
    assert_eq!(listed, Err(ToolOutputError::Integrity));
    let digests = block_on(outputs.artifact_digests(&s, &j));
    assert_eq!(digests, Ok(vec![sha256]));
}

#[test]
fn handles_come_from_the_runtime_or_else_from_the_data() {
    let outputs = with_job(MemoryStore::new());
    let result = ToolResult {
        data: Some(RawJson::parse(r#"{"process_id":"p1","lines":9}"#).unwrap()),
        ..result_of(20_000, 0)
    };
    let reference = record(&outputs, &result).unwrap().reference.unwrap();
    assert!(reference.contains(r#""handles":{"process_id":"p1"}"#));
    let handles = Handles::parse(r#"{"lines":9}"#).unwrap();
    let (s, j) = (session("s"), job("j"));
    let named = block_on(outputs.record(&s, &j, None, result, Some(handles))).unwrap();
    let reference = named.reference.unwrap();
    assert!(reference.contains(r#""handles":{"lines":9}"#));
}

#[test]
fn everything_survives_a_restart_of_a_directory_store() {
    let root = tempfile::tempdir().unwrap();
    let open = || ToolOutputs::new(block_on(DirectoryStore::open(root.path())).unwrap());
    let result = result_of(300_000, 0);
    let (s, j, c) = (session("s"), job("j"), call("c"));
    let first = open();
    block_on(first.create_job(&s, &j, 1)).unwrap();
    let outcome = block_on(first.record(&s, &j, Some(&c), result.clone(), None)).unwrap();
    let second = open();
    let text = read_all(&second, "j", sha256_of(&result), 8192).unwrap();
    assert_eq!(text, result.serialize());
    let again = block_on(second.record(&s, &j, Some(&c), result, None)).unwrap();
    assert_eq!(again, outcome);
    assert_consistent(second.store(), "s", "j");
}

#[test]
fn a_store_of_one_s_own_has_one_session_whoever_asks_first() {
    let outputs = ToolOutputs::new(MemoryStore::new());
    let first = block_on(outputs.own_session(session("first")));
    assert_eq!(first, Ok(session("first")));
    let second = block_on(outputs.own_session(session("second")));
    assert_eq!(second, Ok(session("first")));
    put(outputs.store(), "session", "damaged");
    let damaged = block_on(outputs.own_session(session("third")));
    assert_eq!(damaged, Err(ToolOutputError::Integrity));
}

#[test]
fn writers_on_one_directory_do_not_lose_each_others_counts() {
    let root = tempfile::tempdir().unwrap();
    with_job(block_on(DirectoryStore::open(root.path())).unwrap());
    std::thread::scope(|threads| {
        for seed in 0..6 {
            let root = root.path();
            threads.spawn(move || {
                let outputs = ToolOutputs::new(block_on(DirectoryStore::open(root)).unwrap());
                for round in 0..5 {
                    // Every second result is the same for all writers.
                    let seed = if round % 2 == 0 { 0 } else { seed };
                    record(&outputs, &result_of(20_000 + round, seed)).unwrap();
                }
            });
        }
    });
    let outputs = ToolOutputs::new(block_on(DirectoryStore::open(root.path())).unwrap());
    let (_, usage) = block_on(outputs.job(&session("s"), &job("j"))).unwrap();
    assert_eq!(usage.artifact_count, 3 + 2 * 6);
    assert_consistent(outputs.store(), "s", "j");
}
