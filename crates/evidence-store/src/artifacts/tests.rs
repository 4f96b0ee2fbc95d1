//! Lines and searches over stored artifacts.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evidence_core::chunk::CHUNK_BYTES;
use futures_executor::block_on;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{DirectoryStore, MemoryStore};

const MAX_RANGE_BYTES: usize = 512;

fn artifacts<S: Store>(store: S) -> ArtifactStore<S> {
    ArtifactStore::new(store, "test".parse().unwrap())
}

fn select<S: Store>(
    artifacts: &ArtifactStore<S>,
    id: ArtifactId,
    request: &str,
) -> Result<Value, SelectionRefusal> {
    let path = format!(".tool-artifacts/{id}/{request}");
    let answer = block_on(artifacts.select(&path, MAX_RANGE_BYTES))?;
    Ok(serde_json::from_str(answer.split_once('\n').unwrap().1).unwrap())
}

/// Numbered lines, as many as fill `chunks` chunks and a part of one more.
fn log(chunks: usize) -> String {
    let mut log = String::new();
    let mut line = 1;
    while log.len() <= chunks * CHUNK_BYTES {
        writeln!(log, "{line:08} warning: unused variable").unwrap();
        line += 1;
    }
    log
}

/// The bytes `[start, end)` of the artifact by contract A's range path.
fn bytes<S: Store>(artifacts: &ArtifactStore<S>, id: ArtifactId, range: &Value) -> Value {
    let (start, end) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
    select(artifacts, id, &format!("bytes/{start}-{end}")).unwrap()["data"].take()
}

#[test]
fn a_hit_across_a_chunk_boundary_is_found_and_a_range_reads_it() {
    let root = tempfile::tempdir().unwrap();
    let artifacts = artifacts(block_on(DirectoryStore::open(root.path())).unwrap());
    for offset in 1.."needle".len() {
        let mut log = log(3).into_bytes();
        let hits = [1, 2, 3].map(|chunk| chunk * CHUNK_BYTES - offset);
        for at in hits {
            log[at..at + "needle".len()].copy_from_slice(b"needle");
        }
        let log = String::from_utf8(log).unwrap();
        let id = block_on(artifacts.put(&log)).unwrap().artifact_id;
        let answer = select(&artifacts, id, "find/needle").unwrap();
        assert_eq!(answer["hit_count"], 3);
        for (hit, at) in answer["hits"].as_array().unwrap().iter().zip(hits) {
            assert_eq!(hit["range"], json!([at, at + "needle".len()]));
            assert_eq!(hit["line"], 1 + log[..at].matches('\n').count());
            assert_eq!(bytes(&artifacts, id, &hit["range"]), "needle");
        }
    }
}

#[test]
fn a_line_across_a_chunk_boundary_is_whole() {
    let artifacts = artifacts(MemoryStore::new());
    let log = log(3);
    let id = block_on(artifacts.put(&log)).unwrap().artifact_id;
    let lines: Vec<_> = log.split_inclusive('\n').collect();
    let across = CHUNK_BYTES / lines[0].len() + 1;
    let request = format!("lines/{across}-{across}");
    let answer = select(&artifacts, id, &request).unwrap();
    assert_eq!(answer["data"], lines[across - 1]);
    assert_eq!(answer["total_line_count"], lines.len());
    assert!(answer["start"].as_u64().unwrap() < CHUNK_BYTES as u64);
    assert!(answer["end"].as_u64().unwrap() > CHUNK_BYTES as u64);
    assert_eq!(
        bytes(&artifacts, id, &answer["lines_range"]),
        lines[across - 1]
    );
}

#[test]
fn a_text_longer_than_a_chunk_is_found() {
    let artifacts = artifacts(MemoryStore::new());
    let text = "ab".repeat(2 * CHUNK_BYTES);
    let log = format!("x{text}a\nx");
    let id = block_on(artifacts.put(&log)).unwrap().artifact_id;
    let path = format!(".tool-artifacts/{id}/find/{text}");
    let answer = block_on(artifacts.select(&path, text.len())).unwrap();
    let range = format!("\"hits\":[{{\"line\":1,\"range\":[1,{}]}}]", 1 + text.len());
    assert!(answer.contains(&range));
}

