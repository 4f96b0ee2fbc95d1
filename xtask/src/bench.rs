//! Runs the benchmarks that hold the project to its times.

use std::process::ExitCode;

use anyhow::Result;

use crate::setup::{Environment, Need};
use crate::{page, process, project};

/// What the benchmarks need: the library, and a browser to run it in.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::NodePackages,
    Need::WasmPack,
    Need::Browser,
];

/// Runs each `*-bench.mjs` of tests/browser/, all of them even when one is
/// over its limit.
pub fn run(environment: &Environment) -> Result<ExitCode> {
    page::build_library(environment)?;
    let project = environment.project();
    let mut code = ExitCode::SUCCESS;
    for bench in project::files_ending(&project.browser_tests(), "-bench.mjs")? {
        let mut node = environment.node_with_browser()?;
        node.arg(bench).env("LIBRARY", project.library());
        if !process::passes(&mut node)? {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
