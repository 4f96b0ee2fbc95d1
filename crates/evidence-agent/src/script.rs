//! A model that is a script: it shows the mechanism without one.

use std::collections::VecDeque;

use evidence_core::process::Stream;
use evidence_core::{ArtifactId, JobId, ProcessId, SessionId, Sha256Digest};
use evidence_store::{ArtifactStore, Store, ToolOutputError, ToolOutputs};

use crate::generator::{Generator, GeneratorError};
use crate::message::{Message, Role};

/// Gives prepared replies, one a step. Placeholders stand for what is not known beforehand. Under
/// contract A:
///
/// - `{{artifact_id}}`: the id in the newest observation of the conversation;
/// - `{{find:TEXT}}`: the byte range `start-end` of the first `TEXT` in that artifact.
///
/// Under contract B:
///
/// - `{{sha256}}`: the digest in the newest reference of the conversation;
/// - `{{offset:TEXT}}`: where the first `TEXT` begins in that tool output;
/// - `{{process_id}}`: the newest process of the conversation;
/// - `{{next:STREAM}}`: where its newest cursor poll says to go on in `stdout` or `stderr`; 0 before one;
/// - `{{stdout:TEXT}}`, `{{stderr:TEXT}}`: where the first `TEXT` begins in that stream of it, once the
///   process has ended.
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
    ToolOutputs(ToolOutputs<S>, SessionId, JobId),
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

    /// Replies in order; `{{offset:…}}` looks into the tool output of `session`, `{{stderr:…}}` into
    /// the processes of `job`, the current one.
    pub fn with_tool_outputs(
        replies: impl IntoIterator<Item = impl Into<String>>,
        outputs: ToolOutputs<S>,
        session: SessionId,
        job: JobId,
    ) -> Self {
        Self {
            replies: replies.into_iter().map(Into::into).collect(),
            source: Source::ToolOutputs(outputs, session, job),
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
                (Source::ToolOutputs(outputs, session, _), Some(("offset", text))) => {
                    let offset = find_in_tool_output(outputs, session, messages, text).await?;
                    filled.push_str(&offset.to_string());
                }
                (Source::ToolOutputs(..), None) if placeholder == "process_id" => {
                    filled.push_str(newest_process(messages)?.as_str());
                }
                (Source::ToolOutputs(..), Some(("next", "stdout"))) => {
                    filled.push_str(&next_offset(messages, Stream::Stdout).to_string());
                }
                (Source::ToolOutputs(..), Some(("next", "stderr"))) => {
                    filled.push_str(&next_offset(messages, Stream::Stderr).to_string());
                }
                (
                    Source::ToolOutputs(outputs, session, job),
                    Some((name @ ("stdout" | "stderr"), text)),
                ) => {
                    let stream = if name == "stdout" {
                        Stream::Stdout
                    } else {
                        Stream::Stderr
                    };
                    let process = newest_process(messages)?;
                    let bytes = capture(outputs, (session, job, &process), stream).await?;
                    filled.push_str(&find(&bytes, &as_written(text)?)?.to_string());
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
    let wanted = as_written(text)?;
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

/// The text that stands in a placeholder as inside a JSON string.
fn as_written(text: &str) -> Result<String, GeneratorError> {
    serde_json::from_str(&format!("\"{text}\"")).map_err(|_| {
        GeneratorError(format!(
            "the script looks for {text}, which is not text as JSON writes it"
        ))
    })
}

/// All that is captured of a stream of a process that has ended.
async fn capture<S: Store>(
    outputs: &ToolOutputs<S>,
    (session, job, process): (&SessionId, &JobId, &ProcessId),
    stream: Stream,
) -> Result<Vec<u8>, GeneratorError> {
    let unreadable = |error: ToolOutputError| {
        GeneratorError(format!("the script looks into {process}: {error}"))
    };
    let record = outputs
        .process(session, job, process)
        .await
        .map_err(unreadable)?;
    let facts = record.facts(process.clone()).ok_or_else(|| {
        GeneratorError(format!(
            "the script looks into {process}, whose output is not stored (yet)"
        ))
    })?;
    let range = 0..facts.stream(stream).bytes;
    let bytes = outputs.read_capture(session, job, &facts, stream, range);
    Ok(bytes.await.map_err(unreadable)?.to_vec())
}

/// The newest process that the model has read of.
fn newest_process(messages: &[Message]) -> Result<ProcessId, GeneratorError> {
    let process = |message: &Message| {
        let (_, rest) = message.content.rsplit_once("\"process_id\":\"")?;
        rest.split_once('"')?.0.parse().ok()
    };
    // What the script itself wrote is no evidence of a process.
    let results = messages
        .iter()
        .rev()
        .filter(|message| message.role == Role::User);
    results.clone().find_map(process).ok_or_else(|| {
        GeneratorError("the script names a process before any was started".to_owned())
    })
}

/// Where the newest cursor poll says to go on.
fn next_offset(messages: &[Message], stream: Stream) -> u64 {
    let next = |message: &Message| {
        let cursor = message.content.split_once("{\"cursor_mode\":true,")?.1;
        let stream = format!("\"{}\":{{\"sha256\":\"", stream.as_str());
        let (_, slice) = cursor.split_once(&stream)?;
        let (_, rest) = slice.split_once("\"next_offset\":")?;
        rest.split_once(',')?.0.parse().ok()
    };
    messages.iter().rev().find_map(next).unwrap_or(0)
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
