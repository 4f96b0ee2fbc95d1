//! What the decoder asks of a device, and the devices that answer.
//!
//! An engine computes on Burn's tensors: [`flex`] on those of Burn's CPU
//! backend, [`gpu`] on those of its wgpu backend, through kernels of our own
//! where Burn's stock ones would unpack a weight into memory first.

use std::ops::Range;

use crate::matrix::{Format, HostMatrix};

pub(crate) mod flex;
pub(crate) mod gpu;
mod wgsl;

/// What went wrong on the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no adapter, or it refuses to give a device.
    #[error("no WebGPU adapter can be used ({0}); the CPU backend runs small models without one")]
    NoAdapter(String),
    /// A matrix is larger than one buffer of the adapter may be.
    #[error(
        "the model needs a buffer of {needed} bytes, but this adapter allows {limit}; \
         choose a smaller model or the CPU backend"
    )]
    BufferTooLarge {
        /// Bytes that the largest matrix takes.
        needed: u64,
        /// Bytes that the adapter allows.
        limit: u64,
    },
    /// The adapter's memory is used up.
    #[error("the adapter has not enough memory for this model; choose a smaller one")]
    OutOfMemory,
    /// The browser or the driver took the device away.
    #[error("the device was lost; load the model again, or choose a smaller one")]
    Lost,
    /// The device failed while it computed, or refused a kernel.
    #[error("the device failed: {0}; load the model again, or choose a smaller one")]
    Failed(String),
    /// The logits hold values that are no numbers.
    #[error("the model computed NaN; its weights do not fit its config.json, or are damaged")]
    NotANumber,
}

/// A matrix on a device.
#[derive(Debug)]
pub(crate) struct Matrix<W> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) format: Format,
    pub(crate) words: W,
    /// `None` for float formats.
    pub(crate) groups: Option<W>,
}

impl<W> Matrix<W> {
    /// Bytes that one pass over the matrix reads.
    pub(crate) fn byte_count(&self) -> u64 {
        let row = self.format.row_words(self.cols) + self.format.row_group_words(self.cols);
        4 * row as u64 * self.rows as u64
    }
}

/// Several linear layers over one input, computed as one: their outputs lie
/// side by side.
///
/// Layers that are stored alike are one matrix. A checkpoint may quantize them
/// differently, then they are several.
pub(crate) struct Projection<'a, E: Engine + ?Sized> {
    pub(crate) parts: &'a [Matrix<E::Words>],
    /// As long as the output is wide.
    pub(crate) bias: Option<&'a E::Floats>,
}

impl<E: Engine + ?Sized> Projection<'_, E> {
    /// Width of the output.
    pub(crate) fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Bytes that one pass over the matrices reads.
    pub(crate) fn byte_count(&self) -> u64 {
        self.parts.iter().map(Matrix::byte_count).sum()
    }
}

/// The constants of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) key_value: usize,
    pub(crate) dim: usize,
}

impl Heads {
    pub(crate) fn query_size(self) -> usize {
        self.query * self.dim
    }

    pub(crate) fn key_value_size(self) -> usize {
        self.key_value * self.dim
    }

    /// Width of queries, keys and values side by side.
    pub(crate) fn fused_size(self) -> usize {
        self.query_size() + 2 * self.key_value_size()
    }
}

/// The norms on queries and keys.
#[derive(Debug)]
pub(crate) struct HeadNorms<F> {
    pub(crate) query: F,
    pub(crate) key: F,
    pub(crate) eps: f32,
}

/// Keys and values of one layer, position by position.
#[derive(Debug)]
pub(crate) struct LayerCache<F> {
    pub(crate) keys: F,
    pub(crate) values: F,
}

/// The likeliest tokens, best first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    pub(crate) logit: f32,
}

/// Longest candidate list that leaves a device.
pub(crate) const MAX_CANDIDATES: usize = 256;

/// The operations of a decoder. Activations are row-major, one row a token.
///
/// Every operation but the reads may return before it is done: a device works
/// in the order of the calls, and what fails there shows at the next read.
pub(crate) trait Engine {
    /// Floats on the device.
    type Floats;
    /// 32-bit words on the device.
    type Words;

    fn floats(&self, values: Vec<f32>) -> Self::Floats;

    fn words(&self, values: Vec<u32>) -> Self::Words;

    fn zeros(&self, length: usize) -> Self::Floats;

    /// The largest buffer that the device allows, `None` when only memory limits it.
    fn max_buffer_bytes(&self) -> Option<u64>;

    /// A copy with room for `length` floats.
    fn grown(&self, floats: &Self::Floats, length: usize) -> Self::Floats;

    fn upload(&self, matrix: HostMatrix) -> Matrix<Self::Words> {
        let HostMatrix {
            rows,
            cols,
            format,
            words,
            groups,
        } = matrix;
        let groups = (!groups.is_empty()).then(|| self.words(groups));
        Matrix {
            rows,
            cols,
            format,
            words: self.words(words),
            groups,
        }
    }

    /// The rows of a table that belong to these tokens.
    fn embed(&self, table: &Matrix<Self::Words>, tokens: &[u32]) -> Self::Floats;

    /// These rows of `x`, each divided by the root of its
    /// mean square and multiplied by `weight`.
    fn rms_norm(
        &self,
        x: &Self::Floats,
        rows: Range<usize>,
        weight: &Self::Floats,
        width: usize,
        eps: f32,
    ) -> Self::Floats;

    /// `x` times the transposed weights.
    fn project(
        &self,
        x: &Self::Floats,
        tokens: usize,
        projection: &Projection<'_, Self>,
    ) -> Self::Floats;

    /// Adds `x` times the transposed weights to `residual`.
    fn project_onto(
        &self,
        x: &Self::Floats,
        tokens: usize,
        projection: &Projection<'_, Self>,
        residual: &mut Self::Floats,
    );

    /// Normalizes and rotates the queries where they lie in `fused`, and puts
    /// the keys, rotated alike, and the values into the cache.
    ///
    /// `rotations` holds cosine and sine of each pair of dimensions, position
    /// by position.
    #[expect(
        clippy::too_many_arguments,
        reason = "an operation of the decoder, called once"
    )]
    fn rotate(
        &self,
        fused: &mut Self::Floats,
        tokens: usize,
        position: usize,
        heads: Heads,
        norms: Option<&HeadNorms<Self::Floats>>,
        rotations: &Self::Floats,
        cache: &mut LayerCache<Self::Floats>,
    );

    /// Each query's mean over the values that it may see, weighted by softmax.
    fn attend(
        &self,
        fused: &Self::Floats,
        tokens: usize,
        position: usize,
        heads: Heads,
        cache: &LayerCache<Self::Floats>,
    ) -> Self::Floats;

    /// `silu(gate) * up`, where each row holds the gate before the up half.
    fn gate(&self, gate_up: &Self::Floats, tokens: usize, width: usize) -> Self::Floats;

    /// Divides the positive and multiplies the negative logits of these tokens.
    fn penalize(&self, logits: &mut Self::Floats, tokens: &[u32], penalty: f32);

    /// The `count` likeliest of `length` tokens, best first, of equal ones the
    /// first. `allowed` holds a bit for each token, if not all are.
    async fn candidates(
        &self,
        logits: &Self::Floats,
        length: usize,
        count: usize,
        allowed: Option<&[u32]>,
    ) -> Result<Vec<Candidate>, DeviceError>;

    /// All values, for checks and tests.
    async fn read(&self, floats: &Self::Floats) -> Result<Vec<f32>, DeviceError>;

    /// Waits until the device has done all that it was asked.
    async fn finish(&self) -> Result<(), DeviceError>;
}
