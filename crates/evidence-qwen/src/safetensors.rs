//! The header of a safetensors file.
//!
//! A header is input from anywhere, so nothing in it is believed before it is
//! checked against the file's size: lengths, offsets, shapes and overlaps.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

/// Longest header that is read. The format's own limit.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Bytes before the header's JSON: its length, little-endian.
pub const PREFIX_BYTES: u64 = 8;

/// Why a safetensors file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SafetensorsError {
    /// The file ends inside the header.
    #[error("the file has {file_bytes} bytes, too few for its header of {header_bytes}")]
    TruncatedHeader {
        /// Size of the file.
        file_bytes: u64,
        /// Size that the header claims, or the least that any header has.
        header_bytes: u64,
    },
    /// The header claims to be longer than any header may be.
    #[error("the header claims {0} bytes; this is no safetensors file")]
    HugeHeader(u64),
    /// The header is not the JSON object that the format prescribes.
    #[error("the header is not valid: {0}")]
    MalformedHeader(String),
    /// A tensor's bytes lie beyond the end of the file.
    #[error("{name} ends at byte {end} of the data, but the file holds {available}")]
    BeyondEnd {
        /// The tensor.
        name: String,
        /// Where the header says that it ends.
        end: u64,
        /// Bytes of data that the file has.
        available: u64,
    },
    /// A tensor's offsets do not fit its shape and type.
    #[error("{name} has offsets for {byte_count} bytes, but its shape needs {expected}")]
    WrongLength {
        /// The tensor.
        name: String,
        /// Bytes between its offsets.
        byte_count: u64,
        /// Bytes that its shape and type take.
        expected: u64,
    },
    /// The offsets run backwards or the shape has no size.
    #[error("{0} has impossible offsets or an impossible shape")]
    Impossible(String),
    /// Two tensors share bytes.
    #[error("{first} and {second} overlap")]
    Overlap {
        /// The tensor that begins first.
        first: String,
        /// The tensor that begins inside it.
        second: String,
    },
}

/// The type of a tensor's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// Unsigned words, which hold MLX's packed weights.
    U32,
    /// A type that no decoder reads, with its size where it is known.
    Other {
        /// The name in the header.
        name: String,
        /// Bytes of one element.
        byte_count: Option<u64>,
    },
}

impl Dtype {
    fn from_name(name: &str) -> Self {
        match name {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "U32" => Self::U32,
            _ => Self::Other {
                name: name.to_owned(),
                byte_count: match name {
                    "F64" | "I64" | "U64" => Some(8),
                    "I32" => Some(4),
                    "I16" | "U16" => Some(2),
                    "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" => Some(1),
                    _ => None,
                },
            },
        }
    }

    /// Bytes of one element, `None` for a type whose size is not known.
    pub fn byte_count(&self) -> Option<u64> {
        match self {
            Self::F32 | Self::U32 => Some(4),
            Self::F16 | Self::Bf16 => Some(2),
            Self::Other { byte_count, .. } => *byte_count,
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::U32 => "U32",
            Self::Other { name, .. } => name,
        })
    }
}

/// Where a tensor lies in its file, and how it is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Dimensions, the last one contiguous.
    pub shape: Vec<usize>,
    /// Position in the file, from its first byte.
    pub bytes: Range<u64>,
}

#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Reads the length of the header from the first [`PREFIX_BYTES`] of a file.
///
/// # Errors
///
/// When the length is more than the format allows or than the file holds.
pub fn header_byte_count(prefix: &[u8], file_bytes: u64) -> Result<u64, SafetensorsError> {
    let Some(prefix) = prefix.first_chunk::<8>() else {
        return Err(SafetensorsError::TruncatedHeader {
            file_bytes,
            header_bytes: PREFIX_BYTES,
        });
    };
    let header_bytes = u64::from_le_bytes(*prefix);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(SafetensorsError::HugeHeader(header_bytes));
    }
    if PREFIX_BYTES + header_bytes > file_bytes {
        return Err(SafetensorsError::TruncatedHeader {
            file_bytes,
            header_bytes,
        });
    }
    Ok(header_bytes)
}

/// Reads the header's JSON, the `header_byte_count` bytes after the prefix.
///
/// # Errors
///
/// When the header is no such JSON, or places a tensor where it cannot be.
pub fn parse_header(
    json: &[u8],
    file_bytes: u64,
) -> Result<BTreeMap<String, TensorInfo>, SafetensorsError> {
    let mut raw: BTreeMap<String, serde_json::Value> = serde_json::from_slice(json)
        .map_err(|error| SafetensorsError::MalformedHeader(error.to_string()))?;
    raw.remove("__metadata__");
    let data_start = PREFIX_BYTES + json.len() as u64;
    let available = file_bytes.saturating_sub(data_start);
    let mut tensors = BTreeMap::new();
    for (name, value) in raw {
        let raw: RawTensor = serde_json::from_value(value)
            .map_err(|error| SafetensorsError::MalformedHeader(format!("{name}: {error}")))?;
        let info = locate(&name, &raw, data_start, available)?;
        tensors.insert(name, info);
    }
    refuse_overlaps(&tensors)?;
    Ok(tensors)
}

