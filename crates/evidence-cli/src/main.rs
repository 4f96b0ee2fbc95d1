//! The command `bounded-evidence`: the same rules, natively.

mod bench;
// Judging needs no model: its tests are among those of every build.
#[cfg(any(feature = "model", test))]
mod cases;
mod conformance;
#[cfg(feature = "model")]
mod eval;
#[cfg(any(feature = "model", test))]
mod judge;
#[cfg(feature = "model")]
mod model;
mod run;
mod serve;
mod sweep;

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};

/// Keep large tool results outside the prompt, exactly, and read them by byte range.
#[derive(Parser)]
#[command(name = "bounded-evidence", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the agent loop over a directory and print each event as a line of JSON.
    Run(run::Arguments),
    /// Check vector files (evidence, loop, protocol and config .jsonl) and print what differs.
    Conformance(conformance::Arguments),
    /// Measure the numbers that the project promises.
    Bench(bench::Arguments),
    /// Compare a model with what a reference computed.
    #[cfg(feature = "model")]
    ModelCheck(model::CheckArguments),
    /// Run cases through the agent loop with a model and print what it got right.
    #[cfg(feature = "model")]
    Eval(eval::Arguments),
    /// Keep the tool output of agent runtimes over HTTP (contract B).
    Serve(serve::Arguments),
    /// Delete the tool output that has expired (contract B) and print what was deleted.
    Sweep(sweep::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        #[cfg(feature = "model")]
        Command::ModelCheck(arguments) => model::check(&arguments),
        #[cfg(feature = "model")]
        Command::Eval(arguments) => eval::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bounded-evidence: {error:#}");
        ExitCode::from(2)
    })
}

/// A name that no other run of this command has.
fn unique_name(prefix: &str) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{prefix}-{}-{}", now.as_nanos(), std::process::id())
}

/// Reads the values of `--allow-command`.
fn allowed_commands(texts: &[String]) -> anyhow::Result<Vec<Vec<String>>> {
    let argv = |text: &String| {
        let argv: Vec<String> = serde_json::from_str(text).with_context(|| {
            format!("--allow-command takes a JSON array of strings, not {text}")
        })?;
        if argv.is_empty() {
            bail!("--allow-command takes an array with at least the program");
        }
        Ok(argv)
    };
    texts.iter().map(argv).collect()
}

/// What went wrong with a workspace.
fn cannot_open_workspace(workspace: &Path) -> String {
    format!("cannot open the workspace {}", workspace.display())
}
