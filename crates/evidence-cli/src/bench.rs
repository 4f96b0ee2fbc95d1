//! `bounded-evidence bench`: the numbers that the project promises, measured.

mod find;
mod store;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

/// What to measure.
#[derive(Args)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    promise: Option<Promise>,
    #[cfg(feature = "model")]
    #[command(flatten)]
    model: Option<crate::model::BenchArguments>,
}

#[derive(Subcommand)]
enum Promise {
    /// Storing and reading tool output natively (contract B).
    Store,
    /// Searching an artifact natively, where lines and searches are answered.
    Find,
}

/// Prints what was measured. Exits with 1 when a number is over its limit.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "model")]
    if let Some(arguments) = &arguments.model {
        return crate::model::bench(arguments);
    }
    let figures = match arguments.promise {
        Some(Promise::Store) => store::measure()?,
        Some(Promise::Find) => find::measure()?,
        // Without arguments there is help.
        None => Vec::new(),
    };
    for figure in &figures {
        let Figure { what, value, limit } = figure;
        let verdict = if figure.is_reached() {
            "reached"
        } else {
            "OVER"
        };
        writeln!(
            std::io::stdout(),
            "{what}: {value:.2}x, at most {limit:.1}x: {verdict}"
        )?;
    }
    Ok(if figures.iter().all(Figure::is_reached) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Of at least one time, in seconds.
fn median(mut values: Vec<Duration>) -> f64 {
    values.sort_unstable();
    values[values.len() / 2].as_secs_f64()
}

/// A measured ratio and the most that it may be.
struct Figure {
    what: String,
    value: f64,
    limit: f64,
}

impl Figure {
    fn is_reached(&self) -> bool {
        self.value <= self.limit
    }
}
