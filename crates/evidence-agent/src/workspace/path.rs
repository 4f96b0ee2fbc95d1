//! Which paths a model may name.

use std::fmt;

use super::ToolError;
use crate::action::is_blank;

/// A relative path that stays in the workspace and names nothing protected; empty: the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// Parses what the model wrote. `.` parts are dropped.
    ///
    /// # Errors
    ///
    /// [`ToolError::Refused`] for a blank, absolute, climbing or protected path.
    pub fn parse(text: &str) -> Result<Self, ToolError> {
        if is_blank(text) {
            return Err(ToolError::refused("path must be a non-empty string"));
        }
        // A backslash and a drive letter separate and root paths on some hosts; no host is to
        // understand a path that the rules did not.
        let rooted = text.starts_with('/') || text.contains(['\\', '\0']) || {
            let mut start = text.chars();
            start.next().is_some_and(|c| c.is_ascii_alphabetic()) && start.next() == Some(':')
        };
        if rooted || text.split('/').any(|part| part == "..") {
            return Err(ToolError::refused(
                "path must be relative and stay in the workspace",
            ));
        }
        let parts: Vec<&str> = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        if parts.iter().any(|part| Self::is_protected(part)) {
            return Err(ToolError::refused("path is not accessible"));
        }
        Ok(Self(parts.join("/")))
    }

    /// Whether a file or directory of this name is kept from the model: it usually holds
    /// credentials, belongs to version control, or is the artifacts' namespace.
    pub fn is_protected(name: &str) -> bool {
        const NAMES: [&str; 16] = [
            ".tool-artifacts",
            ".git",
            ".hg",
            ".svn",
            ".ssh",
            ".gnupg",
            ".aws",
            ".env",
            ".netrc",
            ".npmrc",
            ".pypirc",
            ".git-credentials",
            "id_rsa",
            "id_dsa",
            "id_ecdsa",
            "id_ed25519",
        ];
        const SUFFIXES: [&str; 5] = [".pem", ".key", ".p12", ".pfx", ".kdbx"];
        // Case-insensitive file systems open `.GIT` too. Two characters outside of ASCII fold into it:
        // the Kelvin sign and the long s.
        let fold = |c: char| match c {
            '\u{212a}' => 'k',
            '\u{17f}' => 's',
            c => c.to_ascii_lowercase(),
        };
        let name: String = name.chars().map(fold).collect();
        NAMES.contains(&name.as_str())
            || name.starts_with(".env.")
            || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
    }

    /// The path as text, `/` between its parts; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory that holds it; the root's is the root.
    pub(crate) fn parent(&self) -> Self {
        Self(
            self.0
                .rsplit_once('/')
                .map_or_else(String::new, |(parent, _)| parent.to_owned()),
        )
    }

    /// The path of an entry of this directory.
    pub(crate) fn join(&self, name: &str) -> String {
        if self.0.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.0)
        }
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
