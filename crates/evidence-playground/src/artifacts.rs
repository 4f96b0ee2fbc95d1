//! The artifacts that are kept, and the one that is looked at.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use evidence_core::observation::Observation;
use evidence_core::range::RangePath;
use evidence_core::retention::OwnerState;
use evidence_core::tool_output::{Handles, excerpt_ranges};
use evidence_core::{
    ArtifactDescriptor, ArtifactId, EvidenceLimits, JobId, ProcessId, Sha256Digest, ToolOutputRef,
    ToolResult,
};
use evidence_store::{ArtifactError, ToolOutputError};
use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::prelude::*;
use web_sys::BroadcastChannel;

use crate::browser;
use crate::runner::Evidence;
use crate::state::{Deletion, Playground};
use crate::storage::{self, Storage};

/// Where pages of one origin tell one another that artifacts came or went.
const CHANNEL: &str = "bounded-evidence-artifacts";

/// Which artifact.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArtifactKey {
    /// The digest of its bytes.
    pub sha256: Sha256Digest,
    /// Under contract B the job that holds it.
    pub job: Option<JobId>,
}

impl ArtifactKey {
    /// The place of its bytes beside the page, where the page's worker answers; under contract B alone.
    pub fn address(&self) -> Option<String> {
        let path = ToolOutputRef::path_of(self.job.as_ref()?, self.sha256);
        Some(path.trim_start_matches('/').to_owned())
    }

    /// What its bytes are called as a file.
    pub fn file_name(&self) -> String {
        match &self.job {
            None => format!("{}.txt", ArtifactId::from(self.sha256)),
            Some(job) => format!("{job}-{}.json", self.sha256),
        }
    }
}

/// An artifact that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub key: ArtifactKey,
    /// Its size.
    pub byte_count: u64,
    /// How long it is kept.
    pub until: Until,
}

/// What was captured of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCapture {
    /// Of which job.
    pub job: JobId,
    /// Of which process.
    pub process_id: ProcessId,
    /// The bytes of both streams.
    pub byte_count: u64,
    /// How long it is kept, in milliseconds since 1970.
    pub expires_at_ms: u64,
}

/// How long an artifact is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until it is deleted.
    Deleted,
    /// At least until its run has ended.
    Ended,
    /// Until this time, in milliseconds since 1970.
    Expired(u64),
}

/// The artifact that is looked at.
#[derive(Debug, Clone, Default)]
pub enum Loaded {
    /// None is.
    #[default]
    Nothing,
    /// Its bytes are being read and verified.
    Reading,
    /// Its verified bytes.
    Ready(Arc<Artifact>),
    /// Why there are none to show.
    Failed(String),
}

/// Verified bytes of an artifact.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Which it is.
    pub key: ArtifactKey,
    /// All of its bytes.
    pub bytes: Bytes,
}

/// A part of an artifact that has a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Which.
    pub kind: SegmentKind,
    /// Where it stands.
    pub range: Range<usize>,
}

/// What a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// The model saw it at the beginning of the observation.
    Head,
    /// The observation left it out.
    Omitted,
    /// The model saw it at the end of the observation.
    Tail,
    /// The model asked for it in this step.
    Read(usize),
}

impl Artifact {
    /// The text. What was put is text, and it was verified when it was read.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// The parts that the model sees at first, under `limits` or by contract B's own; one that is
    /// small enough to be seen whole has none.
    pub fn observed(&self, limits: &EvidenceLimits) -> Vec<Segment> {
        let ranges = match &self.key.job {
            None => self.observation_ranges(limits),
            Some(job) => self.excerpt_ranges(job),
        };
        let Some([head, omitted, tail]) = ranges else {
            return Vec::new();
        };
        let segment = |kind, range| Segment { kind, range };
        vec![
            segment(SegmentKind::Head, head),
            segment(SegmentKind::Omitted, omitted),
            segment(SegmentKind::Tail, tail),
        ]
    }

    fn observation_ranges(&self, limits: &EvidenceLimits) -> Option<[Range<usize>; 3]> {
        let descriptor = ArtifactDescriptor::new(self.key.sha256, self.bytes.len() as u64);
        let observation = Observation::new(self.text(), &descriptor, limits).ok()?;
        let range = |[start, end]: [usize; 2]| start..end;
        Some([
            range(observation.head_range),
            range(observation.omitted_range),
            range(observation.tail_range),
        ])
    }

    fn excerpt_ranges(&self, job: &JobId) -> Option<[Range<usize>; 3]> {
        let result = ToolResult::parse(self.text()).ok()?;
        let reference = ToolOutputRef {
            job_id: job.clone(),
            sha256: self.key.sha256,
            bytes: self.bytes.len() as u64,
            handles: Handles::of_data(result.data.as_ref()),
        };
        let ranges = excerpt_ranges(&result, &reference)?;
        let position = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let range = |range: Range<u64>| position(range.start)..position(range.end);
        Some([ranges.head, ranges.left_out, ranges.tail].map(range))
    }

