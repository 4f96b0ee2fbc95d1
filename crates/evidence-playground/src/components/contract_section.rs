use leptos::prelude::*;

use super::choice::Choice;
use super::script_section::write_script;
use crate::state::{Contract, Playground};

/// What large results become in the next run.
#[component]
pub fn ContractSection() -> impl IntoView {
    let page = Playground::of_page();
    let is = move |contract| Signal::derive(move || page.contract.get() == contract);
    view! {
        <fieldset class="field contracts">
            <legend>"What a large tool result becomes"</legend>
            <Choice
                group="contract"
                value="range-paths"
                name="A bounded observation"
                meaning="Contract A: at most 512 bytes with previews; the model reads exact ranges by paths."
                is_chosen=is(Contract::RangePaths)
                choose=move || choose(page, Contract::RangePaths)
            />
            <Choice
                group="contract"
                value="tool-output"
                name="A bounded tool result"
                meaning="Contract B: structured, at most 16 KiB with an excerpt; the model reads by cursor."
                is_chosen=is(Contract::ToolOutput)
                choose=move || choose(page, Contract::ToolOutput)
            />
        </fieldset>
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
