//! The three numbers of contract A.

/// How much of a tool result reaches the model (contract A, second paragraph).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "the contract's names, each with its unit"
)]
pub struct EvidenceLimits {
    max_inline_bytes: usize,
    preview_bytes: usize,
    max_range_bytes: usize,
}

/// Limits that contract A does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// One of the three is zero, negative, or beyond what this machine can address.
    #[error("evidence limits must be positive integers")]
    NotPositive,
    /// An observation's own fields need room.
    #[error("max_inline_bytes must be at least 512")]
    InlineTooSmall,
    /// The widest code point has four bytes; a smaller range could never return it.
    #[error("max_range_bytes must be at least 4")]
    RangeTooSmall,
    /// A preview that is wider than the whole observation can never be shown.
    #[error("preview_bytes must not exceed max_inline_bytes")]
    PreviewTooLarge,
}

impl EvidenceLimits {
    /// The smallest `max_inline_bytes`.
    pub const MIN_INLINE_BYTES: usize = 512;
    /// The smallest `max_range_bytes`.
    pub const MIN_RANGE_BYTES: usize = 4;

    /// Checks the three limits. They are signed because they come from outside: a negative limit
    /// is a caller's mistake that deserves its message.
    ///
    /// # Errors
    ///
    /// The first rule that the limits break, in the order of [`LimitsError`]'s cases.
    pub fn new(
        max_inline_bytes: i64,
        preview_bytes: i64,
        max_range_bytes: i64,
    ) -> Result<Self, LimitsError> {
        let positive = |limit: i64| {
            usize::try_from(limit)
                .ok()
                .filter(|limit| *limit > 0)
                .ok_or(LimitsError::NotPositive)
        };
        let limits = Self {
            max_inline_bytes: positive(max_inline_bytes)?,
            preview_bytes: positive(preview_bytes)?,
            max_range_bytes: positive(max_range_bytes)?,
        };
        if limits.max_inline_bytes < Self::MIN_INLINE_BYTES {
            return Err(LimitsError::InlineTooSmall);
        }
        if limits.max_range_bytes < Self::MIN_RANGE_BYTES {
            return Err(LimitsError::RangeTooSmall);
        }
        if limits.preview_bytes > limits.max_inline_bytes {
            return Err(LimitsError::PreviewTooLarge);
        }
        Ok(limits)
    }

    /// The most bytes of a result, or of an observation in its place, that the model sees.
    pub const fn max_inline_bytes(&self) -> usize {
        self.max_inline_bytes
    }

    /// The most bytes of each of the two previews.
    pub const fn preview_bytes(&self) -> usize {
        self.preview_bytes
    }

    /// The most bytes that one range path may ask for.
    pub const fn max_range_bytes(&self) -> usize {
        self.max_range_bytes
    }
}

impl Default for EvidenceLimits {
    /// 512 inline, previews of 64, ranges of 512.
    fn default() -> Self {
        Self {
            max_inline_bytes: 512,
            preview_bytes: 64,
            max_range_bytes: 512,
        }
    }
}
