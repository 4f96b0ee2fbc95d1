//! Programs that `cargo install` compiles.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::announce;
use crate::process;
use crate::project::Project;

/// A program that cargo installs, and the version of it that will do.
#[derive(Clone, Debug)]
pub struct CargoTool {
    program: &'static str,
    package: &'static str,
    version: Version,
    /// Whether only this very version will do, or a later patch of it too.
    exact: bool,
    /// Whether to build with the dependencies that its authors locked.
    locked: bool,
    /// What to build of it; all that it has when none is named.
    features: &'static [&'static str],
    minutes: &'static str,
    purpose: &'static str,
}

impl CargoTool {
    /// The version of the command must be the library's: the two talk through
    /// a custom section of the module whose format has no promise.
    pub fn wasm_bindgen(project: &Project) -> Result<Self> {
        let lock = fs::read_to_string(project.root().join("Cargo.lock"))?;
        let version = locked_version(&lock, "wasm-bindgen")
            .context("Cargo.lock names no version of wasm-bindgen")?;
        Ok(Self {
            program: "wasm-bindgen",
            package: "wasm-bindgen-cli",
            version,
            exact: true,
            // The lock file that it ships names a version that was withdrawn.
            locked: false,
            features: &[],
            minutes: "2 to 3",
            purpose: "the JavaScript side of every WebAssembly module",
        })
    }

    pub fn trunk() -> Self {
        Self {
            program: "trunk",
            package: "trunk",
            version: Version {
                major: 0,
                minor: 21,
                patch: 14,
            },
            exact: false,
            // Its newest dependencies do not compile together.
            locked: true,
            features: &[],
            minutes: "5 to 8",
            purpose: "bundling the page",
        }
    }

    pub fn wasm_pack() -> Self {
        Self {
            program: "wasm-pack",
            package: "wasm-pack",
            version: Version {
                major: 0,
                minor: 15,
                patch: 1,
            },
            exact: false,
            locked: true,
            features: &[],
            minutes: "1 to 2",
            purpose: "the library for JavaScript and the tests in a browser",
        }
    }

    pub fn mdbook() -> Self {
        Self {
            program: "mdbook",
            package: "mdbook",
            version: Version {
                major: 0,
                minor: 5,
                patch: 4,
            },
            exact: false,
            locked: true,
            // Its server and its watcher are most of what it compiles.
            features: &["search"],
            minutes: "4",
            purpose: "the documentation",
        }
    }

    /// Compiles the program unless a fitting version would be started anyway.
    pub fn ensure(&self, project: &Project) -> Result<()> {
        let Self {
            program,
            package,
            version,
            ..
        } = self;
        let found = self.find(project);
        let installed = found.as_ref().and_then(|path| self.version_of(path));
        if installed.is_some_and(|installed| self.accepts(installed)) {
            return Ok(());
        }
        announce(&format!(
            "{program} {version} is {}; compiling it for {} ({} minutes on two cores)",
            installed.map_or("not installed".to_owned(), |installed| format!(
                "needed and {installed} was found"
            )),
            self.purpose,
            self.minutes,
        ));
        fs::create_dir_all(project.cache())?;
        let mut cargo = super::native_cargo(project);
        cargo
            .current_dir(project.cache())
            .args([
                "install",
                package,
                "--version",
                &version.to_string(),
                "--root",
            ])
            .arg(project.tools())
            // The programs run for seconds and compile for minutes.
            .env("CARGO_PROFILE_RELEASE_LTO", "false")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        if self.locked {
            cargo.arg("--locked");
        }
        if !self.features.is_empty() {
            cargo.args([
                "--no-default-features",
                "--features",
                &self.features.join(","),
            ]);
        }
        process::run(&mut cargo)
    }

    /// The program that a command of [`super::Environment`] would start.
    fn find(&self, project: &Project) -> Option<PathBuf> {
        process::find_program(self.program, std::iter::once(project.tools().join("bin")))
            .or_else(|| process::find_on_path(self.program))
    }

    fn version_of(&self, path: &PathBuf) -> Option<Version> {
        let printed = process::read(process::command(path).arg("--version")).ok()?;
        Version::parse(printed.strip_prefix(self.program)?)
    }

    fn accepts(&self, installed: Version) -> bool {
        let wanted = self.version;
        let same_series = (installed.major, installed.minor) == (wanted.major, wanted.minor);
        if self.exact {
            installed == wanted
        } else {
            same_series && installed.patch >= wanted.patch
        }
    }
}

/// A released version: all that these tools have ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    /// Reads `1.2.3`, `1.2` or `v1.2.3`, with anything after a space left out.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        let mut parts = word
            .strip_prefix('v')
            .unwrap_or(word)
            .splitn(3, '.')
            .map(str::parse);
        let version = Self {
            major: parts.next()?.ok()?,
            minor: parts.next()?.ok()?,
            patch: parts.next().unwrap_or(Ok(0)).ok()?,
        };
        Some(version)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            major,
            minor,
            patch,
        } = self;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

/// The version that a Cargo.lock has of this package.
fn locked_version(lock: &str, package: &str) -> Option<Version> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines
        .nth(1)?
        .strip_prefix("version = \"")?
        .strip_suffix('"')?;
    Version::parse(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "\
[[package]]
name = \"wasm-bindgen\"
version = \"0.2.130\"

[[package]]
name = \"wasm-bindgen-test\"
version = \"0.3.80\"
";

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn the_lock_file_decides_the_version() {
        assert_eq!(
            locked_version(LOCK, "wasm-bindgen"),
            Some(version("0.2.130"))
        );
        assert_eq!(
            locked_version(LOCK, "wasm-bindgen-test"),
            Some(version("0.3.80"))
        );
        assert_eq!(locked_version(LOCK, "wasm"), None);
        assert_eq!(locked_version("", "wasm-bindgen"), None);
    }

    #[test]
    fn versions_are_read_as_programs_print_them() {
        assert_eq!(version(" 0.21.14\n").to_string(), "0.21.14");
        assert_eq!(
            version("1.96.0 (ac68faa20 2026-05-25)").to_string(),
            "1.96.0"
        );
        assert_eq!(version("1.95").to_string(), "1.95.0");
        assert_eq!(version(" v0.5.4\n").to_string(), "0.5.4");
        assert_eq!(Version::parse("0.22.0-beta.2"), None);
        assert_eq!(Version::parse(""), None);
    }

    #[test]
    fn a_later_patch_will_do_unless_the_version_is_exact() {
        let trunk = CargoTool::trunk();
        assert!(trunk.accepts(version("0.21.14")));
        assert!(trunk.accepts(version("0.21.15")));
        assert!(!trunk.accepts(version("0.21.13")));
        assert!(!trunk.accepts(version("0.22.14")));

        let exact = CargoTool {
            exact: true,
            ..trunk
        };
        assert!(exact.accepts(version("0.21.14")));
        assert!(!exact.accepts(version("0.21.15")));
    }
}
