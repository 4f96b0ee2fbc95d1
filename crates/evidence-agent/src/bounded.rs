//! The workspace that keeps large results out of the prompt (contract A).

use evidence_core::observation::{self, Observation};
use evidence_core::range;
use evidence_core::{ArtifactDescriptor, EvidenceLimits};
use evidence_store::{ArtifactStore, Store};

use crate::action::{ToolCall, ToolName};
use crate::policy::ToolPolicy;
use crate::selection::{LinesAndFind, Ranges, Selection};
use crate::workspace::{ToolError, Workspace};

/// Wraps a workspace: successful results over `max_inline_bytes` are stored and become bounded
/// observations, range paths are answered from the store, everything else passes unchanged.
#[derive(Debug)]
pub struct BoundedEvidenceWorkspace<W, S, R = Ranges> {
    workspace: W,
    artifacts: ArtifactStore<S>,
    limits: EvidenceLimits,
    selection: R,
}

impl<W: Workspace, S: Store> BoundedEvidenceWorkspace<W, S> {
    /// Wraps `workspace`; its large results go to `artifacts`.
    pub const fn new(workspace: W, artifacts: ArtifactStore<S>, limits: EvidenceLimits) -> Self {
        Self {
            workspace,
            artifacts,
            limits,
            selection: Ranges,
        }
    }

    /// The same with lines and searches of artifacts, which go beyond the contract: the model is told
    /// of them, and their paths are answered.
    pub fn with_lines_and_find(self) -> BoundedEvidenceWorkspace<W, S, LinesAndFind> {
        BoundedEvidenceWorkspace {
            workspace: self.workspace,
            artifacts: self.artifacts,
            limits: self.limits,
            selection: LinesAndFind,
        }
    }
}

impl<W: Workspace, S: Store, R: Selection> BoundedEvidenceWorkspace<W, S, R> {
    /// The wrapped workspace.
    pub const fn workspace(&self) -> &W {
        &self.workspace
    }

    /// The wrapped workspace, to change it from outside of a run.
    pub const fn workspace_mut(&mut self) -> &mut W {
        &mut self.workspace
    }

    /// Where the complete results are.
    pub const fn artifacts(&self) -> &ArtifactStore<S> {
        &self.artifacts
    }
}

/// A successful result as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundedResult {
    /// The result itself, or the observation in its place.
    pub text: String,
    /// What was stored, when the text is an observation.
    pub artifact: Option<ArtifactDescriptor>,
}

/// Bounds one successful result: unchanged when it is small enough, otherwise stored and replaced by
/// its observation.
///
/// # Errors
///
/// [`ToolError::Storage`] when the text could not be stored, [`ToolError::Refused`] when no
/// observation fits the limits.
pub async fn bound_result<S: Store>(
    text: String,
    artifacts: &ArtifactStore<S>,
    limits: &EvidenceLimits,
) -> Result<BoundedResult, ToolError> {
    if observation::is_inline(text.len(), limits) {
        return Ok(BoundedResult {
            text,
            artifact: None,
        });
    }
    let descriptor = artifacts.put(&text).await?;
    let observation = Observation::new(&text, &descriptor, limits)
        .map_err(|error| ToolError::Refused(error.to_string()))?;
    Ok(BoundedResult {
        text: observation.render(),
        artifact: Some(descriptor),
    })
}

impl<W: Workspace, S: Store, R: Selection> Workspace for BoundedEvidenceWorkspace<W, S, R> {
    fn policy(&self) -> &ToolPolicy {
        self.workspace.policy()
    }

    fn available_tools(&self) -> Vec<ToolName> {
        self.workspace.available_tools()
    }

    fn modified_files(&self) -> Vec<String> {
        self.workspace.modified_files()
    }

    fn instructions(&self) -> String {
        let instructions = self.workspace.instructions();
        match self.selection.instructions(&self.limits) {
            Some(selection) => format!("{instructions}\n{selection}"),
            None => instructions,
        }
    }

    async fn execute(&mut self, call: &ToolCall) -> Result<String, ToolError> {
        if call.path().is_some_and(range::is_artifact_path) {
            return match call {
                ToolCall::ReadFile { path } => {
                    let Self {
                        artifacts, limits, ..
                    } = self;
                    self.selection.read(artifacts, path, limits).await
                }
                // The namespace can be read and nothing else.
                _ => Err(ToolError::Refused("path is not accessible".to_owned())),
            };
        }
        let text = self.workspace.execute(call).await?;
        let bounded = bound_result(text, &self.artifacts, &self.limits).await?;
        Ok(bounded.text)
    }
}
