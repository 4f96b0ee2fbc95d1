//! A checkpoint's files: chosen ones as they are, and those of a server through
//! the browser's storage, where they stay.
//!
//! What the server says about a file is believed of the file alone: a status, a
//! web page in its place, a size and a digest each decide whether its bytes count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use evidence_core::Sha256Digest;
use evidence_qwen::source::{CheckpointSource, SourceError};
use js_sys::{Array, Reflect, Uint8Array};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    Blob, File, FileSystemReadWriteOptions, FileSystemSyncAccessHandle, Headers,
    ReadableStreamDefaultReader, RequestCache, RequestInit, Response,
};

use crate::cache::{Folder, Record};
use crate::js::{byte_count, describe, error_name, float, resolve, scope, slice, whole};

/// Bytes of a file that are digested at a time.
const DIGESTED_BYTES: u64 = 4 << 20;

/// Where checkpoints of the Hugging Face hub are.
const HUB: &str = "https://huggingface.co";

/// Files that the person chose or dropped.
pub(crate) struct ChosenFiles {
    files: BTreeMap<String, File>,
}

impl ChosenFiles {
    pub(crate) fn new(files: &Array) -> Self {
        let files = files
            .iter()
            .filter_map(|file| file.dyn_into::<File>().ok())
            .map(|file| (file.name(), file))
            .collect();
        Self { files }
    }
}

impl CheckpointSource for ChosenFiles {
    async fn byte_count(&self, file: &str) -> Result<Option<u64>, SourceError> {
        Ok(self.files.get(file).map(|file| byte_count(file)))
    }

    async fn read(&self, file: &str, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
        let blob = self.files.get(file).ok_or_else(|| {
            SourceError::new(file, "the file is not among those that were chosen")
        })?;
        read_exactly(blob, file, range).await
    }
}

async fn read_exactly(blob: &Blob, file: &str, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
    let length = range.end.saturating_sub(range.start);
    let bytes = slice(blob, range).await.map_err(|error| {
        SourceError::new(
            file,
            format!(
                "the file cannot be read ({}); it may have changed, choose or load it again",
                describe(&error)
            ),
        )
    })?;
    if bytes.len() as u64 == length {
        Ok(bytes)
    } else {
        let message = "the file is shorter than its header says";
        Err(SourceError::new(file, message))
    }
}

/// What is known about a file before it is downloaded.
#[derive(Debug, Clone)]
struct Promise {
    byte_count: u64,
    /// Of large files alone.
    sha256: Option<Sha256Digest>,
}

/// Files of a server, downloaded when they are first asked for.
pub(crate) struct Downloads<'a> {
    /// What comes before a file's name.
    base: String,
    /// `None` where the server has no list of its files.
    promised: Option<BTreeMap<String, Promise>>,
    /// `None` where the browser gives no storage; files live in memory then.
    folder: Option<Folder>,
    known: RefCell<BTreeMap<String, Option<Blob>>>,
    progress: RefCell<&'a mut dyn FnMut(&str, u64, Option<u64>)>,
}

impl<'a> Downloads<'a> {
    /// The files of a folder, whose address ends in a slash.
    pub(crate) async fn of_folder(
        base: String,
        progress: &'a mut dyn FnMut(&str, u64, Option<u64>),
    ) -> Self {
        Self {
            folder: Folder::open(&base).await.ok(),
            base,
            promised: None,
            known: RefCell::default(),
            progress: RefCell::new(progress),
        }
    }

    /// The files of a repository of the hub, which tells their sizes and digests.
    pub(crate) async fn of_repository(
        repository: &str,
        revision: &str,
        progress: &'a mut dyn FnMut(&str, u64, Option<u64>),
    ) -> Result<Self, SourceError> {
        let base = format!("{HUB}/{repository}/resolve/{revision}/");
        let mut downloads = Self::of_folder(base, progress).await;
        let list = format!("{HUB}/api/models/{repository}/tree/{revision}");
        match request(repository, &list, 0).await {
            Ok(response) => downloads.promised = Some(read_list(repository, &response).await?),
            // What was downloaded before needs no network.
            Err(_) if downloads.has_complete("config.json").await => {}
            Err(error) => return Err(error),
        }
        Ok(downloads)
    }

