//! The command `bounded-evidence`: the same rules, natively.

mod conformance;
mod run;

use std::process::ExitCode;

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
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bounded-evidence: {error:#}");
        ExitCode::from(2)
    })
}
