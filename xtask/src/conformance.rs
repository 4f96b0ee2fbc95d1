//! Runs the recorded vectors: natively by the project's command, and in a
//! browser by the same checks compiled to WebAssembly.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::project::Project;
use crate::serve::Server;
use crate::setup::{self, Environment, Need};

/// What the run in a browser needs.
pub const BROWSER_NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::NodePackages,
    Need::Browser,
];

const MODULE: &str = "evidence_conformance";

/// The command that runs these files natively.
pub fn native(project: &Project, files: &[PathBuf]) -> Command {
    let mut cargo = setup::native_cargo(project);
    cargo
        .args([
            "run",
            "--quiet",
            "--locked",
            "--package",
            "evidence-cli",
            "--",
            "conformance",
        ])
        .args(files);
    cargo
}

/// The checks on a page of their own, served while this lives.
pub struct BrowserChecks {
    server: Server,
}

impl BrowserChecks {
    /// Compiles the checks and serves them.
    pub fn start(environment: &Environment) -> Result<Self> {
        let project = environment.project();
        let mut cargo = environment.tool("cargo")?;
        cargo
            .args([
                "build",
                "--locked",
                "--package",
                "evidence-conformance",
                "--target",
            ])
            .arg(setup::WASM_TARGET)
            .env("CARGO_TARGET_DIR", project.target());
        process::run(&mut cargo)?;

        let site = project.scratch().join("conformance");
        let module = project
            .target()
            .join(setup::WASM_TARGET)
            .join("debug")
            .join(MODULE);
        let mut wasm_bindgen = environment.tool("wasm-bindgen")?;
        wasm_bindgen
            .args(["--target", "web", "--no-typescript", "--out-dir"])
            .arg(&site)
            .arg(module.with_extension("wasm"));
        process::run(&mut wasm_bindgen)?;
        fs::write(
            site.join("index.html"),
            "<!doctype html>\n<title>Conformance</title>\n",
        )
        .with_context(|| format!("cannot write to {}", site.display()))?;
        Ok(Self {
            server: Server::start(&site, "/", 0)?,
        })
    }

    /// The command that runs these files on the page.
    pub fn command(&self, environment: &Environment, files: &[PathBuf]) -> Result<Command> {
        let mut node = environment.node_with_browser()?;
        node.arg("tests/browser/conformance.mjs")
            .args(files)
            .env("PAGE_URL", self.server.url());
        Ok(node)
    }
}
