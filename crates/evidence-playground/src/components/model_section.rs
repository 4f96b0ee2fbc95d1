use leptos::prelude::*;
use leptos::task::spawn_local;
use web_sys::{DragEvent, File, HtmlInputElement};

use super::model_state::{ModelStateView, as_sentence};
use crate::intake;
use crate::live::{Bundled, ModelState, PlaceKind};
use crate::state::Playground;
use crate::text::megabytes;

/// The model of a live run: where it comes from, what computes it, and what is kept of others.
#[component]
pub fn ModelSection() -> impl IntoView {
    let page = Playground::of_page();
    let live = page.live;
    let loading = move || {
        live.model
            .with(|model| matches!(model, ModelState::Loading(_)))
    };
    let load = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        page.load_model();
    };
    let is = move |kind| move || live.kind.get() == kind;
    view! {
        <form class="field model" on:submit=load>
            <label for="place">"Model"</label>
            <select
                id="place"
                on:change=move |event| live.kind.set(kind_of(&event_target_value(&event)))
            >
                <Show when=move || !live.bundled.with(Vec::is_empty)>
                    {option(PlaceKind::Bundled, "The bundled model")}
                </Show>
                {option(PlaceKind::Hub, "A repository of Hugging Face")}
                {option(PlaceKind::Files, "A folder of this machine")}
                {option(PlaceKind::Address, "A folder of this site")}
            </select>
            <Show when=is(PlaceKind::Bundled)>
                {move || live.bundled.with(|list| list.first().map(bundled))}
            </Show>
            <Show when=is(PlaceKind::Hub)>
                <Hub />
            </Show>
            <Show when=is(PlaceKind::Files)>
                <ChosenFiles />
            </Show>
            <Show when=is(PlaceKind::Address)>
                <label for="model-address">"Address of the folder, beside this page"</label>
                <input
                    id="model-address"
                    class="code"
                    autocomplete="off"
                    spellcheck="false"
                    placeholder="models/my-checkpoint/"
                    prop:value=move || live.address.get()
                    on:input:target=move |event| live.address.set(event.target().value())
                />
            </Show>
            <Adapter />
            <label class="contract">
                <input
                    type="checkbox"
                    aria-describedby="constrained-meaning"
                    prop:checked=move || live.constrained.get()
                    on:change:target=move |event| live.constrained.set(event.target().checked())
                />
                <span>"Hold replies to one action"</span>
                <span class="hint" id="constrained-meaning">
                    "Only tokens that go on towards a valid JSON action may be chosen. Without it the \
                     model's raw reply counts."
                </span>
            </label>
            <div class="row">
                <button type="submit" disabled=move || loading() || page.busy.get()>
                    {move || {
                        if live.model.with(|model| matches!(model, ModelState::Failed(_))) {
                            "Load again"
                        } else {
                            "Load the model"
                        }
                    }}
                </button>
                <Show when=loading>
                    <button type="button" on:click=move |_| page.stop_loading()>
                        "Stop loading"
                    </button>
                </Show>
            </div>
            <ModelStateView />
        </form>
        <Cached />
    }
}

fn bundled(model: &Bundled) -> impl IntoView + use<> {
    let size = megabytes(model.byte_count as u64);
    view! { <p class="hint">{format!("{}, {size} from this site.", model.title)}</p> }
}

fn option(kind: PlaceKind, name: &'static str) -> impl IntoView {
    let live = Playground::of_page().live;
    view! {
        <option value=value_of(kind) prop:selected=move || live.kind.get() == kind>
            {name}
        </option>
    }
}

const fn value_of(kind: PlaceKind) -> &'static str {
    match kind {
        PlaceKind::Bundled => "bundled",
        PlaceKind::Hub => "hub",
        PlaceKind::Address => "address",
        PlaceKind::Files => "files",
    }
}

fn kind_of(value: &str) -> PlaceKind {
    match value {
        "bundled" => PlaceKind::Bundled,
        "address" => PlaceKind::Address,
        "files" => PlaceKind::Files,
        _ => PlaceKind::Hub,
    }
}

#[component]
fn Hub() -> impl IntoView {
    let live = Playground::of_page().live;
    view! {
        <label for="repository">"Repository"</label>
        <input
            id="repository"
            class="code"
            autocomplete="off"
            spellcheck="false"
            placeholder="Qwen/Qwen3-0.6B"
            aria-describedby="hub-hosts"
            prop:value=move || live.repository.get()
            on:input:target=move |event| live.repository.set(event.target().value())
        />
        <p class="hint" id="hub-hosts">
            "Loading connects your browser to "<code>"huggingface.co"</code>
            " and to the hosts of its files, "<code>"*.huggingface.co"</code>" and "
            <code>"*.hf.co"</code>": they learn your address and what you load. This page can connect \
             to no others, and sends them nothing of your logs."
        </p>
    }
}

