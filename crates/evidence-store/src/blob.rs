//! Bytes of any size under a few keys: a manifest and the chunks that it names.
//!
//! ```text
//! <manifest key>           the ChunkManifest, sealed
//! <chunk prefix><sha256>   each distinct chunk once
//! ```
//!
//! Blobs with the same chunk prefix share the chunks that they have in common.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use evidence_core::Sha256Digest;
use evidence_core::chunk::{CHUNK_BYTES, ChunkManifest};
use evidence_core::digest::Sha256Hasher;

use crate::record;
use crate::store::{Batch, Expectation, Key, Store, StoreError};

/// Why bytes were not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A chunk that the manifest names is gone.
    #[error("a stored chunk is missing")]
    Missing,
    /// The manifest or a chunk is not what was written.
    #[error("stored bytes are not the ones that were written")]
    Altered,
}

/// Where a blob stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The key of the manifest.
    pub manifest: Key,
    /// What the key of a chunk has before the chunk's digest.
    pub chunk_prefix: String,
}

impl Place {
    /// A blob that shares nothing: its manifest and its chunks stand under `prefix` together.
    pub fn under(prefix: &str) -> Self {
        Self {
            manifest: Key::new(format!("{prefix}manifest")),
            chunk_prefix: format!("{prefix}chunk/"),
        }
    }

    /// The key of the chunk with this digest.
    pub fn chunk_key(&self, sha256: Sha256Digest) -> Key {
        Key::new(format!("{}{sha256}", self.chunk_prefix))
    }
}

/// Adds `bytes` to `batch`, to be written to `place` where no blob stands yet.
pub fn stage(batch: &mut Batch, place: &Place, manifest: &ChunkManifest, bytes: &Bytes) {
    let key = place.manifest.clone();
    batch.expect.push((key.clone(), Expectation::Absent));
    for (sha256, chunk) in chunks(manifest, bytes) {
        batch.put.push((place.chunk_key(sha256), chunk));
    }
    batch.put.push((key, encode_manifest(manifest)));
}

/// Each distinct chunk of `bytes` with its digest, without a copy.
pub fn chunks(
    manifest: &ChunkManifest,
    bytes: &Bytes,
) -> impl Iterator<Item = (Sha256Digest, Bytes)> {
    // Sorted. They are few, and a set for them is a good deal of code in a page.
    let mut seen = Vec::new();
    let starts = (0..bytes.len()).step_by(CHUNK_BYTES);
    let chunks = manifest.chunks.iter().copied().zip(starts);
    chunks
        .filter(move |(sha256, _)| match seen.binary_search(sha256) {
            Ok(_) => false,
            Err(at) => {
                seen.insert(at, *sha256);
                true
            }
        })
        .map(|(sha256, start)| {
            let end = bytes.len().min(start + CHUNK_BYTES);
            (sha256, bytes.slice(start..end))
        })
}

/// The manifest at `place`, checked against itself; none when no blob stands there.
///
/// # Errors
///
/// [`BlobError::Store`] or [`BlobError::Altered`].
pub async fn manifest(
    store: &impl Store,
    place: &Place,
) -> Result<Option<ChunkManifest>, BlobError> {
    let keys = std::slice::from_ref(&place.manifest);
    let stored = store.get(keys).await?.into_iter().next().flatten();
    stored.as_deref().map(decode_manifest).transpose()
}

/// The bytes to store of a manifest.
pub fn encode_manifest(manifest: &ChunkManifest) -> Bytes {
    record::seal(&manifest.to_bytes())
}

/// The manifest that `stored` holds, checked against itself.
///
/// # Errors
///
/// [`BlobError::Altered`].
pub fn decode_manifest(stored: &[u8]) -> Result<ChunkManifest, BlobError> {
    let content = record::unseal(stored).map_err(|_| BlobError::Altered)?;
    ChunkManifest::from_bytes(content).map_err(|_| BlobError::Altered)
}

/// The bytes of `range`, clamped to the blob. Only the chunks that the range touches are fetched,
/// and each is verified.
///
/// # Errors
///
/// Any [`BlobError`]; no bytes are returned then.
pub async fn read(
    store: &impl Store,
    place: &Place,
    manifest: &ChunkManifest,
    range: Range<u64>,
) -> Result<Bytes, BlobError> {
    let indexes = manifest.chunks_of(range.clone());
    let keys: Vec<Key> = indexes
        .clone()
        .map(|index| place.chunk_key(manifest.chunks[index]))
        .collect();
    let mut bytes = BytesMut::new();
    for (index, chunk) in indexes.clone().zip(store.get(&keys).await?) {
        let chunk = chunk.ok_or(BlobError::Missing)?;
        manifest
            .verify(index, &chunk)
            .map_err(|_| BlobError::Altered)?;
        if indexes.len() == 1 {
            return Ok(slice(&chunk, &manifest.range_of(index), &range));
        }
        bytes.extend_from_slice(&slice(&chunk, &manifest.range_of(index), &range));
    }
    Ok(bytes.freeze())
}

/// How many chunks [`scan`] fetches at a time: about 1 MiB, so that a transaction of the store is worth
/// its while.
const CHUNKS_AT_A_TIME: usize = 16;

/// Hands all chunks to `visit` in their order. What it has seen may be used when this has returned, and
/// not before: the bytes are verified as a whole, at the end.
///
/// # Errors
///
/// Any [`BlobError`].
pub async fn scan(
    store: &impl Store,
    place: &Place,
    manifest: &ChunkManifest,
    mut visit: impl FnMut(&[u8]),
) -> Result<(), BlobError> {
    let mut whole = Sha256Hasher::default();
    let mut byte_count = 0;
    for chunks in manifest.chunks.chunks(CHUNKS_AT_A_TIME) {
        let keys: Vec<Key> = chunks.iter().map(|chunk| place.chunk_key(*chunk)).collect();
        for chunk in store.get(&keys).await? {
            let chunk = chunk.ok_or(BlobError::Missing)?;
            byte_count += chunk.len() as u64;
            whole.update(&chunk);
            visit(&chunk);
        }
    }
    if byte_count == manifest.byte_count && whole.finish() == manifest.sha256 {
        Ok(())
    } else {
        Err(BlobError::Altered)
    }
}

/// The part of `chunk`, which stands at `position` in the blob, that lies in `range`.
fn slice(chunk: &Bytes, position: &Range<u64>, range: &Range<u64>) -> Bytes {
    // Both differences are at most a chunk's size.
    let offset = |at: u64| usize::try_from(at.clamp(position.start, position.end) - position.start);
    match (offset(range.start), offset(range.end)) {
        (Ok(start), Ok(end)) if start <= end => chunk.slice(start..end),
        _ => Bytes::new(),
    }
}
