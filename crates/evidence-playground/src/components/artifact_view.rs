use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::byte_map::ByteMap;
use super::byte_view::ByteView;
use super::digest_check::DigestCheck;
use crate::artifacts::{Artifact, ArtifactKey, Loaded, Until};
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
    let key = artifact.key.clone();
    let size = artifact.bytes.len();
    let download = {
        let artifact = Arc::clone(&artifact);
        move |_| {
            let name = artifact.key.file_name();
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
                        <code class="digest">{key.sha256.to_string()}</code>
                    </dd>
                </div>
                <Lifetime key=key.clone() />
            </dl>
            {key.address().map(|address| view! { <Address address /> })}
            <DigestCheck key />
            <div class="row">
                <button type="button" on:click=download>
                    "Download the exact bytes"
                </button>
                <DeleteButton />
            </div>
        </div>
    }
}

/// How long the artifact is kept, where it is not until somebody deletes it.
#[component]
fn Lifetime(key: ArtifactKey) -> impl IntoView {
    let page = Playground::of_page();
    let until = move || {
        let kept = page
            .artifacts
            .with(|kept| kept.iter().find(|kept| kept.key == key).cloned())?;
        let until = match kept.until {
            Until::Deleted => return None,
            Until::Ended => "7 days after its run has ended".to_owned(),
            Until::Expired(at_ms) => browser::local_time(at_ms),
        };
        Some(view! {
            <div>
                <dt>"Kept until"</dt>
                <dd>{until}</dd>
            </div>
        })
    };
    view! { {until} }
}

/// Where the page's worker answers with the artifact's bytes, for a person or a program.
#[component]
fn Address(
    /// Beside the page.
    address: String,
) -> impl IntoView {
    let page = Playground::of_page();
    let copied = RwSignal::new(false);
    let whole = browser::address_of(&address);
    let copy = move |_| {
        let whole = whole.clone();
        spawn_local(async move {
            match browser::copy(&whole).await {
                Ok(()) => copied.set(true),
                Err(error) => page.notify(error),
            }
        });
    };
    let hint = if browser::has_worker() {
        "Answered by this page's own worker, in this browser, also without a network."
    } else {
        "This browser runs no worker for this page, or not yet: reload the page to open the address."
    };
    view! {
        <div class="address">
            <a href=address.clone() target="_blank" rel="noopener">
                <code>{address.clone()}</code>
            </a>
            <button type="button" class="quiet inline" on:click=copy>
                {move || if copied.get() { "Copied" } else { "Copy the address" }}
            </button>
            <p class="hint">{hint}</p>
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
