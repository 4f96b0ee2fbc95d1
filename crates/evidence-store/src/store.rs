//! The trait that every store implements.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use crate::maybe_send::{MaybeSend, MaybeSync};

/// The name of a value: text in parts that `/` separates, so that what belongs together shares a
/// prefix. A key is data to a store, never a path of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// A key of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What must still be true when a batch is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// No value stands under the key.
    Absent,
    /// Exactly these bytes stand under the key.
    Value(Bytes),
}

impl From<Option<Bytes>> for Expectation {
    /// What was read is what is expected.
    fn from(read: Option<Bytes>) -> Self {
        read.map_or(Self::Absent, Self::Value)
    }
}

impl Expectation {
    /// Whether `current`, the value under the key, meets the expectation.
    pub fn is_met_by(&self, current: Option<&[u8]>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::Value(expected) => current == Some(expected),
        }
    }
}

/// Changes that happen together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Checked first, in the same transaction; one that does not hold makes the commit a
    /// [`StoreError::Conflict`].
    pub expect: Vec<(Key, Expectation)>,
    /// Values to write, over any that stand there.
    pub put: Vec<(Key, Bytes)>,
    /// Keys to remove; one that has no value is no error.
    pub delete: Vec<Key>,
}

/// Why a store did not do what it was asked. Nothing is half done after any of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No room: the disk is full or the browser's quota is used up.
    #[error(
        "storage is exhausted: nothing was stored; delete artifacts or free space, then try again"
    )]
    Exhausted,
    /// An expectation of the batch does not hold (any more).
    #[error(
        "the stored state changed in the meantime: nothing was stored; read it again and retry"
    )]
    Conflict,
    /// The store cannot be reached at all.
    #[error("storage is not available: {reason}")]
    Unavailable {
        /// What happened and what to do, without naming a path of the host.
        reason: String,
    },
    /// The store's own structure is damaged.
    #[error("storage is damaged: {reason}")]
    Damaged {
        /// What was found, without naming a path of the host.
        reason: String,
    },
}

/// A transactional map from keys to bytes.
///
/// Implementations keep three promises: a `get` sees the values of one moment; a `commit` is durable
/// when it returns, and atomic whatever happens before; two callers, also of two processes or two
/// tabs, do not overwrite each other unseen when their batches say what they expect.
pub trait Store: MaybeSend + MaybeSync {
    /// The values under `keys`, in their order, as of one moment.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Damaged`].
    fn get(
        &self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>> + MaybeSend;

    /// All keys that begin with `prefix`, sorted.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Damaged`].
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<Key>, StoreError>> + MaybeSend;

    /// Applies the whole batch, or nothing of it.
    ///
    /// # Errors
    ///
    /// Any [`StoreError`]; nothing has changed then.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<(), StoreError>> + MaybeSend;
}

impl<S: Store> Store for Arc<S> {
    fn get(
        &self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>> + MaybeSend {
        S::get(self, keys)
    }

    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<Key>, StoreError>> + MaybeSend {
        S::list(self, prefix)
    }

    fn commit(&self, batch: Batch) -> impl Future<Output = Result<(), StoreError>> + MaybeSend {
        S::commit(self, batch)
    }
}
