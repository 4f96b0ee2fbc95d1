//! The decoder's kernels in WGSL.
//!
//! The text of a kernel is generated: sizes are constants and inner loops are
//! unrolled, because the compilers below (in particular those of adapters that
//! run on the CPU) keep an array that is indexed by a variable in memory.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::Heads;
use crate::matrix::{Format, GroupFloat};

/// How a product with few tokens is spread over threads.
///
/// Several lanes share a row and add up at the end. One lane a row reads each
/// row from front to back, what an adapter that is a CPU wants; many lanes read
/// side by side, what a GPU's memory wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct MatvecVariant {
    /// Lanes that share a row, a power of two.
    pub(crate) lanes: u32,
    /// Rows of one lane, which share the loads of the activations.
    pub(crate) rows: u32,
    /// Threads of a workgroup.
    pub(crate) threads: u32,
    /// Whether the lanes add up by subgroup shuffles, not through memory.
    pub(crate) subgroups: bool,
}

/// How a product with many tokens is spread over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum TileVariant {
    /// Each thread computes a tile by itself: no barriers.
    Registers {
        /// Rows of a thread's tile.
        rows: u32,
        /// Tokens of a thread's tile.
        tokens: u32,
        /// Threads of a workgroup.
        threads: u32,
    },
    /// A workgroup of 256 threads unpacks a tile into shared memory first.
    Shared {
        /// Rows and tokens of one thread; the tile is sixteen times as wide.
        side: u32,
    },
}

/// One product of activations with a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    pub(crate) format: Format,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    /// Width of an output row, which may hold other matrices' products too.
    pub(crate) stride: u32,
    /// Where in it this product begins.
    pub(crate) offset: u32,
    pub(crate) bias: bool,
    /// Whether the product is added to what is there.
    pub(crate) add: bool,
}

/// A kernel, by everything that its text depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    Embed {
        format: Format,
        cols: u32,
    },
    RmsNorm {
        width: u32,
        eps_bits: u32,
    },
    Matvec {
        product: Product,
        variant: MatvecVariant,
    },
    Tile {
        product: Product,
        variant: TileVariant,
    },
    Rotate {
        heads: Heads,
        norm_eps_bits: Option<u32>,
    },
    Attend {
        heads: Heads,
    },
    Gate {
        width: u32,
    },
    Copy,
    Penalize,
    /// The best of each slice of the logits.
    TopOfSlice {
        count: u32,
        slice: u32,
        masked: bool,
    },
    /// The best of the slices' best.
    TopOfSlices {
        count: u32,
        slices: u32,
    },
}

/// Threads of a workgroup where a row is reduced.
pub(crate) const REDUCTION_THREADS: u32 = 64;

/// Threads of a workgroup that searches a slice of the logits.
pub(crate) const SEARCH_THREADS: u32 = 128;

impl Kernel {
    /// The workgroup's size, along x and y.
    pub(crate) fn workgroup(&self) -> (u32, u32) {
        match self {
            Self::Matvec { variant, .. } => (variant.threads, 1),
            Self::Tile {
                variant: TileVariant::Registers { threads, .. },
                ..
            } => (*threads, 1),
            Self::Tile {
                variant: TileVariant::Shared { .. },
                ..
            } => (16, 16),
            Self::TopOfSlice { .. } | Self::TopOfSlices { .. } => (SEARCH_THREADS, 1),
            _ => (REDUCTION_THREADS, 1),
        }
    }

    /// The kernel's text. Its entry point is `main`.
    pub(crate) fn source(&self) -> String {
        let (x, y) = self.workgroup();
        let mut text = String::new();
        let subgroups = matches!(
            self,
            Self::Matvec {
                variant: MatvecVariant {
                    subgroups: true,
                    ..
                },
                ..
            }
        );
        // A browser asks for the directive; the native compiler, which needs
        // none, refuses it.
        if subgroups && cfg!(target_family = "wasm") {
            text.push_str("enable subgroups;\n");
        }
        let _ = writeln!(text, "const THREADS = {}u;", x * y);
        let main = format!("@compute @workgroup_size({x}, {y})\nfn main(");
        match self {
            Self::Embed { format, cols } => embed(&mut text, *format, *cols, &main),
            Self::RmsNorm { width, eps_bits } => {
                rms_norm(&mut text, *width, f32::from_bits(*eps_bits), &main);
            }
            Self::Matvec { product, variant } => matvec(&mut text, product, *variant, &main),
            Self::Tile {
                product,
                variant: TileVariant::Registers { rows, tokens, .. },
            } => {
                register_tile(&mut text, product, *rows, *tokens, &main);
            }
            Self::Tile {
                product,
                variant: TileVariant::Shared { side },
            } => {
                shared_tile(&mut text, product, *side, &main);
            }
            Self::Rotate {
                heads,
                norm_eps_bits,
            } => {
                rotate(&mut text, *heads, norm_eps_bits.map(f32::from_bits), &main);
            }
            Self::Attend { heads } => attend(&mut text, *heads, &main),
            Self::Gate { width } => gate(&mut text, *width, &main),
            Self::Copy => copy(&mut text, &main),
            Self::Penalize => penalize(&mut text, &main),
            Self::TopOfSlice {
                count,
                slice,
                masked,
            } => {
                top_of_slice(&mut text, *count, *slice, *masked, &main);
            }
            Self::TopOfSlices { count, slices } => {
                top_of_slices(&mut text, *count, *slices, &main);
            }
        }
        text
    }
}

