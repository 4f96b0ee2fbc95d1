//! Hosts and callers that do what they must not: the component answers an error and never traps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evidence_core::{ArtifactDescriptor, Sha256Digest};
use evidence_store::MemoryStore;
use serde_json::{Value, json};
use wasmtime::component::{Type, Val};

use crate::calls::contents;
use crate::dynamic::{Dynamic, functions};
use crate::host::bounded_evidence::evidence::blobs::Error;
use crate::host::{Answer, Blobs, Call};

const LINES: usize = 20_000;

fn result_of(lines: usize) -> Value {
    json!({ "before": r#"{"success":true,"text":""#, "repeat": ["line\\n", lines], "after": "\"}" })
}

/// A store with a job, its stored result and an artifact; the digests of both.
fn stored() -> (Arc<MemoryStore>, String, String) {
    let store: Arc<MemoryStore> = Arc::default();
    let mut component = Dynamic::new(Blobs::over(Arc::clone(&store)));
    let options = json!({ "tool-call-id": "call-1", "handles": null });
    let mut call = |name: &str, arguments: &[Value]| {
        let answer = component.call(name, arguments).unwrap();
        assert!(answer.get("ok").is_some(), "{name}: {answer}");
    };
    call(
        "tool-output.create-job",
        &[json!("s"), json!("j"), json!(1)],
    );
    let record = [json!("s"), json!("j"), result_of(LINES), options];
    call("tool-output.record", &record);
    let text = "line\n".repeat(LINES);
    call("artifacts.put", &[json!("s"), json!(text)]);
    let serialized = format!(
        r#"{{"success":true,"text":"{}","data":null,"receipt":null}}"#,
        r"line\n".repeat(LINES)
    );
    let sha256 = Sha256Digest::of(serialized.as_bytes()).to_string();
    let artifact_id = ArtifactDescriptor::of(&text).artifact_id.to_string();
    (store, sha256, artifact_id)
}

/// A call of each function that uses the blobs, and whether it only reads one thing: then it is answered with that
/// or not at all.
fn calls(sha256: &str, artifact_id: &str) -> Vec<(&'static str, Vec<Value>, bool)> {
    let options = |call: &str| json!({ "tool-call-id": call, "handles": null });
    let request = json!({ "offset": 60_000, "limit": 8192 });
    let arguments = format!(r#"{{"sha256":"{sha256}","offset":0,"limit":8192}}"#);
    let path = format!(".tool-artifacts/{artifact_id}/bytes/61000-61500");
    let (s, j, id, sha256) = (json!("s"), json!("j"), json!(artifact_id), json!(sha256));
    vec![
        (
            "artifacts.bound",
            vec![s.clone(), json!({ "repeat": ["x\n", 40_000] }), json!(null)],
            false,
        ),
        ("artifacts.put", vec![s.clone(), json!("a text")], false),
        (
            "artifacts.read-range",
            vec![s.clone(), json!(path), json!(null)],
            true,
        ),
        ("artifacts.describe", vec![s.clone(), id.clone()], true),
        ("artifacts.read", vec![s.clone(), id.clone()], true),
        ("artifacts.list", vec![s.clone()], false),
        ("artifacts.delete", vec![s.clone(), id], false),
        ("artifacts.delete-all", vec![s.clone()], false),
        (
            "tool-output.create-job",
            vec![s.clone(), json!("j2"), json!(1)],
            false,
        ),
        ("tool-output.job", vec![s.clone(), j.clone()], true),
        ("tool-output.jobs", vec![s.clone()], false),
        (
            "tool-output.set-status",
            vec![s.clone(), j.clone(), json!("completed"), json!(2)],
            false,
        ),
        (
            "tool-output.record",
            vec![s.clone(), j.clone(), result_of(30_000), options("call-2")],
            false,
        ),
        (
            "tool-output.record",
            vec![s.clone(), j.clone(), result_of(LINES), options("call-1")],
            false,
        ),
        (
            "tool-output.read",
            vec![s.clone(), j.clone(), sha256.clone(), request],
            true,
        ),
        (
            "tool-output.read-tool",
            vec![s.clone(), j.clone(), json!(arguments)],
            true,
        ),
        (
            "tool-output.read-whole",
            vec![s.clone(), j.clone(), sha256],
            true,
        ),
        ("tool-output.artifacts", vec![s.clone(), j.clone()], false),
        ("tool-output.delete-job", vec![s.clone(), j], false),
        ("retention.stored-jobs", vec![s], false),
        ("retention.plan-sweep", vec![json!(1), json!(null)], false),
        ("retention.sweep", vec![json!(1), json!(null)], false),
    ]
}

/// Whether the caller was told that it did not get what it asked for.
fn is_refused(answer: &Value) -> bool {
    answer.get("error").is_some() || answer["ok"]["ok"] == json!(false)
}

/// A store with the same contents.
fn copy(store: &MemoryStore) -> Arc<MemoryStore> {
    use evidence_store::{Batch, Key, Store as _};
    let put = contents(store).into_iter();
    let copy: Arc<MemoryStore> = Arc::default();
    let batch = Batch {
        put: put
            .map(|(key, value)| (Key::new(key), value.into()))
            .collect(),
        ..Batch::default()
    };
    crate::host::now(copy.commit(batch)).unwrap();
    copy
}

/// Makes each of the calls with one blob call after the other answered by `fault`, and hands over what came of
/// it: the call, whether it only reads, the honest answer, the answer, and the blobs before and after.
fn at_every_blob_call(
    fault: impl Fn(&Call) -> Option<Answer> + Clone + Send + 'static,
    check: impl Fn(&str, bool, &Value, &Value, bool),
) -> usize {
    let (store, sha256, artifact_id) = stored();
    let mut faults = 0;
    for (name, arguments, only_reads) in calls(&sha256, &artifact_id) {
        let honest = Dynamic::new(Blobs::over(copy(&store)))
            .call(name, &arguments)
            .unwrap();
        assert!(!is_refused(&honest), "{name}: {honest}");
        for at in 0.. {
            let changed = copy(&store);
            let count = Arc::new(AtomicUsize::new(0));
            let (fault, counted) = (fault.clone(), Arc::clone(&count));
            let mut component = Dynamic::new(Blobs {
                store: Arc::clone(&changed),
                fault: Some(Box::new(move |call| {
                    let now = counted.fetch_add(1, Ordering::Relaxed);
                    (now == at).then(|| fault(call)).flatten()
                })),
            });
            let answer = component.call(name, &arguments);
            let answer = answer.unwrap_or_else(|trap| panic!("{name}, blob call {at}: {trap:?}"));
            if count.load(Ordering::Relaxed) <= at {
                break;
            }
            let is_unchanged = contents(&store) == contents(&changed);
            check(name, only_reads, &honest, &answer, is_unchanged);
            faults += 1;
            // The instance goes on.
            component.store.data_mut().fault = None;
            assert!(!is_refused(
                &component.call("tool-output.jobs", &[json!("s")]).unwrap()
            ));
        }
    }
    faults
}

#[test]
fn a_store_that_fails_at_any_call_is_an_error_and_changes_nothing() {
    let errors = [
        (Error::Exhausted, "exhausted"),
        (Error::Unavailable("gone".to_owned()), "unavailable"),
        (Error::Damaged("torn".to_owned()), "damaged"),
    ];
    for (error, word) in errors {
        let fails = move |_: &Call| Some(Answer::Fails(error.clone()));
        let faults = at_every_blob_call(fails, |name, _, _, answer, is_unchanged| {
            assert!(is_refused(answer), "{name}: {answer}");
            if name == "artifacts.read-range" {
                let refusal = "error: could not read tool-result artifact";
                assert_eq!(answer["ok"]["text"], json!(refusal));
                return;
            }
            // A sweep that ends early has recorded the time.
            assert!(is_unchanged || name == "retention.sweep", "{name}");
            let code = code_of(answer).unwrap();
            let expected = match (name.starts_with("artifacts."), word) {
                (false, "damaged") => "integrity-failure".to_owned(),
                _ => format!("storage-{word}"),
            };
            assert_eq!(code, expected, "{name}");
            assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
        });
        assert!(faults >= 40, "{faults}");
    }
}

/// The word of an error's code, which has a number with it in contract B.
fn code_of(answer: &Value) -> Option<&str> {
    let code = &answer["error"]["code"];
    code.as_str().or(code["tag"].as_str())
}

#[test]
fn one_conflict_is_tried_again_or_told_and_endless_ones_are_an_error() {
    let conflict = |call: &Call| match call {
        Call::Commit => Some(Answer::Fails(Error::Conflict)),
        _ => None,
    };
    let faults = at_every_blob_call(conflict, |name, _, honest, answer, is_unchanged| {
        // An artifact is written once; who lost against nobody is told so, and nothing is stored.
        let is_told = name.starts_with("artifacts.") && is_unchanged;
        let is_told = is_told && code_of(answer) == Some("storage-conflict");
        assert!(answer == honest || is_told, "{name}: {answer}");
    });
    assert!(faults >= 40, "{faults}");
    let (store, sha256, artifact_id) = stored();
    let mut refused = Vec::new();
    for (name, arguments, _) in calls(&sha256, &artifact_id) {
        let commits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&commits);
        let mut component = Dynamic::new(Blobs {
            store: Arc::clone(&store),
            fault: Some(Box::new(move |call| {
                let answer = conflict(call);
                counted.fetch_add(usize::from(answer.is_some()), Ordering::Relaxed);
                answer
            })),
        });
        let answer = component.call(name, &arguments).unwrap();
        if commits.load(Ordering::Relaxed) == 0 {
            assert!(!is_refused(&answer), "{name}: {answer}");
            continue;
        }
        let code = code_of(&answer);
        assert!(
            matches!(code, Some("conflict" | "storage-conflict")),
            "{name}: {answer}"
        );
        refused.push(name);
    }
    assert_eq!(
        refused,
        [
            "artifacts.bound",
            "artifacts.put",
            "artifacts.delete",
            "artifacts.delete-all",
            "tool-output.create-job",
            "tool-output.set-status",
            "tool-output.record",
            "tool-output.delete-job",
        ]
    );
}

#[test]
fn values_that_are_not_what_was_written_are_never_passed_on() {
    type Damage = fn(&[String]) -> Vec<Option<Vec<u8>>>;
    let damages: [Damage; 7] = [
        |_| Vec::new(),
        |keys| vec![None; keys.len() + 1],
        |keys| vec![None; keys.len()],
        |keys| vec![Some(Vec::new()); keys.len()],
        |keys| vec![Some(vec![0xff; 100]); keys.len()],
        |keys| vec![Some(b"line\n".repeat(12_288)); keys.len()],
        // Sealed as records are, and something else.
        |keys| {
            let sealed = format!("{}\n{{}}", Sha256Digest::of(b"{}"));
            vec![Some(sealed.into_bytes()); keys.len()]
        },
    ];
    for damage in damages {
        let lies = move |call: &Call| match call {
            Call::Get(keys) => Some(Answer::Values(damage(keys))),
            _ => None,
        };
        at_every_blob_call(lies, |name, only_reads, honest, answer, _| {
            if only_reads {
                assert!(is_refused(answer) || answer == honest, "{name}: {answer}");
            }
        });
    }
}

#[test]
fn keys_that_nobody_wrote_do_no_harm() {
    let prefixed = |prefix: &str, rests: &[&str]| -> Vec<String> {
        rests.iter().map(|rest| format!("{prefix}{rest}")).collect()
    };
    let damaged = move |call: &Call| match call {
        Call::List(_) => Some(Answer::Keys(vec!["elsewhere".to_owned()])),
        _ => None,
    };
    let refused = AtomicUsize::new(0);
    at_every_blob_call(damaged, |name, _, honest, answer, is_unchanged| {
        if is_refused(answer) {
            assert!(is_unchanged || name == "retention.sweep", "{name}");
            refused.fetch_add(1, Ordering::Relaxed);
        } else {
            // Another of its blob calls than a list.
            assert_eq!(answer, honest, "{name}");
        }
    });
    // Each function that lists.
    assert_eq!(refused.into_inner(), 9);
    let strange = move |call: &Call| match call {
        Call::List(prefix) => {
            let rests = [
                "",
                "/",
                "//job",
                "é/job",
                "s/j/job/x",
                "\0",
                "s/../job",
                "s/j/process/%",
            ];
            Some(Answer::Keys(prefixed(prefix, &rests)))
        }
        _ => None,
    };
    at_every_blob_call(strange, |_, _, _, _, _| {});
}

#[test]
fn no_argument_makes_the_component_trap() {
    let deep = format!(
        r#"{{"success":true,"text":"","data":{}{}}}"#,
        "[".repeat(1_000_000),
        "]".repeat(1_000_000)
    );
    let texts = [
        String::new(),
        "\0".to_owned(),
        "..".to_owned(),
        "\u{feff}🙂".repeat(1000),
        "[".repeat(1_000_000),
        "x".repeat(4 << 20),
        format!(
            ".tool-artifacts/artifact-{}/bytes/0-{}",
            "0".repeat(64),
            "9".repeat(10_000)
        ),
        format!(
            r#"{{"success":true,"text":"","data":{}}}"#,
            "9".repeat(1_000_000)
        ),
        deep,
    ];
    let (store, _, _) = stored();
    let mut component = Dynamic::new(Blobs::over(store));
    let functions = functions();
    assert_eq!(functions.len(), 31);
    for (name, types) in &functions {
        for text in &texts {
            for number in [0, 1, i64::MAX as u64, u64::MAX] {
                // Beside hostile texts alone, those that are reached behind a good session and job.
                for good in 0..=types.len().min(2) {
                    let arguments: Vec<Val> = types
                        .iter()
                        .enumerate()
                        .map(|(index, ty)| match ty {
                            Type::String if index < good => {
                                Val::String(["s", "j"][index].to_owned())
                            }
                            ty => hostile(ty, text, number),
                        })
                        .collect();
                    let outcome = component.call_values(name, &arguments);
                    if let Err(trap) = outcome {
                        panic!("{name} traps: {trap:?}");
                    }
                }
            }
        }
    }
}

/// A value of this type, made of such a text and such a number.
fn hostile(ty: &Type, text: &str, number: u64) -> Val {
    match ty {
        Type::U64 => Val::U64(number),
        Type::S64 => Val::S64(number.cast_signed()),
        Type::String => Val::String(text.to_owned()),
        Type::List(list) => Val::List(vec![hostile(&list.ty(), text, number); 3]),
        Type::Record(record) => Val::Record(
            record
                .fields()
                .map(|field| (field.name.to_owned(), hostile(&field.ty, text, number)))
                .collect(),
        ),
        Type::Option(option) => Val::Option(Some(Box::new(hostile(&option.ty(), text, number)))),
        Type::Enum(words) => Val::Enum(words.names().next().unwrap().to_owned()),
        Type::Variant(variant) => {
            let case = variant.cases().find(|case| case.ty.is_some()).unwrap();
            let payload = case.ty.map(|ty| Box::new(hostile(&ty, text, number)));
            Val::Variant(case.name.to_owned(), payload)
        }
        ty => unreachable!("no parameter has the type {ty:?}"),
    }
}

#[test]
fn results_of_many_mebibytes_are_stored_or_refused() {
    const MIB: usize = 1 << 20;
    let store: Arc<MemoryStore> = Arc::default();
    let mut component = Dynamic::new(Blobs::over(store));
    let mut call = |name: &str, arguments: &[Value]| component.call(name, arguments).unwrap();
    call(
        "tool-output.create-job",
        &[json!("s"), json!("j"), json!(1)],
    );
    let options = json!({ "tool-call-id": null, "handles": null });
    let mut record = |before: &str, text: &str, times: usize| {
        let result = json!({ "before": before, "repeat": [text, times], "after": "\"}" });
        let arguments = [json!("s"), json!("j"), result, options.clone()];
        call("tool-output.record", &arguments)
    };
    let start = r#"{"success":true,"text":""#;
    let too_large = record(start, "x", 64 * MIB);
    assert_eq!(too_large["error"]["code"]["tag"], json!("result-too-large"));
    for number in 0..8 {
        let answer = record(&format!("{start}{number}"), "x", 16 * MIB - 100);
        assert!(answer["ok"]["reference"].is_string(), "{answer}");
    }
    let full = record(&format!("{start}8"), "x", MIB);
    assert_eq!(full["error"]["code"]["tag"], json!("storage-exhausted"));
    let text = json!({ "repeat": ["x", 32 * MIB] });
    let bounded = call("artifacts.bound", &[json!("s"), text, json!(null)]);
    assert_eq!(bounded["ok"]["artifact"]["byte-count"], json!(32 * MIB));
}
