use leptos::html;
use leptos::prelude::*;
use web_sys::{ScrollIntoViewOptions, ScrollLogicalPosition};

use crate::artifacts::ArtifactKey;
use crate::state::{Deletion, Playground};
use crate::text::counted;

/// Asks before anything is deleted.
#[component]
pub fn DeletionDialog() -> impl IntoView {
    let page = Playground::of_page();
    let dialog = NodeRef::<html::Dialog>::new();
    let nearest = ScrollIntoViewOptions::new();
    nearest.set_block(ScrollLogicalPosition::Nearest);
    Effect::new(move || {
        let Some(dialog) = dialog.get() else {
            return;
        };
        if page.deletion.get().is_some() {
            // It fails where it is open already, which is what is wanted.
            let _ = dialog.show_modal();
            // Inside of another page it may stand outside of what is seen of this one.
            dialog.scroll_into_view_with_scroll_into_view_options(&nearest);
        } else {
            dialog.close();
        }
    });
    let question = move || match page.deletion.get() {
        Some(Deletion::One(ArtifactKey { job: None, .. })) => {
            "Delete this artifact and its bytes?".to_owned()
        }
        Some(Deletion::One(ArtifactKey { job: Some(_), .. })) => {
            "Delete all tool output of the run that this belongs to?".to_owned()
        }
        Some(Deletion::All) => format!("Delete {}?", everything(page)),
        Some(Deletion::Capture(..)) => {
            "Delete what was captured of this process? What the model saw of it stays.".to_owned()
        }
        None => String::new(),
    };
    let consequence = move || {
        let ends_a_process = page.deletion.with(|deletion| match deletion {
            Some(Deletion::All) => page.process_runs(|_| true),
            Some(Deletion::One(ArtifactKey { job: Some(job), .. })) => {
                page.process_runs(|process| process.job == *job)
            }
            _ => false,
        });
        if ends_a_process {
            "A process runs: it is ended. Nothing can be brought back; a new run stores it anew."
        } else {
            "This cannot be undone; a new run stores it anew."
        }
    };
    let confirm = move |_| {
        if let Some(deletion) = page.deletion.get_untracked() {
            page.delete(deletion);
        }
        page.deletion.set(None);
    };
    view! {
        <dialog
            node_ref=dialog
            aria-labelledby="deletion-question"
            on:close=move |_| page.deletion.set(None)
        >
            <p id="deletion-question">{question}</p>
            <p class="hint">{consequence}</p>
            <div class="row">
                <button type="button" class="danger" on:click=confirm>
                    "Delete"
                </button>
                <button type="button" on:click=move |_| page.deletion.set(None)>
                    "Keep"
                </button>
            </div>
        </dialog>
    }
}

/// All that is kept, in words.
fn everything(page: Playground) -> String {
    let artifacts = counted(page.artifacts.with(Vec::len), "artifact");
    match page.captures.with(Vec::len) {
        0 => format!("{artifacts} and their bytes"),
        captures => format!(
            "{artifacts} and {} of processes, with their bytes",
            counted(captures, "capture")
        ),
    }
}
