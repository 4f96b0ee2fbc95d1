//! A store in a directory of the host.
//!
//! ```text
//! <root>/lock                  held by the one process that is writing
//! <root>/commits/<20 digits>   one immutable file for each batch
//! <root>/commits/.<…>.tmp      a batch that is being written
//! ```
//!
//! A batch is written to a temporary file, flushed to the disk, and renamed to the next number: the
//! rename is the commit. A process that is killed before it leaves a temporary file that the next
//! writer removes; one that is killed after it has committed. There is nothing to repair.
//!
//! The state is what the files say in the order of their numbers. Each reader keeps an index of it in
//! memory and reads the files that came since. Files that hold no current value are removed, and
//! small ones are merged by committing their values again.

mod commit_file;
mod disk;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blocking::unblock;
use bytes::Bytes;

use self::commit_file::{CommitFile, Header};
use self::disk::{Disk, HostDisk};
use crate::store::{Batch, Key, Store, StoreError};

/// Above this many small files a commit merges them.
const MERGE_ABOVE: usize = 64;
/// Files with fewer bytes of values than this are small.
const SMALL_BYTES: u64 = 256 * 1024;

/// What marks a directory of the npm package, whose files are others: Node has no file locks to share
/// one by.
const NPM_MARKER: &str = "npm-store.json";

/// Keeps everything in one directory. Several stores, also of several processes, can share it.
#[derive(Debug, Clone)]
pub struct DirectoryStore {
    inner: Arc<Inner<HostDisk>>,
}

#[derive(Debug)]
struct Inner<D> {
    commits: PathBuf,
    lock: PathBuf,
    disk: D,
    index: Mutex<Index>,
}

/// Where the current values stand.
#[derive(Debug, Default)]
struct Index {
    values: BTreeMap<Key, Place>,
    files: BTreeMap<u64, Header>,
}

/// Bytes `[start, end)` of commit file `number`.
#[derive(Debug, Clone, Copy)]
struct Place {
    number: u64,
    start: u64,
    end: u64,
}

impl Index {
    fn apply(&mut self, number: u64, header: Header) {
        for key in &header.delete {
            self.values.remove(&Key::new(key));
        }
        for put in &header.put {
            let start = header.body_start.saturating_add(put.start);
            let place = Place {
                number,
                start,
                end: header.body_start.saturating_add(put.end),
            };
            self.values.insert(Key::new(&put.key), place);
        }
        self.files.insert(number, header);
    }

    fn newest(&self) -> u64 {
        self.files.keys().next_back().copied().unwrap_or(0)
    }

    /// The values that still stand in file `number`.
    fn current_of(&self, number: u64) -> impl Iterator<Item = (&Key, &Place)> {
        let header = self.files.get(&number);
        let puts = header.into_iter().flat_map(|header| &header.put);
        puts.filter_map(move |put| {
            let (key, place) = self.values.get_key_value(&Key::new(&put.key))?;
            (place.number == number).then_some((key, place))
        })
    }
}

impl DirectoryStore {
    /// Opens `root`, creating it where it does not exist.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when the directory cannot be used or is a symbolic link (what
    /// the link points to could be exchanged beneath the store) or holds a store of the npm package,
    /// [`StoreError::Damaged`] when a commit file is not one that was written.
    pub async fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        let inner = unblock(move || Inner::open(&root, HostDisk)).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

impl Store for DirectoryStore {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let (inner, keys) = (Arc::clone(&self.inner), keys.to_vec());
        unblock(move || inner.get(&keys)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let (inner, prefix) = (Arc::clone(&self.inner), prefix.to_owned());
        unblock(move || inner.list(&prefix)).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        unblock(move || inner.commit(&batch)).await
    }
}

impl<D: Disk> Inner<D> {
    fn open(root: &Path, disk: D) -> Result<Self, StoreError> {
        // A slash at the end would have the host look at what a link points to.
        let root: PathBuf = root.components().collect();
        let inner = Self {
            commits: root.join("commits"),
            lock: root.join("lock"),
            disk,
            index: Mutex::default(),
        };
        if root.join(NPM_MARKER).exists() {
            return Err(StoreError::Unavailable {
                reason: "the directory holds a store of the npm package, whose files are others; \
                         name another directory"
                    .to_owned(),
            });
        }
        for directory in [&root, &inner.commits] {
            std::fs::create_dir_all(directory).map_err(not_a_directory)?;
            if std::fs::symlink_metadata(directory)
                .map_err(unavailable)?
                .is_symlink()
            {
                return Err(StoreError::Unavailable {
                    reason: "the artifact directory is a symbolic link; name the directory itself"
                        .to_owned(),
                });
            }
        }
        inner.refresh(&mut inner.index())?;
        Ok(inner)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // The index is only ever a replay of the files; a panic cannot leave it half applied.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.commits.join(format!("{number:020}"))
    }

