//! Builds the npm package, packs it, and installs the tarball where its tests and examples run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::project::{Project, files_ending};
use crate::setup::{Environment, Need};
use crate::{dist, page, process, stamp};

/// What the package's build needs.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::WasmPack,
    Need::NodePackages,
    Need::PackageNodePackages,
];

/// What it is made from, beside the library.
const SOURCES: [&str; 3] = ["npm/minify.mjs", "npm/package", "npm/package-lock.json"];

/// Where the package, its examples and its tests are.
pub fn sources(project: &Project) -> PathBuf {
    project.root().join("npm")
}

/// A program of the packages there.
pub fn program(project: &Project, name: &str) -> PathBuf {
    sources(project).join("node_modules/.bin").join(name)
}

/// What becomes the tarball.
pub fn stage(project: &Project) -> PathBuf {
    project.target().join("npm/bounded-evidence")
}

/// The tarball: npm names it after the package and its version, which is the library's.
fn tarball(project: &Project) -> PathBuf {
    let name = concat!("bounded-evidence-", env!("CARGO_PKG_VERSION"), ".tgz");
    project.target().join("npm").join(name)
}

/// Writes the package and its tarball below target/npm, unless they are newer than their sources, and
/// returns the tarball.
pub fn build(environment: &Environment) -> Result<PathBuf> {
    page::build_library(environment)?;
    let project = environment.project();
    let made = [stage(project), tarball(project)];
    let sources = [&SOURCES[..], &page::LIBRARY_SOURCES].concat();
    stamp::unless_newer(project, "package-built", &made, &sources, || {
        assemble(project)
    })?;
    Ok(tarball(project))
}

/// Writes the package over the library, and packs it.
fn assemble(project: &Project) -> Result<()> {
    let (sources, stage) = (sources(project), stage(project));
    let dist = stage.join("dist");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    let wasm = dist.join("wasm");
    fs::create_dir_all(&wasm)?;
    for (library, name) in [
        (project.library(), "evidence_wasm"),
        (project.library_with_processes(), "evidence_wasm_processes"),
    ] {
        for ending in [".js", ".d.ts", "_bg.wasm"] {
            let file = format!("{name}{ending}");
            fs::copy(library.join(&file), wasm.join(&file))?;
        }
        // Both builds have the same, among it the class of the errors.
        dist::copy(&library.join("snippets"), &wasm.join("snippets"))?;
    }
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

    let mut npm = process::command("npm");
    npm.args(["pack", "--ignore-scripts", "--silent", "--pack-destination"])
        .arg(project.target().join("npm"))
        .current_dir(&stage);
    process::run(&mut npm)
}

/// Unpacks the tarball beside the packages that it is tested against, which is all that npm does with
/// a package that depends on nothing; npm itself would ask a registry for the others.
pub fn install(environment: &Environment, tarball: &Path) -> Result<()> {
    let installed = sources(environment.project()).join("node_modules/bounded-evidence");
    if installed.exists() {
        fs::remove_dir_all(&installed)?;
    }
    fs::create_dir_all(&installed)?;
    let mut tar = process::command("tar");
    tar.args(["--extract", "--gzip", "--strip-components=1", "--file"])
        .arg(tarball)
        .arg("--directory")
        .arg(&installed);
    process::run(&mut tar)
}
