//! The artifact store of contract A.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use evidence_core::chunk::ChunkManifest;
use evidence_core::range::{RangePath, RangeRefusal};
use evidence_core::selection::{ScanPath, SelectionRefusal};
use evidence_core::{ArtifactDescriptor, ArtifactId, Sha256Digest};

use crate::blob::{self, BlobError, Place};
use crate::digest::manifest_of;
use crate::store::{Batch, Key, Store, StoreError};

/// The name of one store instance among those that share a [`Store`]: an id that one instance
/// registered means nothing to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope(String);

/// The text cannot name a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a scope is 1 to 128 of A-Z a-z 0-9 . _ -")]
pub struct InvalidScope;

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=128).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidScope)
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why an artifact was not stored or not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// The store failed; nothing is half stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other bytes stand under this id already. They are not overwritten.
    #[error("other bytes are stored under this artifact id; they were left as they are")]
    Conflict,
    /// This instance did not register the id.
    #[error("artifact is not available in this store")]
    Unknown,
    /// A part of the stored bytes is gone.
    #[error("could not read tool-result artifact")]
    Unreadable,
    /// The stored bytes are not those that were put.
    #[error("artifact digest does not match its recorded identity")]
    DigestMismatch,
}

impl From<BlobError> for ArtifactError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Store(error) => Self::Store(error),
            BlobError::Missing => Self::Unreadable,
            BlobError::Altered => Self::DigestMismatch,
        }
    }
}

/// Keeps complete texts under their digests, for one [`Scope`] of a [`Store`].
#[derive(Debug, Clone)]
pub struct ArtifactStore<S> {
    store: S,
    scope: Scope,
}

impl<S: Store> ArtifactStore<S> {
    /// The instance `scope` of `store`.
    pub const fn new(store: S, scope: Scope) -> Self {
        Self { store, scope }
    }

    /// The store beneath.
    pub const fn store(&self) -> &S {
        &self.store
    }

    fn scope_prefix(&self) -> String {
        format!("artifact/{}/", self.scope)
    }

    fn prefix(&self, id: ArtifactId) -> String {
        format!("{}{}/", self.scope_prefix(), id.sha256())
    }

    fn place(&self, id: ArtifactId) -> Place {
        Place::under(&self.prefix(id))
    }

    /// Stores the complete UTF-8 bytes of `text`, durably, and registers their id. Putting the same
    /// text again changes nothing.
    ///
    /// # Errors
    ///
    /// [`ArtifactError::Conflict`] when bytes that differ stand under the id, and
    /// [`ArtifactError::Store`]. Nothing has changed then.
    pub async fn put(&self, text: &str) -> Result<ArtifactDescriptor, ArtifactError> {
        let manifest = manifest_of(text.as_bytes()).await;
        let descriptor = ArtifactDescriptor::new(manifest.sha256, manifest.byte_count);
        if self.stands_already(&descriptor).await? {
            return Ok(descriptor);
        }
        let mut batch = Batch::default();
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        let place = self.place(descriptor.artifact_id);
        blob::stage(&mut batch, &place, &manifest, &bytes);
        match self.store.commit(batch).await {
            // Somebody else stored the same artifact in the meantime.
            Err(StoreError::Conflict) if self.stands_already(&descriptor).await? => Ok(descriptor),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(descriptor),
        }
    }

    /// Whether the described bytes are stored; a conflict when others are.
    async fn stands_already(&self, descriptor: &ArtifactDescriptor) -> Result<bool, ArtifactError> {
        match self.read(descriptor.artifact_id).await {
            Ok(_) => Ok(true),
            Err(ArtifactError::Unknown) => Ok(false),
            Err(ArtifactError::Store(error)) => Err(error.into()),
            Err(_) => Err(ArtifactError::Conflict),
        }
    }

    /// What was registered under `id`, without reading its bytes.
    ///
    /// # Errors
    ///
    /// [`ArtifactError::Unknown`], [`ArtifactError::DigestMismatch`] or [`ArtifactError::Store`].
    pub async fn describe(&self, id: ArtifactId) -> Result<ArtifactDescriptor, ArtifactError> {
        Ok(self.manifest(id).await?.0)
    }

    async fn manifest(
        &self,
        id: ArtifactId,
    ) -> Result<(ArtifactDescriptor, ChunkManifest), ArtifactError> {
        let manifest = blob::manifest(&self.store, &self.place(id))
            .await?
            .ok_or(ArtifactError::Unknown)?;
        if manifest.sha256 != id.sha256() {
            return Err(ArtifactError::DigestMismatch);
        }
        Ok((
            ArtifactDescriptor::new(manifest.sha256, manifest.byte_count),
            manifest,
        ))
    }

