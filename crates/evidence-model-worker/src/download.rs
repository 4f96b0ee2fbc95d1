//! A checkpoint's files in the browser: dropped ones as they are, downloaded
//! ones through the origin's private file system, where they stay.
//!
//! A download that is cut goes on where it was cut. A file counts as complete
//! when a second, small file beside it says so.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use evidence_qwen::source::{CheckpointSource, SourceError};
use js_sys::{Array, Uint8Array};
use sha2::{Digest, Sha256};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    Blob, File, FileSystemDirectoryHandle, FileSystemFileHandle, FileSystemGetDirectoryOptions,
    FileSystemGetFileOptions, FileSystemReadWriteOptions, FileSystemRemoveOptions,
    FileSystemSyncAccessHandle, Headers, ReadableStreamDefaultReader, RequestInit, Response,
    WorkerGlobalScope,
};

use crate::protocol::CachedCheckpoint;

/// The folder of the origin's private file system.
const ROOT: &str = "evidence-models";

/// The file that tells where a cached checkpoint came from.
const ORIGIN: &str = "origin.txt";

/// Beside a file that is complete.
const COMPLETE: &str = ".complete";

/// Bytes of a file that are hashed at a time.
const HASH_BYTES: u64 = 4 << 20;

pub(crate) fn scope() -> Result<WorkerGlobalScope, String> {
    js_sys::global()
        .dyn_into()
        .map_err(|_| "this is no worker".to_owned())
}

/// What a thrown value says.
pub(crate) fn describe(error: &JsValue) -> String {
    match error.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.message()),
        None => error.as_string().unwrap_or_else(|| format!("{error:?}")),
    }
}

async fn resolve<T: JsCast>(promise: js_sys::Promise) -> Result<T, JsValue> {
    JsFuture::from(promise).await?.dyn_into()
}

async fn slice(blob: &Blob, range: Range<u64>) -> Result<Vec<u8>, JsValue> {
    #[expect(clippy::cast_precision_loss, reason = "no file has 2^53 bytes")]
    let part = blob.slice_with_f64_and_f64(range.start as f64, range.end as f64)?;
    let buffer = JsFuture::from(part.array_buffer()).await?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size is a whole number"
)]
fn byte_count(blob: &Blob) -> u64 {
    blob.size() as u64
}

/// Files that the person chose or dropped.
pub(crate) struct DroppedFiles {
    files: BTreeMap<String, File>,
}

impl DroppedFiles {
    pub(crate) fn new(files: &Array) -> Self {
        let files = files
            .iter()
            .filter_map(|file| file.dyn_into::<File>().ok())
            .map(|file| (file.name(), file))
            .collect();
        Self { files }
    }
}

impl CheckpointSource for DroppedFiles {
    async fn byte_count(&self, file: &str) -> Result<Option<u64>, SourceError> {
        Ok(self.files.get(file).map(|file| byte_count(file)))
    }

    async fn read(&self, file: &str, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
        let blob = self.files.get(file).ok_or_else(|| {
            SourceError::new(
                file,
                "the file was not chosen; choose the checkpoint's whole folder",
            )
        })?;
        let length = range.end - range.start;
        let bytes = slice(blob, range)
            .await
            .map_err(|error| SourceError::new(file, describe(&error)))?;
        complete(file, bytes, length)
    }
}

fn complete(file: &str, bytes: Vec<u8>, length: u64) -> Result<Vec<u8>, SourceError> {
    if bytes.len() as u64 == length {
        Ok(bytes)
    } else {
        Err(SourceError::new(
            file,
            "the file is shorter than its header says",
        ))
    }
}

/// Files on a server, downloaded when they are first asked for.
pub(crate) struct Downloads<'a> {
    base: String,
    /// `None` where the browser gives no storage: then files live in memory.
    folder: Option<FileSystemDirectoryHandle>,
    known: RefCell<BTreeMap<String, Option<Blob>>>,
    progress: RefCell<&'a mut dyn FnMut(&str, u64, Option<u64>)>,
}

