//! The calls of `tests/component/calls.jsonl`: what the component exports beside what contract A's vectors
//! reach. Node runs the same file.
//!
//! `RECORD_CALLS=1` writes the answers anew, to be looked at before they are kept. What they leave in the
//! blobs is compared with what the native crates leave in a store of their own, so that the two can share one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evidence_agent::bound_result;
use evidence_core::tool_output::Handles;
use evidence_core::{EvidenceLimits, ToolResult};
use evidence_store::{ArtifactStore, MemoryStore, Store as _, ToolOutputs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dynamic::{Dynamic, abridged, text};
use crate::host::{Blobs, now};

#[derive(Deserialize, Serialize)]
struct Group {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize, Serialize)]
struct Step {
    call: String,
    args: Vec<Value>,
    #[serde(default)]
    answer: Value,
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/component/calls.jsonl")
}

pub fn contents(store: &MemoryStore) -> BTreeMap<String, Vec<u8>> {
    let keys = now(store.list("")).unwrap();
    let values = now(store.get(&keys)).unwrap();
    let names = keys.iter().map(ToString::to_string);
    names
        .zip(values.into_iter().map(|value| value.unwrap().to_vec()))
        .collect()
}

/// Does natively what the call does, where it changes something; refusals change nothing here either.
fn natively(store: &Arc<MemoryStore>, Step { call, args, .. }: &Step) {
    let outputs = ToolOutputs::new(Arc::clone(store));
    let string = |index: usize| text(&args[index]);
    let time = |index: usize| args[index].as_u64();
    let owned = || Some((string(0).parse().ok()?, string(1).parse().ok()?));
    let artifacts = || {
        let scope = string(0).parse().ok()?;
        Some(ArtifactStore::new(Arc::clone(store), scope))
    };
    match call.as_str() {
        "tool-output.create-job" => owned().map(|(session, job)| {
            drop(now(outputs.create_job(&session, &job, time(2).unwrap())));
        }),
        "tool-output.set-status" => owned().map(|(session, job)| {
            let status = string(2).parse().unwrap();
            let now_ms = time(3).unwrap();
            drop(now(outputs.set_status(&session, &job, status, now_ms)));
        }),
        "tool-output.delete-job" => owned().map(|(session, job)| {
            drop(now(outputs.delete_job(&session, &job)));
        }),
        "tool-output.record" => owned().and_then(|(session, job)| {
            let result = ToolResult::parse(&string(2)).ok()?;
            let named = |name: &str| args[3][name].as_str();
            let call = named("tool-call-id").map(str::parse).transpose().ok()?;
            let handles = named("handles").map(Handles::parse).transpose().ok()?;
            drop(now(outputs.record(
                &session,
                &job,
                call.as_ref(),
                result,
                handles,
            )));
            Some(())
        }),
        "retention.sweep" => {
            drop(now(outputs.sweep(time(0).unwrap(), time(1))));
            Some(())
        }
        "artifacts.put" => artifacts().map(|artifacts| drop(now(artifacts.put(&string(1))))),
        "artifacts.bound" => artifacts()
            .and_then(|artifacts| {
                let limit = |name: &str| args[2][name].as_i64();
                let limits = match limit("max-inline-bytes") {
                    None => EvidenceLimits::default(),
                    Some(max_inline_bytes) => EvidenceLimits::new(
                        max_inline_bytes,
                        limit("preview-bytes")?,
                        limit("max-range-bytes")?,
                    )
                    .ok()?,
                };
                now(bound_result(string(1), &artifacts, &limits)).ok()
            })
            .map(drop),
        "artifacts.delete" => artifacts().and_then(|artifacts| {
            let id = string(1).parse().ok()?;
            now(artifacts.delete(id)).ok()
        }),
        "artifacts.delete-all" => {
            artifacts().and_then(|artifacts| now(artifacts.delete_all()).ok())
        }
        _ => None,
    };
}

#[test]
fn every_recorded_call_is_answered_as_recorded_and_leaves_what_the_native_crates_leave() {
    let recorded = std::fs::read_to_string(file()).unwrap();
    let record = std::env::var_os("RECORD_CALLS").is_some();
    let mut again = String::new();
    let mut count = 0;
    for line in recorded.lines() {
        let mut group: Group = serde_json::from_str(line).unwrap();
        let store: Arc<MemoryStore> = Arc::default();
        let native: Arc<MemoryStore> = Arc::default();
        let mut component = Dynamic::new(Blobs::over(Arc::clone(&store)));
        for (index, step) in group.steps.iter_mut().enumerate() {
            let place = format!("{}, step {}: {}", group.name, index + 1, step.call);
            let answer = component.call(&step.call, &step.args).expect(&place);
            let answer = abridged(answer);
            if record {
                step.answer = answer;
            } else {
                assert_eq!(answer, step.answer, "{place}");
            }
            natively(&native, step);
            assert!(contents(&store) == contents(&native), "{place}: the blobs");
            count += 1;
        }
        again += &serde_json::to_string(&group).unwrap();
        again.push('\n');
    }
    if record {
        std::fs::write(file(), again).unwrap();
    }
    assert_eq!(count, 142);
}