/// Declares the buffers in the order of the bindings.
///
/// A pipeline's layout follows from what its kernel uses, so that a kernel
/// declares only what it reads: see [`declare_params`].
fn declare(text: &mut String, buffers: &[(&str, &str, bool)]) {
    for (binding, (name, element, written)) in buffers.iter().enumerate() {
        let access = if *written { "read_write" } else { "read" };
        let _ = writeln!(
            text,
            "@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;"
        );
    }
}

/// Declares the launch's parameters, behind so many buffers.
fn declare_params(text: &mut String, buffers: usize) {
    let _ = writeln!(
        text,
        "@group(0) @binding({buffers}) var<uniform> params: vec4<u32>;"
    );
}

/// Words that a kernel loads at a time from a matrix of this format.
fn word_vector(format: Format) -> &'static str {
    match format {
        Format::F32 | Format::Packed { .. } => "vec4<u32>",
        Format::F16 | Format::Bf16 => "vec2<u32>",
    }
}

/// `halves(word)`: the two floats of a word.
fn declare_halves(text: &mut String, is_bf16: bool) {
    text.push_str(if is_bf16 {
        "fn halves(word: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(vec2<u32>(word << 16u, word & 0xffff0000u));
}
"
    } else {
        "fn halves(word: u32) -> vec2<f32> { return unpack2x16float(word); }
"
    });
}

/// `group_floats(index)`: scale and bias of a group.
fn declare_groups(text: &mut String, float: GroupFloat) {
    match float {
        GroupFloat::F32 => text.push_str(
            "fn group_floats(index: u32) -> vec2<f32> { return bitcast<vec2<f32>>(groups[index]); }
",
        ),
        GroupFloat::F16 | GroupFloat::Bf16 => {
            declare_halves(text, float == GroupFloat::Bf16);
            text.push_str(
                "fn group_floats(index: u32) -> vec2<f32> { return halves(groups[index]); }
",
            );
        }
    }
}

fn group_element(float: GroupFloat) -> &'static str {
    match float {
        GroupFloat::F32 => "vec2<u32>",
        GroupFloat::F16 | GroupFloat::Bf16 => "u32",
    }
}

/// Declares what unpacks the format: `group_floats` for a packed one, `four`
/// for a float one.
fn declare_format(text: &mut String, format: Format) {
    match format {
        Format::F32 => text.push_str(
            "fn four(index: u32) -> vec4<f32> { return bitcast<vec4<f32>>(words[index]); }
",
        ),
        Format::F16 | Format::Bf16 => {
            declare_halves(text, format == Format::Bf16);
            text.push_str(
                "fn four(index: u32) -> vec4<f32> {
    let pair = words[index];
    return vec4<f32>(halves(pair.x), halves(pair.y));
}
",
            );
        }
        Format::Packed { groups, .. } => declare_groups(text, groups),
    }
}

/// Columns that are unpacked at a time: of a packed format those of one or two
/// vectors of words, of a float format those of one vector of floats.
pub(crate) fn block_cols(format: Format) -> u32 {
    match format {
        Format::Packed { .. } => 32,
        _ => 4,
    }
}

/// Vectors of words of one block.
fn block_vectors(format: Format) -> u32 {
    match format {
        Format::Packed { bits, .. } => bits / 4,
        _ => 1,
    }
}

/// The expression for one of a block's eight vectors.
///
/// A word is unpacked by masks: what stays at a higher bit counts too much by a
/// power of two. Either the activations make that good, which loses nothing, or
/// the vector is multiplied by the [`factors`].
fn packed_vector(bits: u32, index: u32, words: &str) -> String {
    let word = if bits == 4 { index / 2 } else { index };
    let element = ["x", "y", "z", "w"][word as usize % 4];
    let source = format!("{words}{}.{element}", word / 4);
    let integers = if bits == 4 {
        let source = if index.is_multiple_of(2) {
            source
        } else {
            format!("({source} >> 16u)")
        };
        format!("vec4<u32>({source}) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u)")
    } else {
        format!(
            "vec4<u32>({source} & 0xffu, {source} & 0xff00u, {source} & 0xff0000u, {source} >> 24u)"
        )
    };
    format!("vec4<f32>(bitcast<vec4<i32>>({integers}))")
}

