use leptos::prelude::*;

/// One of several things that exclude each other, and what choosing it means.
#[component]
pub fn Choice(
    /// The name that those have in common of which one is chosen.
    group: &'static str,
    /// Which of them it is.
    value: &'static str,
    /// What people call it.
    name: &'static str,
    /// What choosing it means.
    meaning: &'static str,
    /// Whether it is chosen.
    #[prop(into)]
    is_chosen: Signal<bool>,
    /// Chooses it.
    choose: impl Fn() + 'static,
) -> impl IntoView {
    let meaning_id = format!("{value}-meaning");
    view! {
        <label class="contract">
            <input
                type="radio"
                name=group
                value=value
                aria-describedby=meaning_id.clone()
                prop:checked=move || is_chosen.get()
                on:change=move |_| choose()
            />
            <span>{name}</span>
            <span class="hint" id=meaning_id>
                {meaning}
            </span>
        </label>
    }
}