    /// Reads a range that a person typed as two numbers.
    ///
    /// # Errors
    ///
    /// What the contract says to it.
    pub fn parse_range(&self, start: &str, end: &str) -> Result<Range<usize>, String> {
        let id = ArtifactId::from(self.key.sha256);
        let path = RangePath::render(id, 0, 0).replace("0-0", "");
        let path = format!("{path}{}-{}", start.trim(), end.trim());
        let checked = RangePath::parse(&path)
            .and_then(|path| path.check(self.bytes.len() as u64, usize::MAX))
            .map_err(|refusal| refusal.to_string())?;
        Ok(checked.start..checked.end)
    }
}

impl Playground {
    /// Opens the store and keeps the list fresh while other tabs change it.
    pub fn open_storage(self) {
        spawn_local(async move {
            match storage::open(self.recording).await {
                Ok(opened) => {
                    self.not_kept.set(opened.not_kept);
                    self.storage.set(Some(opened.storage));
                    self.refresh_artifacts().await;
                    self.sweep_for_ever();
                }
                Err(error) => self.notify(error),
            }
        });
        let refresh = move || spawn_local(self.refresh_artifacts());
        window_event_listener(leptos::ev::focus, move |_| refresh());
        if let Ok(channel) = BroadcastChannel::new(CHANNEL) {
            // It listens as long as the page lives.
            let on_message = Closure::<dyn FnMut()>::new(refresh).into_js_value();
            channel.set_onmessage(Some(on_message.unchecked_ref()));
            self.channel.set_value(Some(channel));
        }
    }

    /// Reads the list again and tells the other tabs to do so.
    pub async fn artifacts_changed(self) {
        self.channel.with_value(|channel| {
            if let Some(channel) = channel {
                // Tabs that miss it read the list when they get the focus.
                let _ = channel.post_message(&JsValue::NULL);
            }
        });
        self.refresh_artifacts().await;
    }

    /// Reads the list again.
    async fn refresh_artifacts(self) {
        let Some(storage) = self.storage.get_untracked() else {
            return;
        };
        match storage.list().await {
            Ok((kept, captures)) => {
                if self.captures.with_untracked(|shown| *shown != captures) {
                    self.captures.set(captures);
                }
                let gone = |key: ArtifactKey| kept.iter().all(|kept| kept.key != key);
                if self.selected.get_untracked().is_some_and(gone) {
                    self.look_away();
                }
                if self.artifacts.with_untracked(|shown| *shown != kept) {
                    self.artifacts.set(kept);
                }
            }
            Err(error) => self.notify(format!("The artifacts cannot be listed: {error}.")),
        }
    }

    /// Turns to an artifact, and to some of its bytes.
    pub fn look_at(self, key: ArtifactKey, selection: Option<(usize, usize)>) {
        let is_ready = self.loaded.with_untracked(
            |loaded| matches!(loaded, Loaded::Ready(artifact) if artifact.key == key),
        );
        self.selection.set(selection);
        if is_ready {
            return;
        }
        self.read_again(key);
    }

    /// Reads an artifact from the store, whatever is shown of it.
    pub fn read_again(self, key: ArtifactKey) {
        let Some(storage) = self.storage.get_untracked() else {
            return;
        };
        self.selected.set(Some(key.clone()));
        self.loaded.set(Loaded::Reading);
        spawn_local(async move {
            let read = storage.read(&key).await;
            if self
                .selected
                .with_untracked(|selected| selected.as_ref() != Some(&key))
            {
                return;
            }
            self.loaded.set(match read {
                Ok(bytes) => Loaded::Ready(Arc::new(Artifact { key, bytes })),
                Err(error) => Loaded::Failed(error.explain()),
            });
        });
    }

    fn look_away(self) {
        self.selected.set(None);
        self.loaded.set(Loaded::Nothing);
        self.selection.set(None);
    }

    /// Deletes what was confirmed.
    pub fn delete(self, deletion: Deletion) {
        let Some(storage) = self.storage.get_untracked() else {
            return;
        };
        spawn_local(async move {
            let deleted = match deletion {
                Deletion::One(key) => storage.delete(&key).await,
                Deletion::Capture(job, process) => storage.delete_capture(&job, &process).await,
                Deletion::All => storage.delete_all().await,
            };
            self.look_at_all_processes().await;
            if let Err(error) = deleted {
                self.notify(format!("Not everything was deleted: {error}."));
            }
            self.artifacts_changed().await;
            // The button that was pressed may be gone with what it was for.
            browser::recover_focus(|| {
                document()
                    .get_element_by_id("artifacts-title")?
                    .dyn_into()
                    .ok()
            });
        });
    }

