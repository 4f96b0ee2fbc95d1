//! Builds what is shipped: the page, and the library for JavaScript.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::dist;
use crate::process;
use crate::setup::{self, Environment, Need};
use crate::stamp;

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

/// What of it the library for JavaScript is made from.
pub const LIBRARY_SOURCES: [&str; 4] = [".cargo", "Cargo.lock", "Cargo.toml", "crates"];

/// Writes the deployable page to dist/, unless it is newer than its sources.
pub fn build(environment: &Environment) -> Result<()> {
    build_model_worker(environment)?;
    let project = environment.project();
    let made = [project.dist().join("index.html")];
    stamp::unless_newer(project, "page-built", &made, &SOURCES, || {
        let mut trunk = environment.tool("trunk")?;
        trunk
            .arg("build")
            // Set-up chose the version; a newer one is no news here.
            .env("TRUNK_SKIP_VERSION_CHECK", "true")
            // trunk refuses to start when it is set to 1, as is the custom.
            .env_remove("NO_COLOR");
        process::run(&mut trunk)?;
        // A page fetches it when a live run asks for it.
        dist::copy(&project.model_worker(), &project.dist().join(MODEL_WORKER))?;
        dist::write_list(&project.dist())
    })
}

/// Every browser that has WebGPU has these instructions, and without WebGPU the model's products are
/// computed by them.
const SIMD: &str = r#"target.wasm32-unknown-unknown.rustflags=["-C","target-feature=+simd128"]"#;

/// What wasm-opt may use of WebAssembly: what rustc and wasm-bindgen use, because "all" includes what no
/// browser has yet.
const WASM_FEATURES: [&str; 7] = [
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-sign-ext",
    "--enable-simd",
];

/// Where the page expects the model's worker, beside itself.
const MODEL_WORKER: &str = "evidence-model-worker";

/// What the model's worker is made from: most changes to the page are none to it, and it takes minutes.
const MODEL_WORKER_SOURCES: [&str; 8] = [
    ".cargo",
    "Cargo.lock",
    "Cargo.toml",
    "crates/evidence-agent",
    "crates/evidence-core",
    "crates/evidence-model-protocol",
    "crates/evidence-model-worker",
    "crates/evidence-qwen/src",
];

/// Builds the model's Web Worker, a script and the WebAssembly that it starts, unless it is newer than
/// its sources.
///
/// Not by trunk, which cannot turn instructions on for one crate.
pub fn build_model_worker(environment: &Environment) -> Result<()> {
    let project = environment.project();
    let out = project.model_worker();
    let made = [out.join("worker.js")];
    stamp::unless_newer(
        project,
        "model-worker-built",
        &made,
        &MODEL_WORKER_SOURCES,
        || compile_model_worker(environment, &out),
    )
}

fn compile_model_worker(environment: &Environment, out: &Path) -> Result<()> {
    let project = environment.project();
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
        .arg(out)
        .arg(&compiled);
    process::run(&mut bindgen)?;
    let wasm = out.join("evidence_model_worker_bg.wasm");
    let mut optimize = environment.tool("wasm-opt")?;
    optimize
        .args(["-Oz", "-o"])
        .arg(&wasm)
        .args(WASM_FEATURES)
        .arg(&wasm);
    process::run(&mut optimize)?;
    let script = project
        .root()
        .join("crates/evidence-model-worker/js/worker.js");
    fs::copy(&script, out.join("worker.js"))
        .with_context(|| format!("cannot copy {}", script.display()))?;
    Ok(())
}

/// Builds evidence-wasm without and with processes, unless both are newer than their sources.
pub fn build_library(environment: &Environment) -> Result<()> {
    let project = environment.project();
    let made = [project.library(), project.library_with_processes()];
    stamp::unless_newer(project, "library-built", &made, &LIBRARY_SOURCES, || {
        let [plain, with_processes] = &made;
        bind(environment, "evidence_wasm", plain, &[])?;
        let features = ["--features", "processes"];
        bind(
            environment,
            "evidence_wasm_processes",
            with_processes,
            &features,
        )
    })
}

/// Writes evidence-wasm and its bindings, under this name.
fn bind(environment: &Environment, name: &str, out: &Path, features: &[&str]) -> Result<()> {
    // Files of other names, from before, would be measured and shipped.
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
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
            "--out-name",
            name,
            "--out-dir",
        ])
        .arg(out)
        .arg(environment.project().root().join("crates/evidence-wasm"))
        .args(features);
    process::run(&mut wasm_pack)?;
    let script = out.join(format!("{name}.js"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_loses_the_documentation_of_its_items_and_nothing_else() {
        let script = "/**\n * What it is.\n */\nexport class A {\n    /** One line. */\n    b() {\n        // c\n    }\n}\n";
        let bare = "export class A {\n    b() {\n        // c\n    }\n}\n";
        assert_eq!(without_documentation(script), bare);
    }
}
