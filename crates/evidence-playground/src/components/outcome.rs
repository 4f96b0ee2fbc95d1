use evidence_agent::StopReason;
use leptos::prelude::*;

use crate::live::Decider;
use crate::runner::explain;
use crate::state::Playground;

/// How the run ended, and what to do about it.
#[component]
pub fn Outcome() -> impl IntoView {
    let page = Playground::of_page();
    let ended = move || {
        let outcome = page.outcome.get()?;
        let sentence = explain(&outcome, page.run_decider.get());
        let kind = if outcome.reason == StopReason::Completed {
            "completed"
        } else {
            "stopped"
        };
        let can_be_kept =
            page.run_decider.get() == Decider::Model && !page.steps.with(Vec::is_empty);
        Some(view! {
            <div class="outcome" data-kind=kind>
                <p>{sentence}</p>
                {outcome.r#final.map(|text| view! { <p class="final">{text}</p> })}
                {can_be_kept
                    .then(|| {
                        view! {
                            <div class="row">
                                <button type="button" on:click=move |_| page.keep_as_script()>
                                    "Keep as a script"
                                </button>
                                <button type="button" on:click=move |_| page.download_as_script()>
                                    "Download the script"
                                </button>
                            </div>
                        }
                    })}
            </div>
        })
    };
    view! { {ended} }
}
