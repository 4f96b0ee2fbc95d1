//! `cargo xtask`: sets the machine up, builds, serves, tests and measures.
//!
//! Everything that a contributor or a build server runs is here; there is no
//! shell script beside it.

mod bench;
mod component;
mod conformance;
mod description;
mod dist;
mod docs;
mod package;
mod page;
mod process;
mod project;
mod record;
mod serve;
mod setup;
mod size;
mod stamp;
mod tally;
mod test;

use std::path::{self, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::conformance::BrowserChecks;
use crate::project::Project;

/// Set up, build, serve, test and measure bounded-evidence.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the page and serve it on this machine.
    Play {
        /// The port of 127.0.0.1 to serve on; 0 takes a free one.
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
    /// Write the deployable page, with the documentation, to dist/.
    Build,
    /// Write the documentation and the descriptions of both interfaces to dist/docs/.
    Docs,
    /// Write the npm package and its tarball to target/npm/.
    Package,
    /// Build the WebAssembly component.
    Component,
    /// Run all tests, or only the named groups.
    Test {
        /// What to run; everything when none is named.
        #[arg(value_enum)]
        groups: Vec<test::Group>,
    },
    /// Run all benchmarks, or only the named ones, and fail where one misses its limit.
    Bench {
        /// What to measure; everything when none is named.
        #[arg(value_enum)]
        subjects: Vec<bench::Subject>,
    },
    /// Compare a model with its expected.json as `bounded-evidence model-check` does, in headless
    /// Chromium on WebGPU.
    ModelCheck {
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
    /// Measure a model as `bounded-evidence bench --model` does, in headless Chromium.
    ModelBench {
        /// The folder of the checkpoint.
        folder: PathBuf,
        /// Tokens of the prompt.
        #[arg(long, default_value_t = 128)]
        prompt: usize,
        /// Tokens to decode.
        #[arg(long, default_value_t = 32)]
        tokens: usize,
    },
    /// Run vector files as `bounded-evidence conformance` does.
    Conformance {
        /// Run them in headless Chromium, over the browser's database.
        #[arg(long)]
        browser: bool,
        /// The files; the name of each says its kind.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Put a store and its processes under random work, kills and the passing of time, and check that
    /// what is owed is there and what has expired is gone.
    Soak {
        /// How long.
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Repeats the choices of the run that printed it.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run a command and write down what it writes and when, for the page to replay.
    Record {
        /// The file to write.
        out: PathBuf,
        /// The directory to run the command in.
        #[arg(long, default_value = ".")]
        directory: PathBuf,
        /// The command and its arguments.
        #[arg(required = true, last = true)]
        argv: Vec<String>,
    },
    /// Print the sizes of what is shipped, and fail where one is over its limit.
    Size,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let project = Project::locate()?;
    match command {
        Command::Play { port } => {
            build(&project)?;
            serve::play(&project.dist(), port)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Build => {
            build(&project)?;
            println!("The page is in {}.", project.dist().display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Docs => {
            docs::build(&setup::prepare(&project, docs::NEEDS)?)?;
            println!(
                "The documentation is in {}.",
                docs::place(&project).display()
            );
            Ok(ExitCode::SUCCESS)
        }
        Command::Package => {
            let environment = setup::prepare(&project, package::NEEDS)?;
            let tarball = package::build(&environment)?;
            println!("The package is {}.", tarball.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Component => {
            let environment = setup::prepare(&project, component::NEEDS)?;
            component::build(&environment)?;
            println!("The component is {}.", project.component().display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Test { groups } => Ok(test::run(&project, &groups)),
        Command::Bench { subjects } => bench::run(&project, &subjects),
        Command::ModelCheck { folder } => {
            bench::in_browser(&project, &["check".as_ref(), folder.as_os_str()])
        }
        Command::ModelBench {
            folder,
            prompt,
            tokens,
        } => {
            let counts = [prompt, tokens].map(|count| count.to_string());
            let [prompt, tokens] = counts.each_ref().map(AsRef::as_ref);
            let arguments = ["bench".as_ref(), folder.as_os_str(), prompt, tokens];
            bench::in_browser(&project, &arguments)
        }
        Command::Conformance { browser, files } => {
            let files = files
                .iter()
                .map(path::absolute)
                .collect::<Result<Vec<_>, _>>()?;
            let passed = if browser {
                let environment = setup::prepare(&project, conformance::BROWSER_NEEDS)?;
                let checks = BrowserChecks::start(&environment)?;
                process::passes(&mut checks.command(&environment, &files)?)?
            } else {
                process::passes(&mut conformance::native(&project, &files))?
            };
            Ok(if passed {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Soak { minutes, seed } => {
            let mut soak = setup::native_cargo(&project);
            soak.args(["test", "--locked", "--package", "evidence-agent"])
                .args(["--test", "processes", "--", "--nocapture", "--exact"])
                .arg("soak::every_owed_byte_is_readable_and_every_expired_one_is_gone")
                .env("SOAK_MINUTES", minutes.to_string());
            if let Some(seed) = seed {
                soak.env("SOAK_SEED", seed.to_string());
            }
            Ok(if process::passes(&mut soak)? {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Record {
            out,
            directory,
            argv,
        } => {
            record::record(&directory, &out, &argv)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Size => {
            let environment = setup::prepare(&project, size::NEEDS)?;
            page::build(&environment)?;
            package::build(&environment)?;
            component::build(&environment)?;
            Ok(size::check(&project)?.exit_code())
        }
    }
}

/// Everything that is deployed.
fn build(project: &Project) -> Result<()> {
    let needs = [page::NEEDS, docs::NEEDS].concat();
    let environment = setup::prepare(project, &needs)?;
    page::build(&environment)?;
    docs::build(&environment)
}
