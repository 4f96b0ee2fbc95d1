//! A static file server for the page, on this machine only.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::map_response;
use axum::response::Response;
use tokio::runtime::{Builder, Runtime};
use tower_http::services::ServeDir;

/// Serves a directory until it is dropped.
pub struct Server {
    url: String,
    // Dropped with the server; what is being answered ends with it.
    _runtime: Runtime,
}

impl Server {
    /// Serves `root` below the path `base`, which begins and ends with a
    /// slash, on this port of 127.0.0.1; port 0 takes a free one.
    pub fn start(root: &Path, base: &str, port: u16) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).with_context(|| {
            format!("cannot serve on {address}; choose another port with --port")
        })?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}{base}", listener.local_addr()?);

        let files = ServeDir::new(root);
        let site = if base == "/" {
            Router::new().fallback_service(files)
        } else {
            Router::new().nest_service(base, files)
        };
        let site = site.layer(map_response(with_headers));
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let listener = {
            // A listener belongs to the runtime in which it is made.
            let _runtime = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        // It ends with the runtime and never before.
        runtime.spawn(async move { axum::serve(listener, site).await });
        Ok(Self {
            url,
            _runtime: runtime,
        })
    }

    /// The address of the page.
    pub fn url(&self) -> &str {
        &self.url
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

/// What every answer says: a page that was built anew is seen at the next
/// reload, no type is guessed, and text is UTF-8.
async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|media_type| media_type.to_str().ok())
        .filter(|media_type| media_type.starts_with("text/") && !media_type.contains("charset"))
        .and_then(|media_type| HeaderValue::from_str(&format!("{media_type}; charset=utf-8")).ok());
    if let Some(text) = text {
        headers.insert(CONTENT_TYPE, text);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use tempfile::TempDir;

    use super::*;

    /// A site of these files below `/some/path/`, and a file beside its root.
    fn site(files: &[&str]) -> (TempDir, Server) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(directory.path().join("outside"), "outside").unwrap();
        for name in files {
            fs::write(root.join(name), format!("this is {name}")).unwrap();
        }
        let server = Server::start(&root, "/some/path/", 0).unwrap();
        (directory, server)
    }

    fn connect(server: &Server) -> TcpStream {
        let address = server.url().strip_prefix("http://").unwrap();
        TcpStream::connect(address.split('/').next().unwrap()).unwrap()
    }

    fn get(server: &Server, request: &str) -> String {
        let mut stream = connect(server);
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_directory_answers_with_its_index_below_the_base_only() {
        let (_root, server) = site(&["index.html"]);
        let found = get(&server, "GET /some/path/");
        assert!(found.starts_with("HTTP/1.1 200"), "{found}");
        assert!(found.ends_with("this is index.html"), "{found}");
        assert!(get(&server, "GET /").starts_with("HTTP/1.1 404"));
        assert!(get(&server, "GET /some/path/missing").starts_with("HTTP/1.1 404"));
        assert!(get(&server, "POST /some/path/").starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn a_request_cannot_leave_the_root() {
        let (_root, server) = site(&["a b", "b.js"]);
        for target in ["/some/path/a%20b", "/some/path/b.js?v=1"] {
            let answer = get(&server, &format!("GET {target}"));
            assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
        }
        for target in [
            "/",
            "/other/",
            "/some/path",
            "/some/path/../outside",
            "/some/path/%2e%2e/outside",
            "/some/path//etc/passwd",
            "/some/path/%00",
        ] {
            let answer = get(&server, &format!("GET {target}"));
            assert!(answer.starts_with("HTTP/1.1 404"), "{target}: {answer}");
        }
    }

    #[test]
    fn browsers_get_the_headers_that_they_insist_on() {
        let names = [
            ("a.wasm", "application/wasm"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "application/javascript"),
            ("a.html", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.log", "text/plain; charset=utf-8"),
            ("unknown", "application/octet-stream"),
        ];
        let (_root, server) = site(&names.map(|(name, _)| name));
        for (name, media_type) in names {
            let answer = get(&server, &format!("GET /some/path/{name}"));
            let header = format!("content-type: {media_type}\r\n");
            assert!(answer.contains(&header), "{answer}");
            assert!(answer.contains("x-content-type-options: nosniff\r\n"));
            assert!(answer.contains("cache-control: no-cache\r\n"));
        }
    }

    #[test]
    fn connections_on_which_nothing_comes_keep_nobody_waiting() {
        // A browser opens some beforehand.
        let (_root, server) = site(&["index.html"]);
        let idle: Vec<TcpStream> = (0..32).map(|_| connect(&server)).collect();
        assert!(get(&server, "GET /some/path/").starts_with("HTTP/1.1 200"));
        drop(idle);
    }
}
