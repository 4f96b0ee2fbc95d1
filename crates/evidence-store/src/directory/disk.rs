//! The calls that change a disk, each one a place where a process can die.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use bytes::Bytes;

/// What a commit does to the disk. Tests put an implementation here that stops at any call.
pub(super) trait Disk {
    /// Writes a new file, over one that a dead process left, and flushes it to the disk.
    fn write(&self, path: &Path, parts: &mut dyn Iterator<Item = Bytes>) -> io::Result<()>;
    /// Gives the file its final name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Flushes the names in a directory to the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The host's file system.
#[derive(Debug)]
pub(super) struct HostDisk;

impl Disk for HostDisk {
    fn write(&self, path: &Path, parts: &mut dyn Iterator<Item = Bytes>) -> io::Result<()> {
        // Something that was left under the name, or put there, is replaced and never written through.
        if path.symlink_metadata().is_ok() {
            std::fs::remove_file(path)?;
        }
        let mut file = File::options().write(true).create_new(true).open(path)?;
        for part in parts {
            file.write_all(&part)?;
        }
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        // Windows flushes names with the file and cannot open a directory as one.
        if cfg!(unix) {
            File::open(path)?.sync_all()
        } else {
            Ok(())
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}