#[test]
fn lines_and_searches_of_altered_bytes_are_refused_as_ranges_are() {
    for (chunk, refusal) in [
        (None, RangeRefusal::Unreadable),
        (Some(Bytes::from_static(b"")), RangeRefusal::DigestMismatch),
        (
            Some(Bytes::from(vec![b'x'; CHUNK_BYTES])),
            RangeRefusal::DigestMismatch,
        ),
        (
            Some(Bytes::from(vec![b'\n'; CHUNK_BYTES + 1])),
            RangeRefusal::DigestMismatch,
        ),
    ] {
        let artifacts = artifacts(MemoryStore::new());
        let log = log(2);
        let id = block_on(artifacts.put(&log)).unwrap().artifact_id;
        let manifest = ChunkManifest::of(log.as_bytes());
        let key = artifacts.place(id).chunk_key(manifest.chunks[2]);
        let mut batch = Batch::default();
        match chunk {
            None => batch.delete.push(key),
            Some(bytes) => batch.put.push((key, bytes)),
        }
        block_on(artifacts.store().commit(batch)).unwrap();
        // None of them needs a byte of the chunk that was altered.
        for request in ["bytes/0-8", "lines/1-1", "find/00000001"] {
            let answer = select(&artifacts, id, request);
            assert_eq!(answer, Err(refusal.into()), "{request}");
        }
    }
}

#[test]
fn chunks_that_changed_places_are_refused() {
    let artifacts = artifacts(MemoryStore::new());
    let log = log(2);
    let id = block_on(artifacts.put(&log)).unwrap().artifact_id;
    let manifest = ChunkManifest::of(log.as_bytes());
    let key = |index: usize| artifacts.place(id).chunk_key(manifest.chunks[index]);
    let bytes = log.as_bytes();
    let batch = Batch {
        put: vec![
            (
                key(0),
                Bytes::copy_from_slice(&bytes[CHUNK_BYTES..2 * CHUNK_BYTES]),
            ),
            (key(1), Bytes::copy_from_slice(&bytes[..CHUNK_BYTES])),
        ],
        ..Batch::default()
    };
    block_on(artifacts.store().commit(batch)).unwrap();
    let answer = select(&artifacts, id, "find/00000001");
    assert_eq!(answer, Err(RangeRefusal::DigestMismatch.into()));
}

#[test]
fn an_artifact_of_another_instance_is_unknown_before_anything_else_is_said() {
    let store = Arc::new(MemoryStore::new());
    let id = block_on(artifacts(Arc::clone(&store)).put("text"))
        .unwrap()
        .artifact_id;
    let other = ArtifactStore::new(store, "other".parse().unwrap());
    for request in [
        "lines/1-1",
        "lines/2-1",
        "find/text",
        "find/",
        "find/t?after=99",
    ] {
        let answer = select(&other, id, request);
        assert_eq!(
            answer,
            Err(RangeRefusal::UnknownArtifact.into()),
            "{request}"
        );
    }
}

/// Counts the bytes of the largest answer of a store.
struct Measured {
    inner: MemoryStore,
    largest: AtomicUsize,
}

impl Store for Measured {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let values = self.inner.get(keys).await?;
        let byte_count = values.iter().flatten().map(Bytes::len).sum();
        self.largest.fetch_max(byte_count, Ordering::Relaxed);
        Ok(values)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.inner.list(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.inner.commit(batch).await
    }
}

#[test]
fn an_artifact_is_never_loaded_as_a_whole() {
    let measured = Measured {
        inner: MemoryStore::new(),
        largest: AtomicUsize::new(0),
    };
    let artifacts = artifacts(measured);
    let log = log(100);
    let id = block_on(artifacts.put(&log)).unwrap().artifact_id;
    for request in ["lines/9-9", "find/warning", "find/absent"] {
        select(&artifacts, id, request).unwrap();
        let largest = artifacts.store().largest.load(Ordering::Relaxed);
        assert!(largest <= 1 << 20, "{largest} bytes at once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Against the standard library, over several chunks.
    #[test]
    fn lines_and_hits_are_those_of_the_text(
        word in "[a-c]{1,3}|[é漢]{1,2}",
        words in proptest::collection::vec("[a-c]{0,9}\\n|[é漢🙂]{1,9}|[a-c ]{1,40}", 40..80),
        repeat in 1_usize..90,
        line in 1_usize..2000,
    ) {
        let text = words.concat().repeat(repeat);
        let artifacts = artifacts(MemoryStore::new());
        let id = block_on(artifacts.put(&text)).unwrap().artifact_id;

        let answer = select(&artifacts, id, &format!("find/{word}")).unwrap();
        prop_assert_eq!(&answer["hit_count"], text.matches(&word).count());
        let hits = answer["hits"].as_array().unwrap();
        for (hit, (start, _)) in hits.iter().zip(text.match_indices(&word)) {
            prop_assert_eq!(&hit["range"], &json!([start, start + word.len()]));
            prop_assert_eq!(&hit["line"], 1 + text[..start].matches('\n').count());
        }

        let answer = select(&artifacts, id, &format!("lines/{line}-{line}"));
        match text.split_inclusive('\n').nth(line - 1) {
            Some(expected) => prop_assert_eq!(
                &answer.unwrap()["data"],
                &expected[..expected.floor_char_boundary(MAX_RANGE_BYTES)]
            ),
            None => prop_assert!(answer.is_err()),
        }
    }
}
