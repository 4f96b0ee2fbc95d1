//! The checkpoints that were downloaded, in the origin's private file system:
//! a folder for each address, and beside each file a record of how far it is.

use evidence_core::Sha256Digest;
use evidence_model_protocol::CachedCheckpoint;
use js_sys::{Array, Reflect};
use serde::{Deserialize, Serialize};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    Blob, File, FileSystemDirectoryHandle, FileSystemFileHandle, FileSystemGetDirectoryOptions,
    FileSystemGetFileOptions, FileSystemRemoveOptions, FileSystemSyncAccessHandle,
};

use crate::js::{byte_count, error_name, resolve, scope};

/// The folder of the origin's private file system.
const ROOT: &str = "evidence-models";

/// The file that tells where a checkpoint came from.
const ORIGIN: &str = "origin.txt";

/// The ending of the record beside each file.
const RECORD: &str = ".record";

/// How far a file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Some of its bytes are there.
    Begun {
        /// What the server said that there are in all.
        total: Option<u64>,
        /// What the server named this version.
        etag: Option<String>,
    },
    /// It is there.
    Complete {
        /// Its size.
        byte_count: u64,
    },
    /// The server has no such file.
    Absent,
}

/// The folder of one address.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    handle: FileSystemDirectoryHandle,
}

impl Folder {
    /// The folder is made if it is not there. Its name is the digest of the
    /// address, which has letters that a name may not have.
    pub(crate) async fn open(address: &str) -> Result<Self, JsValue> {
        let key = Sha256Digest::of(address.as_bytes()).to_string();
        let root = root(true).await?;
        let handle = directory(&root, &key, true).await?;
        let folder = Self { handle };
        if folder.read_text(ORIGIN).await.is_none() {
            folder.write_text(ORIGIN, address).await?;
        }
        Ok(folder)
    }

    pub(crate) async fn record(&self, file: &str) -> Option<Record> {
        let text = self.read_text(&format!("{file}{RECORD}")).await?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) async fn set_record(&self, file: &str, record: &Record) -> Result<(), JsValue> {
        let text = serde_json::to_string(record).map_err(|error| error.to_string())?;
        self.write_text(&format!("{file}{RECORD}"), &text).await
    }

    /// The bytes of a file that is there whole.
    pub(crate) async fn complete(&self, file: &str) -> Option<Blob> {
        let Some(Record::Complete { byte_count: known }) = self.record(file).await else {
            return None;
        };
        let blob = self.blob(file).await.ok()?;
        (byte_count(&blob) == known).then_some(blob)
    }

    pub(crate) async fn blob(&self, file: &str) -> Result<Blob, JsValue> {
        let handle = self.file(file, false).await?;
        Ok(resolve::<File>(handle.get_file()).await?.into())
    }

    /// Opens a file to be written by nobody else.
    pub(crate) async fn writer(&self, file: &str) -> Result<FileSystemSyncAccessHandle, JsValue> {
        let handle = self.file(file, true).await?;
        resolve(handle.create_sync_access_handle())
            .await
            .map_err(|error| match error_name(&error).as_deref() {
                Some("NoModificationAllowedError") => {
                    "another tab is downloading this file; wait until it is there".into()
                }
                _ => error,
            })
    }

    /// Forgets a file and how far it was.
    pub(crate) async fn remove(&self, file: &str) {
        for name in [format!("{file}{RECORD}"), file.to_owned()] {
            // What is not there is removed already.
            let _ = JsFuture::from(self.handle.remove_entry(&name)).await;
        }
    }

    async fn file(&self, name: &str, create: bool) -> Result<FileSystemFileHandle, JsValue> {
        let options = FileSystemGetFileOptions::new();
        options.set_create(create);
        resolve(self.handle.get_file_handle_with_options(name, &options)).await
    }

    async fn write_text(&self, name: &str, text: &str) -> Result<(), JsValue> {
        let access = self.writer(name).await?;
        let written = access
            .truncate_with_f64(0.0)
            .and_then(|()| access.write_with_u8_array(text.as_bytes()))
            .and_then(|_| access.flush());
        access.close();
        written
    }

    async fn read_text(&self, name: &str) -> Option<String> {
        let blob = self.blob(name).await.ok()?;
        JsFuture::from(blob.text()).await.ok()?.as_string()
    }

    /// Bytes of the checkpoint that are there.
    async fn byte_count(&self) -> Result<u64, JsValue> {
        let mut sum = 0;
        for (name, entry) in entries(&self.handle).await? {
            if name == ORIGIN || name.ends_with(RECORD) {
                continue;
            }
            if let Ok(file) = entry.dyn_into::<FileSystemFileHandle>() {
                let file: File = resolve(file.get_file()).await?;
                sum += byte_count(&file);
            }
        }
        Ok(sum)
    }
}

/// What is in the browser's storage.
pub(crate) async fn list() -> Result<Vec<CachedCheckpoint>, JsValue> {
    // Without the folder nothing was ever stored.
    let Ok(root) = root(false).await else {
        return Ok(Vec::new());
    };
    let mut checkpoints = Vec::new();
    for (key, entry) in entries(&root).await? {
        let Ok(handle) = entry.dyn_into() else {
            continue;
        };
        let folder = Folder { handle };
        let byte_count = folder.byte_count().await?;
        // At an address without a model there was nothing to keep.
        if byte_count > 0 {
            checkpoints.push(CachedCheckpoint {
                key,
                url: folder.read_text(ORIGIN).await.unwrap_or_default(),
                byte_count,
            });
        }
    }
    Ok(checkpoints)
}

/// Deletes one of them.
pub(crate) async fn delete(key: &str) -> Result<(), JsValue> {
    let options = FileSystemRemoveOptions::new();
    options.set_recursive(true);
    let root = root(false).await?;
    JsFuture::from(root.remove_entry_with_options(key, &options)).await?;
    Ok(())
}

/// A short text that is kept beside the checkpoints.
pub(crate) async fn read_note(name: &str) -> Option<String> {
    let handle = root(false).await.ok()?;
    Folder { handle }.read_text(name).await
}

pub(crate) async fn write_note(name: &str, text: &str) -> Result<(), JsValue> {
    let handle = root(true).await?;
    Folder { handle }.write_text(name, text).await
}

async fn root(create: bool) -> Result<FileSystemDirectoryHandle, JsValue> {
    let storage = scope()?.navigator().storage();
    let top: FileSystemDirectoryHandle = resolve(storage.get_directory()).await?;
    directory(&top, ROOT, create).await
}

async fn directory(
    parent: &FileSystemDirectoryHandle,
    name: &str,
    create: bool,
) -> Result<FileSystemDirectoryHandle, JsValue> {
    let options = FileSystemGetDirectoryOptions::new();
    options.set_create(create);
    resolve(parent.get_directory_handle_with_options(name, &options)).await
}

async fn entries(folder: &FileSystemDirectoryHandle) -> Result<Vec<(String, JsValue)>, JsValue> {
    let iterator = folder.entries();
    let mut entries = Vec::new();
    loop {
        let next = JsFuture::from(iterator.next()?).await?;
        if Reflect::get(&next, &"done".into())?.is_truthy() {
            return Ok(entries);
        }
        let pair: Array = Reflect::get(&next, &"value".into())?.dyn_into()?;
        entries.push((pair.get(0).as_string().unwrap_or_default(), pair.get(1)));
    }
}