    /// Takes up the commits of others.
    fn refresh(&self, index: &mut Index) -> Result<(), StoreError> {
        let newest = index.newest();
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.commits).map_err(unavailable)? {
            let entry = entry.map_err(unavailable)?;
            let name = entry.file_name();
            let number = name.to_str().filter(|name| name.len() == 20);
            let Some(number) = number.and_then(|name| name.parse::<u64>().ok()) else {
                continue;
            };
            if !entry.file_type().map_err(unavailable)?.is_file() {
                return Err(damaged("a commit is not a file"));
            }
            numbers.push(number);
        }
        numbers.sort_unstable();
        let remains = |number: &u64| numbers.binary_search(number).is_ok();
        index.files.retain(|number, _| remains(number));
        // Another writer removes a file only after a commit of its own, and only when nothing in it
        // is current. What deleted its values may be gone by then too, so that its absence has to
        // say it. Without a newer commit a missing file is damage, which reading from it finds.
        if numbers.last().is_some_and(|last| *last > newest) {
            index.values.retain(|_, place| remains(&place.number));
        }
        for number in numbers.into_iter().filter(|number| *number > newest) {
            match CommitFile::read_header(&self.path(number)) {
                Ok(header) => index.apply(number, header),
                // Removed since it was listed: the values that it had stand in later files.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(damaged_or_unavailable(&error)),
            }
        }
        Ok(())
    }

    fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        loop {
            // The places are of one moment; the files behind them never change, so that the lock
            // is not held while they are read.
            let (places, newest) = {
                let mut index = self.index();
                self.refresh(&mut index)?;
                let places: Vec<Option<Place>> = keys
                    .iter()
                    .map(|key| index.values.get(key).copied())
                    .collect();
                (places, index.newest())
            };
            match self.read(&places) {
                Ok(values) => return Ok(values),
                // Another writer merged the file away in between, and its values stand in a later
                // one. A file that is gone with nothing after it is damage.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let mut index = self.index();
                    self.refresh(&mut index)?;
                    if index.newest() == newest {
                        return Err(damaged("a commit file is missing"));
                    }
                }
                Err(error) => return Err(damaged_or_unavailable(&error)),
            }
        }
    }

    fn read(&self, places: &[Option<Place>]) -> io::Result<Vec<Option<Bytes>>> {
        let mut open: Option<(u64, File)> = None;
        places
            .iter()
            .map(|place| {
                let Some(place) = place else {
                    return Ok(None);
                };
                let file = match &open {
                    Some((number, file)) if *number == place.number => file,
                    _ => {
                        &open
                            .insert((place.number, File::open(self.path(place.number))?))
                            .1
                    }
                };
                CommitFile::read_value(file, place.start, place.end).map(Some)
            })
            .collect()
    }

    fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let mut index = self.index();
        self.refresh(&mut index)?;
        let from_prefix = index.values.range(Key::new(prefix)..);
        Ok(from_prefix
            .map(|(key, _)| key)
            .take_while(|key| key.as_str().starts_with(prefix))
            .cloned()
            .collect())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        // The file lock keeps out other processes and the other stores of this one. It is released
        // when the file is closed, also by the death of the process. Something else than a file
        // could keep the call waiting, or lead elsewhere.
        if std::fs::symlink_metadata(&self.lock).is_ok_and(|lock| !lock.is_file()) {
            return Err(damaged("the lock is not a file"));
        }
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.lock)
            .map_err(unavailable)?;
        lock.lock().map_err(unavailable)?;

        let expected: Vec<Key> = batch.expect.iter().map(|(key, _)| key.clone()).collect();
        let current = self.get(&expected)?;
        let met = |((_, expectation), value): (&(Key, crate::Expectation), &Option<Bytes>)| {
            expectation.is_met_by(value.as_deref())
        };
        if !batch.expect.iter().zip(&current).all(met) {
            return Err(StoreError::Conflict);
        }
        self.append(&batch.put, &batch.delete)?;
        // The batch is committed, whatever becomes of the tidying: a later commit tries it again.
        let _ = self.merge();
        let _ = self.remove_superseded();
        Ok(())
    }

    /// Writes one commit file, for a caller that has the lock and has looked for the commits of
    /// others since. The rename in it is the moment of the commit.
    fn append(&self, put: &[(Key, Bytes)], delete: &[Key]) -> Result<(), StoreError> {
        let number = self.index().newest().checked_add(1);
        let number = number.ok_or_else(|| damaged("the numbers of commits are used up"))?;
        let header = Header::new(put, delete);
        let temporary = self.commits.join(format!(".{number:020}.tmp"));
        let committed = self.path(number);
        // Readers go on while the values are written, and wait only for the names.
        let written = CommitFile::write(&self.disk, &temporary, &header, put);
        let mut index = self.index();
        let named = written.and_then(|()| self.disk.rename(&temporary, &committed));
        if let Err(error) = named {
            // Best effort: the next writer of this number replaces what is left.
            let _ = self.disk.remove(&temporary);
            return Err(exhausted_or_unavailable(&error));
        }
        if let Err(error) = self.disk.sync_directory(&self.commits) {
            // A commit that may not be durable is taken back.
            let _ = self.disk.remove(&committed);
            return Err(unavailable(error));
        }
        index.apply(number, header);
        Ok(())
    }

    /// Commits the values of small files again, together, so that their number stays bounded.
    fn merge(&self) -> Result<(), StoreError> {
        let index = self.index();
        let small: Vec<u64> = index
            .files
            .iter()
            .filter(|(_, header)| header.body_bytes() < SMALL_BYTES)
            .map(|(number, _)| *number)
            .collect();
        if small.len() <= MERGE_ABOVE {
            return Ok(());
        }
        let mut put = Vec::new();
        for number in small {
            let mut current = index.current_of(number).peekable();
            if current.peek().is_none() {
                continue;
            }
            // A damaged file stays as it is; reading its values says so, and the others are merged.
            let values: io::Result<Vec<_>> = File::open(self.path(number)).and_then(|file| {
                let value = |place: &Place| CommitFile::read_value(&file, place.start, place.end);
                current
                    .map(|(key, place)| Ok((key.clone(), value(place)?)))
                    .collect()
            });
            put.extend(values.unwrap_or_default());
        }
        drop(index);
        self.append(&put, &[])
    }

    /// Removes files that hold no current value, oldest first.
    ///
    /// The newest file stays, so that numbers are never used twice. A file that deletes a key stays
    /// as long as an older file has a value for it, or the value would come back.
    fn remove_superseded(&self) -> Result<(), StoreError> {
        let mut index = self.index();
        let newest = index.newest();
        let mut older_keys = std::collections::BTreeSet::new();
        let mut superseded = Vec::new();
        for (number, header) in &index.files {
            let needed = *number == newest
                || index.current_of(*number).next().is_some()
                || header.delete.iter().any(|key| older_keys.contains(key));
            if needed {
                older_keys.extend(header.put.iter().map(|put| put.key.clone()));
            } else {
                superseded.push(*number);
            }
        }
        for number in superseded {
            self.disk.remove(&self.path(number)).map_err(unavailable)?;
            index.files.remove(&number);
        }
        Ok(())
    }
}

fn not_a_directory(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => StoreError::Unavailable {
            reason: "what is named as the artifact directory is not a directory".to_owned(),
        },
        _ => unavailable(error),
    }
}

fn unavailable(error: impl std::borrow::Borrow<io::Error>) -> StoreError {
    let kind = error.borrow().kind();
    StoreError::Unavailable {
        reason: format!("the artifact directory answered: {kind}"),
    }
}

fn exhausted_or_unavailable(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::Exhausted
        }
        _ => unavailable(error),
    }
}

fn damaged(reason: &str) -> StoreError {
    StoreError::Damaged {
        reason: reason.to_owned(),
    }
}

fn damaged_or_unavailable(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            damaged("a commit file is not the one that was written")
        }
        _ => unavailable(error),
    }
}