/// Lines that unpack a block of a packed format into vectors `q0..q8`.
fn unpack_block(text: &mut String, bits: u32, words: &str, is_scaled: bool) {
    for index in 0..8 {
        let vector = packed_vector(bits, index, words);
        let factors = if is_scaled {
            String::new()
        } else {
            format!(" * {}", factors(bits))
        };
        let _ = writeln!(text, "let q{index} = {vector}{factors};");
    }
}

const NIBBLE_FACTORS: &str = "vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625)";
const BYTE_FACTORS: &str = "vec4<f32>(1.0, 0.00390625, 0.0000152587890625, 1.0)";

fn factors(bits: u32) -> &'static str {
    if bits == 4 {
        NIBBLE_FACTORS
    } else {
        BYTE_FACTORS
    }
}

fn embed(text: &mut String, format: Format, cols: u32, main: &str) {
    let mut buffers = vec![
        ("tokens", "u32", false),
        ("words", word_vector(format), false),
    ];
    if let Format::Packed { groups, .. } = format {
        buffers.push(("groups", group_element(groups), false));
    }
    buffers.push(("out", "vec4<f32>", true));
    declare(text, &buffers);
    declare_format(text, format);
    let block = block_cols(format);
    let _ = write!(
        text,
        "{main}@builtin(global_invocation_id) id: vec3<u32>) {{
    let block = id.x;
    if (block >= {blocks}u) {{ return; }}
    let src = tokens[id.y] * {blocks}u + block;
    let dst = (id.y * {blocks}u + block) * {vectors}u;
",
        blocks = cols / block,
        vectors = block / 4,
    );
    match format {
        Format::Packed {
            bits, group_size, ..
        } => {
            let vectors = block_vectors(format);
            for vector in 0..vectors {
                let _ = writeln!(
                    text,
                    "let words{vector} = words[src * {vectors}u + {vector}u];"
                );
            }
            let _ = writeln!(
                text,
                "let group = group_floats(src / {}u);",
                group_size / block
            );
            unpack_block(text, bits, "words", false);
            for index in 0..8 {
                let _ = writeln!(text, "out[dst + {index}u] = q{index} * group.x + group.y;");
            }
        }
        _ => text.push_str("out[dst] = four(src);\n"),
    }
    text.push_str("}\n");
}

fn rms_norm(text: &mut String, width: u32, eps: f32, main: &str) {
    declare(
        text,
        &[
            ("x", "vec4<f32>", false),
            ("weight", "vec4<f32>", false),
            ("out", "vec4<f32>", true),
        ],
    );
    declare_params(text, 3);
    let _ = write!(
        text,
        "var<workgroup> partial: array<f32, THREADS>;
{main}@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let src = (params.x + group.x) * {vectors}u;
    let dst = group.x * {vectors}u;
    var sum = 0.0;
    for (var i = lane; i < {vectors}u; i += THREADS) {{
        let value = x[src + i];
        sum += dot(value, value);
    }}
    partial[lane] = sum;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {{
        if (lane < half) {{ partial[lane] += partial[lane + half]; }}
        workgroupBarrier();
    }}
    let root = sqrt(partial[0] / {width}.0 + {eps:e});
    for (var i = lane; i < {vectors}u; i += THREADS) {{
        out[dst + i] = x[src + i] / root * weight[i];
    }}
}}
",
        vectors = width / 4,
    );
}

fn declare_product(text: &mut String, product: &Product, has_params: bool) {
    let mut buffers = vec![
        ("x", "vec4<f32>", false),
        ("words", word_vector(product.format), false),
    ];
    if let Format::Packed { groups, .. } = product.format {
        buffers.push(("groups", group_element(groups), false));
    }
    if product.bias {
        buffers.push(("bias", "f32", false));
    }
    buffers.push(("out", "f32", true));
    declare(text, &buffers);
    if has_params {
        declare_params(text, buffers.len());
    }
    declare_format(text, product.format);
    let _ = write!(
        text,
        "fn put(token: u32, row: u32, value: f32) {{
    if (row < {rows}u) {{
        let slot = token * {stride}u + {offset}u + row;
        out[slot] = value{bias}{add};
    }}
}}
",
        rows = product.rows,
        stride = product.stride,
        offset = product.offset,
        bias = if product.bias {
            format!(" + bias[{}u + row]", product.offset)
        } else {
            String::new()
        },
        add = if product.add { " + out[slot]" } else { "" },
    );
}

/// Rows whose last block lies beyond the matrix read its last row instead.
fn row_index(product: &Product, row: &str) -> String {
    format!("min({row}, {}u)", product.rows - 1)
}

