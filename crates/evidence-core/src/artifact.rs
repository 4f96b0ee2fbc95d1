//! What an artifact is called and what is recorded about it.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::{ParseDigestError, Sha256Digest};

/// The identity of an artifact, `artifact-<sha256>`: equal bytes have equal ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArtifactId(Sha256Digest);

impl ArtifactId {
    const PREFIX: &str = "artifact-";

    /// The digest that the id carries.
    pub const fn sha256(self) -> Sha256Digest {
        self.0
    }
}

impl From<Sha256Digest> for ArtifactId {
    fn from(sha256: Sha256Digest) -> Self {
        Self(sha256)
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

/// The text is not `artifact-` followed by a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an artifact id is \"artifact-\" followed by 64 lowercase hexadecimal digits")]
pub struct ParseArtifactIdError;

impl From<ParseDigestError> for ParseArtifactIdError {
    fn from(_: ParseDigestError) -> Self {
        Self
    }
}

impl FromStr for ArtifactId {
    type Err = ParseArtifactIdError;

    fn from_str(text: &str) -> Result<Self, ParseArtifactIdError> {
        let digest = text
            .strip_prefix(Self::PREFIX)
            .ok_or(ParseArtifactIdError)?;
        Ok(Self(digest.parse()?))
    }
}

impl Serialize for ArtifactId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ArtifactId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        alloc::string::String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// What a store answers when it has taken an artifact (contract A, first paragraph).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactDescriptor {
    /// The identity, which follows from `sha256`.
    pub artifact_id: ArtifactId,
    /// The size of the complete UTF-8 bytes.
    pub byte_count: u64,
    /// The digest of the complete UTF-8 bytes.
    pub sha256: Sha256Digest,
}

impl ArtifactDescriptor {
    /// Describes `text` as it would be stored.
    pub fn of(text: &str) -> Self {
        Self::new(Sha256Digest::of(text.as_bytes()), text.len() as u64)
    }

    /// Describes bytes whose digest is known already.
    pub fn new(sha256: Sha256Digest, byte_count: u64) -> Self {
        Self {
            artifact_id: sha256.into(),
            byte_count,
            sha256,
        }
    }
}
