use evidence_agent::StopReason;
use leptos::prelude::*;

use crate::runner::explain;
use crate::state::Playground;

/// How the run ended, and what to do about it.
#[component]
pub fn Outcome() -> impl IntoView {
    let page = Playground::of_page();
    let ended = move || {
        let outcome = page.outcome.get()?;
        let sentence = explain(&outcome);
        let kind = if outcome.reason == StopReason::Completed {
            "completed"
        } else {
            "stopped"
        };
        Some(view! {
            <div class="outcome" data-kind=kind>
                <p>{sentence}</p>
                {outcome.r#final.map(|text| view! { <p class="final">{text}</p> })}
            </div>
        })
    };
    view! { {ended} }
}
