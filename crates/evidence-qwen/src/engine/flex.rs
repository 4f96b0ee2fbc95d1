//! The decoder's operations on Burn's CPU backend, one thread.
//!
//! A weight is never unpacked into memory: one row at most, for a block of
//! tokens, or a group of it in registers, for one token.

use std::ops::Range;

use burn::backend::{Flex, tensor::FloatTensor};
use burn::tensor::TensorData;

use super::{Candidate, DeviceError, Engine, HeadNorms, Heads, LayerCache, Matrix, Projection};
use crate::matrix::{Format, group_floats, unpack_row};

type FlexTensor = FloatTensor<Flex>;

/// The CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlexEngine;

fn tensor<T: burn::tensor::Element>(values: Vec<T>) -> FlexTensor {
    let length = values.len();
    FlexTensor::from_data(TensorData::new(values, [length]))
}

/// Sums that run side by side, as wide as the widest vector of a common CPU.
const LANES: usize = 8;

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_blocks
        .remainder()
        .iter()
        .zip(b_blocks.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a_blocks.zip(b_blocks) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Four dot products with one vector in common, which is loaded once.
fn dot4(a: &[f32], b: [&[f32]; 4]) -> [f32; 4] {
    let mut sums = [[0.0_f32; LANES]; 4];
    let whole = a.len() / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        let a = &a[start..start + LANES];
        for (sums, b) in sums.iter_mut().zip(b) {
            for ((sum, a), b) in sums.iter_mut().zip(a).zip(&b[start..start + LANES]) {
                *sum += a * b;
            }
        }
    }
    let mut totals = [0.0; 4];
    for ((total, sums), b) in totals.iter_mut().zip(sums).zip(b) {
        let rest: f32 = a[whole..].iter().zip(&b[whole..]).map(|(a, b)| a * b).sum();
        *total = sums.iter().sum::<f32>() + rest;
    }
    totals
}

/// One token's activations, prepared for rows of 4-bit weights.
///
/// A word is unpacked by masks alone: the nibble at bit 4i stays there and
/// counts 16^i too much, which the activation makes good beforehand. Powers of
/// two change no mantissa, so nothing is lost.
struct NibbleInput {
    scaled: Vec<f32>,
    group_sums: Vec<f32>,
}

const NIBBLE_MASKS: [u32; 4] = [0xf, 0xf0, 0xf00, 0xf000];
const NIBBLE_SCALES: [f32; 4] = [1.0, 1.0 / 16.0, 1.0 / 256.0, 1.0 / 4096.0];

impl NibbleInput {
    fn new(x: &[f32], group_size: usize) -> Self {
        let scaled = x
            .iter()
            .zip(NIBBLE_SCALES.iter().cycle())
            .map(|(value, scale)| value * scale)
            .collect();
        Self {
            scaled,
            group_sums: group_sums(x, group_size),
        }
    }
}

fn group_sums(x: &[f32], group_size: usize) -> Vec<f32> {
    x.chunks_exact(group_size)
        .map(|group| group.iter().sum())
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "at most sixteen bits")]
#[expect(
    clippy::cast_possible_wrap,
    reason = "signed words convert in one instruction"
)]
fn nibble_dot(words: &[u32], scaled: &[f32]) -> f32 {
    let mut low = [0.0_f32; 4];
    let mut high = [0.0_f32; 4];
    for (word, x) in words.iter().zip(scaled.chunks_exact(8)) {
        let (x_low, x_high) = x.split_at(4);
        for ((sum, mask), x) in low.iter_mut().zip(NIBBLE_MASKS).zip(x_low) {
            *sum += (word & mask) as i32 as f32 * x;
        }
        for ((sum, mask), x) in high.iter_mut().zip(NIBBLE_MASKS).zip(x_high) {
            *sum += (word >> 16 & mask) as i32 as f32 * x;
        }
    }
    low.iter().chain(&high).sum()
}

#[expect(clippy::cast_precision_loss, reason = "at most eight bits")]
#[expect(
    clippy::cast_possible_wrap,
    reason = "signed words convert in one instruction"
)]
fn byte_dot(words: &[u32], x: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 4];
    for (word, x) in words.iter().zip(x.chunks_exact(4)) {
        for ((sum, shift), x) in sums.iter_mut().zip([0, 8, 16, 24]).zip(x) {
            *sum += (word >> shift & 0xff) as i32 as f32 * x;
        }
    }
    sums.iter().sum()
}

