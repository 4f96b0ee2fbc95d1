//! Contract B, processes: real children over the memory and the directory store.
#![cfg(unix)]

mod kill;
mod soak;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evidence_agent::process::{
    AllowList, ChildProcesses, ProcessCall, ProcessError, ProcessHost, ProcessTools,
};
use evidence_core::process::{POLL_TOOL, START_TOOL, STOP_TOOL};
use evidence_core::{Generation, JobId, SessionId, Sha256Digest, ToolCallId};
use evidence_store::{
    Batch, DirectoryStore, Key, MemoryStore, Outcome, Store, StoreError, ToolOutputError,
    ToolOutputs,
};
use futures_util::future::poll_immediate;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::yield_now;

const MIB: usize = 1024 * 1024;

/// A host of the job `j` of the session `s`, whose processes run in a directory of its own.
struct Host<S> {
    processes: ProcessHost<S, ChildProcesses>,
    outputs: ToolOutputs<S>,
    root: Arc<TempDir>,
}

impl Host<Arc<MemoryStore>> {
    async fn new() -> Self {
        let root = Arc::new(TempDir::new().unwrap());
        Self::over(Arc::default(), "host-1", root).await
    }
}

impl<S: Store + Clone + 'static> Host<S> {
    async fn over(store: S, generation: &str, root: Arc<TempDir>) -> Self {
        let outputs = ToolOutputs::new(store);
        outputs.create_job(&session("s"), &job(), 1).await.unwrap();
        let launcher = ChildProcesses::new(root.path());
        let generation: Generation = generation.parse().unwrap();
        let processes = ProcessHost::open(outputs.clone(), launcher, generation, || 1_000);
        Self {
            processes: processes.await.unwrap(),
            outputs,
            root,
        }
    }

    /// The answer to a call without an id of its own.
    async fn call(&self, tool: &str, arguments: &Value) -> Result<Value, ProcessError> {
        self.call_as("s", None, tool, arguments).await
    }

    async fn call_as(
        &self,
        of: &str,
        id: Option<&str>,
        tool: &str,
        arguments: &Value,
    ) -> Result<Value, ProcessError> {
        let call = ProcessCall::parse(tool, &arguments.to_string()).unwrap()?;
        let id: Option<ToolCallId> = id.map(|id| id.parse().unwrap());
        let answer = self
            .processes
            .call(&session(of), &job(), id.as_ref(), &call)
            .await?;
        let Outcome { result, reference } = answer;
        assert!(result.len() <= 16 * 1024, "{}", result.len());
        let mut answer: Value = serde_json::from_str(&result).unwrap();
        if reference.is_some() {
            // What was too large to be shown is read whole.
            let sha256 = answer["data"]["sha256"].as_str().unwrap().parse().unwrap();
            let whole = self.outputs.read_whole(&session("s"), &job(), sha256).await;
            answer = serde_json::from_slice(&whole.unwrap()).unwrap();
        }
        Ok(answer)
    }

    /// Starts a shell script; its process id.
    async fn start(&self, script: &str) -> String {
        let arguments = json!({"argv": ["sh", "-c", script]});
        let answer = self.call(START_TOOL, &arguments).await.unwrap();
        assert_eq!(answer["success"], true, "{answer}");
        assert_eq!(answer["data"]["status"], "running", "{answer}");
        answer["data"]["process_id"].as_str().unwrap().to_owned()
    }

    async fn poll(&self, process_id: &str) -> Value {
        let arguments = json!({"process_id": process_id});
        self.call(POLL_TOOL, &arguments).await.unwrap()
    }

    /// Polls until it is so; the poll that shows it.
    async fn until(&self, process_id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..6000 {
            let answer = self.poll(process_id).await;
            if is_so(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never came to it: {}", self.poll(process_id).await);
    }

    async fn ended(&self, process_id: &str) -> Value {
        self.until(process_id, |answer| answer["data"]["status"] != "running")
            .await
    }

    async fn read(&self, process_id: &str, stream: &str, offset: usize) -> Value {
        let offset_of = format!("{stream}_offset");
        let arguments =
            json!({"process_id": process_id, offset_of: offset, "max_output_bytes": 8192});
        let answer = self.call(POLL_TOOL, &arguments).await.unwrap();
        assert_eq!(answer["cursor_mode"], true);
        answer
    }

    /// All bytes of a stream that has ended, by cursor.
    async fn read_all(&self, process_id: &str, stream: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let answer = self.read(process_id, stream, bytes.len()).await;
            let slice = &answer[stream];
            assert_eq!(slice["offset"], bytes.len());
            bytes.extend(base64(slice));
            assert_eq!(slice["next_offset"], bytes.len());
            if slice["done"] == true {
                assert_eq!(slice["bytes"], bytes.len());
                assert_eq!(slice["sha256"], Sha256Digest::of(&bytes).to_string());
                return bytes;
            }
        }
    }
}

