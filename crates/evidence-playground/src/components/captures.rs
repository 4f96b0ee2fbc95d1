use leptos::prelude::*;

use crate::artifacts::KeptCapture;
use crate::browser;
use crate::state::{Deletion, Playground};
use crate::text::counted;

/// What was captured of processes, how long it is kept, and how much everything uses.
#[component]
pub fn Captures() -> impl IntoView {
    let page = Playground::of_page();
    let any = move || !page.captures.with(Vec::is_empty);
    view! {
        <Show when=any>
            <h3>"Captured output of processes"</h3>
            <ul class="captures" aria-label="Captured output of processes">
                <For
                    each=move || page.captures.get()
                    key=|capture| (capture.job.clone(), capture.process_id.clone())
                    children=move |capture| capture_row(page, capture)
                />
            </ul>
        </Show>
        <StorageUsed />
    }
}

fn capture_row(page: Playground, capture: KeptCapture) -> impl IntoView {
    let KeptCapture {
        job,
        process_id,
        byte_count,
        expires_at_ms,
    } = capture;
    let name = process_id.to_string();
    let until = browser::local_time(expires_at_ms);
    let size = usize::try_from(byte_count).unwrap_or(usize::MAX);
    view! {
        <li>
            <code>{name.clone()}</code>
            <span class="figure">{counted(size, "byte")}</span>
            <span class="hint">{format!("kept until {until}")}</span>
            <button
                type="button"
                class="quiet"
                aria-label=format!("Delete the captured output of {name}")
                on:click=move |_| {
                    page.deletion.set(Some(Deletion::Capture(job.clone(), process_id.clone())));
                }
            >
                "Delete…"
            </button>
        </li>
    }
}

/// The bytes of everything that is kept, each once.
#[component]
fn StorageUsed() -> impl IntoView {
    let page = Playground::of_page();
    let used = move || {
        let artifacts = page.artifacts.with(|artifacts| {
            let bytes = artifacts.iter().map(|artifact| artifact.byte_count);
            (artifacts.len(), bytes.sum::<u64>())
        });
        let captures = page.captures.with(|captures| {
            let bytes = captures.iter().map(|capture| capture.byte_count);
            (captures.len(), bytes.sum::<u64>())
        });
        if artifacts.0 + captures.0 == 0 {
            return None;
        }
        let bytes = usize::try_from(artifacts.1 + captures.1).unwrap_or(usize::MAX);
        let of = match captures.0 {
            0 => counted(artifacts.0, "artifact"),
            count => format!(
                "{} and {}",
                counted(artifacts.0, "artifact"),
                counted(count, "capture")
            ),
        };
        Some(format!("Storage used: {} in {of}.", counted(bytes, "byte")))
    };
    view! { <p class="hint storage-used">{used}</p> }
}