/// One token times every row of a matrix.
fn multiply_one(x: &[f32], matrix: &Matrix<FlexTensor>, mut put: impl FnMut(usize, f32)) {
    let words = matrix.words.storage::<u32>();
    let row_words = matrix.format.row_words(matrix.cols);
    match matrix.format {
        Format::F32 | Format::F16 | Format::Bf16 => {
            let mut unpacked = vec![0.0; matrix.cols];
            for (row, words) in words.chunks_exact(row_words).enumerate() {
                unpack_row(matrix.format, words, &[], &mut unpacked);
                put(row, dot(&unpacked, x));
            }
        }
        Format::Packed {
            bits,
            group_size,
            groups: float,
        } => {
            let input = if bits == 4 {
                NibbleInput::new(x, group_size as usize)
            } else {
                NibbleInput {
                    scaled: x.to_vec(),
                    group_sums: group_sums(x, group_size as usize),
                }
            };
            let group_dot: fn(&[u32], &[f32]) -> f32 =
                if bits == 4 { nibble_dot } else { byte_dot };
            let group_words = (group_size * bits / 32) as usize;
            let row_groups = matrix.format.row_group_words(matrix.cols);
            let groups = matrix
                .groups
                .as_ref()
                .map_or(&[][..], FlexTensor::storage::<u32>);
            for (row, (words, groups)) in words
                .chunks_exact(row_words)
                .zip(groups.chunks_exact(row_groups))
                .enumerate()
            {
                let mut sum = 0.0;
                for (((words, group), x), x_sum) in words
                    .chunks_exact(group_words)
                    .zip(groups.chunks_exact(float.words()))
                    .zip(input.scaled.chunks_exact(group_size as usize))
                    .zip(&input.group_sums)
                {
                    let [scale, bias] = group_floats(float, group);
                    sum += scale * group_dot(words, x) + bias * x_sum;
                }
                put(row, sum);
            }
        }
    }
}

/// Several tokens times every row: a row is unpacked once for all of them.
fn multiply_many(x: &[f32], matrix: &Matrix<FlexTensor>, mut put: impl FnMut(usize, usize, f32)) {
    let words = matrix.words.storage::<u32>();
    let groups = matrix
        .groups
        .as_ref()
        .map_or(&[][..], FlexTensor::storage::<u32>);
    let row_words = matrix.format.row_words(matrix.cols);
    let row_groups = matrix.format.row_group_words(matrix.cols);
    let mut unpacked = vec![0.0; matrix.cols];
    let tokens: Vec<&[f32]> = x.chunks_exact(matrix.cols).collect();
    for (row, words) in words.chunks_exact(row_words).enumerate() {
        let groups = &groups[row * row_groups..(row + 1) * row_groups];
        unpack_row(matrix.format, words, groups, &mut unpacked);
        let blocks = tokens.chunks_exact(4);
        let rest = blocks.remainder();
        let first_of_rest = tokens.len() - rest.len();
        for (block, tokens) in blocks.enumerate() {
            if let [a, b, c, d] = *tokens {
                for (index, value) in dot4(&unpacked, [a, b, c, d]).into_iter().enumerate() {
                    put(block * 4 + index, row, value);
                }
            }
        }
        for (index, token) in rest.iter().enumerate() {
            put(first_of_rest + index, row, dot(&unpacked, token));
        }
    }
}

fn multiply(
    x: &[f32],
    tokens: usize,
    projection: &Projection<'_, FlexEngine>,
    out: &mut [f32],
    add: bool,
) {
    let stride = projection.rows();
    if let Some(bias) = projection.bias {
        let bias = bias.storage::<f32>();
        for row in out.chunks_exact_mut(stride) {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value = bias + if add { *value } else { 0.0 };
            }
        }
    }
    let add = add || projection.bias.is_some();
    let mut offset = 0;
    for matrix in projection.parts {
        let mut put = |token: usize, row: usize, value: f32| {
            let slot = &mut out[token * stride + offset + row];
            *slot = value + if add { *slot } else { 0.0 };
        };
        if tokens == 1 {
            multiply_one(x, matrix, |row, value| put(0, row, value));
        } else {
            multiply_many(x, matrix, put);
        }
        offset += matrix.rows;
    }
}

