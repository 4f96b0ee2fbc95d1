//! Where a vector runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use evidence_agent::workspace::{FileTree, MemoryTree};
use evidence_agent::{BoundedEvidenceWorkspace, Workspace};
use evidence_core::EvidenceLimits;
use evidence_store::{ArtifactStore, MemoryStore, Scope, Store};

/// Files of a workspace, by path.
pub type Files = BTreeMap<String, String>;

/// A workspace that keeps large results out of the prompt: the implementation that is checked.
pub trait Bounded<W, S>: Workspace {
    /// Wraps `inner`; its large results go to `store` under `scope`.
    fn new(inner: W, store: S, scope: Scope, limits: EvidenceLimits) -> Self;

    /// The workspace that it wraps.
    fn inner(&self) -> &W;
}

impl<W: Workspace, S: Store> Bounded<W, S> for BoundedEvidenceWorkspace<W, S> {
    fn new(inner: W, store: S, scope: Scope, limits: EvidenceLimits) -> Self {
        Self::new(inner, ArtifactStore::new(store, scope), limits)
    }

    fn inner(&self) -> &W {
        self.workspace()
    }
}

/// Makes the store, the files and the implementation of each vector.
#[expect(
    async_fn_in_trait,
    reason = "vectors run one after the other, on one thread"
)]
pub trait Host {
    /// The store.
    type Store: Store + Clone;
    /// The files.
    type Tree: FileTree;
    /// The implementation.
    type Bounded<W: Workspace>: Bounded<W, Self::Store>;

    /// A store in which no other vector has left anything under the scope of this one.
    ///
    /// # Errors
    ///
    /// What the store says.
    async fn store(&self) -> Result<Self::Store, String>;

    /// A tree of these files.
    ///
    /// # Errors
    ///
    /// What the host says.
    fn tree(&self, files: &Files) -> Result<Self::Tree, String>;

    /// The files of a tree after a run.
    ///
    /// # Errors
    ///
    /// What the host says.
    fn files(&self, tree: &Self::Tree) -> Result<Files, String>;
}

/// Everything in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryHost;

/// A tree in memory, for hosts that have no other.
pub fn memory_tree(files: &Files) -> MemoryTree {
    files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect()
}

/// The files of a tree in memory.
pub fn memory_files(tree: &MemoryTree) -> Files {
    tree.files()
        .map(|(path, bytes)| (path.to_owned(), String::from_utf8_lossy(bytes).into_owned()))
        .collect()
}

impl Host for MemoryHost {
    type Store = Arc<MemoryStore>;
    type Tree = MemoryTree;
    type Bounded<W: Workspace> = BoundedEvidenceWorkspace<W, Self::Store>;

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

#[cfg(not(target_arch = "wasm32"))]
pub use directory::DirectoryHost;

#[cfg(not(target_arch = "wasm32"))]
mod directory {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use evidence_agent::workspace::DirectoryTree;
    use evidence_agent::{BoundedEvidenceWorkspace, Workspace};
    use evidence_store::DirectoryStore;
    use tempfile::TempDir;

    use super::{Files, Host};

    /// One directory store for all vectors, and a real directory of files for each.
    #[derive(Debug)]
    pub struct DirectoryHost {
        root: TempDir,
        trees: AtomicUsize,
    }

    impl DirectoryHost {
        /// Makes a temporary directory, which is removed with the host.
        ///
        /// # Errors
        ///
        /// The host's error.
        pub fn new() -> std::io::Result<Self> {
            Ok(Self {
                root: TempDir::new()?,
                trees: AtomicUsize::new(0),
            })
        }

        fn tree_path(&self, number: usize) -> PathBuf {
            self.root.path().join("trees").join(number.to_string())
        }
    }

    impl Host for DirectoryHost {
        type Store = DirectoryStore;
        /// The tree, and where it is.
        type Tree = DirectoryTree;
        type Bounded<W: Workspace> = BoundedEvidenceWorkspace<W, Self::Store>;

        async fn store(&self) -> Result<Self::Store, String> {
            let root = self.root.path().join("artifacts");
            DirectoryStore::open(root)
                .await
                .map_err(|error| error.to_string())
        }

        fn tree(&self, files: &Files) -> Result<Self::Tree, String> {
            let root = self.tree_path(self.trees.fetch_add(1, Ordering::Relaxed));
            let make = || {
                std::fs::create_dir_all(&root)?;
                for (path, text) in files {
                    let path = root.join(path);
                    std::fs::create_dir_all(path.parent().unwrap_or(&root))?;
                    std::fs::write(path, text)?;
                }
                DirectoryTree::open(&root)
            };
            make().map_err(|error| error.to_string())
        }

        fn files(&self, tree: &Self::Tree) -> Result<Files, String> {
            fn collect(root: &Path, below: &Path, files: &mut Files) -> std::io::Result<()> {
                for entry in std::fs::read_dir(below)? {
                    let path = entry?.path();
                    if path.is_dir() {
                        collect(root, &path, files)?;
                    } else {
                        let name = path.strip_prefix(root).unwrap_or(&path);
                        let name = name.to_string_lossy().into_owned();
                        files.insert(name, std::fs::read_to_string(&path)?);
                    }
                }
                Ok(())
            }
            let mut files = Files::new();
            collect(tree.root(), tree.root(), &mut files).map_err(|error| error.to_string())?;
            Ok(files)
        }
    }
}
