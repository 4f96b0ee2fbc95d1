//! A tree that is a real directory.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use evidence_core::Sha256Digest;

use super::tree::Snapshot;
use super::{Entry, FileTree, TreeError, WorkspacePath};

/// How many files a snapshot looks at; what a command changes beyond them is not reported.
const MAX_SNAPSHOT_FILES: usize = 20_000;

/// The files of a directory. Links that lead out of it are not followed.
#[derive(Debug)]
pub struct DirectoryTree {
    root: PathBuf,
}

impl DirectoryTree {
    /// The directory `root`.
    ///
    /// # Errors
    ///
    /// The host's error when it is not a directory that can be opened.
    pub fn open(root: impl AsRef<Path>) -> io::Result<Self> {
        let root = fs::canonicalize(root)?;
        if root.is_dir() {
            Ok(Self { root })
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// The directory, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where `path` really is, when that is inside.
    fn resolve(&self, path: &WorkspacePath) -> Result<PathBuf, TreeError> {
        let named = self.root.join(path.as_str());
        match fs::canonicalize(&named) {
            Ok(real) if real.starts_with(&self.root) && !self.is_protected(&real) => Ok(real),
            // A link whose target is gone is there all the same.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !named.is_symlink() => {
                Err(TreeError::NotFound)
            }
            Ok(_) | Err(_) => Err(TreeError::Inaccessible),
        }
    }

    /// Whether a link with a harmless name leads to something protected.
    fn is_protected(&self, real: &Path) -> bool {
        let inside = real.strip_prefix(&self.root).unwrap_or(real);
        inside
            .iter()
            .any(|part| WorkspacePath::is_protected(&part.to_string_lossy()))
    }
}

fn entry_of(metadata: &Metadata) -> Result<Entry, TreeError> {
    if metadata.is_dir() {
        Ok(Entry::Directory)
    } else if metadata.is_file() {
        Ok(Entry::File {
            byte_count: metadata.len(),
        })
    } else {
        // Devices, pipes and sockets can block or never end.
        Err(TreeError::Inaccessible)
    }
}

impl FileTree for DirectoryTree {
    fn entry(&self, path: &WorkspacePath) -> Result<Entry, TreeError> {
        let metadata = fs::metadata(self.resolve(path)?).map_err(|_| TreeError::Inaccessible)?;
        entry_of(&metadata)
    }

    fn list(&self, path: &WorkspacePath) -> Result<Vec<(String, Entry)>, TreeError> {
        let directory = self.resolve(path)?;
        if !directory.is_dir() {
            return Err(TreeError::NotADirectory);
        }
        let entries = fs::read_dir(directory).map_err(|_| TreeError::Inaccessible)?;
        Ok(entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                // A name that is not UTF-8 cannot be written into an action.
                let name = entry.file_name().into_string().ok()?;
                let child = WorkspacePath::parse(&path.join(&name)).ok()?;
                Some((name, self.entry(&child).ok()?))
            })
            .collect())
    }

    fn read(&self, path: &WorkspacePath) -> Result<Vec<u8>, TreeError> {
        if !matches!(self.entry(path)?, Entry::File { .. }) {
            return Err(TreeError::NotAFile);
        }
        fs::read(self.resolve(path)?).map_err(|_| TreeError::Inaccessible)
    }

    fn write(&mut self, path: &WorkspacePath, bytes: &[u8]) -> Result<(), TreeError> {
        let target = match self.resolve(path) {
            Err(TreeError::NotFound) => {
                let name = path.as_str().rsplit('/').next().unwrap_or_default();
                self.resolve(&path.parent())?.join(name)
            }
            resolved => resolved?,
        };
        let not_written = |_| TreeError::NotWritten;
        let mut name = target.clone().into_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        let written = fs::write(&temporary, bytes).and_then(|()| {
            if let Ok(old) = fs::metadata(&target) {
                fs::set_permissions(&temporary, old.permissions())?;
            }
            fs::rename(&temporary, &target)
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            not_written(error)
        })
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        let mut directories = vec![String::new()];
        while let Some(directory) = directories.pop() {
            let Ok(path) = WorkspacePath::parse(if directory.is_empty() {
                "."
            } else {
                &directory
            }) else {
                continue;
            };
            for (name, entry) in self.list(&path).unwrap_or_default() {
                let child = path.join(&name);
                match entry {
                    // A link to a directory can lead back up.
                    Entry::Directory if self.root.join(&child).is_symlink() => {}
                    Entry::Directory => directories.push(child),
                    Entry::File { byte_count } => {
                        let metadata = fs::metadata(self.root.join(&child));
                        let modified = metadata.and_then(|metadata| metadata.modified()).ok();
                        let state = format!("{byte_count} {modified:?}");
                        snapshot.insert(child, Sha256Digest::of(state.as_bytes()));
                    }
                }
                if snapshot.len() >= MAX_SNAPSHOT_FILES {
                    return snapshot;
                }
            }
        }
        snapshot
    }
}
