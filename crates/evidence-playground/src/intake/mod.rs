//! How files come into the workspace: dropped, chosen, pasted, or as a sample.

mod candidates;
mod rules;

use evidence_agent::workspace::MemoryTree;
use js_sys::{ArrayBuffer, JsString, Uint8Array};
use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{DataTransfer, DomException, File, FileList};

use self::candidates::Candidate;
pub use self::candidates::{of_file_list, of_transfer};
use self::rules::{Refusal, check_bytes, check_path, check_size};
use crate::browser;
use crate::parameters::Parameters;
use crate::samples::{self, RecordedSample, Sample};
use crate::script;
use crate::state::{Contract, Playground};

/// A user who drops a whole disk is not told about every file of it.
const MAX_REFUSALS_SHOWN: usize = 4;

const FIRST_TASK: &str = "Find out what went wrong.";

/// The text of a file, checked.
struct Admitted {
    path: String,
    text: String,
}

impl Playground {
    /// Fetches the list of samples and loads the one that the page was asked for, or else the first;
    /// then the script that it was asked for.
    pub fn load_first_sample(self, parameters: Parameters) {
        spawn_local(async move {
            match samples::recordings().await {
                Ok(list) => self.recordings.set(list),
                Err(error) => self.notify(error),
            }
            match samples::list().await {
                Ok(list) => {
                    let recorded = self
                        .recordings
                        .with_untracked(|recordings| parameters.recording(recordings));
                    let first = match parameters.sample(&list) {
                        _ if recorded.is_some() => None,
                        Ok(first) => first,
                        Err(error) => {
                            self.notify(error);
                            None
                        }
                    };
                    self.samples.set(list);
                    // A file may have been dropped in the meantime.
                    let is_empty = self
                        .files
                        .with_untracked(|files| files.files().next().is_none());
                    match (recorded, first) {
                        (Some(recorded), _) if is_empty => self.load_recording(recorded).await,
                        (None, Some(first)) if is_empty => self.load_sample(first).await,
                        _ => return,
                    }
                    if let Some(script) = parameters.script() {
                        self.script.set(script.to_owned());
                    }
                }
                Err(error) => self.notify(error),
            }
        });
    }

    /// Puts a sample in the place of everything that is there.
    pub async fn load_sample(self, sample: Sample) {
        match samples::fetch(&sample).await {
            Ok(bytes) => {
                self.reset();
                self.recording.set(None);
                self.files
                    .set([(sample.file.as_str(), bytes)].into_iter().collect());
                self.task.set(sample.task);
                self.write_script(&sample.file, &sample.answer);
                self.sample.set(Some(sample.file));
            }
            Err(error) => self.notify(error),
        }
    }

    /// Puts a recorded command in the place of everything that is there.
    pub async fn load_recording(self, sample: RecordedSample) {
        match samples::fetch_recording(&sample).await {
            Ok(recording) => {
                self.reset();
                self.files.set(MemoryTree::new());
                // Processes are a part of contract B alone.
                self.contract.set(Contract::ToolOutput);
                self.task.set(sample.task);
                self.write_following(&recording.argv, &sample.answer);
                self.recording.set(Some(recording));
                self.sample.set(Some(sample.file));
            }
            Err(error) => self.notify(error),
        }
    }

    /// Writes a script that follows a command and finds a text in its standard error.
    pub fn write_following(self, argv: &[String], needle: &str) {
        let written = script::following(argv, needle);
        self.needle.set(needle.to_owned());
        self.written_script.set(written.clone());
        self.script.set(written);
    }

    /// Takes what was dropped.
    pub fn take_transfer(self, transfer: &DataTransfer) {
        // The browser empties the transfer when the event is over: its entries are taken now.
        let candidates = of_transfer(transfer);
        spawn_local(async move {
            match candidates.await {
                Ok(candidates) => self.admit(candidates).await,
                Err(error) => self.notify(error),
            }
        });
    }

    /// Takes files that were chosen.
    pub fn take_files(self, files: &FileList) {
        let candidates = of_file_list(files);
        spawn_local(self.admit(candidates));
    }