    /// The ranges of an artifact that the run has read so far.
    pub fn ranges_read(self, key: &ArtifactKey) -> Vec<Segment> {
        self.steps.with(|steps| {
            steps
                .iter()
                .filter_map(|step| match &step.evidence {
                    Evidence::Range(of, start, end) if of == key => Some(Segment {
                        kind: SegmentKind::Read(step.number),
                        range: *start..*end,
                    }),
                    _ => None,
                })
                .collect()
        })
    }
}

/// Why what is kept cannot be shown or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// Under contract A.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// Under contract B.
    #[error(transparent)]
    ToolOutput(#[from] ToolOutputError),
}

impl StorageError {
    /// What happened and what to do.
    fn explain(&self) -> String {
        let is_altered = matches!(
            self,
            Self::Artifact(
                ArtifactError::DigestMismatch | ArtifactError::Unreadable | ArtifactError::Conflict
            ) | Self::ToolOutput(ToolOutputError::Integrity)
        );
        let sentence = capitalized(&self.to_string());
        if is_altered {
            format!(
                "{sentence}. The stored bytes were changed or lost outside of this page, so none of \
                 them are shown. Delete the artifact and run again to store it anew."
            )
        } else {
            format!("{sentence}.")
        }
    }
}

impl Storage {
    /// Everything that is kept, of both contracts.
    async fn list(&self) -> Result<(Vec<Kept>, Vec<KeptCapture>), StorageError> {
        let (mut kept, mut captures) = (Vec::new(), Vec::new());
        for id in self.artifacts.list().await? {
            let byte_count = match self.artifacts.describe(id).await {
                Ok(descriptor) => descriptor.byte_count,
                // Another tab deleted it in between.
                Err(ArtifactError::Unknown) => continue,
                Err(ArtifactError::Store(error)) => return Err(ArtifactError::from(error).into()),
                // Its record was altered: it is listed, and refuses when it is opened.
                Err(_) => 0,
            };
            kept.push(Kept {
                key: ArtifactKey {
                    sha256: id.sha256(),
                    job: None,
                },
                byte_count,
                until: Until::Deleted,
            });
        }
        for job in self.outputs.stored_jobs().await? {
            if job.session != self.session {
                continue;
            }
            let until = match (job.owner, job.expires_at_ms) {
                (OwnerState::Inactive { .. }, Some(at_ms)) => Until::Expired(at_ms),
                _ => Until::Ended,
            };
            captures.extend(job.captures.iter().map(|capture| KeptCapture {
                job: job.job.clone(),
                process_id: capture.process_id.clone(),
                byte_count: capture.bytes,
                expires_at_ms: capture.expires_at_ms,
            }));
            for (sha256, byte_count) in self.list_job(&job.job).await? {
                kept.push(Kept {
                    key: ArtifactKey {
                        sha256,
                        job: Some(job.job.clone()),
                    },
                    byte_count,
                    until,
                });
            }
        }
        Ok((kept, captures))
    }

    /// A job's artifacts with their sizes.
    async fn list_job(&self, job: &JobId) -> Result<Vec<(Sha256Digest, u64)>, StorageError> {
        match self.outputs.artifacts(&self.session, job).await {
            Ok(artifacts) => {
                let described =
                    |artifact: ArtifactDescriptor| (artifact.sha256, artifact.byte_count);
                Ok(artifacts.into_iter().map(described).collect())
            }
            // One was altered: all are listed, and that one refuses when it is opened.
            Err(ToolOutputError::Integrity) => {
                let digests = self.outputs.artifact_digests(&self.session, job).await?;
                Ok(digests.into_iter().map(|sha256| (sha256, 0)).collect())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The complete bytes of an artifact, verified.
    ///
    /// # Errors
    ///
    /// [`StorageError`].
    pub async fn read(&self, key: &ArtifactKey) -> Result<Bytes, StorageError> {
        match &key.job {
            None => {
                let (_, bytes) = self.artifacts.read(key.sha256.into()).await?;
                Ok(bytes)
            }
            Some(job) => {
                let read = self.outputs.read_whole(&self.session, job, key.sha256);
                Ok(read.await?)
            }
        }
    }

    async fn delete(&self, key: &ArtifactKey) -> Result<(), StorageError> {
        match &key.job {
            None => self.artifacts.delete(key.sha256.into()).await?,
            Some(job) => self.processes.delete_job(&self.session, job).await?,
        }
        Ok(())
    }

    async fn delete_capture(&self, job: &JobId, process: &ProcessId) -> Result<(), StorageError> {
        let deleted = self.outputs.delete_capture(&self.session, job, process);
        Ok(deleted.await?)
    }

    async fn delete_all(&self) -> Result<(), StorageError> {
        self.artifacts.delete_all().await?;
        for job in self.outputs.stored_jobs().await? {
            if job.session == self.session {
                self.processes.delete_job(&self.session, &job.job).await?;
            }
        }
        Ok(())
    }
}

fn capitalized(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}