#[component]
fn ChosenFiles() -> impl IntoView {
    let live = Playground::of_page().live;
    let dragging = RwSignal::new(false);
    let drop = move |event: DragEvent| {
        event.prevent_default();
        // What is dropped elsewhere is a log.
        event.stop_propagation();
        dragging.set(false);
        let Some(candidates) = event.data_transfer().map(|drop| intake::of_transfer(&drop)) else {
            return;
        };
        spawn_local(async move {
            match candidates.await {
                Ok(found) => live
                    .files
                    .set(found.into_iter().map(|one| one.file).collect()),
                Err(sentence) => live.model.set(ModelState::Failed(sentence)),
            }
        });
    };
    let choose = move |event: web_sys::Event| {
        let input: HtmlInputElement = event_target(&event);
        if let Some(files) = input.files() {
            let found = intake::of_file_list(&files);
            live.files
                .set(found.into_iter().map(|one| one.file).collect());
        }
        input.set_value("");
    };
    let chosen = move || {
        live.files.with(|files| {
            if files.is_empty() {
                return "config.json, tokenizer.json, tokenizer_config.json and the .safetensors files. \
                        They are read where they are."
                    .to_owned();
            }
            let bytes: f64 = files.iter().map(|file| file.size()).sum();
            let names: Vec<String> = files.iter().map(File::name).collect();
            // A size is a number of bytes that JavaScript holds exactly.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let size = megabytes(bytes as u64);
            format!("{size} in {}.", names.join(", "))
        })
    };
    view! {
        <div
            class="drop-zone model-files"
            class:dragging=move || dragging.get()
            on:drop=drop
            on:dragover=move |event| {
                event.prevent_default();
                event.stop_propagation();
                dragging.set(true);
            }
            on:dragleave=move |_| dragging.set(false)
        >
            <p>"Drop a checkpoint here, or"</p>
            <div class="row">
                <label class="button">
                    "Checkpoint folder…"
                    <input
                        type="file"
                        prop:webkitdirectory=true
                        class="visually-hidden"
                        on:change=choose
                    />
                </label>
                <label class="button">
                    "Checkpoint files…"
                    <input type="file" multiple class="visually-hidden" on:change=choose />
                </label>
            </div>
            <p class="hint">{chosen}</p>
        </div>
    }
}

/// What computes: the adapter, or the CPU where there is none.
#[component]
fn Adapter() -> impl IntoView {
    let live = Playground::of_page().live;
    let has_none = move || live.adapter.with(|adapter| matches!(adapter, Some(Err(_))));
    let sentence = move || {
        live.adapter.with(|adapter| match adapter {
            None => "Looking for a graphics adapter…".to_owned(),
            Some(Ok(adapter)) => {
                let name = if adapter.name.is_empty() {
                    "An adapter without a name"
                } else {
                    &adapter.name
                };
                let kind = if adapter.is_software {
                    ", which computes on the CPU"
                } else {
                    ""
                };
                let buffer = megabytes(adapter.max_buffer_bytes);
                format!("WebGPU: {name}{kind}; one tensor may have {buffer}.")
            }
            Some(Err(reason)) => format!(
                "{} The CPU computes instead, slowly: models of at most 512 MiB.",
                as_sentence(reason)
            ),
        })
    };
    view! {
        <label class="contract">
            <input
                type="checkbox"
                aria-describedby="adapter"
                disabled=has_none
                prop:checked=move || live.on_cpu.get()
                on:change:target=move |event| live.on_cpu.set(event.target().checked())
            />
            <span>"Compute on the CPU"</span>
            <span class="hint" id="adapter">
                {sentence}
            </span>
        </label>
    }
}

/// What was downloaded before.
#[component]
fn Cached() -> impl IntoView {
    let page = Playground::of_page();
    let live = page.live;
    view! {
        <Show when=move || !live.cached.with(Vec::is_empty)>
            <div class="field">
                <span class="label" id="cached-label">
                    "Downloaded models, kept in this browser"
                </span>
                <ul class="files downloads" aria-labelledby="cached-label">
                    <For
                        each=move || live.cached.get()
                        key=|checkpoint| (checkpoint.key.clone(), checkpoint.byte_count)
                        children=move |checkpoint| {
                            let name = crate::live::name_of(&checkpoint.url);
                            let (key, url) = (checkpoint.key, checkpoint.url);
                            let (choose, delete) = (format!("Choose {name}"), format!("Delete {name}"));
                            view! {
                                <li>
                                    <span class="file-name">{name}</span>
                                    <span class="figure">{megabytes(checkpoint.byte_count)}</span>
                                    <button
                                        type="button"
                                        class="quiet"
                                        aria-label=choose
                                        on:click=move |_| live.choose_cached(&url)
                                    >
                                        "Choose"
                                    </button>
                                    <button
                                        type="button"
                                        class="quiet"
                                        aria-label=delete
                                        on:click=move |_| page.delete_model(key.clone())
                                    >
                                        "Delete"
                                    </button>
                                </li>
                            }
                        }
                    />
                </ul>
            </div>
        </Show>
    }
}
