//! Finds the files of a drop or a choice, folders walked.

use js_sys::{Array, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DataTransfer, File, FileList, FileSystemDirectoryEntry, FileSystemDirectoryReader,
    FileSystemEntry, FileSystemFileEntry,
};

use evidence_agent::workspace::WorkspacePath;

use crate::browser;

/// More are not even looked at.
const MAX_FILES: usize = 1000;

/// A file that nobody has read yet.
pub struct Candidate {
    /// Its path in the workspace.
    pub path: String,
    /// The browser's handle.
    pub file: File,
}

/// The files of a choice. Those of a chosen folder have their path in it.
pub fn of_file_list(files: &FileList) -> Vec<Candidate> {
    (0..files.length())
        .filter_map(|index| files.get(index))
        .map(|file| {
            let relative = js_sys::Reflect::get(&file, &"webkitRelativePath".into())
                .ok()
                .and_then(|path| path.as_string())
                .filter(|path| !path.is_empty());
            Candidate {
                path: relative.unwrap_or_else(|| file.name()),
                file,
            }
        })
        // A folder holds much that is not meant, and nobody chose it by name.
        .filter(|candidate| !candidate.path.contains('/') || !has_protected_part(&candidate.path))
        .take(MAX_FILES)
        .collect()
}

/// The files of a drop. What it holds is taken when this is called, its folders are walked when the
/// future is awaited.
pub fn of_transfer(
    transfer: &DataTransfer,
) -> impl Future<Output = Result<Vec<Candidate>, String>> + use<> {
    let items = transfer.items();
    let entries: Vec<FileSystemEntry> = (0..items.length())
        .filter_map(|index| items.get(index)?.webkit_get_as_entry().ok()?)
        .collect();
    // Files that a script put into the transfer have no entry.
    let plain = if entries.is_empty() {
        transfer
            .files()
            .map_or_else(Vec::new, |files| of_file_list(&files))
    } else {
        Vec::new()
    };
    async move {
        let mut candidates = plain;
        walk(entries, &mut candidates).await.map_err(|error| {
            format!(
                "The folder could not be read: {}. Drop its files instead.",
                browser::reason(&error)
            )
        })?;
        if candidates.is_empty() {
            return Err("Nothing was dropped that is a file.".to_owned());
        }
        Ok(candidates)
    }
}

async fn walk(
    mut pending: Vec<FileSystemEntry>,
    candidates: &mut Vec<Candidate>,
) -> Result<(), JsValue> {
    // From the end, so that the order of the drop is kept.
    pending.reverse();
    while let Some(entry) = pending.pop() {
        if candidates.len() >= MAX_FILES {
            break;
        }
        let path = entry.full_path().trim_start_matches('/').to_owned();
        if entry.is_directory() {
            if WorkspacePath::is_protected(&entry.name()) {
                continue;
            }
            let mut children = children(entry.unchecked_ref()).await?;
            children.sort_by_key(|child| std::cmp::Reverse(child.name()));
            pending.extend(children);
        } else if path.contains('/') && has_protected_part(&path) {
            // As in a chosen folder.
        } else {
            let file = file(entry.unchecked_ref()).await?;
            candidates.push(Candidate { path, file });
        }
    }
    Ok(())
}

fn has_protected_part(path: &str) -> bool {
    path.split('/').any(WorkspacePath::is_protected)
}

async fn file(entry: &FileSystemFileEntry) -> Result<File, JsValue> {
    let file = Promise::new(&mut |resolve, reject| {
        entry.file_with_callback_and_callback(&resolve, &reject);
    });
    Ok(JsFuture::from(file).await?.unchecked_into())
}

async fn children(entry: &FileSystemDirectoryEntry) -> Result<Vec<FileSystemEntry>, JsValue> {
    let reader: FileSystemDirectoryReader = entry.create_reader();
    let mut children = Vec::new();
    loop {
        let mut failed = None;
        let batch = Promise::new(&mut |resolve, reject| {
            failed = reader
                .read_entries_with_callback_and_callback(&resolve, &reject)
                .err();
        });
        if let Some(error) = failed {
            return Err(error);
        }
        // A reader answers in batches, the last one empty.
        let batch: Array = JsFuture::from(batch).await?.unchecked_into();
        if batch.length() == 0 {
            return Ok(children);
        }
        children.extend(batch.iter().map(JsCast::unchecked_into));
    }
}
