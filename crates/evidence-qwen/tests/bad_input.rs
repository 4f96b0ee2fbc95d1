//! What is not a checkpoint is refused with a sentence that names the culprit.

use std::collections::BTreeMap;
use std::path::PathBuf;

use evidence_qwen::checkpoint::CheckpointError;
use evidence_qwen::config::{Config, ConfigError};
use evidence_qwen::safetensors::{PREFIX_BYTES, SafetensorsError, parse_header};
use evidence_qwen::source::MemoryFiles;
use evidence_qwen::tokenizer::TokenizerError;
use evidence_qwen::{Backend, GenerateError, LoadError, Model, Options};
use pollster::block_on;
use proptest::prelude::*;
use serde_json::{Value, json};

const WEIGHTS: &str = "model.safetensors";

fn fixture(name: &str, file: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    std::fs::read(path.join(file)).unwrap()
}

type Tensors = BTreeMap<String, (String, Vec<usize>, Vec<u8>)>;

fn read(bytes: &[u8]) -> Tensors {
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    parse_header(&bytes[8..8 + length], bytes.len() as u64)
        .unwrap()
        .into_iter()
        .map(|(name, info)| {
            let range = usize::try_from(info.bytes.start).unwrap()
                ..usize::try_from(info.bytes.end).unwrap();
            (
                name,
                (info.dtype.to_string(), info.shape, bytes[range].to_vec()),
            )
        })
        .collect()
}

fn write(tensors: &Tensors) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, (dtype, shape, bytes)) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(data);
    file
}

fn files(config: &Value, weights: &[u8]) -> MemoryFiles {
    let mut files = MemoryFiles::default();
    files.insert("config.json", config.to_string());
    files.insert(WEIGHTS, weights);
    files
}

fn config(name: &str) -> Value {
    serde_json::from_slice(&fixture(name, "config.json")).unwrap()
}

fn load(files: &MemoryFiles) -> Result<Model, LoadError> {
    block_on(Model::load(files, &Backend::Flex, &mut |_, _| {}))
}