fn matvec(text: &mut String, product: &Product, variant: MatvecVariant, main: &str) {
    declare_product(text, product, false);
    let MatvecVariant {
        lanes,
        rows,
        threads,
        subgroups,
    } = variant;
    let block = block_cols(product.format);
    let blocks = product.cols / block;
    let reduce_in_memory = lanes > 1 && !subgroups;
    if reduce_in_memory {
        let _ = writeln!(
            text,
            "var<workgroup> partial: array<f32, {}>;",
            threads * rows
        );
    }
    let _ = write!(
        text,
        "{main}@builtin(workgroup_id) group: vec3<u32>, \
         @builtin(local_invocation_index) index: u32) {{
    let lane = index % {lanes}u;
    let row = (group.x * {per_group}u + index / {lanes}u) * {rows}u;
    let token = group.y;
    let src = token * {vectors}u;
",
        per_group = threads / lanes,
        vectors = product.cols / 4,
    );
    for r in 0..rows {
        let clamped = row_index(product, &format!("row + {r}u"));
        let _ = writeln!(text, "let start{r} = {clamped} * {blocks}u;");
        let _ = writeln!(text, "var total{r} = vec4<f32>();");
    }
    if let Format::Packed {
        bits, group_size, ..
    } = product.format
    {
        // One lane walks whole groups; several take block after block in turn.
        let per_step = if lanes == 1 { group_size / block } else { 1 };
        packed_rows(text, product, bits, (lanes, rows), per_step);
    } else {
        let _ = writeln!(text, "for (var b = lane; b < {blocks}u; b += {lanes}u) {{");
        let _ = writeln!(text, "let x0 = x[src + b];");
        for r in 0..rows {
            let _ = writeln!(text, "total{r} = fma(four(start{r} + b), x0, total{r});");
        }
        text.push_str("}\n");
    }
    for r in 0..rows {
        let _ = writeln!(text, "var sum{r} = dot(total{r}, vec4<f32>(1.0));");
    }
    if subgroups {
        let mut distance = lanes / 2;
        while distance > 0 {
            for r in 0..rows {
                let _ = writeln!(text, "sum{r} += subgroupShuffleXor(sum{r}, {distance}u);");
            }
            distance /= 2;
        }
    } else if reduce_in_memory {
        for r in 0..rows {
            let _ = writeln!(text, "partial[index + {}u] = sum{r};", r * threads);
        }
        text.push_str("workgroupBarrier();\n");
        let mut distance = lanes / 2;
        while distance > 0 {
            let _ = writeln!(text, "if (lane < {distance}u) {{");
            for r in 0..rows {
                let _ = writeln!(
                    text,
                    "sum{r} += partial[index + {}u]; partial[index + {}u] = sum{r};",
                    r * threads + distance,
                    r * threads,
                );
            }
            text.push_str("}\nworkgroupBarrier();\n");
            distance /= 2;
        }
    }
    let _ = writeln!(text, "if (lane == 0u) {{");
    for r in 0..rows {
        let _ = writeln!(text, "put(token, row + {r}u, sum{r});");
    }
    text.push_str("}\n}\n");
}

/// The loop of a product over the blocks of packed rows.
fn packed_rows(
    text: &mut String,
    product: &Product,
    bits: u32,
    (lanes, rows): (u32, u32),
    per_step: u32,
) {
    let Format::Packed { group_size, .. } = product.format else {
        return;
    };
    let block = block_cols(product.format);
    let blocks = product.cols / block;
    let vectors = block_vectors(product.format);
    let blocks_per_group = group_size / block;
    let factors = factors(bits);
    let _ = writeln!(
        text,
        "for (var step = lane; step < {}u; step += {lanes}u) {{",
        blocks / per_step
    );
    let _ = writeln!(text, "var x_sum = vec4<f32>();");
    for r in 0..rows {
        let _ = writeln!(text, "var part{r} = vec4<f32>();");
    }
    for b in 0..per_step {
        let _ = writeln!(text, "{{ let b = step * {per_step}u + {b}u;");
        for index in 0..8 {
            let _ = writeln!(text, "var x{index} = x[src + b * 8u + {index}u];");
        }
        text.push_str("x_sum += ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7));\n");
        for index in 0..8 {
            let _ = writeln!(text, "x{index} *= {factors};");
        }
        for r in 0..rows {
            text.push('{');
            for vector in 0..vectors {
                let _ = writeln!(
                    text,
                    "let words{vector} = words[(start{r} + b) * {vectors}u + {vector}u];"
                );
            }
            unpack_block(text, bits, "words", true);
            for index in 0..8 {
                let _ = writeln!(text, "part{r} = fma(q{index}, x{index}, part{r});");
            }
            text.push('}');
        }
        text.push_str("}\n");
    }
    for r in 0..rows {
        let _ = writeln!(
            text,
            "{{ let group = group_floats((start{r} + step * {per_step}u) / {blocks_per_group}u);
total{r} = fma(part{r}, vec4<f32>(group.x), fma(x_sum, vec4<f32>(group.y), total{r})); }}"
        );
    }
    text.push_str("}\n");
}

