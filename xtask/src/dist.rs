//! What dist/ holds, and the list of it that the page's service worker works by.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use evidence_core::Sha256Digest;
use serde_json::json;

/// The script that is the list.
const LIST: &str = "files.js";
/// The service worker itself: a browser fetches it past every cache.
const SERVICE_WORKER: &str = "service-worker.js";

/// What a file of dist/ is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Loaded, or kept for later, by everybody who opens the page.
    Page,
    /// Read when a person chooses it.
    Sample,
    /// Documentation, which only links to the page.
    Docs,
    /// Loaded when a live run asks for it.
    ModelWorker,
    /// Loaded by the model worker.
    Model,
}

impl Part {
    /// The part of the file at this path in dist/.
    pub fn of(path: &Path) -> Self {
        let first = path.iter().next().unwrap_or_default().to_string_lossy();
        if first == "samples" {
            Self::Sample
        } else if first == "docs" {
            Self::Docs
        } else if first == "models" {
            Self::Model
        } else if first.starts_with("evidence-model-worker") {
            Self::ModelWorker
        } else {
            Self::Page
        }
    }
}

/// All files below a directory, in the order of their paths.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Copies a directory with all that is in it.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        let target = to.join(file.strip_prefix(from)?);
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::copy(&file, &target).with_context(|| format!("cannot write {}", target.display()))?;
    }
    Ok(())
}

/// Lists are how what they name is found when there is no network.
const LISTS: [&str; 3] = [
    "models/index.json",
    "samples/index.json",
    "samples/recordings.json",
];

/// Writes the list of the page's files and their digests, with a version that changes with any byte of
/// dist/ but for the documentation, of which the service worker keeps nothing.
pub fn write_list(dist: &Path) -> Result<()> {
    let mut page = BTreeMap::new();
    let mut contents = String::new();
    for file in files(dist)? {
        let path = file.strip_prefix(dist)?;
        // Addresses have slashes on every system.
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        let name = parts.join("/");
        if name == LIST || Part::of(path) == Part::Docs {
            continue;
        }
        let digest = Sha256Digest::of(&fs::read(&file)?);
        writeln!(contents, "{name} {digest}")?;
        let is_list = LISTS.contains(&name.as_str());
        if (Part::of(path) == Part::Page && name != SERVICE_WORKER) || is_list {
            page.insert(name, digest.to_string());
        }
    }
    let version = Sha256Digest::of(contents.as_bytes()).to_string();
    let list = json!({"version": version, "sha256": page});
    let script = format!("// Written by the build.\nconst FILES = {list};\n");
    fs::write(dist.join(LIST), script).context("cannot write the list of the page's files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_a_part_by_its_place() {
        let of = |path| Part::of(Path::new(path));
        assert_eq!(of("index.html"), Part::Page);
        assert_eq!(of("evidence-playground-0123_bg.wasm"), Part::Page);
        assert_eq!(of("samples/cargo.log"), Part::Sample);
        assert_eq!(of("models/tiny/model.safetensors"), Part::Model);
        assert_eq!(of("evidence-model-worker_bg.wasm"), Part::ModelWorker);
        assert_eq!(of("css/samples/a.css"), Part::Page);
        assert_eq!(of("docs/samples/index.html"), Part::Docs);
    }

    #[test]
    fn the_list_names_the_page_s_files_and_its_version_follows_every_byte() {
        let dist = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dist.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let list = || {
            write_list(dist.path()).unwrap();
            fs::read_to_string(dist.path().join(LIST)).unwrap()
        };
        for name in [
            "index.html",
            "service-worker.js",
            "samples/a.log",
            "samples/index.json",
        ] {
            write(name, "1");
        }
        let first = list();
        let digest = Sha256Digest::of(b"1");
        let files =
            format!(r#""sha256":{{"index.html":"{digest}","samples/index.json":"{digest}"}}"#);
        assert!(first.contains(&files), "{first}");
        assert_eq!(list(), first);
        write("docs/index.html", "1");
        assert_eq!(list(), first);
        write("samples/a.log", "2");
        let second = list();
        assert_ne!(second, first);
        write("service-worker.js", "2");
        assert_ne!(list(), second);
    }

    #[test]
    fn directories_are_copied_with_all_that_is_in_them() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/c.txt"), "text").unwrap();
        let to = directory.path().join("to");
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("a/b/c.txt")).unwrap(), b"text");
    }
}
