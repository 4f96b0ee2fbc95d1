//! The decoder: one forward pass for Qwen3, Qwen2 and the Llama layout.
//!
//! Names are the checkpoint's. What is multiplied with one input is multiplied
//! in one go (queries, keys and values; gate and up), which halves the kernel
//! launches of a layer.

use crate::chat::TemplateError;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::Config;
use crate::engine::{
    Candidate, DeviceError, Engine, HeadNorms, Heads, LayerCache, Matrix, Projection,
};
use crate::matrix::{HostMatrix, read_vector};
use crate::source::CheckpointSource;
use crate::tokenizer::TokenizerError;

/// Tokens that pass through the layers at a time. Longer blocks read the
/// weights less often, but their activations take more memory.
pub(crate) const PREFILL_BLOCK: usize = 128;

/// Positions that the cache grows by.
const CACHE_STEP: usize = 256;

/// Why a model could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The checkpoint is refused.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device cannot hold the model.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The tokenizer is refused.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// `tokenizer_config.json` is refused.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// The weights of a [`Projection`].
struct Linear<E: Engine> {
    parts: Vec<Matrix<E::Words>>,
    bias: Option<E::Floats>,
}

impl<E: Engine> Linear<E> {
    fn projection(&self) -> Projection<'_, E> {
        Projection {
            parts: &self.parts,
            bias: self.bias.as_ref(),
        }
    }

    fn byte_count(&self) -> u64 {
        self.projection().byte_count()
    }
}

struct Layer<E: Engine> {
    input_layernorm: E::Floats,
    /// `q_proj`, `k_proj` and `v_proj`.
    qkv_proj: Linear<E>,
    head_norms: Option<HeadNorms<E::Floats>>,
    o_proj: Linear<E>,
    post_attention_layernorm: E::Floats,
    /// `gate_proj` and `up_proj`.
    gate_up_proj: Linear<E>,
    down_proj: Linear<E>,
}

/// A model on a device, with the keys and values of the tokens that it has seen.
pub(crate) struct Decoder<E: Engine> {
    engine: E,
    config: Config,
    heads: Heads,
    embed_tokens: Matrix<E::Words>,
    layers: Vec<Layer<E>>,
    norm: E::Floats,
    /// `None` when the head is the embedding.
    lm_head: Option<Linear<E>>,
    cache: Vec<LayerCache<E::Floats>>,
    rotations: E::Floats,
    capacity: usize,
    seen: Vec<u32>,
    /// What follows the last token, when it was wanted.
    logits: Option<E::Floats>,
}

/// Reads layer after layer and puts it on the device.
struct Loader<'a, 's, E: Engine, S> {
    engine: &'a E,
    config: &'a Config,
    checkpoint: Checkpoint<'s, S>,
    progress: &'a mut dyn FnMut(u64, u64),
    /// Bytes that the device may not have taken over yet.
    under_way: usize,
}

/// Bytes that may be under way to the device: until it has them, they are in this machine's memory too.
const MAX_UNDER_WAY: usize = 32 << 20;

impl<E: Engine, S: CheckpointSource> Loader<'_, '_, E, S> {
    fn report(&mut self) {
        (self.progress)(self.checkpoint.bytes_read(), self.checkpoint.byte_count());
    }

    async fn matrix(
        &mut self,
        layer: &str,
        rows: usize,
        cols: usize,
    ) -> Result<HostMatrix, LoadError> {
        let quantization = self.config.quantization.of(layer);
        let matrix =
            HostMatrix::read(&mut self.checkpoint, layer, (rows, cols), quantization).await?;
        self.report();
        Ok(matrix)
    }

    async fn upload(&mut self, matrix: HostMatrix) -> Result<Matrix<E::Words>, LoadError> {
        let needed = 4 * matrix.words.len().max(matrix.groups.len()) as u64;
        if let Some(limit) = self.engine.max_buffer_bytes()
            && needed > limit
        {
            return Err(DeviceError::BufferTooLarge { needed, limit }.into());
        }
        self.under_way += 4 * (matrix.words.len() + matrix.groups.len());
        let matrix = self.engine.upload(matrix);
        if self.under_way > MAX_UNDER_WAY {
            self.engine.finish().await?;
            self.under_way = 0;
        }
        Ok(matrix)
    }

