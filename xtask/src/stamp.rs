//! What is newer than its sources is not built again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};

use crate::project::Project;

/// Builds, unless all that is made is there and the stamp of this name is newer than the sources, which
/// are paths below the root.
pub fn unless_newer(
    project: &Project,
    name: &str,
    made: &[PathBuf],
    sources: &[&str],
    build: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let stamp = project.scratch().join(name);
    if made.iter().all(|path| path.exists()) && is_newer_than(&stamp, project, sources)? {
        return Ok(());
    }
    // The stamp bears the time before the build, so that a file saved while
    // it runs counts as newer.
    let start = SystemTime::now();
    build()?;
    fs::create_dir_all(project.scratch())?;
    File::create(&stamp)?.set_modified(start)?;
    Ok(())
}

/// Whether a stamp is newer than all of these sources below the root.
fn is_newer_than(stamp: &Path, project: &Project, sources: &[&str]) -> Result<bool> {
    let Ok(built) = stamp.metadata().and_then(|metadata| metadata.modified()) else {
        return Ok(false);
    };
    for source in sources {
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