    /// The complete bytes, verified against their size and digest.
    ///
    /// # Errors
    ///
    /// Any [`ArtifactError`] but `Conflict`; no bytes are returned then.
    pub async fn read(&self, id: ArtifactId) -> Result<(ArtifactDescriptor, Bytes), ArtifactError> {
        let (descriptor, manifest) = self.manifest(id).await?;
        let bytes = self.load(&manifest).await?;
        if Sha256Digest::of(&bytes) != descriptor.sha256 {
            return Err(ArtifactError::DigestMismatch);
        }
        Ok((descriptor, bytes))
    }

    /// The complete bytes, each chunk verified, the whole not yet.
    async fn load(&self, manifest: &ChunkManifest) -> Result<Bytes, ArtifactError> {
        let place = self.place(manifest.sha256.into());
        Ok(blob::read(&self.store, &place, manifest, 0..manifest.byte_count).await?)
    }

    /// Answers a path of the artifacts' namespace: the exact text that the model sees.
    ///
    /// # Errors
    ///
    /// The refusal that contract A names for the path, the range or the stored bytes.
    pub async fn read_range(
        &self,
        path: &str,
        max_range_bytes: usize,
    ) -> Result<String, RangeRefusal> {
        let path = RangePath::parse(path)?;
        let (descriptor, manifest) = self
            .manifest(path.artifact_id())
            .await
            .map_err(|error| refusal(&error))?;
        let range = path.check(descriptor.byte_count, max_range_bytes)?;
        let bytes = self
            .load(&manifest)
            .await
            .map_err(|error| refusal(&error))?;
        Ok(range.answer(&descriptor, &bytes)?.render())
    }

    /// Answers a path of the artifacts' namespace where lines and searches are answered too.
    ///
    /// All of the artifact is read for that and verified as it is for a range, with no more than a few
    /// chunks in memory at a time.
    ///
    /// # Errors
    ///
    /// The refusal for the path, the range, the lines, the search or the stored bytes.
    pub async fn select(
        &self,
        path: &str,
        max_range_bytes: usize,
    ) -> Result<String, SelectionRefusal> {
        let Some(path) = ScanPath::parse(path)? else {
            return Ok(self.read_range(path, max_range_bytes).await?);
        };
        let id = path.artifact_id();
        let (descriptor, manifest) = self.manifest(id).await.map_err(|error| refusal(&error))?;
        let mut scan = path.begin(descriptor.byte_count, max_range_bytes)?;
        blob::scan(&self.store, &self.place(id), &manifest, |chunk| {
            scan.push(chunk);
        })
        .await
        .map_err(|error| refusal(&error.into()))?;
        scan.answer(&descriptor)
    }

    /// The registered artifacts, by id.
    ///
    /// # Errors
    ///
    /// [`ArtifactError::Store`].
    pub async fn list(&self) -> Result<Vec<ArtifactId>, ArtifactError> {
        let prefix = self.scope_prefix();
        let keys = self.store.list(&prefix).await?;
        let id = |key: &Key| {
            let digest = key
                .as_str()
                .strip_prefix(&prefix)?
                .strip_suffix("/manifest")?;
            Some(ArtifactId::from(digest.parse::<Sha256Digest>().ok()?))
        };
        Ok(keys.iter().filter_map(id).collect())
    }

    /// Forgets an artifact and its bytes. One that is not there is no error.
    ///
    /// # Errors
    ///
    /// [`ArtifactError::Store`]; the artifact is untouched then.
    pub async fn delete(&self, id: ArtifactId) -> Result<(), ArtifactError> {
        self.delete_prefix(&self.prefix(id)).await
    }

    /// Forgets every artifact of this instance, in one transaction.
    ///
    /// # Errors
    ///
    /// [`ArtifactError::Store`]; all are untouched then.
    pub async fn delete_all(&self) -> Result<(), ArtifactError> {
        self.delete_prefix(&self.scope_prefix()).await
    }

    async fn delete_prefix(&self, prefix: &str) -> Result<(), ArtifactError> {
        let delete = self.store.list(prefix).await?;
        Ok(self
            .store
            .commit(Batch {
                delete,
                ..Batch::default()
            })
            .await?)
    }
}

fn refusal(error: &ArtifactError) -> RangeRefusal {
    match error {
        ArtifactError::Unknown => RangeRefusal::UnknownArtifact,
        ArtifactError::DigestMismatch | ArtifactError::Conflict => RangeRefusal::DigestMismatch,
        ArtifactError::Store(_) | ArtifactError::Unreadable => RangeRefusal::Unreadable,
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests;
