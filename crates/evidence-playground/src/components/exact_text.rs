use leptos::prelude::*;

use crate::text::counted;

/// More is shown on request: a browser takes its time to lay out megabytes.
const SHOWN_AT_FIRST: usize = 32 * 1024;

/// More bytes or lines than these may be higher than their region, where it is narrow: it scrolls then.
const MAX_UNSCROLLED_BYTES: usize = 512;
const MAX_UNSCROLLED_LINES: usize = 16;

/// The `tabindex` of a region that shows `text`: one that may scroll has to be reached by the keyboard, and
/// the others would only be in its way.
pub fn tab_stop(text: &str) -> Option<&'static str> {
    let may_scroll =
        text.len() > MAX_UNSCROLLED_BYTES || text.lines().nth(MAX_UNSCROLLED_LINES).is_some();
    may_scroll.then_some("0")
}

/// Text exactly as it is: always a text node, white space preserved, whatever it contains.
#[component]
pub fn ExactText(
    /// What the text is, for screen readers, which list it under this name among all others.
    label: String,
    /// The text.
    text: String,
) -> impl IntoView {
    let tabindex = tab_stop(&text);
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
    view! {
        <pre class="exact" role="region" aria-label=label tabindex=tabindex>
            {shown}
        </pre>
        <Show when=move || !all.get()>
            <button type="button" class="quiet" on:click=move |_| all.set(true)>
                {format!("Show {} more", counted(hidden_bytes, "byte"))}
            </button>
        </Show>
    }
}
