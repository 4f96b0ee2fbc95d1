//! Text to tokens and back.

use std::collections::HashMap;

use tokenizers::Tokenizer as Inner;

/// Why a tokenizer is refused, or a text cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// `tokenizer.json` cannot be read.
    #[error("tokenizer.json cannot be read: {0}")]
    Malformed(String),
    /// The tokenizer has tokens that the model has no embedding for.
    #[error(
        "tokenizer.json has the token {token}, but the model's vocabulary ends at {vocab_size}; \
         it belongs to another model"
    )]
    VocabularyMismatch {
        /// The largest token of the tokenizer.
        token: u32,
        /// Rows of the model's embedding.
        vocab_size: usize,
    },
    /// A text cannot be encoded.
    #[error("the text cannot be encoded: {0}")]
    Encode(String),
}

/// A checkpoint's tokenizer.
///
/// Texts of a conversation are kept apart from the template around them: what
/// looks like a special token in a message is guarded before the template is
/// rendered (`guard`) and encoded as the letters that it is.
pub struct Tokenizer {
    /// Encodes special tokens as letters. They are split off beforehand.
    inner: Inner,
    special: HashMap<String, u32>,
    bytes: TokenBytes,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("tokens", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// The bytes that each token stands for.
#[derive(Debug, Default)]
pub(crate) struct TokenBytes {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl TokenBytes {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // A vocabulary of 4 GiB does not fit the file limit.
        self.ends
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The token's bytes: none for a special token or one that does not exist.
    pub(crate) fn of(&self, token: u32) -> &[u8] {
        let token = token as usize;
        let Some(end) = self.ends.get(token) else {
            return &[];
        };
        let start = token.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..*end as usize]
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json` for a model of this many embeddings.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or belongs to a larger vocabulary.
    pub fn parse(json: &[u8], vocab_size: usize) -> Result<Self, TokenizerError> {
        let mut inner = Inner::from_bytes(json)
            .map_err(|error| TokenizerError::Malformed(error.to_string()))?;
        let vocabulary = inner.get_vocab(true);
        let largest = vocabulary.values().copied().max().unwrap_or_default();
        if largest as usize >= vocab_size {
            return Err(TokenizerError::VocabularyMismatch {
                token: largest,
                vocab_size,
            });
        }
        let added = inner.get_added_tokens_decoder();
        let special = added
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, token)| (token.content.clone(), *id))
            .collect();
        let alphabet = Alphabet::of(&inner);
        let mut by_token: Vec<Vec<u8>> = vec![Vec::new(); largest as usize + 1];
        for (text, id) in vocabulary {
            by_token[id as usize] = match added.get(&id) {
                Some(token) if token.special => Vec::new(),
                Some(_) => text.into_bytes(),
                None => alphabet.bytes(&text),
            };
        }
        let mut bytes = TokenBytes::default();
        for token in by_token {
            bytes.push(&token);
        }
        inner.set_encode_special_tokens(true);
        Ok(Self {
            inner,
            special,
            bytes,
        })
    }

    /// The id of a special token.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        self.special.get(text).copied()
    }

    pub(crate) fn token_bytes(&self) -> &TokenBytes {
        &self.bytes
    }

    /// A mark that occurs in none of these texts.
    pub(crate) fn unused_mark<'a>(texts: &(impl Iterator<Item = &'a str> + Clone)) -> char {
        ('\u{10f000}'..='\u{10fffd}')
            .find(|mark| !texts.clone().any(|text| text.contains(*mark)))
            // A text that holds four thousand different private characters
            // loses one of them.
            .unwrap_or('\u{10fffd}')
    }

    /// Puts the mark into everything that looks like a special token, so that
    /// a template leaves it alone and [`encode`](Self::encode) finds it.
    pub(crate) fn guard(&self, text: &str, mark: char) -> String {
        let mut guarded = text.to_owned();
        for token in self.special.keys() {
            if guarded.contains(token.as_str()) {
                let mut letters = token.chars();
                let marked: String = letters
                    .next()
                    .into_iter()
                    .chain([mark])
                    .chain(letters)
                    .collect();
                guarded = guarded.replace(token.as_str(), &marked);
            }
        }
        guarded
    }

    /// Encodes a rendered template. Special tokens become themselves, except
    /// those that hold the mark, which are encoded as letters.
    ///
    /// # Errors
    ///
    /// When the tokenizer has no token for a part of the text.
    pub(crate) fn encode(&self, text: &str, mark: char) -> Result<Vec<u32>, TokenizerError> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let next = self.next_special(rest);
            let plain = next.map_or(rest, |(start, _, _)| &rest[..start]);
            if !plain.is_empty() {
                tokens.extend(self.encode_plain(&plain.replace(mark, ""))?);
            }
            let Some((start, length, id)) = next else {
                break;
            };
            tokens.push(id);
            rest = &rest[start + length..];
        }
        Ok(tokens)
    }

    /// Encodes a text in which nothing is special.
    ///
    /// # Errors
    ///
    /// When the tokenizer has no token for a part of the text.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.inner
            .encode(text, false)
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|error| TokenizerError::Encode(error.to_string()))
    }

    /// Position, length and id of the first special token, of the longest one
    /// when several begin there.
    fn next_special(&self, text: &str) -> Option<(usize, usize, u32)> {
        self.special
            .iter()
            .filter_map(|(token, id)| text.find(token.as_str()).map(|at| (at, token.len(), *id)))
            .min_by_key(|(at, length, _)| (*at, usize::MAX - length))
    }
}

/// How a vocabulary writes bytes as text.
enum Alphabet {
    /// GPT-2's: each byte is a printable character of its own.
    Bytes(HashMap<char, u8>),
    /// `SentencePiece`'s: a mark for the space, and `<0x0A>` for odd bytes.
    Pieces,
}

impl Alphabet {
    fn of(tokenizer: &Inner) -> Self {
        let decoder = tokenizer
            .get_decoder()
            .and_then(|decoder| serde_json::to_string(decoder).ok());
        if decoder.is_some_and(|decoder| decoder.contains("ByteLevel")) {
            Self::Bytes(byte_characters())
        } else {
            Self::Pieces
        }
    }

    fn bytes(&self, token: &str) -> Vec<u8> {
        match self {
            Self::Bytes(characters) => token
                .chars()
                .flat_map(|character| match characters.get(&character) {
                    Some(byte) => vec![*byte],
                    None => character.to_string().into_bytes(),
                })
                .collect(),
            Self::Pieces => {
                let byte = token
                    .strip_prefix("<0x")
                    .and_then(|rest| rest.strip_suffix('>'))
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                byte.map_or_else(
                    || token.replace('\u{2581}', " ").into_bytes(),
                    |byte| vec![byte],
                )
            }
        }
    }
}

/// Printable Latin-1 stands for itself; the other bytes follow from U+0100 on.
fn byte_characters() -> HashMap<char, u8> {
    let mut next = 0x100_u32;
    (0..=u8::MAX)
        .filter_map(|byte| {
            let code = if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).map(|character| (character, byte))
        })
        .collect()
}

/// Turns tokens into text as they come: a character that is spread over
/// several tokens is given out with the last of them.
#[derive(Debug, Default)]
pub(crate) struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// The text that is complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.pending.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(length) = error.error_len() else {
                        self.pending = rest.to_vec();
                        return text;
                    };
                    // The model wrote what is no text.
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending = rest[length..].to_vec();
                }
            }
        }
    }

    /// What is left when no more tokens come.
    pub(crate) fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_given_out_character_by_character() {
        let mut stream = TextStream::default();
        let bytes = "a€😀".as_bytes();
        let texts: Vec<String> = bytes.chunks(1).map(|byte| stream.push(byte)).collect();
        assert_eq!(texts, ["a", "", "", "€", "", "", "", "😀"]);
        assert_eq!(stream.push(b"\xff\xf0\x9f"), "\u{fffd}");
        assert_eq!(stream.finish(), "\u{fffd}");
    }

    #[test]
    fn every_byte_has_a_character() {
        let characters = byte_characters();
        assert_eq!(characters.len(), 256);
        assert_eq!(characters[&'Ġ'], b' ');
        assert_eq!(characters[&'Ċ'], b'\n');
    }
}
