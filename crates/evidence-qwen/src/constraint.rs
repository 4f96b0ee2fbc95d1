//! Constrained decoding: a reply that is one JSON action and nothing else.
//!
//! The grammar is an automaton over bytes. Before a token is chosen, those
//! that would leave the grammar are masked; inside a string nearly all stay,
//! so the text is the model's own.

use evidence_agent::action::ToolName;
use serde::{Deserialize, Serialize};

use crate::tokenizer::TokenBytes;

/// Digits of a number: one of more is no size of anything.
const MAX_DIGITS: u8 = 15;

/// What a field of an action holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldKind {
    /// A string.
    Text,
    /// A non-empty array of non-empty strings.
    Texts,
    /// A whole number that is not negative.
    Number,
}

/// A field of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether the action must have it.
    pub required: bool,
}

/// A tool that an action may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The fields beside `tool`, in any order.
    pub fields: Vec<Field>,
}

/// Why tools cannot be made into a grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// More tools or fields than the automaton counts.
    #[error("at most 31 tools with 16 fields each can be constrained")]
    TooMany,
    /// A name that would have to be escaped in JSON.
    #[error("the name {0:?} is empty, longer than 64 bytes, or must be escaped in JSON")]
    Name(String),
}

/// The replies that are one action: `{"tool":…}` with exactly the fields of a
/// tool, or `{"final":…}` with a text that is not blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionSchema {
    tools: Vec<Tool>,
}

