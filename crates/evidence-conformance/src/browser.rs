//! The same checks in a browser, over its own database.

use std::sync::Arc;

use evidence_agent::workspace::MemoryTree;
use evidence_agent::{BoundedEvidenceWorkspace, Workspace};
use evidence_store::IndexedDbStore;
use wasm_bindgen::prelude::*;

use crate::host::{Files, Host, memory_files, memory_tree};
use crate::vectors::{VectorKind, check_file};

/// One IndexedDB database for all vectors, and files in memory.
#[derive(Debug)]
struct BrowserHost {
    store: Arc<IndexedDbStore>,
}

impl Host for BrowserHost {
    type Store = Arc<IndexedDbStore>;
    type Tree = MemoryTree;
    type Bounded<W: Workspace> = BoundedEvidenceWorkspace<W, Self::Store>;

    async fn store(&self) -> Result<Self::Store, String> {
        Ok(Arc::clone(&self.store))
    }

    fn tree(&self, files: &Files) -> Result<Self::Tree, String> {
        Ok(memory_tree(files))
    }

    fn files(&self, tree: &Self::Tree) -> Result<Files, String> {
        Ok(memory_files(tree))
    }
}

/// Checks the lines of a vector file of this name over the database `database`, and answers the
/// report: a line for each failure, then `N passed, M failed`.
///
/// # Errors
///
/// A sentence when the name says no kind or the database does not open.
#[wasm_bindgen(js_name = checkVectors)]
pub async fn check_vectors(
    database: String,
    file_name: String,
    lines: String,
) -> Result<String, JsError> {
    let kind = VectorKind::of_file(&file_name)?;
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "stores are shared by Arc everywhere, and the browser has one thread here"
    )]
    let store = Arc::new(IndexedDbStore::open(&database).await?);
    Ok(check_file(kind, &lines, &BrowserHost { store })
        .await
        .to_string())
}