impl<'a> Downloads<'a> {
    /// The files whose addresses begin with `base`, which ends in a slash.
    pub(crate) async fn new(
        base: String,
        progress: &'a mut dyn FnMut(&str, u64, Option<u64>),
    ) -> Self {
        let folder = open_folder(&base).await.ok();
        Self {
            base,
            folder,
            known: RefCell::default(),
            progress: RefCell::new(progress),
        }
    }

    async fn blob(&self, file: &str) -> Result<Option<Blob>, SourceError> {
        if let Some(known) = self.known.borrow().get(file) {
            return Ok(known.clone());
        }
        let blob = match &self.folder {
            Some(folder) => match cached(folder, file).await {
                Some(blob) => Some(blob),
                None => self.download(file).await?,
            },
            None => self.download(file).await?,
        };
        self.known
            .borrow_mut()
            .insert(file.to_owned(), blob.clone());
        Ok(blob)
    }

    async fn download(&self, file: &str) -> Result<Option<Blob>, SourceError> {
        let failed = |error: JsValue| SourceError::new(file, describe(&error));
        let mut sink = match &self.folder {
            Some(folder) => Sink::file(folder, file).await.map_err(failed)?,
            None => Sink::Memory(Array::new(), 0),
        };
        let have = sink.byte_count();
        let response = self.request(file, have).await?;
        let status = response.status();
        let is_page =
            header(&response, "content-type").is_some_and(|kind| kind.starts_with("text/html"));
        match status {
            404 | 410 => {
                sink.discard(self.folder.as_ref(), file).await;
                return Ok(None);
            }
            // The part that is there is longer than the file: it changed.
            416 => {
                sink.discard(self.folder.as_ref(), file).await;
                return Err(SourceError::new(
                    file,
                    "the file on the server changed since the download began; load again",
                ));
            }
            200 | 206 if is_page => {
                sink.discard(self.folder.as_ref(), file).await;
                return Err(SourceError::new(
                    file,
                    "the server answered a web page in place of the file; check the address",
                ));
            }
            200 | 206 => {}
            status => {
                return Err(SourceError::new(
                    file,
                    format!("the server answered {status}"),
                ));
            }
        }
        let start = if status == 206 { have } else { 0 };
        sink.start_at(start).map_err(failed)?;
        let total = total_bytes(&response, start);
        let written = self
            .receive(file, &response, &mut sink, start, total)
            .await?;
        // A compressed transfer has another length than the file; only weights
        // are never compressed.
        if let Some(total) = total.filter(|_| is_weights(file))
            && written != total
        {
            return Err(SourceError::new(
                file,
                format!("the download ended after {written} of {total} bytes; load again to go on"),
            ));
        }
        let digest = header(&response, "x-linked-etag");
        let blob = sink.finish().await.map_err(failed)?;
        if let Some(digest) = digest.as_deref().map(|digest| digest.trim_matches('"'))
            && digest.len() == 64
        {
            self.verify(file, &blob, digest).await?;
        }
        if let Some(folder) = &self.folder {
            mark_complete(folder, file, written).await.map_err(failed)?;
        }
        Ok(Some(blob))
    }

    async fn request(&self, file: &str, have: u64) -> Result<Response, SourceError> {
        let failed = |error: &JsValue| {
            SourceError::new(
                file,
                format!(
                    "the server cannot be reached, or does not let this page read from it \
                     ({}); check the address and the network",
                    describe(error)
                ),
            )
        };
        let init = RequestInit::new();
        if have > 0 {
            let headers = Headers::new().map_err(|error| failed(&error))?;
            headers
                .set("range", &format!("bytes={have}-"))
                .map_err(|error| failed(&error))?;
            init.set_headers(&headers);
        }
        let scope = scope().map_err(|error| SourceError::new(file, error))?;
        let address = format!("{}{file}", self.base);
        resolve(scope.fetch_with_str_and_init(&address, &init))
            .await
            .map_err(|error| failed(&error))
    }

