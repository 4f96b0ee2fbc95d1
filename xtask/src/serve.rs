//! A static file server for the page, on this machine only.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use percent_encoding::percent_decode_str;
use tiny_http::{Header, Method, Request, Response, StatusCode};

/// A browser opens about six connections to one origin.
const WORKERS: usize = 6;

/// Serves a directory until it is dropped.
pub struct Server {
    listener: Arc<tiny_http::Server>,
    workers: Vec<JoinHandle<()>>,
    url: String,
}

impl Server {
    /// Serves `root` below the path `base`, which begins and ends with a
    /// slash, on this port of 127.0.0.1; port 0 takes a free one.
    pub fn start(root: &Path, base: &str, port: u16) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = tiny_http::Server::http(address).map_err(|error| {
            anyhow!("cannot serve on {address} ({error}); choose another port with --port")
        })?;
        let url = format!("http://{}{base}", listener.server_addr());
        let listener = Arc::new(listener);
        let site = Arc::new(Site {
            root: root.to_owned(),
            base: base.to_owned(),
        });
        let workers = (0..WORKERS)
            .map(|_| {
                let listener = Arc::clone(&listener);
                let site = Arc::clone(&site);
                thread::spawn(move || {
                    while let Ok(request) = listener.recv() {
                        // A browser that went away in mid-answer is no fault.
                        let _ = site.answer(request);
                    }
                })
            })
            .collect();
        Ok(Self {
            listener,
            workers,
            url,
        })
    }

    /// The address of the page.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for _ in &self.workers {
            self.listener.unblock();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// Serves the page until the process is ended.
pub fn play(dist: &Path, port: u16) -> Result<()> {
    let server = Server::start(dist, "/", port)?;
    println!("The playground is at {}  (Ctrl+C ends it)", server.url());
    loop {
        thread::park();
    }
}

struct Site {
    root: PathBuf,
    base: String,
}

impl Site {
    fn answer(&self, request: Request) -> io::Result<()> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return request.respond(Response::empty(405));
        }
        match self.file(request.url()) {
            Some((file, media_type)) => {
                let response = Response::from_file(file)
                    .with_header(header("Content-Type", &media_type))
                    .with_header(header("X-Content-Type-Options", "nosniff"))
                    // A page that was built anew is seen at the next reload.
                    .with_header(header("Cache-Control", "no-cache"));
                request.respond(response)
            }
            None => request
                .respond(Response::from_string("Not found\n").with_status_code(StatusCode(404))),
        }
    }

    fn file(&self, url: &str) -> Option<(File, String)> {
        let mut path = self.root.join(relative_path(url, &self.base)?);
        if path.is_dir() {
            path.push("index.html");
        }
        let file = File::open(&path).ok()?;
        Some((file, media_type(&path)))
    }
}

/// The file below the root that a request names, with no way out of it.
fn relative_path(url: &str, base: &str) -> Option<PathBuf> {
    let path = url.split(['?', '#']).next()?;
    let decoded = percent_decode_str(path.strip_prefix(base)?)
        .decode_utf8()
        .ok()?;
    let path = PathBuf::from(decoded.as_ref());
    let inside = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    (inside && !decoded.contains('\0')).then_some(path)
}

fn media_type(path: &Path) -> String {
    let media_type = mime_guess::from_path(path).first_or_octet_stream();
    match media_type.type_() {
        mime_guess::mime::TEXT => format!("{media_type}; charset=utf-8"),
        _ => media_type.to_string(),
    }
}

fn header(name: &'static str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("names and media types are ASCII")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_request_cannot_leave_the_root() {
        let below = |url| relative_path(url, "/base/");
        assert_eq!(below("/base/"), Some("".into()));
        assert_eq!(below("/base/a/b.js?v=1"), Some("a/b.js".into()));
        assert_eq!(below("/base/a%20b"), Some("a b".into()));
        for refused in [
            "/",
            "/other/",
            "/base",
            "/base/../x",
            "/base/%2e%2e/x",
            "/base//etc/passwd",
            "/base/%00",
        ] {
            assert_eq!(below(refused), None, "{refused}");
        }
    }

    #[test]
    fn browsers_get_the_media_types_that_they_insist_on() {
        let of = |name| media_type(Path::new(name));
        assert_eq!(of("a.wasm"), "application/wasm");
        assert_eq!(of("a.js"), "text/javascript; charset=utf-8");
        assert_eq!(of("a.mjs"), "application/javascript");
        assert_eq!(of("index.html"), "text/html; charset=utf-8");
        assert_eq!(of("a.css"), "text/css; charset=utf-8");
        assert_eq!(of("unknown"), "application/octet-stream");
    }

    #[test]
    fn a_directory_answers_with_its_index_below_the_base_only() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("index.html"), "<p>hello").unwrap();
        let server = Server::start(root.path(), "/some/path/", 0).unwrap();
        let found = get(&server, "GET /some/path/");
        assert!(found.starts_with("HTTP/1.1 200"), "{found}");
        assert!(found.ends_with("<p>hello"), "{found}");
        assert!(get(&server, "GET /").starts_with("HTTP/1.1 404"));
        assert!(get(&server, "POST /some/path/").starts_with("HTTP/1.1 405"));
    }

    fn get(server: &Server, request: &str) -> String {
        let address = server.listener.server_addr().to_ip().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}
