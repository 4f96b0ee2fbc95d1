//! Random work on one directory, killed again and again while time goes by: what is owed stays readable,
//! and what has expired goes.
//!
//! `cargo xtask soak` runs it for ten minutes; as a test among the others it runs for some rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use evidence_core::process::Stream;
use evidence_core::retention::{ARTIFACT_LIFETIME_MS, CAPTURE_LIFETIME_MS};
use evidence_core::{JobStatus, ProcessId, ToolResult};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::*;

const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// What the host's clock shows.
static NOW_MS: AtomicU64 = AtomicU64::new(0);

fn now_ms() -> u64 {
    NOW_MS.load(Ordering::Relaxed)
}

/// What a worker says once it has done it; the ending of a job before, too, since it may be done
/// without being said.
#[derive(Serialize, Deserialize)]
enum Said {
    Stored {
        job: JobId,
        sha256: Sha256Digest,
    },
    /// A poll has shown the end of a process.
    Captured {
        job: JobId,
        process_id: ProcessId,
        stdout: Sha256Digest,
    },
    Ending {
        job: JobId,
    },
}

impl Said {
    fn say(&self) {
        // The full stop says that the line is whole.
        eprintln!("soak {} .", serde_json::to_string(self).unwrap());
    }
}

async fn open(
    root: &str,
    generation: &str,
) -> (Outputs, ProcessHost<DirectoryStore, ChildProcesses>) {
    let store = DirectoryStore::open(format!("{root}/data")).await.unwrap();
    let outputs = ToolOutputs::new(store);
    let generation = generation.parse().unwrap();
    let launcher = ChildProcesses::new(root);
    let host = ProcessHost::open(outputs.clone(), launcher, generation, now_ms).await;
    (outputs, host.unwrap())
}

type Outputs = ToolOutputs<DirectoryStore>;

/// The process that is killed.
#[tokio::test]
#[ignore = "the child of every_owed_byte_is_readable_and_every_expired_one_is_gone"]
async fn soak_worker() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let root = variable("SOAK_ROOT");
    let seed: u64 = variable("SOAK_SEED").parse().unwrap();
    NOW_MS.store(variable("SOAK_NOW").parse().unwrap(), Ordering::Relaxed);
    let (outputs, host) = open(&root, &format!("host-{seed}")).await;
    let worker = |number: u64| {
        let (outputs, host) = (outputs.clone(), host.clone());
        async move {
            let mut rng = Rng::with_seed(seed ^ number);
            for step in 0.. {
                work(
                    &outputs,
                    &host,
                    &mut rng,
                    &format!("{seed}-{number}-{step}"),
                )
                .await;
            }
        }
    };
    tokio::join!(worker(1), worker(2), worker(3));
}

/// One random thing. Another worker may end or delete the job meanwhile, which refuses it.
async fn work(
    outputs: &Outputs,
    host: &ProcessHost<DirectoryStore, ChildProcesses>,
    rng: &mut Rng,
    name: &str,
) {
    let session = session("s");
    let jobs: Vec<JobId> = outputs
        .stored_jobs()
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.job)
        .collect();
    let kind = rng.u8(0..100);
    let job = match rng.choice(&jobs) {
        Some(job) if kind >= 10 => job.clone(),
        _ => {
            let job: JobId = format!("job-{name}").parse().unwrap();
            outputs.create_job(&session, &job, now_ms()).await.unwrap();
            return;
        }
    };
    match kind {
        0..50 => {
            // From inline to five chunks; some are the same in many jobs.
            let byte_count = rng.usize(10..280_000);
            let letter = char::from(rng.u8(b'a'..=b'z'));
            let text = letter.to_string().repeat(byte_count);
            let result = ToolResult::from_text(true, text);
            let sha256 = Sha256Digest::of(result.serialize().as_bytes());
            if let Ok(outcome) = outputs.record(&session, &job, None, result, None).await
                && outcome.reference.is_some()
            {
                Said::Stored { job, sha256 }.say();
            }
        }
        50..70 => run_process(host, rng, job).await,
        70..85 => {
            for artifact in outputs.artifacts(&session, &job).await.unwrap_or_default() {
                let read = outputs.read_whole(&session, &job, artifact.sha256).await;
                let is_there = read.is_ok() || read == Err(ToolOutputError::Unavailable);
                assert!(is_there, "{job} {}: {read:?}", artifact.sha256);
            }
        }
        85..93 => {
            Said::Ending { job: job.clone() }.say();
            let ended = outputs.set_status(&session, &job, JobStatus::Completed, now_ms());
            let _ = ended.await;
        }
        _ => drop(outputs.sweep(now_ms(), None).await.unwrap()),
    }
}

