//! JSON that is kept as it was written.
//!
//! A tool's data and receipt are somebody else's values. Reading them into numbers and maps would
//! change some of them: an integer beyond 2^53, `-0`, `1e400`, the order of keys, a key that stands
//! twice. So they are never read into values. [`RawJson`] is their text, checked against the grammar
//! of RFC 8259 and brought into one spelling: no white space between tokens, strings with the
//! shortest escapes. Numbers keep every character, members their order and their number.
//!
//! The scanner does not recurse: nesting costs one byte of memory a level and no stack. That a string
//! holds half of a surrogate pair is refused, because no UTF-8 text can hold it.

mod typed;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use self::typed::{Unreadable, from_str};
use crate::json;

/// A JSON value, as compact text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawJson(String);

/// A text is not JSON that could be kept exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The grammar does not allow what stands there.
    #[error("this is not JSON: unexpected input at byte {at}")]
    Syntax {
        /// Where the scanner stopped.
        at: usize,
    },
    /// `\ud800` to `\udfff` without its other half.
    #[error("the string escape at byte {at} is half of a surrogate pair, which is not text")]
    LoneSurrogate {
        /// Where the escape begins.
        at: usize,
    },
}

impl RawJson {
    /// Checks and compacts `text`.
    ///
    /// # Errors
    ///
    /// [`JsonError`] when the text is not one JSON value.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let mut scanner = Scanner { text, at: 0 };
        let mut out = String::new();
        scanner.value(&mut out)?;
        scanner.end()?;
        Ok(Self(out))
    }

    /// Text that this crate has built itself.
    pub(crate) const fn from_own(text: String) -> Self {
        Self(text)
    }

    /// The compact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.0 == "null"
    }

    /// The text of the value when it is a string.
    pub fn to_text(&self) -> Option<String> {
        let mut text = String::new();
        let mut scanner = Scanner {
            text: &self.0,
            at: 0,
        };
        (scanner.peek()? == b'"')
            .then(|| scanner.string(&mut text, Form::Decoded))?
            .ok()?;
        Some(text)
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the members of one JSON object in their order, also names that stand twice.
///
/// Each call of [`next_name`](Self::next_name) is followed by one of [`value`](Self::value) or
/// [`text`](Self::text).
#[derive(Debug)]
pub struct ObjectReader<'a> {
    scanner: Scanner<'a>,
    started: bool,
}

impl<'a> ObjectReader<'a> {
    /// A reader of the object that `text` holds.
    pub const fn new(text: &'a str) -> Self {
        Self {
            scanner: Scanner { text, at: 0 },
            started: false,
        }
    }

    /// The name of the next member; none after the last.
    ///
    /// # Errors
    ///
    /// [`JsonError`] when the text is not one JSON object.
    pub fn next_name(&mut self) -> Result<Option<String>, JsonError> {
        let scanner = &mut self.scanner;
        scanner.white_space();
        if !self.started {
            self.started = true;
            scanner.expect(b'{')?;
            scanner.white_space();
        } else if scanner.peek() == Some(b',') {
            scanner.at += 1;
            scanner.white_space();
            return self.name().map(Some);
        }
        if self.scanner.peek() == Some(b'}') {
            self.scanner.at += 1;
            return self.scanner.end().map(|()| None);
        }
        self.name().map(Some)
    }

    fn name(&mut self) -> Result<String, JsonError> {
        let mut name = String::new();
        self.scanner.string(&mut name, Form::Decoded)?;
        self.scanner.white_space();
        self.scanner.expect(b':')?;
        Ok(name)
    }

    /// The value of the member.
    ///
    /// # Errors
    ///
    /// [`JsonError`].
    pub fn value(&mut self) -> Result<RawJson, JsonError> {
        let mut out = String::new();
        self.scanner.value(&mut out)?;
        Ok(RawJson(out))
    }

    /// The value of the member when it is a string, without a copy of its JSON; none when the value
    /// is anything else, which is skipped.
    ///
    /// # Errors
    ///
    /// [`JsonError`].
    pub fn text(&mut self) -> Result<Option<String>, JsonError> {
        self.scanner.white_space();
        if self.scanner.peek() == Some(b'"') {
            // A large text is not moved while it grows.
            let mut text = String::with_capacity(self.scanner.string_byte_count());
            self.scanner.string(&mut text, Form::Decoded)?;
            Ok(Some(text))
        } else {
            self.value().map(|_| None)
        }
    }
}

/// How a string is written out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As JSON, with quotation marks and the shortest escapes.
    Json,
    /// The text itself.
    Decoded,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

