//! Small structured values that carry their own digest.

use bytes::Bytes;
use evidence_core::Sha256Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value as it is stored: the SHA-256 of its JSON in hexadecimal, a line feed, the JSON.
///
/// The digest is what tells a record that somebody altered from one that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<T>(pub T);

/// The stored bytes are not a record that was written as this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stored record is not the one that was written")]
pub struct RecordError;

impl<T: Serialize> Record<T> {
    /// The bytes to store.
    ///
    /// # Errors
    ///
    /// [`RecordError`] when the value has no JSON, which a type with text keys always has.
    pub fn encode(&self) -> Result<Bytes, RecordError> {
        let json = serde_json::to_string(&self.0).map_err(|_| RecordError)?;
        Ok(format!("{}\n{json}", Sha256Digest::of(json.as_bytes())).into())
    }
}

impl<T: DeserializeOwned> Record<T> {
    /// Reads stored bytes and verifies them.
    ///
    /// # Errors
    ///
    /// [`RecordError`] when the digest or the form is wrong.
    pub fn decode(stored: &[u8]) -> Result<T, RecordError> {
        let text = std::str::from_utf8(stored).map_err(|_| RecordError)?;
        let (digest, json) = text.split_once('\n').ok_or(RecordError)?;
        if digest.parse() != Ok(Sha256Digest::of(json.as_bytes())) {
            return Err(RecordError);
        }
        serde_json::from_str(json).map_err(|_| RecordError)
    }
}
