//! A store in a database of the browser's origin.
//!
//! One database, one object store: the key's text -> a `Uint8Array`. A batch is one readwrite
//! transaction with strict durability. A tab that is closed before the browser reports it complete
//! leaves all of the batch or nothing.
//!
//! Works wherever `indexedDB` is a global: windows, Web Workers, Service Workers.

mod request;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use js_sys::{Array, Object, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    IdbDatabase, IdbFactory, IdbKeyRange, IdbObjectStore, IdbOpenDbRequest, IdbRequest,
    IdbTransaction, StorageManager,
};

use self::request::{Opened, finished, opened, request_error, store_error, succeeded, unavailable};
use crate::store::{Batch, Key, Store, StoreError};

const OBJECT_STORE: &str = "values";

/// The form of what stands in the database; a new form gets a new number.
const FORM_VERSION: u32 = 1;

/// Keeps everything in one IndexedDB database. Stores in several tabs can share it.
#[derive(Debug, Clone)]
pub struct IndexedDbStore {
    connection: Rc<Connection>,
}

/// An open connection. It yields to any other tab that wants to change or delete the database.
#[derive(Debug)]
struct Connection {
    database: IdbDatabase,
    state: Rc<Cell<State>>,
    /// The listeners live as long as the connection.
    _on_version_change: Closure<dyn FnMut()>,
    _on_close: Closure<dyn FnMut()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Closed by us, because another tab upgrades or deletes the database.
    Yielded,
    /// Closed by the browser, for example because the user cleared the site's data.
    ClosedByBrowser,
}

impl IndexedDbStore {
    /// The database that the project's own pages use.
    pub const DEFAULT_NAME: &str = "bounded-evidence";

    /// Opens the database `name` of this origin, creating it where it does not exist.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when the browser has no IndexedDB here or refuses it (private
    /// windows, blocked cookies), when a newer form of the database stands there, and when a tab
    /// with an older form holds it open; [`StoreError::Exhausted`] when there is no room for it.
    pub async fn open(name: &str) -> Result<Self, StoreError> {
        Self::open_form(name, FORM_VERSION).await
    }

    async fn open_form(name: &str, version: u32) -> Result<Self, StoreError> {
        let request = factory()?
            .open_with_u32(name, version)
            .map_err(|error| store_error(&error))?;
        let on_upgrade_needed = Closure::once_into_js({
            let request = request.clone();
            move || create_object_store(&request)
        });
        request.set_onupgradeneeded(Some(on_upgrade_needed.unchecked_ref()));
        match opened(&request).await {
            Opened::Success => {
                let database = request.result().map_err(|error| store_error(&error))?;
                Ok(Self {
                    connection: Rc::new(Connection::new(database.unchecked_into())),
                })
            }
            Opened::Blocked => {
                close_when_opened(&request);
                Err(unavailable(
                    "another tab holds an older form of the database open; close the other tabs \
                     of this site, then reload this page",
                ))
            }
            Opened::Error => Err(request_error(&request)),
        }
    }

    /// Begins a transaction: its object store, and its end as a future.
    fn begin(
        &self,
        mode: &str,
    ) -> Result<(IdbObjectStore, impl Future<Output = Result<(), StoreError>>), StoreError> {
        let connection = &self.connection;
        let begin = || {
            let options = Object::new();
            Reflect::set(&options, &"durability".into(), &"strict".into())?;
            let database: &DatabaseWithOptions = connection.database.unchecked_ref();
            let transaction = database.transaction(OBJECT_STORE, mode, &options)?;
            Ok((transaction.object_store(OBJECT_STORE)?, transaction))
        };
        let (values, transaction) =
            begin().map_err(|error: JsValue| connection.explain(store_error(&error)))?;
        let finished = finished(transaction);
        let finished = async { finished.await.map_err(|error| connection.explain(error)) };
        Ok((values, finished))
    }
}

impl Store for IndexedDbStore {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let (values, finished) = self.begin("readonly")?;
        let requests = get_all(&values, keys.iter())?;
        finished.await?;
        requests.iter().map(value).collect()
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let (values, finished) = self.begin("readonly")?;
        let request = match keys_from(prefix)? {
            Some(range) => values.get_all_keys_with_key(&range),
            None => values.get_all_keys(),
        }
        .map_err(|error| store_error(&error))?;
        finished.await?;
        let keys = request.result().map_err(|error| store_error(&error))?;
        let mut keys: Vec<Key> = keys
            .unchecked_into::<Array>()
            .iter()
            .filter_map(|key| key.as_string())
            .filter(|key| key.starts_with(prefix))
            .map(Key::new)
            .collect();
        // IndexedDB sorts by UTF-16 code units, which is another order beyond U+FFFF.
        keys.sort();
        Ok(keys)
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let (values, finished) = self.begin("readwrite")?;
        if let Err(error) = stage(&values, &batch).await {
            // A transaction that has ended by itself says so here; nothing is written either way.
            // Its end is awaited so that the caller's next transaction sees the state before it.
            let _ = values.transaction().abort();
            let _ = finished.await;
            return Err(error);
        }
        finished.await
    }
}

/// Checks what the batch expects, then queues every change. None is awaited: the transaction
/// reports for all of them.
async fn stage(values: &IdbObjectStore, batch: &Batch) -> Result<(), StoreError> {
    let keys = batch.expect.iter().map(|(key, _)| key);
    let requests = get_all(values, keys)?;
    // Requests of a transaction are answered in order.
    if let Some(last) = requests.last() {
        succeeded(last).await?;
    }
    for ((_, expectation), request) in batch.expect.iter().zip(&requests) {
        if !expectation.is_met_by(value(request)?.as_deref()) {
            return Err(StoreError::Conflict);
        }
    }
    for key in &batch.delete {
        values
            .delete(&key.as_str().into())
            .map_err(|error| store_error(&error))?;
    }
    for (key, bytes) in &batch.put {
        // A copy: cloning a view would clone the whole memory beneath it.
        let bytes = Uint8Array::from(&bytes[..]);
        values
            .put_with_key(&bytes, &key.as_str().into())
            .map_err(|error| store_error(&error))?;
    }
    Ok(())
}

