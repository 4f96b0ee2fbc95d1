use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{ClipboardEvent, DragEvent, HtmlElement, HtmlInputElement};

use crate::state::Playground;
use crate::text::{counted, grouped};

/// The files that the model may read, and the ways to bring them in.
#[component]
pub fn FilesSection() -> impl IntoView {
    let page = Playground::of_page();
    let dragging = RwSignal::new(false);
    let drop = move |event: DragEvent| {
        event.prevent_default();
        dragging.set(false);
        if let Some(transfer) = event.data_transfer() {
            page.take_transfer(&transfer);
        }
    };
    let drag_over = move |event: DragEvent| {
        // Without this the browser would leave the page and open the file.
        event.prevent_default();
        dragging.set(true);
    };
    // A log may be dropped anywhere: nobody should have to aim.
    window_event_listener(leptos::ev::dragover, drag_over);
    window_event_listener(leptos::ev::drop, drop);
    window_event_listener(leptos::ev::dragleave, move |event| {
        // It leaves the window, not only an element of it.
        if event.related_target().is_none() {
            dragging.set(false);
        }
    });
    window_event_listener(leptos::ev::paste, move |event| paste(page, &event));
    let choose = move |event: web_sys::Event| {
        let input: HtmlInputElement = event_target(&event);
        if let Some(files) = input.files() {
            page.take_files(&files);
        }
        // The same file can be chosen again after it has changed.
        input.set_value("");
    };
    let choose_sample = move |event: web_sys::Event| {
        let file = event_target_value(&event);
        let sample = page
            .samples
            .with_untracked(|list| list.iter().find(|sample| sample.file == file).cloned());
        let recorded = page
            .recordings
            .with_untracked(|list| list.iter().find(|sample| sample.file == file).cloned());
        if let Some(sample) = sample {
            spawn_local(page.load_sample(sample));
        } else if let Some(sample) = recorded {
            spawn_local(page.load_recording(sample));
        }
    };
    let note = move || {
        let file = page.sample.get()?;
        let recorded = page.recordings.with(|list| {
            let sample = list.iter().find(|sample| sample.file == file)?;
            Some(format!(
                "{} A recording of {}, replayed with its timing.",
                sample.note, sample.tool
            ))
        });
        recorded.or_else(|| {
            page.samples.with(|list| {
                let sample = list.iter().find(|sample| sample.file == file)?;
                Some(format!("{} Printed by {}.", sample.note, sample.tool))
            })
        })
    };
    view! {
        <div class="field">
            <label for="sample">"Sample log or process"</label>
            <select
                id="sample"
                aria-describedby="sample-note"
                prop:value=move || page.sample.get().unwrap_or_default()
                on:change=choose_sample
            >
                <option value="" disabled>
                    {move || if page.samples.with(Vec::is_empty) { "Loading…" } else { "Choose…" }}
                </option>
                <For
                    each=move || page.samples.get()
                    key=|sample| sample.file.clone()
                    children=move |sample| {
                        let kilobytes = grouped(sample.byte_count.div_ceil(1000));
                        view! {
                            <option value=sample.file>
                                {format!("{} ({kilobytes} KB)", sample.title)}
                            </option>
                        }
                    }
                />
                <For
                    each=move || page.recordings.get()
                    key=|sample| sample.file.clone()
                    children=|sample| {
                        view! {
                            <option value=sample.file>
                                {format!("{} (process)", sample.title)}
                            </option>
                        }
                    }
                />
            </select>
            <p class="hint" id="sample-note">
                {note}
            </p>
        </div>
        <div class="field">
            <span class="label" id="files-label">
                "Files"
            </span>
            <ul class="files" aria-labelledby="files-label">
                {move || {
                    page.files
                        .with(|files| {
                            files
                                .files()
                                .map(|(path, bytes)| (path.to_owned(), bytes.len()))
                                .collect::<Vec<_>>()
                        })
                        .into_iter()
                        .map(|(path, byte_count)| file_row(page, path, byte_count))
                        .collect_view()
                }}
            </ul>
            <div class="drop-zone" class:dragging=move || dragging.get()>
                <p>"Drop a log or a folder anywhere on the page, or"</p>
                <div class="row">
                    <label class="button">
                        "Files…"
                        <input type="file" multiple class="visually-hidden" on:change=choose />
                    </label>
                    <label class="button">
                        "Folder…"
                        <input
                            type="file"
                            prop:webkitdirectory=true
                            class="visually-hidden"
                            on:change=choose
                        />
                    </label>
                    <button type="button" on:click=move |_| read_clipboard(page)>
                        "Paste"
                    </button>
                </div>
                <p class="hint">"UTF-8 text, at most 16 MiB a file and 64 MiB together. Nothing is uploaded."</p>
            </div>
        </div>
    }
}

fn file_row(page: Playground, path: String, byte_count: usize) -> impl IntoView {
    let name = path.clone();
    let removed = path.clone();
    view! {
        <li>
            <span class="file-name">{path}</span>
            <span class="figure">{counted(byte_count, "byte")}</span>
            <button
                type="button"
                class="quiet"
                aria-label=format!("Remove {name}")
                on:click=move |_| page.remove_file(&removed)
            >
                "Remove"
            </button>
        </li>
    }
}

/// Takes what is pasted anywhere but into a field.
fn paste(page: Playground, event: &ClipboardEvent) {
    let into_field = event
        .target()
        .and_then(|target| target.dyn_into::<HtmlElement>().ok())
        .is_some_and(|element| ["INPUT", "TEXTAREA"].contains(&element.tag_name().as_str()));
    let (false, Some(transfer)) = (into_field, event.clipboard_data()) else {
        return;
    };
    event.prevent_default();
    if let Some(files) = transfer.files().filter(|files| files.length() > 0) {
        page.take_files(&files);
        return;
    }
    // Not through a Rust string: half a surrogate pair must be seen before it is replaced.
    let data: &ExactTransfer = transfer.unchecked_ref();
    page.take_text(&data.get_data("text/plain"));
}

/// Asks the browser for the clipboard's text, which it may refuse.
fn read_clipboard(page: Playground) {
    spawn_local(async move {
        let refused = "The browser did not hand over the clipboard. Press Ctrl+V (⌘V) instead.";
        let clipboard = window().navigator().clipboard();
        if clipboard.is_undefined() {
            page.notify(refused);
            return;
        }
        match JsFuture::from(clipboard.read_text()).await {
            Ok(text) => page.take_text(&text.unchecked_into()),
            Err(_) => page.notify(refused),
        }
    });
}

#[wasm_bindgen]
extern "C" {
    /// `DataTransfer` whose text stays a JavaScript string.
    #[wasm_bindgen(js_name = DataTransfer)]
    type ExactTransfer;
    #[wasm_bindgen(method, js_name = getData)]
    fn get_data(this: &ExactTransfer, format: &str) -> js_sys::JsString;
}
