//! Builds what is shipped: the page, and the library for JavaScript.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::dist;
use crate::process;
use crate::project::Project;
use crate::setup::{self, Environment, Need};

/// What the page's build needs.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::Trunk,
    Need::NodePackages,
];

/// Everything below the root that the page is made from.
const SOURCES: [&str; 8] = [
    ".cargo",
    "Cargo.lock",
    "Cargo.toml",
    "Trunk.toml",
    "crates",
    "index.html",
    "package-lock.json",
    "web",
];

/// Writes the deployable page to dist/, unless it is newer than its sources.
pub fn build(environment: &Environment) -> Result<()> {
    let project = environment.project();
    let stamp = project.scratch().join("page-built");
    if project.dist().join("index.html").is_file() && is_newer_than_sources(&stamp, project)? {
        return Ok(());
    }
    // The stamp bears the time before the build, so that a file saved while
    // it runs counts as newer.
    let start = SystemTime::now();
    let mut trunk = environment.tool("trunk")?;
    trunk
        .arg("build")
        // Set-up chose the version; a newer one is no news here.
        .env("TRUNK_SKIP_VERSION_CHECK", "true")
        // trunk refuses to start when it is set to 1, as is the custom.
        .env_remove("NO_COLOR");
    process::run(&mut trunk)?;
    dist::write_list(&project.dist())?;
    fs::create_dir_all(project.scratch())?;
    File::create(&stamp)?.set_modified(start)?;
    Ok(())
}

/// Every browser that has WebGPU has these instructions, and without WebGPU the model's products are
/// computed by them.
const SIMD: &str = r#"target.wasm32-unknown-unknown.rustflags=["-C","target-feature=+simd128"]"#;

/// Builds the model's Web Worker: a script, and the WebAssembly that it starts.
///
/// Not by trunk, which cannot turn instructions on for one crate.
pub fn build_model_worker(environment: &Environment) -> Result<()> {
    let project = environment.project();
    let out = project.model_worker();
    let mut cargo = environment.tool("cargo")?;
    cargo
        .args(["build", "--locked", "--profile", "page"])
        .args(["--package", "evidence-model-worker"])
        .args(["--target", setup::WASM_TARGET, "--config", SIMD]);
    process::run(&mut cargo)?;
    let compiled = project
        .target()
        .join(setup::WASM_TARGET)
        .join("page/evidence_model_worker.wasm");
    let mut bindgen = environment.tool("wasm-bindgen")?;
    bindgen
        .args(["--target", "web", "--no-typescript", "--out-dir"])
        .arg(&out)
        .arg(&compiled);
    process::run(&mut bindgen)?;
    let wasm = out.join("evidence_model_worker_bg.wasm");
    let mut optimize = environment.tool("wasm-opt")?;
    optimize
        .args(["-Oz", "--all-features", "-o"])
        .arg(&wasm)
        .arg(&wasm);
    process::run(&mut optimize)?;
    let script = project
        .root()
        .join("crates/evidence-model-worker/js/worker.js");
    fs::copy(&script, out.join("worker.js"))
        .with_context(|| format!("cannot copy {}", script.display()))?;
    Ok(())
}

/// Builds evidence-wasm as npm packs it, without and with processes.
pub fn build_library(environment: &Environment) -> Result<()> {
    let project = environment.project();
    build_npm(environment, &project.library(), &[])?;
    build_npm(
        environment,
        &project.library_with_processes(),
        &["--features", "processes"],
    )
}

fn build_npm(environment: &Environment, out: &Path, features: &[&str]) -> Result<()> {
    let mut wasm_pack = environment.tool("wasm-pack")?;
    wasm_pack
        .args([
            "build",
            "--profile",
            "page",
            "--target",
            "web",
            "--mode",
            "no-install",
            "--out-dir",
        ])
        .arg(out)
        .arg(environment.project().root().join("crates/evidence-wasm"))
        .args(features);
    process::run(&mut wasm_pack)?;
    let script = out.join("evidence_wasm.js");
    fs::write(
        &script,
        without_documentation(&fs::read_to_string(&script)?),
    )?;
    Ok(())
}

/// A script that wasm-bindgen wrote, without the documentation of its items: that stands in the
/// declarations as well, which nobody downloads to run them.
fn without_documentation(script: &str) -> String {
    let mut inside = false;
    let mut kept = String::new();
    for line in script.lines() {
        let text = line.trim();
        inside |= text.starts_with("/**");
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
        inside &= !text.ends_with("*/");
    }
    kept
}

fn is_newer_than_sources(stamp: &Path, project: &Project) -> Result<bool> {
    let Ok(built) = stamp.metadata().and_then(|metadata| metadata.modified()) else {
        return Ok(false);
    };
    for source in SOURCES {
        let path = project.root().join(source);
        if path.exists() && newest_change(&path)? >= built {
            return Ok(false);
        }
    }
    Ok(true)
}

/// When anything at or below this path was last changed; a directory's own
/// time tells of files that are gone.
fn newest_change(path: &Path) -> Result<SystemTime> {
    let metadata = path
        .metadata()
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut newest = metadata.modified()?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            newest = newest.max(newest_change(&entry?.path())?);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_script_loses_the_documentation_of_its_items_and_nothing_else() {
        let script = "/**\n * What it is.\n */\nexport class A {\n    /** One line. */\n    b() {\n        // c\n    }\n}\n";
        let bare = "export class A {\n    b() {\n        // c\n    }\n}\n";
        assert_eq!(without_documentation(script), bare);
    }

    #[test]
    fn the_newest_file_counts_however_deep() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let later = SystemTime::now() + Duration::from_secs(100);
        File::create(deep.join("file"))
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_eq!(newest_change(root.path()).unwrap(), later);
        fs::remove_file(deep.join("file")).unwrap();
        assert!(newest_change(root.path()).unwrap() < later);
    }
}