fn session(name: &str) -> SessionId {
    name.parse().unwrap()
}

fn job() -> JobId {
    "j".parse().unwrap()
}

fn base64(slice: &Value) -> Vec<u8> {
    use base64::Engine as _;
    let encoded = slice["base64"].as_str().unwrap();
    base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .unwrap()
}

/// What `seq 1 last` writes.
fn counted(last: usize) -> String {
    let lines: Vec<String> = (1..=last).map(|number| number.to_string()).collect();
    lines.join("\n") + "\n"
}

fn is_unavailable(answer: &Result<Value, ProcessError>) -> bool {
    matches!(
        answer,
        Err(ProcessError::ToolOutput(ToolOutputError::Unavailable))
    )
}

#[tokio::test]
async fn a_plain_poll_shows_both_streams_and_how_the_process_ended() {
    let host = Host::new().await;
    let process = host.start("echo out; echo err >&2; exit 3").await;
    let answer = host.ended(&process).await;
    assert_eq!(
        answer["text"],
        "stdout (4 bytes):\nout\nstderr (4 bytes):\nerr\n"
    );
    assert_eq!(answer["success"], false);
    assert_eq!(answer["data"]["status"], "exited");
    assert_eq!(answer["data"]["exit_code"], 3);
}

#[tokio::test]
async fn exec_poll_keeps_its_24_kib_per_stream_head_tail_clipping_for_plain_polls() {
    let host = Host::new().await;
    let process = host.start("seq 1 100000; seq 1 10 >&2").await;
    let answer = host.ended(&process).await;
    let text = answer["text"].as_str().unwrap();
    let observed = &answer["receipt"]["observed"];
    assert_eq!(observed["stdout"][0], json!([0, 12 * 1024]));
    let all = counted(100_000);
    assert_eq!(
        observed["stdout"][1],
        json!([all.len() - 12 * 1024, all.len()])
    );
    assert!(text.contains(&all[..12 * 1024]) && text.contains(&all[all.len() - 12 * 1024..]));
    assert_eq!(observed["stderr"], json!([[0, 21]]));
    assert_eq!(host.read_all(&process, "stdout").await, all.as_bytes());
}

