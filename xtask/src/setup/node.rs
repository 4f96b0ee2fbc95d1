//! The packages of a package.json, as its lock file names them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::announce;
use crate::process;
use crate::project::Project;

const MINIMUM_MAJOR: u32 = 20;

/// Where the packages' programs are.
pub fn programs(project: &Project) -> PathBuf {
    project.root().join("node_modules/.bin")
}

/// Installs the packages that a directory's package-lock.json names, unless they are there.
pub fn ensure(directory: &Path, purpose: &str) -> Result<()> {
    check_version(
        &process::read(process::command("node").arg("--version"))
            .context("Node.js is not installed: install version 20 or later, with npm")?,
    )?;
    let lock = fs::read(directory.join("package-lock.json"))?;
    // npm leaves no trace of the lock file that it installed from, so a copy
    // is kept; it goes away with node_modules.
    let installed = directory.join("node_modules/.installed-package-lock.json");
    if fs::read(&installed).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    announce(&format!(
        "{} is missing or out of date; running npm ci for {purpose}",
        directory.join("node_modules").display()
    ));
    let mut npm = process::command("npm");
    npm.args(["ci", "--no-audit", "--no-fund"])
        .current_dir(directory);
    process::run(&mut npm)?;
    fs::write(installed, lock)?;
    Ok(())
}

fn check_version(printed: &str) -> Result<()> {
    let printed = printed.trim();
    let major = printed
        .strip_prefix('v')
        .and_then(|version| version.split('.').next())
        .and_then(|major| major.parse::<u32>().ok())
        .with_context(|| format!("node --version printed {printed:?}, which is no version"))?;
    if major < MINIMUM_MAJOR {
        bail!("Node.js {printed} is too old: install version {MINIMUM_MAJOR} or later");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_version;

    #[test]
    fn node_20_and_later_will_do() {
        check_version("v20.20.2\n").unwrap();
        check_version("v24.0.0").unwrap();
        assert!(
            check_version("v18.19.0")
                .unwrap_err()
                .to_string()
                .contains("too old")
        );
        assert!(check_version("20").is_err());
    }
}