    async fn has_complete(&self, file: &str) -> bool {
        match &self.folder {
            Some(folder) => folder.complete(file).await.is_some(),
            None => false,
        }
    }

    async fn blob(&self, file: &str) -> Result<Option<Blob>, SourceError> {
        if let Some(known) = self.known.borrow().get(file) {
            return Ok(known.clone());
        }
        let blob = self.find(file).await?;
        self.known
            .borrow_mut()
            .insert(file.to_owned(), blob.clone());
        Ok(blob)
    }

    async fn find(&self, file: &str) -> Result<Option<Blob>, SourceError> {
        let promise = match &self.promised {
            Some(promised) => match promised.get(file) {
                Some(promise) => Some(promise),
                None => return Ok(None),
            },
            None => None,
        };
        let Some(folder) = &self.folder else {
            return self.download(file, promise, Sink::memory()).await;
        };
        if let Some(blob) = folder.complete(file).await {
            return Ok(Some(blob));
        }
        let was_absent = folder.record(file).await == Some(Record::Absent);
        let sink = Sink::storage(folder.clone(), file)
            .await
            .map_err(|error| SourceError::new(file, describe(&error)))?;
        match self.download(file, promise, sink).await {
            // Without a network what was not there still is not.
            Err(_) if was_absent => Ok(None),
            result => result,
        }
    }

    /// Downloads what is missing of a file. `None` when the server has none.
    async fn download(
        &self,
        file: &str,
        promise: Option<&Promise>,
        mut sink: Sink,
    ) -> Result<Option<Blob>, SourceError> {
        let failed = |error: JsValue| SourceError::new(file, describe(&error));
        let address = format!("{}{file}", self.base);
        let mut start = sink.resumable_bytes().await;
        let mut response = request(file, &address, start).await?;
        let part = Part::of(&response, file, start);
        if start > 0 && !(response.status() == 206 && sink.goes_on_with(&part).await) {
            // Another version of the file, or a server that sends whole ones.
            start = 0;
            if response.status() != 200 {
                response = request(file, &address, 0).await?;
            }
        }
        match refusal(file, &response) {
            Ok(()) => {}
            Err(Some(error)) => return Err(error),
            Err(None) => {
                sink.forget(Some(Record::Absent)).await.map_err(failed)?;
                return Ok(None);
            }
        }
        let part = Part::of(&response, file, start);
        let total = promise.map(|promise| promise.byte_count).or(part.total);
        sink.begin(start, &part).await.map_err(failed)?;
        let written = self
            .receive(file, &response, &mut sink, start, total)
            .await?;
        if let Some(total) = total
            && written != total
        {
            let message =
                format!("the download ended after {written} of {total} bytes; load again to go on");
            return Err(SourceError::new(file, message));
        }
        let blob = sink.finish(written).await.map_err(failed)?;
        if let Some(expected) = promise.and_then(|promise| promise.sha256)
            && digest(&blob).await.map_err(failed)? != expected
        {
            sink.forget(None).await.map_err(failed)?;
            let message = "the downloaded bytes do not have the digest that the hub names; \
                           load again";
            return Err(SourceError::new(file, message));
        }
        sink.complete(written).await.map_err(failed)?;
        Ok(Some(blob))
    }

    async fn receive(
        &self,
        file: &str,
        response: &Response,
        sink: &mut Sink,
        start: u64,
        total: Option<u64>,
    ) -> Result<u64, SourceError> {
        let mut written = start;
        let Some(body) = response.body() else {
            return Ok(written);
        };
        let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
        loop {
            let chunk = next_chunk(&reader).await.map_err(|error| {
                let of = total
                    .map(|total| format!(" of {total}"))
                    .unwrap_or_default();
                let error = describe(&error);
                SourceError::new(
                    file,
                    format!(
                        "the download was cut after {written}{of} bytes ({error}); \
                         load again to go on"
                    ),
                )
            })?;
            let Some(bytes) = chunk else {
                return Ok(written);
            };
            sink.write(&bytes, written)
                .map_err(|error| SourceError::new(file, describe(&error)))?;
            written += u64::from(bytes.length());
            (self.progress.borrow_mut())(file, written, total);
        }
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
            .ok_or_else(|| SourceError::new(file, "the server has no such file"))?;
        read_exactly(&blob, file, range).await
    }
}

