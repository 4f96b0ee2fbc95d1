//! A weight matrix as it is stored, and the way from a checkpoint to it.
//!
//! Whatever the checkpoint's type, a matrix is a row-major array of 32-bit
//! words that a kernel unpacks while it multiplies: floats as they are, halves
//! two to a word, quantized weights eight or four to a word. So a matrix takes
//! the memory on the device that it takes in the file.

use half::{bf16, f16};

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::GroupQuantization;
use crate::safetensors::Dtype;
use crate::source::CheckpointSource;

/// The type of the scales and biases of a quantized matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GroupFloat {
    F32,
    F16,
    Bf16,
}

impl GroupFloat {
    /// Words that hold one group's scale and bias.
    pub(crate) fn words(self) -> usize {
        match self {
            Self::F32 => 2,
            Self::F16 | Self::Bf16 => 1,
        }
    }
}

/// How the words of a matrix are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Format {
    F32,
    F16,
    Bf16,
    Packed {
        bits: u32,
        group_size: u32,
        groups: GroupFloat,
    },
}

impl Format {
    /// Words of one row of this many columns. The columns fill whole words.
    pub(crate) fn row_words(self, cols: usize) -> usize {
        match self {
            Self::F32 => cols,
            Self::F16 | Self::Bf16 => cols / 2,
            Self::Packed { bits, .. } => cols * bits as usize / 32,
        }
    }

    /// Words of the scales and biases of one row.
    pub(crate) fn row_group_words(self, cols: usize) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 0,
            Self::Packed {
                group_size, groups, ..
            } => cols / group_size as usize * groups.words(),
        }
    }
}

/// A matrix in this machine's memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostMatrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) format: Format,
    /// The weights, row by row.
    pub(crate) words: Vec<u32>,
    /// Scale and bias of each group, row by row: two halves of one word, or two
    /// words. Empty for float formats.
    pub(crate) groups: Vec<u32>,
}

impl HostMatrix {
    /// Reads the weight of the linear layer or embedding with this name.
    pub(crate) async fn read<S: CheckpointSource>(
        checkpoint: &mut Checkpoint<'_, S>,
        layer: &str,
        (rows, cols): (usize, usize),
        quantization: Option<GroupQuantization>,
    ) -> Result<Self, CheckpointError> {
        let weight = format!("{layer}.weight");
        let Some(GroupQuantization { bits, group_size }) = quantization else {
            let dtype = checkpoint.expect(&weight, &[rows, cols])?.clone();
            let format = match dtype {
                Dtype::F32 => Format::F32,
                Dtype::F16 => Format::F16,
                Dtype::Bf16 => Format::Bf16,
                dtype => {
                    return Err(CheckpointError::WrongDtype {
                        name: weight,
                        dtype,
                    });
                }
            };
            let words = checkpoint.read_words(&weight).await?;
            if !all_finite(&words, format) {
                return Err(CheckpointError::NotFinite(weight));
            }
            return Ok(Self {
                rows,
                cols,
                format,
                words,
                groups: Vec::new(),
            });
        };
        let groups_per_row = cols / group_size as usize;
        if !cols.is_multiple_of(group_size as usize) {
            return Err(CheckpointError::WrongShape {
                name: weight,
                actual: vec![rows, cols],
                expected: vec![rows, groups_per_row * group_size as usize],
            });
        }
        let dtype = checkpoint
            .expect(&weight, &[rows, cols * bits as usize / 32])?
            .clone();
        if dtype != Dtype::U32 {
            return Err(CheckpointError::WrongDtype {
                name: weight,
                dtype,
            });
        }
        let (scales, biases) = (format!("{layer}.scales"), format!("{layer}.biases"));
        let dtype = checkpoint.expect(&scales, &[rows, groups_per_row])?.clone();
        let other = checkpoint.expect(&biases, &[rows, groups_per_row])?.clone();
        if other != dtype {
            return Err(CheckpointError::WrongDtype {
                name: biases,
                dtype: other,
            });
        }
        let groups = match dtype {
            Dtype::F32 => GroupFloat::F32,
            Dtype::F16 => GroupFloat::F16,
            Dtype::Bf16 => GroupFloat::Bf16,
            dtype => {
                return Err(CheckpointError::WrongDtype {
                    name: scales,
                    dtype,
                });
            }
        };
        let words = checkpoint.read_words(&weight).await?;
        let interleaved = interleave(
            &checkpoint.read_words(&scales).await?,
            &checkpoint.read_words(&biases).await?,
            rows * groups_per_row,
            groups,
        );
        let group_format = match groups {
            GroupFloat::F32 => Format::F32,
            GroupFloat::F16 => Format::F16,
            GroupFloat::Bf16 => Format::Bf16,
        };
        if !all_finite(&interleaved, group_format) {
            return Err(CheckpointError::NotFinite(scales));
        }
        let format = Format::Packed {
            bits,
            group_size,
            groups,
        };
        Ok(Self {
            rows,
            cols,
            format,
            words,
            groups: interleaved,
        })
    }

