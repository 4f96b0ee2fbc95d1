//! A tree in memory: what a page fills from dropped files and samples.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Entry, FileTree, TreeError, WorkspacePath};

/// Files by path. Directories exist because files are in them. A clone shares the bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTree {
    files: BTreeMap<String, Bytes>,
}

impl MemoryTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a file there from outside of a run, over one that has the path. The path is not checked
    /// against the rules: the model cannot name it if it breaks them.
    pub fn insert(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), Bytes::from(bytes.into()));
    }

    /// Takes a file away.
    pub fn remove(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// The bytes of a file.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(|bytes| &bytes[..])
    }

    /// The files, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files
            .iter()
            .map(|(path, bytes)| (path.as_str(), &bytes[..]))
    }

    /// The entries below a directory: what follows its path, and the size.
    fn below<'a>(&'a self, path: &WorkspacePath) -> impl Iterator<Item = (&'a str, u64)> {
        let prefix = path.join("");
        self.files.iter().filter_map(move |(path, bytes)| {
            Some((path.strip_prefix(&prefix)?, bytes.len() as u64))
        })
    }
}

impl<P: Into<String>, B: Into<Vec<u8>>> FromIterator<(P, B)> for MemoryTree {
    fn from_iter<I: IntoIterator<Item = (P, B)>>(files: I) -> Self {
        let mut tree = Self::new();
        for (path, bytes) in files {
            tree.insert(path, bytes);
        }
        tree
    }
}

impl FileTree for MemoryTree {
    fn entry(&self, path: &WorkspacePath) -> Result<Entry, TreeError> {
        if let Some(bytes) = self.files.get(path.as_str()) {
            return Ok(Entry::File {
                byte_count: bytes.len() as u64,
            });
        }
        // The root exists even when it is empty.
        if path.as_str().is_empty() || self.below(path).next().is_some() {
            return Ok(Entry::Directory);
        }
        Err(TreeError::NotFound)
    }

    fn list(&self, path: &WorkspacePath) -> Result<Vec<(String, Entry)>, TreeError> {
        if matches!(self.entry(path)?, Entry::File { .. }) {
            return Err(TreeError::NotADirectory);
        }
        let mut entries: Vec<(String, Entry)> = self
            .below(path)
            .map(|(rest, byte_count)| match rest.split_once('/') {
                Some((directory, _)) => (directory.to_owned(), Entry::Directory),
                None => (rest.to_owned(), Entry::File { byte_count }),
            })
            .collect();
        // What one directory holds stands together.
        entries.dedup();
        Ok(entries)
    }

    fn read(&self, path: &WorkspacePath) -> Result<Vec<u8>, TreeError> {
        match self.files.get(path.as_str()) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(self
                .entry(path)
                .map_or(TreeError::NotFound, |_| TreeError::NotAFile)),
        }
    }

    fn write(&mut self, path: &WorkspacePath, bytes: &[u8]) -> Result<(), TreeError> {
        self.insert(path.to_string(), bytes);
        Ok(())
    }
}
