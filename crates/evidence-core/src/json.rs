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

/// How many bytes each byte takes inside a JSON string (RFC 8259, section 7, with the shortest
/// escapes).
const ESCAPED_BYTES: [u8; 256] = {
    let mut table = [1; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = 6;
        control += 1;
    }
    let short = b"\"\\\n\r\t\x08\x0c";
    let mut index = 0;
    while index < short.len() {
        table[short[index] as usize] = 2;
        index += 1;
    }
    table
};

/// The bytes of one byte of text inside a JSON string.
pub(crate) fn escaped_byte_len(byte: u8) -> usize {
    usize::from(ESCAPED_BYTES[usize::from(byte)])
}

/// The bytes of `text` inside a JSON string, without the quotation marks.
pub(crate) fn escaped_len(text: &str) -> usize {
    text.bytes().map(escaped_byte_len).sum()
}

/// Appends `text` as it stands inside a JSON string, without the quotation marks.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let mut rest = text;
    // Every byte that is escaped is ASCII, so that the cuts are character boundaries.
    while let Some(at) = rest.bytes().position(|byte| escaped_byte_len(byte) != 1) {
        out.push_str(&rest[..at]);
        let byte = rest.as_bytes()[at];
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            _ => {
                out.push_str("\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 0xf)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

/// Appends `text` as a JSON string.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_pushed_string_is_what_serde_writes_and_as_long_as_counted(text in "[\\PC\\x00-\\x7f\"\\\\é漢🙂\u{2028}]{0,60}") {
            let mut pushed = String::new();
            push_string(&mut pushed, &text);
            prop_assert_eq!(&pushed, &to_string(&text));
            prop_assert_eq!(pushed.len(), escaped_len(&text) + 2);
        }
    }
}