    /// Appends the rows of another matrix, when it is stored alike.
    pub(crate) fn append(&mut self, other: Self) -> Result<(), Self> {
        if other.format != self.format || other.cols != self.cols {
            return Err(other);
        }
        self.rows += other.rows;
        self.words.extend_from_slice(&other.words);
        self.groups.extend_from_slice(&other.groups);
        Ok(())
    }
}

/// Each group's scale in the lower half of a word and its bias in the upper
/// one, or in two words, so that a kernel reads both at once.
fn interleave(scales: &[u32], biases: &[u32], count: usize, groups: GroupFloat) -> Vec<u32> {
    match groups {
        GroupFloat::F32 => scales
            .iter()
            .zip(biases)
            .flat_map(|(scale, bias)| [*scale, *bias])
            .collect(),
        GroupFloat::F16 | GroupFloat::Bf16 => scales
            .iter()
            .zip(biases)
            .flat_map(|(scale, bias)| {
                [
                    scale & 0xffff | bias << 16,
                    scale >> 16 | bias & 0xffff_0000,
                ]
            })
            .take(count)
            .collect(),
    }
}

fn all_finite(words: &[u32], format: Format) -> bool {
    // An exponent of all ones is an infinity or a NaN.
    let finite = |bits: u32, exponent: u32| bits & exponent != exponent;
    match format {
        Format::F32 => words.iter().all(|word| finite(*word, 0x7f80_0000)),
        Format::F16 => words
            .iter()
            .all(|word| finite(*word, 0x7c00) && finite(*word, 0x7c00_0000)),
        Format::Bf16 => words
            .iter()
            .all(|word| finite(*word, 0x7f80) && finite(*word, 0x7f80_0000)),
        Format::Packed { .. } => true,
    }
}

/// Lower and upper half of a word as the floats that they hold.
pub(crate) fn halves(word: u32, is_bf16: bool) -> [f32; 2] {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is what is wanted"
    )]
    let (low, high) = (word as u16, (word >> 16) as u16);
    if is_bf16 {
        [
            bf16::from_bits(low).to_f32(),
            bf16::from_bits(high).to_f32(),
        ]
    } else {
        [f16::from_bits(low).to_f32(), f16::from_bits(high).to_f32()]
    }
}

/// Unpacks one row into floats.
pub(crate) fn unpack_row(format: Format, words: &[u32], groups: &[u32], row: &mut [f32]) {
    match format {
        Format::F32 => {
            for (value, word) in row.iter_mut().zip(words) {
                *value = f32::from_bits(*word);
            }
        }
        Format::F16 | Format::Bf16 => {
            for (values, word) in row.chunks_exact_mut(2).zip(words) {
                values.copy_from_slice(&halves(*word, format == Format::Bf16));
            }
        }
        Format::Packed {
            bits,
            group_size,
            groups: float,
        } => {
            let group_words = group_size as usize * bits as usize / 32;
            for ((values, words), group) in row
                .chunks_exact_mut(group_size as usize)
                .zip(words.chunks_exact(group_words))
                .zip(groups.chunks_exact(float.words()))
            {
                let [scale, bias] = group_floats(float, group);
                unpack_group(bits, scale, bias, words, values);
            }
        }
    }
}

/// The scale and the bias of a group.
pub(crate) fn group_floats(float: GroupFloat, group: &[u32]) -> [f32; 2] {
    match (float, group) {
        (GroupFloat::F32, [scale, bias]) => [f32::from_bits(*scale), f32::from_bits(*bias)],
        (GroupFloat::F16, [word]) => halves(*word, false),
        (GroupFloat::Bf16, [word]) => halves(*word, true),
        // A group has as many words as its float takes.
        _ => [0.0; 2],
    }
}

fn unpack_group(width: u32, scale: f32, bias: f32, packed: &[u32], values: &mut [f32]) {
    let mask = (1_u32 << width) - 1;
    for (values, word) in values.chunks_exact_mut(32 / width as usize).zip(packed) {
        let mut word = *word;
        for value in values {
            #[expect(clippy::cast_precision_loss, reason = "at most eight bits")]
            let quantized = (word & mask) as f32;
            *value = scale * quantized + bias;
            word >>= width;
        }
    }
}

/// Reads a vector of floats of any type.
pub(crate) async fn read_vector<S: CheckpointSource>(
    checkpoint: &mut Checkpoint<'_, S>,
    name: &str,
    length: usize,
) -> Result<Vec<f32>, CheckpointError> {
    let dtype = checkpoint.expect(name, &[length])?.clone();
    let words = checkpoint.read_words(name).await?;
    let values: Vec<f32> = match dtype {
        Dtype::F32 => words.into_iter().map(f32::from_bits).collect(),
        Dtype::F16 | Dtype::Bf16 => words
            .into_iter()
            .flat_map(|word| halves(word, dtype == Dtype::Bf16))
            .take(length)
            .collect(),
        dtype => {
            return Err(CheckpointError::WrongDtype {
                name: name.to_owned(),
                dtype,
            });
        }
    };
    if values.iter().any(|value| !value.is_finite()) {
        return Err(CheckpointError::NotFinite(name.to_owned()));
    }
    Ok(values)
}