#[derive(Debug)]
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    const fn syntax<T>(&self) -> Result<T, JsonError> {
        Err(JsonError::Syntax { at: self.at })
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            self.syntax()
        }
    }

    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Nothing but white space may follow.
    fn end(&mut self) -> Result<(), JsonError> {
        self.white_space();
        if self.at == self.text.len() {
            Ok(())
        } else {
            self.syntax()
        }
    }

    /// Appends the next value to `out`, compact.
    fn value(&mut self, out: &mut String) -> Result<(), JsonError> {
        let mut open: Vec<Container> = Vec::new();
        loop {
            self.white_space();
            match self.peek() {
                Some(b'{') => {
                    self.punctuation(out);
                    self.white_space();
                    if self.peek() == Some(b'}') {
                        self.punctuation(out);
                    } else {
                        open.push(Container::Object);
                        self.member_name(out)?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.punctuation(out);
                    self.white_space();
                    if self.peek() == Some(b']') {
                        self.punctuation(out);
                    } else {
                        open.push(Container::Array);
                        continue;
                    }
                }
                Some(b'"') => self.string(out, Form::Json)?,
                Some(b'-' | b'0'..=b'9') => self.number(out)?,
                Some(b't') => self.literal(out, "true")?,
                Some(b'f') => self.literal(out, "false")?,
                Some(b'n') => self.literal(out, "null")?,
                _ => return self.syntax(),
            }
            // A value is complete: what it closes, or what follows it.
            loop {
                let Some(container) = open.last() else {
                    return Ok(());
                };
                self.white_space();
                match (container, self.peek()) {
                    (Container::Object, Some(b',')) => {
                        self.punctuation(out);
                        self.white_space();
                        self.member_name(out)?;
                        break;
                    }
                    (Container::Array, Some(b',')) => {
                        self.punctuation(out);
                        break;
                    }
                    (Container::Object, Some(b'}')) | (Container::Array, Some(b']')) => {
                        self.punctuation(out);
                        open.pop();
                    }
                    _ => return self.syntax(),
                }
            }
        }
    }

    /// Copies the one ASCII character at the position.
    fn punctuation(&mut self, out: &mut String) {
        out.push_str(&self.text[self.at..=self.at]);
        self.at += 1;
    }

    fn member_name(&mut self, out: &mut String) -> Result<(), JsonError> {
        self.string(out, Form::Json)?;
        self.white_space();
        self.expect(b':')?;
        out.push(':');
        Ok(())
    }

    fn literal(&mut self, out: &mut String, literal: &str) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(literal) {
            return self.syntax();
        }
        out.push_str(literal);
        self.at += literal.len();
        Ok(())
    }

    /// Copies a number, every character of it.
    fn number(&mut self, out: &mut String) -> Result<(), JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        out.push_str(&self.text[start..self.at]);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > start {
            Ok(())
        } else {
            self.syntax()
        }
    }

    /// The bytes between the quotation marks of the next string; the text is at most as long.
    fn string_byte_count(&self) -> usize {
        let mut escaped = false;
        let bytes = self.text.as_bytes().iter().skip(self.at + 1);
        let end = bytes.enumerate().find(|(_, byte)| {
            let ends = **byte == b'"' && !escaped;
            escaped = **byte == b'\\' && !escaped;
            ends
        });
        end.map_or(0, |(index, _)| index)
    }

    /// Appends the next string to `out`.
    fn string(&mut self, out: &mut String, form: Form) -> Result<(), JsonError> {
        self.expect(b'"')?;
        if form == Form::Json {
            out.push('"');
        }
        loop {
            let rest = &self.text[self.at..];
            // Everything that ends a run is ASCII, so that the cut is a character boundary.
            let run = rest
                .bytes()
                .position(|byte| json::escaped_byte_len(byte) != 1)
                .unwrap_or(rest.len());
            // The bytes of the run need no escape in either form.
            out.push_str(&rest[..run]);
            self.at += run;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    if form == Form::Json {
                        out.push('"');
                    }
                    return Ok(());
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    match form {
                        Form::Json => {
                            json::push_escaped(out, character.encode_utf8(&mut [0; 4]));
                        }
                        Form::Decoded => out.push(character),
                    }
                }
                // The end of the text, or a control character that stands unescaped.
                _ => return self.syntax(),
            }
        }
    }

    /// The character that the escape at the position stands for.
    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        self.at += 1;
        let character = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape(start);
            }
            _ => return self.syntax(),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, JsonError> {
        let lone = JsonError::LoneSurrogate { at: start };
        let first = self.code_unit()?;
        let code_point = match first {
            0xd800..=0xdbff => {
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(lone);
                }
                self.at += 2;
                let second = self.code_unit()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(lone);
                }
                0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            unit => unit,
        };
        char::from_u32(code_point).ok_or(lone)
    }

    /// Four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u32, JsonError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return self.syntax();
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString as _;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn compact(text: &str) -> Result<String, JsonError> {
        RawJson::parse(text).map(|json| json.to_string())
    }

    #[test]
    fn numbers_keep_every_character() {
        for number in [
            "0",
            "-0",
            "-0.0",
            "1.0",
            "1.50",
            "9007199254740993",
            "18446744073709551617",
            "1e400",
            "1E+400",
            "-1e-400",
            "0.1000000000000000055511151231257827",
        ] {
            assert_eq!(compact(number).as_deref(), Ok(number));
            assert_eq!(
                compact(&format!(" [ {number} , {{\"a\" : {number}}}\n]")).unwrap(),
                format!("[{number},{{\"a\":{number}}}]")
            );
        }
    }

    #[test]
    fn what_is_not_a_number_of_json_is_refused() {
        for text in [
            "-", "01", "+1", ".5", "1.", "1e", "1e+", "0x1", "NaN", "Infinity", "1_0", "--1", "1 2",
        ] {
            assert!(compact(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_keep_their_order_and_duplicates_are_kept_exactly() {
        assert_eq!(
            compact(r#"{"b":1,"a":2,"b":3}"#).as_deref(),
            Ok(r#"{"b":1,"a":2,"b":3}"#)
        );
    }

    #[test]
    fn equal_strings_get_one_spelling() {
        assert_eq!(
            compact(r#""\u0041\/\u00e9\ud83d\ude42\u000a\u001f\"\\é""#).as_deref(),
            Ok(r#""A/é🙂\n\u001f\"\\é""#)
        );
    }

    #[test]
    fn half_of_a_surrogate_pair_is_refused() {
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\n""#,
            r#""\ud800\ud800""#,
            r#"{"\udfff":1}"#,
        ] {
            assert!(
                matches!(compact(text), Err(JsonError::LoneSurrogate { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn nesting_of_200_and_of_a_million_levels_is_kept() {
        for levels in [200, 1_000_000] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            assert_eq!(compact(&text), Ok(text));
        }
        let objects = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        assert_eq!(compact(&objects), Ok(objects));
    }

    #[test]
    fn other_texts_are_refused_where_they_go_wrong() {
        for (text, at) in [
            ("", 0),
            ("  ", 2),
            ("\u{feff}1", 0),
            ("nul", 0),
            ("[1,]", 3),
            ("[1", 2),
            ("[1}", 2),
            ("{\"a\":1,}", 7),
            ("{a:1}", 1),
            ("{\"a\" 1}", 5),
            ("\"a\nb\"", 2),
            ("\"a", 2),
            ("\"\\x\"", 2),
            ("\"\\u12g4\"", 5),
            ("1 é", 2),
        ] {
            assert_eq!(compact(text), Err(JsonError::Syntax { at }), "{text}");
        }
    }

    #[test]
    fn an_object_is_read_member_by_member() {
        let mut reader = ObjectReader::new(" {\"a\" : [1, 2] ,\"\\u0061\":\"x\\n\", \"c\":1 } ");
        assert_eq!(reader.next_name().unwrap().as_deref(), Some("a"));
        assert_eq!(reader.value().unwrap().as_str(), "[1,2]");
        assert_eq!(reader.next_name().unwrap().as_deref(), Some("a"));
        assert_eq!(reader.text().unwrap().as_deref(), Some("x\n"));
        assert_eq!(reader.next_name().unwrap().as_deref(), Some("c"));
        assert_eq!(reader.text(), Ok(None));
        assert_eq!(reader.next_name(), Ok(None));
        for text in ["[]", "{} x", "{\"a\"}", "{,}", "1"] {
            let mut reader = ObjectReader::new(text);
            assert!(reader.next_name().is_err(), "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[\\PC\\x00-\\x1f\"\\\\]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(("[\\PC\"\\n]{0,4}", inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn compacting_keeps_the_value_and_is_stable(value in any_json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let text = compact(&pretty).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&value).unwrap());
            prop_assert_eq!(compact(&text), Ok(text));
        }

        #[test]
        fn any_text_is_judged_as_serde_judges_it(text in "[\\[\\]{}:,\"\\\\u0-9a-f.eE+ tn\\-\\n]{0,24}") {
            // Numbers that serde cannot hold are the one difference; these are too short for one.
            let serde = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            match compact(&text) {
                Ok(_) => prop_assert!(serde, "{}", text),
                // serde skips strings without looking at their surrogates.
                Err(JsonError::LoneSurrogate { .. }) => {}
                Err(JsonError::Syntax { .. }) => prop_assert!(!serde, "{}", text),
            }
        }
    }
}
