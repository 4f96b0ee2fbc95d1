//! Writes a checkpoint of exactly Qwen3-0.6B's shape with random weights in
//! MLX's 4-bit format, to measure with: `random_checkpoint DIR`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

const HIDDEN: usize = 1024;
const INTERMEDIATE: usize = 3072;
const LAYERS: usize = 28;
const VOCABULARY: usize = 151_936;
const HEAD_DIM: usize = 128;
const QUERY: usize = 16 * HEAD_DIM;
const KEY_VALUE: usize = 8 * HEAD_DIM;
const GROUP: usize = 64;

/// What the bytes of a tensor are.
enum Content {
    /// Random words.
    Packed,
    /// The same half-precision number throughout.
    Constant(f32),
}

struct Tensor {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    content: Content,
}

impl Tensor {
    fn byte_count(&self) -> usize {
        let elements: usize = self.shape.iter().product();
        elements * if self.dtype == "U32" { 4 } else { 2 }
    }
}

/// A quantized layer whose weights have about the size that trained ones have.
fn layer(tensors: &mut Vec<Tensor>, name: &str, rows: usize, cols: usize) {
    #[expect(clippy::cast_precision_loss, reason = "a layer's width is small")]
    let spread = 1.0 / (cols as f32).sqrt();
    let mut push = |suffix: &str, dtype, shape, content| {
        tensors.push(Tensor {
            name: format!("{name}.{suffix}"),
            dtype,
            shape,
            content,
        });
    };
    push("weight", "U32", vec![rows, cols / 8], Content::Packed);
    push(
        "scales",
        "BF16",
        vec![rows, cols / GROUP],
        Content::Constant(spread / 4.0),
    );
    push(
        "biases",
        "BF16",
        vec![rows, cols / GROUP],
        Content::Constant(-spread * 15.0 / 8.0),
    );
}

fn tensors() -> Vec<Tensor> {
    let mut tensors = Vec::new();
    let norm = |name: String, length| Tensor {
        name: format!("{name}.weight"),
        dtype: "BF16",
        shape: vec![length],
        content: Content::Constant(1.0),
    };
    layer(&mut tensors, "model.embed_tokens", VOCABULARY, HIDDEN);
    for index in 0..LAYERS {
        let prefix = format!("model.layers.{index}");
        let attention = format!("{prefix}.self_attn");
        layer(&mut tensors, &format!("{attention}.q_proj"), QUERY, HIDDEN);
        layer(
            &mut tensors,
            &format!("{attention}.k_proj"),
            KEY_VALUE,
            HIDDEN,
        );
        layer(
            &mut tensors,
            &format!("{attention}.v_proj"),
            KEY_VALUE,
            HIDDEN,
        );
        layer(&mut tensors, &format!("{attention}.o_proj"), HIDDEN, QUERY);
        layer(
            &mut tensors,
            &format!("{prefix}.mlp.gate_proj"),
            INTERMEDIATE,
            HIDDEN,
        );
        layer(
            &mut tensors,
            &format!("{prefix}.mlp.up_proj"),
            INTERMEDIATE,
            HIDDEN,
        );
        layer(
            &mut tensors,
            &format!("{prefix}.mlp.down_proj"),
            HIDDEN,
            INTERMEDIATE,
        );
        tensors.push(norm(format!("{attention}.q_norm"), HEAD_DIM));
        tensors.push(norm(format!("{attention}.k_norm"), HEAD_DIM));
        tensors.push(norm(format!("{prefix}.input_layernorm"), HIDDEN));
        tensors.push(norm(format!("{prefix}.post_attention_layernorm"), HIDDEN));
    }
    tensors.push(norm("model.norm".to_owned(), HIDDEN));
    tensors
}

fn config() -> Value {
    json!({
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": QUERY / HEAD_DIM,
        "num_key_value_heads": KEY_VALUE / HEAD_DIM,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "rope_scaling": null,
        "tie_word_embeddings": true,
        "hidden_act": "silu",
        "eos_token_id": 151_645,
        "quantization": {"group_size": GROUP, "bits": 4},
    })
}

fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("config.json"), config().to_string())?;
    let tensors = tensors();
    let mut header = Map::new();
    let mut offset = 0;
    for tensor in &tensors {
        let end = offset + tensor.byte_count();
        let entry = json!({
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [offset, end],
        });
        header.insert(tensor.name.clone(), entry);
        offset = end;
    }
    let header = Value::Object(header).to_string();
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors"))?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut state = 1_u64;
    for tensor in &tensors {
        match tensor.content {
            Content::Packed => {
                for _ in 0..tensor.byte_count() / 4 {
                    // A step of xorshift: any bits do.
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    file.write_all(&state.to_le_bytes()[..4])?;
                }
            }
            Content::Constant(value) => {
                let bytes = half::bf16::from_f32(value).to_le_bytes();
                for _ in 0..tensor.byte_count() / 2 {
                    file.write_all(&bytes)?;
                }
            }
        }
    }
    file.flush()
}

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        return Err(io::Error::other("usage: random_checkpoint DIR"));
    };
    write(Path::new(&folder))
}
