//! `bounded-evidence sweep`: retention, by hand.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use evidence_core::{JobId, ProcessId, SessionId};
use evidence_store::tool_output::retention::Swept;
use evidence_store::{DirectoryStore, ToolOutputs};
use futures_executor::block_on;
use jiff::Timestamp;
use serde::Serialize;

/// What to sweep.
#[derive(Args)]
pub struct Arguments {
    /// The directory that keeps jobs and their tool output. A server may be running over it.
    #[arg(long)]
    data: PathBuf,
    /// The time to go by (RFC 3339) in place of the clock's. What is stored remembers the latest time
    /// that a sweep went by, and keeps what ends later the longer for it.
    #[arg(long, value_name = "RFC3339")]
    now: Option<Timestamp>,
    /// Print what would be deleted, and delete nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A line of the output.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    /// What was captured of a process.
    Capture {
        session: &'a SessionId,
        job: &'a JobId,
        process_id: &'a ProcessId,
    },
    /// A job with all that it held.
    Job {
        session: &'a SessionId,
        job: &'a JobId,
    },
}

/// Deletes what has expired, at most 64 jobs, and prints each as a line of JSON.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let now = arguments.now.unwrap_or_else(Timestamp::now);
    let now_ms = u64::try_from(now.as_millisecond()).context("--now is before 1970")?;
    // Opening would create it.
    std::fs::metadata(&arguments.data)
        .with_context(|| format!("cannot use {}", arguments.data.display()))?;
    let swept = block_on(async {
        let store = DirectoryStore::open(&arguments.data)
            .await
            .with_context(|| format!("cannot use {}", arguments.data.display()))?;
        let outputs = ToolOutputs::new(store);
        let swept = if arguments.dry_run {
            outputs.plan_sweep(now_ms, None).await
        } else {
            outputs.sweep(now_ms, None).await
        };
        anyhow::Ok(swept?)
    })?;
    print(&swept).context("cannot print what was deleted")?;
    Ok(ExitCode::SUCCESS)
}

fn print(swept: &Swept) -> std::io::Result<()> {
    let captures = swept.captures.iter();
    let captures = captures.map(|(session, job, process_id)| Line::Capture {
        session,
        job,
        process_id,
    });
    let jobs = swept.jobs.iter();
    let jobs = jobs.map(|(session, job)| Line::Job { session, job });
    let mut out = std::io::stdout().lock();
    for line in captures.chain(jobs) {
        serde_json::to_writer(&mut out, &line)?;
        writeln!(out)?;
    }
    Ok(())
}
