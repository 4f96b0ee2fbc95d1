//! What the book shows, by its names, as the code makes it.

use std::sync::Arc;

use evidence_agent::endpoint::Problem;
use evidence_agent::{Action, ToolPolicy, bound_result, error_line};
use evidence_core::cursor::{READ_TOOL_SCHEMA, ReadArguments, ReadRefusal};
use evidence_core::envelope::MaxInputBytes;
use evidence_core::process::{
    CursorPoll, OutputCursors, PollArguments, ProcessFacts, ProcessStatus, StartArguments,
    StreamFacts, plain_poll,
};
use evidence_core::tool_output::Handles;
use evidence_core::{ArtifactDescriptor, EvidenceLimits, JobId, RawJson, SessionId, ToolResult};
use evidence_store::{ArtifactStore, MemoryStore, ToolOutputs};
use futures_executor::block_on;
use serde_json::Value;

use crate::repository;

/// Whether a text is what was expected, where `…` stands for anything.
pub fn matches(expected: &str, actual: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|first| actual.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

/// The same for JSON.
fn json_matches(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(expected), Value::String(actual)) => matches(expected, actual),
        (Value::Array(expected), Value::Array(actual)) => {
            let pairs = || expected.iter().zip(actual);
            expected.len() == actual.len() && pairs().all(|(one, other)| json_matches(one, other))
        }
        (Value::Object(expected), Value::Object(actual)) => {
            let is_same = |(name, value): (&String, &Value)| {
                actual
                    .get(name)
                    .is_some_and(|other| json_matches(value, other))
            };
            expected.len() == actual.len() && expected.iter().all(is_same)
        }
        _ => expected == actual,
    }
}

/// Compares a block of this name with what the code makes.
pub fn check_json(name: &str, text: &str) -> Result<(), String> {
    let parses = |outcome: Result<(), String>| outcome.map_err(|error| format!("{name}: {error}"));
    let actual = match name {
        "action" => {
            return parses(
                Action::parse(text, None)
                    .map(drop)
                    .map_err(|e| e.to_string()),
            );
        }
        "tool-result" => {
            return parses(ToolResult::parse(text).map(drop).map_err(|e| e.to_string()));
        }
        "start-arguments" => {
            return parses(
                StartArguments::parse(text)
                    .map(drop)
                    .map_err(|e| e.to_string()),
            );
        }
        "poll-arguments" => {
            return parses(
                PollArguments::parse(text)
                    .map(drop)
                    .map_err(|e| e.to_string()),
            );
        }
        "descriptor" => serde_json::to_string(&RangePaths::new().descriptor).unwrap(),
        "observation" => RangePaths::new().observation,
        "range-answer" => {
            let paths = RangePaths::new();
            without_header(&paths.read(".tool-artifacts/<id>/bytes/97102-97152"))
        }
        "lines-answer" => RangePaths::new().select(".tool-artifacts/<id>/lines/2202-2203"),
        "find-answer" => RangePaths::new().select(".tool-artifacts/<id>/find/error%5BE0282%5D"),
        "bounded-result" => Outputs::new().bounded,
        "elided-receipt" => Outputs::elided_receipt(),
        "read-arguments" => {
            let arguments = ReadArguments::parse(text).map_err(|error| error.to_string())?;
            let reference = Outputs::new().reference();
            let sha256 = &reference["sha256"];
            return if *sha256 == arguments.sha256.to_string() {
                Ok(())
            } else {
                Err(format!("the artifact is {sha256}"))
            };
        }
        "read-answer" => Outputs::new().read(),
        "read-tool-schema" => READ_TOOL_SCHEMA.to_owned(),
        "problem" => {
            let bytes = Outputs::new().reference()["bytes"].as_u64().unwrap();
            Problem::from(ReadRefusal::OutOfRange { bytes }).to_json()
        }
        "envelope-check" => {
            let limit = MaxInputBytes::new(5).unwrap();
            serde_json::to_string(&limit.check("123456")).unwrap()
        }
        "poll-data" => {
            let poll = plain_poll(&process(), [STDOUT, b""], [b"", b""]);
            poll.data.unwrap().as_str().to_owned()
        }
        "cursor-poll" => {
            let cursors = OutputCursors {
                stdout_offset: Some(0),
                stderr_offset: None,
                max_output_bytes: 4096,
            };
            let process = process();
            CursorPoll::new(&process, &cursors, STDOUT, b"")
                .unwrap()
                .to_json()
        }
        other => return Err(format!("nothing here is called {other:?}")),
    };
    let expected: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if json_matches(&expected, &serde_json::from_str(&actual).unwrap()) {
        Ok(())
    } else {
        Err(format!("{name} is\n{actual}"))
    }
}

