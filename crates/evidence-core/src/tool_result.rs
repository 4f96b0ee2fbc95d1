//! A tool's result as contract B knows it, and its one serialization.

use alloc::string::String;

use crate::json;
use crate::raw_json::{JsonError, ObjectReader, RawJson};

/// What a tool answers: whether it succeeded, what the model reads, and two values of the tool's own
/// that are kept exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether the tool did what it was asked.
    pub success: bool,
    /// What the model reads.
    pub text: String,
    /// A structured value; none is `null`.
    pub data: Option<RawJson>,
    /// What the tool's run is proven by; none is `null`.
    pub receipt: Option<RawJson>,
}

/// A text is not a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ToolResultError {
    /// It is not a JSON object.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A member that tool results do not have.
    #[error("a tool result has the members success, text, data and receipt and no other")]
    UnknownMember,
    /// A member stands twice; which one was meant cannot be known.
    #[error("the member \"{name}\" stands twice")]
    DuplicateMember {
        /// Which.
        name: &'static str,
    },
    /// `success` or `text` is not there.
    #[error("the member \"{name}\" is missing")]
    MissingMember {
        /// Which.
        name: &'static str,
    },
    /// `success` is not a truth value or `text` is not a string.
    #[error("the member \"{name}\" must be {expected}")]
    WrongType {
        /// Which.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
}

/// Around the text, in the serialization.
const BEFORE_SUCCESS: &str = "{\"success\":";
const BEFORE_TEXT: &str = ",\"text\":\"";
const BEFORE_DATA: &str = "\",\"data\":";
const BEFORE_RECEIPT: &str = ",\"receipt\":";

impl ToolResult {
    /// A result that is only text.
    pub const fn from_text(success: bool, text: String) -> Self {
        Self {
            success,
            text,
            data: None,
            receipt: None,
        }
    }

    /// Reads a result from JSON. `data` and `receipt` may be left out.
    ///
    /// # Errors
    ///
    /// [`ToolResultError`] for anything that is not exactly a tool result.
    pub fn parse(json: &str) -> Result<Self, ToolResultError> {
        let mut builder = ToolResultBuilder::default();
        let mut reader = ObjectReader::new(json);
        while let Some(name) = reader.next_name()? {
            if !builder.read_member(&name, &mut reader)? {
                return Err(ToolResultError::UnknownMember);
            }
        }
        builder.build()
    }

    /// The canonical serialization, which is what is measured, digested and stored:
    /// `{"success":…,"text":…,"data":…,"receipt":…}`, compact, in this order, all four always there,
    /// strings with the shortest escapes and non-ASCII unescaped, numbers as they were written.
    pub fn serialize(&self) -> String {
        let mut out = String::with_capacity(self.serialized_byte_count());
        out.push_str(BEFORE_SUCCESS);
        out.push_str(if self.success { "true" } else { "false" });
        out.push_str(BEFORE_TEXT);
        json::push_escaped(&mut out, &self.text);
        out.push_str(BEFORE_DATA);
        out.push_str(or_null(self.data.as_ref()));
        out.push_str(BEFORE_RECEIPT);
        out.push_str(or_null(self.receipt.as_ref()));
        out.push('}');
        out
    }

    /// The size of [`serialize`](Self::serialize), without making it.
    pub fn serialized_byte_count(&self) -> usize {
        self.data_position()
            + or_null(self.data.as_ref()).len()
            + BEFORE_RECEIPT.len()
            + or_null(self.receipt.as_ref()).len()
            + "}".len()
    }

    /// Where the text begins in the serialization, after its quotation mark.
    pub(crate) const fn text_position(&self) -> usize {
        let success = if self.success { "true" } else { "false" };
        BEFORE_SUCCESS.len() + success.len() + BEFORE_TEXT.len()
    }

    /// Where the data begin in the serialization.
    pub(crate) fn data_position(&self) -> usize {
        self.text_position() + json::escaped_len(&self.text) + BEFORE_DATA.len()
    }
}

fn or_null(value: Option<&RawJson>) -> &str {
    value.map_or("null", RawJson::as_str)
}

/// Reads the members of a tool result one by one, for objects that hold more than one.
#[derive(Debug, Default)]
pub struct ToolResultBuilder {
    success: Option<bool>,
    text: Option<String>,
    data: Option<RawJson>,
    receipt: Option<RawJson>,
}

