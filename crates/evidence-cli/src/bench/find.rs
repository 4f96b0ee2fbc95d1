//! What a search of a stored artifact costs beside the same search of bytes in memory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use evidence_core::Sha256Digest;
use evidence_core::range::NAMESPACE;
use evidence_store::{ArtifactStore, DirectoryStore, MemoryStore, Store};
use futures_executor::block_on;
use memchr::memmem::Finder;

use super::{Figure, median};

/// How large the artifact is.
const ARTIFACT_BYTES: usize = 16 * 1024 * 1024;
/// How often it is searched.
const ROUNDS: usize = 21;
/// The contract's own limit.
const MAX_RANGE_BYTES: usize = 512;
/// What a model looks for first; it stands in the last line.
const TEXT: &str = "error: could not compile";

/// Measures a search in a directory and in memory.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let log = log();
    let root = tempfile::tempdir()?;
    let directory = block_on(DirectoryStore::open(root.path()))?;
    Ok(vec![
        searching(directory, "a directory", &log)?,
        searching(MemoryStore::new(), "memory", &log)?,
    ])
}

/// A log that ends with an error.
fn log() -> String {
    let end = format!("{TEXT}\n");
    let mut log = String::with_capacity(ARTIFACT_BYTES);
    let mut line = 0;
    while log.len() + end.len() < ARTIFACT_BYTES {
        // A text takes every line.
        let _ = writeln!(log, "{line:08} warning: unused variable: `value_{line}`");
        line += 1;
    }
    log.truncate(ARTIFACT_BYTES - end.len());
    log.push_str(&end);
    log
}

/// Finding a text in a stored artifact, whose bytes are verified for it, against finding it in memory,
/// and against digesting the bytes too.
fn searching(store: impl Store, name: &str, log: &str) -> anyhow::Result<Figure> {
    let artifacts = ArtifactStore::new(store, "bench".parse()?);
    let id = block_on(artifacts.put(log))?.artifact_id;
    let encoded = TEXT.replace(' ', "%20");
    let path = format!("{NAMESPACE}{id}/find/{encoded}");
    let finder = Finder::new(TEXT);
    let (mut selected, mut searched, mut verified) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let answer = timed(&mut selected, || {
            block_on(artifacts.select(&path, MAX_RANGE_BYTES))
        })?;
        anyhow::ensure!(
            answer.contains("\"hit_count\":1,"),
            "the text was not found"
        );
        let hits = timed(&mut searched, || finder.find_iter(log.as_bytes()).count());
        anyhow::ensure!(hits == 1, "the text was not found");
        let same = timed(&mut verified, || {
            Sha256Digest::of(log.as_bytes()) == id.sha256()
        });
        anyhow::ensure!(same, "the bytes are others");
    }
    let [selected, searched, verified] = [selected, searched, verified].map(median);
    writeln!(
        std::io::stdout(),
        "find in 16 MiB in {name}: {:.1} ms; memmem over the same bytes: {:.1} ms ({:.1}x), their \
         SHA-256: {:.1} ms",
        selected * 1e3,
        searched * 1e3,
        selected / searched,
        verified * 1e3
    )?;
    Ok(Figure {
        what: format!("find in 16 MiB in {name}, against SHA-256 and memmem"),
        value: selected / (searched + verified),
        limit: 1.5,
    })
}

fn timed<T>(times: &mut Vec<Duration>, measured: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let value = measured();
    times.push(started.elapsed());
    value
}
