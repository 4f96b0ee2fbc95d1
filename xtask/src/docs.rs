//! Builds the documentation: the book, and beside it the descriptions of both interfaces from their
//! sources.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::dist;
use crate::page;
use crate::process;
use crate::project::Project;
use crate::setup::{self, Environment, Need};

/// What building the documentation needs: the types of the library for JavaScript are part of it.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::WasmPack,
    Need::NodePackages,
    Need::MdBook,
    Need::TypeDoc,
];

/// The crates that other people's programs are written against.
const CRATES: [&str; 3] = ["evidence-core", "evidence-store", "evidence-agent"];

/// Everything below the root that the documentation is made from.
const SOURCES: [&str; 4] = ["Cargo.lock", "Cargo.toml", "crates", "docs"];

/// What of them the library for JavaScript is made from.
const LIBRARY_SOURCES: [&str; 3] = ["Cargo.lock", "Cargo.toml", "crates"];

/// Where the documentation is, beside the page that it embeds.
pub fn place(project: &Project) -> PathBuf {
    project.dist().join("docs")
}

/// Writes the documentation to dist/docs/, unless it is newer than its sources.
pub fn build(environment: &Environment) -> Result<()> {
    let project = environment.project();
    let place = place(project);
    let stamp = project.scratch().join("docs-built");
    if place.join("index.html").is_file() && page::is_newer_than(&stamp, project, &SOURCES)? {
        return Ok(());
    }
    let start = SystemTime::now();
    // It empties the directory first.
    let mut mdbook = environment.tool("mdbook")?;
    mdbook
        .args(["build", "--dest-dir"])
        .arg(&place)
        .arg(project.docs());
    process::run(&mut mdbook)?;
    rust(project, &place.join("api/rust"))?;
    typescript(environment, &place.join("api/typescript"))?;
    fs::create_dir_all(project.scratch())?;
    File::create(&stamp)?.set_modified(start)?;
    Ok(())
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
    copy(&made, place)
}

/// What typedoc says of the types that wasm-bindgen has written.
fn typescript(environment: &Environment, place: &Path) -> Result<()> {
    let project = environment.project();
    // The build with processes has all that the other has.
    let types = project.library_with_processes().join("evidence_wasm.d.ts");
    if !page::is_newer_than(&types, project, &LIBRARY_SOURCES)? {
        page::build_library(environment)?;
    }
    let mut typedoc = environment.tool("node")?;
    typedoc
        .arg(project.docs().join("node_modules/typedoc/bin/typedoc"))
        .arg("--options")
        .arg(project.docs().join("typedoc.json"))
        .arg("--entryPoints")
        .arg(types)
        .arg("--out")
        .arg(place);
    process::run(&mut typedoc)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in dist::files(from)? {
        let target = to.join(file.strip_prefix(from)?);
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::copy(&file, &target).with_context(|| format!("cannot write {}", target.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_copied_with_all_that_is_in_them() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/c.txt"), "text").unwrap();
        let to = directory.path().join("to");
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("a/b/c.txt")).unwrap(), b"text");
    }
}
