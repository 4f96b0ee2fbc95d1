//! Stores that watch and that fail.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A call of a store, with the number of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Get(usize),
    List,
    Commit,
}

/// Remembers its calls.
pub struct WatchedStore<S> {
    inner: S,
    calls: Mutex<Vec<Call>>,
}

impl<S: Store> WatchedStore<S> {
    pub fn new(inner: S) -> Self {
        let calls = Mutex::default();
        Self { inner, calls }
    }

    pub fn forget_calls(&self) {
        self.calls.lock().unwrap().clear();
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    pub fn commits(&self) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| **call == Call::Commit).count()
    }
}

impl<S: Store> Store for WatchedStore<S> {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.calls.lock().unwrap().push(Call::Get(keys.len()));
        self.inner.get(keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.calls.lock().unwrap().push(Call::List);
        self.inner.list(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.calls.lock().unwrap().push(Call::Commit);
        self.inner.commit(batch).await
    }
}

/// Fails with `error` on call `fail_at`, from 0.
pub struct FailingStore<'a, S> {
    inner: &'a S,
    calls: AtomicUsize,
    fail_at: usize,
    error: StoreError,
}

impl<'a, S: Store> FailingStore<'a, S> {
    pub fn new(inner: &'a S, fail_at: usize, error: StoreError) -> Self {
        Self {
            inner,
            calls: AtomicUsize::new(0),
            fail_at,
            error,
        }
    }

    /// Whether the failure has happened.
    pub fn has_failed(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.fail_at
    }

    fn step(&self) -> Result<(), StoreError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.fail_at {
            Err(self.error.clone())
        } else {
            Ok(())
        }
    }
}

impl<S: Store> Store for FailingStore<'_, S> {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.step()?;
        self.inner.get(keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.step()?;
        self.inner.list(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.step()?;
        self.inner.commit(batch).await
    }
}

/// Lets something happen once, before a call.
pub struct InterferingStore<'a, S> {
    inner: &'a S,
    /// How many gets and commits come before the one.
    gets: AtomicUsize,
    commits: AtomicUsize,
    interfere: Box<dyn Fn() + Send + Sync + 'a>,
}

impl<'a, S: Store> InterferingStore<'a, S> {
    /// Before commit `index`, from 0.
    pub fn on_commit(inner: &'a S, index: usize, interfere: impl Fn() + Send + Sync + 'a) -> Self {
        Self {
            inner,
            gets: AtomicUsize::new(usize::MAX),
            commits: AtomicUsize::new(index),
            interfere: Box::new(interfere),
        }
    }

    /// Before get `index`, from 0.
    pub fn on_get(inner: &'a S, index: usize, interfere: impl Fn() + Send + Sync + 'a) -> Self {
        Self {
            inner,
            gets: AtomicUsize::new(index),
            commits: AtomicUsize::new(usize::MAX),
            interfere: Box::new(interfere),
        }
    }

    fn step(&self, left: &AtomicUsize) {
        if left.fetch_sub(1, Ordering::Relaxed) == 0 {
            // An executor does not run within another.
            std::thread::scope(|threads| threads.spawn(&self.interfere).join().unwrap());
        }
    }
}

impl<S: Store> Store for InterferingStore<'_, S> {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.step(&self.gets);
        self.inner.get(keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.inner.list(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.step(&self.commits);
        self.inner.commit(batch).await
    }
}
