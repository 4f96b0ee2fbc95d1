use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use evidence_core::range::{RangeRefusal, enclosing_range};
use leptos::prelude::*;

use crate::artifacts::Artifact;
use crate::state::Playground;
use crate::text::{counted, grouped, range};

/// How much of a selection is shown as text.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// How much of a selection is shown as hexadecimal digits.
const MAX_HEX_BYTES: usize = 4 * 1024;
/// Bytes a line, as hexadecimal dumps have them.
const HEX_COLUMNS: usize = 16;

/// The exact bytes of the selection, as text or as digits, and a form to type positions.
#[component]
pub fn ByteView(
    /// The artifact.
    artifact: Arc<Artifact>,
) -> impl IntoView {
    let page = Playground::of_page();
    let artifact = StoredValue::new(artifact);
    let as_hex = RwSignal::new(false);
    let problem = RwSignal::new(None::<String>);
    let start = RwSignal::new(String::new());
    let end = RwSignal::new(String::new());
    // The form follows the selection, until somebody types.
    Effect::new(move || {
        if let Some((from, to)) = page.selection.get() {
            start.set(from.to_string());
            end.set(to.to_string());
            problem.set(None);
        }
    });
    let choose = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        let typed = artifact.with_value(|artifact| {
            artifact.parse_range(&start.get_untracked(), &end.get_untracked())
        });
        match typed {
            Ok(Range { start, end }) => page.selection.set(Some((start, end))),
            Err(refusal) => problem.set(Some(refusal)),
        }
    };
    let widen = move |(from, to): (usize, usize)| {
        let wide = artifact.with_value(|artifact| enclosing_range(artifact.text(), from..to));
        page.selection.set(Some((wide.start, wide.end)));
    };
    let bytes = move || {
        let Some((from, to)) = page.selection.get() else {
            return view! {
                <p class="hint">"Choose bytes on the map, in the list, or by their positions."</p>
            }
            .into_any();
        };
        artifact.with_value(|artifact| {
            if as_hex.get() {
                return hex_view(artifact, from..to).into_any();
            }
            match artifact.text().get(from..to) {
                Some(text) => text_view(text).into_any(),
                None => view! {
                    <p class="problem" role="alert">
                        {format!("{}.", RangeRefusal::MidCodePoint)}
                    </p>
                    <button type="button" on:click=move |_| widen((from, to))>
                        "Widen to whole characters"
                    </button>
                }
                .into_any(),
            }
        })
    };
    let summary = move || {
        page.selection.get().map(|(from, to)| {
            format!(
                "Bytes {}: {}",
                range(from, to),
                counted(to.saturating_sub(from), "byte")
            )
        })
    };
    view! {
        <div class="byte-view">
            <form class="row positions" on:submit=choose aria-label="Bytes by position">
                <label>
                    "From"
                    <input
                        name="start"
                        inputmode="numeric"
                        autocomplete="off"
                        prop:value=move || start.get()
                        on:input:target=move |event| start.set(event.target().value())
                    />
                </label>
                <label>
                    "to"
                    <input
                        name="end"
                        inputmode="numeric"
                        autocomplete="off"
                        prop:value=move || end.get()
                        on:input:target=move |event| end.set(event.target().value())
                    />
                </label>
                <button type="submit">"Show"</button>
            </form>
            {move || {
                problem
                    .get()
                    .map(|refusal| view! { <p class="problem" role="alert">{refusal} "."</p> })
            }}
            <div class="row">
                <p class="selection-summary" role="status">
                    {summary}
                </p>
                <div class="row switch" role="group" aria-label="Show bytes as">
                    <button
                        type="button"
                        aria-pressed=move || (!as_hex.get()).to_string()
                        on:click=move |_| as_hex.set(false)
                    >
                        "Text"
                    </button>
                    <button
                        type="button"
                        aria-pressed=move || as_hex.get().to_string()
                        on:click=move |_| as_hex.set(true)
                    >
                        "Hex"
                    </button>
                </div>
            </div>
            {bytes}
        </div>
    }
}

fn text_view(text: &str) -> impl IntoView + use<> {
    let shown = text.floor_char_boundary(MAX_TEXT_BYTES);
    view! {
        <pre
            class="exact bytes"
            role="region"
            aria-label="Selected bytes as text"
            tabindex="0"
        >
            {text[..shown].to_owned()}
        </pre>
        {rest(text.len(), shown)}
    }
}

fn hex_view(artifact: &Artifact, selected: Range<usize>) -> impl IntoView + use<> {
    let bytes = artifact.bytes.get(selected.clone()).unwrap_or_default();
    let shown = bytes.len().min(MAX_HEX_BYTES);
    // Its lines are not broken: it scrolls sideways where it is narrow.
    view! {
        <pre
            class="exact bytes hex"
            role="region"
            aria-label="Selected bytes as hexadecimal digits"
            tabindex="0"
        >
            {hex_dump(&bytes[..shown], selected.start)}
        </pre>
        {rest(bytes.len(), shown)}
    }
}

/// Says how much of the selection is not shown.
fn rest(selected_bytes: usize, shown_bytes: usize) -> Option<impl IntoView + use<>> {
    (selected_bytes > shown_bytes).then(|| {
        view! {
            <p class="hint">
                {format!(
                    "The first {} of {} are shown. Choose fewer, or download the artifact.",
                    grouped(shown_bytes),
                    counted(selected_bytes, "byte"),
                )}
            </p>
        }
    })
}

/// Position, digits and printable ASCII, a line for every sixteen bytes.
fn hex_dump(bytes: &[u8], start: usize) -> String {
    let mut dump = String::new();
    for (index, line) in bytes.chunks(HEX_COLUMNS).enumerate() {
        // Writing to a string does not fail.
        let _ = write!(dump, "{:08}  ", start + index * HEX_COLUMNS);
        for byte in line {
            let _ = write!(dump, "{byte:02x} ");
        }
        for _ in line.len()..HEX_COLUMNS {
            dump.push_str("   ");
        }
        dump.push(' ');
        dump.extend(line.iter().map(|byte| match byte {
            0x20..=0x7e => char::from(*byte),
            _ => '·',
        }));
        dump.push('\n');
    }
    dump
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_has_positions_digits_and_ascii() {
        let dump = hex_dump("0123456789abcdefé\n".as_bytes(), 32);
        assert_eq!(
            dump,
            "00000032  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n\
             00000048  c3 a9 0a                                         ···\n"
        );
    }
}
