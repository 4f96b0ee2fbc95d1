//! Tests the server against the description that it serves.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result};

use crate::process;
use crate::setup::{self, Environment};
use crate::tally::Tally;

const TOKEN: &str = "description";
/// One session. Its token is known by its SHA-256.
const SESSIONS: &str =
    r#"{"c9046f7a37ad0ea7cee73355984fa5428982f8b37c8f7bcec91f7ac71a7cd104": "session"}"#;

/// Derives requests from the description, sends them, and checks each answer.
pub fn check(environment: &Environment) -> Result<Tally> {
    let project = environment.project();
    let mut build = setup::native_cargo(project);
    process::run(build.args(["build", "--locked", "--package", "evidence-cli"]))?;
    let scratch = project.scratch().join("description");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    fs::create_dir_all(&scratch)?;
    let sessions = scratch.join("sessions.json");
    fs::write(&sessions, SESSIONS)?;

    let mut server = process::command(project.target().join("debug/bounded-evidence"));
    server
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(scratch.join("data"))
        .arg("--sessions")
        .arg(&sessions)
        .arg("--workspace")
        .arg(&scratch)
        .args(["--allow-command", r#"["true"]"#])
        .stdout(Stdio::piped())
        .stderr(fs::File::create(scratch.join("log"))?);
    let mut server = Running(server.spawn().context("cannot start the server")?);
    let address = server.address()?;

    let mut schemathesis = environment.schemathesis();
    schemathesis
        .args([
            "run",
            "--checks",
            "all",
            "--max-examples",
            "60",
            "--seed",
            "1",
            "--header",
        ])
        .arg(format!("Authorization: Bearer {TOKEN}"))
        .arg(format!("{address}/openapi.json"))
        .current_dir(&scratch);
    Ok(process::passes(&mut schemathesis)?.into())
}

/// A server that ends with its test.
struct Running(Child);

impl Running {
    /// Where it listens, which is the first line that it prints.
    fn address(&mut self) -> Result<String> {
        let stdout = self.0.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ");
        Ok(address.context("the server does not listen")?.to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already cannot be ended, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