fn register_tile(text: &mut String, product: &Product, rows: u32, tokens: u32, main: &str) {
    declare_product(text, product, true);
    let block = block_cols(product.format);
    let blocks = product.cols / block;
    let vectors = product.cols / 4;
    let _ = write!(
        text,
        "{main}@builtin(global_invocation_id) id: vec3<u32>) {{
    let row = id.x * {rows}u;
    if (row >= {all_rows}u) {{ return; }}
    let token = id.y * {tokens}u;
    let last = params.x - 1u;
",
        all_rows = product.rows,
    );
    for r in 0..rows {
        let clamped = row_index(product, &format!("row + {r}u"));
        let _ = writeln!(text, "let start{r} = {clamped} * {blocks}u;");
    }
    for t in 0..tokens {
        let _ = writeln!(text, "let src{t} = min(token + {t}u, last) * {vectors}u;");
        for r in 0..rows {
            let _ = writeln!(text, "var sum{r}_{t} = 0.0;");
        }
    }
    let _ = writeln!(text, "for (var b = 0u; b < {blocks}u; b++) {{");
    let multiply = |text: &mut String, index: u32, weights: &str| {
        for t in 0..tokens {
            let _ = writeln!(
                text,
                "{{ let value = x[src{t} + b * {}u + {index}u];",
                block / 4
            );
            for r in 0..rows {
                let _ = writeln!(text, "sum{r}_{t} += dot({weights}{r}, value);");
            }
            text.push_str("}\n");
        }
    };
    if let Format::Packed {
        bits, group_size, ..
    } = product.format
    {
        let word_vectors = block_vectors(product.format);
        for r in 0..rows {
            let _ = writeln!(
                text,
                "let group{r} = group_floats((start{r} + b) / {}u);",
                group_size / block
            );
            for vector in 0..word_vectors {
                let _ = writeln!(
                    text,
                    "let words{r}_{vector} = words[(start{r} + b) * {word_vectors}u + {vector}u];"
                );
            }
        }
        for index in 0..8 {
            text.push_str("{\n");
            for r in 0..rows {
                let vector = packed_vector(bits, index, &format!("words{r}_"));
                let _ = writeln!(
                    text,
                    "let w{r} = {vector} * (group{r}.x * {}) + group{r}.y;",
                    factors(bits)
                );
            }
            multiply(text, index, "w");
            text.push_str("}\n");
        }
    } else {
        for r in 0..rows {
            let _ = writeln!(text, "let w{r} = four(start{r} + b);");
        }
        multiply(text, 0, "w");
    }
    text.push_str("}\n");
    for t in 0..tokens {
        let _ = writeln!(text, "if (token + {t}u <= last) {{");
        for r in 0..rows {
            let _ = writeln!(text, "put(token + {t}u, row + {r}u, sum{r}_{t});");
        }
        text.push_str("}\n");
    }
    text.push_str("}\n");
}