/// What the code says to a request that is refused.
pub fn refusal(name: &str, given: &str) -> String {
    match name {
        "limits" => {
            let [inline, preview, range] = [0, 1, 2].map(|index| {
                let setting = given.split(' ').nth(index).unwrap();
                setting.split_once('=').unwrap().1.parse().unwrap()
            });
            EvidenceLimits::new(inline, preview, range)
                .unwrap_err()
                .to_string()
        }
        "refusals" => RangePaths::new().read(given),
        "selections" => RangePaths::new().refuse_selection(given),
        "protocol" => {
            let tools = ToolPolicy::default().available_tools();
            error_line(&Action::parse(given, Some(&tools)).unwrap_err())
        }
        other => panic!("nothing here is called {other:?}"),
    }
}

/// The JSON of an answer of contract A.
fn without_header(answer: &str) -> String {
    answer.split_once('\n').unwrap().1.to_owned()
}

fn log() -> String {
    std::fs::read_to_string(repository().join("web/samples/cargo-build.log")).unwrap()
}

/// Contract A with the sample that the book shows.
struct RangePaths {
    artifacts: ArtifactStore<Arc<MemoryStore>>,
    descriptor: ArtifactDescriptor,
    observation: String,
}

impl RangePaths {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let artifacts = ArtifactStore::new(store, "book".parse().unwrap());
        let limits = EvidenceLimits::default();
        let bounded = block_on(bound_result(log(), &artifacts, &limits)).unwrap();
        let observation = bounded.text.split_once('\n').unwrap().1.to_owned();
        Self {
            artifacts,
            descriptor: bounded.artifact.unwrap(),
            observation,
        }
    }

    fn read(&self, path: &str) -> String {
        let path = self.named(path);
        block_on(self.artifacts.read_range(&path, 512)).unwrap_or_else(|error| error_line(&error))
    }

    fn select(&self, path: &str) -> String {
        without_header(&block_on(self.artifacts.select(&self.named(path), 512)).unwrap())
    }

    fn refuse_selection(&self, path: &str) -> String {
        error_line(&block_on(self.artifacts.select(&self.named(path), 512)).unwrap_err())
    }

    /// The path with ids in the places of their names.
    fn named(&self, path: &str) -> String {
        let kanji = block_on(self.artifacts.put(&"漢字".repeat(200))).unwrap();
        let other = format!("artifact-{}", "0".repeat(64));
        path.replace("<id>", &self.descriptor.artifact_id.to_string())
            .replace("<kanji>", &kanji.artifact_id.to_string())
            .replace("<other>", &other)
    }
}

/// Contract B with the same sample as a tool's result.
struct Outputs {
    outputs: ToolOutputs<Arc<MemoryStore>>,
    bounded: String,
}

fn owner() -> (SessionId, JobId) {
    ("session".parse().unwrap(), "job-1".parse().unwrap())
}

impl Outputs {
    fn new() -> Self {
        Self::of(r#"{"exit_code":101}"#)
    }

    fn of(receipt: &str) -> Self {
        let outputs = ToolOutputs::new(Arc::new(MemoryStore::new()));
        let (session, job) = owner();
        block_on(outputs.create_job(&session, &job, 0)).unwrap();
        let result = ToolResult {
            receipt: Some(RawJson::parse(receipt).unwrap()),
            ..ToolResult::from_text(true, log())
        };
        let handles = Handles::parse(r#"{"process_id":"p-17","status":"exited"}"#).unwrap();
        let recorded = outputs.record(&session, &job, None, result, Some(handles));
        let bounded = block_on(recorded).unwrap().result;
        Self { outputs, bounded }
    }

    fn reference(&self) -> Value {
        let bounded: Value = serde_json::from_str(&self.bounded).unwrap();
        bounded["data"].clone()
    }

    fn read(&self) -> String {
        let (session, job) = owner();
        let sha256 = &self.reference()["sha256"];
        let arguments = format!(r#"{{"sha256":{sha256},"offset":99523,"limit":50}}"#);
        let arguments = ReadArguments::parse(&arguments).unwrap();
        block_on(self.outputs.read_tool(&session, &job, &arguments)).unwrap()
    }

    fn elided_receipt() -> String {
        let receipt = format!(r#"{{"log":"{}"}}"#, "x".repeat(20_000));
        let bounded: Value = serde_json::from_str(&Self::of(&receipt).bounded).unwrap();
        bounded["receipt"].to_string()
    }
}

const STDOUT: &[u8] = b"2 passed\n";

fn process() -> ProcessFacts {
    ProcessFacts {
        process_id: "p-1".parse().unwrap(),
        status: ProcessStatus::Exited,
        exit_code: Some(0),
        signal: None,
        stdout: StreamFacts::of(STDOUT, STDOUT.len() as u64),
        stderr: StreamFacts::of(b"", 0),
    }
}