    async fn linear(
        &mut self,
        layers: &[(String, usize)],
        cols: usize,
        has_bias: bool,
    ) -> Result<Linear<E>, LoadError> {
        let mut parts = Vec::new();
        let mut bias = Vec::new();
        let mut pending: Option<HostMatrix> = None;
        for (layer, rows) in layers {
            let matrix = self.matrix(layer, *rows, cols).await?;
            pending = Some(match pending.take() {
                None => matrix,
                Some(mut first) => match first.append(matrix) {
                    Ok(()) => first,
                    Err(other) => {
                        parts.push(self.upload(first).await?);
                        other
                    }
                },
            });
            if has_bias {
                let name = format!("{layer}.bias");
                bias.extend(read_vector(&mut self.checkpoint, &name, *rows).await?);
            }
        }
        if let Some(last) = pending {
            parts.push(self.upload(last).await?);
        }
        Ok(Linear {
            parts,
            bias: has_bias.then(|| self.engine.floats(bias)),
        })
    }

    async fn norm(&mut self, name: &str, length: usize) -> Result<E::Floats, LoadError> {
        let values = read_vector(&mut self.checkpoint, &format!("{name}.weight"), length).await?;
        Ok(self.engine.floats(values))
    }

    async fn layer(&mut self, index: usize) -> Result<Layer<E>, LoadError> {
        let config = self.config;
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let (query, key_value) = (config.query_size(), config.key_value_size());
        let prefix = format!("model.layers.{index}");
        let attention = format!("{prefix}.self_attn");
        let mlp = format!("{prefix}.mlp");
        Ok(Layer {
            input_layernorm: self
                .norm(&format!("{prefix}.input_layernorm"), hidden)
                .await?,
            qkv_proj: self
                .linear(
                    &[
                        (format!("{attention}.q_proj"), query),
                        (format!("{attention}.k_proj"), key_value),
                        (format!("{attention}.v_proj"), key_value),
                    ],
                    hidden,
                    config.qkv_bias,
                )
                .await?,
            head_norms: if config.qk_norm {
                Some(HeadNorms {
                    query: self
                        .norm(&format!("{attention}.q_norm"), config.head_dim)
                        .await?,
                    key: self
                        .norm(&format!("{attention}.k_norm"), config.head_dim)
                        .await?,
                    eps: config.rms_norm_eps,
                })
            } else {
                None
            },
            o_proj: self
                .linear(
                    &[(format!("{attention}.o_proj"), hidden)],
                    query,
                    config.output_bias,
                )
                .await?,
            post_attention_layernorm: self
                .norm(&format!("{prefix}.post_attention_layernorm"), hidden)
                .await?,
            gate_up_proj: self
                .linear(
                    &[
                        (format!("{mlp}.gate_proj"), intermediate),
                        (format!("{mlp}.up_proj"), intermediate),
                    ],
                    hidden,
                    config.mlp_bias,
                )
                .await?,
            down_proj: self
                .linear(
                    &[(format!("{mlp}.down_proj"), hidden)],
                    intermediate,
                    config.mlp_bias,
                )
                .await?,
        })
    }
}

