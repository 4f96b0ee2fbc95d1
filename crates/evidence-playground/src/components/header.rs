use leptos::prelude::*;

use crate::browser;

/// What the page is, in two sentences, and the choice of a theme.
#[component]
pub fn Header() -> impl IntoView {
    let dark = RwSignal::new(browser::is_dark());
    let toggle = move |_| {
        dark.update(|dark| *dark = !*dark);
        browser::set_dark(dark.get_untracked());
    };
    view! {
        <header class="page-header">
            <h1>"bounded-evidence"</h1>
            <button type="button" class="quiet" on:click=toggle>
                {move || if dark.get() { "Light theme" } else { "Dark theme" }}
            </button>
            <p class="lead">
                "A build log can be far larger than what a model should read, and cutting it loses \
                 the line that matters. Here a scripted agent finds that line in a real log: the \
                 exact bytes stay in your browser under their SHA-256, the model sees a bounded \
                 observation and asks for the bytes it needs. "
                <a href="docs/index.html">"How it works, and how to use it"</a>
            </p>
        </header>
    }
}