    async fn receive(
        &self,
        file: &str,
        response: &Response,
        sink: &mut Sink,
        start: u64,
        total: Option<u64>,
    ) -> Result<u64, SourceError> {
        let failed = |error: JsValue| {
            SourceError::new(
                file,
                format!(
                    "the download was cut ({}); load again to go on",
                    describe(&error)
                ),
            )
        };
        let mut written = start;
        let Some(body) = response.body() else {
            return Ok(written);
        };
        let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
        loop {
            let chunk = JsFuture::from(reader.read()).await.map_err(failed)?;
            let done = js_sys::Reflect::get(&chunk, &"done".into()).map_err(failed)?;
            if done.is_truthy() {
                return Ok(written);
            }
            let value = js_sys::Reflect::get(&chunk, &"value".into()).map_err(failed)?;
            let bytes: Uint8Array = value.dyn_into().map_err(failed)?;
            sink.write(&bytes, written).map_err(failed)?;
            written += u64::from(bytes.length());
            (self.progress.borrow_mut())(file, written, total);
        }
    }

    async fn verify(&self, file: &str, blob: &Blob, digest: &str) -> Result<(), SourceError> {
        let mut hasher = Sha256::new();
        let end = byte_count(blob);
        let mut start = 0;
        while start < end {
            let next = end.min(start + HASH_BYTES);
            let bytes = slice(blob, start..next)
                .await
                .map_err(|error| SourceError::new(file, describe(&error)))?;
            hasher.update(&bytes);
            start = next;
        }
        let actual: String = hasher
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if actual == digest {
            return Ok(());
        }
        if let Some(folder) = &self.folder {
            let _ = JsFuture::from(folder.remove_entry(file)).await;
        }
        Err(SourceError::new(
            file,
            "the downloaded bytes do not have the digest that the server names; load again",
        ))
    }
}

impl CheckpointSource for Downloads<'_> {
    async fn byte_count(&self, file: &str) -> Result<Option<u64>, SourceError> {
        Ok(self.blob(file).await?.map(|blob| byte_count(&blob)))
    }

    async fn read(&self, file: &str, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
        let blob = self
            .blob(file)
            .await?
            .ok_or_else(|| SourceError::new(file, "no such file"))?;
        let length = range.end - range.start;
        let bytes = slice(&blob, range)
            .await
            .map_err(|error| SourceError::new(file, describe(&error)))?;
        complete(file, bytes, length)
    }
}

fn is_weights(file: &str) -> bool {
    file.ends_with(".safetensors")
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).ok().flatten()
}

fn total_bytes(response: &Response, start: u64) -> Option<u64> {
    let length: u64 = header(response, "content-length")?.parse().ok()?;
    Some(start + length)
}

/// Where downloaded bytes go.
enum Sink {
    File {
        access: FileSystemSyncAccessHandle,
        handle: FileSystemFileHandle,
    },
    Memory(Array, u64),
}

