//! Runs vector files in Chromium, over IndexedDB and files in memory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::serve::Server;
use crate::setup::{Environment, Need};

/// What a run in the browser needs.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::NodePackages,
    Need::Browser,
];

/// The vector files of the project.
pub fn project_vectors(environment: &Environment) -> Result<Vec<PathBuf>> {
    let directory = environment.project().root().join("tests/vectors");
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Builds the checks for the browser and hands `run` the command that runs
/// them; what it runs against is served meanwhile.
pub fn in_browser<T>(
    environment: &Environment,
    files: &[PathBuf],
    run: impl FnOnce(&mut Command) -> Result<T>,
) -> Result<T> {
    let project = environment.project();
    let mut cargo = environment.tool("cargo")?;
    cargo.args([
        "build",
        "--locked",
        "--package",
        "evidence-conformance",
        "--lib",
        "--target",
        "wasm32-unknown-unknown",
    ]);
    process::run(&mut cargo)?;
    let site = project.scratch().join("conformance");
    let built = "target/wasm32-unknown-unknown/debug/evidence_conformance.wasm";
    let mut bindgen = environment.tool("wasm-bindgen")?;
    bindgen
        .args(["--target", "web", "--no-typescript", "--out-dir"])
        .arg(&site)
        .arg(project.root().join(built));
    process::run(&mut bindgen)?;
    fs::write(
        site.join("index.html"),
        "<!doctype html><title>Conformance</title>",
    )?;

    let server = Server::start(&site, "/", 0)?;
    let mut node = environment.tool("node")?;
    node.arg(project.root().join("tests/browser/conformance.mjs"))
        .args(files)
        .env("PAGE_URL", server.url())
        .env("CHROMIUM", &environment.browser()?.chromium);
    run(&mut node)
}