impl<E: Engine> Decoder<E> {
    /// Loads a checkpoint, tensor by tensor. `progress` is told the bytes read
    /// so far and the bytes to read in all.
    pub(crate) async fn load(
        engine: E,
        config: Config,
        source: &impl CheckpointSource,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, LoadError> {
        let checkpoint = Checkpoint::open(source).await?;
        let mut loader = Loader {
            engine: &engine,
            config: &config,
            checkpoint,
            progress,
            under_way: 0,
        };
        loader.report();
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let embedding = loader.matrix("model.embed_tokens", vocab, hidden).await?;
        let embed_tokens = loader.upload(embedding).await?;
        let mut layers = Vec::new();
        for index in 0..config.num_hidden_layers {
            layers.push(loader.layer(index).await?);
        }
        let norm = loader.norm("model.norm", hidden).await?;
        let lm_head = if config.tie_word_embeddings {
            // Some exports repeat the embedding under the head's name.
            loader.checkpoint.ignore("lm_head.weight");
            None
        } else {
            Some(
                loader
                    .linear(&[("lm_head".to_owned(), vocab)], hidden, false)
                    .await?,
            )
        };
        loader.checkpoint.finish()?;
        let heads = Heads {
            query: config.num_attention_heads,
            key_value: config.num_key_value_heads,
            dim: config.head_dim,
        };
        let empty = || engine.zeros(0);
        let cache = layers
            .iter()
            .map(|_| LayerCache {
                keys: empty(),
                values: empty(),
            })
            .collect();
        let rotations = empty();
        Ok(Self {
            engine,
            config,
            heads,
            embed_tokens,
            layers,
            norm,
            lm_head,
            cache,
            rotations,
            capacity: 0,
            seen: Vec::new(),
            logits: None,
        })
    }

    pub(crate) fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, and the matrix that most of the time goes into.
    pub(crate) fn engine_and_largest(&mut self) -> Option<(&mut E, &Matrix<E::Words>)> {
        let largest = self.layers.first()?.gate_up_proj.parts.first()?;
        Some((&mut self.engine, largest))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The tokens whose keys and values are in the cache.
    pub(crate) fn seen(&self) -> &[u32] {
        &self.seen
    }

    /// Forgets all tokens after the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.seen.truncate(count);
        self.logits = None;
    }

    fn layer_bytes(&self) -> u64 {
        self.layers
            .iter()
            .map(|layer| {
                layer.qkv_proj.byte_count()
                    + layer.o_proj.byte_count()
                    + layer.gate_up_proj.byte_count()
                    + layer.down_proj.byte_count()
            })
            .sum()
    }

    /// Bytes of weights that one token reads.
    pub(crate) fn bytes_per_token(&self) -> u64 {
        let head = self.lm_head.as_ref().map(Linear::byte_count);
        self.layer_bytes() + head.unwrap_or_else(|| self.embed_tokens.byte_count())
    }

    /// Bytes of matrices, keys and values: all that is large.
    pub(crate) fn byte_count(&self) -> u64 {
        let head = self.lm_head.as_ref().map_or(0, Linear::byte_count);
        let cached = 2 * self.capacity * self.heads.key_value_size() * self.layers.len();
        let floats = size_of::<f32>() as u64;
        self.embed_tokens.byte_count() + self.layer_bytes() + head + floats * cached as u64
    }

    /// Makes room for the keys and values of `length` tokens.
    fn reserve(&mut self, length: usize) {
        if length <= self.capacity {
            return;
        }
        let capacity = length
            .next_multiple_of(CACHE_STEP)
            .min(self.config.max_position_embeddings);
        let floats = capacity * self.heads.key_value_size();
        for layer in &mut self.cache {
            layer.keys = self.engine.grown(&layer.keys, floats);
            layer.values = self.engine.grown(&layer.values, floats);
        }
        let frequencies = self.config.rotary_frequencies();
        let mut rotations = Vec::with_capacity(capacity * self.heads.dim);
        for position in 0..capacity {
            for frequency in &frequencies {
                #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
                let angle = position as f32 * frequency;
                rotations.extend([angle.cos(), angle.sin()]);
            }
        }
        self.rotations = self.engine.floats(rotations);
        self.capacity = capacity;
    }

    /// Passes one block of tokens through the layers. After the last block of
    /// a prompt the logits are wanted, after the others they are not.
    ///
    /// The caller has checked that the tokens fit the context and the
    /// vocabulary, and passes at most [`PREFILL_BLOCK`] and at least one.
    pub(crate) fn advance(&mut self, tokens: &[u32], wants_logits: bool) {
        let x = self.forward(tokens);
        self.logits = wants_logits.then(|| self.head(&x, tokens.len()));
    }

    fn forward(&mut self, tokens: &[u32]) -> E::Floats {
        let (count, position) = (tokens.len(), self.seen.len());
        self.reserve(position + count);
        let (engine, hidden) = (&self.engine, self.config.hidden_size);
        let eps = self.config.rms_norm_eps;
        let mut x = engine.embed(&self.embed_tokens, tokens);
        for (layer, cache) in self.layers.iter().zip(&mut self.cache) {
            let normed = engine.rms_norm(&x, 0..count, &layer.input_layernorm, hidden, eps);
            let mut fused = engine.project(&normed, count, &layer.qkv_proj.projection());
            engine.rotate(
                &mut fused,
                count,
                position,
                self.heads,
                layer.head_norms.as_ref(),
                &self.rotations,
                cache,
            );
            let attended = engine.attend(&fused, count, position, self.heads, cache);
            engine.project_onto(&attended, count, &layer.o_proj.projection(), &mut x);
            let normed =
                engine.rms_norm(&x, 0..count, &layer.post_attention_layernorm, hidden, eps);
            let gate_up = engine.project(&normed, count, &layer.gate_up_proj.projection());
            let gated = engine.gate(&gate_up, count, self.config.intermediate_size);
            engine.project_onto(&gated, count, &layer.down_proj.projection(), &mut x);
        }
        self.seen.extend_from_slice(tokens);
        x
    }

    /// The logits that follow the last of `count` hidden states.
    fn head(&self, x: &E::Floats, count: usize) -> E::Floats {
        let hidden = self.config.hidden_size;
        let eps = self.config.rms_norm_eps;
        let last = self
            .engine
            .rms_norm(x, count - 1..count, &self.norm, hidden, eps);
        self.engine.project(&last, 1, &self.head_projection())
    }

    fn head_projection(&self) -> Projection<'_, E> {
        match &self.lm_head {
            Some(head) => head.projection(),
            None => Projection {
                parts: std::slice::from_ref(&self.embed_tokens),
                bias: None,
            },
        }
    }