impl ToolResultBuilder {
    /// Reads the value of the member `name` when it is one of a tool result's; `false`, with the
    /// value unread, when it is not.
    ///
    /// # Errors
    ///
    /// [`ToolResultError`] when the value is not what the member must be, or stood there before.
    pub fn read_member(
        &mut self,
        name: &str,
        reader: &mut ObjectReader<'_>,
    ) -> Result<bool, ToolResultError> {
        match name {
            "success" => {
                let success = match reader.value()?.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(wrong_type("success", "true or false")),
                };
                set(&mut self.success, success, "success")?;
            }
            "text" => {
                let text = reader.text()?.ok_or(wrong_type("text", "a string"))?;
                set(&mut self.text, text, "text")?;
            }
            "data" => set(&mut self.data, reader.value()?, "data")?,
            "receipt" => set(&mut self.receipt, reader.value()?, "receipt")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The result.
    ///
    /// # Errors
    ///
    /// [`ToolResultError::MissingMember`].
    pub fn build(self) -> Result<ToolResult, ToolResultError> {
        let missing = |name| ToolResultError::MissingMember { name };
        Ok(ToolResult {
            success: self.success.ok_or(missing("success"))?,
            text: self.text.ok_or(missing("text"))?,
            data: self.data.filter(|data| !data.is_null()),
            receipt: self.receipt.filter(|receipt| !receipt.is_null()),
        })
    }
}

const fn wrong_type(name: &'static str, expected: &'static str) -> ToolResultError {
    ToolResultError::WrongType { name, expected }
}

fn set<T>(member: &mut Option<T>, value: T, name: &'static str) -> Result<(), ToolResultError> {
    match member.replace(value) {
        None => Ok(()),
        Some(_) => Err(ToolResultError::DuplicateMember { name }),
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_serialization_has_the_four_members_in_order_and_keeps_values_exactly() {
        let json = r#"{ "receipt": {"n": [9007199254740993, -0, 1e400]}, "data": null, "text": "a\u00e9\n", "success": false }"#;
        let result = ToolResult::parse(json).unwrap();
        assert_eq!(
            result.serialize(),
            r#"{"success":false,"text":"aé\n","data":null,"receipt":{"n":[9007199254740993,-0,1e400]}}"#
        );
    }

    #[test]
    fn data_and_receipt_may_be_left_out_and_null_is_none() {
        let short = ToolResult::parse(r#"{"success":true,"text":""}"#).unwrap();
        let long = r#"{"success":true,"text":"","data":null,"receipt":null}"#;
        assert_eq!(short, ToolResult::parse(long).unwrap());
        assert_eq!(short, ToolResult::from_text(true, String::new()));
        assert_eq!(short.serialize(), long);
    }

    #[test]
    fn what_is_not_exactly_a_tool_result_is_refused() {
        let cases = [
            (r#"{"success":true}"#, "the member \"text\" is missing"),
            (r#"{"text":"x"}"#, "the member \"success\" is missing"),
            (
                r#"{"success":1,"text":"x"}"#,
                "the member \"success\" must be true or false",
            ),
            (
                r#"{"success":true,"text":null}"#,
                "the member \"text\" must be a string",
            ),
            (
                r#"{"success":true,"text":"x","success":true}"#,
                "the member \"success\" stands twice",
            ),
            (
                r#"{"success":true,"text":"x","data":null,"data":null}"#,
                "the member \"data\" stands twice",
            ),
            (
                r#"{"success":true,"text":"x","exit":1}"#,
                "a tool result has the members success, text, data and receipt and no other",
            ),
            (
                r#"[true,"x"]"#,
                "this is not JSON: unexpected input at byte 0",
            ),
            (
                r#"{"success":true,"text":"\ud83d"}"#,
                "the string escape at byte 24 is half of a surrogate pair, which is not text",
            ),
        ];
        for (json, message) in cases {
            assert_eq!(
                ToolResult::parse(json).unwrap_err().to_string(),
                message,
                "{json}"
            );
        }
    }

    #[test]
    fn data_nested_200_deep_and_duplicate_keys_in_it_are_kept_exactly() {
        let deep = format!("{}{}", r#"{"k":["#.repeat(100), "]}".repeat(100));
        for data in [deep.as_str(), r#"{"a":1,"a":2}"#] {
            let json = format!(r#"{{"success":true,"text":"","data":{data},"receipt":{data}}}"#);
            assert_eq!(ToolResult::parse(&json).unwrap().serialize(), json);
        }
    }

    proptest! {
        #[test]
        fn a_serialization_is_read_back_and_is_as_long_as_counted(
            success: bool,
            text in "[\\PC\\x00-\\x1f\"\\\\é漢🙂]{0,80}",
            data in prop::option::of("[0-9]{1,20}".prop_map(|digits| format!("[1{digits}]"))),
        ) {
            let result = ToolResult {
                success,
                text,
                data: data.map(|data| RawJson::parse(&data).unwrap()),
                receipt: None,
            };
            let json = result.serialize();
            prop_assert_eq!(json.len(), result.serialized_byte_count());
            prop_assert_eq!(json.capacity(), json.len());
            let data_at = result.data_position();
            prop_assert!(json[data_at..].starts_with(or_null(result.data.as_ref())));
            prop_assert!(json[..result.text_position()].ends_with(":\""));
            prop_assert_eq!(ToolResult::parse(&json).unwrap(), result);
        }
    }
}