impl ActionSchema {
    /// The actions that these tools allow. Without tools only a final one is.
    ///
    /// # Errors
    ///
    /// When there are too many tools or fields, or a name is unusual.
    pub fn new(tools: Vec<Tool>) -> Result<Self, SchemaError> {
        if tools.len() > 31 || tools.iter().any(|tool| tool.fields.len() > 16) {
            return Err(SchemaError::TooMany);
        }
        let names = tools.iter().flat_map(|tool| {
            tool.fields
                .iter()
                .map(|field| &field.name)
                .chain([&tool.name])
        });
        for name in names {
            let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
            if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
                return Err(SchemaError::Name(name.clone()));
            }
        }
        Ok(Self { tools })
    }

    /// The actions of the loop with these tools.
    pub fn for_tools(tools: &[ToolName]) -> Self {
        let tools = tools
            .iter()
            .map(|tool| {
                let (required, optional) = tool.fields();
                let field = |name: &&str, required| Field {
                    name: (*name).to_owned(),
                    kind: match *name {
                        "argv" => FieldKind::Texts,
                        "limit" | "max_output_bytes" | "offset" | "stderr_offset"
                        | "stdout_offset" => FieldKind::Number,
                        _ => FieldKind::Text,
                    },
                    required,
                };
                let required = required.iter().map(|name| field(name, true));
                let optional = optional.iter().map(|name| field(name, false));
                Tool {
                    name: tool.as_str().to_owned(),
                    fields: required.chain(optional).collect(),
                }
            })
            .collect();
        Self { tools }
    }

    /// The state after a byte, `None` when the byte leaves the grammar.
    pub(crate) fn step(&self, state: State, byte: u8) -> Option<State> {
        match state {
            State::Open => (byte == b'{').then_some(State::Quote {
                set: Words::First,
                spaced: false,
            }),
            State::Quote { set, spaced } => match byte {
                b'"' => Some(State::Word {
                    set,
                    alive: self.all(set),
                    at: 0,
                }),
                b' ' if !spaced => Some(State::Quote { set, spaced: true }),
                _ => None,
            },
            State::Word { set, alive, at } => self.step_word(set, alive, at, byte),
            State::Colon { value } => (byte == b':').then_some(State::Value {
                value,
                spaced: false,
            }),
            State::Value {
                spaced: false,
                value,
            } if byte == b' ' => Some(State::Value {
                value,
                spaced: true,
            }),
            State::Value { value, .. } => self.step_value(value, byte),
            State::Item { tool, rest, spaced } => match byte {
                b'"' => Some(State::Text(Text::new(Owner::Item { tool, rest }))),
                b' ' if !spaced => Some(State::Item {
                    tool,
                    rest,
                    spaced: true,
                }),
                _ => None,
            },
            State::AfterItem { tool, rest } => match byte {
                b',' => Some(State::Item {
                    tool,
                    rest,
                    spaced: false,
                }),
                b']' => Some(State::AfterField {
                    tool,
                    rest,
                    spaced: false,
                }),
                _ => None,
            },
            State::Number { tool, rest, digits } => {
                if byte.is_ascii_digit() && (1..MAX_DIGITS).contains(&digits) {
                    return Some(State::Number {
                        tool,
                        rest,
                        digits: digits + 1,
                    });
                }
                let after = State::AfterField {
                    tool,
                    rest,
                    spaced: false,
                };
                self.step(after, byte)
            }
            State::AfterField { tool, rest, spaced } => match byte {
                b',' if rest != 0 => Some(State::Quote {
                    set: Words::Fields { tool, rest },
                    spaced: false,
                }),
                b'}' if rest & self.required(tool) == 0 => Some(State::End),
                b' ' if !spaced && rest & self.required(tool) == 0 => Some(State::AfterField {
                    tool,
                    rest,
                    spaced: true,
                }),
                _ => None,
            },
            State::AfterFinal { spaced } => match byte {
                b'}' => Some(State::End),
                b' ' if !spaced => Some(State::AfterFinal { spaced: true }),
                _ => None,
            },
            State::Text(text) => text.step(byte),
            State::End => None,
        }
    }

    fn step_word(&self, set: Words, alive: u32, at: u8, byte: u8) -> Option<State> {
        let position = usize::from(at);
        let mut still = 0;
        for index in (0..32_u8).filter(|index| alive >> index & 1 == 1) {
            let word = self.word(set, index).as_bytes();
            if byte == b'"' && word.len() == position {
                return Some(self.after_word(set, index));
            }
            if word.get(position) == Some(&byte) {
                still |= 1 << index;
            }
        }
        // Words have at most 64 bytes.
        (still != 0).then_some(State::Word {
            set,
            alive: still,
            at: at + 1,
        })
    }

    fn step_value(&self, value: Value, byte: u8) -> Option<State> {
        match value {
            Value::ToolName => (byte == b'"').then(|| State::Word {
                set: Words::Tools,
                alive: self.all(Words::Tools),
                at: 0,
            }),
            Value::Final => (byte == b'"').then(|| State::Text(Text::new(Owner::Final))),
            Value::Field { tool, field, rest } => {
                match self.tools[usize::from(tool)].fields[usize::from(field)].kind {
                    FieldKind::Text => {
                        (byte == b'"').then(|| State::Text(Text::new(Owner::Field { tool, rest })))
                    }
                    FieldKind::Texts => (byte == b'[').then_some(State::Item {
                        tool,
                        rest,
                        spaced: false,
                    }),
                    FieldKind::Number => byte.is_ascii_digit().then_some(State::Number {
                        tool,
                        rest,
                        digits: u8::from(byte != b'0'),
                    }),
                }
            }
        }
    }

    fn after_word(&self, set: Words, index: u8) -> State {
        match set {
            Words::First if index == 0 => State::Colon {
                value: Value::Final,
            },
            Words::First => State::Colon {
                value: Value::ToolName,
            },
            Words::Tools => {
                let fields = self.tools[usize::from(index)].fields.len();
                let rest = (1_u32 << fields) - 1;
                State::AfterField {
                    tool: index,
                    rest,
                    spaced: false,
                }
            }
            Words::Fields { tool, rest } => State::Colon {
                value: Value::Field {
                    tool,
                    field: index,
                    rest: rest & !(1 << index),
                },
            },
        }
    }

    fn word(&self, set: Words, index: u8) -> &str {
        let index = usize::from(index);
        match set {
            Words::First => ["final", "tool"][index],
            Words::Tools => &self.tools[index].name,
            Words::Fields { tool, .. } => &self.tools[usize::from(tool)].fields[index].name,
        }
    }

    fn all(&self, set: Words) -> u32 {
        match set {
            Words::First if self.tools.is_empty() => 0b1,
            Words::First => 0b11,
            Words::Tools => (1 << self.tools.len()) - 1,
            Words::Fields { rest, .. } => rest,
        }
    }

    fn required(&self, tool: u8) -> u32 {
        let fields = self.tools[usize::from(tool)].fields.iter().enumerate();
        fields
            .filter(|(_, field)| field.required)
            .map(|(index, _)| 1_u32 << index)
            .sum()
    }
}

