//! Where a checkpoint's files come from.

use std::fmt;
use std::ops::Range;

/// Why a file of a checkpoint could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct SourceError {
    /// The file's name within the checkpoint.
    pub file: String,
    /// What happened, as a sentence that says what to do where that is known.
    pub message: String,
}

impl SourceError {
    /// An error of one file.
    pub fn new(file: &str, message: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            message: message.to_string(),
        }
    }
}

/// A checkpoint's files, wherever they lie: a folder, a URL, dropped files.
///
/// Names are those inside the checkpoint's folder. A source is read from front
/// to back, one tensor at a time, and never asked for a whole weight file.
#[expect(
    async_fn_in_trait,
    reason = "browser futures are not Send, and no caller needs them to be"
)]
pub trait CheckpointSource {
    /// The file's size, `None` when there is no such file.
    ///
    /// # Errors
    ///
    /// When it cannot be told whether there is.
    async fn byte_count(&self, file: &str) -> Result<Option<u64>, SourceError>;

    /// Exactly the bytes of this range.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is shorter.
    async fn read(&self, file: &str, range: Range<u64>) -> Result<Vec<u8>, SourceError>;
}

/// Reads a small file whole, `None` when there is no such file.
///
/// # Errors
///
/// When the file cannot be read, is over `max_bytes`, or is not UTF-8.
pub(crate) async fn read_text(
    source: &impl CheckpointSource,
    file: &str,
    max_bytes: u64,
) -> Result<Option<String>, SourceError> {
    let Some(byte_count) = source.byte_count(file).await? else {
        return Ok(None);
    };
    if byte_count > max_bytes {
        return Err(SourceError::new(
            file,
            format!("the file has {byte_count} bytes; at most {max_bytes} are read"),
        ));
    }
    let bytes = source.read(file, 0..byte_count).await?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| SourceError::new(file, "the file is not UTF-8 text"))
}

/// A checkpoint in a folder of this machine.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug, Clone)]
pub struct Folder {
    path: std::path::PathBuf,
}

#[cfg(not(target_family = "wasm"))]
impl Folder {
    /// The folder at this path.
    pub fn new(path: impl Into<std::path::PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[cfg(not(target_family = "wasm"))]
impl CheckpointSource for Folder {
    async fn byte_count(&self, file: &str) -> Result<Option<u64>, SourceError> {
        match std::fs::metadata(self.path.join(file)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SourceError::new(file, error)),
        }
    }

    async fn read(&self, file: &str, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
        use std::io::{Read, Seek, SeekFrom};

        let failed = |error: std::io::Error| SourceError::new(file, error);
        let length = usize::try_from(range.end.saturating_sub(range.start))
            .map_err(|error| SourceError::new(file, error))?;
        let mut opened = std::fs::File::open(self.path.join(file)).map_err(failed)?;
        opened.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        let mut bytes = vec![0; length];
        opened.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }
}

/// A checkpoint whose files are in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles {
    files: std::collections::BTreeMap<String, Vec<u8>>,
}

impl MemoryFiles {
    /// Adds a file, in place of one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.files.insert(name.into(), bytes.into());
    }
}

impl CheckpointSource for MemoryFiles {
    async fn byte_count(&self, file: &str) -> Result<Option<u64>, SourceError> {
        Ok(self.files.get(file).map(|bytes| bytes.len() as u64))
    }

    async fn read(&self, file: &str, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
        let bytes = self
            .files
            .get(file)
            .ok_or_else(|| SourceError::new(file, "no such file"))?;
        usize::try_from(range.start)
            .ok()
            .zip(usize::try_from(range.end).ok())
            .and_then(|(start, end)| bytes.get(start..end))
            .map(<[u8]>::to_vec)
            .ok_or_else(|| SourceError::new(file, "the file is shorter than its header says"))
    }
}
