use evidence_agent::script_replies;
use evidence_core::process::{POLL_TOOL, START_TOOL, STOP_TOOL, Stream};
use evidence_core::tool_output::READ_TOOL;
use leptos::prelude::*;

use crate::limits;
use crate::script;
use crate::state::{Contract, Playground};
use crate::text::counted;

/// The script that stands for a model, and what is wrong with it.
#[component]
pub fn ScriptSection() -> impl IntoView {
    let page = Playground::of_page();
    let policy = move || {
        page.recording
            .with(|recording| limits::policy(recording.as_ref()))
    };
    let problems = Memo::new(move |_| {
        page.script
            .with(|text| script::problems(text, &policy(), page.contract.get()))
    });
    let verdict = move || {
        let replies = page.script.with(|text| script_replies(text).count());
        if problems.with(Vec::is_empty) {
            format!("{}, all valid actions.", counted(replies, "line"))
        } else {
            format!(
                "{} of {} would be an invalid action:",
                problems.with(Vec::len),
                counted(replies, "line")
            )
        }
    };
    let write = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        write_script(page);
    };
    view! {
        <div class="field">
            <label for="script">"Script: what the model replies, one JSON action a line"</label>
            <textarea
                id="script"
                class="code"
                rows="7"
                spellcheck="false"
                autocapitalize="off"
                wrap="off"
                aria-describedby="script-verdict"
                aria-invalid=move || (!problems.with(Vec::is_empty)).to_string()
                prop:value=move || page.script.get()
                on:input:target=move |event| page.script.set(event.target().value())
            />
            <div id="script-verdict" aria-live="polite">
                <p class="hint">{verdict}</p>
                {move || {
                    problems
                        .get()
                        .into_iter()
                        .map(|problem| {
                            view! {
                                <p class="problem">
                                    {format!("Line {}: {}.", problem.line, problem.message)}
                                </p>
                            }
                        })
                        .collect_view()
                }}
            </div>
            <details class="explanation">
                <summary>"Placeholders"</summary>
                <p>"They stand for what is not known before the run:"</p>
                {move || match page.contract.get() {
                    Contract::RangePaths => {
                        placeholders(
                            ("{{artifact_id}}", "the id in the newest observation,"),
                            ("{{find:TEXT}}", "the byte range of the first TEXT in that artifact."),
                        )
                    }
                    Contract::ToolOutput => {
                        placeholders(
                            ("{{sha256}}", "the digest in the newest reference,"),
                            ("{{offset:TEXT}}", "where the first TEXT begins in that tool output."),
                        )
                    }
                }}
                <Show when=move || page.recording.with(Option::is_some)>
                    <dl>
                        {[
                            ("{{process_id}}", "the newest process,"),
                            ("{{next:stderr}}", "where its last poll said to go on,"),
                            ("{{stderr:TEXT}}", "where the first TEXT begins in that stream, once it has ended."),
                        ]
                            .map(placeholder)
                            .collect_view()}
                    </dl>
                </Show>
                <p>
                    "Tools: "<code>"list_files"</code>" and "<code>"read_file"</code>" with a path"
                    <Show when=move || page.contract.get() == Contract::ToolOutput>
                        ", "<code>{READ_TOOL}</code>" with sha256, offset and limit"
                    </Show>
                    <Show when=move || page.recording.with(Option::is_some)>
                        ", "<code>{START_TOOL}</code>" with argv, "<code>{POLL_TOOL}</code>" and "
                        <code>{STOP_TOOL}</code>" with process_id"
                    </Show> ". A last line "<code>"{\"final\":\"…\"}"</code>" ends the run."
                </p>
            </details>
            <form class="row needle" on:submit=write>
                <label for="needle">"Text to find"</label>
                <input
                    id="needle"
                    class="code"
                    autocomplete="off"
                    spellcheck="false"
                    prop:value=move || page.needle.get()
                    on:input:target=move |event| page.needle.set(event.target().value())
                />
                <button type="submit">"Write a script"</button>
            </form>
        </div>
    }
}

fn placeholders(
    first: (&'static str, &'static str),
    second: (&'static str, &'static str),
) -> impl IntoView {
    view! { <dl>{placeholder(first)} {placeholder(second)}</dl> }
}

fn placeholder((name, meaning): (&'static str, &'static str)) -> impl IntoView {
    view! {
        <dt>
            <code>{name}</code>
        </dt>
        <dd>{meaning}</dd>
    }
}

/// Writes a script for the first file that holds the text to find.
pub fn write_script(page: Playground) {
    let needle = page.needle.get_untracked();
    if let Some(recording) = page.recording.get_untracked() {
        if recording.text(Stream::Stderr).contains(&needle) && !needle.is_empty() {
            page.write_following(&recording.argv, &needle);
        } else {
            page.notify("The command's standard error does not hold the text to find. Type a part of it, exactly.");
        }
        return;
    }
    let found = page.files.with_untracked(|files| {
        let holds = |bytes: &[u8]| {
            needle.is_empty()
                || std::str::from_utf8(bytes).is_ok_and(|text| text.contains(needle.as_str()))
        };
        files
            .files()
            .find(|(_, bytes)| holds(bytes))
            .map(|(path, _)| path.to_owned())
    });
    match found {
        Some(path) => page.write_script(&path, &needle),
        None => page.notify("No file holds the text to find. Type a part of it, exactly."),
    }
}
