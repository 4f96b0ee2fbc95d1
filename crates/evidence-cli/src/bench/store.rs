//! What contract B costs beside the least that anybody would pay.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use evidence_core::cursor::ReadRequest;
use evidence_core::tool_output::MAX_ARTIFACT_BYTES;
use evidence_core::{JobId, SessionId, Sha256Digest, ToolResult};
use evidence_store::{DirectoryStore, MemoryStore, Store, ToolOutputs};
use futures_executor::block_on;

use super::{Figure, median};

/// How often 16 MiB are stored.
const STORE_ROUNDS: usize = 7;
/// How often 8 KiB are read from each artifact.
const READ_ROUNDS: u64 = 400;
/// The small artifact that reads are compared with: one chunk.
const SMALL_BYTES: usize = 64 * 1024;

/// Measures storing in a directory, and reading in a directory and in memory.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let root = tempfile::tempdir()?;
    let outputs = ToolOutputs::new(block_on(DirectoryStore::open(root.path().join("store")))?);
    let mut figures = vec![storing(&outputs, root.path())?];
    figures.extend(memory(&outputs)?);
    figures.push(reading(&outputs, "a directory")?);
    figures.push(reading(&ToolOutputs::new(MemoryStore::new()), "memory")?);
    Ok(figures)
}

fn session() -> anyhow::Result<SessionId> {
    Ok("bench".parse()?)
}

/// A new job.
fn job(outputs: &ToolOutputs<impl Store>, name: &str) -> anyhow::Result<JobId> {
    let job = name.parse()?;
    block_on(outputs.create_job(&session()?, &job, 0))?;
    Ok(job)
}

/// A result of exactly `byte_count` serialized bytes, in lines as logs have them; equal chunks would
/// be stored once and make storing look cheaper than it is.
fn result_of(byte_count: usize, seed: usize) -> ToolResult {
    let empty = ToolResult::from_text(true, String::new()).serialized_byte_count();
    let mut text = String::with_capacity(byte_count);
    let (mut line, mut room) = (0, byte_count - empty);
    loop {
        let content = format!("{seed} {line:08} warning: unused variable: `value_{line}`");
        // The line feed takes two bytes, as it is escaped.
        if content.len() + 2 > room {
            break;
        }
        text.push_str(&content);
        text.push('\n');
        room -= content.len() + 2;
        line += 1;
    }
    text.push_str(&"x".repeat(room));
    ToolResult::from_text(true, text)
}

/// Bounding and storing 16 MiB against digesting and writing them once.
fn storing(outputs: &ToolOutputs<DirectoryStore>, root: &Path) -> anyhow::Result<Figure> {
    let (mut stored, mut least) = (Vec::new(), Vec::new());
    for round in 0..STORE_ROUNDS {
        let job = job(outputs, &format!("store-{round}"))?;
        let result = result_of(MAX_ARTIFACT_BYTES, round);
        let bytes = result.serialize();

        let started = Instant::now();
        let sha256 = Sha256Digest::of(bytes.as_bytes());
        let mut file = File::create(root.join(sha256.to_string()))?;
        file.write_all(bytes.as_bytes())?;
        file.sync_all()?;
        least.push(started.elapsed());

        let started = Instant::now();
        block_on(outputs.record(&session()?, &job, None, result, None))?;
        stored.push(started.elapsed());
    }
    let (stored, least) = (median(stored), median(least));
    writeln!(
        std::io::stdout(),
        "bound and store 16 MiB: {:.0} ms; SHA-256 and one write of them: {:.0} ms",
        stored * 1e3,
        least * 1e3
    )?;
    Ok(Figure {
        what: "bound and store 16 MiB, against SHA-256 and writing once".to_owned(),
        value: stored / least,
        limit: 2.0,
    })
}

/// The peak of memory while 16 MiB are stored, the result itself counted, in multiples of the result.
/// None where the host does not tell.
fn memory(outputs: &ToolOutputs<DirectoryStore>) -> anyhow::Result<Option<Figure>> {
    let job = job(outputs, "memory")?;
    let before = resident("VmRSS:");
    let result = result_of(MAX_ARTIFACT_BYTES, 99);
    // Linux sets the peak back to what is resident now.
    let reset = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    block_on(outputs.record(&session()?, &job, None, result, None))?;
    let (Some(before), Some(peak), true) = (before, resident("VmHWM:"), reset) else {
        writeln!(
            std::io::stdout(),
            "memory while storing: this host does not tell"
        )?;
        return Ok(None);
    };
    let peak = peak.saturating_sub(before);
    writeln!(
        std::io::stdout(),
        "memory while storing 16 MiB: {:.1} MiB",
        mib(peak)
    )?;
    Ok(Some(Figure {
        what: "memory while storing, against the result".to_owned(),
        value: mib(peak) / mib(MAX_ARTIFACT_BYTES),
        // The program's own few pages besides.
        limit: 2.0,
    }))
}

fn mib(bytes: usize) -> f64 {
    // A number of kilobytes is far below 2^32.
    f64::from(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)) / 1024.0
}

/// A line of the process's status, in bytes.
fn resident(name: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Reading 8 KiB out of 16 MiB against reading it out of one chunk.
fn reading<S: Store>(outputs: &ToolOutputs<S>, store: &str) -> anyhow::Result<Figure> {
    let job = job(outputs, "read")?;
    let mut artifacts = Vec::new();
    for byte_count in [MAX_ARTIFACT_BYTES, SMALL_BYTES] {
        let result = result_of(byte_count, 0);
        let sha256 = Sha256Digest::of(result.serialize().as_bytes());
        block_on(outputs.record(&session()?, &job, None, result, None))?;
        artifacts.push((byte_count as u64, sha256));
    }
    let mut times = vec![Vec::new(); artifacts.len()];
    for round in 0..READ_ROUNDS {
        for ((byte_count, sha256), times) in artifacts.iter().zip(&mut times) {
            // Spread over the artifact; every eighth or so touches two chunks of the large one.
            let offset = round * 7_919_993 % (byte_count - 8192);
            let request = ReadRequest::new(offset, 8192)?;
            let started = Instant::now();
            let range = block_on(outputs.read(&session()?, &job, *sha256, request))?;
            let answer = range.answer()?;
            times.push(started.elapsed());
            anyhow::ensure!(answer.text.len() == 8192, "a read was short");
        }
    }
    let large = mean(&times[0]);
    let small = mean(&times[1]);
    writeln!(
        std::io::stdout(),
        "read 8 KiB in {store}: {:.0} us out of 16 MiB, {:.0} us out of 64 KiB",
        large * 1e6,
        small * 1e6
    )?;
    Ok(Figure {
        what: format!("read 8 KiB out of 16 MiB, against out of 64 KiB, in {store}"),
        value: large / small,
        limit: 1.5,
    })
}

/// Not the median, which would hide the reads that touch two chunks.
fn mean(times: &[Duration]) -> f64 {
    let total: Duration = times.iter().sum();
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX);
    total.as_secs_f64() / f64::from(count)
}