/// The words that may stand between quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    /// `final` and `tool`.
    First,
    Tools,
    /// The fields of a tool that are still to come, a bit for each.
    Fields {
        tool: u8,
        rest: u32,
    },
}

/// What comes after a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Final,
    ToolName,
    Field { tool: u8, field: u8, rest: u32 },
}

/// Where in an action a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Quote {
        set: Words,
        spaced: bool,
    },
    Word {
        set: Words,
        alive: u32,
        at: u8,
    },
    Colon {
        value: Value,
    },
    Value {
        value: Value,
        spaced: bool,
    },
    Item {
        tool: u8,
        rest: u32,
        spaced: bool,
    },
    AfterItem {
        tool: u8,
        rest: u32,
    },
    /// In a number; a zero, which has no other digits, counts none.
    Number {
        tool: u8,
        rest: u32,
        digits: u8,
    },
    AfterField {
        tool: u8,
        rest: u32,
        spaced: bool,
    },
    AfterFinal {
        spaced: bool,
    },
    Text(Text),
    End,
}

/// What a string belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Final,
    Field { tool: u8, rest: u32 },
    Item { tool: u8, rest: u32 },
}

/// A JSON string after its opening quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text {
    owner: Owner,
    /// Whether it may end: an argument must not be empty, a final text not blank.
    filled: bool,
    inside: Inside,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Between characters.
    Plain,
    /// After a backslash.
    Escape,
    /// In the four digits of `\u`.
    Hex {
        digits: u8,
        value: u16,
        low_half: bool,
    },
    /// After the first half of a surrogate pair: a backslash, then `u`.
    Pair { backslash: bool },
    /// Inside a character of several bytes: the next one's range, and how many
    /// more come after it.
    Continuation { first: u8, last: u8, more: u8 },
}

impl Text {
    fn new(owner: Owner) -> Self {
        let filled = matches!(owner, Owner::Field { .. });
        Self {
            owner,
            filled,
            inside: Inside::Plain,
        }
    }

    fn at(self, inside: Inside) -> State {
        State::Text(Self { inside, ..self })
    }

    fn filled_if(self, condition: bool) -> Self {
        Self {
            filled: self.filled || condition,
            ..self
        }
    }

    fn step(self, byte: u8) -> Option<State> {
        match self.inside {
            Inside::Plain => self.step_plain(byte),
            Inside::Escape => match byte {
                b'"' | b'\\' | b'/' => Some(self.filled_if(true).at(Inside::Plain)),
                b'b' | b'f' | b'n' | b'r' | b't' => {
                    Some(self.filled_if(self.owner != Owner::Final).at(Inside::Plain))
                }
                b'u' => Some(self.at(Inside::Hex {
                    digits: 0,
                    value: 0,
                    low_half: false,
                })),
                _ => None,
            },
            Inside::Hex {
                digits,
                value,
                low_half,
            } => self.step_hex(digits, value, low_half, byte),
            Inside::Pair { backslash: false } => {
                (byte == b'\\').then(|| self.at(Inside::Pair { backslash: true }))
            }
            Inside::Pair { backslash: true } => (byte == b'u').then(|| {
                self.at(Inside::Hex {
                    digits: 0,
                    value: 0,
                    low_half: true,
                })
            }),
            Inside::Continuation { first, last, more } => {
                if !(first..=last).contains(&byte) {
                    return None;
                }
                Some(self.at(match more {
                    0 => Inside::Plain,
                    _ => Inside::Continuation {
                        first: 0x80,
                        last: 0xbf,
                        more: more - 1,
                    },
                }))
            }
        }
    }

