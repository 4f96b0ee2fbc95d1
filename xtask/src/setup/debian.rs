//! Debian packages: installed when root asks, named when another user does.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context, Result, bail};

use super::announce;
use crate::process;

/// Packages that are missing, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub packages: &'static [&'static str],
    pub purpose: &'static str,
}

/// Installs these packages, or fails with the command that does.
pub fn install(missing: &[Missing]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    for part in missing {
        announce(&format!(
            "{} missing, for {}",
            part.packages.join(" "),
            part.purpose
        ));
    }
    if process::find_on_path("apt-get").is_none() {
        bail!(
            "this machine has no apt-get: install what these packages hold and run the command \
             again: {}",
            names(missing).join(" "),
        );
    }
    match steps(missing, user_id()?) {
        Steps::Run(commands) => {
            for arguments in commands {
                announce(&format!("apt-get {}", arguments.join(" ")));
                let mut command = process::command("apt-get");
                command
                    .args(arguments)
                    .env("DEBIAN_FRONTEND", "noninteractive");
                process::run(&mut command)?;
            }
            Ok(())
        }
        Steps::Tell(command) => bail!(
            "Debian packages are missing, and only root can install them. Run this, then the \
             same command again:\n\n    {command}\n"
        ),
    }
}

/// The system that this machine runs, as os-release names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    pub id: String,
    pub version_id: String,
}

impl Distribution {
    /// Unknown where there is no os-release.
    pub fn detect() -> Self {
        fs::read_to_string("/etc/os-release")
            .map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(os_release: &str) -> Self {
        let value = |key: &str| {
            os_release
                .lines()
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.trim_matches('"').to_owned())
                .unwrap_or_default()
        };
        Self {
            id: value("ID"),
            version_id: value("VERSION_ID"),
        }
    }
}

enum Steps {
    Run([Vec<&'static str>; 2]),
    Tell(String),
}

fn steps(missing: &[Missing], user_id: u32) -> Steps {
    const INSTALL: [&str; 2] = ["install", "--no-install-recommends"];
    let packages = names(missing);
    if user_id == 0 {
        let mut install = INSTALL.to_vec();
        install.push("--yes");
        install.extend(packages);
        Steps::Run([vec!["update"], install])
    } else {
        Steps::Tell(format!(
            "sudo apt-get {} {}",
            INSTALL.join(" "),
            packages.join(" ")
        ))
    }
}

fn names(missing: &[Missing]) -> Vec<&'static str> {
    missing
        .iter()
        .flat_map(|part| part.packages)
        .copied()
        .collect()
}

/// The effective user, as the kernel tells it through the owner of this
/// process's own directory.
fn user_id() -> Result<u32> {
    Ok(fs::metadata("/proc/self")
        .context("cannot read /proc/self")?
        .uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: [Missing; 2] = [
        Missing {
            packages: &["a", "b"],
            purpose: "one thing",
        },
        Missing {
            packages: &["c"],
            purpose: "another",
        },
    ];

    #[test]
    fn root_installs_everything_in_one_go() {
        let Steps::Run(commands) = steps(&MISSING, 0) else {
            panic!("root can install")
        };
        assert_eq!(commands[0], ["update"]);
        assert_eq!(
            commands[1],
            ["install", "--no-install-recommends", "--yes", "a", "b", "c"]
        );
    }

    #[test]
    fn another_user_is_told_one_command() {
        let Steps::Tell(command) = steps(&MISSING, 1000) else {
            panic!("only root can install")
        };
        assert_eq!(
            command,
            "sudo apt-get install --no-install-recommends a b c"
        );
    }

    #[test]
    fn nothing_missing_needs_nothing() {
        install(&[]).unwrap();
    }

    #[test]
    fn os_release_is_read_with_and_without_quotes() {
        let debian = Distribution::parse("NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n");
        assert_eq!(
            debian,
            Distribution {
                id: "debian".into(),
                version_id: "12".into()
            }
        );
        assert_eq!(Distribution::parse(""), Distribution::default());
    }
}
