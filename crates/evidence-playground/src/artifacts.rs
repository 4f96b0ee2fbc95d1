//! The artifacts that are kept, and the one that is looked at.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use evidence_core::observation::Observation;
use evidence_core::range::RangePath;
use evidence_core::{ArtifactDescriptor, ArtifactId, EvidenceLimits};
use evidence_store::ArtifactError;
use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::prelude::*;
use web_sys::BroadcastChannel;

use crate::runner::Evidence;
use crate::state::{Deletion, Playground};
use crate::storage;

/// Where pages of one origin tell one another that artifacts came or went.
const CHANNEL: &str = "bounded-evidence-artifacts";

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
    pub descriptor: ArtifactDescriptor,
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

    /// The parts of the observation that the model sees under `limits`; one that is small enough
    /// to be seen whole has none.
    pub fn observed(&self, limits: &EvidenceLimits) -> Vec<Segment> {
        let Ok(observation) = Observation::new(self.text(), &self.descriptor, limits) else {
            return Vec::new();
        };
        let segment = |kind, [start, end]: [usize; 2]| Segment {
            kind,
            range: start..end,
        };
        vec![
            segment(SegmentKind::Head, observation.head_range),
            segment(SegmentKind::Omitted, observation.omitted_range),
            segment(SegmentKind::Tail, observation.tail_range),
        ]
    }

    /// Reads a range that a person typed as two numbers.
    ///
    /// # Errors
    ///
    /// What the contract says to it.
    pub fn parse_range(&self, start: &str, end: &str) -> Result<Range<usize>, String> {
        let id = self.descriptor.artifact_id;
        let path = RangePath::render(id, 0, 0).replace("0-0", "");
        let path = format!("{path}{}-{}", start.trim(), end.trim());
        let checked = RangePath::parse(&path)
            .and_then(|path| path.check(self.descriptor.byte_count, usize::MAX))
            .map_err(|refusal| refusal.to_string())?;
        Ok(checked.start..checked.end)
    }
}

impl Playground {
    /// Opens the store and keeps the list fresh while other tabs change it.
    pub fn open_storage(self) {
        spawn_local(async move {
            match storage::open().await {
                Ok(opened) => {
                    self.not_kept.set(opened.not_kept);
                    self.storage.set(Some(opened.artifacts));
                    self.refresh_artifacts().await;
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
        let Some(artifacts) = self.storage.get_untracked() else {
            return;
        };
        let list = async {
            let mut descriptors = Vec::new();
            for id in artifacts.list().await? {
                match artifacts.describe(id).await {
                    Ok(descriptor) => descriptors.push(descriptor),
                    // Another tab deleted it in between.
                    Err(ArtifactError::Unknown) => {}
                    Err(ArtifactError::Store(error)) => return Err(error.into()),
                    // Its record was altered: it is listed, and refuses when it is opened.
                    Err(_) => descriptors.push(ArtifactDescriptor::new(id.sha256(), 0)),
                }
            }
            Ok::<_, ArtifactError>(descriptors)
        };
        match list.await {
            Ok(descriptors) => {
                let gone = |id: ArtifactId| descriptors.iter().all(|d| d.artifact_id != id);
                if self.selected.get_untracked().is_some_and(gone) {
                    self.look_away();
                }
                if self.artifacts.with_untracked(|shown| *shown != descriptors) {
                    self.artifacts.set(descriptors);
                }
            }
            Err(error) => self.notify(format!("The artifacts cannot be listed: {error}.")),
        }
    }

    /// Turns to an artifact, and to some of its bytes.
    pub fn look_at(self, id: ArtifactId, selection: Option<(usize, usize)>) {
        let is_ready = self
            .loaded
            .with_untracked(|loaded| matches!(loaded, Loaded::Ready(artifact) if artifact.descriptor.artifact_id == id));
        self.selection.set(selection);
        if is_ready {
            return;
        }
        self.read_again(id);
    }

    /// Reads an artifact from the store, whatever is shown of it.
    pub fn read_again(self, id: ArtifactId) {
        let Some(artifacts) = self.storage.get_untracked() else {
            return;
        };
        self.selected.set(Some(id));
        self.loaded.set(Loaded::Reading);
        spawn_local(async move {
            let read = artifacts.read(id).await;
            if self.selected.get_untracked() != Some(id) {
                return;
            }
            self.loaded.set(match read {
                Ok((descriptor, bytes)) => Loaded::Ready(Arc::new(Artifact { descriptor, bytes })),
                Err(error) => Loaded::Failed(explain(&error)),
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
        let Some(artifacts) = self.storage.get_untracked() else {
            return;
        };
        spawn_local(async move {
            let deleted = match deletion {
                Deletion::One(id) => artifacts.delete(id).await,
                Deletion::All => artifacts.delete_all().await,
            };
            if let Err(error) = deleted {
                self.notify(format!("Nothing was deleted: {error}."));
            }
            self.artifacts_changed().await;
        });
    }

    /// The ranges of an artifact that the run has read so far.
    pub fn ranges_read(self, id: ArtifactId) -> Vec<Segment> {
        self.steps.with(|steps| {
            steps
                .iter()
                .filter_map(|step| match step.evidence {
                    Evidence::Range(of, start, end) if of == id => Some(Segment {
                        kind: SegmentKind::Read(step.number),
                        range: start..end,
                    }),
                    _ => None,
                })
                .collect()
        })
    }
}

fn explain(error: &ArtifactError) -> String {
    match error {
        ArtifactError::DigestMismatch | ArtifactError::Unreadable | ArtifactError::Conflict => {
            format!(
                "{}. The stored bytes were changed or lost outside of this page, so none of them \
                 are shown. Delete the artifact and run again to store it anew.",
                capitalized(&error.to_string())
            )
        }
        ArtifactError::Store(_) | ArtifactError::Unknown => {
            format!("{}.", capitalized(&error.to_string()))
        }
    }
}

fn capitalized(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}
