//! Who may ask: the file of sessions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use evidence_core::raw_json::ObjectReader;
use evidence_core::{SessionId, Sha256Digest};
use subtle::{Choice, ConstantTimeEq as _};
use tracing::{error, info};

/// More would not be a list of sessions.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// More would not be a token.
const MAX_TOKEN_BYTES: usize = 4096;

/// The session of each token, by the token's digest.
type Tokens = Vec<(Sha256Digest, SessionId)>;

/// The sessions in a file.
pub struct Sessions {
    path: PathBuf,
    current: Mutex<Current>,
}

/// What the file said when it was last read.
struct Current {
    bytes: Option<Vec<u8>>,
    tokens: Arc<Tokens>,
}

impl Sessions {
    /// Reads the file, which must be in order when the server starts.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let bytes = read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let tokens = parse(&bytes)
            .with_context(|| format!("cannot use the sessions in {}", path.display()))?;
        let current = Current {
            bytes: Some(bytes),
            tokens: Arc::new(tokens),
        };
        Ok(Self {
            path: path.to_owned(),
            current: Mutex::new(current),
        })
    }

    /// The session of the request's bearer token.
    pub fn authenticate(&self, headers: &HeaderMap) -> Option<SessionId> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer")
            || token.is_empty()
            || token.len() > MAX_TOKEN_BYTES
        {
            return None;
        }
        let presented = Sha256Digest::of(token.as_bytes());
        let mut session = None;
        // Every token is compared, in constant time, whichever of them it is.
        for (digest, candidate) in self.tokens().iter() {
            let same: Choice = digest.as_bytes().ct_eq(presented.as_bytes());
            if bool::from(same) {
                session = Some(candidate.clone());
            }
        }
        session
    }

    /// What the file says now.
    ///
    /// It is read for each request and parsed when its bytes are others: times and sizes of files
    /// can miss a change, and a token that was removed must not work once more. A file that cannot
    /// be used authenticates nobody.
    fn tokens(&self) -> Arc<Tokens> {
        let bytes = read(&self.path).ok();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes != current.bytes {
            let parsed = bytes.as_deref().map(parse);
            current.bytes = bytes;
            if let Some(Ok(tokens)) = parsed {
                info!(sessions = tokens.len(), "the sessions have changed");
                current.tokens = Arc::new(tokens);
            } else {
                // The reason can quote the file; the log must not.
                error!("the sessions cannot be used; nobody is authenticated until they can");
                current.tokens = Arc::default();
            }
        }
        Arc::clone(&current.tokens)
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The file is small and, being read all the time, in the host's cache.
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> anyhow::Result<Tokens> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!("it has more than {MAX_FILE_BYTES} bytes");
    }
    let mut tokens = BTreeMap::new();
    let mut reader = ObjectReader::new(std::str::from_utf8(bytes)?);
    while let Some(name) = reader.next_name()? {
        let digest: Sha256Digest = name.parse().context("each key is the SHA-256 of a token")?;
        let session = reader.text()?.context("each value is a session id")?;
        if tokens.insert(digest, session.parse()?).is_some() {
            bail!("a token's digest stands twice");
        }
    }
    Ok(tokens.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values
            .iter()
            .map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    fn line(token: &str, session: &str) -> String {
        format!("\"{}\":\"{session}\"", Sha256Digest::of(token.as_bytes()))
    }

    #[test]
    fn only_one_well_formed_bearer_token_of_the_file_authenticates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{{{}}}", line("t1", "s1"))).unwrap();
        let sessions = Sessions::open(file.path()).unwrap();
        let session = |values: &[&str]| {
            let session = sessions.authenticate(&headers(values))?;
            Some(session.to_string())
        };
        for good in ["Bearer t1", "bearer t1", "BEARER  t1"] {
            assert_eq!(session(&[good]).as_deref(), Some("s1"), "{good}");
        }
        let digest = Sha256Digest::of(b"t1").to_string();
        for bad in [
            &[][..],
            &[""],
            &["Bearer"],
            &["Bearer "],
            &["Bearer t2"],
            &["Bearer t1x"],
            &["Basic t1"],
            &["t1"],
            &[&format!("Bearer {digest}")],
            &["Bearer t1", "Bearer t1"],
            &[&format!("Bearer {}", "t".repeat(5000))],
        ] {
            assert_eq!(session(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_file_is_read_again_when_it_changes_and_fails_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: String| std::fs::write(file.path(), text).unwrap();
        write(format!("{{{}}}", line("t1", "s1")));
        let sessions = Sessions::open(file.path()).unwrap();
        let works = |token: &str| {
            sessions
                .authenticate(&headers(&[&format!("Bearer {token}")]))
                .is_some()
        };
        assert!(works("t1") && !works("t2"));
        write(format!("{{{}}}", line("t2", "s1")));
        assert!(!works("t1") && works("t2"));
        for unusable in ["", "{", "[]", "{\"x\":\"s\"}", &"x".repeat(2_000_000)] {
            write(unusable.to_owned());
            assert!(!works("t1") && !works("t2"));
        }
        write(format!("{{{},{}}}", line("t1", "s1"), line("t2", "s2")));
        assert!(works("t1") && works("t2"));
        std::fs::remove_file(file.path()).unwrap();
        assert!(!works("t1") && !works("t2"));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_at_the_start() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let digest = Sha256Digest::of(b"t").to_string();
        for text in [
            "[]".to_owned(),
            format!("{{\"{digest}\":1}}"),
            format!("{{\"{digest}\":\"..\"}}"),
            format!("{{\"{}\":\"s\"}}", digest.to_uppercase()),
            format!("{{\"{digest}\":\"s\",\"{digest}\":\"s\"}}"),
        ] {
            std::fs::write(file.path(), &text).unwrap();
            assert!(Sessions::open(file.path()).is_err(), "{text}");
        }
        assert!(Sessions::open(Path::new("/nowhere/at/all")).is_err());
    }
}
