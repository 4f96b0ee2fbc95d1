use std::sync::Arc;

use leptos::prelude::*;

use super::byte_map::ByteMap;
use super::byte_view::ByteView;
use super::digest_check::DigestCheck;
use crate::artifacts::{Artifact, Loaded};
use crate::browser;
use crate::state::{Deletion, Playground};
use crate::text::counted;

/// The artifact that is looked at.
#[component]
pub fn ArtifactView() -> impl IntoView {
    let page = Playground::of_page();
    let shown = move || match page.loaded.get() {
        Loaded::Nothing => ().into_any(),
        Loaded::Reading => view! { <p class="hint">"Reading and verifying…"</p> }.into_any(),
        Loaded::Failed(sentence) => view! {
            <div class="artifact">
                <p class="problem" role="alert">
                    {sentence}
                </p>
                <DeleteButton />
            </div>
        }
        .into_any(),
        Loaded::Ready(artifact) => view! { <Verified artifact /> }.into_any(),
    };
    view! { {shown} }
}

#[component]
fn Verified(artifact: Arc<Artifact>) -> impl IntoView {
    let page = Playground::of_page();
    let descriptor = artifact.descriptor;
    let size = artifact.bytes.len();
    let download = {
        let artifact = Arc::clone(&artifact);
        move |_| {
            let name = format!("{}.txt", artifact.descriptor.artifact_id);
            if let Err(error) = browser::download(&name, &artifact.bytes) {
                page.notify(error);
            }
        }
    };
    view! {
        <div class="artifact">
            <ByteMap artifact=Arc::clone(&artifact) />
            <ByteView artifact />
            <dl class="identity">
                <div>
                    <dt>"Size"</dt>
                    <dd>{counted(size, "byte")}</dd>
                </div>
                <div>
                    <dt>"SHA-256"</dt>
                    <dd>
                        <code class="digest">{descriptor.sha256.to_string()}</code>
                    </dd>
                </div>
            </dl>
            <DigestCheck id=descriptor.artifact_id />
            <div class="row">
                <button type="button" on:click=download>
                    "Download the exact bytes"
                </button>
                <DeleteButton />
            </div>
        </div>
    }
}

#[component]
fn DeleteButton() -> impl IntoView {
    let page = Playground::of_page();
    let delete = move |_| {
        page.deletion
            .set(page.selected.get_untracked().map(Deletion::One));
    };
    view! {
        <button type="button" class="quiet" on:click=delete>
            "Delete…"
        </button>
    }
}
