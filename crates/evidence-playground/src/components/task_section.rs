use leptos::prelude::*;

use crate::state::Playground;

/// What the model is asked.
#[component]
pub fn TaskSection() -> impl IntoView {
    let page = Playground::of_page();
    view! {
        <div class="field">
            <label for="task">"Task"</label>
            <textarea
                id="task"
                rows="3"
                prop:value=move || page.task.get()
                on:input:target=move |event| page.task.set(event.target().value())
            />
        </div>
    }
}
