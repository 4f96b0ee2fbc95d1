//! Random operations with random failures, beside a plain model of what must be there.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::stores::FailingStore;
use super::*;

#[derive(Debug, Clone)]
enum Operation {
    Create {
        job: usize,
    },
    Record {
        job: usize,
        result: usize,
    },
    RecordCall {
        job: usize,
        call: usize,
        result: usize,
    },
    End {
        job: usize,
    },
    Delete {
        job: usize,
    },
    Read {
        job: usize,
        result: usize,
        offset: u64,
        limit: u64,
    },
}

fn operations() -> impl Strategy<Value = Operation> {
    let (jobs, results) = (0..3_usize, 0..6_usize);
    prop_oneof![
        jobs.clone().prop_map(|job| Operation::Create { job }),
        (jobs.clone(), results.clone()).prop_map(|(job, result)| Operation::Record { job, result }),
        (jobs.clone(), 0..4_usize, results.clone())
            .prop_map(|(job, call, result)| Operation::RecordCall { job, call, result }),
        jobs.clone().prop_map(|job| Operation::End { job }),
        jobs.clone().prop_map(|job| Operation::Delete { job }),
        (jobs, results, 0..200_000_u64, 4..=8192_u64).prop_map(|(job, result, offset, limit)| {
            Operation::Read {
                job,
                result,
                offset,
                limit,
            }
        }),
    ]
}

/// Results from inline to three chunks; 3 and 4 share their first chunk.
fn result(index: usize) -> ToolResult {
    match index {
        0 => result_of(500, 0),
        1 => result_of(16_384, 1),
        2 => result_of(16_385, 2),
        3 => result_of(100_000, 3),
        4 => result_of(140_000, 3),
        _ => ToolResult::from_text(false, "🙂\u{1}\"".repeat(9000)),
    }
}

#[derive(Default)]
struct Model {
    ended: bool,
    artifacts: BTreeSet<usize>,
    calls: BTreeMap<usize, usize>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_operations_with_any_failures_leave_what_was_acknowledged(
        steps in prop::collection::vec((operations(), prop::option::weighted(0.3, 0..5_usize)), 1..30),
    ) {
        let store = MemoryStore::new();
        let s = session("s");
        let mut model: BTreeMap<usize, Model> = BTreeMap::new();
        for (step, fail_at) in steps {
            let fail_at = fail_at.unwrap_or(usize::MAX);
            let failing = FailingStore::new(&store, fail_at, StoreError::Exhausted);
            let outputs = ToolOutputs::new(failing);
            let id = |index: &usize| job(&format!("j{index}"));
            let (expected, outcome) = match &step {
                Operation::Create { job } => {
                    let outcome = block_on(outputs.create_job(&s, &id(job), 1)).map(drop);
                    if outcome.is_ok() {
                        model.entry(*job).or_default();
                    }
                    (Ok(()), outcome)
                }
                Operation::Record { job, result: index } => {
                    let result = result(*index);
                    let large = result.serialized_byte_count() > 16_384;
                    let outcome = block_on(outputs.record(&s, &id(job), None, result, None));
                    let expected = match model.get_mut(job) {
                        None => Err(ToolOutputError::Unavailable),
                        Some(job) if job.ended => Err(ToolOutputError::JobEnded),
                        Some(job) => {
                            if outcome.is_ok() && large {
                                job.artifacts.insert(*index);
                            }
                            Ok(())
                        }
                    };
                    (expected, outcome.map(drop))
                }
                Operation::RecordCall { job, call: call_index, result: index } => {
                    let result = result(*index);
                    let large = result.serialized_byte_count() > 16_384;
                    let call = call(&format!("c{call_index}"));
                    let outcome = block_on(outputs.record(&s, &id(job), Some(&call), result, None));
                    let expected = match model.get_mut(job) {
                        None => Err(ToolOutputError::Unavailable),
                        Some(job) => match job.calls.get(call_index) {
                            Some(earlier) if earlier == index => Ok(()),
                            Some(_) => Err(ToolOutputError::CallReused),
                            None if job.ended => Err(ToolOutputError::JobEnded),
                            None => {
                                if outcome.is_ok() {
                                    job.calls.insert(*call_index, *index);
                                    if large {
                                        job.artifacts.insert(*index);
                                    }
                                }
                                Ok(())
                            }
                        },
                    };
                    (expected, outcome.map(drop))
                }
                Operation::End { job } => {
                    let ended = JobStatus::Completed;
                    let outcome = block_on(outputs.set_status(&s, &id(job), ended, 1)).map(drop);
                    let expected = match model.get_mut(job) {
                        None => Err(ToolOutputError::Unavailable),
                        Some(job) => {
                            job.ended |= outcome.is_ok();
                            Ok(())
                        }
                    };
                    (expected, outcome)
                }
                Operation::Delete { job } => {
                    let outcome = block_on(outputs.delete_job(&s, &id(job)));
                    if outcome.is_ok() {
                        model.remove(job);
                    }
                    (Ok(()), outcome)
                }
                Operation::Read { job, result: index, offset, limit } => {
                    let whole = result(*index).serialize();
                    let request = ReadRequest::new(*offset, *limit).unwrap();
                    let sha256 = Sha256Digest::of(whole.as_bytes());
                    let outcome = block_on(outputs.read(&s, &id(job), sha256, request));
                    let stored = model.get(job).is_some_and(|job| job.artifacts.contains(index));
                    let bytes = whole.len() as u64;
                    let expected = if !stored {
                        Err(ToolOutputError::Unavailable)
                    } else if *offset > bytes {
                        Err(ReadRefusal::OutOfRange { bytes }.into())
                    } else if !whole.is_char_boundary(usize::try_from(*offset).unwrap()) {
                        Err(ReadRefusal::MidCodePoint.into())
                    } else {
                        Ok(())
                    };
                    if let Ok(range) = &outcome {
                        let answer = range.answer().unwrap();
                        let position = |at| usize::try_from(at).unwrap();
                        let exact = position(answer.offset)..position(answer.next_offset);
                        prop_assert_eq!(answer.text, &whole[exact]);
                    }
                    (expected, outcome.map(drop))
                }
            };
            let failed = outcome == Err(StoreError::Exhausted.into());
            prop_assert!(failed && outputs.store().has_failed() || outcome == expected, "{:?}: {:?}", step, outcome);

            for index in 0..3 {
                assert_consistent(&store, "s", &format!("j{index}"));
            }
            for (index, model) in &model {
                let outputs = ToolOutputs::new(&store);
                let (record, usage) = block_on(outputs.job(&s, &id(index))).unwrap();
                prop_assert_eq!(record.status.is_terminal(), model.ended);
                prop_assert_eq!(usage.artifact_count, model.artifacts.len() as u64);
                for artifact in &model.artifacts {
                    let whole = result(*artifact).serialize();
                    let sha256 = Sha256Digest::of(whole.as_bytes());
                    let stored = block_on(outputs.read_whole(&s, &id(index), sha256)).unwrap();
                    prop_assert_eq!(stored, whole);
                }
            }
        }
    }
}
