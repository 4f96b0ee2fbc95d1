//! The last check before a message or a request leaves for the provider (contract B).
//!
//! Nothing is cut here. A message or body that is too large is refused whole, because everything in
//! it is mandatory; what could be bounded was bounded before.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The most bytes of one final, escaped, provider-facing message: 64 KiB.
///
/// A bounded result always fits: serialized it has at most 16 KiB, and escaping it once more at most
/// doubles that.
pub const MAX_MESSAGE_BYTES: u64 = 64 * 1024;
/// The most bytes of a complete serialized request body: 8 MiB.
pub const MAX_INPUT_BYTES: u64 = 8 * 1024 * 1024;

/// The limit that a request declares for its complete serialized body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxInputBytes(u64);

/// A declared limit outside 1 to 8,388,608.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("max_input_bytes must be from 1 to {MAX_INPUT_BYTES}")]
pub struct InvalidMaxInputBytes;

/// What was measured, against what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EnvelopeCheck {
    /// Whether `bytes` is at most `limit`.
    pub fits: bool,
    /// The size of the serialized bytes.
    pub bytes: u64,
    /// The limit that holds.
    pub limit: u64,
}

/// A message or body that must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the serialized envelope has {bytes} bytes and may have {limit}: nothing was dropped and nothing sent; make the history or the schemas smaller"
)]
pub struct EnvelopeTooLarge {
    /// The size of the serialized bytes.
    pub bytes: u64,
    /// The limit that holds.
    pub limit: u64,
}

impl Default for MaxInputBytes {
    /// The hard limit.
    fn default() -> Self {
        Self(MAX_INPUT_BYTES)
    }
}

impl MaxInputBytes {
    /// A declared limit.
    ///
    /// # Errors
    ///
    /// [`InvalidMaxInputBytes`] outside 1 to 8,388,608.
    pub fn new(max_input_bytes: i64) -> Result<Self, InvalidMaxInputBytes> {
        u64::try_from(max_input_bytes)
            .ok()
            .filter(|limit| (1..=MAX_INPUT_BYTES).contains(limit))
            .map(Self)
            .ok_or(InvalidMaxInputBytes)
    }

    /// Measures `body`, the complete serialized request: instructions, schemas and history included.
    pub const fn check(self, body: &str) -> EnvelopeCheck {
        EnvelopeCheck::new(body, self.0)
    }
}

impl<'de> Deserialize<'de> for MaxInputBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limit = u64::deserialize(deserializer)?;
        Self::new(i64::try_from(limit).unwrap_or(i64::MAX)).map_err(D::Error::custom)
    }
}

/// Measures `message`, the final escaped text that the provider gets.
pub const fn check_message(message: &str) -> EnvelopeCheck {
    EnvelopeCheck::new(message, MAX_MESSAGE_BYTES)
}

impl EnvelopeCheck {
    const fn new(serialized: &str, limit: u64) -> Self {
        let bytes = serialized.len() as u64;
        Self {
            fits: bytes <= limit,
            bytes,
            limit,
        }
    }

    /// The check as a condition.
    ///
    /// # Errors
    ///
    /// [`EnvelopeTooLarge`] when it does not fit.
    pub const fn require(self) -> Result<(), EnvelopeTooLarge> {
        if self.fits {
            Ok(())
        } else {
            Err(EnvelopeTooLarge {
                bytes: self.bytes,
                limit: self.limit,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_escaped_message_is_checked_against_64_kib() {
        let message = "x".repeat(64 * 1024);
        assert_eq!(check_message(&message).require(), Ok(()));
        let over = check_message(&(message + "x")).require().unwrap_err();
        assert_eq!((over.bytes, over.limit), (65_537, 65_536));
    }

    #[test]
    fn max_input_bytes_is_1_to_8_388_608() {
        for bad in [i64::MIN, -1, 0, 8_388_609, i64::MAX] {
            assert_eq!(MaxInputBytes::new(bad), Err(InvalidMaxInputBytes));
        }
        for good in [1, 8_388_608] {
            assert!(MaxInputBytes::new(good).is_ok());
        }
    }

    #[test]
    fn the_complete_serialized_body_is_refused_when_over_max_input_bytes() {
        let limit = MaxInputBytes::new(5).unwrap();
        assert!(limit.check("12345").fits);
        assert!(limit.check("éé1").fits, "bytes are counted, not characters");
        let check = limit.check("123456");
        assert_eq!((check.fits, check.bytes, check.limit), (false, 6, 5));
        assert!(check.require().is_err());
    }

    #[test]
    fn without_max_input_bytes_the_hard_limit_of_8_mib_holds() {
        let body = "x".repeat(8 * 1024 * 1024);
        assert!(MaxInputBytes::default().check(&body).fits);
        assert!(!MaxInputBytes::default().check(&(body + "x")).fits);
    }
}
