use leptos::prelude::*;

use crate::artifacts::Kept;
use crate::state::Playground;
use crate::text::counted;

/// How much of a digest tells artifacts apart at a glance.
const SHORT_DIGEST: usize = 12;

/// Every artifact that is kept.
#[component]
pub fn ArtifactList() -> impl IntoView {
    let page = Playground::of_page();
    view! {
        <ul class="artifact-list" aria-label="Kept artifacts">
            <For
                each=move || page.artifacts.get()
                key=|kept| kept.key.clone()
                children=move |kept| artifact_row(page, kept)
            />
        </ul>
    }
}

fn artifact_row(page: Playground, kept: Kept) -> impl IntoView {
    let Kept {
        key, byte_count, ..
    } = kept;
    let kind = if key.job.is_some() {
        "tool result"
    } else {
        "text"
    };
    let digest = key.sha256.to_string();
    let size = usize::try_from(byte_count).unwrap_or(usize::MAX);
    let is_selected = {
        let key = key.clone();
        move || {
            page.selected
                .with(|selected| selected.as_ref() == Some(&key))
        }
    };
    view! {
        <li>
            <button
                type="button"
                class="artifact-choice"
                aria-pressed=move || is_selected().to_string()
                on:click=move |_| page.look_at(key.clone(), None)
            >
                <code>{digest[..SHORT_DIGEST].to_owned()}"…"</code>
                <span class="hint">{kind}</span>
                <span class="figure">{counted(size, "byte")}</span>
            </button>
        </li>
    }
}
