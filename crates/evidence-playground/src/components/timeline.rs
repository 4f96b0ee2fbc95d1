use leptos::prelude::*;

use super::exact_text::ExactText;
use super::step_entry::StepEntry;
use crate::state::Playground;
use crate::text::counted;

/// The steps so far.
#[component]
pub fn Timeline() -> impl IntoView {
    let page = Playground::of_page();
    let empty = move || page.steps.with(Vec::is_empty);
    view! {
        <Show when=move || {
            empty() && page.outcome.with(Option::is_none) && page.live.reply.with(Option::is_none)
        }>
            <p class="empty">
                "Press Run to watch the model work, or Step to go one reply at a time."
            </p>
        </Show>
        {move || {
            let opening = page.opening.get();
            (!opening.is_empty())
                .then(|| {
                    let byte_count = opening.iter().map(String::len).sum();
                    view! {
                        <details class="opening">
                            <summary>
                                "Before the first step: instructions and task"
                                <span class="figure">{counted(byte_count, "byte")}</span>
                            </summary>
                            {opening
                                .into_iter()
                                .zip(1..)
                                .map(|(text, number)| {
                                    let label = format!("What the model reads first, part {number}");
                                    view! { <ExactText label text /> }
                                })
                                .collect_view()}
                        </details>
                    }
                })
        }}
        <ol class="timeline" aria-label="Steps">
            <For
                each=move || page.steps.get()
                key=|step| step.number
                children=move |step| view! { <StepEntry step /> }
            />
        </ol>
    }
}