fn locate(
    name: &str,
    raw: &RawTensor,
    data_start: u64,
    available: u64,
) -> Result<TensorInfo, SafetensorsError> {
    let impossible = || SafetensorsError::Impossible(name.to_owned());
    let (start, end) = raw.data_offsets;
    let byte_count = end.checked_sub(start).ok_or_else(impossible)?;
    if end > available {
        return Err(SafetensorsError::BeyondEnd {
            name: name.to_owned(),
            end,
            available,
        });
    }
    let dtype = Dtype::from_name(&raw.dtype);
    let elements = raw
        .shape
        .iter()
        .try_fold(1_u64, |product, size| product.checked_mul(*size))
        .ok_or_else(impossible)?;
    if let Some(element_bytes) = dtype.byte_count() {
        let expected = elements.checked_mul(element_bytes).ok_or_else(impossible)?;
        if expected != byte_count {
            return Err(SafetensorsError::WrongLength {
                name: name.to_owned(),
                byte_count,
                expected,
            });
        }
    }
    let shape = raw
        .shape
        .iter()
        .map(|size| usize::try_from(*size).map_err(|_| impossible()))
        .collect::<Result<_, _>>()?;
    Ok(TensorInfo {
        dtype,
        shape,
        bytes: data_start + start..data_start + end,
    })
}

fn refuse_overlaps(tensors: &BTreeMap<String, TensorInfo>) -> Result<(), SafetensorsError> {
    let mut by_position: Vec<_> = tensors
        .iter()
        .filter(|(_, info)| !info.bytes.is_empty())
        .collect();
    by_position.sort_by_key(|(_, info)| (info.bytes.start, info.bytes.end));
    for pair in by_position.windows(2) {
        let [(first, first_info), (second, second_info)] = pair else {
            continue;
        };
        if second_info.bytes.start < first_info.bytes.end {
            return Err(SafetensorsError::Overlap {
                first: (*first).clone(),
                second: (*second).clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(
        json: &str,
        data_bytes: u64,
    ) -> Result<BTreeMap<String, TensorInfo>, SafetensorsError> {
        parse_header(
            json.as_bytes(),
            PREFIX_BYTES + json.len() as u64 + data_bytes,
        )
    }

    #[test]
    fn a_header_places_its_tensors_after_itself() {
        let json = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]}}"#;
        let tensors = parse(json, 16).unwrap();
        let start = PREFIX_BYTES + json.len() as u64;
        assert_eq!(
            tensors["a"],
            TensorInfo {
                dtype: Dtype::Bf16,
                shape: vec![2, 3],
                bytes: start + 4..start + 16
            }
        );
    }

    #[test]
    fn lengths_are_checked_before_anything_is_read() {
        assert_eq!(
            header_byte_count(&[1, 0, 0], 3),
            Err(SafetensorsError::TruncatedHeader {
                file_bytes: 3,
                header_bytes: 8
            })
        );
        assert_eq!(
            header_byte_count(&u64::MAX.to_le_bytes(), 1000),
            Err(SafetensorsError::HugeHeader(u64::MAX))
        );
        assert_eq!(
            header_byte_count(&500_u64.to_le_bytes(), 400),
            Err(SafetensorsError::TruncatedHeader {
                file_bytes: 400,
                header_bytes: 500
            })
        );
        assert_eq!(header_byte_count(&392_u64.to_le_bytes(), 400), Ok(392));
    }

    #[test]
    fn a_lying_header_is_refused_with_the_tensors_name() {
        let one = |dtype: &str, shape: &str, offsets: &str| {
            format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        assert_eq!(
            parse(&one("F32", "[4]", "[0,16]"), 15),
            Err(SafetensorsError::BeyondEnd {
                name: "w".into(),
                end: 16,
                available: 15
            })
        );
        assert_eq!(
            parse(&one("F32", "[4]", "[0,12]"), 16),
            Err(SafetensorsError::WrongLength {
                name: "w".into(),
                byte_count: 12,
                expected: 16
            })
        );
        for (shape, offsets) in [
            ("[4]", "[16,0]"),
            ("[18446744073709551615,2]", "[0,16]"),
            ("[4611686018427387904]", "[0,0]"),
        ] {
            assert_eq!(
                parse(&one("F32", shape, offsets), 16),
                Err(SafetensorsError::Impossible("w".into())),
                "{shape} {offsets}"
            );
        }
        for json in [
            "",
            "[]",
            "{",
            r#"{"w":3}"#,
            r#"{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
        ] {
            assert!(
                matches!(parse(json, 16), Err(SafetensorsError::MalformedHeader(_))),
                "{json}"
            );
        }
    }

    #[test]
    fn tensors_that_share_bytes_are_refused() {
        let json = r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}}"#;
        assert_eq!(
            parse(json, 20),
            Err(SafetensorsError::Overlap {
                first: "a".into(),
                second: "b".into()
            })
        );
        let empty = r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}"#;
        assert!(parse(empty, 16).is_ok());
    }
}
