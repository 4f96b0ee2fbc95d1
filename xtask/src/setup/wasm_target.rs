//! A Rust toolchain that compiles for wasm32-unknown-unknown.
//!
//! Three ways, in this order: the rustc on the PATH has the target; rustup
//! adds it; or, where rustup's server cannot be reached, Debian's compiler
//! builds the standard library for it from Debian's sources. Debian's
//! compiler is used through a private sysroot in the user's cache, so that
//! nothing is written to /usr and rustup's toolchains stay what they are.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::announce;
use super::debian::{Distribution, Missing};
use super::tools::Version;
use crate::process;
use crate::project::Project;

/// The name of the target.
pub const TARGET: &str = "wasm32-unknown-unknown";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_LINKER: &str = "/usr/bin/wasm-ld-22";
const DEBIAN_LIBRARY_SOURCE: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";

/// How long rustup may take: without a network it waits far longer.
const RUSTUP_LIMIT: Duration = Duration::from_mins(1);
/// How long a failure of rustup is remembered.
const RUSTUP_RETRY: Duration = Duration::from_hours(24);

/// A toolchain that has the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WasmToolchain {
    /// The one that `cargo` and `rustc` on the PATH start.
    OnPath,
    /// Debian's, through a private sysroot.
    Debian { sysroot: PathBuf },
}

impl WasmToolchain {
    /// The directory whose programs go before the PATH's.
    pub fn programs(&self) -> Option<PathBuf> {
        match self {
            Self::OnPath => None,
            Self::Debian { sysroot } => Some(sysroot.join("bin")),
        }
    }

    /// Takes from the command what would lead it to rustup's toolchain.
    pub fn select(&self, command: &mut Command) {
        if let Self::Debian { .. } = self {
            for name in [
                "CARGO",
                "RUSTC",
                "RUSTDOC",
                "RUSTUP_TOOLCHAIN",
                "LD_LIBRARY_PATH",
            ] {
                command.env_remove(name);
            }
        }
    }
}

/// What a search for a toolchain came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    Ready(WasmToolchain),
    /// [`build`] can make one of what is installed.
    Parts,
    /// [`build`] can make one once [`packages`] are installed.
    Nothing,
}

/// Looks for a toolchain, and asks rustup for the target if there is none.
pub fn search(project: &Project) -> Result<Search> {
    if path_rustc_has_target() {
        return Ok(Search::Ready(WasmToolchain::OnPath));
    }
    let debian = debian_release();
    if let Some(release) = debian {
        let sysroot = sysroot(project, release);
        if sysroot.is_dir() {
            return Ok(Search::Ready(WasmToolchain::Debian { sysroot }));
        }
    }
    if rustup_adds_target(project)? && path_rustc_has_target() {
        return Ok(Search::Ready(WasmToolchain::OnPath));
    }
    let parts = [DEBIAN_CARGO, DEBIAN_LINKER, DEBIAN_LIBRARY_SOURCE];
    if debian.is_some() && parts.iter().all(|part| Path::new(part).exists()) {
        Ok(Search::Parts)
    } else {
        Ok(Search::Nothing)
    }
}

/// The packages that [`build`] works from.
pub fn packages() -> Result<Missing> {
    let Distribution { id, version_id } = Distribution::detect();
    if id != "debian" || version_id != "12" {
        bail!(
            "the Rust target {TARGET} is missing, rustup could not add it, and only Debian 12 is \
             known to have packages for it. Run `rustup target add {TARGET}` with a network, then \
             the same command again"
        );
    }
    Ok(Missing {
        packages: &["rustc-web", "cargo-web", "rust-web-src", "lld-22"],
        purpose: "compiling to WebAssembly, since rustup could not add the target",
    })
}

/// Builds the target's standard library with Debian's compiler.
pub fn build(project: &Project) -> Result<WasmToolchain> {
    let release = debian_release().with_context(|| {
        format!(
            "{DEBIAN_RUSTC} is older than Rust {}",
            env!("CARGO_PKG_RUST_VERSION")
        )
    })?;
    let sysroot = sysroot(project, release);
    announce(&format!(
        "building the standard library of {TARGET} with Debian's Rust {release}, once (1 to 2 \
         minutes)"
    ));
    fs::create_dir_all(project.cache())?;
    let scratch = tempfile::tempdir_in(project.cache())?;
    let libraries = build_libraries(scratch.path())?;
    let staged = scratch.path().join("sysroot");
    lay_out(&staged, &sysroot, &debian_host()?, &libraries)?;
    // A rename, so that an interrupted run leaves no half of it. Another run
    // that was faster has made the same.
    if let Err(error) = fs::rename(&staged, &sysroot)
        && !sysroot.is_dir()
    {
        return Err(error).with_context(|| format!("cannot write {}", sysroot.display()));
    }
    Ok(WasmToolchain::Debian { sysroot })
}

/// Compiles the standard library as the dependency of an empty crate and
/// returns its parts.
fn build_libraries(scratch: &Path) -> Result<Vec<PathBuf>> {
    const CRATE: &str = "empty";
    let manifest = format!("[package]\nname = \"{CRATE}\"\nedition = \"2024\"\n[workspace]\n");
    fs::create_dir(scratch.join("src"))?;
    fs::write(scratch.join("src/lib.rs"), "")?;
    fs::write(scratch.join("Cargo.toml"), manifest)?;

    let mut cargo = process::command(DEBIAN_CARGO);
    WasmToolchain::Debian {
        sysroot: PathBuf::new(),
    }
    .select(&mut cargo);
    cargo
        .current_dir(scratch)
        .args([
            "build",
            "--release",
            "-Zbuild-std=std,panic_abort,test",
            "--target",
            TARGET,
        ])
        .env("RUSTC", DEBIAN_RUSTC)
        // What allows -Z in a stable release.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", scratch.join("target"));
    process::run(&mut cargo)?;

    let mut libraries = Vec::new();
    for entry in fs::read_dir(scratch.join("target").join(TARGET).join("release/deps"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".rlib") && !name.starts_with(&format!("lib{CRATE}-")) {
            libraries.push(path);
        }
    }
    Ok(libraries)
}

