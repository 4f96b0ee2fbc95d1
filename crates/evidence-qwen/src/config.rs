//! `config.json`: which decoder a checkpoint holds.
//!
//! Three layouts share the decoder. They differ in two switches only, the norm
//! on queries and keys (Qwen3) and the biases of the projections (Qwen2, and
//! Llama where it says so), so the layout is resolved into those switches here
//! and nothing further down asks for it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Why a `config.json` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not JSON, or a field has the wrong type or is missing.
    #[error("config.json cannot be read: {0}")]
    Malformed(String),
    /// `model_type` names no decoder that is implemented.
    #[error("the architecture {0:?} is not supported; qwen3, qwen2 and llama are")]
    UnknownArchitecture(String),
    /// `rope_type` names no scaling that is implemented.
    #[error("the RoPE scaling {0:?} is not supported; default, linear and llama3 are")]
    UnknownRopeScaling(String),
    /// The quantization is not MLX's affine group quantization.
    #[error("the quantization {0:?} is not supported; MLX group quantization (affine) is")]
    UnknownQuantization(String),
    /// Bits or group size outside what the kernels unpack.
    #[error(
        "{bits} bits in groups of {group_size} are not supported; \
         4 and 8 bits in groups of 32, 64 and 128 are"
    )]
    UnsupportedGroup {
        /// Bits of one weight.
        bits: u32,
        /// Weights that share a scale and a bias.
        group_size: u32,
    },
    /// A feature of the architecture that the decoder does not have.
    #[error("{field} = {value} is not supported")]
    Unsupported {
        /// The field of `config.json`.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A number that no such model can have.
    #[error("{field} = {value} is not possible: {reason}")]
    Impossible {
        /// The field of `config.json`.
        field: &'static str,
        /// Its value.
        value: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// How the rotary frequencies are scaled beyond the trained context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// The frequencies as trained.
    Default,
    /// Every frequency divided by one factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3's: long wavelengths divided, short ones kept, a ramp between.
    Llama3 {
        /// What long wavelengths are divided by.
        factor: f64,
        /// Wavelengths above the original context over this are divided whole.
        low_freq_factor: f64,
        /// Wavelengths below the original context over this are kept.
        high_freq_factor: f64,
        /// The context that the model was trained with first.
        original_max_position_embeddings: f64,
    },
}

/// MLX's group quantization of one linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupQuantization {
    /// Bits of one weight, 4 or 8.
    pub bits: u32,
    /// Weights that share a scale and a bias: 32, 64 or 128.
    pub group_size: u32,
}

/// Which layers are quantized, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quantization {
    default: Option<GroupQuantization>,
    by_layer: BTreeMap<String, Option<GroupQuantization>>,
}

impl Quantization {
    /// The quantization of the layer with this name, `None` when its weight is
    /// stored as floats.
    pub fn of(&self, layer: &str) -> Option<GroupQuantization> {
        self.by_layer.get(layer).copied().unwrap_or(self.default)
    }
}

/// The decoder that a checkpoint's `config.json` describes.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what checkpoints differ in: each stands for itself"
)]
pub struct Config {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub num_hidden_layers: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key and value heads.
    pub num_key_value_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Longest context in tokens.
    pub max_position_embeddings: usize,
    /// Added to the mean square before its root.
    pub rms_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies.
    pub rope_scaling: RopeScaling,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Whether queries and keys are normalized before the rotation.
    pub qk_norm: bool,
    /// Whether `q_proj`, `k_proj` and `v_proj` have a bias.
    pub qkv_bias: bool,
    /// Whether `o_proj` has a bias.
    pub output_bias: bool,
    /// Whether the three projections of the feed-forward layer have a bias.
    pub mlp_bias: bool,
    /// Which layers are quantized.
    pub quantization: Quantization,
}

#[derive(Deserialize)]
struct RawConfig {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: usize,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f32>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRope>,
    // The name that transformers 5 writes in place of the two above.
    rope_parameters: Option<RawRope>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    quantization: Option<Value>,
    quantization_config: Option<Value>,
}

