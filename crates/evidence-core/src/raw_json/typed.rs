//! Reading small JSON values into types: arguments of tools, records of a store.
//!
//! What is read this way is either right or refused with one sentence of its reader. `serde_json`'s
//! errors say more, which takes the formatting of floating point numbers and much else into every
//! page; that, and not its speed, is why this is here. Names that stand twice are refused, numbers
//! are never rounded.

use alloc::string::String;
use core::fmt::Display;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess,
    SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{Form, JsonError, Scanner};

/// The text is not the JSON of a value of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the JSON that is expected here")]
pub struct Unreadable;

impl Error for Unreadable {
    fn custom<T: Display>(_message: T) -> Self {
        Self
    }
}

impl From<JsonError> for Unreadable {
    fn from(_: JsonError) -> Self {
        Self
    }
}

/// Reads `json`, the JSON of one value.
///
/// A type can be made of objects with fields that it knows, lists, strings, truth values, integers,
/// options and words. An unsigned integer is known in every spelling, as it is in JSON Schema: `3.0`
/// and `3e0` are 3.
///
/// # Errors
///
/// [`Unreadable`] for anything else.
pub fn from_str<T: DeserializeOwned>(json: &str) -> Result<T, Unreadable> {
    let mut scanner = Scanner { text: json, at: 0 };
    let value = T::deserialize(Reader(&mut scanner))?;
    scanner.end()?;
    Ok(value)
}

/// Reads the next value.
struct Reader<'s, 'a>(&'s mut Scanner<'a>);

impl<'s, 'a> Reader<'s, 'a> {
    fn peek(&mut self) -> Option<u8> {
        self.0.white_space();
        self.0.peek()
    }

    fn text(self) -> Result<String, Unreadable> {
        self.0.white_space();
        let mut text = String::new();
        self.0.string(&mut text, Form::Decoded)?;
        Ok(text)
    }

    fn number(self) -> Result<String, Unreadable> {
        self.0.white_space();
        let mut text = String::new();
        self.0.number(&mut text)?;
        Ok(text)
    }

    fn items(self, open: u8, close: u8) -> Result<Items<'s, 'a>, Unreadable> {
        self.0.white_space();
        self.0.expect(open)?;
        Ok(Items {
            scanner: self.0,
            close,
            is_first: true,
        })
    }
}

