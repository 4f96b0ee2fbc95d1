use leptos::prelude::*;

use crate::limits::{Limit, LimitInputs, LimitProblem};
use crate::state::{Contract, Playground};

/// The limits, each with its meaning, and the rule that they break.
#[component]
pub fn LimitsSection() -> impl IntoView {
    let page = Playground::of_page();
    let problems = Memo::new(move |_| {
        page.limits
            .with(|limits| limits.check(page.contract.get()))
            .err()
            .unwrap_or_default()
    });
    view! {
        <details class="field" open>
            <summary>"Limits"</summary>
            <Show when=move || page.contract.get() == Contract::ToolOutput>
                <p class="hint">
                    "Contract B sets its own: a tool result of at most 16 KiB, a read of at most 8 KiB, \
                     16 MiB a result and 128 MiB a run in the store."
                </p>
            </Show>
            <div class="limits">
                <Show when=move || page.contract.get() == Contract::RangePaths>
                    {Limit::EVIDENCE
                        .into_iter()
                        .map(|limit| limit_input(page, limit, problems))
                        .collect_view()}
                </Show>
                {Limit::AGENT
                    .into_iter()
                    .map(|limit| limit_input(page, limit, problems))
                    .collect_view()}
            </div>
            <div id="limit-problems" role="alert">
                {move || {
                    problems
                        .get()
                        .into_iter()
                        .map(|problem| view! { <p class="problem">{problem.message} "."</p> })
                        .collect_view()
                }}
            </div>
            <button
                type="button"
                class="quiet"
                on:click=move |_| page.limits.set(LimitInputs::default())
            >
                "Restore the defaults"
            </button>
        </details>
    }
}

fn limit_input(page: Playground, limit: Limit, problems: Memo<Vec<LimitProblem>>) -> impl IntoView {
    let invalid = move || {
        problems.with(|problems| {
            problems
                .iter()
                .any(|problem| problem.limits.contains(&limit))
        })
    };
    view! {
        <label class="limit">
            <span class="limit-name">{limit.name()}</span>
            <input
                name=limit.name()
                inputmode="numeric"
                autocomplete="off"
                aria-describedby="limit-problems"
                aria-invalid=move || invalid().to_string()
                prop:value=move || page.limits.with(|inputs| inputs.get(limit).to_owned())
                on:input:target=move |event| {
                    page.limits.update(|inputs| inputs.set(limit, event.target().value()));
                }
            />
            <span class="hint">{limit.meaning()}</span>
        </label>
    }
}
