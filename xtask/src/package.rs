//! Builds the npm package, packs it, and installs the tarball where its tests and examples run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::project::{Project, files_ending};
use crate::setup::{Environment, Need};
use crate::{page, process};

/// What the package's build needs.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::WasmPack,
    Need::NodePackages,
    Need::PackageNodePackages,
];

/// Where the package, its examples and its tests are.
pub fn sources(project: &Project) -> PathBuf {
    project.root().join("npm")
}

/// A program of the packages there.
pub fn program(project: &Project, name: &str) -> PathBuf {
    sources(project).join("node_modules/.bin").join(name)
}

/// What becomes the tarball.
fn stage(project: &Project) -> PathBuf {
    project.target().join("npm/bounded-evidence")
}

/// Writes the package and its tarball below target/npm, and returns the tarball.
pub fn build(environment: &Environment) -> Result<PathBuf> {
    page::build_library(environment)?;
    assemble(environment)
}

/// The same over a library that has been built.
pub fn assemble(environment: &Environment) -> Result<PathBuf> {
    let project = environment.project();
    let (sources, stage) = (sources(project), stage(project));
    let dist = stage.join("dist");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    let wasm = dist.join("wasm");
    fs::create_dir_all(&wasm)?;
    for file in [
        "evidence_wasm.js",
        "evidence_wasm.d.ts",
        "evidence_wasm_bg.wasm",
    ] {
        fs::copy(project.library().join(file), wasm.join(file))?;
    }
    copy_directory(&project.library().join("snippets"), &wasm.join("snippets"))?;
    for file in ["package.json", "README.md"] {
        fs::copy(sources.join("package").join(file), stage.join(file))?;
    }
    let mut compiler = process::command(program(project, "tsc"));
    compiler
        .arg("--project")
        .arg(sources.join("package"))
        .current_dir(project.root());
    process::run(&mut compiler)?;
    // The declarations keep the documentation.
    let mut minifier = process::command("node");
    minifier
        .arg(sources.join("minify.mjs"))
        .args(files_ending(&dist, ".js")?)
        .args(files_ending(&wasm, ".js")?);
    process::run(&mut minifier)?;

    let out = project.target().join("npm");
    for old in files_ending(&out, ".tgz")? {
        fs::remove_file(old)?;
    }
    let mut npm = process::command("npm");
    npm.args(["pack", "--ignore-scripts", "--silent", "--pack-destination"])
        .arg(&out)
        .current_dir(&stage);
    process::run(&mut npm)?;
    let tarballs = files_ending(&out, ".tgz")?;
    tarballs.into_iter().next().context("npm packed nothing")
}

/// Installs the tarball beside the packages that it is tested against. It needs no network, because
/// the package depends on nothing.
pub fn install(environment: &Environment, tarball: &Path) -> Result<()> {
    let mut npm = process::command("npm");
    npm.args(["install", "--offline", "--no-save", "--no-package-lock"])
        .args(["--ignore-scripts", "--no-audit", "--no-fund"])
        .arg(tarball)
        .current_dir(sources(environment.project()));
    process::run(&mut npm)
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