/// Writes to `staged` what rustc expects of a sysroot that will be at `place`.
fn lay_out(staged: &Path, place: &Path, host: &str, libraries: &[PathBuf]) -> Result<()> {
    let host_libraries = Path::new("/usr/lib/rustlib").join(host).join("lib");
    let host = staged.join("lib/rustlib").join(host);
    let target = staged.join("lib/rustlib").join(TARGET).join("lib");
    let programs = staged.join("bin");
    for directory in [&host.join("bin"), &target, &programs] {
        fs::create_dir_all(directory)?;
    }
    for library in libraries {
        fs::rename(
            library,
            target.join(library.file_name().unwrap_or_default()),
        )?;
    }
    symlink(host_libraries, host.join("lib"))?;
    symlink(DEBIAN_LINKER, host.join("bin/rust-lld"))?;
    symlink(DEBIAN_CARGO, programs.join("cargo"))?;
    // rustc takes its sysroot from where its own library lies, which a link
    // does not change.
    let rustc = programs.join("rustc");
    let quoted = place.display().to_string().replace('\'', r"'\''");
    fs::write(
        &rustc,
        format!("#!/bin/sh\nexec {DEBIAN_RUSTC} --sysroot '{quoted}' \"$@\"\n"),
    )?;
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn sysroot(project: &Project, release: Version) -> PathBuf {
    // The libraries work with the very compiler that made them.
    project.cache().join(format!("rust-{release}-wasm"))
}

/// Whether the rustc that the PATH leads to has the target's libraries.
fn path_rustc_has_target() -> bool {
    let mut rustc = process::command("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]);
    let Ok(directory) = process::read(&mut rustc) else {
        return false;
    };
    fs::read_dir(directory.trim_end()).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libstd-") && name.ends_with(".rlib")
        })
    })
}

/// Asks rustup for the target; false when it is not there or has failed.
fn rustup_adds_target(project: &Project) -> Result<bool> {
    if process::find_on_path("rustup").is_none() {
        return Ok(false);
    }
    let failure = project.cache().join("rustup-target-add-failed");
    if is_recent(&failure) {
        announce(&format!(
            "rustup could not add {TARGET} earlier; not asking it again today (remove {} to ask)",
            failure.display()
        ));
        return Ok(false);
    }
    announce(&format!(
        "the Rust target {TARGET} is missing; running rustup target add"
    ));
    let mut rustup = process::command("rustup");
    rustup.args(["target", "add", TARGET]);
    let outcome = process::run_within(&mut rustup, RUSTUP_LIMIT)?;
    if outcome.is_some_and(|status| status.success()) {
        return Ok(true);
    }
    announce(&match outcome {
        Some(status) => format!("rustup failed ({status})"),
        None => format!("rustup got no answer in {} seconds", RUSTUP_LIMIT.as_secs()),
    });
    fs::create_dir_all(project.cache())?;
    fs::write(failure, "")?;
    Ok(false)
}

fn is_recent(file: &Path) -> bool {
    file.metadata()
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|time| time.elapsed().is_ok_and(|age| age < RUSTUP_RETRY))
}

/// The release of Debian's rustc, if it is there and new enough.
fn debian_release() -> Option<Version> {
    let minimum = Version::parse(env!("CARGO_PKG_RUST_VERSION"))?;
    debian_rustc_says("release: ")
        .and_then(|release| Version::parse(&release))
        .filter(|release| *release >= minimum)
}

fn debian_host() -> Result<String> {
    debian_rustc_says("host: ").with_context(|| format!("{DEBIAN_RUSTC} does not name its host"))
}

fn debian_rustc_says(label: &str) -> Option<String> {
    if !Path::new(DEBIAN_RUSTC).exists() {
        return None;
    }
    let mut rustc = process::command(DEBIAN_RUSTC);
    WasmToolchain::Debian {
        sysroot: PathBuf::new(),
    }
    .select(&mut rustc);
    let printed = process::read(rustc.arg("-vV")).ok()?;
    printed
        .lines()
        .find_map(|line| line.strip_prefix(label))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysroot_has_what_rustc_looks_for() {
        let scratch = tempfile::tempdir().unwrap();
        let library = scratch.path().join("libstd-0.rlib");
        fs::write(&library, "").unwrap();
        let staged = scratch.path().join("sysroot");
        lay_out(&staged, Path::new("/it's/here"), "host", &[library]).unwrap();
        let script = fs::read_to_string(staged.join("bin/rustc")).unwrap();
        assert!(script.contains(r"--sysroot '/it'\''s/here'"), "{script}");
        assert!(staged.join("lib/rustlib/host/bin/rust-lld").is_symlink());
        assert!(
            staged
                .join("lib/rustlib")
                .join(TARGET)
                .join("lib/libstd-0.rlib")
                .is_file()
        );
    }

    #[test]
    fn a_failure_is_remembered() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("failed");
        assert!(!is_recent(&file));
        fs::write(&file, "").unwrap();
        assert!(is_recent(&file));
    }
}