    fn step_plain(self, byte: u8) -> Option<State> {
        let continuation = |first, last, more| Inside::Continuation { first, last, more };
        let inside = match byte {
            b'"' => return self.filled.then(|| self.closed()),
            b'\\' => return Some(self.at(Inside::Escape)),
            b' '..=0x7f => Inside::Plain,
            0xc2..=0xdf => continuation(0x80, 0xbf, 0),
            0xe0 => continuation(0xa0, 0xbf, 1),
            0xed => continuation(0x80, 0x9f, 1),
            0xe1..=0xef => continuation(0x80, 0xbf, 1),
            0xf0 => continuation(0x90, 0xbf, 2),
            0xf1..=0xf3 => continuation(0x80, 0xbf, 2),
            0xf4 => continuation(0x80, 0x8f, 2),
            // A control character, or no beginning of a character.
            _ => return None,
        };
        // Characters that begin with these bytes may be blank, like U+3000.
        let blank = matches!(byte, b' ' | 0x7f | 0xc2 | 0xe1..=0xe3);
        Some(
            self.filled_if(!blank || self.owner != Owner::Final)
                .at(inside),
        )
    }

    fn step_hex(self, digits: u8, value: u16, low_half: bool, byte: u8) -> Option<State> {
        let digit = char::from(byte).to_digit(16)?;
        // A hexadecimal digit is below 16.
        let value = value << 4 | u16::try_from(digit).unwrap_or_default();
        if digits < 3 {
            // Digits that can only end in a half of a pair that must not stand here.
            let is_possible = match (low_half, digits) {
                (true, 0) => value == 0xd,
                (true, 1) => value >= 0xdc,
                (false, 1) => !(0xdc..=0xdf).contains(&value),
                _ => true,
            };
            return is_possible.then(|| {
                self.at(Inside::Hex {
                    digits: digits + 1,
                    value,
                    low_half,
                })
            });
        }
        let first_half = !low_half && (0xd800..0xdc00).contains(&value);
        let text = self.filled_if(self.owner != Owner::Final);
        Some(text.at(if first_half {
            Inside::Pair { backslash: false }
        } else {
            Inside::Plain
        }))
    }

    fn closed(self) -> State {
        match self.owner {
            Owner::Final => State::AfterFinal { spaced: false },
            Owner::Field { tool, rest } => State::AfterField {
                tool,
                rest,
                spaced: false,
            },
            Owner::Item { tool, rest } => State::AfterItem { tool, rest },
        }
    }
}

/// Which tokens of a vocabulary are ordinary text, known beforehand.
#[derive(Debug, Default)]
pub(crate) struct TokenClasses {
    /// A bit for each token that is whole characters with nothing special.
    plain: Vec<u32>,
    /// The other tokens, which are tried.
    others: Vec<u32>,
}

impl TokenClasses {
    pub(crate) fn new(tokens: &TokenBytes) -> Self {
        let mut plain = vec![0; tokens.len().div_ceil(32)];
        let mut others = Vec::new();
        for token in 0..u32::try_from(tokens.len()).unwrap_or(u32::MAX) {
            let bytes = tokens.of(token);
            let is_plain = std::str::from_utf8(bytes).is_ok_and(|text| {
                !text.is_empty()
                    && text
                        .bytes()
                        .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
            });
            if is_plain {
                plain[token as usize / 32] |= 1 << (token % 32);
            } else if !bytes.is_empty() {
                others.push(token);
            }
        }
        Self { plain, others }
    }
}

