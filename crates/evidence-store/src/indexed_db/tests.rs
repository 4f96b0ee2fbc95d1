//! Run in Chromium by `wasm-pack test`. Filling the real quota needs the browser's debugging
//! protocol, which a page does not have: `tests/browser` does that; here the nth put fails.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use evidence_core::chunk::CHUNK_BYTES;
use evidence_core::range::{NAMESPACE, RangePath, RangeRefusal};
use futures_util::future::join;
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

use super::*;
use crate::{ArtifactError, ArtifactStore, Expectation};

wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen(inline_js = r#"
let undo = [];
const patch = (object, name, replace) => {
  const descriptor = Object.getOwnPropertyDescriptor(object, name);
  Object.defineProperty(object, name, { configurable: true, writable: true, value: replace(descriptor.value) });
  undo.push(() => Object.defineProperty(object, name, descriptor));
};
export const restore = () => { undo.forEach((step) => step()); undo = []; };

// The nth put from now on does what `fault` says instead.
export const failPut = (n, fault) => patch(IDBObjectStore.prototype, "put", (put) => function (...args) {
  if (--n > 0) return put.apply(this, args);
  if (fault !== "abort") throw new DOMException("injected", fault);
  const request = put.apply(this, args);
  this.transaction.abort();
  return request;
});
export const failOpen = (name) => patch(IDBFactory.prototype, "open", () => () => {
  throw new DOMException("injected", name);
});
export const hideIndexedDb = () => {
  const descriptor = Object.getOwnPropertyDescriptor(globalThis, "indexedDB");
  Object.defineProperty(globalThis, "indexedDB", {
    configurable: true,
    get() { throw new DOMException("injected", "SecurityError"); },
  });
  undo.push(() => descriptor
    ? Object.defineProperty(globalThis, "indexedDB", descriptor)
    : delete globalThis.indexedDB);
};
export const watchDurability = () => {
  const seen = [];
  patch(IDBObjectStore.prototype, "put", (put) => function (...args) {
    seen.push(this.transaction.durability);
    return put.apply(this, args);
  });
  return seen;
};

// What other tabs do. A connection that ignores versionchange is what an older page would hold.
const settled = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});
export const openOther = (name, version) => {
  const request = indexedDB.open(name, version);
  request.onupgradeneeded = () => {
    if (!request.result.objectStoreNames.length) request.result.createObjectStore("values");
  };
  return settled(request);
};
export const deleteOther = (name) => settled(indexedDB.deleteDatabase(name));
export const alter = async (database, keyPart, change) => {
  const values = database.transaction("values", "readwrite").objectStore("values");
  const keys = await settled(values.getAllKeys());
  const key = keys.find((key) => key.includes(keyPart));
  if (change === "remove") return settled(values.delete(key));
  let value = await settled(values.get(key));
  if (change === "flip") value[0] ^= 1;
  if (change === "truncate") value = value.slice(0, -1);
  if (change === "retype") value = "text";
  await settled(values.put(value, key));
};
"#)]
extern "C" {
    fn restore();
    #[wasm_bindgen(js_name = failPut)]
    fn fail_put(n: u32, fault: &str);
    #[wasm_bindgen(js_name = failOpen)]
    fn fail_open(name: &str);
    #[wasm_bindgen(js_name = hideIndexedDb)]
    fn hide_indexed_db();
    #[wasm_bindgen(js_name = watchDurability)]
    fn watch_durability() -> Array;
    #[wasm_bindgen(js_name = openOther, catch)]
    async fn open_other(name: &str, version: u32) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(js_name = deleteOther, catch)]
    async fn delete_other(name: &str) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch)]
    async fn alter(database: &JsValue, key_part: &str, change: &str) -> Result<JsValue, JsValue>;
}

/// An empty database of the test's own.
async fn fresh(name: &str) -> IndexedDbStore {
    delete_other(name).await.unwrap();
    IndexedDbStore::open(name).await.unwrap()
}

fn artifacts(store: &IndexedDbStore) -> ArtifactStore<IndexedDbStore> {
    ArtifactStore::new(store.clone(), "test".parse().unwrap())
}

fn key(text: &str) -> Key {
    Key::new(text)
}

