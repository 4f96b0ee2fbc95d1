//! Where the project's files are, and where this machine keeps what set-up
//! made.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directories that the commands work in.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    cache: PathBuf,
}

impl Project {
    /// Finds the checkout that this program was compiled from, and the cache
    /// of the user who runs it.
    pub fn locate() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has no directory above it")?;
        Ok(Self {
            root: root.to_owned(),
            cache: cache_home(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))?
                .join("bounded-evidence"),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The deployable page.
    pub fn dist(&self) -> PathBuf {
        self.root.join("dist")
    }

    /// The documentation's source.
    pub fn docs(&self) -> PathBuf {
        self.root.join("docs")
    }

    /// The npm package of the library for JavaScript.
    pub fn library(&self) -> PathBuf {
        self.target().join("npm/evidence-wasm")
    }

    /// The same with processes.
    pub fn library_with_processes(&self) -> PathBuf {
        self.target().join("npm/evidence-wasm-processes")
    }

    /// The model's Web Worker, as it is served.
    pub fn model_worker(&self) -> PathBuf {
        self.target().join("model-worker")
    }

    /// The small checkpoints that the models are tested with.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("crates/evidence-qwen/tests/fixtures")
    }

    /// The tests of the model worker that Node runs.
    pub fn model_tests(&self) -> PathBuf {
        self.root.join("tests/model")
    }

    /// The WebAssembly component.
    pub fn component(&self) -> PathBuf {
        self.target().join("component/bounded_evidence.wasm")
    }

    /// The component's tests that Node runs.
    pub fn component_tests(&self) -> PathBuf {
        self.root.join("tests/component")
    }

    /// The tests and benchmarks that Node runs in a browser.
    pub fn browser_tests(&self) -> PathBuf {
        self.root.join("tests/browser")
    }

    /// Where cargo puts what it builds.
    pub fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// Intermediate files of these commands.
    pub fn scratch(&self) -> PathBuf {
        self.target().join("xtask")
    }

    /// What set-up made, shared by all checkouts of one user.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The root of `cargo install`.
    pub fn tools(&self) -> PathBuf {
        self.cache.join("tools")
    }
}

/// The files directly in a directory whose names end so, in order.
pub fn files_ending(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The XDG base directory rule: an absolute `XDG_CACHE_HOME`, else `~/.cache`.
fn cache_home(
    xdg_cache_home: Option<std::ffi::OsString>,
    home: Option<std::ffi::OsString>,
) -> Result<PathBuf> {
    let configured = xdg_cache_home
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    match configured {
        Some(path) => Ok(path),
        None => Ok(
            PathBuf::from(home.context("HOME is not set; set it or XDG_CACHE_HOME")?)
                .join(".cache"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_the_xdg_rule() {
        let home = || Some("/home/a".into());
        assert_eq!(
            cache_home(Some("/c".into()), home()).unwrap(),
            Path::new("/c")
        );
        assert_eq!(
            cache_home(None, home()).unwrap(),
            Path::new("/home/a/.cache")
        );
        let relative = cache_home(Some("c".into()), home()).unwrap();
        assert_eq!(relative, Path::new("/home/a/.cache"));
        assert!(cache_home(None, None).is_err());
    }

    #[test]
    fn files_are_found_by_their_ending_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.test.mjs", "a.test.mjs", "helper.mjs"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let files = files_ending(directory.path(), ".test.mjs").unwrap();
        assert_eq!(
            files,
            ["a.test.mjs", "b.test.mjs"].map(|name| directory.path().join(name))
        );
    }
}