#[derive(Deserialize)]
struct RawRope {
    // Older files say `type`.
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

impl Config {
    /// Reads a `config.json`.
    ///
    /// # Errors
    ///
    /// When the text is not such a file, and, by name, for every architecture,
    /// `rope_scaling`, activation and quantization that the decoder does not have.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        // The name comes first: an unknown architecture may lack the other fields.
        let value: Value = serde_json::from_str(json)
            .map_err(|error| ConfigError::Malformed(error.to_string()))?;
        let model_type = value
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !matches!(model_type, "qwen3" | "qwen2" | "llama") {
            return Err(ConfigError::UnknownArchitecture(model_type.to_owned()));
        }
        let raw: RawConfig = serde_json::from_value(value)
            .map_err(|error| ConfigError::Malformed(error.to_string()))?;
        raw.resolve()
    }

    /// Width of all query heads together.
    pub fn query_size(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Width of all key heads together, and of all value heads.
    pub fn key_value_size(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// The rotary frequencies, one for each pair of a head's dimensions.
    pub fn rotary_frequencies(&self) -> Vec<f32> {
        let half = self.head_dim / 2;
        (0..half)
            .map(|index| {
                #[expect(clippy::cast_precision_loss, reason = "a head has few dimensions")]
                let exponent = index as f64 / half as f64;
                let frequency = self.rope_theta.powf(exponent).recip();
                #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
                let scaled = self.rope_scaling.scale(frequency) as f32;
                scaled
            })
            .collect()
    }
}

impl RopeScaling {
    fn scale(self, frequency: f64) -> f64 {
        match self {
            Self::Default => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                let wavelength = 2.0 * std::f64::consts::PI / frequency;
                if wavelength > original_max_position_embeddings / low_freq_factor {
                    frequency / factor
                } else if wavelength < original_max_position_embeddings / high_freq_factor {
                    frequency
                } else {
                    let smooth = (original_max_position_embeddings / wavelength - low_freq_factor)
                        / (high_freq_factor - low_freq_factor);
                    (1.0 - smooth) * frequency / factor + smooth * frequency
                }
            }
        }
    }
}

/// No dimension of a real model is near this, and products of two of them stay
/// below the addresses that a kernel can form.
const MAX_DIMENSION: usize = 1 << 24;

fn dimension(field: &'static str, value: usize, multiple_of: usize) -> Result<usize, ConfigError> {
    let reason = if value == 0 {
        "it is zero"
    } else if value > MAX_DIMENSION {
        "it is too large"
    } else if !value.is_multiple_of(multiple_of) {
        "the kernels read four values at a time and it is no multiple of four"
    } else {
        return Ok(value);
    };
    Err(ConfigError::Impossible {
        field,
        value,
        reason,
    })
}

impl RawConfig {
    fn resolve(self) -> Result<Config, ConfigError> {
        self.refuse_unsupported()?;
        let quantization = self.quantization()?;
        let (rope_theta, rope_scaling) = self.rope()?;
        let hidden_size = dimension("hidden_size", self.hidden_size, 4)?;
        let num_attention_heads = dimension("num_attention_heads", self.num_attention_heads, 1)?;
        let num_key_value_heads = dimension(
            "num_key_value_heads",
            self.num_key_value_heads.unwrap_or(num_attention_heads),
            1,
        )?;
        if !num_attention_heads.is_multiple_of(num_key_value_heads) {
            return Err(ConfigError::Impossible {
                field: "num_key_value_heads",
                value: num_key_value_heads,
                reason: "it does not divide num_attention_heads",
            });
        }
        let qwen2 = self.model_type == "qwen2";
        let qwen3 = self.model_type == "qwen3";
        // Qwen3's own default is a constant, the others derive it.
        let default_head_dim = if qwen3 {
            128
        } else {
            hidden_size / num_attention_heads
        };
        let head_dim = dimension("head_dim", self.head_dim.unwrap_or(default_head_dim), 4)?;
        if head_dim > 256 {
            return Err(ConfigError::Unsupported {
                field: "head_dim",
                value: head_dim.to_string(),
            });
        }
        dimension(
            "the width of all heads",
            num_attention_heads.saturating_mul(head_dim),
            4,
        )?;
        let attention_bias = self.attention_bias.unwrap_or(false);
        Ok(Config {
            hidden_size,
            intermediate_size: dimension("intermediate_size", self.intermediate_size, 4)?,
            num_hidden_layers: dimension("num_hidden_layers", self.num_hidden_layers, 1)?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            vocab_size: dimension("vocab_size", self.vocab_size, 1)?,
            max_position_embeddings: dimension(
                "max_position_embeddings",
                self.max_position_embeddings
                    .unwrap_or(if qwen3 || qwen2 { 32_768 } else { 2048 }),
                1,
            )?,
            rms_norm_eps: self.rms_norm_eps.unwrap_or(1e-6),
            rope_theta,
            rope_scaling,
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(false),
            qk_norm: qwen3,
            qkv_bias: qwen2 || attention_bias,
            output_bias: !qwen2 && attention_bias,
            mlp_bias: self.model_type == "llama" && self.mlp_bias.unwrap_or(false),
            quantization,
        })
    }

