//! The sample logs that lie beside the page. The list is fetched at start, a log when it is chosen.

use serde::Deserialize;

use crate::browser;
use crate::player::Recording;

const DIRECTORY: &str = "samples";

/// What the list says about a sample.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Sample {
    /// Its name, which is also its path in the workspace.
    pub file: String,
    /// A few words.
    pub title: String,
    /// What printed it.
    pub tool: String,
    /// Its size.
    pub byte_count: usize,
    /// What the model is asked.
    pub task: String,
    /// The text that answers it.
    pub answer: String,
    /// What makes it worth a look.
    pub note: String,
}

/// The list.
///
/// # Errors
///
/// A sentence for the user.
pub async fn list() -> Result<Vec<Sample>, String> {
    let bytes = browser::fetch(&format!("{DIRECTORY}/index.json")).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("The list of samples cannot be read: {error}."))
}

/// What the list of recorded commands says about one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RecordedSample {
    /// The recording's name.
    pub file: String,
    /// A few words.
    pub title: String,
    /// What ran.
    pub tool: String,
    /// Its arguments, exactly.
    pub argv: Vec<String>,
    /// What the model is asked.
    pub task: String,
    /// The text that answers it, in its standard error.
    pub answer: String,
    /// What makes it worth a look.
    pub note: String,
}

/// The list of recorded commands.
///
/// # Errors
///
/// A sentence for the user.
pub async fn recordings() -> Result<Vec<RecordedSample>, String> {
    let bytes = browser::fetch(&format!("{DIRECTORY}/recordings.json")).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("The list of recordings cannot be read: {error}."))
}

/// The recording itself.
///
/// # Errors
///
/// A sentence for the user.
pub async fn fetch_recording(sample: &RecordedSample) -> Result<Recording, String> {
    let bytes = browser::fetch(&format!("{DIRECTORY}/{}", sample.file)).await?;
    let lines =
        String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text.", sample.file))?;
    Recording::parse(sample.argv.clone(), &lines)
}

/// The log itself.
///
/// # Errors
///
/// A sentence for the user.
pub async fn fetch(sample: &Sample) -> Result<Vec<u8>, String> {
    browser::fetch(&format!("{DIRECTORY}/{}", sample.file)).await
}