fn root_mean_square(x: &[f32], eps: f32) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a row is shorter than 2^24")]
    let mean = dot(x, x) / x.len() as f32;
    (mean + eps).sqrt()
}

fn normalize(x: &mut [f32], weight: &[f32], eps: f32) {
    let root = root_mean_square(x, eps);
    for (value, weight) in x.iter_mut().zip(weight) {
        *value = *value / root * weight;
    }
}

/// Rotates each pair of dimensions half a head apart, as the checkpoints do.
fn rotate_head(head: &mut [f32], rotations: &[f32]) {
    let (first, second) = head.split_at_mut(head.len() / 2);
    for ((a, b), rotation) in first.iter_mut().zip(second).zip(rotations.chunks_exact(2)) {
        let (cosine, sine) = (rotation[0], rotation[1]);
        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
    }
}

impl Engine for FlexEngine {
    type Floats = FlexTensor;
    type Words = FlexTensor;

    fn floats(&self, values: Vec<f32>) -> FlexTensor {
        tensor(values)
    }

    fn words(&self, values: Vec<u32>) -> FlexTensor {
        tensor(values)
    }

    fn zeros(&self, length: usize) -> FlexTensor {
        tensor(vec![0.0_f32; length])
    }

    fn max_buffer_bytes(&self) -> Option<u64> {
        None
    }

    fn grown(&self, floats: &FlexTensor, length: usize) -> FlexTensor {
        let mut values = floats.storage::<f32>().to_vec();
        values.resize(length, 0.0);
        tensor(values)
    }

    fn embed(&self, table: &Matrix<FlexTensor>, tokens: &[u32]) -> FlexTensor {
        let words = table.words.storage::<u32>();
        let groups = table
            .groups
            .as_ref()
            .map_or(&[][..], FlexTensor::storage::<u32>);
        let row_words = table.format.row_words(table.cols);
        let row_groups = table.format.row_group_words(table.cols);
        let mut rows = vec![0.0; tokens.len() * table.cols];
        for (token, row) in tokens.iter().zip(rows.chunks_exact_mut(table.cols)) {
            let token = *token as usize;
            unpack_row(
                table.format,
                &words[token * row_words..(token + 1) * row_words],
                &groups[token * row_groups..(token + 1) * row_groups],
                row,
            );
        }
        tensor(rows)
    }

    fn rms_norm(
        &self,
        x: &FlexTensor,
        rows: Range<usize>,
        weight: &FlexTensor,
        width: usize,
        eps: f32,
    ) -> FlexTensor {
        let mut rows = x.storage::<f32>()[rows.start * width..rows.end * width].to_vec();
        let weight = weight.storage::<f32>();
        for row in rows.chunks_exact_mut(width) {
            normalize(row, weight, eps);
        }
        tensor(rows)
    }

    fn project(
        &self,
        x: &FlexTensor,
        tokens: usize,
        projection: &Projection<'_, Self>,
    ) -> FlexTensor {
        let mut out = vec![0.0; tokens * projection.rows()];
        multiply(x.storage(), tokens, projection, &mut out, false);
        tensor(out)
    }

    fn project_onto(
        &self,
        x: &FlexTensor,
        tokens: usize,
        projection: &Projection<'_, Self>,
        residual: &mut FlexTensor,
    ) {
        multiply(
            x.storage(),
            tokens,
            projection,
            residual.storage_mut(),
            true,
        );
    }

    fn rotate(
        &self,
        fused: &mut FlexTensor,
        tokens: usize,
        position: usize,
        heads: Heads,
        norms: Option<&HeadNorms<FlexTensor>>,
        rotations: &FlexTensor,
        cache: &mut LayerCache<FlexTensor>,
    ) {
        let rotations = rotations.storage::<f32>();
        let kv_size = heads.key_value_size();
        let cached = position * kv_size..(position + tokens) * kv_size;
        let keys = &mut cache.keys.storage_mut::<f32>()[cached.clone()];
        let values = &mut cache.values.storage_mut::<f32>()[cached];
        for (token, row) in fused
            .storage_mut::<f32>()
            .chunks_exact_mut(heads.fused_size())
            .enumerate()
        {
            let start = (position + token) * heads.dim;
            let rotations = &rotations[start..start + heads.dim];
            let (rotated, value) = row.split_at_mut(heads.query_size() + kv_size);
            for (index, head) in rotated.chunks_exact_mut(heads.dim).enumerate() {
                if let Some(norms) = norms {
                    let weight = if index < heads.query {
                        &norms.query
                    } else {
                        &norms.key
                    };
                    normalize(head, weight.storage(), norms.eps);
                }
                rotate_head(head, rotations);
            }
            let slot = token * kv_size..(token + 1) * kv_size;
            keys[slot.clone()].copy_from_slice(&rotated[heads.query_size()..]);
            values[slot].copy_from_slice(value);
        }
    }

