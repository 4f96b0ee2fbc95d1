use leptos::prelude::*;

use super::script_section::write_script;
use crate::state::{Contract, Playground};

/// What large results become in the next run.
#[component]
pub fn ContractSection() -> impl IntoView {
    let page = Playground::of_page();
    view! {
        <fieldset class="field contracts">
            <legend>"What a large tool result becomes"</legend>
            {choice(
                page,
                Contract::RangePaths,
                "range-paths",
                "A bounded observation",
                "Contract A: at most 512 bytes with previews; the model reads exact ranges by paths.",
            )}
            {choice(
                page,
                Contract::ToolOutput,
                "tool-output",
                "A bounded tool result",
                "Contract B: structured, at most 16 KiB with an excerpt; the model reads by cursor.",
            )}
        </fieldset>
    }
}

fn choice(
    page: Playground,
    contract: Contract,
    value: &'static str,
    name: &'static str,
    meaning: &'static str,
) -> impl IntoView {
    let meaning_id = format!("{value}-meaning");
    view! {
        <label class="contract">
            <input
                type="radio"
                name="contract"
                value=value
                aria-describedby=meaning_id.clone()
                prop:checked=move || page.contract.get() == contract
                on:change=move |_| choose(page, contract)
            />
            <span>{name}</span>
            <span class="hint" id=meaning_id>
                {meaning}
            </span>
        </label>
    }
}

/// Changes the contract. A script that nobody has changed is written anew in its words.
fn choose(page: Playground, contract: Contract) {
    page.reset();
    page.contract.set(contract);
    if contract == Contract::RangePaths && page.recording.with_untracked(Option::is_some) {
        page.notify(
            "Processes belong to contract B. Choose a log, or the bounded tool result again.",
        );
        return;
    }
    let untouched = page.script.get_untracked() == page.written_script.get_untracked();
    if untouched && !page.script.with_untracked(String::is_empty) {
        write_script(page);
    }
}