#[tokio::test]
async fn a_cursor_poll_answers_the_requested_slice_of_a_stream_as_text_and_base64() {
    let host = Host::new().await;
    let process = host
        .start("printf 'h\\303\\244ll\\303\\266'; echo e >&2")
        .await;
    host.ended(&process).await;
    let arguments = json!({"process_id": process, "stdout_offset": 1, "max_output_bytes": 3});
    let answer = host.call(POLL_TOOL, &arguments).await.unwrap();
    let text = "hällö";
    let expected = json!({
        "cursor_mode": true,
        "process_id": process,
        "status": "exited",
        "success": true,
        "receipt": {
            "kind": "exec_poll",
            "schema_version": 1,
            "process_id": process,
            "status": "exited",
            "observed": {"stdout": [[1, 4]], "stderr": [[0, 0]]},
            "capture_truncated": {"stdout": false, "stderr": false},
        },
        "exit_code": 0,
        "stdout": {
            "sha256": Sha256Digest::of(text.as_bytes()).to_string(),
            "bytes": 7, "offset": 1, "next_offset": 4, "done": false,
            "text": "äl", "base64": "w6Rs",
        },
        "stderr": {
            "sha256": Sha256Digest::of(b"e\n").to_string(),
            "bytes": 2, "offset": 0, "next_offset": 0, "done": false,
            "text": "", "base64": "",
        },
    });
    assert_eq!(answer, expected);
    let arguments = json!({"process_id": process, "stdout_offset": 2});
    let cut = host.call(POLL_TOOL, &arguments).await.unwrap_err();
    assert!(cut.to_string().contains("code point"), "{cut}");
}

#[tokio::test]
async fn text_is_there_only_where_the_complete_captured_stream_is_valid_utf_8() {
    let host = Host::new().await;
    // Binary in one stream only, without a newline at its end.
    let process = host
        .start("printf 'ok \\377\\000'; printf 'plain' >&2")
        .await;
    let plain = host.ended(&process).await;
    let text = plain["text"].as_str().unwrap();
    assert!(text.contains("bytes 0 to 5 are not UTF-8"), "{text}");
    assert!(text.contains("stderr (5 bytes):\nplain\n"), "{text}");
    let arguments = json!({"process_id": process, "stdout_offset": 0, "stderr_offset": 0});
    let answer = host.call(POLL_TOOL, &arguments).await.unwrap();
    assert_eq!(answer["stdout"]["text"], Value::Null);
    assert_eq!(base64(&answer["stdout"]), b"ok \xff\0");
    assert_eq!(answer["stderr"]["text"], "plain");
    assert_eq!(base64(&answer["stderr"]), b"plain");
}

#[tokio::test]
async fn a_code_point_that_is_split_between_two_writes_is_text() {
    let host = Host::new().await;
    let script =
        "printf 'a\\360\\237'; while [ ! -e go ]; do sleep 0.01; done; printf '\\230\\200'";
    let process = host.start(script).await;
    let answer = host.until(&process, |answer| answer["text"] != "").await;
    assert_eq!(answer["text"], "stdout (1 bytes, the first of 3):\na\n");
    let slice = host.read(&process, "stdout", 0).await;
    assert_eq!(slice["stdout"]["text"], "a");
    assert_eq!(slice["stdout"]["done"], false);
    std::fs::write(host.root.path().join("go"), "").unwrap();
    host.ended(&process).await;
    let slice = host.read(&process, "stdout", 1).await;
    assert_eq!(slice["stdout"]["text"], "😀");
    assert_eq!(slice["stdout"]["done"], true);
}

#[tokio::test]
async fn the_1_mib_capture_cap_of_a_stream_is_explicit() {
    let host = Host::new().await;
    // 100 MB; the other stream is captured whole beside it.
    let process = host
        .start("head -c 100000000 /dev/zero | tr '\\0' x; seq 1 1000 >&2")
        .await;
    let answer = host.ended(&process).await;
    let stdout = &answer["data"]["stdout"];
    assert_eq!(stdout["bytes"], MIB);
    assert_eq!(stdout["total_bytes"], 100_000_000);
    assert_eq!(stdout["capture_truncated"], true);
    assert_eq!(answer["data"]["stderr"]["capture_truncated"], false);
    let receipt = &answer["receipt"]["capture_truncated"];
    assert_eq!(receipt, &json!({"stdout": true, "stderr": false}));
    assert_eq!(host.read_all(&process, "stdout").await, vec![b'x'; MIB]);
}

