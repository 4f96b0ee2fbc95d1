//! How fast a loaded model is.

use std::fmt;
use std::time::Duration;

use web_time::Instant;

use crate::decoder::{Decoder, PREFILL_BLOCK};
use crate::engine::{DeviceError, Engine};
use crate::model::{GenerateError, Model, Options, Step};
use crate::sampling::Sampling;

/// What a run measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How long the prompt took, up to where the first token could be chosen.
    pub prefill: Duration,
    /// Tokens that were decoded after the first.
    pub decoded_tokens: usize,
    /// How long they took.
    pub decode: Duration,
    /// Bytes of weights that each of them read.
    pub weight_bytes_per_token: u64,
    /// Bytes that left the device for each of them.
    pub read_back_bytes_per_token: u64,
    /// The matrix products of one token, and of a block of a prompt.
    pub products: Vec<ProductTime>,
}

/// How long one of a model's matrix products takes.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductTime {
    /// Rows of the matrix: the width of what comes out.
    pub rows: usize,
    /// Columns of the matrix: the width of what goes in.
    pub cols: usize,
    /// Tokens that go in at a time.
    pub tokens: usize,
    /// How many of them a forward pass has.
    pub count: usize,
    /// How long one takes.
    pub time: Duration,
    /// Bytes of weights that it reads.
    pub weight_bytes: u64,
}

impl Measurement {
    /// Prompt tokens a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }

    /// Decoded tokens a second.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decoded_tokens, self.decode)
    }

    /// Bytes of weights read a second while decoding.
    pub fn weight_bandwidth(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let bytes = self.weight_bytes_per_token as f64;
        bytes * self.decode_rate()
    }

    /// Which share of a decoded token's time its matrix products are.
    pub fn product_share(&self) -> f64 {
        let of_one_token = self.products.iter().filter(|product| product.tokens == 1);
        let seconds: f64 = of_one_token
            .map(|product| product.time.as_secs_f64() * as_float(product.count))
            .sum();
        seconds * self.decode_rate()
    }
}

impl ProductTime {
    /// Bytes of weights read a second.
    pub fn weight_bandwidth(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let bytes = self.weight_bytes as f64;
        bytes / self.time.as_secs_f64()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn as_float(count: usize) -> f64 {
    count as f64
}

fn rate(count: usize, time: Duration) -> f64 {
    as_float(count) / time.as_secs_f64()
}

impl fmt::Display for Measurement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "prefill: {:.1} tokens/s ({} tokens)",
            self.prefill_rate(),
            self.prompt_tokens
        )?;
        writeln!(
            formatter,
            "decode: {:.1} tokens/s ({} tokens), {:.2} GB/s of weights, {} bytes read back a token",
            self.decode_rate(),
            self.decoded_tokens,
            self.weight_bandwidth() / 1e9,
            self.read_back_bytes_per_token,
        )?;
        for product in &self.products {
            writeln!(
                formatter,
                "product: {} by {}, {} tokens: {:.3} ms, {:.2} GB/s of weights",
                product.rows,
                product.cols,
                product.tokens,
                product.time.as_secs_f64() * 1e3,
                product.weight_bandwidth() / 1e9,
            )?;
        }
        writeln!(
            formatter,
            "products: {:.0}% of a decoded token's time",
            self.product_share() * 100.0
        )
    }
}

/// Reads a prompt of this many tokens and decodes as many greedily. Kernels are
/// compiled by a first short run that does not count.
///
/// # Errors
///
/// When the tokens do not fit the context, or the device fails.
pub async fn measure(
    model: &mut Model,
    prompt_tokens: usize,
    decode_tokens: usize,
) -> Result<Measurement, GenerateError> {
    let vocabulary = model.info().config.vocab_size;
    // Any tokens do: the time does not depend on which.
    let prompt: Vec<u32> = (0..prompt_tokens)
        .map(|index| u32::try_from((index * 7919 + 1) % vocabulary).unwrap_or_default())
        .collect();
    run(model, &prompt, 2).await?;
    model.reset();
    let (prefill, decoded, decode) = run(model, &prompt, decode_tokens + 1).await?;
    let mut products = model.time_products(1).await?;
    products.extend(model.time_products(PREFILL_BLOCK).await?);
    Ok(Measurement {
        prompt_tokens,
        prefill,
        decoded_tokens: decoded,
        decode,
        weight_bytes_per_token: model.info().weight_bytes_per_token,
        read_back_bytes_per_token: model.read_back_bytes(&Sampling::GREEDY),
        products,
    })
}

/// How long each kind of product is measured for, at least.
const PRODUCT_TIME: Duration = Duration::from_millis(200);

/// Times each kind of product over the weights of all layers: those of one alone would stay in a cache.
pub(crate) async fn time_products<E: Engine>(
    decoder: &Decoder<E>,
    tokens: usize,
) -> Result<Vec<ProductTime>, DeviceError> {
    let engine = decoder.engine();
    let mut times = Vec::new();
    for products in decoder.products(tokens) {
        let Some(first) = products.first() else {
            continue;
        };
        let cols = first.parts.first().map_or(0, |part| part.cols);
        let x = engine.floats(vec![1.0; tokens * cols]);
        // The first run compiles.
        engine.project(&x, tokens, first);
        engine.finish().await?;
        let start = Instant::now();
        let mut passes = 0;
        while passes == 0 || start.elapsed() < PRODUCT_TIME {
            for product in &products {
                engine.project(&x, tokens, product);
            }
            engine.finish().await?;
            passes += 1;
        }
        times.push(ProductTime {
            rows: first.rows(),
            cols,
            tokens,
            count: products.len(),
            time: start.elapsed().div_f64(as_float(passes * products.len())),
            weight_bytes: first.byte_count(),
        });
    }
    Ok(times)
}

async fn run(
    model: &mut Model,
    prompt: &[u32],
    max_tokens: usize,
) -> Result<(Duration, usize, Duration), GenerateError> {
    let options = Options {
        max_tokens,
        ..Options::default()
    };
    let mut generation = model
        .continue_tokens(prompt, &options)?
        .through_stop_tokens();
    let start = Instant::now();
    let mut first_token: Option<Instant> = None;
    let mut last_token = start;
    let mut decoded = 0;
    loop {
        match generation.step().await? {
            Step::Prefill { .. } => {}
            Step::Token { .. } => {
                last_token = Instant::now();
                match first_token {
                    None => first_token = Some(last_token),
                    Some(_) => decoded += 1,
                }
            }
            Step::Done { .. } => break,
        }
    }
    let first_token = first_token.unwrap_or(last_token);
    Ok((first_token - start, decoded, last_token - first_token))
}