impl Sink {
    async fn file(folder: &FileSystemDirectoryHandle, file: &str) -> Result<Self, JsValue> {
        let handle = file_handle(folder, file, true).await?;
        let access: FileSystemSyncAccessHandle =
            resolve(handle.create_sync_access_handle()).await?;
        Ok(Self::File { access, handle })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size is a whole number"
    )]
    fn byte_count(&self) -> u64 {
        match self {
            Self::File { access, .. } => access.get_size().unwrap_or_default() as u64,
            Self::Memory(_, length) => *length,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "no file has 2^53 bytes")]
    fn start_at(&self, start: u64) -> Result<(), JsValue> {
        match self {
            Self::File { access, .. } => access.truncate_with_f64(start as f64),
            Self::Memory(..) => Ok(()),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "no file has 2^53 bytes")]
    fn write(&mut self, bytes: &Uint8Array, at: u64) -> Result<(), JsValue> {
        match self {
            Self::File { access, .. } => {
                let options = FileSystemReadWriteOptions::new();
                options.set_at(at as f64);
                let written =
                    access.write_with_buffer_source_and_options(bytes.as_ref(), &options)?;
                if written < f64::from(bytes.length()) {
                    return Err("the browser's storage is full; delete a cached model".into());
                }
            }
            Self::Memory(parts, length) => {
                parts.push(bytes);
                *length += u64::from(bytes.length());
            }
        }
        Ok(())
    }

    async fn discard(&self, folder: Option<&FileSystemDirectoryHandle>, file: &str) {
        if let Self::File { access, .. } = self {
            access.close();
            if let Some(folder) = folder {
                // A part that stays is overwritten by the next download.
                let _ = JsFuture::from(folder.remove_entry(file)).await;
            }
        }
    }

    async fn finish(&self) -> Result<Blob, JsValue> {
        match self {
            Self::File { access, handle } => {
                access.flush()?;
                access.close();
                Ok(resolve::<File>(handle.get_file()).await?.into())
            }
            Self::Memory(parts, _) => Blob::new_with_u8_array_sequence(parts),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // An open handle locks the file. Closing twice does no harm.
        if let Self::File { access, .. } = self {
            access.close();
        }
    }
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

async fn file_handle(
    folder: &FileSystemDirectoryHandle,
    name: &str,
    create: bool,
) -> Result<FileSystemFileHandle, JsValue> {
    let options = FileSystemGetFileOptions::new();
    options.set_create(create);
    resolve(folder.get_file_handle_with_options(name, &options)).await
}

/// The folder of one address. Its name is the address's digest: addresses hold
/// letters that names may not.
async fn open_folder(base: &str) -> Result<FileSystemDirectoryHandle, JsValue> {
    let digest = Sha256::digest(base.as_bytes());
    let key: String = digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let folder = directory(&root(true).await?, &key, true).await?;
    write_small(&folder, ORIGIN, base).await?;
    Ok(folder)
}

async fn write_small(
    folder: &FileSystemDirectoryHandle,
    name: &str,
    text: &str,
) -> Result<(), JsValue> {
    let handle = file_handle(folder, name, true).await?;
    let access: FileSystemSyncAccessHandle = resolve(handle.create_sync_access_handle()).await?;
    let written = access
        .truncate_with_f64(0.0)
        .and_then(|()| access.write_with_u8_array(text.as_bytes()))
        .and_then(|_| access.flush());
    access.close();
    written
}

async fn read_small(folder: &FileSystemDirectoryHandle, name: &str) -> Option<String> {
    let handle = file_handle(folder, name, false).await.ok()?;
    let file: File = resolve(handle.get_file()).await.ok()?;
    JsFuture::from(file.text()).await.ok()?.as_string()
}

async fn mark_complete(
    folder: &FileSystemDirectoryHandle,
    file: &str,
    written: u64,
) -> Result<(), JsValue> {
    write_small(folder, &format!("{file}{COMPLETE}"), &written.to_string()).await
}

/// A file that was downloaded whole.
async fn cached(folder: &FileSystemDirectoryHandle, file: &str) -> Option<Blob> {
    let expected: u64 = read_small(folder, &format!("{file}{COMPLETE}"))
        .await?
        .parse()
        .ok()?;
    let handle = file_handle(folder, file, false).await.ok()?;
    let blob: Blob = resolve::<File>(handle.get_file()).await.ok()?.into();
    (byte_count(&blob) == expected).then_some(blob)
}

/// The entries of a folder.
async fn entries(folder: &FileSystemDirectoryHandle) -> Result<Vec<(String, JsValue)>, JsValue> {
    let iterator = folder.entries();
    let mut entries = Vec::new();
    loop {
        let next = JsFuture::from(iterator.next()?).await?;
        if js_sys::Reflect::get(&next, &"done".into())?.is_truthy() {
            return Ok(entries);
        }
        let pair: Array = js_sys::Reflect::get(&next, &"value".into())?.dyn_into()?;
        entries.push((pair.get(0).as_string().unwrap_or_default(), pair.get(1)));
    }
}

/// The checkpoints in the browser's storage.
pub(crate) async fn list() -> Result<Vec<CachedCheckpoint>, JsValue> {
    // Without the folder nothing was ever stored.
    let Ok(root) = root(false).await else {
        return Ok(Vec::new());
    };
    let mut checkpoints = Vec::new();
    for (key, entry) in entries(&root).await? {
        let Ok(folder) = entry.dyn_into::<FileSystemDirectoryHandle>() else {
            continue;
        };
        let mut bytes = 0;
        for (_, file) in entries(&folder).await? {
            if let Ok(handle) = file.dyn_into::<FileSystemFileHandle>() {
                bytes += byte_count(&resolve::<File>(handle.get_file()).await?);
            }
        }
        let url = read_small(&folder, ORIGIN).await.unwrap_or_default();
        checkpoints.push(CachedCheckpoint {
            key,
            url,
            byte_count: bytes,
        });
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