#[tokio::test]
async fn replaying_the_same_call_returns_the_same_observation() {
    let host = Host::new().await;
    let process = host
        .start("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two")
        .await;
    host.until(&process, |answer| answer["text"] != "").await;
    let polls = [
        ("plain", json!({"process_id": process})),
        ("cursor", json!({"process_id": process, "stdout_offset": 0})),
    ];
    let mut first = Vec::new();
    for (id, arguments) in &polls {
        let answer = host.call_as("s", Some(id), POLL_TOOL, arguments).await;
        first.push(answer.unwrap());
    }
    assert_eq!(first[1]["stdout"]["text"], "one\n");
    // While the process goes on.
    std::fs::write(host.root.path().join("go"), "").unwrap();
    let later = host.ended(&process).await;
    assert_eq!(later["text"], "stdout (8 bytes):\none\ntwo\n");
    // With another spelling of the same arguments, and after a restart.
    let again = Host::over(host.outputs.store().clone(), "host-2", host.root.clone()).await;
    for host in [&host, &again] {
        for ((id, arguments), first) in polls.iter().zip(&first) {
            let answer = host.call_as("s", Some(id), POLL_TOOL, arguments).await;
            assert_eq!(&answer.unwrap(), first);
        }
        // The same id with other arguments is another call.
        let other = json!({"process_id": process, "stdout_offset": 1});
        let answer = host.call_as("s", Some("cursor"), POLL_TOOL, &other).await;
        let reused = ProcessError::ToolOutput(ToolOutputError::CallReused);
        assert_eq!(answer, Err(reused));
    }
}

#[tokio::test]
async fn a_second_delivery_of_a_start_or_a_stop_starts_and_stops_nothing() {
    let host = Host::new().await;
    let argv = json!({"argv": ["sh", "-c", "echo x | tee -a runs; sleep 100"]});
    let first = host.call_as("s", Some("c1"), START_TOOL, &argv).await;
    let process = first.as_ref().unwrap()["data"]["process_id"].clone();
    assert_eq!(
        host.call_as("s", Some("c1"), START_TOOL, &argv).await,
        first
    );
    host.until(process.as_str().unwrap(), |answer| answer["text"] != "")
        .await;
    let arguments = json!({"process_id": process});
    let stopped = host.call_as("s", Some("c2"), STOP_TOOL, &arguments).await;
    assert_eq!(stopped.as_ref().unwrap()["data"]["status"], "stopped");
    assert_eq!(
        host.call_as("s", Some("c2"), STOP_TOOL, &arguments).await,
        stopped
    );
    let runs = std::fs::read_to_string(host.root.path().join("runs"));
    assert_eq!(runs.unwrap(), "x\n");
}

#[tokio::test]
async fn cursor_reads_survive_a_restart() {
    let root = Arc::new(TempDir::new().unwrap());
    let data = root.path().join("data");
    let open = async |generation| {
        let store = DirectoryStore::open(&data).await.unwrap();
        Host::over(store, generation, root.clone()).await
    };
    let host = open("host-1").await;
    let process = host.start("seq 1 50000").await;
    host.ended(&process).await;
    drop(host);
    let host = open("host-2").await;
    let all = counted(50_000);
    assert_eq!(host.read_all(&process, "stdout").await, all.as_bytes());
    let answer = host.poll(&process).await;
    assert_eq!(answer["data"]["status"], "exited");
}

#[tokio::test]
async fn interrupted_processes_without_a_durable_capture_answer_an_explicit_unavailable() {
    let host = Host::new().await;
    let process = host.start("echo seen; sleep 100").await;
    host.until(&process, |answer| answer["text"] != "").await;
    // The next host finds a process that nobody runs.
    let next = Host::over(host.outputs.store().clone(), "host-2", host.root.clone()).await;
    let answer = next.poll(&process).await;
    assert_eq!(answer["success"], false);
    assert_eq!(answer["data"]["status"], "interrupted");
    assert!(answer["text"].as_str().unwrap().contains("not available"));
    let arguments = json!({"process_id": process, "stdout_offset": 0});
    assert!(is_unavailable(&next.call(POLL_TOOL, &arguments).await));
    let stopped = next.call(STOP_TOOL, &json!({"process_id": process})).await;
    assert_eq!(stopped.unwrap()["data"]["status"], "interrupted");
    host.processes.close().await.unwrap();
    // Its end came too late: it stays what was said of it.
    assert_eq!(next.poll(&process).await["data"]["status"], "interrupted");
}

