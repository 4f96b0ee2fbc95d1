use leptos::prelude::*;

use super::model_state::device;
use crate::browser;
use crate::live::{Decider, ModelState, Reply, rate};
use crate::state::Playground;
use crate::text::{grouped, tenth};

/// Which model decides, on what.
#[component]
pub fn ModelLine() -> impl IntoView {
    let live = Playground::of_page().live;
    let model_line = move || {
        live.model.with(|model| match model {
            ModelState::Ready(loaded) if live.decider.get() == Decider::Model => {
                let device = device(loaded);
                Some(view! { <p class="hint model-line">{format!("{} on {device}", loaded.name)}</p> })
            }
            _ => None,
        })
    };
    view! { {model_line} }
}

/// The reply as it is being written.
#[component]
pub fn LiveReply() -> impl IntoView {
    let page = Playground::of_page();
    view! {
        <Show when=move || page.live.reply.with(Option::is_some)>
            <div class="step live-reply" role="group" aria-label="The model is writing">
                <h3 class="step-head">
                    <span class="step-number">{move || page.steps.with(Vec::len) + 1}</span>
                    <span class="step-title">{move || of_reply(page, title)}</span>
                </h3>
                <p class="figure">{move || of_reply(page, figures)}</p>
                <pre class="exact">{move || of_reply(page, |reply| reply.text.clone())}</pre>
            </div>
        </Show>
    }
}

fn of_reply(page: Playground, part: fn(&Reply) -> String) -> String {
    page.live
        .reply
        .with(|reply| reply.as_ref().map(part).unwrap_or_default())
}

fn title(reply: &Reply) -> String {
    if reply.tokens == 0 {
        "reading".to_owned()
    } else {
        "writing".to_owned()
    }
}

/// How far it is, and how fast.
#[expect(
    clippy::cast_precision_loss,
    reason = "a reply takes far less than 2^53 milliseconds"
)]
fn figures(reply: &Reply) -> String {
    if reply.tokens == 0 {
        return if reply.prompt_tokens == 0 {
            "The prompt is being turned into tokens.".to_owned()
        } else {
            format!(
                "{} of {} tokens of the prompt read",
                grouped(reply.read_tokens),
                grouped(reply.prompt_tokens)
            )
        };
    }
    let elapsed = browser::monotonic_ms().saturating_sub(reply.began_ms);
    let written = format!(
        "{} tokens of prompt, {} of reply",
        grouped(reply.prompt_tokens),
        grouped(reply.tokens)
    );
    match rate(reply.tokens, elapsed as f64) {
        Some(rate) => format!("{written}, {} tokens/s", tenth(rate)),
        None => written,
    }
}
