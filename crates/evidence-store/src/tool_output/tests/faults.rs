//! What is stored is changed beneath the store, and the store fails at every call.

use super::stores::FailingStore;
use super::*;

/// A job with one artifact of three chunks, and its neighbour `n` with another.
fn stored() -> (ToolOutputs<MemoryStore>, ToolResult, ChunkManifest) {
    let outputs = with_job(MemoryStore::new());
    let result = result_of(150_000, 0);
    record(&outputs, &result).unwrap();
    let (s, n) = (session("s"), job("n"));
    block_on(outputs.create_job(&s, &n, 1)).unwrap();
    block_on(outputs.record(&s, &n, None, result_of(150_000, 1), None)).unwrap();
    let manifest = ChunkManifest::of(result.serialize().as_bytes());
    (outputs, result, manifest)
}

fn chunk_key(job: &str, sha256: Sha256Digest) -> String {
    format!("tool-output/s/{job}/chunk/{sha256}")
}

fn read(
    outputs: &ToolOutputs<impl Store>,
    sha256: Sha256Digest,
    offset: usize,
) -> Result<(), ToolOutputError> {
    let request = ReadRequest::new(offset as u64, 8192).unwrap();
    block_on(outputs.read(&session("s"), &job("j"), sha256, request)).map(drop)
}

#[test]
fn a_chunk_missing_flipped_or_swapped_is_an_integrity_failure_and_other_chunks_stay_readable() {
    let (outputs, result, manifest) = stored();
    let store = outputs.store();
    let second = chunk_key("j", manifest.chunks[1]);
    let good = value(store, &second).unwrap();
    let other = ChunkManifest::of(result_of(150_000, 1).serialize().as_bytes());
    let mut flipped = good.to_vec();
    flipped[100] ^= 1;
    let damages = [
        None,
        Some(Bytes::from(flipped)),
        Some(good.slice(..good.len() - 1)),
        Some(Bytes::new()),
        value(store, &chunk_key("n", other.chunks[1])),
        value(store, &chunk_key("j", manifest.chunks[0])),
    ];
    for damage in damages {
        let batch = match damage {
            None => Batch {
                delete: vec![Key::new(&second)],
                ..Batch::default()
            },
            Some(bytes) => Batch {
                put: vec![(Key::new(&second), bytes)],
                ..Batch::default()
            },
        };
        let missing = batch.put.is_empty();
        block_on(store.commit(batch)).unwrap();
        let integrity = Err(ToolOutputError::Integrity);
        assert_eq!(read(&outputs, manifest.sha256, CHUNK_BYTES), integrity);
        assert_eq!(read(&outputs, manifest.sha256, CHUNK_BYTES - 5), integrity);
        assert_eq!(read(&outputs, manifest.sha256, 0), Ok(()));
        assert_eq!(read(&outputs, manifest.sha256, 2 * CHUNK_BYTES), Ok(()));
        let whole = read_whole(&outputs, "j", manifest.sha256);
        assert_eq!(whole.map(drop), integrity);
        // Storing the same result again puts back what is missing and overwrites nothing.
        let again = record(&outputs, &result).map(drop);
        assert_eq!(again, if missing { Ok(()) } else { integrity });
        if missing {
            assert_eq!(read(&outputs, manifest.sha256, CHUNK_BYTES), Ok(()));
        }
        put(store, &second, good.clone());
    }
    assert_consistent(store, "s", "j");
}

