use leptos::prelude::*;

use super::exact_text::ExactText;
use crate::live::Figures;
use crate::runner::{Evidence, Step, badge};
use crate::state::Playground;
use crate::text::{counted, grouped, range, tenth};

/// One step: what the model said, what it saw, and how many bytes went each way.
#[component]
pub fn StepEntry(
    /// The step.
    step: Step,
) -> impl IntoView {
    let page = Playground::of_page();
    let heading = format!("step-{}", step.number);
    let kind = match &step.evidence {
        Evidence::Inline => "inline",
        Evidence::Externalized(_) => "bounded",
        Evidence::Range(..) | Evidence::Streams(_) => "range",
        Evidence::Refused => "refused",
        Evidence::Final => "final",
    };
    let badge = badge(&step);
    let shown_bytes = step.result.as_ref().map(String::len);
    let out = match (step.complete_bytes, shown_bytes) {
        (Some(complete), Some(shown)) if complete != shown => {
            format!(
                "{} shown of {}",
                counted(shown, "byte"),
                counted(complete, "byte")
            )
        }
        (_, Some(shown)) => counted(shown, "byte"),
        (_, None) => "nothing".to_owned(),
    };
    let look = match step.evidence.clone() {
        Evidence::Externalized(key) => Some((key, None, "Show the artifact".to_owned())),
        Evidence::Range(key, start, end) => Some((
            key,
            Some((start, end)),
            format!("Show bytes {} in the artifact", range(start, end)),
        )),
        Evidence::Streams(_) | Evidence::Inline | Evidence::Refused | Evidence::Final => None,
    };
    let labelled_by = heading.clone();
    let of_step = |what: &str| format!("{what} in step {}", step.number);
    let (said, saw) = (
        of_step("What the model said"),
        of_step("What the model saw"),
    );
    view! {
        <li class="step" data-kind=kind aria-labelledby=labelled_by>
            <h3 class="step-head" id=heading>
                <span class="step-number">{step.number}</span>
                <span class="step-title">{step.title.clone()}</span>
                <span class="badge">{badge}</span>
            </h3>
            <dl class="figures">
                <div>
                    <dt>"prompt in"</dt>
                    <dd>{counted(step.prompt_bytes, "byte")}</dd>
                </div>
                <div>
                    <dt>"reply out"</dt>
                    <dd>{counted(step.reply.len(), "byte")}</dd>
                </div>
                <div>
                    <dt>"result"</dt>
                    <dd>{out}</dd>
                </div>
            </dl>
            {step.figures.map(model_figures)}
            <h4>"The model said"</h4>
            <ExactText label=said text=step.reply />
            {step
                .result
                .map(|text| {
                    view! {
                        <h4>"It saw"</h4>
                        <ExactText label=saw text />
                    }
                })}
            {look
                .map(|(key, selection, label)| {
                    view! {
                        <button
                            type="button"
                            class="quiet"
                            on:click=move |_| page.look_at(key.clone(), selection)
                        >
                            {label}
                        </button>
                    }
                })}
        </li>
    }
}

/// What the model took for its reply.
fn model_figures(figures: Figures) -> impl IntoView {
    let speed = |count: String, rate: Option<f64>| match rate {
        Some(rate) => format!("{count} at {} tokens/s", tenth(rate)),
        None => count,
    };
    let read = format!(
        "{} of {} tokens",
        grouped(figures.computed_tokens),
        grouped(figures.prompt_tokens)
    );
    let written = counted(figures.reply_tokens, "token");
    view! {
        <dl class="figures">
            <div>
                <dt>"newly read"</dt>
                <dd>{speed(read, figures.prefill_rate())}</dd>
            </div>
            <div>
                <dt>"written"</dt>
                <dd>{speed(written, figures.decode_rate())}</dd>
            </div>
            <div>
                <dt>"context"</dt>
                <dd>{counted(figures.context_tokens, "token")}</dd>
            </div>
        </dl>
    }
}
