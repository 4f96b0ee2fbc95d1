use leptos::prelude::*;

use crate::text::counted;

/// More is shown on request: a browser takes its time to lay out megabytes.
const SHOWN_AT_FIRST: usize = 32 * 1024;

/// Text exactly as it is: always a text node, white space preserved, whatever it contains.
#[component]
pub fn ExactText(
    /// What the text is, for screen readers, which list it under this name among all others.
    label: String,
    /// The text.
    text: String,
) -> impl IntoView {
    let all = RwSignal::new(text.len() <= SHOWN_AT_FIRST);
    let end = text.floor_char_boundary(SHOWN_AT_FIRST);
    let hidden_bytes = text.len() - end;
    let shown = {
        let text = text.clone();
        move || {
            if all.get() {
                text.clone()
            } else {
                text[..end].to_owned()
            }
        }
    };
    // It scrolls where it is high for its width, which changes: then the keyboard has to reach it.
    view! {
        <pre class="exact" role="region" aria-label=label tabindex="0">
            {shown}
        </pre>
        <Show when=move || !all.get()>
            <button type="button" class="quiet" on:click=move |_| all.set(true)>
                {format!("Show {} more", counted(hidden_bytes, "byte"))}
            </button>
        </Show>
    }
}