fn get_all<'a>(
    values: &IdbObjectStore,
    keys: impl Iterator<Item = &'a Key>,
) -> Result<Vec<IdbRequest>, StoreError> {
    keys.map(|key| values.get(&key.as_str().into()))
        .collect::<Result<_, _>>()
        .map_err(|error| store_error(&error))
}

/// The answer of a finished `get`.
fn value(request: &IdbRequest) -> Result<Option<Bytes>, StoreError> {
    let value = request.result().map_err(|error| store_error(&error))?;
    if value.is_undefined() {
        return Ok(None);
    }
    let bytes: Uint8Array = value.dyn_into().map_err(|_| StoreError::Damaged {
        reason: "a stored value is not bytes".to_owned(),
    })?;
    Ok(Some(bytes.to_vec().into()))
}

/// A range that holds every key that begins with `prefix`, and few others; none for all keys.
fn keys_from(prefix: &str) -> Result<Option<IdbKeyRange>, StoreError> {
    let Some(last) = prefix.chars().next_back() else {
        return Ok(None);
    };
    let before = &prefix[..prefix.len() - last.len_utf8()];
    // Up to here code points and UTF-16 code units have one order.
    let next = char::from_u32(u32::from(last) + 1).filter(|next| *next <= '\u{d7ff}');
    let range = match next {
        Some(next) => {
            let end = format!("{before}{next}");
            IdbKeyRange::bound_with_lower_open_and_upper_open(
                &prefix.into(),
                &end.into(),
                false,
                true,
            )
        }
        None => IdbKeyRange::lower_bound(&prefix.into()),
    };
    range.map(Some).map_err(|error| store_error(&error))
}

#[wasm_bindgen]
extern "C" {
    /// `IDBDatabase.transaction` with its options, which web-sys offers only behind a compiler flag
    /// that every user of this crate would have to set, and the `idb` crate not at all. Chromium's
    /// default durability is relaxed: a power cut may undo what was reported complete.
    #[wasm_bindgen(js_name = IDBDatabase)]
    type DatabaseWithOptions;
    #[wasm_bindgen(method, catch, js_name = transaction)]
    fn transaction(
        this: &DatabaseWithOptions,
        object_store: &str,
        mode: &str,
        options: &JsValue,
    ) -> Result<IdbTransaction, JsValue>;
}

impl Connection {
    fn new(database: IdbDatabase) -> Self {
        let state = Rc::new(Cell::new(State::Open));
        let on_version_change = Closure::new({
            let (database, state) = (database.clone(), Rc::clone(&state));
            move || {
                state.set(State::Yielded);
                database.close();
            }
        });
        database.set_onversionchange(Some(on_version_change.as_ref().unchecked_ref()));
        let on_close = Closure::new({
            let state = Rc::clone(&state);
            move || state.set(State::ClosedByBrowser)
        });
        database.set_onclose(Some(on_close.as_ref().unchecked_ref()));
        Self {
            database,
            state,
            _on_version_change: on_version_change,
            _on_close: on_close,
        }
    }

    /// Says why the connection is closed, where that is what is behind `error`.
    fn explain(&self, error: StoreError) -> StoreError {
        match self.state.get() {
            State::Open => error,
            State::Yielded => unavailable(
                "another tab upgraded or deleted the database; reload this page to open it again",
            ),
            State::ClosedByBrowser => unavailable(
                "the browser closed the database, for example because the site's data was \
                 cleared; reload this page to open it again",
            ),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The listeners are about to go.
        self.database.set_onversionchange(None);
        self.database.set_onclose(None);
        self.database.close();
    }
}

/// Creates the one object store of a new database.
fn create_object_store(request: &IdbOpenDbRequest) -> Result<(), JsValue> {
    let database: IdbDatabase = request.result()?.unchecked_into();
    if !database.object_store_names().contains(OBJECT_STORE) {
        database.create_object_store(OBJECT_STORE)?;
    }
    Ok(())
}

/// The request that was given up may still succeed, and would then hold the database open unseen.
fn close_when_opened(request: &IdbOpenDbRequest) {
    let close = Closure::once_into_js({
        let request = request.clone();
        move || {
            if let Ok(database) = request.result() {
                database.unchecked_into::<IdbDatabase>().close();
            }
        }
    });
    request.set_onsuccess(Some(close.unchecked_ref()));
}

/// `indexedDB` of whatever global scope this is.
fn factory() -> Result<IdbFactory, StoreError> {
    // A getter that throws is how some browsers refuse it to a page.
    Reflect::get(&js_sys::global(), &"indexedDB".into())
        .ok()
        .and_then(|factory| factory.dyn_into().ok())
        .ok_or_else(|| {
            unavailable(
                "this browser offers no IndexedDB here; allow the site to store data, or leave \
                 the private window",
            )
        })
}

/// Asks the browser to keep this origin's data until the user deletes it, and says whether it was
/// granted. Without it a browser that runs short of space may evict everything. Workers cannot ask.
pub async fn persist() -> bool {
    let ask = || {
        let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).ok()?;
        let storage = Reflect::get(&navigator, &"storage".into()).ok()?;
        storage.dyn_into::<StorageManager>().ok()?.persist().ok()
    };
    match ask() {
        Some(answer) => JsFuture::from(answer)
            .await
            .is_ok_and(|granted| granted.is_truthy()),
        None => false,
    }
}
