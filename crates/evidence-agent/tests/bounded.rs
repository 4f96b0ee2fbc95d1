//! Contract A through the tools that a model calls: nothing large passes, every byte can be had.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evidence_agent::workspace::{MemoryTree, ToolWorkspace};
use evidence_agent::{
    AgentLimits, BoundedEvidenceWorkspace, Run, ScriptedGenerator, StopReason, ToolCall, ToolError,
    ToolPolicy, Workspace, script_replies, system_prompt,
};
use evidence_core::{ArtifactDescriptor, EvidenceLimits};
use evidence_store::{ArtifactStore, Batch, Key, MemoryStore, Store, StoreError};
use futures_executor::block_on;
use proptest::prelude::*;
use serde_json::Value;

type Bounded<S> = BoundedEvidenceWorkspace<ToolWorkspace<MemoryTree>, S>;

fn bounded<S: Store + Clone>(
    store: S,
    files: &[(&str, &str)],
    limits: EvidenceLimits,
) -> Bounded<S> {
    let tools = ToolWorkspace::new(files.iter().copied().collect(), ToolPolicy::default());
    BoundedEvidenceWorkspace::new(
        tools,
        ArtifactStore::new(store, "test".parse().unwrap()),
        limits,
    )
}

fn read(workspace: &mut impl Workspace, path: &str) -> Result<String, ToolError> {
    block_on(workspace.execute(&ToolCall::ReadFile {
        path: path.to_owned(),
    }))
}

fn json_after(header: &str, text: &str) -> Value {
    serde_json::from_str(text.strip_prefix(header).unwrap()).unwrap()
}

#[test]
fn a_successful_result_that_begins_like_an_error_is_bounded_like_any_other() {
    let log = format!("error: could not compile\n{}", "x".repeat(1000));
    let mut workspace = bounded(
        Arc::<MemoryStore>::default(),
        &[("log", &log)],
        EvidenceLimits::default(),
    );
    let text = read(&mut workspace, "log").unwrap();
    assert!(text.starts_with("Tool result externalized:\n"));
    assert!(text.len() <= 512);
}

#[test]
fn an_error_passes_unchanged_however_long() {
    let path = "x/".repeat(600) + "missing";
    let mut workspace = bounded(
        Arc::<MemoryStore>::default(),
        &[],
        EvidenceLimits::default(),
    );
    let error = read(&mut workspace, &path).unwrap_err();
    assert_eq!(error.to_string(), "path is not accessible");
}

#[test]
fn an_id_that_another_store_instance_registered_is_not_answered() {
    let store = Arc::<MemoryStore>::default();
    let text = "x".repeat(1000);
    let first = ArtifactStore::new(Arc::clone(&store), "first".parse().unwrap());
    let second = ArtifactStore::new(Arc::clone(&store), "second".parse().unwrap());
    let id = block_on(first.put(&text)).unwrap().artifact_id;
    let path = format!(".tool-artifacts/{id}/bytes/0-4");
    assert!(block_on(first.read_range(&path, 512)).is_ok());
    let refusal = block_on(second.read_range(&path, 512)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "artifact is not available in this store"
    );
}

#[test]
fn unusual_text_is_kept_exactly() {
    for text in [
        "\u{feff}byte order mark",
        "carriage\r\nreturns\r\n\r",
        "nul\0 and \u{1}\u{7f}\u{2028}",
        "🙂👩‍👧 é é",
    ] {
        let whole = text.repeat(60);
        let store = Arc::<MemoryStore>::default();
        let mut workspace = bounded(store, &[("f", &whole)], EvidenceLimits::default());
        let observation = json_after(
            "Tool result externalized:\n",
            &read(&mut workspace, "f").unwrap(),
        );
        assert_eq!(observation["byte_count"], whole.len());
        let id = ArtifactDescriptor::of(&whole).artifact_id;
        let (_, bytes) = block_on(workspace.artifacts().read(id)).unwrap();
        assert_eq!(bytes, whole.as_bytes());
        assert_eq!(
            read(
                &mut bounded(
                    Arc::<MemoryStore>::default(),
                    &[("f", text)],
                    EvidenceLimits::default()
                ),
                "f"
            )
            .unwrap(),
            text
        );
    }
}