fn shared_tile(text: &mut String, product: &Product, side: u32, main: &str) {
    declare_product(text, product, true);
    // Columns of one step. A row of the tiles is padded by one vector, so that
    // the sixteen rows that are read at once lie in different banks.
    let depth = 32;
    let vectors = depth / 4;
    let tile = 16 * side;
    let pitch = vectors + 1;
    let all_vectors = product.cols / 4;
    let _ = write!(
        text,
        "var<workgroup> weights: array<vec4<f32>, {size}>;
var<workgroup> inputs: array<vec4<f32>, {size}>;
{main}@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>, \
         @builtin(local_invocation_index) index: u32) {{
    let first_row = group.x * {tile}u;
    let first_token = group.y * {tile}u;
    let last = params.x - 1u;
",
        size = tile * pitch,
    );
    for r in 0..side {
        for t in 0..side {
            let _ = writeln!(text, "var sum{r}_{t} = 0.0;");
        }
    }
    let _ = write!(
        text,
        "for (var col = 0u; col < {all_vectors}u; col += {vectors}u) {{
    for (var i = index; i < {inputs}u; i += 256u) {{
        let token = min(first_token + i / {vectors}u, last);
        let c = col + i % {vectors}u;
        var value = vec4<f32>();
        if (c < {all_vectors}u) {{ value = x[token * {all_vectors}u + c]; }}
        inputs[i / {vectors}u * {pitch}u + i % {vectors}u] = value;
    }}
",
        inputs = tile * vectors,
    );
    load_weights(text, product, tile, vectors);
    text.push_str("    workgroupBarrier();\n");
    let _ = writeln!(text, "    for (var c = 0u; c < {vectors}u; c++) {{");
    for r in 0..side {
        let _ = writeln!(
            text,
            "let w{r} = weights[(local.x + {}u) * {pitch}u + c];",
            16 * r
        );
    }
    for t in 0..side {
        let _ = writeln!(
            text,
            "{{ let value = inputs[(local.y + {}u) * {pitch}u + c];",
            16 * t
        );
        for r in 0..side {
            let _ = writeln!(text, "sum{r}_{t} += dot(w{r}, value);");
        }
        text.push_str("}\n");
    }
    text.push_str("}\n    workgroupBarrier();\n}\n");
    for t in 0..side {
        let _ = writeln!(text, "{{ let token = first_token + local.y + {}u;", 16 * t);
        text.push_str("if (token <= last) {\n");
        for r in 0..side {
            let _ = writeln!(
                text,
                "put(token, first_row + local.x + {}u, sum{r}_{t});",
                16 * r
            );
        }
        text.push_str("} }\n");
    }
    text.push_str("}\n");
}

/// Fills the tile of weights, whose rows have `vectors` vectors.
fn load_weights(text: &mut String, product: &Product, tile: u32, vectors: u32) {
    let pitch = vectors + 1;
    let all_vectors = product.cols / 4;
    if let Format::Packed {
        bits, group_size, ..
    } = product.format
    {
        let word_vectors = block_vectors(product.format);
        let block = block_cols(product.format);
        let row = row_index(product, "first_row + i");
        let _ = write!(
            text,
            "    for (var i = index; i < {tile}u; i += 256u) {{
        let block = {row} * {blocks}u + col / 8u;
        let group = group_floats(block / {per_group}u);
",
            blocks = product.cols / block,
            per_group = group_size / block,
        );
        for vector in 0..word_vectors {
            let _ = writeln!(
                text,
                "let words{vector} = words[block * {word_vectors}u + {vector}u];"
            );
        }
        unpack_block(text, bits, "words", false);
        for index in 0..8 {
            let _ = writeln!(
                text,
                "weights[i * {pitch}u + {index}u] = q{index} * group.x + group.y;"
            );
        }
        text.push_str("    }\n");
    } else {
        let row = row_index(product, &format!("first_row + i / {vectors}u"));
        let _ = write!(
            text,
            "    for (var i = index; i < {count}u; i += 256u) {{
        let c = col + i % {vectors}u;
        var value = vec4<f32>();
        if (c < {all_vectors}u) {{ value = four({row} * {all_vectors}u + c); }}
        weights[i / {vectors}u * {pitch}u + i % {vectors}u] = value;
    }}
",
            count = tile * vectors,
        );
    }
}

fn rotate(text: &mut String, heads: Heads, norm_eps: Option<f32>, main: &str) {
    let mut buffers = vec![
        ("fused", "f32", true),
        ("rotations", "vec2<f32>", false),
        ("keys", "f32", true),
        ("values", "f32", true),
    ];
    if norm_eps.is_some() {
        buffers.extend([("query_norm", "f32", false), ("key_norm", "f32", false)]);
    }
    declare(text, &buffers);
    declare_params(text, buffers.len());
    let half = heads.dim / 2;
    let _ = write!(
        text,
        "var<workgroup> partial: array<f32, THREADS>;
{main}@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let head = group.x;
    let start = group.y * {fused}u + head * {dim}u;
    let position = params.y + group.y;
    if (head >= {rotated}u) {{
        let dst = position * {kv_size}u + (head - {rotated}u) * {dim}u;
        for (var i = lane; i < {dim}u; i += THREADS) {{ values[dst + i] = fused[start + i]; }}
        return;
    }}
",
        fused = heads.fused_size(),
        dim = heads.dim,
        rotated = heads.query + heads.key_value,
        kv_size = heads.key_value_size(),
    );
    if let Some(eps) = norm_eps {
        let _ = write!(
            text,
            "    var sum = 0.0;
    for (var i = lane; i < {dim}u; i += THREADS) {{
        let value = fused[start + i];
        sum += value * value;
    }}
    partial[lane] = sum;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {{
        if (lane < half) {{ partial[lane] += partial[lane + half]; }}
        workgroupBarrier();
    }}
    let root = sqrt(partial[0] / {dim}.0 + {eps:e});
",
            dim = heads.dim,
        );
    }
    let _ = write!(
        text,
        "    for (var i = lane; i < {half}u; i += THREADS) {{
        var a = fused[start + i];
        var b = fused[start + i + {half}u];
"
    );
    if norm_eps.is_some() {
        let _ = write!(
            text,
            "        if (head < {queries}u) {{
            a = a / root * query_norm[i];
            b = b / root * query_norm[i + {half}u];
        }} else {{
            a = a / root * key_norm[i];
            b = b / root * key_norm[i + {half}u];
        }}
",
            queries = heads.query,
        );
    }
    let _ = write!(
        text,
        "        let rotation = rotations[position * {half}u + i];
        let first = a * rotation.x - b * rotation.y;
        let second = b * rotation.x + a * rotation.y;
        if (head < {queries}u) {{
            fused[start + i] = first;
            fused[start + i + {half}u] = second;
        }} else {{
            let dst = position * {kv_size}u + (head - {queries}u) * {dim}u + i;
            keys[dst] = first;
            keys[dst + {half}u] = second;
        }}
    }}
}}
",
        queries = heads.query,
        kv_size = heads.key_value_size(),
        dim = heads.dim,
    );
}

