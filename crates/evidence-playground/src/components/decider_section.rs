use leptos::prelude::*;

use super::choice::Choice;
use crate::live::Decider;
use crate::state::Playground;

/// What writes the replies: both drive the same timeline.
#[component]
pub fn DeciderSection() -> impl IntoView {
    let page = Playground::of_page();
    let is = move |decider| Signal::derive(move || page.live.decider.get() == decider);
    view! {
        <fieldset class="field contracts">
            <legend>"Who decides"</legend>
            <Choice
                group="decider"
                value="script"
                name="A script"
                meaning="Prepared replies stand for a model: nothing to download."
                is_chosen=is(Decider::Script)
                choose=move || page.choose_decider(Decider::Script)
            />
            <Choice
                group="decider"
                value="model"
                name="A model, live"
                meaning="A Qwen or Llama checkpoint runs in this browser. Choosing it loads the program that \
                         runs models, about 2 MB from this site."
                is_chosen=is(Decider::Model)
                choose=move || page.choose_decider(Decider::Model)
            />
        </fieldset>
    }
}