#[tokio::test]
async fn ownership_is_checked_on_every_call() {
    let host = Host::new().await;
    let process = host.start("echo secret; sleep 100").await;
    host.until(&process, |answer| answer["text"] != "").await;
    let unknown = json!({"process_id": "process-99"});
    let its = json!({"process_id": process});
    let its_bytes = json!({"process_id": process, "stdout_offset": 0});
    for (tool, arguments) in [
        (POLL_TOOL, &its),
        (POLL_TOOL, &its_bytes),
        (STOP_TOOL, &its),
        (START_TOOL, &json!({"argv": ["true"]})),
    ] {
        let answer = host.call_as("other", None, tool, arguments).await;
        assert!(is_unavailable(&answer), "{tool} {answer:?}");
    }
    assert!(is_unavailable(&host.call(POLL_TOOL, &unknown).await));
    // Nobody stopped it.
    assert_eq!(host.poll(&process).await["data"]["status"], "running");
    host.processes.close().await.unwrap();
    assert!(is_unavailable(
        &host.call_as("other", None, POLL_TOOL, &its).await
    ));
}

/// A store that is full when it is told to be, and lets others go first before and after all it does.
#[derive(Clone, Default)]
struct Fickle(Arc<MemoryStore>, Arc<AtomicBool>);

impl Store for Fickle {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<bytes::Bytes>>, StoreError> {
        yield_now().await;
        let values = self.0.get(keys).await;
        yield_now().await;
        values
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        yield_now().await;
        let keys = self.0.list(prefix).await;
        yield_now().await;
        keys
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        yield_now().await;
        if self.1.load(Ordering::SeqCst) {
            return Err(StoreError::Exhausted);
        }
        let committed = self.0.commit(batch).await;
        yield_now().await;
        committed
    }
}

#[tokio::test]
async fn the_capture_is_committed_before_anything_of_the_end_is_shown() {
    let store = Fickle::default();
    let root = Arc::new(TempDir::new().unwrap());
    let host = Host::over(store.clone(), "host-1", root).await;
    let process = host
        .start("while [ ! -e go ]; do sleep 0.01; done; echo the end")
        .await;
    store.1.store(true, Ordering::SeqCst);
    std::fs::write(host.root.path().join("go"), "").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let its = json!({"process_id": process});
    for (tool, arguments) in [
        (POLL_TOOL, &its),
        (
            POLL_TOOL,
            &json!({"process_id": process, "stdout_offset": 0}),
        ),
        (STOP_TOOL, &its),
    ] {
        let answer = host.call(tool, arguments).await;
        let exhausted = ToolOutputError::Store(StoreError::Exhausted);
        assert_eq!(answer, Err(ProcessError::ToolOutput(exhausted)));
    }
    // Nothing is lost: it is stored as soon as there is room.
    store.1.store(false, Ordering::SeqCst);
    let answer = host.poll(&process).await;
    assert_eq!(answer["text"], "stdout (8 bytes):\nthe end\n");
    // It had ended by itself when it was to be stopped.
    assert_eq!(answer["data"]["status"], "exited");
    assert_eq!(answer["data"]["exit_code"], 0);
}

