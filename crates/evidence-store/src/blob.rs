//! Bytes of any size under a prefix of keys: a manifest and the chunks that it names.
//!
//! ```text
//! <prefix>manifest        the ChunkManifest, as a record
//! <prefix>chunk/<sha256>  each distinct chunk once
//! ```

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use evidence_core::chunk::{CHUNK_BYTES, ChunkManifest};

use crate::record::Record;
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

fn manifest_key(prefix: &str) -> Key {
    Key::new(format!("{prefix}manifest"))
}

fn chunk_key(prefix: &str, manifest: &ChunkManifest, index: usize) -> Key {
    Key::new(format!("{prefix}chunk/{}", manifest.chunks[index]))
}

/// Adds `bytes` to `batch`, to be written under `prefix` where no blob stands yet.
///
/// # Errors
///
/// [`BlobError::Altered`] when the manifest cannot be encoded.
pub fn stage(
    batch: &mut Batch,
    prefix: &str,
    manifest: &ChunkManifest,
    bytes: &Bytes,
) -> Result<(), BlobError> {
    let key = manifest_key(prefix);
    let record = Record(manifest).encode().map_err(|_| BlobError::Altered)?;
    batch.expect.push((key.clone(), Expectation::Absent));
    for index in 0..manifest.chunks.len() {
        let start = index * CHUNK_BYTES;
        let end = bytes.len().min(start + CHUNK_BYTES);
        let key = chunk_key(prefix, manifest, index);
        batch.put.push((key, bytes.slice(start..end)));
    }
    batch.put.push((key, record));
    Ok(())
}

/// The manifest under `prefix`, checked against itself; none when no blob stands there.
///
/// # Errors
///
/// [`BlobError::Store`] or [`BlobError::Altered`].
pub async fn manifest(
    store: &impl Store,
    prefix: &str,
) -> Result<Option<ChunkManifest>, BlobError> {
    let stored = store.get(&[manifest_key(prefix)]).await?.into_iter().next();
    let Some(stored) = stored.flatten() else {
        return Ok(None);
    };
    let manifest: ChunkManifest = Record::decode(&stored).map_err(|_| BlobError::Altered)?;
    manifest.check().map_err(|_| BlobError::Altered)?;
    Ok(Some(manifest))
}

/// The bytes of `range`, clamped to the blob. Only the chunks that the range touches are fetched,
/// and each is verified.
///
/// # Errors
///
/// Any [`BlobError`]; no bytes are returned then.
pub async fn read(
    store: &impl Store,
    prefix: &str,
    manifest: &ChunkManifest,
    range: Range<u64>,
) -> Result<Bytes, BlobError> {
    let indexes = manifest.chunks_of(range.clone());
    let keys: Vec<Key> = indexes
        .clone()
        .map(|index| chunk_key(prefix, manifest, index))
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

/// The part of `chunk`, which stands at `position` in the blob, that lies in `range`.
fn slice(chunk: &Bytes, position: &Range<u64>, range: &Range<u64>) -> Bytes {
    // Both differences are at most a chunk's size.
    let offset = |at: u64| usize::try_from(at.clamp(position.start, position.end) - position.start);
    match (offset(range.start), offset(range.end)) {
        (Ok(start), Ok(end)) if start <= end => chunk.slice(start..end),
        _ => Bytes::new(),
    }
}
