//! The component, and blobs that are the project's own store in memory.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use evidence_store::{Batch, Expectation, Key, MemoryStore, Store as _, StoreError};
use futures_util::FutureExt as _;
use wasmtime::component::{Component, HasSelf, Instance, Linker, bindgen};
use wasmtime::{Engine, Store};

use self::bounded_evidence::evidence::blobs::{self, Error};

bindgen!({ path: "wit", world: "evidence" });

/// The built component, compiled once.
pub fn component() -> &'static Component {
    static COMPONENT: OnceLock<Component> = OnceLock::new();
    COMPONENT.get_or_init(|| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/component/bounded_evidence.wasm");
        Component::from_file(&Engine::default(), &file).unwrap_or_else(|error| {
            panic!("no component to test, build it with `cargo xtask component`: {error:#}")
        })
    })
}

/// The outcome of what a store in memory answers at once, also inside of an executor.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory does not wait")
}

/// What a call of the blobs meets instead of the store.
pub type Fault = Box<dyn FnMut(&Call) -> Option<Answer> + Send>;

/// A call of the blobs.
#[derive(Debug)]
pub enum Call {
    Get(Vec<String>),
    List(String),
    Commit,
}

/// What a faulty host answers.
#[derive(Debug, Clone)]
pub enum Answer {
    Fails(Error),
    Values(Vec<Option<Vec<u8>>>),
    Keys(Vec<String>),
}

/// The host's side of an instance.
pub struct Blobs {
    pub store: Arc<MemoryStore>,
    pub fault: Option<Fault>,
}

impl Blobs {
    pub fn over(store: Arc<MemoryStore>) -> Self {
        Self { store, fault: None }
    }

    fn fault(&mut self, call: &Call) -> Option<Answer> {
        self.fault.as_mut()?(call)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict => Self::Conflict,
            StoreError::Exhausted => Self::Exhausted,
            StoreError::Unavailable { reason } => Self::Unavailable(reason),
            StoreError::Damaged { reason } => Self::Damaged(reason),
        }
    }
}

impl blobs::Host for Blobs {
    fn get(&mut self, keys: Vec<String>) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let call = Call::Get(keys);
        match self.fault(&call) {
            Some(Answer::Fails(error)) => return Err(error),
            Some(Answer::Values(values)) => return Ok(values),
            _ => {}
        }
        let Call::Get(keys) = call else {
            unreachable!()
        };
        let keys: Vec<Key> = keys.into_iter().map(Key::new).collect();
        let values = now(self.store.get(&keys))?.into_iter();
        Ok(values.map(|value| value.map(Vec::from)).collect())
    }

    fn list(&mut self, prefix: String) -> Result<Vec<String>, Error> {
        match self.fault(&Call::List(prefix.clone())) {
            Some(Answer::Fails(error)) => return Err(error),
            Some(Answer::Keys(keys)) => return Ok(keys),
            _ => {}
        }
        let keys = now(self.store.list(&prefix))?;
        // In any order, says the interface.
        Ok(keys.iter().rev().map(Key::to_string).collect())
    }

    fn commit(&mut self, batch: blobs::Batch) -> Result<(), Error> {
        if let Some(Answer::Fails(error)) = self.fault(&Call::Commit) {
            return Err(error);
        }
        let expectation = |value: Option<Vec<u8>>| match value {
            Some(value) => Expectation::Value(value.into()),
            None => Expectation::Absent,
        };
        let expect = batch.expect.into_iter();
        let put = batch.put.into_iter();
        let batch = Batch {
            expect: expect
                .map(|expected| (Key::new(expected.key), expectation(expected.value)))
                .collect(),
            put: put
                .map(|entry| (Key::new(entry.key), Bytes::from(entry.value)))
                .collect(),
            delete: batch.delete.into_iter().map(Key::new).collect(),
        };
        Ok(now(self.store.commit(batch))?)
    }
}

/// An instance of the component over these blobs.
pub fn instantiate(blobs: Blobs) -> (Store<Blobs>, Instance) {
    let component = component();
    let mut linker = Linker::new(component.engine());
    Evidence::add_to_linker::<_, HasSelf<_>>(&mut linker, |blobs: &mut Blobs| blobs).unwrap();
    let mut store = Store::new(component.engine(), blobs);
    let instance = linker.instantiate(&mut store, component).unwrap();
    (store, instance)
}

/// The same with typed functions.
pub fn typed(blobs: Blobs) -> (Store<Blobs>, Evidence) {
    let (mut store, instance) = instantiate(blobs);
    let evidence = Evidence::new(&mut store, &instance).unwrap();
    (store, evidence)
}
