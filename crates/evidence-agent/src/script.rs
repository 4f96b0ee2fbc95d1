//! A model that is a script: it shows the mechanism without one.

use std::collections::VecDeque;

use evidence_core::ArtifactId;
use evidence_store::{ArtifactStore, Store};

use crate::generator::{Generator, GeneratorError};
use crate::message::Message;

/// Gives prepared replies, one a step. Two placeholders stand for what is not known beforehand:
///
/// - `{{artifact_id}}`: the id in the newest observation of the conversation;
/// - `{{find:TEXT}}`: the byte range `start-end` of the first `TEXT` in that artifact. `TEXT` is
///   written as inside a JSON string.
#[derive(Debug)]
pub struct ScriptedGenerator<S> {
    replies: VecDeque<String>,
    artifacts: ArtifactStore<S>,
}

impl<S: Store> ScriptedGenerator<S> {
    /// Replies in order; `{{find:…}}` looks into `artifacts`.
    pub fn new(
        replies: impl IntoIterator<Item = impl Into<String>>,
        artifacts: ArtifactStore<S>,
    ) -> Self {
        Self {
            replies: replies.into_iter().map(Into::into).collect(),
            artifacts,
        }
    }

    async fn fill(&self, reply: &str, messages: &[Message]) -> Result<String, GeneratorError> {
        let mut filled = String::new();
        let mut rest = reply;
        while let Some((before, after)) = rest.split_once("{{") {
            filled.push_str(before);
            let Some((placeholder, after)) = after.split_once("}}") else {
                filled.push_str("{{");
                rest = after;
                continue;
            };
            if placeholder == "artifact_id" {
                filled.push_str(&newest_artifact(messages)?.to_string());
            } else if let Some(text) = placeholder.strip_prefix("find:") {
                filled.push_str(&self.find(newest_artifact(messages)?, text).await?);
            } else {
                // Braces that are part of a reply, for example of nested JSON.
                filled.push_str("{{");
                filled.push_str(placeholder);
                filled.push_str("}}");
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    async fn find(&self, id: ArtifactId, text: &str) -> Result<String, GeneratorError> {
        let wanted: String = serde_json::from_str(&format!("\"{text}\"")).map_err(|_| {
            GeneratorError(format!(
                "the script's {{{{find:{text}}}}} is not text as JSON writes it"
            ))
        })?;
        let (_, bytes) = self.artifacts.read(id).await.map_err(|error| {
            GeneratorError(format!(
                "the script's {{{{find:{text}}}}} has no artifact to look into: {error}"
            ))
        })?;
        // An artifact is text that was put as such, and verified just now.
        let whole = std::str::from_utf8(&bytes).unwrap_or_default();
        let start = whole.find(&wanted).ok_or_else(|| {
            GeneratorError(format!(
                "the script looks for {wanted:?}, which the artifact does not contain"
            ))
        })?;
        Ok(format!("{start}-{}", start + wanted.len()))
    }
}

/// The id in the newest observation or range answer that the model has read.
fn newest_artifact(messages: &[Message]) -> Result<ArtifactId, GeneratorError> {
    let id = |message: &Message| {
        let (_, json) = message.content.split_once("\n{\"artifact_id\":\"")?;
        json.split_once('"')?.0.parse().ok()
    };
    messages.iter().rev().find_map(id).ok_or_else(|| {
        GeneratorError(
            "the script names an artifact before any result was externalized; let it read a large file first"
                .to_owned(),
        )
    })
}

impl<S: Store> Generator for ScriptedGenerator<S> {
    async fn generate(
        &mut self,
        messages: &[Message],
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        let reply = self.replies.front().ok_or_else(|| {
            GeneratorError("the script has no more replies; end it with a final action".to_owned())
        })?;
        let reply = self.fill(reply, messages).await?;
        self.replies.pop_front();
        on_text(&reply);
        Ok(reply)
    }
}
