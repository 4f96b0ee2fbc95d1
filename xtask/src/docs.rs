//! Builds the documentation: the book, and beside it the descriptions of both interfaces from their
//! sources.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::dist;
use crate::package;
use crate::process;
use crate::project::Project;
use crate::setup::{self, Environment, Need};
use crate::stamp;

/// What building the documentation needs: the types of the library for JavaScript are part of it.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::WasmPack,
    Need::NodePackages,
    Need::MdBook,
    Need::PackageNodePackages,
];

/// The crates that other people's programs are written against.
const CRATES: [&str; 3] = ["evidence-core", "evidence-store", "evidence-agent"];

/// Everything below the root that the documentation is made from.
const SOURCES: [&str; 10] = [
    ".cargo",
    "Cargo.lock",
    "Cargo.toml",
    "crates",
    "docs",
    "npm/examples",
    "npm/minify.mjs",
    "npm/package",
    "npm/package-lock.json",
    "npm/typedoc.jsonc",
];

/// Where the documentation is, beside the page that it embeds.
pub fn place(project: &Project) -> PathBuf {
    project.dist().join("docs")
}

/// Writes the documentation to dist/docs/, unless it is newer than its sources.
pub fn build(environment: &Environment) -> Result<()> {
    let project = environment.project();
    let place = place(project);
    let made = [place.join("index.html")];
    stamp::unless_newer(project, "docs-built", &made, &SOURCES, || {
        // It empties the directory first.
        let mut mdbook = environment.tool("mdbook")?;
        mdbook
            .args(["build", "--dest-dir"])
            .arg(&place)
            .arg(project.docs());
        process::run(&mut mdbook)?;
        rust(project, &place.join("api/rust"))?;
        typescript(environment, &place.join("api/typescript"))
    })
}

/// What rustdoc says of the crates.
fn rust(project: &Project, place: &Path) -> Result<()> {
    // What was documented there before would be listed, too.
    let made = project.target().join("doc");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    let mut cargo = setup::native_cargo(project);
    cargo.args(["doc", "--no-deps", "--locked"]);
    for name in CRATES {
        cargo.args(["--package", name]);
    }
    process::run(&mut cargo)?;
    dist::copy(&made, place)
}

/// What typedoc says of the npm package; a public item without documentation fails it.
fn typescript(environment: &Environment, place: &Path) -> Result<()> {
    package::build(environment)?;
    let project = environment.project();
    let mut typedoc = process::command(package::program(project, "typedoc"));
    typedoc
        .arg("--out")
        .arg(place)
        .current_dir(package::sources(project));
    process::run(&mut typedoc)
}
