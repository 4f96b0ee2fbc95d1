use evidence_core::ArtifactDescriptor;
use leptos::prelude::*;

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
                key=|descriptor| descriptor.artifact_id
                children=move |descriptor| artifact_row(page, descriptor)
            />
        </ul>
    }
}

fn artifact_row(page: Playground, descriptor: ArtifactDescriptor) -> impl IntoView {
    let id = descriptor.artifact_id;
    let digest = descriptor.sha256.to_string();
    let size = usize::try_from(descriptor.byte_count).unwrap_or(usize::MAX);
    view! {
        <li>
            <button
                type="button"
                class="artifact-choice"
                aria-pressed=move || (page.selected.get() == Some(id)).to_string()
                on:click=move |_| page.look_at(id, None)
            >
                <code>{digest[..SHORT_DIGEST].to_owned()}"…"</code>
                <span class="figure">{counted(size, "byte")}</span>
            </button>
        </li>
    }
}