#[test]
fn a_file_that_changes_between_reads_is_two_artifacts_and_both_stay_exact() {
    let store = Arc::<MemoryStore>::default();
    let (old, new) = ("old ".repeat(300), "new ".repeat(300));
    let mut workspace = bounded(store, &[("f", &old)], EvidenceLimits::default());
    let before = json_after(
        "Tool result externalized:\n",
        &read(&mut workspace, "f").unwrap(),
    );
    workspace
        .workspace_mut()
        .tree_mut()
        .insert("f", new.as_str());
    let after = json_after(
        "Tool result externalized:\n",
        &read(&mut workspace, "f").unwrap(),
    );
    assert_ne!(before["artifact_id"], after["artifact_id"]);
    for (observation, text) in [(before, "old "), (after, "new ")] {
        let id = observation["artifact_id"].as_str().unwrap();
        let answer = read(&mut workspace, &format!(".tool-artifacts/{id}/bytes/0-4")).unwrap();
        assert_eq!(json_after("Artifact range:\n", &answer)["data"], text);
    }
}

#[test]
fn the_namespace_can_only_be_read() {
    let mut workspace = bounded(
        Arc::<MemoryStore>::default(),
        &[],
        EvidenceLimits::default(),
    );
    let path = ".tool-artifacts/x".to_owned();
    for call in [
        ToolCall::ListFiles {
            path: Some(path.clone()),
        },
        ToolCall::WriteFile {
            path: path.clone(),
            content: String::new(),
        },
        ToolCall::EditFile {
            path,
            old: "a".into(),
            new: "b".into(),
        },
    ] {
        let error = block_on(workspace.execute(&call)).unwrap_err();
        assert_eq!(error.to_string(), "path is not accessible");
    }
}

/// A store that is full from its nth commit on.
#[derive(Clone)]
struct Filling {
    inner: Arc<MemoryStore>,
    commits_left: Arc<AtomicUsize>,
}

impl Store for Filling {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.inner.get(keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.inner.list(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let left = self.commits_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(StoreError::Exhausted);
        }
        self.commits_left.store(left - 1, Ordering::Relaxed);
        self.inner.commit(batch).await
    }
}

#[test]
fn exhausted_storage_ends_the_run_and_shows_nothing_unstored() {
    let store = Filling {
        inner: Arc::default(),
        commits_left: Arc::new(AtomicUsize::new(1)),
    };
    let (first, second) = ("first ".repeat(200), "second ".repeat(200));
    let files = [("1.log", first.as_str()), ("2.log", second.as_str())];
    let mut workspace = bounded(store.clone(), &files, EvidenceLimits::default());
    let replies = [
        r#"{"tool":"read_file","path":"1.log"}"#,
        r#"{"tool":"read_file","path":"2.log"}"#,
        r#"{"final":"never"}"#,
    ];
    let mut generator = ScriptedGenerator::new(replies, workspace.artifacts().clone());
    let run = Run::new("Read.", &workspace, AgentLimits::default());
    let outcome = block_on(run.to_end(&mut workspace, &mut generator, &mut |_| {}));
    assert_eq!(outcome.reason, StopReason::StorageFailed);
    assert!(!outcome.completed);
    assert_eq!(outcome.events.len(), 2);
    let shown = outcome.events[1].result.as_deref().unwrap();
    assert_eq!(shown, format!("error: {}", StoreError::Exhausted));
    assert_eq!(
        outcome.error.as_deref(),
        Some(StoreError::Exhausted.to_string().as_str())
    );
    // Nothing of the second is there; the first is whole.
    let artifacts = workspace.artifacts();
    let id = ArtifactDescriptor::of(&first).artifact_id;
    assert_eq!(block_on(artifacts.list()).unwrap(), [id]);
    assert_eq!(block_on(artifacts.read(id)).unwrap().1, first.as_bytes());
    let keys = block_on(store.list("")).unwrap();
    assert!(
        keys.iter()
            .all(|key| key.as_str().contains(&id.sha256().to_string()))
    );
}

