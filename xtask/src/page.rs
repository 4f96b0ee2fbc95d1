//! Builds what is shipped: the page, and the library for JavaScript.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::dist;
use crate::process;
use crate::project::Project;
use crate::setup::{Environment, Need};

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

/// Builds the npm package of evidence-wasm.
pub fn build_library(environment: &Environment) -> Result<()> {
    let project = environment.project();
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
        .arg(project.library())
        .arg(project.root().join("crates/evidence-wasm"));
    process::run(&mut wasm_pack)
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