async fn next_chunk(reader: &ReadableStreamDefaultReader) -> Result<Option<Uint8Array>, JsValue> {
    let chunk = JsFuture::from(reader.read()).await?;
    if Reflect::get(&chunk, &"done".into())?.is_truthy() {
        return Ok(None);
    }
    Reflect::get(&chunk, &"value".into())?.dyn_into().map(Some)
}

/// Asks for a file from a byte on.
async fn request(file: &str, address: &str, start: u64) -> Result<Response, SourceError> {
    let failed = |error: JsValue| SourceError::new(file, describe(&error));
    let scope = scope().map_err(failed)?;
    let init = RequestInit::new();
    // The file is kept already, and a browser's own cache would mend a cut
    // answer by ranges that nobody here knows of.
    init.set_cache(RequestCache::NoStore);
    if start > 0 {
        let headers = Headers::new().map_err(failed)?;
        headers
            .set("range", &format!("bytes={start}-"))
            .map_err(failed)?;
        init.set_headers(&headers);
    }
    resolve(scope.fetch_with_str_and_init(address, &init))
        .await
        .map_err(|error| {
            let message = if scope.navigator().on_line() {
                format!(
                    "the server cannot be reached, or does not allow other sites' pages to read \
                     from it (CORS): {}; check the address",
                    describe(&error)
                )
            } else {
                "there is no network; models that were loaded before need none".to_owned()
            };
            SourceError::new(file, message)
        })
}

/// `Err(None)` when there is no such file, `Err(Some(…))` when the answer is
/// none that can be used.
fn refusal(file: &str, response: &Response) -> Result<(), Option<SourceError>> {
    let status = response.status();
    let message = match status {
        404 | 410 => return Err(None),
        200 | 206 if header(response, "content-type").is_some_and(|kind| is_html(&kind)) => {
            "the server answered with a web page in place of the file; check the address".to_owned()
        }
        200 | 206 => return Ok(()),
        401 | 403 => format!(
            "the server refuses ({status}): the model is private, or asks for an agreement first"
        ),
        429 | 500..=599 => format!("the server cannot answer now ({status}); load again later"),
        _ => format!("the server answered {status}; check the address"),
    };
    Err(Some(SourceError::new(file, message)))
}

fn is_html(media_type: &str) -> bool {
    media_type
        .trim_start()
        .to_ascii_lowercase()
        .starts_with("text/html")
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).ok().flatten()
}

/// What a response says about the file that it is a part of.
struct Part {
    total: Option<u64>,
    etag: Option<String>,
}

impl Part {
    fn of(response: &Response, file: &str, start: u64) -> Self {
        // A compressed transfer has another length than its file. What is
        // packed already is never compressed once more.
        let length = header(response, "content-length")
            .filter(|_| file.ends_with(".safetensors"))
            .and_then(|length| length.parse::<u64>().ok());
        let start = if response.status() == 206 { start } else { 0 };
        Self {
            total: length.map(|length| start + length),
            etag: header(response, "etag"),
        }
    }
}

/// A file in the hub's list of a repository.
#[derive(Deserialize)]
struct HubFile {
    path: String,
    size: u64,
    lfs: Option<HubLargeFile>,
}

#[derive(Deserialize)]
struct HubLargeFile {
    oid: String,
    size: u64,
}

async fn read_list(
    repository: &str,
    response: &Response,
) -> Result<BTreeMap<String, Promise>, SourceError> {
    match refusal(repository, response) {
        Ok(()) => {}
        Err(Some(error)) => return Err(error),
        Err(None) => {
            let message = "the hub has no such repository or revision, or it is private";
            return Err(SourceError::new(repository, message));
        }
    }
    let failed = |error: JsValue| SourceError::new(repository, describe(&error));
    let text = JsFuture::from(response.text().map_err(failed)?)
        .await
        .map_err(failed)?
        .as_string()
        .unwrap_or_default();
    let files: Vec<HubFile> = serde_json::from_str(&text).map_err(|error| {
        let message = format!("the hub's list of files is not understood: {error}");
        SourceError::new(repository, message)
    })?;
    let promise = |file: HubFile| {
        let byte_count = file.lfs.as_ref().map_or(file.size, |lfs| lfs.size);
        let sha256 = file.lfs.and_then(|lfs| lfs.oid.parse().ok());
        let promise = Promise { byte_count, sha256 };
        (file.path, promise)
    };
    Ok(files.into_iter().map(promise).collect())
}