impl<'de> Deserializer<'de> for Reader<'_, '_> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Unreadable> {
        Err(Unreadable)
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unreadable> {
        let is_true = self.peek() == Some(b't');
        let literal = if is_true { "true" } else { "false" };
        self.0.literal(&mut String::new(), literal)?;
        visitor.visit_bool(is_true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_i32(self.number()?.parse().map_err(|_| Unreadable)?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_u64(whole_number(&self.number()?).ok_or(Unreadable)?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unreadable> {
        if self.peek() == Some(b'n') {
            self.0.literal(&mut String::new(), "null")?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_seq(self.items(b'[', b']')?)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_map(self.items(b'{', b'}')?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        let word: StringDeserializer<Unreadable> = self.text()?.into_deserializer();
        visitor.visit_enum(word)
    }

    forward_to_deserialize_any! {
        i8 i16 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct map ignored_any
    }
}

/// What a list or an object holds, one by one.
struct Items<'s, 'a> {
    scanner: &'s mut Scanner<'a>,
    close: u8,
    is_first: bool,
}

impl Items<'_, '_> {
    /// Goes to the next item; whether there is one.
    fn advance(&mut self) -> Result<bool, Unreadable> {
        self.scanner.white_space();
        if self.scanner.peek() == Some(self.close) {
            self.scanner.at += 1;
            return Ok(false);
        }
        if !self.is_first {
            self.scanner.expect(b',')?;
        }
        self.is_first = false;
        Ok(true)
    }
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Unreadable;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unreadable> {
        if !self.advance()? {
            return Ok(None);
        }
        seed.deserialize(Reader(self.scanner)).map(Some)
    }
}

impl<'de> MapAccess<'de> for Items<'_, '_> {
    type Error = Unreadable;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unreadable> {
        if !self.advance()? {
            return Ok(None);
        }
        seed.deserialize(Reader(self.scanner)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, Unreadable> {
        self.scanner.white_space();
        self.scanner.expect(b':')?;
        seed.deserialize(Reader(self.scanner))
    }
}

/// The number that a JSON number is, when it has neither a fraction nor a sign that matters. It is
/// counted in decimal digits: what a `u64` holds is exact, however it is written.
fn whole_number(text: &str) -> Option<u64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let mut number = 0_u64;
    for digit in integer.bytes().chain(fraction.bytes()) {
        let digit = u64::from(digit - b'0');
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    if number == 0 {
        return Some(0);
    }
    let point = i32::try_from(fraction.len()).ok()?;
    let scale = exponent.parse::<i32>().ok()?.checked_sub(point)?;
    // Both loops are short: the number is not 0, and soon too large or no multiple of 10.
    for _ in 0..scale {
        number = number.checked_mul(10)?;
    }
    for _ in scale..0 {
        if !number.is_multiple_of(10) {
            return None;
        }
        number /= 10;
    }
    (!is_negative).then_some(number)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Everything {
        text: String,
        list: Vec<String>,
        flag: bool,
        signed: Option<i32>,
        number: u64,
        inner: Option<Inner>,
        word: Word,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        number: u64,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        FirstWord,
        Second,
    }

    #[test]
    fn a_whole_number_is_known_in_every_spelling() {
        for (json, number) in [
            ("0", 0),
            ("-0", 0),
            ("0e99999999999", 0),
            ("3.0", 3),
            ("3e0", 3),
            ("30E-1", 3),
            ("0.3e+1", 3),
            ("5.784e3", 5784),
            ("9007199254740993", 9_007_199_254_740_993),
            ("1e19", 10_000_000_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(from_str(json), Ok(number), "{json}");
        }
        for json in [
            "-1",
            "0.5",
            "-0.5",
            "5e-1",
            "1e20",
            "1e400",
            "1e-99999999999",
            "18446744073709551616",
            "\"3\"",
            "null",
            "03",
            "3.",
            "+3",
            "3 3",
        ] {
            assert_eq!(from_str::<u64>(json), Err(Unreadable), "{json}");
        }
    }

    #[test]
    fn what_is_not_the_type_is_refused() {
        let good = r#" { "number" : 1 } "#;
        assert_eq!(from_str(good), Ok(Inner { number: 1 }));
        for bad in [
            "",
            "{}",
            "[1]",
            "null",
            r#"{"number":1,}"#,
            r#"{"number":1"#,
            r#"{"number":1}}"#,
            r#"{"number" 1}"#,
            r#"{,"number":1}"#,
            r#"{"number":1,"number":1}"#,
            r#"{"number":1,"more":1}"#,
            r#"{"number":null}"#,
        ] {
            assert_eq!(from_str::<Inner>(bad), Err(Unreadable), "{bad}");
        }
        assert_eq!(from_str("[]"), Ok(Vec::<String>::new()));
        assert_eq!(
            from_str(r#"["a", "\u00e9"]"#),
            Ok(vec!["a".into(), String::from("é")])
        );
        for bad in [
            "[\"a\",]",
            "[\"a\" \"b\"]",
            "[,\"a\"]",
            "[\"\\ud800\"]",
            "{}",
        ] {
            assert_eq!(from_str::<Vec<String>>(bad), Err(Unreadable), "{bad}");
        }
        for bad in [
            "\"third\"",
            "\"SECOND\"",
            "1",
            "{\"second\":1}",
            "{\"second\":null}",
        ] {
            assert_eq!(from_str::<Word>(bad), Err(Unreadable), "{bad}");
        }
        for bad in ["tru", "1", "null", "\"true\""] {
            assert_eq!(from_str::<bool>(bad), Err(Unreadable), "{bad}");
        }
        for bad in ["2147483648", "1.0", "1e0"] {
            assert_eq!(from_str::<i32>(bad), Err(Unreadable), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_read_back(
            text in "[\\PC\\x00-\\x1f\"\\\\é漢🙂]{0,40}",
            list in prop::collection::vec("[a\"\\\\\\n]{0,5}", 0..4),
            flag: bool,
            signed: Option<i32>,
            number: u64,
            inner: Option<u64>,
            second: bool,
            pretty: bool,
        ) {
            let everything = Everything {
                text,
                list,
                flag,
                signed,
                number,
                inner: inner.map(|number| Inner { number }),
                word: if second { Word::Second } else { Word::FirstWord },
            };
            let json = if pretty {
                serde_json::to_string_pretty(&everything)
            } else {
                serde_json::to_string(&everything)
            };
            prop_assert_eq!(from_str::<Everything>(&json.unwrap()), Ok(everything));
        }

        #[test]
        fn any_text_is_read_or_refused_as_serde_json_does(json in "[{}\\[\\]\":, a-z0-9.eE\\\\+-]{0,30}") {
            let ours = from_str::<Everything>(&json).ok();
            prop_assert_eq!(ours, serde_json::from_str::<Everything>(&json).ok());
        }
    }
}
