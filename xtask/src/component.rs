//! Builds the WebAssembly component and runs its tests in both hosts.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use wit_component::ComponentEncoder;

use crate::process;
use crate::project::{Project, files_ending};
use crate::setup::{self, Environment, Need};

/// What the component's build and its tests need.
pub const NEEDS: &[Need] = &[Need::WasmTarget, Need::NodePackages];

const MODULE: &str = "evidence_component.wasm";

/// Writes the component: the core module, optimized, and around it the types of its interfaces.
pub fn build(environment: &Environment) -> Result<()> {
    let project = environment.project();
    let mut cargo = environment.tool("cargo")?;
    cargo
        .args(["build", "--locked", "--profile", "page"])
        .args(["--package", "evidence-component"])
        .args(["--target", setup::WASM_TARGET])
        .env("CARGO_TARGET_DIR", project.target());
    process::run(&mut cargo)?;

    let module = project.target().join(setup::WASM_TARGET).join("page");
    let optimized = project.scratch().join(MODULE);
    fs::create_dir_all(project.scratch())?;
    let mut wasm_opt = environment.tool("wasm-opt")?;
    wasm_opt
        .arg("-Oz")
        .arg(module.join(MODULE))
        .arg("--output")
        .arg(&optimized);
    process::run(&mut wasm_opt)?;

    let component = ComponentEncoder::default()
        .module(&fs::read(&optimized)?)
        .and_then(|encoder| encoder.validate(true).encode())
        .context("the module is not one of a component")?;
    let path = project.component();
    fs::create_dir_all(path.parent().unwrap_or(project.root()))?;
    fs::write(&path, component).with_context(|| format!("cannot write {}", path.display()))
}

/// The tests in wasmtime.
pub fn wasmtime_tests(project: &Project) -> Command {
    let mut cargo = setup::native_cargo(project);
    cargo.args(["test", "--locked", "--no-fail-fast"]);
    cargo.args(["--package", "evidence-component"]);
    cargo
}

/// The tests in Node, by way of jco.
pub fn node_tests(environment: &Environment) -> Result<Command> {
    let project = environment.project();
    let mut node = environment.tool("node")?;
    node.args(["--test", "--test-reporter=spec"])
        .args(files_ending(&project.component_tests(), ".test.mjs")?);
    Ok(node)
}