    /// Makes these tokens less likely to be chosen next.
    pub(crate) fn penalize(&mut self, tokens: &[u32], penalty: f32) {
        if let Some(logits) = &mut self.logits {
            self.engine.penalize(logits, tokens, penalty);
        }
    }

    /// The likeliest next tokens. There are none before a prompt has passed,
    /// or when none is allowed.
    pub(crate) async fn candidates(
        &self,
        count: usize,
        allowed: Option<&[u32]>,
    ) -> Result<Vec<Candidate>, DeviceError> {
        match &self.logits {
            Some(logits) => {
                self.engine
                    .candidates(logits, self.config.vocab_size, count, allowed)
                    .await
            }
            None => Ok(Vec::new()),
        }
    }

    /// All logits, for a check against a reference.
    pub(crate) async fn read_logits(&self) -> Result<Vec<f32>, DeviceError> {
        match &self.logits {
            Some(logits) => self.engine.read(logits).await,
            None => Ok(Vec::new()),
        }
    }

    /// The products that so many tokens go through, in a list for each kind: over the layers, and the
    /// head, which of a block of tokens only the last goes through.
    pub(crate) fn products(&self, tokens: usize) -> Vec<Vec<Projection<'_, E>>> {
        let of_layers = |linear: fn(&Layer<E>) -> &Linear<E>| {
            self.layers
                .iter()
                .map(|layer| linear(layer).projection())
                .collect()
        };
        let mut products: Vec<Vec<_>> = vec![
            of_layers(|layer| &layer.qkv_proj),
            of_layers(|layer| &layer.o_proj),
            of_layers(|layer| &layer.gate_up_proj),
            of_layers(|layer| &layer.down_proj),
        ];
        if tokens == 1 {
            products.push(vec![self.head_projection()]);
        }
        products
    }

    /// Waits until everything that was asked is computed.
    pub(crate) async fn finish(&self) -> Result<(), DeviceError> {
        self.engine.finish().await
    }
}