    fn refuse_unsupported(&self) -> Result<(), ConfigError> {
        if let Some(activation) = &self.hidden_act
            && activation != "silu"
        {
            return Err(ConfigError::Unsupported {
                field: "hidden_act",
                value: activation.clone(),
            });
        }
        if self.use_sliding_window == Some(true) {
            return Err(ConfigError::Unsupported {
                field: "use_sliding_window",
                value: "true".to_owned(),
            });
        }
        if let Some(kind) = self
            .layer_types
            .iter()
            .flatten()
            .find(|kind| *kind != "full_attention")
        {
            return Err(ConfigError::Unsupported {
                field: "layer_types",
                value: kind.clone(),
            });
        }
        Ok(())
    }

    fn rope(&self) -> Result<(f64, RopeScaling), ConfigError> {
        let raw = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let theta = raw
            .and_then(|raw| raw.rope_theta)
            .or(self.rope_theta)
            .unwrap_or(10_000.0);
        let Some(raw) = raw else {
            return Ok((theta, RopeScaling::Default));
        };
        if let Some(factor) = raw.partial_rotary_factor
            && (factor - 1.0).abs() > f64::EPSILON
        {
            return Err(ConfigError::Unsupported {
                field: "partial_rotary_factor",
                value: factor.to_string(),
            });
        }
        let required = |value: Option<f64>, field: &str| {
            value.filter(|value| *value > 0.0).ok_or_else(|| {
                ConfigError::Malformed(format!("the RoPE scaling needs a positive {field}"))
            })
        };
        let scaling = match raw.rope_type.as_deref().unwrap_or("default") {
            "default" => RopeScaling::Default,
            "linear" => RopeScaling::Linear {
                factor: required(raw.factor, "factor")?,
            },
            "llama3" => RopeScaling::Llama3 {
                factor: required(raw.factor, "factor")?,
                low_freq_factor: required(raw.low_freq_factor, "low_freq_factor")?,
                high_freq_factor: required(raw.high_freq_factor, "high_freq_factor")?,
                original_max_position_embeddings: required(
                    raw.original_max_position_embeddings,
                    "original_max_position_embeddings",
                )?,
            },
            other => return Err(ConfigError::UnknownRopeScaling(other.to_owned())),
        };
        Ok((theta, scaling))
    }

    fn quantization(&self) -> Result<Quantization, ConfigError> {
        let Some(value) = self
            .quantization
            .as_ref()
            .or(self.quantization_config.as_ref())
        else {
            return Ok(Quantization::default());
        };
        if let Some(method) = value.get("quant_method").and_then(Value::as_str)
            && method != "mlx"
        {
            return Err(ConfigError::UnknownQuantization(method.to_owned()));
        }
        let default = Some(group(value)?);
        let mut by_layer = BTreeMap::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            let entry = match value {
                Value::Bool(false) => None,
                Value::Bool(true) => default,
                Value::Object(_) => Some(group(value)?),
                _ => continue,
            };
            by_layer.insert(name.clone(), entry);
        }
        Ok(Quantization { default, by_layer })
    }
}

fn group(value: &Value) -> Result<GroupQuantization, ConfigError> {
    let number = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_u64)
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| ConfigError::Malformed(format!("the quantization needs {name}")))
    };
    if let Some(mode) = value.get("mode").and_then(Value::as_str)
        && mode != "affine"
    {
        return Err(ConfigError::UnknownQuantization(mode.to_owned()));
    }
    let (bits, group_size) = (number("bits")?, number("group_size")?);
    if !matches!(bits, 4 | 8) || !matches!(group_size, 32 | 64 | 128) {
        return Err(ConfigError::UnsupportedGroup { bits, group_size });
    }
    Ok(GroupQuantization { bits, group_size })
}