    /// Takes text from the clipboard, exactly.
    pub fn take_text(self, text: &JsString) {
        if !text.is_well_formed() {
            self.notify(
                "The pasted text was left out: it holds half a UTF-16 surrogate pair, which no \
                 UTF-8 bytes stand for.",
            );
            return;
        }
        let text = String::from(text);
        if text.is_empty() {
            self.notify("There is no text in the clipboard.");
            return;
        }
        let number = self.files.with_untracked(|files| {
            let free = |number: &usize| files.files().all(|(path, _)| path != pasted(*number));
            // One number more than there are files: one of them is free.
            (1..=files.files().count() + 1).find(free).unwrap_or(1)
        });
        let path = pasted(number);
        match check_size(text.len(), self.file_bytes()) {
            Ok(()) => self.accept(vec![Admitted { path, text }]),
            Err(refusal) => self.notify(refusal.sentence(&path)),
        }
    }

    /// Takes a file away again.
    pub fn remove_file(self, path: &str) {
        self.files.update(|files| files.remove(path));
    }

    /// Writes a script that reads a file and finds a text in it.
    pub fn write_script(self, path: &str, needle: &str) {
        let text = self.files.with_untracked(|files| {
            let file = files.files().find(|(name, _)| *name == path);
            file.and_then(|(_, bytes)| String::from_utf8(bytes.to_vec()).ok())
        });
        let written = script::reading(
            self.contract.get_untracked(),
            path,
            &text.unwrap_or_default(),
            Some(needle).filter(|needle| !needle.is_empty()),
        );
        self.needle.set(needle.to_owned());
        self.written_script.set(written.clone());
        self.script.set(written);
    }

    fn file_bytes(self) -> usize {
        self.files
            .with_untracked(|files| files.files().map(|(_, bytes)| bytes.len()).sum())
    }

    async fn admit(self, candidates: Vec<Candidate>) {
        let mut admitted = Vec::new();
        let mut refused = Vec::new();
        let mut total_bytes = if self.sample.get_untracked().is_some() {
            // The sample makes room.
            0
        } else {
            self.file_bytes()
        };
        for Candidate { path, file } in candidates {
            match read(&path, &file, total_bytes).await {
                Ok(text) => {
                    total_bytes += text.len();
                    admitted.push(Admitted { path, text });
                }
                Err(refusal) => refused.push(refusal.sentence(&path)),
            }
        }
        let more = refused.len().saturating_sub(MAX_REFUSALS_SHOWN);
        for sentence in refused.into_iter().take(MAX_REFUSALS_SHOWN) {
            self.notify(sentence);
        }
        if more > 0 {
            self.notify(format!("{more} more files were left out."));
        }
        if !admitted.is_empty() {
            self.accept(admitted);
        }
    }

    /// Puts checked files beside those that are there, in the place of a sample.
    fn accept(self, admitted: Vec<Admitted>) {
        let replaces_sample = self.sample.get_untracked().is_some();
        let script_is_ours = self.script.get_untracked() == self.written_script.get_untracked();
        self.reset();
        if replaces_sample {
            self.sample.set(None);
            self.recording.set(None);
            self.files.set(MemoryTree::new());
            self.task.set(FIRST_TASK.to_owned());
        }
        if let (true, Some(first)) = (script_is_ours, admitted.first()) {
            let needle = script::suspect(&first.text).unwrap_or_default();
            self.write_script(&first.path, needle);
        }
        self.files.update(|files| {
            for Admitted { path, text } in admitted {
                files.insert(path, text);
            }
        });
    }
}

fn pasted(number: usize) -> String {
    format!("pasted-{number}.txt")
}

/// Reads a file that is allowed to be read.
async fn read(path: &str, file: &File, total_bytes: usize) -> Result<String, Refusal> {
    check_path(path)?;
    // A size is a number of bytes that JavaScript holds exactly.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let size = file.size() as usize;
    check_size(size, total_bytes)?;
    let buffer = JsFuture::from(file.array_buffer()).await.map_err(|error| {
        // This is how browsers say that a file is not the one that was chosen any more.
        let changed = error.dyn_ref::<DomException>().is_some_and(|error| {
            error.name() == "NotReadableError" || error.name() == "NotFoundError"
        });
        if changed {
            Refusal::Changed
        } else {
            Refusal::Unreadable(browser::reason(&error))
        }
    })?;
    let bytes = Uint8Array::new(&buffer.unchecked_into::<ArrayBuffer>()).to_vec();
    if bytes.len() != size {
        return Err(Refusal::Changed);
    }
    check_bytes(bytes)
}
