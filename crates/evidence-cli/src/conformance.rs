//! `bounded-evidence conformance`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use evidence_conformance::{DirectoryHost, Report, VectorKind, check_file};
use futures_executor::block_on;

/// What to check.
#[derive(Args)]
pub struct Arguments {
    /// Vector files; the name says the kind: evidence.jsonl, loop.jsonl, protocol.jsonl,
    /// config.jsonl.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Checks the files over a directory store and real directories of files.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let host = DirectoryHost::new().context("no temporary directory could be made")?;
    let mut report = Report::default();
    for file in &arguments.files {
        let name = file.to_string_lossy();
        let kind = VectorKind::of_file(&name).with_context(|| name.clone().into_owned())?;
        let lines = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        report.add(block_on(check_file(kind, &lines, &host)));
    }
    writeln!(std::io::stdout(), "{report}").context("cannot print the report")?;
    Ok(if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
