use evidence_agent::script_replies;
use leptos::html;
use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

use super::live_reply::{LiveReply, ModelLine};
use super::meter::Meter;
use super::outcome::Outcome;
use super::timeline::Timeline;
use crate::browser;
use crate::live::ModelState;
use crate::runner::Phase;
use crate::state::Playground;

/// The run: its controls, its figures, its steps, its end.
#[component]
pub fn RunPanel() -> impl IntoView {
    let page = Playground::of_page();
    let phase = move || page.phase.get();
    let blocked = Memo::new(move |_| blocked(page));
    let run_label = move || match phase() {
        Phase::Ready | Phase::Running => "Run",
        Phase::Paused => "Continue",
        Phase::Ended => "Run again",
    };
    let stopped = move || blocked.get().is_some() || page.busy.get();
    let panel = NodeRef::<html::Section>::new();
    // Where the panel scrolls by itself, it follows the run.
    Effect::new(move || {
        page.steps.track();
        page.outcome.track();
        page.live.reply.track();
        if let Some(panel) = panel
            .get()
            .filter(|_| page.phase.get_untracked() != Phase::Ready)
        {
            request_animation_frame(move || panel.set_scroll_top(panel.scroll_height()));
        }
    });
    let controls = NodeRef::<html::Div>::new();
    keep_focus(page, controls);
    view! {
        <section class="panel" node_ref=panel id="run" aria-labelledby="run-title">
            <div class="panel-head">
                <h2 id="run-title">"Run"</h2>
                <div class="row controls" node_ref=controls role="group" aria-label="Run controls">
                    <button
                        type="button"
                        class="primary"
                        disabled=move || phase() == Phase::Running || stopped()
                        on:click=move |_| page.run()
                    >
                        {run_label}
                    </button>
                    <button
                        type="button"
                        disabled=move || {
                            matches!(phase(), Phase::Running | Phase::Ended) || stopped()
                        }
                        on:click=move |_| page.step()
                    >
                        "Step"
                    </button>
                    <button
                        type="button"
                        disabled=move || phase() != Phase::Running
                        on:click=move |_| page.pause()
                    >
                        "Pause"
                    </button>
                    <Show when=move || page.live.is_chosen()>
                        <button
                            type="button"
                            disabled=move || {
                                !page.busy.get() && matches!(phase(), Phase::Ready | Phase::Ended)
                            }
                            on:click=move |_| page.stop()
                        >
                            "Stop"
                        </button>
                    </Show>
                    <button
                        type="button"
                        disabled=move || phase() == Phase::Ready
                        on:click=move |_| page.reset()
                    >
                        "Reset"
                    </button>
                </div>
                <ModelLine />
                <Meter />
            </div>
            <p class="visually-hidden" role="status" aria-live="polite">
                {move || page.announcement.get()}
            </p>
            {move || blocked.get().map(|reason| view! { <p class="hint">{reason}</p> })}
            <Timeline />
            <LiveReply />
            <Outcome />
        </section>
    }
}

/// Where the control that has the keyboard's focus cannot be used any more, another one gets it; the same
/// one, when it can be used again after a step.
fn keep_focus(page: Playground, controls: NodeRef<html::Div>) {
    let last = StoredValue::new_local(None::<HtmlElement>);
    Effect::new(move || {
        let (busy, phase) = (page.busy.get(), page.phase.get());
        let is_between = busy && phase != Phase::Running;
        let Some(controls) = controls.get() else {
            return;
        };
        let focused = browser::focused().filter(|element| controls.contains(Some(element)));
        if focused.is_some() {
            last.set_value(focused);
        }
        if is_between {
            return;
        }
        if let Some(last) = last.try_update_value(Option::take).flatten() {
            browser::recover_focus(move || {
                let usable = "button:not(:disabled)";
                if last.matches(usable).is_ok_and(|is_usable| is_usable) {
                    return Some(last);
                }
                let first = controls.query_selector(usable).ok().flatten();
                first.and_then(|first| first.dyn_into().ok())
            });
        }
    });
}

/// Why there can be no run, and what to do.
fn blocked(page: Playground) -> Option<&'static str> {
    if page.storage.with(Option::is_none) {
        Some("Opening the store…")
    } else if page
        .limits
        .with(|limits| limits.check(page.contract.get()))
        .is_err()
    {
        Some("Correct the limits to run.")
    } else if page.live.is_chosen() {
        page.live.model.with(|model| match model {
            ModelState::Ready(_) => None,
            ModelState::Loading(_) => Some("The model is being loaded…"),
            ModelState::None | ModelState::Failed(_) => Some("Load a model to run."),
        })
    } else if page
        .script
        .with(|text| script_replies(text).next().is_none())
    {
        Some("Write a script to run.")
    } else {
        None
    }
}
