//! The recorded vectors of contract A.
//!
//! The loop of `loop.jsonl` is evidence-agent's, and the workspace that it works in calls the component
//! for whatever contract A says of results and paths. `protocol.jsonl` and the limits of the loop in
//! `config.jsonl` are of the loop alone: the component exports neither.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use evidence_agent::workspace::MemoryTree;
use evidence_agent::{ToolCall, ToolError, ToolName, ToolPolicy, Workspace};
use evidence_conformance::{
    Bounded, Files, Host, VectorKind, check_file, memory_files, memory_tree,
};
use evidence_core::EvidenceLimits;
use evidence_store::{MemoryStore, Scope};
use serde::Deserialize;
use wasmtime::Store;

use crate::host::exports::bounded_evidence::evidence::artifacts::Limits;
use crate::host::{Blobs, Evidence, now, typed};

/// A workspace whose results are bounded by the component.
struct ComponentWorkspace<W> {
    inner: W,
    scope: String,
    limits: Limits,
    component: Evidence,
    store: Store<Blobs>,
}

impl<W: Workspace> Workspace for ComponentWorkspace<W> {
    fn policy(&self) -> &ToolPolicy {
        self.inner.policy()
    }

    fn available_tools(&self) -> Vec<ToolName> {
        self.inner.available_tools()
    }

    fn modified_files(&self) -> Vec<String> {
        self.inner.modified_files()
    }

    fn instructions(&self) -> String {
        self.inner.instructions()
    }

    async fn execute(&mut self, call: &ToolCall) -> Result<String, ToolError> {
        let (store, limits) = (&mut self.store, Some(self.limits));
        let artifacts = self.component.bounded_evidence_evidence_artifacts();
        if let ToolCall::ReadFile { path } = call
            && artifacts.call_is_artifact_path(&mut *store, path).unwrap()
        {
            let answer = artifacts
                .call_read_range(store, &self.scope, path, limits)
                .unwrap()
                .unwrap();
            let refusal = answer.text.strip_prefix("error: ");
            return match refusal {
                Some(refusal) if !answer.ok => Err(ToolError::Refused(refusal.to_owned())),
                _ => Ok(answer.text),
            };
        }
        let text = self.inner.execute(call).await?;
        let bounded = artifacts
            .call_bound(store, &self.scope, &text, limits)
            .unwrap();
        let bounded = bounded.map_err(|error| ToolError::Refused(error.message))?;
        Ok(bounded.map_or(text, |observation| observation.text))
    }
}

impl<W: Workspace> Bounded<W, Arc<MemoryStore>> for ComponentWorkspace<W> {
    fn new(inner: W, store: Arc<MemoryStore>, scope: Scope, limits: EvidenceLimits) -> Self {
        let (store, component) = typed(Blobs::over(store));
        let signed = |limit| i64::try_from(limit).unwrap();
        Self {
            inner,
            scope: scope.to_string(),
            limits: Limits {
                max_inline_bytes: signed(limits.max_inline_bytes()),
                preview_bytes: signed(limits.preview_bytes()),
                max_range_bytes: signed(limits.max_range_bytes()),
            },
            component,
            store,
        }
    }

    fn inner(&self) -> &W {
        &self.inner
    }
}

struct ComponentHost;

impl Host for ComponentHost {
    type Store = Arc<MemoryStore>;
    type Tree = MemoryTree;
    type Bounded<W: Workspace> = ComponentWorkspace<W>;

    async fn store(&self) -> Result<Self::Store, String> {
        Ok(Arc::default())
    }

    fn tree(&self, files: &Files) -> Result<Self::Tree, String> {
        Ok(memory_tree(files))
    }

    fn files(&self, tree: &Self::Tree) -> Result<Files, String> {
        Ok(memory_files(tree))
    }
}

fn lines_of(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    std::fs::read_to_string(directory.join(name)).unwrap()
}

fn check(name: &str) -> String {
    let kind = VectorKind::of_file(name).unwrap();
    now(check_file(kind, &lines_of(name), &ComponentHost)).to_string()
}

#[test]
fn all_115_vectors_of_evidence_are_matched() {
    assert_eq!(check("evidence.jsonl"), "115 passed, 0 failed");
}

#[test]
fn all_42_runs_of_the_loop_are_matched() {
    assert_eq!(check("loop.jsonl"), "42 passed, 0 failed");
}

#[test]
fn all_11_limits_of_config_are_matched_and_5_are_the_loops() {
    #[derive(Deserialize)]
    struct Vector {
        limits: Option<BTreeMap<String, i64>>,
        error: Option<String>,
    }
    let (mut store, component) = typed(Blobs::over(Arc::default()));
    let artifacts = component.bounded_evidence_evidence_artifacts();
    let default = artifacts.call_default_limits(&mut store).unwrap();
    let (mut checked, mut of_the_loop) = (0, 0);
    for line in lines_of("config.jsonl").lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        let Some(limits) = vector.limits else {
            of_the_loop += 1;
            continue;
        };
        let limit = |name: &str, default| limits.get(name).copied().unwrap_or(default);
        let limits = Limits {
            max_inline_bytes: limit("max_inline_bytes", default.max_inline_bytes),
            preview_bytes: limit("preview_bytes", default.preview_bytes),
            max_range_bytes: limit("max_range_bytes", default.max_range_bytes),
        };
        let error = artifacts.call_check_limits(&mut store, limits).unwrap();
        assert_eq!(error.err().map(|error| error.message), vector.error);
        checked += 1;
    }
    assert_eq!((checked, of_the_loop), (11, 5));
}
