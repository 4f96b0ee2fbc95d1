//! Runs the benchmarks that hold the project to its times.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::ValueEnum;

use crate::project::{Project, files_ending};
use crate::setup::{self, Environment, Need};
use crate::{page, process};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// The library for JavaScript, in Chromium.
    Library,
    /// The model's worker, in Chromium, beside others that run models there.
    Model,
}

const LIBRARY_NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::NodePackages,
    Need::WasmPack,
    Need::Browser,
];

/// What the model's worker needs to be run in a browser.
const MODEL_NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::NodePackages,
    Need::Browser,
];

/// Runs the `*-bench.mjs` of each subject, all of them even when one misses its limit.
pub fn run(project: &Project, subjects: &[Subject]) -> Result<ExitCode> {
    let wanted = |subject| subjects.is_empty() || subjects.contains(&subject);
    let mut needs = Vec::new();
    if wanted(Subject::Library) {
        needs.extend(LIBRARY_NEEDS);
    }
    if wanted(Subject::Model) {
        needs.extend(MODEL_NEEDS);
        needs.push(Need::PeerNodePackages);
    }
    let environment = setup::prepare(project, &needs)?;
    let mut passed = true;
    if wanted(Subject::Library) {
        page::build_library(&environment)?;
        for bench in files_ending(&project.browser_tests(), "-bench.mjs")? {
            let mut node = environment.node_with_browser()?;
            node.arg(bench).env("LIBRARY", project.library());
            passed &= process::passes(&mut node)?;
        }
    }
    if wanted(Subject::Model) {
        page::build_model_worker(&environment)?;
        for bench in files_ending(&project.model_tests(), "-bench.mjs")? {
            passed &= process::passes(&mut node_with_worker(&environment, &bench)?)?;
        }
    }
    Ok(code_of(passed))
}

/// Checks or measures one model in a browser: the arguments are those of tests/model/run.mjs.
pub fn in_browser(project: &Project, arguments: &[&OsStr]) -> Result<ExitCode> {
    let environment = setup::prepare(project, MODEL_NEEDS)?;
    page::build_model_worker(&environment)?;
    let script = project.model_tests().join("run.mjs");
    let mut node = node_with_worker(&environment, &script)?;
    node.args(arguments).current_dir(std::env::current_dir()?);
    Ok(code_of(process::passes(&mut node)?))
}

fn node_with_worker(environment: &Environment, script: &Path) -> Result<Command> {
    let mut node = environment.node_with_browser()?;
    node.arg(script)
        .env("MODEL_WORKER", environment.project().model_worker())
        .env("CHECKPOINTS", environment.project().checkpoints());
    Ok(node)
}

fn code_of(passed: bool) -> ExitCode {
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
