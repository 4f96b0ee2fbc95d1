//! A store that the host implements in JavaScript.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use evidence_store::{Batch, Expectation, Key, Store, StoreError};
use js_sys::{Array, Function, Uint8Array};
use wasm_bindgen::prelude::*;

use crate::argument::{Argument, call};
use crate::artifacts::object;
use crate::error::Result;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** Changes that happen together or not at all. The arrays are the store's own to keep. */
export interface StoreBatch {
  /**
   * What must still stand under these keys: exactly these bytes, or nothing where it is undefined.
   * Checked in the same transaction, before anything is changed.
   */
  expect: [key: string, value: Uint8Array | undefined][];
  /** Values to write, over any that stand there. */
  put: [key: string, value: Uint8Array][];
  /** Keys to remove; one that has no value is no error. */
  delete: string[];
}

/**
 * A transactional map from text keys to bytes, implemented by the host. It keeps three promises, on
 * which everything above it stands:
 *
 * 1. A `get` sees the values of one moment: never one from before a `commit` beside one from after it.
 * 2. A `commit` is durable when its promise resolves, and atomic whatever happens before: all of the
 *    batch is there or nothing of it.
 * 3. Two callers, also of two tabs or processes, do not overwrite each other unseen: the values of
 *    `expect` are compared inside the transaction that makes the changes, byte for byte.
 *
 * A store fails by throwing (or rejecting with) an error. Its `code` says how: "conflict" when an
 * expectation does not hold, "exhausted" when there is no room; anything else means that the store
 * cannot be reached, and the error's message is passed on. Nothing has changed after any of them.
 *
 * Keys are data, at most some 400 ASCII characters long, in parts that "/" separates. Values are at
 * most some 60 KiB; artifacts are cut into chunks above. An answer that is not of this form is an
 * error with the code `storage_damaged` (contract B: `integrity_failure`) and never used.
 */
export interface Store {
  /** The values under these keys, in their order; undefined or null where there is none. */
  get(keys: string[]): ValueOf<(Uint8Array | null | undefined)[]>;
  /** All keys that begin with the prefix, in any order. */
  list(prefix: string): ValueOf<string[]>;
  /** Applies the whole batch, or nothing of it and throws. */
  commit(batch: StoreBatch): ValueOf<void>;
}

/** At once or as a promise. */
export type ValueOf<T> = T | PromiseLike<T>;
"#;

/// The store object of the host, and its three functions as they were when it was opened.
#[derive(Clone)]
pub struct HostStore(Rc<Functions>);

struct Functions {
    store: JsValue,
    get: Function,
    list: Function,
    commit: Function,
}

impl fmt::Debug for HostStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostStore")
    }
}

impl HostStore {
    /// The store that `store` is.
    pub fn new(store: &Argument) -> Result<Self> {
        let function = |name| store.field(name)?.function();
        Ok(Self(Rc::new(Functions {
            get: function("get")?,
            list: function("list")?,
            commit: function("commit")?,
            store: store.value().clone(),
        })))
    }

    async fn call(
        &self,
        function: &Function,
        name: &str,
        argument: JsValue,
    ) -> Result<Argument, StoreError> {
        match call(function, &self.0.store, &[argument]).await {
            Ok(answer) => Ok(Argument::new(&format!("the answer of {name}"), answer)),
            Err(exception) => Err(thrown(exception)),
        }
    }
}

/// What the host's exception means.
fn thrown(exception: JsValue) -> StoreError {
    let exception = Argument::new("exception", exception);
    let code = exception.field("code").and_then(|code| code.text());
    match code.as_deref() {
        Ok("conflict") => StoreError::Conflict,
        Ok("exhausted") => StoreError::Exhausted,
        _ => StoreError::Unavailable {
            reason: exception.message(),
        },
    }
}

/// What an answer means that is not of the form that it must have.
fn damaged(failure: crate::Failure) -> StoreError {
    StoreError::Damaged {
        reason: failure.into_message(),
    }
}

impl Store for HostStore {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let names: Array = keys.iter().map(name).collect();
        let answer = self.call(&self.0.get, "get", names.into()).await?;
        let read = || {
            let items = answer.list_of(u32::MAX)?.take(keys.len() + 1);
            let values: Vec<_> = items.map(|item| value(item?)).collect::<Result<_>>()?;
            if values.len() == keys.len() {
                Ok(values)
            } else {
                Err(answer.is_not("an array with a value for each key"))
            }
        };
        read().map_err(damaged)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let answer = self.call(&self.0.list, "list", prefix.into()).await?;
        let read = || {
            let mut keys = Vec::new();
            for item in answer.list_of(u32::MAX)? {
                let key = item?.text()?;
                if !key.starts_with(prefix) {
                    return Err(answer.is_not("keys that begin with the prefix"));
                }
                keys.push(Key::new(key));
            }
            keys.sort();
            Ok(keys)
        };
        read().map_err(damaged)
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let expect = batch.expect.iter().map(|(key, expectation)| {
            let value = match expectation {
                Expectation::Absent => JsValue::UNDEFINED,
                Expectation::Value(bytes) => byte_array(bytes),
            };
            pair(key, &value)
        });
        let put = batch.put.iter();
        let put = put.map(|(key, bytes)| pair(key, &byte_array(bytes)));
        let delete = batch.delete.iter().map(name);
        let batch = object([
            ("expect", expect.collect::<Array>().into()),
            ("put", put.collect::<Array>().into()),
            ("delete", delete.collect::<Array>().into()),
        ]);
        self.call(&self.0.commit, "commit", batch).await.map(drop)
    }
}

fn value(item: Argument) -> Result<Option<Bytes>> {
    match item.optional().filter(|item| !item.is_null()) {
        Some(item) => Ok(Some(item.byte_array()?.into())),
        None => Ok(None),
    }
}

fn name(key: &Key) -> JsValue {
    key.as_str().into()
}

/// A copy: the host may keep it.
fn byte_array(bytes: &Bytes) -> JsValue {
    Uint8Array::from(&bytes[..]).into()
}

fn pair(key: &Key, value: &JsValue) -> JsValue {
    Array::of2(&name(key), value).into()
}
