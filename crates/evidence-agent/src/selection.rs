//! Which paths of the artifacts' namespace are answered.
//!
//! A type and not a flag, so that a program without lines and searches does not carry them: the
//! JavaScript library would grow by a twentieth.

use evidence_core::{EvidenceLimits, selection};
use evidence_store::{ArtifactStore, Store};

use crate::workspace::ToolError;

/// Answers `read_file` in the namespace.
#[expect(
    async_fn_in_trait,
    reason = "a loop runs on one thread; hosts differ in what is Send"
)]
pub trait Selection {
    /// What the model is told beside the contract's instructions.
    fn instructions(&self, limits: &EvidenceLimits) -> Option<String>;

    /// Answers `path`, which is one of the namespace.
    ///
    /// # Errors
    ///
    /// [`ToolError::Refused`].
    async fn read(
        &self,
        artifacts: &ArtifactStore<impl Store>,
        path: &str,
        limits: &EvidenceLimits,
    ) -> Result<String, ToolError>;
}

/// Contract A: byte ranges, of which the observations tell, and nothing else.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ranges;

impl Selection for Ranges {
    fn instructions(&self, _limits: &EvidenceLimits) -> Option<String> {
        None
    }

    async fn read(
        &self,
        artifacts: &ArtifactStore<impl Store>,
        path: &str,
        limits: &EvidenceLimits,
    ) -> Result<String, ToolError> {
        let answer = artifacts.read_range(path, limits.max_range_bytes()).await;
        answer.map_err(|refusal| ToolError::refused(refusal.to_string()))
    }
}

/// Lines and searches too ([`evidence_core::selection`]), which goes beyond the contract.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinesAndFind;

impl Selection for LinesAndFind {
    fn instructions(&self, limits: &EvidenceLimits) -> Option<String> {
        Some(selection::instructions(limits.max_range_bytes()))
    }

    async fn read(
        &self,
        artifacts: &ArtifactStore<impl Store>,
        path: &str,
        limits: &EvidenceLimits,
    ) -> Result<String, ToolError> {
        let answer = artifacts.select(path, limits.max_range_bytes()).await;
        answer.map_err(|refusal| ToolError::refused(refusal.to_string()))
    }
}