/// The state of one reply.
#[derive(Debug, Clone)]
pub(crate) struct Constraint<'a> {
    schema: &'a ActionSchema,
    state: State,
}

impl<'a> Constraint<'a> {
    pub(crate) fn new(schema: &'a ActionSchema) -> Self {
        Self {
            schema,
            state: State::Open,
        }
    }

    /// Whether the action is complete: nothing but a stop token may follow.
    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::End
    }

    fn after(&self, bytes: &[u8]) -> Option<State> {
        bytes
            .iter()
            .try_fold(self.state, |state, byte| self.schema.step(state, *byte))
    }

    /// Whether the reply may go on with these bytes of a token.
    pub(crate) fn allows(&self, bytes: &[u8]) -> bool {
        !bytes.is_empty() && self.after(bytes).is_some()
    }

    /// Goes on with the bytes of a token that is allowed.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(state) = self.after(bytes) {
            self.state = state;
        }
    }

    /// A bit for each token of the vocabulary that may come next.
    pub(crate) fn mask(
        &self,
        tokens: &TokenBytes,
        classes: &TokenClasses,
        vocab_size: usize,
    ) -> Vec<u32> {
        let mut mask;
        let inside_text = matches!(
            self.state,
            State::Text(Text {
                inside: Inside::Plain,
                ..
            })
        );
        if inside_text {
            mask = classes.plain.clone();
            mask.resize(vocab_size.div_ceil(32), 0);
            for token in &classes.others {
                if self.allows(tokens.of(*token)) {
                    mask[*token as usize / 32] |= 1 << (token % 32);
                }
            }
        } else {
            mask = vec![0; vocab_size.div_ceil(32)];
            for token in 0..u32::try_from(tokens.len()).unwrap_or(u32::MAX) {
                if self.allows(tokens.of(token)) {
                    mask[token as usize / 32] |= 1 << (token % 32);
                }
            }
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use evidence_agent::Action;

    use super::*;

    fn schema() -> ActionSchema {
        ActionSchema::for_tools(&ToolName::ALL)
    }

    /// Whether a reply is in the grammar, and whether it is complete.
    fn accepts(reply: &str) -> Option<bool> {
        let schema = schema();
        let constraint = Constraint::new(&schema);
        constraint
            .after(reply.as_bytes())
            .map(|state| state == State::End)
    }

    #[test]
    fn actions_are_accepted() {
        for reply in [
            r#"{"final":"done"}"#,
            r#"{"final": " x "}"#,
            r#"{"final":"完成 😀 \u00e9\ud83d\ude42 \"q\" \\ \n ."}"#,
            r#"{"final":"\""}"#,
            r#"{"tool":"list_files"}"#,
            r#"{"tool": "list_files", "path": "."}"#,
            r#"{"tool":"read_file","path":""}"#,
            r#"{"tool":"write_file","content":"a\nb","path":"x"}"#,
            r#"{ "tool":"edit_file","old":"","path":"p","new":"" }"#,
            r#"{"tool":"run_command","argv":["ls", "-l"]}"#,
            r#"{"tool":"run_command","argv":[" "]}"#,
        ] {
            assert_eq!(accepts(reply), Some(true), "{reply}");
        }
    }

    #[test]
    fn everything_else_is_not() {
        for reply in [
            "x",
            " {",
            "[",
            "{}",
            "{  \"",
            r#"{"final":""}"#,
            r#"{"final":"  "}"#,
            "{\"final\":\"\u{3000}\"}",
            r#"{"final":"\n"}"#,
            r#"{"final":1"#,
            r#"{"final":"a","#,
            r#"{"final":"a"}}"#,
            r#"{"final":"a"} "#,
            r#"{"final":"\x"#,
            "{\"final\":\"a\n",
            r#"{"final":"\ud800 "#,
            r#"{"final":"\ud800\u0041"#,
            r#"{"final":"\udc00"#,
            r#"{"tool":"nope"#,
            r#"{"tool":"read"}"#,
            r#"{"tool":"read_file"}"#,
            r#"{"tool":"read_file","x"#,
            r#"{"tool":"read_file","path":"a","path"#,
            r#"{"tool":"read_file","path":null"#,
            r#"{"tool":"list_files","path":"a",}"#,
            r#"{"tool":"write_file","path":"a"}"#,
            r#"{"tool":"run_command","argv":[]"#,
            r#"{"tool":"run_command","argv":"a"#,
            r#"{"tool":"run_command","argv":["a",""]"#,
            r#"{"path":"a"#,
        ] {
            assert_eq!(accepts(reply), None, "{reply}");
        }
        assert_eq!(accepts(r#"{"tool":"run_command","argv":["#), Some(false));
    }

    #[test]
    fn the_tools_of_contract_b_take_numbers() {
        let schema = ActionSchema::for_tools(&[ToolName::ReadToolOutput, ToolName::PollProcess]);
        let is_complete = |reply: &str| {
            let constraint = Constraint::new(&schema);
            let state = constraint.after(reply.as_bytes());
            state.map(|state| state == State::End)
        };
        let digest = "0".repeat(64);
        for fields in [
            r#""offset":0,"limit":8192"#,
            r#""limit": 1, "offset": 1234567890"#,
        ] {
            let reply =
                format!(r#"{{"tool":"akh_read_tool_output","sha256":"{digest}",{fields}}}"#);
            assert_eq!(is_complete(&reply), Some(true), "{reply}");
            Action::parse(&reply, Some(&[ToolName::ReadToolOutput])).unwrap();
        }
        let poll = r#"{"tool":"exec_poll","stdout_offset":7,"process_id":"p"}"#;
        assert_eq!(is_complete(poll), Some(true));
        for reply in [
            r#"{"tool":"exec_poll","stdout_offset":"7""#,
            r#"{"tool":"exec_poll","stdout_offset":-"#,
            r#"{"tool":"exec_poll","stdout_offset":01"#,
            r#"{"tool":"exec_poll","stdout_offset":1."#,
            r#"{"tool":"exec_poll","stdout_offset":1234567890123456"#,
            r#"{"tool":"exec_poll","stdout_offset":7}"#,
        ] {
            assert_eq!(is_complete(reply), None, "{reply}");
        }
    }

    #[test]
    fn text_is_held_to_utf8() {
        let schema = schema();
        let mut constraint = Constraint::new(&schema);
        constraint.push(br#"{"final":"a"#);
        for bytes in [
            &b"\xc0\x80"[..],
            b"\xed\xa0\x80",
            b"\xf5",
            b"\x80",
            b"\xe2\x82\"",
        ] {
            assert!(!constraint.allows(bytes), "{bytes:?}");
        }
        for bytes in [
            &b"\xe2"[..],
            b"\xe2\x82",
            b"\xe2\x82\xac",
            b"\xf0\x9f\x98\x80",
        ] {
            assert!(constraint.allows(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn names_and_numbers_are_checked() {
        let tool = |name: &str| Tool {
            name: name.to_owned(),
            fields: Vec::new(),
        };
        assert_eq!(
            ActionSchema::new(vec![tool("a\"b")]),
            Err(SchemaError::Name("a\"b".to_owned()))
        );
        assert_eq!(
            ActionSchema::new(vec![tool("a"); 32]),
            Err(SchemaError::TooMany)
        );
        let schema = ActionSchema::new(Vec::new()).unwrap();
        let constraint = Constraint::new(&schema);
        assert!(constraint.allows(br#"{"final":"#) && !constraint.allows(br#"{"tool"#));
    }
}
