//! Builds what is shipped: the page, and the library for JavaScript.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::dist;
use crate::process;
use crate::setup::{Environment, Need};
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
        dist::write_list(&project.dist())
    })
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
