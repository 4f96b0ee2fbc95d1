//! How bytes are cut into chunks, and how a reader knows that a chunk is the one that was cut.
//!
//! Both contracts store their bytes this way. A read fetches and verifies only the chunks that its
//! range touches, so that its cost does not grow with the artifact.

use alloc::vec::Vec;
use core::ops::Range;

use crate::digest::Sha256Digest;

/// The size of every chunk but the last.
///
/// 60 KiB: large enough that 16 MiB are some 270 records, small enough that verifying a chunk costs
/// less than fetching it, and below 64 KiB because Chromium keeps a larger IndexedDB value in a file
/// of its own, which makes a commit of so many take about twice as long.
pub const CHUNK_BYTES: usize = 60 * 1024;

/// The size of a digest.
const DIGEST_BYTES: usize = 32;
/// What stands before the chunks' digests in a stored manifest.
const HEADER_BYTES: usize = DIGEST_BYTES + 8;

/// What is recorded beside the chunks of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkManifest {
    /// The digest of the complete bytes.
    pub sha256: Sha256Digest,
    /// The size of the complete bytes.
    pub byte_count: u64,
    /// The digest of each chunk, in order.
    pub chunks: Vec<Sha256Digest>,
}

/// A manifest that contradicts itself, or a chunk that is not the one that the manifest names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The number of chunks does not fit the size, or the only chunk is not the whole.
    #[error("the chunk manifest contradicts itself")]
    Manifest,
    /// A chunk's size or digest is not what the manifest says.
    #[error("stored chunk {index} is not the one that was written")]
    Chunk {
        /// Which of the manifest's chunks.
        index: usize,
    },
}

impl ChunkManifest {
    /// Cuts `bytes` and digests the whole and the pieces.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            sha256: Sha256Digest::of(bytes),
            byte_count: bytes.len() as u64,
            chunks: Self::cut(bytes).map(Sha256Digest::of).collect(),
        }
    }

    /// The pieces of `bytes`, for a host that digests them by its own means.
    pub fn cut(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        bytes.chunks(CHUNK_BYTES)
    }

    /// The manifest as it is stored: the digest (32 bytes), the size (8, big-endian), and the digest
    /// of each chunk (32). Every read digests it, so that it is as short as it can be.
    pub fn to_bytes(&self) -> Vec<u8> {
        let digests = self.chunks.iter().map(Sha256Digest::as_bytes);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + DIGEST_BYTES * self.chunks.len());
        bytes.extend_from_slice(self.sha256.as_bytes());
        bytes.extend_from_slice(&self.byte_count.to_be_bytes());
        digests.for_each(|digest| bytes.extend_from_slice(digest));
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote, and checks what can be checked without any
    /// chunk.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Manifest`] for anything else, when the number of chunks does not fit the size,
    /// and when the one chunk that is the whole has another digest than the whole.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ChunkError> {
        let (sha256, rest) = bytes.split_first_chunk().ok_or(ChunkError::Manifest)?;
        let (byte_count, rest) = rest.split_first_chunk().ok_or(ChunkError::Manifest)?;
        let (chunks, []) = rest.as_chunks() else {
            return Err(ChunkError::Manifest);
        };
        let manifest = Self {
            sha256: Sha256Digest::from_bytes(*sha256),
            byte_count: u64::from_be_bytes(*byte_count),
            chunks: chunks
                .iter()
                .copied()
                .map(Sha256Digest::from_bytes)
                .collect(),
        };
        manifest.check().map(|()| manifest)
    }

    fn check(&self) -> Result<(), ChunkError> {
        let counted = self.byte_count.div_ceil(CHUNK_BYTES as u64) == self.chunks.len() as u64;
        let same = match self.chunks.as_slice() {
            [] => self.sha256 == Sha256Digest::of(b""),
            [only] => self.sha256 == *only,
            _ => true,
        };
        if counted && same {
            Ok(())
        } else {
            Err(ChunkError::Manifest)
        }
    }

    /// Which chunks hold the bytes `range`, clamped to the artifact.
    pub fn chunks_of(&self, range: Range<u64>) -> Range<usize> {
        let end = range.end.min(self.byte_count);
        if range.start >= end {
            return 0..0;
        }
        let index = |position: u64| usize::try_from(position / CHUNK_BYTES as u64);
        match (index(range.start), index(end - 1)) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1).min(self.chunks.len()),
            _ => 0..0,
        }
    }

    /// Where chunk `index` stands in the artifact.
    pub fn range_of(&self, index: usize) -> Range<u64> {
        let start = (index as u64).saturating_mul(CHUNK_BYTES as u64);
        start.min(self.byte_count)
            ..start
                .saturating_add(CHUNK_BYTES as u64)
                .min(self.byte_count)
    }

    /// Checks that `bytes` are chunk `index`.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Chunk`] when they are not.
    pub fn verify(&self, index: usize, bytes: &[u8]) -> Result<(), ChunkError> {
        let Range { start, end } = self.range_of(index);
        let expected = self.chunks.get(index);
        if bytes.len() as u64 == end - start && expected == Some(&Sha256Digest::of(bytes)) {
            Ok(())
        } else {
            Err(ChunkError::Chunk { index })
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_manifest_is_read_back_and_every_other_length_is_refused() {
        for byte_count in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let manifest = ChunkManifest::of(&vec![7; byte_count]);
            let stored = manifest.to_bytes();
            assert_eq!(ChunkManifest::from_bytes(&stored), Ok(manifest));
            for end in 0..stored.len() {
                let cut = ChunkManifest::from_bytes(&stored[..end]);
                assert_eq!(cut, Err(ChunkError::Manifest), "{end}");
            }
            let long = [stored.as_slice(), &[0]].concat();
            assert_eq!(ChunkManifest::from_bytes(&long), Err(ChunkError::Manifest));
        }
    }

    #[test]
    fn a_manifest_that_contradicts_itself_is_refused() {
        let manifest = ChunkManifest::of(&vec![7; 2 * CHUNK_BYTES]);
        let one = ChunkManifest::of(b"x");
        let contradictions = [
            ChunkManifest {
                byte_count: 2 * CHUNK_BYTES as u64 + 1,
                ..manifest.clone()
            },
            ChunkManifest {
                byte_count: CHUNK_BYTES as u64,
                ..manifest.clone()
            },
            ChunkManifest {
                byte_count: u64::MAX,
                ..manifest.clone()
            },
            ChunkManifest {
                chunks: Vec::new(),
                ..manifest.clone()
            },
            ChunkManifest {
                sha256: manifest.sha256,
                ..one
            },
        ];
        for manifest in contradictions {
            let stored = manifest.to_bytes();
            assert_eq!(
                ChunkManifest::from_bytes(&stored),
                Err(ChunkError::Manifest)
            );
        }
    }
}
