//! Which files the page takes.

use evidence_agent::workspace::WorkspacePath;

use crate::limits::MAX_FILE_BYTES;
use crate::text::{counted, grouped};

/// The most bytes of all files together.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

const MEBIBYTE: usize = 1024 * 1024;

/// Why a file is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The model could not name it.
    #[error("{0}. Give it another name")]
    Path(String),
    /// It is over the limit of one file. It was not read.
    #[error(
        "it has {}, and the page takes files of at most {} MiB. Cut out the part that matters",
        counted(*byte_count, "byte"),
        MAX_FILE_BYTES / MEBIBYTE
    )]
    TooLarge {
        /// Its size.
        byte_count: usize,
    },
    /// There is no room beside the files that are there. It was not read.
    #[error(
        "with its {} all files together would have more than {} MiB. Remove some files first",
        counted(*byte_count, "byte"),
        MAX_TOTAL_BYTES / MEBIBYTE
    )]
    NoRoom {
        /// Its size.
        byte_count: usize,
    },
    /// It has no exact text.
    #[error(
        "it is not UTF-8 text: the bytes from {} on are no character. Choose a text file",
        grouped(*position)
    )]
    NotText {
        /// The first byte that belongs to no character.
        position: usize,
    },
    /// It is not what was dropped.
    #[error("it changed or was moved while it was being read. Choose it again")]
    Changed,
    /// The browser could not read it.
    #[error("the browser could not read it ({0}). Check its permissions and choose it again")]
    Unreadable(String),
}

impl Refusal {
    /// The sentence for the user.
    pub fn sentence(&self, path: &str) -> String {
        format!("{path} was left out: {self}.")
    }
}

/// Whether the model could name the file.
pub fn check_path(path: &str) -> Result<(), Refusal> {
    WorkspacePath::parse(path)
        .map(drop)
        .map_err(|error| Refusal::Path(error.to_string()))
}

/// Whether a file of this size has room beside `total_bytes`.
pub const fn check_size(byte_count: usize, total_bytes: usize) -> Result<(), Refusal> {
    if byte_count > MAX_FILE_BYTES {
        return Err(Refusal::TooLarge { byte_count });
    }
    if total_bytes.saturating_add(byte_count) > MAX_TOTAL_BYTES {
        return Err(Refusal::NoRoom { byte_count });
    }
    Ok(())
}

/// The bytes as the text that they are.
pub fn check_bytes(bytes: Vec<u8>) -> Result<String, Refusal> {
    String::from_utf8(bytes).map_err(|error| Refusal::NotText {
        position: error.utf8_error().valid_up_to(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_refused_in_words() {
        assert_eq!(check_size(MAX_FILE_BYTES, 0), Ok(()));
        let refusal = check_size(300_000_000, 0).unwrap_err();
        assert_eq!(
            refusal.sentence("a.log"),
            "a.log was left out: it has 300,000,000 bytes, and the page takes files of at most \
             16 MiB. Cut out the part that matters."
        );
        let refusal = check_size(2 * MEBIBYTE, 63 * MEBIBYTE).unwrap_err();
        assert_eq!(
            refusal,
            Refusal::NoRoom {
                byte_count: 2 * MEBIBYTE
            }
        );
    }

    #[test]
    fn only_text_is_taken_and_all_of_it() {
        let exact = "\u{feff}a\r\nb\0\n".as_bytes().to_vec();
        assert_eq!(check_bytes(exact).as_deref(), Ok("\u{feff}a\r\nb\0\n"));
        assert_eq!(
            check_bytes(vec![b'a', b'b', 0xff]),
            Err(Refusal::NotText { position: 2 })
        );
    }

    #[test]
    fn what_the_model_could_not_name_is_refused() {
        assert!(check_path("src/build.log").is_ok());
        assert!(check_path(".git/config").is_err());
        assert!(check_path("server.pem").is_err());
    }
}
