//! Whose tool output it is: sessions, jobs, tool calls and processes (contract B).

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {form}")]
pub struct InvalidId {
    what: &'static str,
    form: &'static str,
}

/// 1 to 128 of A-Z a-z 0-9 . _ - and neither `.` nor `..`, which mean something in a path.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(allowed) && text != "." && text != ".."
}

const NAME_FORM: &str = "1 to 128 of A-Z a-z 0-9 . _ - and not \".\" or \"..\"";

/// 1 to 256 visible ASCII characters.
fn is_call_id(text: &str) -> bool {
    (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $is_valid:ident, $form:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if $is_valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { what: $what, form: $form })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

id! {
    /// One run of an agent, whose tool output is kept together and expires together.
    JobId, "a job id", is_name, NAME_FORM
}

id! {
    /// Who owns jobs. A session comes from authentication and never from a request's own words.
    SessionId, "a session id", is_name, NAME_FORM
}

id! {
    /// The provider's or runtime's name of one tool call: a second delivery under it is the same call.
    ToolCallId, "a tool call id", is_call_id, "1 to 256 visible ASCII characters"
}

id! {
    /// A process of a job. It is given by the host that starts it.
    ProcessId, "a process id", is_name, NAME_FORM
}

id! {
    /// One life of a host of processes, from its start to its end. Only the generation that started a
    /// process can know what it does.
    Generation, "a generation", is_name, NAME_FORM
}

impl Generation {
    /// An id for the call of this number, of those that reach the host without one.
    pub fn call_id(&self, number: u64) -> ToolCallId {
        ToolCallId(format!("{self}-{number}"))
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// It takes tool results.
    Active,
    /// It ended as it should.
    Completed,
    /// It ended by an error.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// It was put away. Its tool output stays readable until it expires.
    Archived,
}

impl JobStatus {
    /// Whether the job takes no more tool results.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Active)
    }

    /// Whether a job may go from this status to `next`. What has ended stays ended, so that the time
    /// after which its output expires is never moved.
    pub fn may_become(self, next: Self) -> bool {
        self == next
            || match self {
                Self::Active => true,
                Self::Completed | Self::Failed | Self::Cancelled => next == Self::Archived,
                Self::Archived => false,
            }
    }

    /// The word in requests and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Archived => "archived",
        }
    }
}

/// A text is not the word of a [`JobStatus`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a status is active, completed, failed, cancelled or archived")]
pub struct InvalidJobStatus;

impl FromStr for JobStatus {
    type Err = InvalidJobStatus;

    fn from_str(word: &str) -> Result<Self, InvalidJobStatus> {
        [
            Self::Active,
            Self::Completed,
            Self::Failed,
            Self::Cancelled,
            Self::Archived,
        ]
        .into_iter()
        .find(|status| status.as_str() == word)
        .ok_or(InvalidJobStatus)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn a_job_id_is_1_to_128_of_the_allowed_characters_and_not_dots() {
        for good in ["a", "job-1", "A.b_C-9", "...", "..a", &"x".repeat(128)] {
            assert_eq!(
                good.parse::<JobId>().map(|id| id.to_string()).as_deref(),
                Ok(good)
            );
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "é",
            "a%2e",
            "a\0",
            "a\n",
            "\\",
            &"x".repeat(129),
        ] {
            let error = bad.parse::<JobId>().unwrap_err().to_string();
            assert!(error.starts_with("a job id is 1 to 128 of"), "{error}");
            assert!(bad.parse::<SessionId>().is_err());
        }
    }

    #[test]
    fn a_tool_call_id_is_visible_ascii() {
        for good in ["call_1", "toolu:01|x/y", &"x".repeat(256)] {
            assert!(good.parse::<ToolCallId>().is_ok());
        }
        for bad in ["", " ", "a b", "é", "a\n", &"x".repeat(257)] {
            assert!(bad.parse::<ToolCallId>().is_err());
        }
    }

    #[test]
    fn what_has_ended_stays_ended() {
        use JobStatus::{Active, Archived, Cancelled, Completed, Failed};
        let all = [Active, Completed, Failed, Cancelled, Archived];
        for next in all {
            assert!(Active.may_become(next));
            assert_eq!(Archived.may_become(next), next == Archived);
            for ended in [Completed, Failed, Cancelled] {
                assert_eq!(ended.may_become(next), next == ended || next == Archived);
            }
        }
        for status in all {
            let word = serde_json::to_string(&status).unwrap();
            assert_eq!(word.trim_matches('"'), status.as_str());
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(status.is_terminal(), status != Active);
        }
        assert_eq!("Active".parse::<JobStatus>(), Err(InvalidJobStatus));
    }
}