fn put(pairs: &[(&str, &'static str)]) -> Batch {
    Batch {
        put: pairs
            .iter()
            .map(|(name, value)| (key(name), Bytes::from_static(value.as_bytes())))
            .collect(),
        ..Batch::default()
    }
}

fn reason(error: StoreError) -> String {
    match error {
        StoreError::Unavailable { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// Text of several chunks whose last one is cut inside an é.
fn long_text() -> String {
    format!("{}{}", "x".repeat(3 * CHUNK_BYTES - 1), "é".repeat(40_000))
}

#[wasm_bindgen_test]
async fn an_artifact_comes_back_after_reopening() {
    let store = fresh("reopen").await;
    let text = long_text();
    let descriptor = artifacts(&store).put(&text).await.unwrap();
    drop(store);

    let store = IndexedDbStore::open("reopen").await.unwrap();
    let artifacts = artifacts(&store);
    let (again, bytes) = artifacts.read(descriptor.artifact_id).await.unwrap();
    assert_eq!((again, &bytes[..]), (descriptor, text.as_bytes()));
    assert_eq!(artifacts.put(&text).await, Ok(descriptor));
    artifacts.delete(descriptor.artifact_id).await.unwrap();
    assert_eq!(store.list("").await, Ok(vec![]));
}

#[wasm_bindgen_test]
async fn a_batch_deletes_then_puts_and_asks_for_strict_durability() {
    let store = fresh("batch").await;
    let durability = watch_durability();
    let first = store.commit(put(&[("a", "1"), ("b", "")])).await;
    restore();
    first.unwrap();
    assert_eq!(
        durability.to_vec(),
        [JsValue::from("strict"), "strict".into()]
    );

    let mut batch = put(&[("a", "2")]);
    batch.delete = vec![key("a"), key("b"), key("none")];
    store.commit(batch).await.unwrap();
    let values = store.get(&[key("b"), key("a")]).await.unwrap();
    assert_eq!(values, [None, Some(Bytes::from_static(b"2"))]);
    assert_eq!(store.get(&[]).await, Ok(vec![]));
    assert_eq!(store.commit(Batch::default()).await, Ok(()));
}

#[wasm_bindgen_test]
async fn a_conflict_changes_nothing() {
    let store = fresh("conflict").await;
    store.commit(put(&[("a", "1")])).await.unwrap();
    for expectation in [Expectation::Absent, Expectation::Value("2".into())] {
        let mut batch = put(&[("b", "1")]);
        batch.delete = vec![key("a")];
        batch.expect = vec![(key("c"), Expectation::Absent), (key("a"), expectation)];
        assert_eq!(store.commit(batch).await, Err(StoreError::Conflict));
        assert_eq!(store.list("").await, Ok(vec![key("a")]));
    }
    let mut batch = put(&[("a", "2")]);
    batch.expect = vec![(key("a"), Expectation::Value("1".into()))];
    assert_eq!(store.commit(batch).await, Ok(()));
}

#[wasm_bindgen_test]
async fn keys_are_listed_by_prefix_in_the_order_of_their_bytes() {
    let store = fresh("list").await;
    let names = [
        "a",
        "a/",
        "a/1",
        "a/é",
        "a0",
        "b",
        "\u{e000}x",
        "\u{ffff}",
        "\u{ffff}\u{ffff}",
        "🙂",
    ];
    store
        .commit(put(&names.map(|name| (name, ""))))
        .await
        .unwrap();
    for prefix in [
        "", "a", "a/", "a/\u{e9}", "b", "c", "\u{d7ff}", "\u{e000}", "\u{ffff}", "🙂",
    ] {
        let expected: Vec<Key> = names
            .iter()
            .filter(|name| name.starts_with(prefix))
            .map(|name| key(name))
            .collect();
        assert_eq!(store.list(prefix).await, Ok(expected), "{prefix:?}");
    }
}

#[wasm_bindgen_test]
async fn of_two_connections_that_want_the_same_key_one_wins() {
    let one = fresh("two").await;
    let two = IndexedDbStore::open("two").await.unwrap();
    let batch = |value| {
        let mut batch = put(&[("a", value)]);
        batch.expect = vec![(key("a"), Expectation::Absent)];
        batch
    };
    let both = join(one.commit(batch("1")), two.commit(batch("2"))).await;
    assert_eq!(both, (Ok(()), Err(StoreError::Conflict)));
    let expected = Ok(vec![Some(Bytes::from_static(b"1"))]);
    assert_eq!(two.get(&[key("a")]).await, expected);
}

#[wasm_bindgen_test]
async fn a_store_yields_to_a_tab_that_upgrades() {
    let store = fresh("upgrade").await;
    artifacts(&store).put("kept").await.unwrap();
    open_other("upgrade", 2).await.unwrap();
    for error in [
        store.get(&[key("a")]).await.unwrap_err(),
        store.list("").await.unwrap_err(),
        store.commit(put(&[("a", "1")])).await.unwrap_err(),
    ] {
        let reason = reason(error);
        assert!(
            reason.contains("another tab") && reason.contains("reload this page"),
            "{reason}"
        );
    }
    let newer = IndexedDbStore::open("upgrade").await.unwrap_err();
    assert!(reason(newer).contains("newer form"));
}

#[wasm_bindgen_test]
async fn a_store_yields_to_a_tab_that_deletes_and_can_be_opened_anew() {
    let store = fresh("delete").await;
    store.commit(put(&[("a", "1")])).await.unwrap();
    delete_other("delete").await.unwrap();
    assert!(reason(store.list("").await.unwrap_err()).contains("another tab"));
    let store = IndexedDbStore::open("delete").await.unwrap();
    assert_eq!(store.list("").await, Ok(vec![]));
}

#[wasm_bindgen_test]
async fn opening_behind_an_older_tab_is_refused_and_holds_nothing() {
    delete_other("blocked").await.unwrap();
    let older: IdbDatabase = open_other("blocked", 1).await.unwrap().unchecked_into();
    let error = IndexedDbStore::open_form("blocked", 2).await.unwrap_err();
    assert!(reason(error).contains("close the other tabs"));
    older.close();
    // Deleting would wait for the connection that was given up, if it had stayed open.
    delete_other("blocked").await.unwrap();
}

#[wasm_bindgen_test]
async fn a_hit_across_a_chunk_boundary_is_found() {
    let artifacts = artifacts(&fresh("find").await);
    // More chunks than are fetched at a time.
    let text = "x".repeat(40 * CHUNK_BYTES - 3) + "needle\n";
    let id = artifacts.put(&text).await.unwrap().artifact_id;
    let find = format!("{NAMESPACE}{id}/find/needle");
    let answer = artifacts.select(&find, 512).await.unwrap();
    let start = 40 * CHUNK_BYTES - 3;
    let hits = format!(
        "\"hit_count\":1,\"hits\":[{{\"line\":1,\"range\":[{start},{}]}}]",
        start + 6
    );
    assert!(answer.contains(&hits), "{answer}");
}

#[wasm_bindgen_test]
async fn altered_bytes_are_refused_without_showing_any() {
    for (part, change, refusal) in [
        ("/chunk/", "flip", RangeRefusal::DigestMismatch),
        ("/chunk/", "truncate", RangeRefusal::DigestMismatch),
        ("/chunk/", "remove", RangeRefusal::Unreadable),
        ("/chunk/", "retype", RangeRefusal::Unreadable),
        ("/manifest", "flip", RangeRefusal::DigestMismatch),
        ("/manifest", "remove", RangeRefusal::UnknownArtifact),
    ] {
        let store = fresh("altered").await;
        let artifacts = artifacts(&store);
        let text = long_text();
        let id = artifacts.put(&text).await.unwrap().artifact_id;
        let other: IdbDatabase = open_other("altered", 1).await.unwrap().unchecked_into();
        alter(&other, part, change).await.unwrap();
        other.close();

        // The last chunk was not altered (chunks of x are one and the same, and the first found).
        let path = RangePath::render(id, text.len() - 10, text.len());
        assert_eq!(
            artifacts.read_range(&path, 512).await,
            Err(refusal),
            "{part} {change}"
        );
        let find = format!("{NAMESPACE}{id}/find/x");
        assert_eq!(
            artifacts.select(&find, 512).await,
            Err(refusal.into()),
            "{part} {change}"
        );
        assert!(artifacts.read(id).await.is_err(), "{part} {change}");
        if refusal != RangeRefusal::UnknownArtifact {
            let again = artifacts.put(&text).await;
            assert!(again.is_err(), "{part} {change}: not overwritten");
        }
    }
}

#[wasm_bindgen_test]
async fn a_put_that_fails_midway_stores_nothing() {
    let store = fresh("fault").await;
    let artifacts = artifacts(&store);
    let earlier = artifacts.put("earlier").await.unwrap();
    let before = store.list("").await.unwrap();
    for fault in ["QuotaExceededError", "UnknownError", "abort"] {
        fail_put(3, fault);
        let failed = artifacts.put(&long_text()).await;
        restore();
        match failed {
            Err(ArtifactError::Store(StoreError::Exhausted)) => {
                assert_eq!(fault, "QuotaExceededError");
            }
            Err(ArtifactError::Store(StoreError::Unavailable { .. })) => {
                assert_ne!(fault, "QuotaExceededError");
            }
            other => panic!("{fault}: {other:?}"),
        }
        assert_eq!(store.list("").await.as_ref(), Ok(&before), "{fault}");
        assert!(artifacts.read(earlier.artifact_id).await.is_ok());
    }
    artifacts.put(&long_text()).await.unwrap();
}

#[wasm_bindgen_test]
async fn a_commit_that_nobody_waits_for_stores_all_or_nothing() {
    let store = fresh("dropped").await;
    {
        let mut batch = put(&[("a", "1"), ("b", "2")]);
        batch.expect = vec![(key("a"), Expectation::Absent)];
        let commit = pin!(store.commit(batch));
        assert!(
            commit
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    assert_eq!(store.list("").await, Ok(vec![]));
    {
        let commit = pin!(store.commit(put(&[("a", "1"), ("b", "2")])));
        assert!(
            commit
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    assert_eq!(store.list("").await, Ok(vec![key("a"), key("b")]));
}

#[wasm_bindgen_test]
async fn a_browser_without_indexed_db_gets_a_sentence() {
    hide_indexed_db();
    let hidden = IndexedDbStore::open("hidden").await;
    restore();
    assert!(reason(hidden.unwrap_err()).contains("private window"));
    fail_open("SecurityError");
    let blocked = IndexedDbStore::open("hidden").await;
    restore();
    assert!(reason(blocked.unwrap_err()).contains("settings"));
    // Whether the browser grants it is its own affair.
    persist().await;
}