    fn attend(
        &self,
        fused: &FlexTensor,
        tokens: usize,
        position: usize,
        heads: Heads,
        cache: &LayerCache<FlexTensor>,
    ) -> FlexTensor {
        let (keys, values) = (cache.keys.storage::<f32>(), cache.values.storage::<f32>());
        let kv_size = heads.key_value_size();
        let queries_per_key = heads.query / heads.key_value;
        #[expect(clippy::cast_precision_loss, reason = "a head has few dimensions")]
        let scale = (heads.dim as f32).sqrt().recip();
        let mut out = vec![0.0; tokens * heads.query_size()];
        let mut weights = Vec::with_capacity(position + tokens);
        for ((token, fused), out) in fused
            .storage::<f32>()
            .chunks_exact(heads.fused_size())
            .enumerate()
            .zip(out.chunks_exact_mut(heads.query_size()))
        {
            let seen = position + token + 1;
            for (head, (query, out)) in fused
                .chunks_exact(heads.dim)
                .zip(out.chunks_exact_mut(heads.dim))
                .enumerate()
            {
                let start = head / queries_per_key * heads.dim;
                let of_head = |index: usize| {
                    let first = index * kv_size + start;
                    first..first + heads.dim
                };
                weights.clear();
                weights.extend((0..seen).map(|index| scale * dot(query, &keys[of_head(index)])));
                let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut total = 0.0;
                for weight in &mut weights {
                    *weight = (*weight - largest).exp();
                    total += *weight;
                }
                for (index, weight) in weights.iter().enumerate() {
                    let weight = weight / total;
                    for (out, value) in out.iter_mut().zip(&values[of_head(index)]) {
                        *out += weight * value;
                    }
                }
            }
        }
        tensor(out)
    }

    fn gate(&self, gate_up: &FlexTensor, tokens: usize, width: usize) -> FlexTensor {
        let mut out = Vec::with_capacity(tokens * width);
        for row in gate_up.storage::<f32>().chunks_exact(2 * width) {
            let (gate, up) = row.split_at(width);
            out.extend(
                gate.iter()
                    .zip(up)
                    .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up),
            );
        }
        tensor(out)
    }

    fn penalize(&self, logits: &mut FlexTensor, tokens: &[u32], penalty: f32) {
        let logits = logits.storage_mut::<f32>();
        for token in tokens {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit = if *logit > 0.0 {
                    *logit / penalty
                } else {
                    *logit * penalty
                };
            }
        }
    }

    async fn candidates(
        &self,
        logits: &FlexTensor,
        length: usize,
        count: usize,
        allowed: Option<&[u32]>,
    ) -> Result<Vec<Candidate>, DeviceError> {
        let logits = &logits.storage::<f32>()[..length];
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(DeviceError::NotANumber);
        }
        let mut candidates: Vec<Candidate> = Vec::with_capacity(count + 1);
        for (token, logit) in (0_u32..).zip(logits.iter().copied()) {
            if allowed.is_some_and(|bits| bits[token as usize / 32] >> (token % 32) & 1 == 0) {
                continue;
            }
            if candidates.len() == count
                && candidates.last().is_some_and(|last| last.logit >= logit)
            {
                continue;
            }
            let place = candidates.partition_point(|other| other.logit >= logit);
            candidates.insert(place, Candidate { token, logit });
            candidates.truncate(count);
        }
        Ok(candidates)
    }

    async fn read(&self, floats: &FlexTensor) -> Result<Vec<f32>, DeviceError> {
        Ok(floats.storage::<f32>().to_vec())
    }

    async fn finish(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