#[test]
fn a_script_is_read_line_by_line_without_comments_and_blanks() {
    let script = "\u{feff}{\"final\":\"a\"}\r\n\n  # why\n \t\n#\n{\"final\":\"#\"}";
    let replies: Vec<_> = script_replies(script).collect();
    assert_eq!(
        replies,
        [(1, r#"{"final":"a"}"#), (6, r##"{"final":"#"}"##)]
    );
}

#[test]
fn a_script_says_what_it_misses() {
    let store = Arc::<MemoryStore>::default();
    let log = "x".repeat(1000);
    for (replies, expected) in [
        (
            vec![r#"{"tool":"read_file","path":"{{artifact_id}}"}"#],
            "before any result was externalized",
        ),
        (
            vec![
                r#"{"tool":"read_file","path":"f"}"#,
                r#"{"final":"{{find:needle}}"}"#,
            ],
            "which the artifact does not contain",
        ),
        (vec![], "no more replies"),
    ] {
        let mut workspace = bounded(
            Arc::clone(&store),
            &[("f", &log)],
            EvidenceLimits::default(),
        );
        let mut generator = ScriptedGenerator::new(replies, workspace.artifacts().clone());
        let run = Run::new("Find.", &workspace, AgentLimits::default());
        let outcome = block_on(run.to_end(&mut workspace, &mut generator, &mut |_| {}));
        assert_eq!(outcome.reason, StopReason::GeneratorFailed);
        let error = outcome.error.unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    /// Going from range to range gives back the artifact, whatever the text and the limits.
    #[test]
    fn concatenated_ranges_are_the_artifact(
        text in "\\PC{200,900}|[é漢🙂\\n]{200,900}|[a\\u{1}\"\\\\]{520,2000}",
        max_range_bytes in 4_i64..700,
    ) {
        let limits = EvidenceLimits::new(512, 64, max_range_bytes).unwrap();
        let mut workspace = bounded(Arc::<MemoryStore>::default(), &[("f", &text)], limits);
        let shown = read(&mut workspace, "f").unwrap();
        if text.len() <= 512 {
            prop_assert_eq!(shown, text);
            return Ok(());
        }
        let observation = json_after("Tool result externalized:\n", &shown);
        let id = observation["artifact_id"].as_str().unwrap();
        let mut path = observation["range_request"]["path"].as_str().unwrap().to_owned();
        let mut whole = String::new();
        loop {
            let answer = json_after("Artifact range:\n", &read(&mut workspace, &path).unwrap());
            whole.push_str(answer["data"].as_str().unwrap());
            let start = whole.len();
            if start == text.len() {
                break;
            }
            let end = text.floor_char_boundary(start + limits.max_range_bytes());
            path = format!(".tool-artifacts/{id}/bytes/{start}-{end}");
        }
        prop_assert_eq!(whole, text);
    }
}

const LOG_LINES: usize = 60;

fn log() -> String {
    let line = |number| format!("line {number}: warning: unused\r\n");
    let mut log: String = (1..=LOG_LINES).map(line).collect();
    log.push_str("error[E0282]: type annotations needed");
    log
}

#[test]
fn lines_and_find_are_malformed_and_unmentioned_unless_they_are_asked_for() {
    let log = log();
    let store = Arc::<MemoryStore>::default();
    let mut workspace = bounded(store, &[("log", &log)], EvidenceLimits::default());
    assert_eq!(
        workspace.instructions(),
        system_prompt(&ToolPolicy::default())
    );
    read(&mut workspace, "log").unwrap();
    let id = ArtifactDescriptor::of(&log).artifact_id;
    for request in [
        "lines/1-2",
        "find/error",
        "find/error?after=0",
        "lines/",
        "find/",
    ] {
        let path = format!(".tool-artifacts/{id}/{request}");
        let error = read(&mut workspace, &path).unwrap_err();
        assert_eq!(error.to_string(), "artifact range path is malformed");
    }
}

/// But for what is added, a run with lines and searches is the contract's to the byte.
#[test]
fn observations_ranges_and_refusals_are_the_same_with_lines_and_find() {
    let log = log();
    let other = ArtifactDescriptor::of("other").artifact_id;
    let id = ArtifactDescriptor::of(&log).artifact_id;
    let namespace = format!(".tool-artifacts/{id}");
    let mut paths = vec![
        "log".to_owned(),
        "small".to_owned(),
        "missing".to_owned(),
        ".tool-artifacts/".to_owned(),
        namespace.clone(),
        format!(".tool-artifacts/{other}/bytes/0-4"),
    ];
    for range in [
        "0-512",
        "0-513",
        "9-9",
        "0-99999",
        "a-b",
        "0-4/lines/1-2",
        "0-4?after=1",
    ] {
        paths.push(format!("{namespace}/bytes/{range}"));
    }
    let files = [("log", log.as_str()), ("small", "small")];
    let store = || Arc::<MemoryStore>::default();
    let mut off = bounded(store(), &files, EvidenceLimits::default());
    let mut on = bounded(store(), &files, EvidenceLimits::default()).with_lines_and_find();
    for path in &paths {
        assert_eq!(read(&mut on, path), read(&mut off, path), "{path}");
    }
    assert_eq!(on.available_tools(), off.available_tools());
    let write = ToolCall::WriteFile {
        path: format!("{namespace}/lines/1-2"),
        content: String::new(),
    };
    let error = block_on(on.execute(&write)).unwrap_err();
    assert_eq!(error.to_string(), "path is not accessible");
}

#[test]
fn a_run_that_is_told_of_lines_and_find_reads_by_them() {
    let log = log();
    let store = Arc::<MemoryStore>::default();
    let limits = EvidenceLimits::default();
    let mut workspace = bounded(store, &[("log", &log)], limits).with_lines_and_find();
    let replies = [
        r#"{"tool":"read_file","path":"log"}"#,
        r#"{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/find/error%5B"}"#,
        r#"{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/lines/60-61"}"#,
        r#"{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/lines/1-61"}"#,
        r#"{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/lines/60-62"}"#,
        r#"{"final":"done"}"#,
    ];
    let mut generator = ScriptedGenerator::new(replies, workspace.artifacts().clone());
    let run = Run::new("Find the error.", &workspace, AgentLimits::default());
    let told = run.messages()[0].content.clone();
    let contract = system_prompt(&ToolPolicy::default());
    let added = told.strip_prefix(&contract).unwrap();
    assert!(added.contains("/lines/120-135") && added.contains("?after=<next_after>"));

    let outcome = block_on(run.to_end(&mut workspace, &mut generator, &mut |_| {}));
    assert_eq!(outcome.reason, StopReason::Completed);
    let result = |step: usize| outcome.events[step - 1].result.as_deref().unwrap();
    let at = log.find("error[").unwrap();
    let found = json_after("Artifact find:\n", result(2));
    assert_eq!(found["hit_count"], 1);
    assert_eq!(
        found["hits"].to_string(),
        format!("[{{\"line\":61,\"range\":[{at},{}]}}]", at + 6)
    );
    let lines = json_after("Artifact lines:\n", result(3));
    assert_eq!(
        lines["data"],
        "line 60: warning: unused\r\nerror[E0282]: type annotations needed"
    );
    // What is larger than a range is cut and is not externalized again.
    let lines = json_after("Artifact lines:\n", result(4));
    assert_eq!(lines["data"], log[..512]);
    assert_eq!(lines["lines_range"][1], log.len());
    assert_eq!(
        result(5),
        "error: artifact lines exceed the stored line count of 61"
    );
}
