//! The form of a commit file: one line of JSON that says what changes, then the values.
//!
//! ```text
//! <sha256 of the rest of the line> {"put":[{"key","start","end"}…],"delete":[…]}\n
//! <the values, one after the other>
//! ```

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use evidence_core::Sha256Digest;
use serde::{Deserialize, Serialize};

use super::disk::Disk;
use crate::store::Key;

/// What a commit changes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) put: Vec<Put>,
    pub(super) delete: Vec<String>,
    /// Where the values begin in the file; known once the line is.
    #[serde(skip)]
    pub(super) body_start: u64,
}

/// A value, at `[start, end)` of the file's values.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Put {
    pub(super) key: String,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Header {
    pub(super) fn new(put: &[(Key, Bytes)], delete: &[Key]) -> Self {
        let mut end = 0;
        let put = put
            .iter()
            .map(|(key, value)| {
                let start = end;
                end += value.len() as u64;
                Put {
                    key: key.as_str().to_owned(),
                    start,
                    end,
                }
            })
            .collect();
        let delete = delete.iter().map(|key| key.as_str().to_owned()).collect();
        let mut header = Self {
            put,
            delete,
            body_start: 0,
        };
        header.body_start = header.line().len() as u64;
        header
    }

    fn line(&self) -> String {
        // Text keys and numbers always have a JSON.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{} {json}\n", Sha256Digest::of(json.as_bytes()))
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.put.last().map_or(0, |put| put.end)
    }
}

/// Reads and writes commit files.
pub(super) struct CommitFile;

impl CommitFile {
    pub(super) fn write(
        disk: &impl Disk,
        path: &Path,
        header: &Header,
        put: &[(Key, Bytes)],
    ) -> io::Result<()> {
        let line = std::iter::once(Bytes::from(header.line()));
        disk.write(
            path,
            &mut line.chain(put.iter().map(|(_, value)| value.clone())),
        )
    }

    /// Reads and verifies the first line.
    pub(super) fn read_header(path: &Path) -> io::Result<Header> {
        let mut line = String::new();
        let mut file = BufReader::new(File::open(path)?);
        file.read_line(&mut line)?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (digest, json) = line
            .strip_suffix('\n')
            .and_then(|line| line.split_once(' '))
            .ok_or_else(invalid)?;
        if digest.parse() != Ok(Sha256Digest::of(json.as_bytes())) {
            return Err(invalid());
        }
        let mut header: Header = serde_json::from_str(json).map_err(|_| invalid())?;
        header.body_start = line.len() as u64;
        Ok(header)
    }

    /// Reads the bytes `[start, end)` of the file.
    pub(super) fn read_value(mut file: &File, start: u64, end: u64) -> io::Result<Bytes> {
        let len = end
            .checked_sub(start)
            .and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or(io::ErrorKind::InvalidData)?;
        // A header that passed its digest can still name more than the file has, when the file was
        // cut; the file's own size bounds what is allocated.
        if file.metadata()?.len() < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut value = vec![0; len];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut value)?;
        Ok(value.into())
    }
}
