//! The identifiers that the model needs to go on, in at most 2 KiB.

use alloc::string::String;
use alloc::vec::Vec;

use crate::json;
use crate::raw_json::{JsonError, ObjectReader, RawJson};

/// The most bytes of the serialized handles, escaped keys and values counted: 2 KiB.
pub const MAX_HANDLES_BYTES: usize = 2 * 1024;

/// A JSON object of at most [`MAX_HANDLES_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handles {
    json: String,
    elided: bool,
}

/// Handles that cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandlesError {
    /// They are not a JSON object.
    #[error("handles must be a JSON object: {0}")]
    NotAnObject(#[from] JsonError),
    /// Which of two values the model needs cannot be known.
    #[error("a name stands twice in the handles")]
    DuplicateName,
}

impl Default for Handles {
    fn default() -> Self {
        Self {
            json: "{}".into(),
            elided: false,
        }
    }
}

impl Handles {
    /// The handles that a runtime names. Members are kept in their order while they fit; one that
    /// does not is left out, and later ones that do are still kept.
    ///
    /// # Errors
    ///
    /// [`HandlesError`].
    pub fn parse(json: &str) -> Result<Self, HandlesError> {
        Self::collect(json, |_, _| true)
    }

    /// The handles of a result whose runtime names none: those top-level members of its data that
    /// are called `id`, `status`, `state` or `exit_code`, or end in `_id`, and are not themselves
    /// objects or arrays.
    pub fn of_data(data: Option<&RawJson>) -> Self {
        let Some(data) = data.filter(|data| data.as_str().starts_with('{')) else {
            return Self::default();
        };
        let is_handle = |name: &str, value: &RawJson| {
            let named = matches!(name, "id" | "status" | "state" | "exit_code");
            (named || name.ends_with("_id")) && !value.as_str().starts_with(['{', '['])
        };
        // A name that stands twice in the data identifies nothing.
        Self::collect(data.as_str(), is_handle).unwrap_or_else(|_| Self {
            elided: true,
            ..Self::default()
        })
    }

    fn collect(
        object: &str,
        mut keep: impl FnMut(&str, &RawJson) -> bool,
    ) -> Result<Self, HandlesError> {
        let mut handles = Self::default();
        let mut names = Vec::new();
        let mut reader = ObjectReader::new(object);
        while let Some(name) = reader.next_name()? {
            let value = reader.value()?;
            if !keep(&name, &value) {
                continue;
            }
            handles.push(&name, &value);
            names.push(name);
        }
        names.sort();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(HandlesError::DuplicateName);
        }
        Ok(handles)
    }

    fn push(&mut self, name: &str, value: &RawJson) {
        let separator = usize::from(self.json.len() > "{}".len());
        let name_bytes = json::escaped_len(name) + "\"\":".len();
        if self.json.len() + separator + name_bytes + value.as_str().len() > MAX_HANDLES_BYTES {
            self.elided = true;
            return;
        }
        // The closing brace moves behind the new member.
        self.json.pop();
        if separator > 0 {
            self.json.push(',');
        }
        json::push_string(&mut self.json, name);
        self.json.push(':');
        self.json.push_str(value.as_str());
        self.json.push('}');
    }

    /// The JSON object.
    pub fn as_str(&self) -> &str {
        &self.json
    }

    /// Whether something was left out.
    pub const fn elided(&self) -> bool {
        self.elided
    }
}
