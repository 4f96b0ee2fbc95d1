//! A model that is a script: it shows the mechanism without one.

use std::collections::VecDeque;

use evidence_core::{ArtifactId, JobId, SessionId, Sha256Digest};
use evidence_store::{ArtifactStore, Store, ToolOutputs};

use crate::generator::{Generator, GeneratorError};
use crate::message::Message;

/// Gives prepared replies, one a step. Placeholders stand for what is not known beforehand. Under
/// contract A:
///
/// - `{{artifact_id}}`: the id in the newest observation of the conversation;
/// - `{{find:TEXT}}`: the byte range `start-end` of the first `TEXT` in that artifact.
///
/// Under contract B:
///
/// - `{{sha256}}`: the digest in the newest reference of the conversation;
/// - `{{offset:TEXT}}`: where the first `TEXT` begins in that tool output.
///
/// `TEXT` is written as inside a JSON string.
#[derive(Debug)]
pub struct ScriptedGenerator<S> {
    replies: VecDeque<String>,
    source: Source<S>,
}

/// Where the placeholders look.
#[derive(Debug)]
enum Source<S> {
    Artifacts(ArtifactStore<S>),
    ToolOutputs(ToolOutputs<S>, SessionId),
}

/// The replies of a script as people write it, each with its line from 1: one JSON action a line.
/// Blank lines, lines that begin with `#`, and a byte order mark are left out.
pub fn script_replies(script: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = script.trim_start_matches('\u{feff}').lines();
    (1..).zip(lines).filter(|(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    })
}

impl<S: Store> ScriptedGenerator<S> {
    /// Replies in order; `{{find:…}}` looks into `artifacts`.
    pub fn new(
        replies: impl IntoIterator<Item = impl Into<String>>,
        artifacts: ArtifactStore<S>,
    ) -> Self {
        Self {
            replies: replies.into_iter().map(Into::into).collect(),
            source: Source::Artifacts(artifacts),
        }
    }

    /// Replies in order; `{{offset:…}}` looks into the tool output of `session`.
    pub fn with_tool_outputs(
        replies: impl IntoIterator<Item = impl Into<String>>,
        outputs: ToolOutputs<S>,
        session: SessionId,
    ) -> Self {
        Self {
            replies: replies.into_iter().map(Into::into).collect(),
            source: Source::ToolOutputs(outputs, session),
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
            match (&self.source, placeholder.split_once(':')) {
                (Source::Artifacts(_), None) if placeholder == "artifact_id" => {
                    filled.push_str(&newest_artifact(messages)?.to_string());
                }
                (Source::Artifacts(artifacts), Some(("find", text))) => {
                    let (start, len) = find_in_artifact(artifacts, messages, text).await?;
                    let end = start + len;
                    filled.push_str(&[start.to_string(), end.to_string()].join("-"));
                }
                (Source::ToolOutputs(..), None) if placeholder == "sha256" => {
                    filled.push_str(&newest_reference(messages)?.1.to_string());
                }
                (Source::ToolOutputs(outputs, session), Some(("offset", text))) => {
                    let offset = find_in_tool_output(outputs, session, messages, text).await?;
                    filled.push_str(&offset.to_string());
                }
                // Braces that are part of a reply, for example of nested JSON.
                _ => {
                    filled.push_str("{{");
                    filled.push_str(placeholder);
                    filled.push_str("}}");
                }
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

/// Where `text` stands in the newest artifact, and its length.
async fn find_in_artifact<S: Store>(
    artifacts: &ArtifactStore<S>,
    messages: &[Message],
    text: &str,
) -> Result<(usize, usize), GeneratorError> {
    let wanted: String = serde_json::from_str(&format!("\"{text}\"")).map_err(|_| {
        GeneratorError(format!(
            "the script's {{{{find:{text}}}}} is not text as JSON writes it"
        ))
    })?;
    let (_, bytes) = artifacts
        .read(newest_artifact(messages)?)
        .await
        .map_err(|error| {
            GeneratorError(format!(
                "the script's {{{{find:{text}}}}} has no artifact to look into: {error}"
            ))
        })?;
    Ok((find(&bytes, &wanted)?, wanted.len()))
}

/// Where `text` begins in the newest tool output. It stands there as it stands in the script: as
/// inside a JSON string.
async fn find_in_tool_output<S: Store>(
    outputs: &ToolOutputs<S>,
    session: &SessionId,
    messages: &[Message],
    text: &str,
) -> Result<usize, GeneratorError> {
    let (job, sha256) = newest_reference(messages)?;
    let bytes = outputs
        .read_whole(session, &job, sha256)
        .await
        .map_err(|error| {
            GeneratorError(format!(
                "the script's {{{{offset:{text}}}}} has no tool output to look into: {error}"
            ))
        })?;
    find(&bytes, text)
}

fn find(bytes: &[u8], wanted: &str) -> Result<usize, GeneratorError> {
    // What is stored is text that was put as such, and verified just now.
    let whole = std::str::from_utf8(bytes).unwrap_or_default();
    whole.find(wanted).ok_or_else(|| {
        GeneratorError(format!(
            "the script looks for {wanted:?}, which the artifact does not contain"
        ))
    })
}

/// The job and the digest in the newest reference that the model has read.
fn newest_reference(messages: &[Message]) -> Result<(JobId, Sha256Digest), GeneratorError> {
    let reference = |message: &Message| {
        // Inside of a text the quotation marks would be escaped.
        let (_, rest) = message
            .content
            .rsplit_once("\"kind\":\"tool_output_ref\",\"schema_version\":1,\"job_id\":\"")?;
        let (job, rest) = rest.split_once("\",\"sha256\":\"")?;
        let (sha256, _) = rest.split_once('"')?;
        Some((job.parse().ok()?, sha256.parse().ok()?))
    };
    messages.iter().rev().find_map(reference).ok_or_else(|| {
        GeneratorError(
            "the script names a tool output before any result was stored; let it read a large file first"
                .to_owned(),
        )
    })
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