fn refusal(files: &MemoryFiles) -> CheckpointError {
    match load(files) {
        Err(LoadError::Checkpoint(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The Qwen3 fixture with its tensors changed.
fn refusal_with(name: &str, change: impl FnOnce(&mut Tensors)) -> CheckpointError {
    let mut tensors = read(&fixture(name, WEIGHTS));
    change(&mut tensors);
    refusal(&files(&config(name), &write(&tensors)))
}

const FLOATS: &str = "qwen3-f32-tied";
const PACKED: &str = "qwen3-mlx-4bit";

#[test]
fn the_rewritten_fixture_loads() {
    for name in [FLOATS, PACKED] {
        let weights = write(&read(&fixture(name, WEIGHTS)));
        load(&files(&config(name), &weights)).unwrap();
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let weights = fixture(FLOATS, WEIGHTS);
    for length in [0, 3, 8, 100, weights.len() / 2, weights.len() - 1] {
        let error = refusal(&files(&config(FLOATS), &weights[..length]));
        assert!(
            matches!(
                error,
                CheckpointError::Safetensors {
                    error: SafetensorsError::TruncatedHeader { .. }
                        | SafetensorsError::BeyondEnd { .. },
                    ..
                }
            ),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_page_in_place_of_weights_is_refused() {
    let error = refusal(&files(
        &config(FLOATS),
        b"<!doctype html><html>Not found</html>",
    ));
    assert!(
        matches!(
            error,
            CheckpointError::Safetensors {
                error: SafetensorsError::HugeHeader(_),
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn tensors_that_are_missing_extra_or_misshapen_are_named() {
    let name = "model.layers.1.self_attn.k_norm.weight";
    assert_eq!(
        refusal_with(FLOATS, |tensors| {
            tensors.remove(name);
        }),
        CheckpointError::MissingTensor(name.to_owned())
    );
    assert_eq!(
        refusal_with(FLOATS, |tensors| {
            let copy = tensors[name].clone();
            tensors.insert("model.layers.2.extra.weight".to_owned(), copy);
        }),
        CheckpointError::ExtraTensors(vec!["model.layers.2.extra.weight".to_owned()])
    );
    let name = "model.layers.0.mlp.up_proj.weight";
    assert_eq!(
        refusal_with(FLOATS, |tensors| {
            tensors.get_mut(name).unwrap().1.reverse();
        }),
        CheckpointError::WrongShape {
            name: name.to_owned(),
            actual: vec![32, 48],
            expected: vec![48, 32]
        }
    );
    let scales = "model.layers.0.mlp.up_proj.scales";
    assert_eq!(
        refusal_with(PACKED, |tensors| {
            tensors.remove(scales);
        }),
        CheckpointError::MissingTensor(scales.to_owned())
    );
}

#[test]
fn types_that_do_not_belong_are_named() {
    let name = "model.norm.weight";
    let error = refusal_with(FLOATS, |tensors| {
        tensors.get_mut(name).unwrap().0 = "I32".to_owned();
    });
    assert!(matches!(&error, CheckpointError::WrongDtype { name: tensor, .. } if tensor == name));
    let name = "model.layers.0.mlp.up_proj.weight";
    let error = refusal_with(PACKED, |tensors| {
        tensors.get_mut(name).unwrap().0 = "F32".to_owned();
    });
    assert!(matches!(&error, CheckpointError::WrongDtype { name: tensor, .. } if tensor == name));
}

#[test]
fn values_that_are_no_numbers_are_refused() {
    for (fixture, name, value) in [
        (
            FLOATS,
            "model.layers.0.mlp.up_proj.weight",
            &f32::NAN.to_le_bytes()[..],
        ),
        (
            FLOATS,
            "model.norm.weight",
            &f32::INFINITY.to_le_bytes()[..],
        ),
        (
            "qwen2-f16",
            "model.layers.1.mlp.down_proj.weight",
            &0x7e00_u16.to_le_bytes()[..],
        ),
        (
            "qwen3-bf16",
            "lm_head.weight",
            &0x7fc0_u16.to_le_bytes()[..],
        ),
        (
            PACKED,
            "model.embed_tokens.scales",
            &0x7fc0_u16.to_le_bytes()[..],
        ),
    ] {
        let error = refusal_with(fixture, |tensors| {
            tensors.get_mut(name).unwrap().2[..value.len()].copy_from_slice(value);
        });
        assert_eq!(error, CheckpointError::NotFinite(name.to_owned()));
    }
}

#[test]
fn files_that_are_not_there_are_named() {
    let error = refusal(&MemoryFiles::default());
    assert_eq!(
        error,
        CheckpointError::MissingFile("config.json".to_owned())
    );
    let mut only_config = MemoryFiles::default();
    only_config.insert("config.json", config(FLOATS).to_string());
    assert_eq!(
        refusal(&only_config),
        CheckpointError::MissingFile(WEIGHTS.to_owned())
    );
    only_config.insert(
        "model.safetensors.index.json",
        r#"{"weight_map":{"a":"../secret","b":"model-1.safetensors"}}"#,
    );
    assert!(matches!(refusal(&only_config), CheckpointError::Index(_)));
}

#[test]
fn one_tensor_in_two_files_is_refused() {
    let weights = fixture(FLOATS, WEIGHTS);
    let mut files = files(&config(FLOATS), &weights);
    files.insert("other.safetensors", weights);
    files.insert(
        "model.safetensors.index.json",
        r#"{"weight_map":{"a":"model.safetensors","b":"other.safetensors"}}"#,
    );
    assert!(matches!(
        refusal(&files),
        CheckpointError::DuplicateTensor(_)
    ));
}

fn config_with(change: impl FnOnce(&mut Value)) -> Result<Config, ConfigError> {
    let mut config = config(PACKED);
    change(&mut config);
    Config::parse(&config.to_string())
}

#[test]
fn what_the_decoder_does_not_have_is_refused_by_name() {
    let refused = |field: &'static str, value: Value| {
        config_with(|config| config[field] = value).unwrap_err()
    };
    assert_eq!(
        refused("model_type", json!("qwen3_moe")),
        ConfigError::UnknownArchitecture("qwen3_moe".to_owned())
    );
    assert_eq!(
        refused("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0})),
        ConfigError::UnknownRopeScaling("yarn".to_owned())
    );
    assert_eq!(
        refused(
            "quantization",
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128})
        ),
        ConfigError::UnknownQuantization("gptq".to_owned())
    );
    assert_eq!(
        refused(
            "quantization",
            json!({"mode": "mxfp4", "bits": 4, "group_size": 32})
        ),
        ConfigError::UnknownQuantization("mxfp4".to_owned())
    );
    assert_eq!(
        refused("quantization", json!({"bits": 3, "group_size": 64})),
        ConfigError::UnsupportedGroup {
            bits: 3,
            group_size: 64
        }
    );
    assert!(matches!(
        refused("hidden_act", json!("gelu")),
        ConfigError::Unsupported {
            field: "hidden_act",
            ..
        }
    ));
    assert!(matches!(
        refused("use_sliding_window", json!(true)),
        ConfigError::Unsupported {
            field: "use_sliding_window",
            ..
        }
    ));
    assert!(matches!(
        refused("num_key_value_heads", json!(3)),
        ConfigError::Impossible {
            field: "num_key_value_heads",
            ..
        }
    ));
    for (field, value) in [
        ("hidden_size", json!(0)),
        ("hidden_size", json!(130)),
        ("vocab_size", json!(1_u64 << 40)),
        ("num_hidden_layers", json!(0)),
    ] {
        assert!(
            matches!(refused(field, value), ConfigError::Impossible { .. }),
            "{field}"
        );
    }
    assert!(matches!(
        refused("vocab_size", json!("many")),
        ConfigError::Malformed(_)
    ));
    assert!(matches!(
        Config::parse("<html>"),
        Err(ConfigError::Malformed(_))
    ));
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let mut files = files(&config(FLOATS), &fixture(FLOATS, WEIGHTS));
    let tokenizer = json!({
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 128}, "unk_token": "a"}
    });
    files.insert("tokenizer.json", tokenizer.to_string());
    assert_eq!(
        load(&files).unwrap_err(),
        LoadError::Tokenizer(TokenizerError::VocabularyMismatch {
            token: 128,
            vocab_size: 128
        })
    );
    files.insert("tokenizer.json", "{}");
    assert!(matches!(
        load(&files).unwrap_err(),
        LoadError::Tokenizer(TokenizerError::Malformed(_))
    ));
}

#[test]
fn prompts_that_do_not_fit_are_refused() {
    let mut model = load(&files(&config(FLOATS), &fixture(FLOATS, WEIGHTS))).unwrap();
    let options = Options::default();
    let mut refused = |tokens: &[u32]| model.continue_tokens(tokens, &options).unwrap_err();
    assert_eq!(refused(&[]), GenerateError::EmptyPrompt);
    assert_eq!(
        refused(&[0; 513]),
        GenerateError::PromptTooLong {
            tokens: 513,
            context: 512
        }
    );
    assert_eq!(
        refused(&[5, 128]),
        GenerateError::UnknownToken {
            token: 128,
            vocab_size: 128
        }
    );
    assert_eq!(
        block_on(model.generate(&[], &options, &mut |_| std::ops::ControlFlow::Continue(()))),
        Err(GenerateError::NoTokenizer)
    );
}

proptest! {
    /// Whatever stands in the file, it is read or refused, never a panic.
    #[test]
    fn damaged_files_never_panic(at in 0_usize..3000, byte: u8, length in 0_usize..200_000) {
        let mut weights = fixture(FLOATS, WEIGHTS);
        weights[at] = byte;
        weights.truncate(length);
        let _ = load(&files(&config(FLOATS), &weights));
    }

    #[test]
    fn any_header_is_read_or_refused(json in "\\PC{0,200}", file_bytes: u64) {
        let _ = parse_header(json.as_bytes(), file_bytes);
    }

    #[test]
    fn a_header_is_read_exactly_when_its_tensor_lies_in_the_file(
        start in 0_u64..200,
        length in 1_u64..50,
        file_bytes in 0_u64..800,
    ) {
        let end = start + 4 * length;
        let json =
            format!(r#"{{"w":{{"dtype":"F32","shape":[{length}],"data_offsets":[{start},{end}]}}}}"#);
        let data_start = PREFIX_BYTES + json.len() as u64;
        match parse_header(json.as_bytes(), file_bytes) {
            Ok(tensors) => {
                prop_assert!(data_start + end <= file_bytes);
                prop_assert_eq!(&tensors["w"].bytes, &(data_start + start..data_start + end));
            }
            Err(_) => prop_assert!(data_start + end > file_bytes),
        }
    }
}
