use leptos::prelude::*;

use crate::state::Playground;
use crate::text::{counted, grouped};

/// The prompt bytes of the run beside those of the same run without bounds.
#[component]
pub fn Meter() -> impl IntoView {
    let page = Playground::of_page();
    let totals = Memo::new(move |_| {
        page.steps.with(|steps| {
            steps.iter().fold((0, 0), |(bounded, unbounded), step| {
                (
                    bounded + step.prompt_bytes,
                    unbounded + step.unbounded_prompt_bytes,
                )
            })
        })
    });
    let verdict = move || match totals.get() {
        (0, _) => "No prompt was sent yet.".to_owned(),
        (bounded, unbounded) if bounded == unbounded => {
            "Nothing had to be kept out of the prompt yet.".to_owned()
        }
        (bounded, unbounded) => format!(
            "{} kept out of the prompt: {} of what it would have been.",
            counted(unbounded - bounded, "byte"),
            percent(bounded, unbounded)
        ),
    };
    view! {
        <div class="meter" role="group" aria-label="Prompt bytes over the whole run">
            <Bar kind="bounded" label="Bounded" bytes=Signal::derive(move || totals.get().0) totals />
            <Bar
                kind="unbounded"
                label="Unbounded"
                bytes=Signal::derive(move || totals.get().1)
                totals
            />
            <details class="explanation">
                <summary>{verdict}</summary>
                <p>
                    "Each step sends the whole conversation again, so each adds the bytes of its \
                     prompt. Unbounded is the same conversation with every tool result in it in \
                     full."
                </p>
            </details>
        </div>
    }
}

#[component]
fn Bar(
    kind: &'static str,
    label: &'static str,
    bytes: Signal<usize>,
    totals: Memo<(usize, usize)>,
) -> impl IntoView {
    let width = move || {
        let (bounded, unbounded) = totals.get();
        percent(bytes.get(), bounded.max(unbounded))
    };
    view! {
        <div class="meter-row">
            <span class="meter-label">{label}</span>
            <span class="meter-track" aria-hidden="true">
                <span class=format!("meter-fill {kind}") style:width=width></span>
            </span>
            <span class="figure" data-figure=kind>
                {move || grouped(bytes.get())}
            </span>
        </div>
    }
}

/// `part` of `whole`, to a tenth.
fn percent(part: usize, whole: usize) -> String {
    if whole == 0 {
        return "0%".to_owned();
    }
    let tenths = part.saturating_mul(1000) / whole;
    format!("{}.{}%", tenths / 10, tenths % 10)
}