/// One workgroup for each query: the positions pass by in chunks of one a
/// thread, and the weights of past chunks shrink when a larger score appears.
fn attend(text: &mut String, heads: Heads, main: &str) {
    declare(
        text,
        &[
            ("fused", "vec4<f32>", false),
            ("keys", "vec4<f32>", false),
            ("values", "vec4<f32>", false),
            ("out", "vec4<f32>", true),
        ],
    );
    declare_params(text, 4);
    let vectors = heads.dim / 4;
    // A head has at most 64 vectors, so each thread keeps one of the output.
    let _ = write!(
        text,
        "var<workgroup> query: array<vec4<f32>, {vectors}>;
var<workgroup> partial: array<f32, THREADS>;
var<workgroup> weights: array<f32, THREADS>;
{main}@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let head = group.x;
    let src = group.y * {fused}u + head * {vectors}u;
    let of_head = head / {sharing}u * {vectors}u;
    let seen = params.y + group.y + 1u;
    if (lane < {vectors}u) {{ query[lane] = fused[src + lane] * {scale:e}; }}
    workgroupBarrier();
    var largest = -3.0e38;
    var total = 0.0;
    var sum = vec4<f32>();
    for (var first = 0u; first < seen; first += THREADS) {{
        let position = first + lane;
        var score = -3.0e38;
        if (position < seen) {{
            let start = position * {kv_vectors}u + of_head;
            var products = vec4<f32>();
            for (var i = 0u; i < {vectors}u; i++) {{
                products = fma(query[i], keys[start + i], products);
            }}
            score = dot(products, vec4<f32>(1.0));
        }}
        partial[lane] = score;
        workgroupBarrier();
        for (var half = THREADS / 2u; half > 0u; half /= 2u) {{
            if (lane < half) {{ partial[lane] = max(partial[lane], partial[lane + half]); }}
            workgroupBarrier();
        }}
        let larger = max(largest, partial[0]);
        let shrink = exp(largest - larger);
        largest = larger;
        let weight = select(0.0, exp(score - largest), position < seen);
        workgroupBarrier();
        weights[lane] = weight;
        partial[lane] = weight;
        workgroupBarrier();
        for (var half = THREADS / 2u; half > 0u; half /= 2u) {{
            if (lane < half) {{ partial[lane] += partial[lane + half]; }}
            workgroupBarrier();
        }}
        total = total * shrink + partial[0];
        if (lane < {vectors}u) {{
            sum *= shrink;
            let count = min(THREADS, seen - first);
            for (var i = 0u; i < count; i++) {{
                sum = fma(vec4<f32>(weights[i]), values[(first + i) * {kv_vectors}u + of_head + lane], sum);
            }}
        }}
        workgroupBarrier();
    }}
    if (lane < {vectors}u) {{
        out[(group.y * {heads}u + head) * {vectors}u + lane] = sum / total;
    }}
}}
",
        fused = heads.fused_size() / 4,
        sharing = heads.query / heads.key_value,
        kv_vectors = heads.key_value_size() / 4,
        heads = heads.query,
        scale = attention_scale(heads),
    );
}

fn attention_scale(heads: Heads) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a head has few dimensions")]
    let dim = heads.dim as f32;
    dim.sqrt().recip()
}

fn gate(text: &mut String, width: u32, main: &str) {
    declare(
        text,
        &[("gate_up", "vec4<f32>", false), ("out", "vec4<f32>", true)],
    );
    let _ = write!(
        text,
        "{main}@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x >= {vectors}u) {{ return; }}
    let gate = gate_up[id.y * {both}u + id.x];
    let up = gate_up[id.y * {both}u + {vectors}u + id.x];
    out[id.y * {vectors}u + id.x] = gate / (1.0 + exp(-gate)) * up;
}}
",
        vectors = width / 4,
        both = width / 2,
    );
}

fn copy(text: &mut String, main: &str) {
    declare(
        text,
        &[("src", "vec4<f32>", false), ("dst", "vec4<f32>", true)],
    );
    declare_params(text, 2);
    let _ = write!(
        text,
        "{main}@builtin(global_invocation_id) id: vec3<u32>, \
         @builtin(num_workgroups) groups: vec3<u32>) {{
    for (var i = id.x; i < params.x; i += groups.x * THREADS) {{ dst[i] = src[i]; }}
}}
"
    );
}

fn penalize(text: &mut String, main: &str) {
    declare(text, &[("tokens", "u32", false), ("logits", "f32", true)]);
    declare_params(text, 2);
    let _ = write!(
        text,
        "{main}@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x >= params.x) {{ return; }}
    let token = tokens[id.x];
    let penalty = bitcast<f32>(params.y);
    let logit = logits[token];
    logits[token] = select(logit * penalty, logit / penalty, logit > 0.0);
}}
"
    );
}

