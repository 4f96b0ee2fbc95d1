use leptos::prelude::*;

use crate::live::{Loaded, Loading, ModelState, Stage};
use crate::state::Playground;
use crate::text::{counted, grouped, megabytes};

/// Where the model is: on its way, there, or why not.
#[component]
pub fn ModelStateView() -> impl IntoView {
    let live = Playground::of_page().live;
    let state = move || match live.model.get() {
        ModelState::None => ().into_any(),
        ModelState::Loading(loading) => progress(loading).into_any(),
        ModelState::Ready(loaded) => ready(&loaded).into_any(),
        ModelState::Failed(sentence) => {
            view! { <p class="problem">{as_sentence(&sentence)}</p> }.into_any()
        }
    };
    view! {
        <div class="model-state" aria-live="polite">
            {state}
        </div>
    }
}

fn progress(Loading { name, stage }: Loading) -> impl IntoView {
    let (text, share) = match stage {
        Stage::Begun => (format!("Looking for {name}…"), None),
        Stage::Download {
            file,
            loaded,
            total,
        } => (
            match total {
                Some(total) => format!(
                    "Downloading {file}: {} of {}",
                    megabytes(loaded),
                    megabytes(total)
                ),
                None => format!("Downloading {file}: {}", megabytes(loaded)),
            },
            total.map(|total| (loaded, total)),
        ),
        Stage::Weights { loaded, total } => (
            format!(
                "Putting weights on the device: {} of {}",
                megabytes(loaded),
                megabytes(total)
            ),
            Some((loaded, total)),
        ),
    };
    view! {
        <p class="hint" aria-live="off">
            {text}
        </p>
        <progress
            aria-label="Loading the model"
            max=share.map(|(_, total)| total.to_string())
            value=share.map(|(loaded, _)| loaded.to_string())
        />
    }
}

fn ready(loaded: &Loaded) -> impl IntoView + use<> {
    let model = &loaded.model;
    let figures = format!(
        "{}, width {}, {} tokens in its vocabulary, a context of at most {}; {} on the device.",
        counted(model.layers, "layer"),
        grouped(model.hidden_size),
        grouped(model.vocab_size),
        grouped(model.max_context),
        megabytes(model.device_bytes),
    );
    let fallback = loaded
        .fallback
        .as_ref()
        .map(|reason| view! { <p class="hint">{format!("The CPU computes: {reason}.")}</p> });
    view! {
        <p class="agrees">{format!("{} is ready on {}.", loaded.name, device(loaded))}</p>
        <p class="hint">{figures}</p>
        {fallback}
    }
}

/// What computes the model.
pub fn device(loaded: &Loaded) -> String {
    match &loaded.model.adapter {
        None => "the CPU".to_owned(),
        Some(adapter) if adapter.name.is_empty() => "WebGPU".to_owned(),
        Some(adapter) => format!("WebGPU, {}", adapter.name),
    }
}

/// The worker's sentences begin and end as parts of others.
pub fn as_sentence(text: &str) -> String {
    let mut letters = text.chars();
    // A file's name is not a word.
    let begins_with_word = text
        .split(' ')
        .next()
        .is_some_and(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
    let mut sentence: String = match letters.next() {
        Some(first) if begins_with_word => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    };
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_sentence_becomes_one() {
        assert_eq!(as_sentence("the device was lost"), "The device was lost.");
        assert_eq!(as_sentence("Load it again."), "Load it again.");
        assert_eq!(
            as_sentence("config.json: not found"),
            "config.json: not found."
        );
    }
}
