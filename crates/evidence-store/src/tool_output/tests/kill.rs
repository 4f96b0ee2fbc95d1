//! Processes that are killed while they record.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;

/// The process that is killed: records results of every size for one job and prints each digest once
/// it is acknowledged. The full stop says that the line is whole.
#[test]
#[ignore = "the child of nothing_acknowledged_is_lost_in_200_rounds_of_kills"]
fn killed_recorder() {
    let root = std::env::var("KILLED_RECORDER_ROOT").unwrap();
    let job = job(&std::env::var("KILLED_RECORDER_JOB").unwrap());
    let seed: usize = std::env::var("KILLED_RECORDER_SEED")
        .unwrap()
        .parse()
        .unwrap();
    let outputs = ToolOutputs::new(block_on(DirectoryStore::open(root)).unwrap());
    block_on(outputs.create_job(&session("s"), &job, 1)).unwrap();
    for round in 0.. {
        // From inline to five chunks; every third is one that the other process records too.
        let bytes = 10_000 + (round * 37_321) % 280_000;
        let result = result_of(bytes, if round % 3 == 0 { 0 } else { seed });
        let call = call(&format!("{seed}.{round}"));
        let outcome =
            block_on(outputs.record(&session("s"), &job, Some(&call), result.clone(), None));
        let outcome = outcome.unwrap();
        eprintln!(
            "recorded {call} {} {} .",
            outcome.reference.is_some(),
            sha256_of(&result)
        );
    }
}

fn spawn(root: &std::path::Path, job: &str, seed: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tool_output::tests::kill::killed_recorder",
            "--ignored",
            "--nocapture",
        ])
        .env("KILLED_RECORDER_ROOT", root)
        .env("KILLED_RECORDER_JOB", job)
        .env("KILLED_RECORDER_SEED", seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// 200 rounds: two processes at a time on one directory and one job, killed with SIGKILL at another
/// moment each time. What was acknowledged is there, whole; what was not is there entirely or not at all; the
/// counters agree; a second delivery of an acknowledged call gets its answer.
#[cfg(unix)]
#[test]
fn nothing_acknowledged_is_lost_in_200_rounds_of_kills() {
    let root = tempfile::tempdir().unwrap();
    let mut recorded = 0;
    for round in 0..200_usize {
        let job_id = format!("job-{round}");
        let mut children = [1, 2].map(|seed| spawn(root.path(), &job_id, seed));
        // The first line says that the process is at work; the kill comes up to 40 ms later.
        let outputs: Vec<_> = children
            .iter_mut()
            .map(|child| {
                let stderr = child.stderr.take().unwrap();
                let (sender, receiver) = std::sync::mpsc::channel();
                std::thread::spawn(move || {
                    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                        let _ = sender.send(line);
                    }
                });
                receiver
            })
            .collect();
        let mut lines: Vec<String> = Vec::new();
        for output in &outputs {
            lines.extend(output.recv_timeout(Duration::from_mins(1)));
        }
        std::thread::sleep(Duration::from_micros((round as u64 * 7_919) % 40_000));
        for child in &mut children {
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success());
        }
        lines.extend(outputs.into_iter().flatten());

        let store = block_on(DirectoryStore::open(root.path())).unwrap();
        let outputs = ToolOutputs::new(store);
        assert_consistent(outputs.store(), "s", &job_id);
        let acknowledged = lines
            .iter()
            .filter_map(|line| line.strip_prefix("recorded ")?.strip_suffix(" ."));
        for line in acknowledged {
            recorded += 1;
            let mut parts = line.split(' ');
            let call = Sha256Digest::of(parts.next().unwrap().as_bytes());
            let key = format!("tool-output/s/{job_id}/call/{call}");
            assert!(value(outputs.store(), &key).is_some(), "{line}");
            if parts.next() == Some("true") {
                let sha256 = parts.next().unwrap().parse().unwrap();
                let whole = read_whole(&outputs, &job_id, sha256);
                whole.unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
        // The directory stays as small as what it holds.
        block_on(outputs.delete_job(&session("s"), &job(&job_id))).unwrap();
        assert_eq!(keys(outputs.store(), ""), Vec::<String>::new());
    }
    assert!(recorded >= 200, "{recorded}");
}