/// Reduces `value` and `token` over the workgroup into the best of both: the
/// larger value, of equal ones the smaller token.
const REDUCE_BEST: &str = "
fn best(lane: u32, value: f32, token: u32) {
    best_value[lane] = value;
    best_token[lane] = token;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (lane < half) {
            let value = best_value[lane + half];
            let token = best_token[lane + half];
            if (value > best_value[lane] || (value == best_value[lane] && token < best_token[lane])) {
                best_value[lane] = value;
                best_token[lane] = token;
            }
        }
        workgroupBarrier();
    }
}
var<workgroup> best_value: array<f32, THREADS>;
var<workgroup> best_token: array<u32, THREADS>;
";

/// What no logit is below: it stands for nothing.
const NOTHING: &str = "-3.4e38";

/// Token that stands for nothing, and for a logit that is no number.
pub(crate) const NO_TOKEN: u32 = u32::MAX;
pub(crate) const NOT_A_NUMBER: u32 = u32::MAX - 1;

fn top_of_slice(text: &mut String, count: u32, slice: u32, masked: bool, main: &str) {
    let mut buffers = vec![("logits", "f32", false)];
    if masked {
        buffers.push(("allowed", "u32", false));
    }
    buffers.push(("out", "vec2<u32>", true));
    declare(text, &buffers);
    declare_params(text, buffers.len());
    text.push_str(REDUCE_BEST);
    let allowed = if masked {
        " && ((allowed[token / 32u] >> (token % 32u)) & 1u) == 1u"
    } else {
        ""
    };
    let _ = write!(
        text,
        "var<workgroup> slice: array<f32, {slice}>;
var<workgroup> damaged: u32;
{main}@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let first = group.x * {slice}u;
    if (lane == 0u) {{ damaged = 0u; }}
    workgroupBarrier();
    for (var i = lane; i < {slice}u; i += THREADS) {{
        let token = first + i;
        var value = {NOTHING};
        if (token < params.x) {{
            let logit = logits[token];
            // A comparison with NaN may be assumed away, its bits may not.
            if ((bitcast<u32>(logit) & 0x7fffffffu) > 0x7f800000u) {{ damaged = 1u; }}
            if (true{allowed}) {{ value = max(logit, -3.3e38); }}
        }}
        slice[i] = value;
    }}
    workgroupBarrier();
    for (var n = 0u; n < {count}u; n++) {{
        var value = {NOTHING};
        var token = {NO_TOKEN}u;
        for (var i = lane; i < {slice}u; i += THREADS) {{
            if (slice[i] > value) {{ value = slice[i]; token = first + i; }}
        }}
        best(lane, value, token);
        if (lane == 0u) {{
            let token = select(best_token[0], {NOT_A_NUMBER}u, damaged == 1u);
            out[group.x * {count}u + n] = vec2<u32>(token, bitcast<u32>(best_value[0]));
            if (best_token[0] != {NO_TOKEN}u) {{ slice[best_token[0] - first] = {NOTHING}; }}
        }}
        workgroupBarrier();
    }}
}}
"
    );
}

/// Merges the slices' lists, each of which is sorted.
fn top_of_slices(text: &mut String, count: u32, slices: u32, main: &str) {
    declare(
        text,
        &[("lists", "vec2<u32>", false), ("out", "vec2<u32>", true)],
    );
    text.push_str(REDUCE_BEST);
    let _ = write!(
        text,
        "var<workgroup> taken: array<u32, {slices}>;
var<workgroup> damaged: u32;
{main}@builtin(local_invocation_index) lane: u32) {{
    if (lane == 0u) {{ damaged = 0u; }}
    workgroupBarrier();
    for (var i = lane; i < {slices}u; i += THREADS) {{
        taken[i] = 0u;
        if (lists[i * {count}u].x == {NOT_A_NUMBER}u) {{ damaged = 1u; }}
    }}
    workgroupBarrier();
    for (var n = 0u; n < {count}u; n++) {{
        var value = {NOTHING};
        var token = {NO_TOKEN}u;
        var list = 0u;
        for (var i = lane; i < {slices}u; i += THREADS) {{
            if (taken[i] < {count}u) {{
                let entry = lists[i * {count}u + taken[i]];
                let other = bitcast<f32>(entry.y);
                if (entry.x != {NO_TOKEN}u && (other > value || (other == value && entry.x < token))) {{
                    value = other;
                    token = entry.x;
                    list = i;
                }}
            }}
        }}
        best(lane, value, token);
        if (token == best_token[0] && token != {NO_TOKEN}u) {{ taken[list] += 1u; }}
        if (lane == 0u) {{
            let token = select(best_token[0], {NOT_A_NUMBER}u, damaged == 1u);
            out[n] = vec2<u32>(token, bitcast<u32>(best_value[0]));
        }}
        workgroupBarrier();
    }}
}}
"
    );
}
