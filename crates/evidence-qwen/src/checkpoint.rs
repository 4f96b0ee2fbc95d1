//! A checkpoint's tensors by name, across one file or many.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::config::{Config, ConfigError};
use crate::safetensors::{self, Dtype, SafetensorsError, TensorInfo};
use crate::source::{CheckpointSource, SourceError, read_text};

/// Largest JSON file of a checkpoint that is read. Tokenizers reach 20 MB.
pub(crate) const MAX_JSON_BYTES: u64 = 64 << 20;

/// Why a checkpoint cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// A file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file that every checkpoint has is not there.
    #[error("the checkpoint has no {0}")]
    MissingFile(String),
    /// `config.json` is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A weight file is refused.
    #[error("{file}: {error}")]
    Safetensors {
        /// The weight file.
        file: String,
        /// What is wrong with it.
        error: SafetensorsError,
    },
    /// The index of a sharded checkpoint is refused.
    #[error("model.safetensors.index.json: {0}")]
    Index(String),
    /// Two files hold a tensor of one name.
    #[error("the tensor {0} is in two files")]
    DuplicateTensor(String),
    /// A tensor that the decoder needs is not there.
    #[error("the checkpoint has no tensor {0}")]
    MissingTensor(String),
    /// Tensors that the decoder does not know: another architecture.
    #[error("the checkpoint has tensors that its config.json does not explain: {}", .0.join(", "))]
    ExtraTensors(Vec<String>),
    /// A tensor does not have the shape that `config.json` asks for.
    #[error("{name} has the shape {actual:?}, but config.json asks for {expected:?}")]
    WrongShape {
        /// The tensor.
        name: String,
        /// Its shape.
        actual: Vec<usize>,
        /// The shape that `config.json` implies.
        expected: Vec<usize>,
    },
    /// A tensor's type is none that can be read there.
    #[error("{name} is stored as {dtype}, which is not supported for it")]
    WrongDtype {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: Dtype,
    },
    /// A tensor holds values that are no numbers.
    #[error("{0} holds NaN or infinite values; the file is damaged or the training diverged")]
    NotFinite(String),
}

/// The tensors of a checkpoint, located but not read.
#[derive(Debug)]
pub(crate) struct Checkpoint<'a, S> {
    source: &'a S,
    tensors: BTreeMap<String, (String, TensorInfo)>,
    unused: BTreeSet<String>,
    bytes_read: u64,
}

/// Bytes that are asked of a source at a time, a multiple of a word.
const READ_BYTES: u64 = 4 << 20;

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// Reads the checkpoint's `config.json`.
pub(crate) async fn read_config(source: &impl CheckpointSource) -> Result<Config, CheckpointError> {
    let text = read_text(source, "config.json", MAX_JSON_BYTES)
        .await?
        .ok_or_else(|| CheckpointError::MissingFile("config.json".to_owned()))?;
    Ok(Config::parse(&text)?)
}

impl<'a, S: CheckpointSource> Checkpoint<'a, S> {
    /// Reads the headers of the weight files.
    pub(crate) async fn open(source: &'a S) -> Result<Self, CheckpointError> {
        let files = match read_text(source, INDEX_FILE, MAX_JSON_BYTES).await? {
            Some(json) => shard_names(&json)?,
            None => BTreeSet::from([SINGLE_FILE.to_owned()]),
        };
        let mut tensors = BTreeMap::new();
        for file in files {
            for (name, info) in read_header(source, &file).await? {
                if tensors.contains_key(&name) {
                    return Err(CheckpointError::DuplicateTensor(name));
                }
                tensors.insert(name, (file.clone(), info));
            }
        }
        let unused = tensors.keys().cloned().collect();
        Ok(Self {
            source,
            tensors,
            unused,
            bytes_read: 0,
        })
    }

    /// Bytes of all tensors, what loading reads in all.
    pub(crate) fn byte_count(&self) -> u64 {
        self.tensors
            .values()
            .map(|(_, info)| info.bytes.end - info.bytes.start)
            .sum()
    }