async fn digest(blob: &Blob) -> Result<Sha256Digest, JsValue> {
    let mut hasher = Sha256::new();
    let end = byte_count(blob);
    let mut start = 0;
    while start < end {
        let next = end.min(start + DIGESTED_BYTES);
        hasher.update(slice(blob, start..next).await?);
        start = next;
    }
    Ok(Sha256Digest::from_bytes(hasher.finalize().into()))
}

/// Where downloaded bytes go.
enum Sink {
    Storage {
        folder: Folder,
        file: String,
        access: FileSystemSyncAccessHandle,
    },
    Memory(Array),
}

impl Sink {
    fn memory() -> Self {
        Self::Memory(Array::new())
    }

    async fn storage(folder: Folder, file: &str) -> Result<Self, JsValue> {
        let access = folder.writer(file).await?;
        let file = file.to_owned();
        Ok(Self::Storage {
            folder,
            file,
            access,
        })
    }

    /// Bytes of a download that was cut.
    async fn resumable_bytes(&self) -> u64 {
        match self {
            Self::Storage {
                folder,
                file,
                access,
            } => match folder.record(file).await {
                Some(Record::Begun { .. }) => access.get_size().map(whole).unwrap_or_default(),
                _ => 0,
            },
            Self::Memory(_) => 0,
        }
    }

    /// Whether a part belongs to the version of the file that was begun.
    async fn goes_on_with(&self, part: &Part) -> bool {
        let Self::Storage { folder, file, .. } = self else {
            return false;
        };
        let Some(Record::Begun { total, etag }) = folder.record(file).await else {
            return false;
        };
        let same = |known: Option<&str>, said: Option<&str>| known == said || said.is_none();
        total == part.total && same(etag.as_deref(), part.etag.as_deref())
    }

    /// Keeps the first bytes, and what the server said of the rest.
    async fn begin(&self, start: u64, part: &Part) -> Result<(), JsValue> {
        match self {
            Self::Storage {
                folder,
                file,
                access,
            } => {
                access.truncate_with_f64(float(start))?;
                let record = Record::Begun {
                    total: part.total,
                    etag: part.etag.clone(),
                };
                folder.set_record(file, &record).await
            }
            Self::Memory(_) => Ok(()),
        }
    }

    fn write(&mut self, bytes: &Uint8Array, at: u64) -> Result<(), JsValue> {
        match self {
            Self::Storage { access, .. } => {
                let full = "the browser's storage is full; delete a model that is kept there";
                let options = FileSystemReadWriteOptions::new();
                options.set_at(float(at));
                let written = access
                    .write_with_buffer_source_and_options(bytes, &options)
                    .map_err(|error| match error_name(&error).as_deref() {
                        Some("QuotaExceededError") => full.into(),
                        _ => error,
                    })?;
                if whole(written) < u64::from(bytes.length()) {
                    return Err(full.into());
                }
            }
            Self::Memory(parts) => {
                parts.push(bytes);
            }
        }
        Ok(())
    }

    /// The bytes, once all were written.
    async fn finish(&self, written: u64) -> Result<Blob, JsValue> {
        match self {
            Self::Storage {
                folder,
                file,
                access,
            } => {
                access.truncate_with_f64(float(written))?;
                access.flush()?;
                // A reader would wait for the writer.
                access.close();
                folder.blob(file).await
            }
            Self::Memory(parts) => Blob::new_with_u8_array_sequence(parts),
        }
    }

    async fn complete(&self, byte_count: u64) -> Result<(), JsValue> {
        match self {
            Self::Storage { folder, file, .. } => {
                folder
                    .set_record(file, &Record::Complete { byte_count })
                    .await
            }
            Self::Memory(_) => Ok(()),
        }
    }

    /// Forgets what is there, which is another file or none, and keeps this
    /// record instead.
    async fn forget(&self, record: Option<Record>) -> Result<(), JsValue> {
        let Self::Storage {
            folder,
            file,
            access,
        } = self
        else {
            return Ok(());
        };
        access.close();
        folder.remove(file).await;
        match record {
            Some(record) => folder.set_record(file, &record).await,
            None => Ok(()),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // An open file is locked. Closing twice does no harm.
        if let Self::Storage { access, .. } = self {
            access.close();
        }
    }
}
