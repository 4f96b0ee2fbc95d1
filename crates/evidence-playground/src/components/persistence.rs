use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::state::Playground;
use crate::storage;

/// Says how long the artifacts live, and lets the user ask the browser for more.
#[component]
pub fn Persistence() -> impl IntoView {
    let page = Playground::of_page();
    let granted = RwSignal::new(None::<bool>);
    let is_kept = move || page.not_kept.with(Option::is_none);
    let promise = move || match granted.get() {
        None => "Kept in this browser, which may delete them when space runs short.",
        Some(true) => "Kept in this browser until you delete them.",
        Some(false) => {
            "Kept in this browser, which did not promise to keep them when space runs short."
        }
    };
    view! {
        <Show when=move || is_kept() && !page.artifacts.with(Vec::is_empty)>
            <p class="hint">
                <span role="status">{promise}</span>
                " "
                <Show when=move || granted.get().is_none()>
                    <button
                        type="button"
                        class="quiet inline"
                        on:click=move |_| {
                            spawn_local(async move { granted.set(Some(storage::persist().await)) });
                        }
                    >
                        "Ask it not to"
                    </button>
                </Show>
            </p>
        </Show>
    }
}
