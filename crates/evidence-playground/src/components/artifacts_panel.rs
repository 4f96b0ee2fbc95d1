use leptos::prelude::*;

use super::artifact_list::ArtifactList;
use super::artifact_view::ArtifactView;
use super::captures::Captures;
use super::persistence::Persistence;
use super::processes::Processes;
use crate::state::{Deletion, Playground};

/// The artifacts, and the one that is looked at.
#[component]
pub fn ArtifactsPanel() -> impl IntoView {
    let page = Playground::of_page();
    let none = move || page.artifacts.with(Vec::is_empty) && page.captures.with(Vec::is_empty);
    view! {
        <section class="panel" id="artifacts" aria-labelledby="artifacts-title">
            <div class="panel-head">
                <h2 id="artifacts-title" tabindex="-1">
                    "Artifacts"
                </h2>
                <button
                    type="button"
                    class="quiet"
                    disabled=none
                    on:click=move |_| page.deletion.set(Some(Deletion::All))
                >
                    "Delete all…"
                </button>
            </div>
            <Processes />
            <Show when=move || none() && page.processes.with(Vec::is_empty)>
                <p class="empty">
                    "Every tool result that is too large for the prompt is kept here, byte for byte."
                </p>
            </Show>
            <ArtifactList />
            <Captures />
            <Persistence />
            <ArtifactView />
        </section>
    }
}
