// Checkpoints of a shape that matters and random weights, written where they are wanted: what they say means
// nothing, how long they take means everything.

import { closeSync, mkdirSync, openSync, writeSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import path from "node:path";

/** Exactly the shape of Qwen3-0.6B. */
export const QWEN3_0_6B = {
  vocab_size: 151_936,
  hidden_size: 1024,
  num_hidden_layers: 28,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  head_dim: 128,
  intermediate_size: 3072,
  rope_theta: 1_000_000,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 40_960,
};

/** The shape of the small model of training/, which the CPU is to be fast enough for. */
export const SMALL = {
  ...QWEN3_0_6B,
  vocab_size: 2048,
  hidden_size: 192,
  num_hidden_layers: 5,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
  intermediate_size: 448,
  max_position_embeddings: 4096,
};

/** MLX's groups in Qwen/Qwen3-0.6B-MLX-4bit. */
const GROUP_SIZE = 64;

/** The matrices of a decoder, with their rows and columns, and its vectors. */
function tensorsOf(shape, names) {
  const { hidden_size: hidden, intermediate_size: intermediate, head_dim: dim } = shape;
  const query = shape.num_attention_heads * dim;
  const keyValue = shape.num_key_value_heads * dim;
  const matrices = [[names.embedding, shape.vocab_size, hidden]];
  const vectors = [[names.norm, hidden]];
  for (let layer = 0; layer < shape.num_hidden_layers; layer++) {
    const of = (name) => names.layer(layer, name);
    matrices.push(
      [of(names.q), query, hidden],
      [of(names.k), keyValue, hidden],
      [of(names.v), keyValue, hidden],
      [of(names.o), hidden, query],
      [of(names.gate), intermediate, hidden],
      [of(names.up), intermediate, hidden],
      [of(names.down), hidden, intermediate],
    );
    vectors.push(
      [of(names.attentionNorm), hidden],
      [of(names.mlpNorm), hidden],
      [of(names.qNorm), dim],
      [of(names.kNorm), dim],
    );
  }
  return { matrices, vectors };
}

const HUGGING_FACE = {
  embedding: "model.embed_tokens",
  norm: "model.norm",
  layer: (layer, name) => `model.layers.${layer}.${name}`,
  q: "self_attn.q_proj",
  k: "self_attn.k_proj",
  v: "self_attn.v_proj",
  o: "self_attn.o_proj",
  gate: "mlp.gate_proj",
  up: "mlp.up_proj",
  down: "mlp.down_proj",
  attentionNorm: "input_layernorm",
  mlpNorm: "post_attention_layernorm",
  qNorm: "self_attn.q_norm",
  kNorm: "self_attn.k_norm",
};

const LLAMA_CPP = {
  embedding: "token_embd",
  norm: "output_norm",
  layer: (layer, name) => `blk.${layer}.${name}`,
  q: "attn_q",
  k: "attn_k",
  v: "attn_v",
  o: "attn_output",
  gate: "ffn_gate",
  up: "ffn_up",
  down: "ffn_down",
  attentionNorm: "attn_norm",
  mlpNorm: "ffn_norm",
  qNorm: "attn_q_norm",
  kNorm: "attn_k_norm",
};

/** Random words, the same ones each time (xorshift). */
function randomWords() {
  let state = 2_463_534_242;
  return (count) => {
    const words = new Uint32Array(count);
    for (let index = 0; index < count; index++) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      words[index] = state;
    }
    return words;
  };
}

/** A float of which only the upper half of the bits is kept. */
function bf16(value) {
  return new Uint32Array(new Float32Array([value]).buffer)[0] >>> 16;
}

const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

/** Weights of about this size keep the activations of a layer as large as they come in. */
const scaleOf = (cols) => 1 / (4.6 * Math.sqrt(cols));

/** Writes config.json and model.safetensors in MLX's 4 bits, the head tied to the embedding. */
export async function writeCheckpoint(folder, shape) {
  mkdirSync(folder, { recursive: true });
  const config = {
    ...shape,
    architectures: ["Qwen3ForCausalLM"],
    model_type: "qwen3",
    hidden_act: "silu",
    attention_bias: false,
    tie_word_embeddings: true,
    torch_dtype: "bfloat16",
    quantization: { group_size: GROUP_SIZE, bits: 4 },
  };
  await writeFile(path.join(folder, "config.json"), JSON.stringify(config));
  const { matrices, vectors } = tensorsOf(shape, HUGGING_FACE);
  const words = randomWords();
  const tensors = [];
  for (const [name, rows, cols] of matrices) {
    const groups = cols / GROUP_SIZE;
    const filled = (value) => bytesOf(new Uint16Array(rows * groups).fill(bf16(value)));
    const scale = scaleOf(cols);
    tensors.push(
      [`${name}.weight`, "U32", [rows, cols / 8], (rows * cols) / 2, () => bytesOf(words((rows * cols) / 8))],
      [`${name}.scales`, "BF16", [rows, groups], 2 * rows * groups, () => filled(scale)],
      [`${name}.biases`, "BF16", [rows, groups], 2 * rows * groups, () => filled(-7.5 * scale)],
    );
  }
  for (const [name, length] of vectors) {
    tensors.push([`${name}.weight`, "BF16", [length], 2 * length, () => bytesOf(new Uint16Array(length).fill(bf16(1)))]);
  }
  const header = {};
  let end = 0;
  for (const [name, dtype, dimensions, byteCount] of tensors) {
    header[name] = { dtype, shape: dimensions, data_offsets: [end, end + byteCount] };
    end += byteCount;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  writeParts(path.join(folder, "model.safetensors"), [length, json, ...tensors.map((tensor) => tensor[4])]);
}

/** Writes the same shape as llama.cpp reads it, in its own 4 bits (Q4_0). */
export function writeGguf(file, shape) {
  const { matrices, vectors } = tensorsOf(shape, LLAMA_CPP);
  const words = randomWords();
  const Q4_0 = 2;
  const tensors = matrices.map(([name, rows, cols]) => [
    `${name}.weight`,
    [cols, rows],
    Q4_0,
    () => q4Blocks(words, (rows * cols) / 32, scaleOf(cols)),
    (rows * cols * 18) / 32,
  ]);
  const F32 = 0;
  for (const [name, length] of vectors) {
    tensors.push([`${name}.weight`, [length], F32, () => bytesOf(new Float32Array(length).fill(1)), 4 * length]);
  }
  const entries = metadata(shape);
  const text = (value) => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
  const parts = [Buffer.from("GGUF"), u32(3), u64(tensors.length), u64(entries.length)];
  for (const [key, kind, value] of entries) {
    parts.push(text(key), encoded(kind, value, text));
  }
  let offset = 0;
  for (const [name, dimensions, kind, , byteCount] of tensors) {
    parts.push(text(name), u32(dimensions.length), ...dimensions.map(u64), u32(kind), u64(offset));
    offset += aligned(byteCount);
  }
  const head = Buffer.concat(parts);
  const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc(aligned(bytes.length) - bytes.length)]);
  writeParts(file, [padded(head), ...tensors.map(([, , , make]) => () => padded(make()))]);
}