async fn run_process(
    host: &ProcessHost<DirectoryStore, ChildProcesses>,
    rng: &mut Rng,
    job: JobId,
) {
    let script = format!("seq 1 {}; sleep 0.0{}", rng.u32(1..40_000), rng.u8(1..9));
    let call = async |tool: &str, arguments: Value| {
        let call = ProcessCall::parse(tool, &arguments.to_string())
            .unwrap()
            .unwrap();
        let answer = host.call(&session("s"), &job, None, &call).await.ok()?;
        serde_json::from_str::<Value>(&answer.result).ok()
    };
    let Some(started) = call(START_TOOL, json!({"argv": ["sh", "-c", script]})).await else {
        return;
    };
    let process_id = started["data"]["process_id"].clone();
    while let Some(seen) = call(
        POLL_TOOL,
        json!({"process_id": process_id, "stdout_offset": 0}),
    )
    .await
    {
        if seen["status"] != "running" {
            let process_id = serde_json::from_value(process_id).unwrap();
            let stdout = serde_json::from_value(seen["stdout"]["sha256"].clone()).unwrap();
            Said::Captured {
                job,
                process_id,
                stdout,
            }
            .say();
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What was said of a job, with the earliest time that it can have been recorded with.
#[derive(Default)]
struct Expected {
    artifacts: BTreeSet<Sha256Digest>,
    captures: BTreeMap<ProcessId, (Sha256Digest, u64)>,
    /// None while nobody has tried to end it.
    ended_at_ms: Option<u64>,
}

struct Soak {
    root: TempDir,
    rng: Rng,
    /// The latest time that any clock has shown.
    latest_ms: u64,
    jobs: BTreeMap<JobId, Expected>,
    checked: usize,
}

impl Soak {
    fn spawn(&mut self, wall_ms: u64) -> (Child, mpsc::Receiver<String>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "soak::soak_worker", "--ignored", "--nocapture"])
            .env("SOAK_ROOT", self.root.path())
            .env("SOAK_SEED", self.rng.u64(..).to_string())
            .env("SOAK_NOW", wall_ms.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        (child, receiver)
    }

    /// Lets a worker live for a while at another time of day, sweeps beside it, kills it, and checks.
    async fn round(&mut self) {
        let wall_ms = match self.rng.u8(0..10) {
            // The clock was set back.
            0..2 => self.latest_ms - self.rng.u64(0..DAY_MS),
            2 => self.latest_ms + self.rng.u64(DAY_MS..3 * DAY_MS),
            _ => self.latest_ms + self.rng.u64(0..6 * HOUR_MS),
        };
        let (mut child, lines) = self.spawn(wall_ms);
        let mut said: Vec<String> = Vec::new();
        // The first line says that it is at work; on a new directory there is none before a result.
        said.extend(lines.recv_timeout(Duration::from_secs(20)));
        let store = DirectoryStore::open(self.root.path().join("data")).await;
        let outputs = ToolOutputs::new(store.unwrap());
        for _ in 0..self.rng.u8(1..6) {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(10..150))).await;
            outputs.sweep(wall_ms, None).await.unwrap();
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        said.extend(lines);
        assert!(
            !said.iter().any(|line| line.contains("panicked")),
            "{}",
            said.join("\n")
        );
        self.latest_ms = self.latest_ms.max(wall_ms);
        self.note(&said, wall_ms);
        self.check().await;
    }

    fn note(&mut self, lines: &[String], wall_ms: u64) {
        let said = lines
            .iter()
            .filter_map(|line| line.strip_prefix("soak ")?.strip_suffix(" ."));
        for line in said {
            match serde_json::from_str(line).unwrap() {
                Said::Stored { job, sha256 } => {
                    let expected = self.jobs.entry(job).or_default();
                    expected.artifacts.insert(sha256);
                }
                Said::Captured {
                    job,
                    process_id,
                    stdout,
                } => {
                    let expected = self.jobs.entry(job).or_default();
                    expected.captures.insert(process_id, (stdout, wall_ms));
                }
                Said::Ending { job } => {
                    let expected = self.jobs.entry(job).or_default();
                    let ended_at_ms = expected.ended_at_ms.get_or_insert(wall_ms);
                    *ended_at_ms = wall_ms.min(*ended_at_ms);
                }
            }
        }
    }

    /// Reads everything that was said. What is owed is there; the rest is there or not, and never
    /// damaged.
    async fn check(&mut self) {
        NOW_MS.store(self.latest_ms, Ordering::Relaxed);
        let root = self.root.path().to_str().unwrap();
        let (outputs, _host) = open(root, "checker").await;
        for (job, expected) in &mut self.jobs {
            let job_is_owed = expected
                .ended_at_ms
                .is_none_or(|ended_at_ms| self.latest_ms < ended_at_ms + ARTIFACT_LIFETIME_MS);
            let mut gone = Vec::new();
            for sha256 in &expected.artifacts {
                self.checked += 1;
                match outputs.read_whole(&session("s"), job, *sha256).await {
                    Ok(bytes) => assert_eq!(Sha256Digest::of(&bytes), *sha256),
                    Err(ToolOutputError::Unavailable) if !job_is_owed => gone.push(*sha256),
                    Err(error) => panic!("{job} {sha256}: {error}"),
                }
            }
            expected.artifacts.retain(|sha256| !gone.contains(sha256));
            let mut gone = Vec::new();
            for (process_id, (stdout, ended_at_ms)) in &expected.captures {
                self.checked += 1;
                let is_owed = job_is_owed && self.latest_ms < ended_at_ms + CAPTURE_LIFETIME_MS;
                match read_stdout(&outputs, job, process_id).await {
                    Ok(bytes) => assert_eq!(Sha256Digest::of(&bytes), *stdout),
                    Err(ToolOutputError::Unavailable) if !is_owed => gone.push(process_id.clone()),
                    Err(error) => panic!("{job} {process_id}: {error}"),
                }
            }
            expected
                .captures
                .retain(|process_id, _| !gone.contains(process_id));
        }
    }

    /// A month later everything has expired but what active jobs have stored; and once those have
    /// ended, that too.
    async fn end(&mut self) {
        self.latest_ms += 30 * DAY_MS;
        NOW_MS.store(self.latest_ms, Ordering::Relaxed);
        let root = self.root.path().to_str().unwrap().to_owned();
        let (outputs, _host) = open(&root, "last").await;
        sweep_all(&outputs, self.latest_ms).await;
        self.check().await;
        let jobs = outputs.stored_jobs().await.unwrap();
        for job in &jobs {
            assert_eq!(job.captures, [], "{}", job.job);
            assert_eq!(job.expires_at_ms, None, "{}", job.job);
            outputs
                .set_status(&session("s"), &job.job, JobStatus::Failed, self.latest_ms)
                .await
                .unwrap();
        }
        sweep_all(&outputs, self.latest_ms + 8 * DAY_MS).await;
        let keys = outputs.store().list("").await.unwrap();
        let keys: Vec<&str> = keys.iter().map(Key::as_str).collect();
        assert_eq!(keys, ["retention/clock"]);
    }
}

async fn sweep_all(outputs: &Outputs, now_ms: u64) {
    while !outputs.sweep(now_ms, None).await.unwrap().is_empty() {}
}

async fn read_stdout(
    outputs: &Outputs,
    job: &JobId,
    process_id: &ProcessId,
) -> Result<bytes::Bytes, ToolOutputError> {
    let session = session("s");
    let record = outputs.process(&session, job, process_id).await?;
    let facts = record.facts(process_id.clone());
    let facts = facts.ok_or(ToolOutputError::Unavailable)?;
    let whole = 0..facts.stdout.bytes;
    outputs
        .read_capture(&session, job, &facts, Stream::Stdout, whole)
        .await
}

#[tokio::test]
async fn every_owed_byte_is_readable_and_every_expired_one_is_gone() {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seed = variable("SOAK_SEED").unwrap_or_else(|| Rng::new().u64(..));
    let minutes = variable("SOAK_MINUTES");
    println!("seed {seed}");
    let mut soak = Soak {
        root: TempDir::new().unwrap(),
        rng: Rng::with_seed(seed),
        latest_ms: 20_000 * DAY_MS,
        jobs: BTreeMap::new(),
        checked: 0,
    };
    let begun = Instant::now();
    let mut rounds = 0;
    let is_over = |rounds| match minutes {
        Some(minutes) => begun.elapsed() >= Duration::from_mins(minutes),
        None => rounds == 15,
    };
    while !is_over(rounds) {
        soak.round().await;
        rounds += 1;
    }
    soak.end().await;
    println!("{rounds} rounds, {} readings checked", soak.checked);
    assert!(soak.checked > 0, "seed {seed}");
}
