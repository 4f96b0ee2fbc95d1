//! A host of the component, with its blobs in a map.
//!
//! ```console
//! $ cargo xtask component
//! $ cargo run -p evidence-component --example host
//! ```

use std::collections::BTreeMap;

use wasmtime::component::{Component, HasSelf, Linker, bindgen};
use wasmtime::error::Context as _;
use wasmtime::{Engine, Store};

use self::bindings::Evidence;
use self::bindings::bounded_evidence::evidence::blobs::{Batch, Error, Host};

#[allow(missing_docs, reason = "generated")]
mod bindings {
    super::bindgen!({ path: "wit", world: "evidence" });
}

#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Host for Blobs {
    fn get(&mut self, keys: Vec<String>) -> Result<Vec<Option<Vec<u8>>>, Error> {
        Ok(keys.iter().map(|key| self.0.get(key).cloned()).collect())
    }

    fn list(&mut self, prefix: String) -> Result<Vec<String>, Error> {
        let keys = self.0.keys().filter(|key| key.starts_with(&prefix));
        Ok(keys.cloned().collect())
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Error> {
        let mut expected = batch.expect.iter();
        if expected.any(|expected| self.0.get(&expected.key) != expected.value.as_ref()) {
            return Err(Error::Conflict);
        }
        for key in &batch.delete {
            self.0.remove(key);
        }
        let put = batch.put.into_iter();
        self.0.extend(put.map(|entry| (entry.key, entry.value)));
        Ok(())
    }
}

/// Bounds a log, and reads the line of it that matters.
///
/// # Errors
///
/// When the component is not built, and what it answers.
pub fn main() -> wasmtime::Result<()> {
    let engine = Engine::default();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/component/bounded_evidence.wasm"
    );
    let component = Component::from_file(&engine, file)?;
    let mut linker = Linker::new(&engine);
    Evidence::add_to_linker::<_, HasSelf<_>>(&mut linker, |blobs: &mut Blobs| blobs)?;
    let mut store = Store::new(&engine, Blobs::default());
    let evidence = Evidence::instantiate(&mut store, &component, &linker)?;
    let artifacts = evidence.bounded_evidence_evidence_artifacts();

    // What the model sees of a tool's result.
    let log = "   Compiling a crate\n".repeat(5000) + "error[E0282]: type annotations needed\n";
    let bounded = artifacts.call_bound(&mut store, "my-session", &log, None)??;
    let observation = bounded.context("a small result is shown as it is")?;
    println!("{}", observation.text);

    // What it asks for next, and is answered.
    let id = observation.artifact.artifact_id;
    let path = format!(".tool-artifacts/{id}/bytes/105000-105038");
    assert!(artifacts.call_is_artifact_path(&mut store, &path)?);
    let answer = artifacts.call_read_range(&mut store, "my-session", &path, None)??;
    println!("{}", answer.text);
    Ok(())
}
