//! `bounded-evidence bench`: the numbers that the project promises, measured.

mod store;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Arguments {
    /// Storing and reading tool output natively (contract B).
    Store,
}

/// Prints what was measured. Exits with 1 when a number is over its limit.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let figures = match arguments {
        Arguments::Store => store::measure()?,
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