#[test]
fn a_manifest_that_lies_is_an_integrity_failure() {
    let (outputs, result, manifest) = stored();
    let store = outputs.store();
    let key = format!("tool-output/s/j/artifact/{}", manifest.sha256);
    let good = value(store, &key).unwrap();
    let other = ChunkManifest::of(result_of(150_000, 1).serialize().as_bytes());
    let encode = blob::encode_manifest;
    let with = |change: &dyn Fn(&mut ChunkManifest)| {
        let mut manifest = manifest.clone();
        change(&mut manifest);
        encode(&manifest)
    };
    let mut flipped = good.to_vec();
    let last_digit = flipped.len() - 4;
    flipped[last_digit] ^= 1;
    let lies = [
        Bytes::from(flipped),
        good.slice(1..),
        good.slice(..good.len() - 1),
        Bytes::new(),
        Bytes::from_static(b"{}"),
        // Another artifact's, whole.
        encode(&other),
        // Another artifact's chunks under this one's name.
        with(&|manifest| manifest.chunks.clone_from(&other.chunks)),
        with(&|manifest| manifest.byte_count += CHUNK_BYTES as u64),
        with(&|manifest| manifest.byte_count -= 1),
        with(&|manifest| manifest.byte_count = u64::MAX),
        with(&|manifest| {
            manifest.chunks.pop();
        }),
        with(&|manifest| manifest.chunks.clear()),
    ];
    for lie in lies {
        put(store, &key, lie);
        let integrity = Err(ToolOutputError::Integrity);
        let end = usize::try_from(manifest.byte_count).unwrap();
        assert_eq!(read(&outputs, manifest.sha256, end - 10), integrity);
        assert_eq!(record(&outputs, &result).map(drop), integrity);
    }
    put(store, &key, good);
    assert_eq!(read(&outputs, manifest.sha256, 0), Ok(()));
}

#[test]
fn a_manifest_forged_with_its_digest_is_found_by_reading_the_whole() {
    let (outputs, _, manifest) = stored();
    let key = format!("tool-output/s/j/artifact/{}", manifest.sha256);
    let mut forged = manifest.clone();
    forged.chunks.swap(0, 1);
    put(outputs.store(), &key, blob::encode_manifest(&forged));
    let whole = read_whole(&outputs, "j", manifest.sha256);
    assert_eq!(whole, Err(ToolOutputError::Integrity));
}

#[test]
fn records_that_are_not_what_was_written_are_integrity_failures() {
    for name in ["job", "usage", "call"] {
        let (outputs, ..) = stored();
        let (s, j, c) = (session("s"), job("j"), call("c"));
        let result = result_of(20_000, 5);
        block_on(outputs.record(&s, &j, Some(&c), result.clone(), None)).unwrap();
        let store = outputs.store();
        let key = keys(store, &format!("tool-output/s/j/{name}")).remove(0);
        let mut bytes = value(store, &key).unwrap().to_vec();
        let last = bytes.len() - 3;
        bytes[last] ^= 2;
        put(store, &key, bytes);
        let call = (name == "call").then_some(&c);
        let result = if name == "call" {
            result
        } else {
            result_of(20_000, 6)
        };
        let outcome = block_on(outputs.record(&s, &j, call, result, None));
        assert_eq!(outcome, Err(ToolOutputError::Integrity), "{name}");
    }
}

/// Every operation, with the store failing at every call: an error, nothing changed, and the next
/// attempt does what the first should have done.
#[test]
fn a_store_that_fails_at_any_call_leaves_everything_as_it_was() {
    type Operation = fn(&ToolOutputs<FailingStore<'_, MemoryStore>>) -> Result<(), ToolOutputError>;
    let operations: [(&str, Operation); 7] = [
        ("create", |outputs| {
            block_on(outputs.create_job(&session("s"), &job("new"), 1)).map(drop)
        }),
        ("status", |outputs| {
            let (s, j) = (session("s"), job("j"));
            block_on(outputs.set_status(&s, &j, JobStatus::Completed, 1)).map(drop)
        }),
        ("record", |outputs| {
            record(outputs, &result_of(150_000, 2)).map(drop)
        }),
        ("record a call", |outputs| {
            let (s, j, c) = (session("s"), job("j"), call("c"));
            let result = result_of(150_000, 3);
            block_on(outputs.record(&s, &j, Some(&c), result, None)).map(drop)
        }),
        ("read", |outputs| {
            read_all(outputs, "j", sha256_of(&result_of(150_000, 0)), 8192).map(drop)
        }),
        ("list", |outputs| {
            block_on(outputs.artifacts(&session("s"), &job("j"))).map(drop)
        }),
        ("delete", |outputs| {
            block_on(outputs.delete_job(&session("s"), &job("j")))
        }),
    ];
    let unavailable = StoreError::Unavailable {
        reason: "unplugged".to_owned(),
    };
    for (name, operation) in operations {
        for error in [unavailable.clone(), StoreError::Exhausted] {
            let (outputs, ..) = stored();
            let store = outputs.store();
            let before: Vec<_> = keys(store, "")
                .into_iter()
                .map(|key| (value(store, &key), key))
                .collect();
            let mut fail_at = 0;
            loop {
                let failing = ToolOutputs::new(FailingStore::new(store, fail_at, error.clone()));
                let outcome = operation(&failing);
                if !failing.store().has_failed() {
                    assert_eq!(outcome, Ok(()), "{name}");
                    break;
                }
                assert_eq!(
                    outcome,
                    Err(error.clone().into()),
                    "{name} at call {fail_at}"
                );
                for (value_before, key) in &before {
                    assert_eq!(&value(store, key), value_before, "{name}: {key}");
                }
                assert_eq!(keys(store, "").len(), before.len());
                fail_at += 1;
            }
            assert!(fail_at >= 2, "{name}");
            assert_consistent(store, "s", "j");
            assert_consistent(store, "s", "n");
        }
    }
}

/// A conflict at any commit is not an error: the change is tried again on what is there now.
#[test]
fn a_conflict_is_tried_again() {
    let (outputs, ..) = stored();
    for fail_at in 0..4 {
        let failing = FailingStore::new(outputs.store(), fail_at, StoreError::Conflict);
        let contended = ToolOutputs::new(failing);
        record(&contended, &result_of(90_000, fail_at + 10)).unwrap();
        assert_consistent(outputs.store(), "s", "j");
    }
}

/// What happens just before another's commit.
type Interference<'a> = dyn Fn(&ToolOutputs<&MemoryStore>) + Send + Sync + 'a;

struct Interfering<'a> {
    store: &'a MemoryStore,
    interfere: Box<Interference<'a>>,
}

