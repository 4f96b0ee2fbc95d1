use leptos::prelude::*;

use crate::state::Playground;

/// What went wrong or must be known, above everything else.
#[component]
pub fn Notices() -> impl IntoView {
    let page = Playground::of_page();
    view! {
        <div class="notices" role="region" aria-label="Notices" aria-live="polite">
            {move || {
                page.not_kept
                    .get()
                    .map(|reason| {
                        view! {
                            <p class="notice" data-kind="storage">
                                {format!(
                                    "Artifacts are kept in memory and will not survive a reload: {reason}.",
                                )}
                            </p>
                        }
                    })
            }}
            <For
                each=move || page.notices.get()
                key=|notice| notice.id
                children=move |notice| {
                    view! {
                        <p class="notice">
                            <span>{notice.text}</span>
                            <button
                                type="button"
                                class="quiet"
                                on:click=move |_| page.dismiss(notice.id)
                            >
                                "Dismiss"
                            </button>
                        </p>
                    }
                }
            />
        </div>
    }
}