const u32 = (value) => bytesOf(new Uint32Array([value]));
const u64 = (value) => bytesOf(new BigUint64Array([BigInt(value)]));
const aligned = (length) => Math.ceil(length / 32) * 32;

/** A value of GGUF with the number of its type before it. */
function encoded(kind, value, text) {
  switch (kind) {
    case "u32":
      return Buffer.concat([u32(4), u32(value)]);
    case "f32":
      return Buffer.concat([u32(6), bytesOf(new Float32Array([value]))]);
    case "text":
      return Buffer.concat([u32(8), text(value)]);
    case "texts":
      return Buffer.concat([u32(9), u32(8), u64(value.length), ...value.map(text)]);
    case "i32s":
      return Buffer.concat([u32(9), u32(5), u64(value.length), bytesOf(new Int32Array(value))]);
    default:
      throw new Error(`there is no ${kind}`);
  }
}

/** What llama.cpp asks of a model, with a vocabulary of bytes and of tokens that no text has. */
function metadata(shape) {
  const tokens = Array.from({ length: shape.vocab_size }, (_, token) => byteTokens()[token] ?? `<t${token}>`);
  const first = byteTokens().length;
  tokens[first] = "ab";
  const NORMAL = 1;
  const UNUSED = 5;
  return [
    ["general.architecture", "text", "qwen3"],
    ["general.name", "text", "random"],
    ["qwen3.block_count", "u32", shape.num_hidden_layers],
    ["qwen3.context_length", "u32", shape.max_position_embeddings],
    ["qwen3.embedding_length", "u32", shape.hidden_size],
    ["qwen3.feed_forward_length", "u32", shape.intermediate_size],
    ["qwen3.attention.head_count", "u32", shape.num_attention_heads],
    ["qwen3.attention.head_count_kv", "u32", shape.num_key_value_heads],
    ["qwen3.attention.key_length", "u32", shape.head_dim],
    ["qwen3.attention.value_length", "u32", shape.head_dim],
    ["qwen3.attention.layer_norm_rms_epsilon", "f32", shape.rms_norm_eps],
    ["qwen3.rope.freq_base", "f32", shape.rope_theta],
    ["tokenizer.ggml.model", "text", "gpt2"],
    ["tokenizer.ggml.pre", "text", "qwen2"],
    ["tokenizer.ggml.tokens", "texts", tokens],
    ["tokenizer.ggml.token_type", "i32s", tokens.map((_, token) => (token <= first ? NORMAL : UNUSED))],
    ["tokenizer.ggml.merges", "texts", ["a b"]],
    ["tokenizer.ggml.eos_token_id", "u32", shape.vocab_size - 1],
  ];
}

let letters;
/** The letters that stand for single bytes in a vocabulary of this kind. */
function byteTokens() {
  if (!letters) {
    const isPrintable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
    let next = 256;
    letters = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : next++));
  }
  return letters;
}

/** Blocks of 32 weights: a scale in half precision and 16 random bytes. */
function q4Blocks(words, count, scale) {
  const bytes = bytesOf(words(Math.ceil((18 * count) / 4))).subarray(0, 18 * count);
  // Powers of two are the same in half precision but for where the exponent stands.
  const half = (Math.round(Math.log2(scale)) + 15) << 10;
  for (let block = 0; block < count; block++) {
    bytes[18 * block] = half & 0xff;
    bytes[18 * block + 1] = half >> 8;
  }
  return bytes;
}

/** Writes one part after the other; those that are functions are made when it is their turn. */
function writeParts(file, parts) {
  const descriptor = openSync(file, "w");
  try {
    for (const part of parts) {
      const bytes = typeof part === "function" ? part() : part;
      for (let written = 0; written < bytes.length; ) {
        written += writeSync(descriptor, bytes, written);
      }
    }
  } finally {
    closeSync(descriptor);
  }
}