#[tokio::test]
async fn what_has_begun_is_started_also_when_its_caller_goes_away_at_any_point() {
    let root = Arc::new(TempDir::new().unwrap());
    let host = Host::over(Fickle::default(), "host-1", root).await;
    for polls in 0.. {
        let id = format!("start-{polls}");
        let script = format!("echo {polls} >> runs; echo {polls}");
        let argv = json!({"argv": ["sh", "-c", script]});
        let mut gone = Box::pin(host.call_as("s", Some(&id), START_TOOL, &argv));
        let mut is_answered = false;
        for _ in 0..polls {
            is_answered = poll_immediate(&mut gone).await.is_some();
            if is_answered {
                break;
            }
            yield_now().await;
        }
        drop(gone);
        let again = host.call_as("s", Some(&id), START_TOOL, &argv).await;
        let process = again.unwrap()["data"]["process_id"].clone();
        let shown = host.ended(process.as_str().unwrap()).await;
        assert_eq!(shown["data"]["status"], "exited", "{shown}");
        if is_answered {
            assert!(polls > 2, "it waited for the store");
            let runs = std::fs::read_to_string(host.root.path().join("runs")).unwrap();
            let expected: Vec<String> = (0..=polls).map(|run| run.to_string()).collect();
            assert_eq!(runs.lines().collect::<Vec<_>>(), expected, "each ran once");
            return;
        }
    }
}

#[tokio::test]
async fn deliveries_of_one_failing_start_are_all_told_why() {
    let root = Arc::new(TempDir::new().unwrap());
    let host = Host::over(Fickle::default(), "host-1", root).await;
    let argv = json!({"argv": ["no such program"]});
    let other = json!({"argv": ["another"]});
    let (one, two, three) = tokio::join!(
        host.call_as("s", Some("c1"), START_TOOL, &argv),
        host.call_as("s", Some("c1"), START_TOOL, &argv),
        host.call_as("s", Some("c1"), START_TOOL, &other),
    );
    assert_eq!(one.as_ref().unwrap()["success"], false);
    assert_eq!(one, two);
    let reused = ProcessError::ToolOutput(ToolOutputError::CallReused);
    assert_eq!(three, Err(reused));
    assert_eq!(host.call_as("s", Some("c1"), START_TOOL, &argv).await, one);
}

