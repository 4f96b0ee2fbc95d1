//! A listening server and a client that sends exactly the bytes it is told to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evidence_core::Sha256Digest;
use serde_json::Value;
use tempfile::TempDir;

/// `bounded-evidence serve` on a free port, over a directory of its own.
pub struct Server {
    child: Child,
    pub address: String,
    pub root: TempDir,
}

pub struct Response {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The stable code of a refusal.
    pub fn code(&self) -> String {
        assert!(
            self.headers.contains("application/problem+json"),
            "{}",
            self.headers
        );
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        problem["code"].as_str().unwrap().to_owned()
    }
}

impl Server {
    /// With the sessions `s` (token `token-s`) and `other` (token `token-other`).
    pub fn start() -> Self {
        Self::start_with(&[], "exec \"$@\"")
    }

    /// With more arguments, and started by a shell script that gets the command as `$@`.
    pub fn start_with(arguments: &[&str], script: &str) -> Self {
        let root = TempDir::new().unwrap();
        write_sessions(root.path(), &[("token-s", "s"), ("token-other", "other")]);
        Self::start_in(root, arguments, script)
    }

    pub fn start_in(root: TempDir, arguments: &[&str], script: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_bounded-evidence")])
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(root.path().join("data"))
            .arg("--sessions")
            .arg(root.path().join("sessions.json"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(root.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(root.path().join("log")).unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on http://")
            .unwrap_or_else(|| panic!("it does not listen: {line}{}", log()));
        Self {
            child,
            address: address.to_owned(),
            root,
        }
    }

    /// Ends the server at once and leaves its directory.
    pub fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.root, TempDir::new().unwrap())
    }

    /// Sends the signal and waits for the end.
    pub fn terminate(&mut self) -> bool {
        let id = self.child.id().to_string();
        Command::new("kill").arg(id).status().unwrap();
        self.child.wait().unwrap().success()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("log")).unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_mins(2)))
            .unwrap();
        stream
    }

    /// One request on a connection of its own, with these header lines besides the length's.
    pub fn send(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Response {
        let mut stream = self.connect();
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        if !body.is_empty() {
            let length = format!("content-length: {}\r\n", body.len());
            head.push_str(&length);
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body does not read it.
        let _ = stream.write_all(body);
        read_response(&mut stream)
    }

    /// As the session `s`.
    pub fn request(&self, method: &str, target: &str, body: &str) -> Response {
        let headers = ["authorization: Bearer token-s"];
        self.send(method, target, &headers, body.as_bytes())
    }

    pub fn get(&self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    /// Posts a tool result to the job `j` of the session `s`, which is created.
    pub fn record(&self, body: &str) -> Response {
        let created = self.request("PUT", "/v1/jobs/j", "");
        assert!(matches!(created.status, 200 | 201), "{}", created.body);
        self.request("POST", "/v1/jobs/j/tool-results", body)
    }

    /// Records a text that must be stored; the path of its reference and the complete result.
    pub fn store(&self, text: &str) -> (String, String) {
        let result = evidence_core::ToolResult::from_text(true, text.to_owned()).serialize();
        let response = self.record(&result);
        assert_eq!(response.status, 200, "{}", response.body);
        let path = response.json()["data"]["path"].as_str().unwrap().to_owned();
        (path, result)
    }

    /// Reads an artifact to its end.
    pub fn read_all(&self, path: &str, limit: u64) -> String {
        let (mut text, mut offset) = (String::new(), 0);
        loop {
            let answer = self.get(&format!("{path}?offset={offset}&limit={limit}"));
            assert_eq!(answer.status, 200, "{}", answer.body);
            let answer = answer.json();
            text.push_str(answer["text"].as_str().unwrap());
            offset = answer["next_offset"].as_u64().unwrap();
            if answer["done"] == true {
                return text;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn read_response(stream: &mut TcpStream) -> Response {
    let mut bytes = Vec::new();
    // A connection that is reset after the response is as good as one that is closed.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (headers, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = headers.split(' ').nth(1).and_then(|s| s.parse().ok());
    Response {
        status: status.unwrap_or_else(|| panic!("no response: {text:?}")),
        headers: headers.to_owned(),
        body: body.to_owned(),
    }
}

pub fn write_sessions(root: &Path, sessions: &[(&str, &str)]) {
    let members: Vec<String> = sessions
        .iter()
        .map(|(token, session)| format!("\"{}\":\"{session}\"", Sha256Digest::of(token.as_bytes())))
        .collect();
    std::fs::write(
        root.join("sessions.json"),
        format!("{{{}}}", members.join(",")),
    )
    .unwrap();
}