    /// Bytes of the tensors that were read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The tensor's type, after its shape was compared.
    pub(crate) fn expect(&self, name: &str, shape: &[usize]) -> Result<&Dtype, CheckpointError> {
        let (_, info) = self
            .tensors
            .get(name)
            .ok_or_else(|| CheckpointError::MissingTensor(name.to_owned()))?;
        if info.shape != shape {
            return Err(CheckpointError::WrongShape {
                name: name.to_owned(),
                actual: info.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        Ok(&info.dtype)
    }

    /// The tensor's bytes as little-endian words, padded with zeros, and the
    /// mark that it was used.
    ///
    /// They are read piece by piece, so that a large tensor is in memory once.
    pub(crate) async fn read_words(&mut self, name: &str) -> Result<Vec<u32>, CheckpointError> {
        let (file, info) = self
            .tensors
            .get(name)
            .ok_or_else(|| CheckpointError::MissingTensor(name.to_owned()))?;
        let byte_count = info.bytes.end - info.bytes.start;
        let word_count = usize::try_from(byte_count.div_ceil(4))
            .map_err(|error| SourceError::new(file, error))?;
        let mut words = Vec::with_capacity(word_count);
        let mut start = info.bytes.start;
        while start < info.bytes.end {
            let end = info.bytes.end.min(start + READ_BYTES);
            for chunk in self.source.read(file, start..end).await?.chunks(4) {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                words.push(u32::from_le_bytes(word));
            }
            start = end;
        }
        self.bytes_read += byte_count;
        self.unused.remove(name);
        Ok(words)
    }

    /// Marks a tensor as known but not needed.
    pub(crate) fn ignore(&mut self, name: &str) {
        self.unused.remove(name);
    }

    /// Refuses tensors that were neither read nor ignored.
    pub(crate) fn finish(mut self) -> Result<(), CheckpointError> {
        // Old exports carry the rotary frequencies, which follow from the config.
        self.unused
            .retain(|name| !name.ends_with(".rotary_emb.inv_freq"));
        if self.unused.is_empty() {
            return Ok(());
        }
        // A list of thousands helps nobody.
        Err(CheckpointError::ExtraTensors(
            self.unused.into_iter().take(8).collect(),
        ))
    }
}

/// Bytes of a checkpoint's weights, from the headers alone.
///
/// # Errors
///
/// When the weight files are missing or damaged.
pub async fn weight_byte_count(source: &impl CheckpointSource) -> Result<u64, CheckpointError> {
    Ok(Checkpoint::open(source).await?.byte_count())
}

fn shard_names(json: &str) -> Result<BTreeSet<String>, CheckpointError> {
    let index: Index =
        serde_json::from_str(json).map_err(|error| CheckpointError::Index(error.to_string()))?;
    let files: BTreeSet<String> = index.weight_map.into_values().collect();
    // A name is joined to a folder or a URL, so it must be a plain name.
    if let Some(file) = files.iter().find(|file| {
        file.is_empty() || file.starts_with('.') || file.contains(['/', '\\', ':', '?', '#', '%'])
    }) {
        return Err(CheckpointError::Index(format!(
            "{file:?} is no plain file name"
        )));
    }
    Ok(files)
}

async fn read_header(
    source: &impl CheckpointSource,
    file: &str,
) -> Result<BTreeMap<String, TensorInfo>, CheckpointError> {
    let refused = |error| CheckpointError::Safetensors {
        file: file.to_owned(),
        error,
    };
    let file_bytes = source
        .byte_count(file)
        .await?
        .ok_or_else(|| CheckpointError::MissingFile(file.to_owned()))?;
    let prefix = source
        .read(file, 0..safetensors::PREFIX_BYTES.min(file_bytes))
        .await?;
    let header_bytes = safetensors::header_byte_count(&prefix, file_bytes).map_err(refused)?;
    let json = source
        .read(
            file,
            safetensors::PREFIX_BYTES..safetensors::PREFIX_BYTES + header_bytes,
        )
        .await?;
    safetensors::parse_header(&json, file_bytes).map_err(refused)
}
