use leptos::prelude::*;

use crate::live::Decider;
use crate::state::Playground;

/// What writes the replies: both drive the same timeline.
#[component]
pub fn DeciderSection() -> impl IntoView {
    let page = Playground::of_page();
    view! {
        <fieldset class="field contracts">
            <legend>"Who decides"</legend>
            {choice(
                page,
                Decider::Script,
                "script",
                "A script",
                "Prepared replies stand for a model: nothing to download.",
            )}
            {choice(
                page,
                Decider::Model,
                "model",
                "A model, live",
                "A Qwen or Llama checkpoint runs in this browser. Choosing it loads the program that \
                 runs models, about 2 MB from this site.",
            )}
        </fieldset>
    }
}

fn choice(
    page: Playground,
    decider: Decider,
    value: &'static str,
    name: &'static str,
    meaning: &'static str,
) -> impl IntoView {
    let meaning_id = format!("{value}-meaning");
    view! {
        <label class="contract">
            <input
                type="radio"
                name="decider"
                value=value
                aria-describedby=meaning_id.clone()
                prop:checked=move || page.live.decider.get() == decider
                on:change=move |_| page.choose_decider(decider)
            />
            <span>{name}</span>
            <span class="hint" id=meaning_id>
                {meaning}
            </span>
        </label>
    }
}
