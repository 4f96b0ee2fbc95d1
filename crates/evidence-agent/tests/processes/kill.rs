//! A host that is killed with SIGKILL before or after each of its commits.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evidence_store::{Batch, Key};

use super::*;

/// Kills its own process in the gap before or after one of its commits.
#[derive(Clone)]
struct Dying {
    store: DirectoryStore,
    commits: Arc<AtomicUsize>,
    /// Twice the number of the commit; one more for the gap after it.
    gap: usize,
}

impl Dying {
    fn die_in(&self, gap: usize) {
        if self.gap == gap {
            let this = rustix::process::getpid();
            let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        }
    }
}

impl Store for Dying {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.store.get(keys).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.store.list(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        self.die_in(2 * number);
        let outcome = self.store.commit(batch).await;
        self.die_in(2 * number + 1);
        outcome
    }
}

/// The process that is killed: starts processes, looks at them while they run and after, and prints
/// each answer once it may be shown. The full stop says that the line is whole.
#[tokio::test]
#[ignore = "the child of nothing_is_lost_and_nothing_shown_that_is_not_stored_in_200_rounds_of_kills"]
async fn killed_host() {
    let root = std::env::var("KILLED_HOST_ROOT").unwrap();
    let gap = std::env::var("KILLED_HOST_GAP").unwrap().parse().unwrap();
    let store = Dying {
        store: DirectoryStore::open(format!("{root}/data")).await.unwrap(),
        commits: Arc::default(),
        gap,
    };
    let workspace = Arc::new(TempDir::new_in(&root).unwrap());
    let host = Host::over(store, "host-1", workspace).await;
    for round in 0.. {
        let show = async |name: &str, tool: &str, arguments: Value| {
            let id = format!("{round}-{name}");
            let answer = host.call_as("s", Some(&id), tool, &arguments).await;
            let answer = answer.unwrap();
            let shown = json!({"id": id, "tool": tool, "arguments": arguments, "answer": answer});
            eprintln!("shown {shown} .");
            answer
        };
        // One that ends by itself with more than is shown, and one that has to be stopped.
        let script =
            "echo first; for n in $(seq 500); do [ -e go ] && break; sleep 0.01; done; seq 1 3000";
        let go = host.root.path().join("go");
        let argv = json!({"argv": ["sh", "-c", script]});
        let process = show("start", START_TOOL, argv).await["data"]["process_id"].clone();
        let plain = json!({"process_id": process});
        let cursor = json!({"process_id": process, "stdout_offset": 0, "max_output_bytes": 100});
        show("running", POLL_TOOL, plain.clone()).await;
        show("running-cursor", POLL_TOOL, cursor.clone()).await;
        std::fs::write(&go, "").unwrap();
        host.ended(process.as_str().unwrap()).await;
        std::fs::remove_file(&go).unwrap();
        show("ended", POLL_TOOL, plain).await;
        show("ended-cursor", POLL_TOOL, cursor).await;
        let argv = json!({"argv": ["sh", "-c", "echo second; sleep 10"]});
        let process = show("start-second", START_TOOL, argv).await["data"]["process_id"].clone();
        show("stop", STOP_TOOL, json!({"process_id": process})).await;
    }
}

/// Kills a host in `gap` and looks at what it left; how much it had shown.
async fn round(gap: usize) -> usize {
    let root = Arc::new(TempDir::new().unwrap());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::killed_host", "--ignored", "--nocapture"])
        .env("KILLED_HOST_ROOT", root.path())
        .env("KILLED_HOST_GAP", gap.to_string())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code().is_none(), "gap {gap}: {lines}");
    let store = DirectoryStore::open(root.path().join("data")).await;
    let host = Host::over(store.unwrap(), "host-2", root.clone()).await;
    let mut shown_count = 0;
    let shown = lines
        .lines()
        .filter_map(|line| line.strip_prefix("shown ")?.strip_suffix(" ."));
    for line in shown {
        shown_count += 1;
        let shown: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| shown[name].as_str().unwrap();
        let (id, tool) = (text("id"), text("tool"));
        let again = host.call_as("s", Some(id), tool, &shown["arguments"]).await;
        assert_eq!(again.as_ref(), Ok(&shown["answer"]), "gap {gap}");
        let data = &shown["answer"]["data"];
        if matches!(data["status"].as_str(), Some("exited" | "stopped")) {
            let process = data["process_id"].as_str().unwrap();
            let stdout = host.read_all(process, "stdout").await;
            assert_eq!(data["stdout"]["bytes"], stdout.len(), "gap {gap}");
        }
    }
    let processes = host.outputs.store().list("tool-output/s/j/process/").await;
    for key in processes.unwrap() {
        let process = key.as_str().rsplit('/').next().unwrap();
        let status = &host.poll(process).await["data"]["status"];
        assert_ne!(status, "running", "gap {gap}");
    }
    shown_count
}

/// 200 rounds, each killed in another gap between two commits: between the capture and the receipt
/// among them. Whatever was shown is shown again, the bytes of every end that was shown are there, and
/// no process runs any more.
#[test]
fn nothing_is_lost_and_nothing_shown_that_is_not_stored_in_200_rounds_of_kills() {
    const THREADS: usize = 4;
    let rounds = |first: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let gaps = (first..200).step_by(THREADS);
        gaps.map(|gap| runtime.block_on(round(gap))).sum::<usize>()
    };
    let shown_count: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|first| scope.spawn(move || rounds(first)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(shown_count > 2_000, "{shown_count}");
}