#[tokio::test]
async fn more_than_256_processes_are_refused_also_when_they_come_at_once() {
    let host = Host::new().await;
    let argv = json!({"argv": ["sleep", "1000"]});
    let starts = (0..300).map(|_| host.call(START_TOOL, &argv));
    let answers = futures_util::future::join_all(starts).await;
    let (started, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((started.len(), refused.len()), (256, 44));
    assert!(
        refused
            .iter()
            .all(|refusal| *refusal == Err(ProcessError::TooMany))
    );
    let one = started[0].as_ref().unwrap()["data"]["process_id"].clone();
    let stopped = host.call(STOP_TOOL, &json!({"process_id": one})).await;
    assert_eq!(stopped.unwrap()["data"]["status"], "stopped");
    host.start("true").await;
    host.processes.close().await.unwrap();
    // A host that is closed starts nothing, and answers what it has answered.
    assert_eq!(
        host.call(START_TOOL, &argv).await,
        Err(ProcessError::NoProcesses)
    );
    assert_eq!(host.outputs.running_processes().await.unwrap(), []);
}

#[tokio::test]
async fn what_a_grandchild_writes_after_its_parent_s_exit_belongs_to_the_output() {
    let host = Host::new().await;
    let process = host
        .start("(while [ ! -e go ]; do sleep 0.01; done; echo late) & echo early")
        .await;
    let answer = host.until(&process, |answer| answer["text"] != "").await;
    assert_eq!(answer["data"]["status"], "running");
    std::fs::write(host.root.path().join("go"), "").unwrap();
    let answer = host.ended(&process).await;
    assert_eq!(answer["text"], "stdout (11 bytes):\nearly\nlate\n");
    assert_eq!(answer["data"]["exit_code"], 0);
}

#[tokio::test]
async fn a_process_that_ignores_termination_is_killed_with_its_group() {
    let host = Host::new().await;
    let process = host
        .start("trap '' TERM; (trap '' TERM; sleep 1000) & echo ready; while :; do sleep 1; done")
        .await;
    host.until(&process, |answer| answer["text"] != "").await;
    let stopped = host.call(STOP_TOOL, &json!({"process_id": process})).await;
    let stopped = stopped.unwrap();
    assert_eq!(stopped["data"]["status"], "stopped");
    assert_eq!(stopped["data"]["signal"], 9);
    assert_eq!(stopped["text"], "stdout (6 bytes):\nready\n");
}

#[tokio::test]
async fn the_signal_that_ended_a_process_is_named() {
    let host = Host::new().await;
    let process = host.start("echo before; kill -SEGV $$").await;
    let answer = host.ended(&process).await;
    assert_eq!(answer["data"]["status"], "signaled");
    assert_eq!(answer["data"]["signal"], 11);
    assert_eq!(answer["data"]["exit_code"], Value::Null);
    assert_eq!(answer["success"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_processes_run_at_once() {
    let host = Host::new().await;
    let mut processes = Vec::new();
    for number in 0..100 {
        let script =
            format!("echo {number}; while [ ! -e go ]; do sleep 0.05; done; echo {number}");
        processes.push(host.start(&script).await);
    }
    std::fs::write(host.root.path().join("go"), "").unwrap();
    for (number, process) in processes.iter().enumerate() {
        host.ended(process).await;
        let expected = format!("{number}\n{number}\n");
        assert_eq!(host.read_all(process, "stdout").await, expected.as_bytes());
    }
}

#[tokio::test]
async fn two_callers_that_poll_at_once_under_one_id_see_the_same() {
    let host = Host::new().await;
    let process = host
        .start("while [ ! -e stop ]; do echo line; sleep 0.001; done")
        .await;
    let arguments = json!({"process_id": process});
    for round in 0..50 {
        let id = format!("poll-{round}");
        let (one, other) = tokio::join!(
            host.call_as("s", Some(&id), POLL_TOOL, &arguments),
            host.call_as("s", Some(&id), POLL_TOOL, &arguments),
        );
        assert_eq!(one.unwrap(), other.unwrap());
    }
    std::fs::write(host.root.path().join("stop"), "").unwrap();
    host.ended(&process).await;
}

#[tokio::test]
async fn an_offset_beyond_what_is_captured_is_refused_with_its_size() {
    let host = Host::new().await;
    let process = host.start("printf 12345").await;
    host.ended(&process).await;
    let at = |offset: u64| json!({"process_id": process, "stdout_offset": offset});
    let end = host.call(POLL_TOOL, &at(5)).await.unwrap();
    assert_eq!(end["stdout"]["done"], true);
    assert_eq!(end["stdout"]["text"], "");
    for offset in [6, u64::MAX] {
        let beyond = host.call(POLL_TOOL, &at(offset)).await.unwrap_err();
        assert!(beyond.to_string().contains('5'), "{beyond}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_a_result_and_leaves_no_process() {
    let host = Host::new().await;
    std::fs::create_dir(host.root.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("/", host.root.path().join("outside")).unwrap();
    for (argv, cwd) in [
        (json!(["no such program"]), json!(".")),
        (json!(["pwd"]), json!("..")),
        (json!(["pwd"]), json!("/tmp")),
        (json!(["pwd"]), json!("outside")),
        (json!(["pwd"]), json!("nowhere")),
    ] {
        let arguments = json!({"argv": argv, "cwd": cwd});
        let answer = host
            .call_as(
                "s",
                Some(&arguments.to_string().replace(' ', "_")),
                START_TOOL,
                &arguments,
            )
            .await
            .unwrap();
        assert_eq!(answer["success"], false, "{arguments}");
        let text = answer["text"].as_str().unwrap();
        assert!(!text.contains(host.root.path().to_str().unwrap()), "{text}");
    }
    let jobs = host.outputs.stored_jobs().await.unwrap();
    assert!(jobs[0].captures.is_empty());
    assert!(is_unavailable(
        &host
            .call(POLL_TOOL, &json!({"process_id": "process-1"}))
            .await
    ));
    let arguments = json!({"argv": ["pwd"], "cwd": "sub"});
    let answer = host.call(START_TOOL, &arguments).await.unwrap();
    let process = answer["data"]["process_id"].as_str().unwrap();
    let shown = host.ended(process).await;
    assert!(shown["text"].as_str().unwrap().ends_with("/sub\n"));
}

#[tokio::test]
async fn only_the_exact_argument_lists_of_the_allow_list_are_started() {
    let host = Host::new().await;
    let allowed = vec![vec!["echo".to_owned(), "yes".to_owned()]];
    let processes = AllowList::new(host.processes.clone(), allowed);
    let start = async |argv: Value| {
        let arguments = json!({"argv": argv}).to_string();
        let call = ProcessCall::parse(START_TOOL, &arguments).unwrap().unwrap();
        processes.call(&session("s"), &job(), None, &call).await
    };
    start(json!(["echo", "yes"])).await.unwrap();
    for argv in [json!(["echo"]), json!(["echo", "yes", "x"]), json!(["sh"])] {
        assert_eq!(start(argv).await, Err(ProcessError::NotAllowed));
    }
}

#[tokio::test]
async fn a_job_that_is_deleted_takes_its_running_processes_from_sight() {
    let host = Host::new().await;
    let process = host.start("echo x; sleep 100").await;
    host.until(&process, |answer| answer["text"] != "").await;
    host.outputs
        .delete_job(&session("s"), &job())
        .await
        .unwrap();
    let arguments = json!({"process_id": process});
    assert!(is_unavailable(&host.call(POLL_TOOL, &arguments).await));
    host.processes.close().await.unwrap();
    assert_eq!(host.outputs.store().list("").await.unwrap(), Vec::new());
}

#[tokio::test]
async fn a_job_that_is_deleted_by_its_host_takes_its_processes_with_it() {
    let host = Host::new().await;
    host.outputs
        .create_job(&session("s"), &"k".parse().unwrap(), 1)
        .await
        .unwrap();
    let process = host.start("echo $$; exec sleep 1000").await;
    let shown = host.until(&process, |answer| answer["text"] != "").await;
    let pid = shown["text"].as_str().unwrap().lines().nth(1).unwrap();
    let runs = || std::path::Path::new("/proc").join(pid).exists();
    // The deletion of another job leaves it alone.
    let (s, j, k) = (session("s"), job(), "k".parse().unwrap());
    host.processes.delete_job(&s, &k).await.unwrap();
    assert_eq!(host.poll(&process).await["data"]["status"], "running");
    host.processes.delete_job(&s, &j).await.unwrap();
    assert_eq!(host.outputs.store().list("").await.unwrap(), Vec::new());
    while runs() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    host.processes.close().await.unwrap();
    assert_eq!(host.outputs.store().list("").await.unwrap(), Vec::new());
}

#[tokio::test]
async fn a_process_of_a_job_that_was_created_again_is_not_taken_for_one_before() {
    let host = Host::new().await;
    let first = host
        .start("while [ ! -e go ]; do sleep 0.01; done; echo first")
        .await;
    // Another host of the same store deletes the job, and it is created again.
    host.outputs
        .delete_job(&session("s"), &job())
        .await
        .unwrap();
    host.outputs
        .create_job(&session("s"), &job(), 2)
        .await
        .unwrap();
    let second = host
        .start("while [ ! -e stop ]; do sleep 0.01; done; echo second")
        .await;
    assert_eq!(first, second, "ids begin anew");
    std::fs::write(host.root.path().join("go"), "").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let shown = host.poll(&second).await;
    assert_eq!(shown["data"]["status"], "running");
    assert_eq!(shown["text"], "");
    std::fs::write(host.root.path().join("stop"), "").unwrap();
    let shown = host.ended(&second).await;
    assert_eq!(shown["text"], "stdout (7 bytes):\nsecond\n");
    assert_eq!(host.read_all(&second, "stdout").await, b"second\n");
}
