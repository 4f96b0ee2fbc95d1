//! The files beneath a workspace.

use std::collections::BTreeMap;

use evidence_core::Sha256Digest;

use super::{ToolError, WorkspacePath};

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Its size.
        byte_count: u64,
    },
}

/// Why a tree did not answer. The messages name no path of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Nothing is there.
    #[error("path is not accessible")]
    NotFound,
    /// Something is there that is not to be opened, for example a link that leads out.
    #[error("path is not accessible")]
    Inaccessible,
    /// A file was asked for.
    #[error("path is not a file")]
    NotAFile,
    /// A directory was asked for.
    #[error("path is not a directory")]
    NotADirectory,
    /// There is no room for the file.
    #[error("file could not be written; the old file, if there was one, is unchanged")]
    NotWritten,
}

impl From<TreeError> for ToolError {
    fn from(error: TreeError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// The state of the files at one moment, to find what a command changed.
pub type Snapshot = BTreeMap<String, Sha256Digest>;

/// Files, as the workspace's rules need them. The rules have checked every path.
pub trait FileTree {
    /// What stands at `path`.
    ///
    /// # Errors
    ///
    /// [`TreeError::NotFound`] or [`TreeError::Inaccessible`].
    fn entry(&self, path: &WorkspacePath) -> Result<Entry, TreeError>;

    /// The names in a directory, in any order.
    ///
    /// # Errors
    ///
    /// [`TreeError`], [`TreeError::NotADirectory`] for a file.
    fn list(&self, path: &WorkspacePath) -> Result<Vec<(String, Entry)>, TreeError>;

    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// [`TreeError`], [`TreeError::NotAFile`] for a directory.
    fn read(&self, path: &WorkspacePath) -> Result<Vec<u8>, TreeError>;

    /// Writes a file entirely or not at all. Its directory exists.
    ///
    /// # Errors
    ///
    /// [`TreeError::NotWritten`]; the old file is unchanged then.
    fn write(&mut self, path: &WorkspacePath, bytes: &[u8]) -> Result<(), TreeError>;

    /// The state of the files, where commands can change them behind the tree's back.
    fn snapshot(&self) -> Snapshot {
        Snapshot::new()
    }
}
