//! The IndexedDB store in a Web Worker.
#![cfg(target_arch = "wasm32")]

use evidence_store::{ArtifactStore, IndexedDbStore, persist};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

#[wasm_bindgen_test]
async fn an_artifact_comes_back() {
    let store = IndexedDbStore::open("dedicated-worker").await.unwrap();
    let artifacts = ArtifactStore::new(store, "test".parse().unwrap());
    let id = artifacts.put("text").await.unwrap().artifact_id;
    assert_eq!(&artifacts.read(id).await.unwrap().1[..], b"text");
    assert!(!persist().await, "a worker cannot ask");
}
