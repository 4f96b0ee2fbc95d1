//! Small structured values that carry their own digest, which tells what somebody altered from what
//! was written.

use bytes::Bytes;
use evidence_core::{Sha256Digest, raw_json};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value as it is stored: its JSON, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<T>(pub T);

/// The stored bytes are not a record that was written as this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stored record is not the one that was written")]
pub struct RecordError;

/// The stored form of `content`: its SHA-256 in hexadecimal, a line feed, the content.
pub(crate) fn seal(content: &[u8]) -> Bytes {
    let mut sealed = Vec::with_capacity(Sha256Digest::HEX_LEN + 1 + content.len());
    sealed.extend_from_slice(Sha256Digest::of(content).to_string().as_bytes());
    sealed.push(b'\n');
    sealed.extend_from_slice(content);
    sealed.into()
}

/// What [`seal`] was given.
///
/// # Errors
///
/// [`RecordError`] when the digest or the form is wrong.
pub(crate) fn unseal(stored: &[u8]) -> Result<&[u8], RecordError> {
    let (digest, content) = stored
        .split_at_checked(Sha256Digest::HEX_LEN)
        .ok_or(RecordError)?;
    let content = content.strip_prefix(b"\n").ok_or(RecordError)?;
    let digest = std::str::from_utf8(digest).map_err(|_| RecordError)?;
    if digest.parse() == Ok(Sha256Digest::of(content)) {
        Ok(content)
    } else {
        Err(RecordError)
    }
}

impl<T: Serialize> Record<T> {
    /// The bytes to store.
    ///
    /// # Errors
    ///
    /// [`RecordError`] when the value has no JSON, which a type with text keys always has.
    pub fn encode(&self) -> Result<Bytes, RecordError> {
        let json = serde_json::to_vec(&self.0).map_err(|_| RecordError)?;
        Ok(seal(&json))
    }
}

impl<T: DeserializeOwned> Record<T> {
    /// Reads stored bytes and verifies them.
    ///
    /// # Errors
    ///
    /// [`RecordError`] when the digest or the form is wrong.
    pub fn decode(stored: &[u8]) -> Result<T, RecordError> {
        let json = std::str::from_utf8(unseal(stored)?).map_err(|_| RecordError)?;
        raw_json::from_str(json).map_err(|_| RecordError)
    }
}
