//! The JSON style of everything that a model sees: compact, keys in the order of the fields (which
//! the types sort), non-ASCII unescaped.

use alloc::string::String;

use serde::Serialize;

/// `header` followed by the JSON of `value`.
pub(crate) fn with_header(header: &str, value: &impl Serialize) -> String {
    let mut text = String::from(header);
    text.push_str(&to_string(value));
    text
}

/// The JSON of `value`, one of this crate's own types.
pub(crate) fn to_string(value: &impl Serialize) -> String {
    // Serialization fails only for keys that are not strings and for failing writers; these types
    // have neither, so that nothing is lost by the empty text.
    serde_json::to_string(value).unwrap_or_default()
}