impl Store for &MemoryStore {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        MemoryStore::get(self, keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        MemoryStore::list(self, prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        MemoryStore::commit(self, batch).await
    }
}

impl Store for Interfering<'_> {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.store.get(keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.store.list(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        // An executor does not run within another.
        let interfere = || (self.interfere)(&ToolOutputs::new(self.store));
        std::thread::scope(|threads| threads.spawn(interfere).join().unwrap());
        self.store.commit(batch).await
    }
}

#[test]
fn what_happens_between_reading_and_committing_is_never_overlooked() {
    let (s, j) = (session("s"), job("j"));
    let attempt = |interfere: &Interference<'_>| {
        let (outputs, ..) = stored();
        let interfering = ToolOutputs::new(Interfering {
            store: outputs.store(),
            interfere: Box::new(interfere),
        });
        // It shares two chunks with what is stored.
        let mut result = result_of(150_000, 0);
        result.text.push('x');
        let outcome = record(&interfering, &result).map(drop);
        assert_consistent(outputs.store(), "s", "j");
        outcome
    };
    let ended = attempt(&|outputs| {
        block_on(outputs.set_status(&s, &j, JobStatus::Cancelled, 1)).unwrap();
    });
    assert_eq!(ended, Err(ToolOutputError::JobEnded));
    let deleted = attempt(&|outputs| block_on(outputs.delete_job(&s, &j)).unwrap());
    assert_eq!(deleted, Err(ToolOutputError::Unavailable));
    // Deleted, created again and filled to the same counters: the chunk that was to be shared is not
    // there any more.
    let once = std::sync::Once::new();
    let recreated = attempt(&|outputs| {
        once.call_once(|| {
            block_on(outputs.delete_job(&s, &j)).unwrap();
            block_on(outputs.create_job(&s, &j, 2)).unwrap();
            record(outputs, &result_of(150_000, 7)).unwrap();
        });
    });
    assert_eq!(recreated, Ok(()));
}

#[test]
fn a_deletion_takes_what_was_added_while_it_looked() {
    let (outputs, ..) = stored();
    let (s, j) = (session("s"), job("j"));
    let once = std::sync::Once::new();
    let interfering = ToolOutputs::new(Interfering {
        store: outputs.store(),
        interfere: Box::new(|outputs| {
            once.call_once(|| {
                let call = call("late");
                block_on(outputs.record(&s, &j, Some(&call), result_of(99, 0), None)).unwrap();
            });
        }),
    });
    block_on(interfering.delete_job(&s, &j)).unwrap();
    assert_eq!(
        keys(outputs.store(), "tool-output/s/j/"),
        Vec::<String>::new()
    );
}
