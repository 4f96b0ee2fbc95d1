//! Python packages, in an environment of their own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::announce;
use super::debian::Missing;
use crate::process;
use crate::project::Project;

/// Whether there is a Python that can make an environment. Debian's is split into packages, and
/// without `ensurepip` it can only say so.
pub fn can_make_environments() -> bool {
    const CHECK: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";
    process::find_on_path("python3").is_some_and(|python| {
        process::passes(
            process::command(python)
                .args(["-c", CHECK])
                .stderr(std::process::Stdio::null()),
        )
        .unwrap_or(false)
    })
}

/// What Debian calls it.
pub const fn packages() -> Missing {
    Missing {
        packages: &["python3", "python3-venv"],
        purpose: "schemathesis, which tests the server against its description",
    }
}

/// Where the environment's programs are.
pub fn programs(project: &Project) -> PathBuf {
    directory(project).join("bin")
}

fn directory(project: &Project) -> PathBuf {
    project.cache().join("python")
}

/// Installs what `requirements` names, unless it is there.
pub fn ensure(project: &Project, requirements: &Path) -> Result<()> {
    let wanted = fs::read(requirements)?;
    let environment = directory(project);
    // Written last: an environment that was interrupted has none.
    let installed = environment.join("installed-requirements.txt");
    if fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    announce("schemathesis is missing or out of date; installing it from PyPI");
    let mut python = process::command("python3");
    python.args(["-m", "venv", "--clear"]).arg(&environment);
    process::run(&mut python)?;
    let mut pip = process::command(programs(project).join("pip"));
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ])
    .arg(requirements);
    if process::run(&mut pip).is_err() {
        bail!("pip could not install {}", requirements.display());
    }
    fs::write(installed, wanted)?;
    Ok(())
}
