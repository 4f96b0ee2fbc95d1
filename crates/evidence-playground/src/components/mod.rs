//! What is seen. One component a file; none decides anything about bytes.

mod artifact_list;
mod artifact_view;
mod artifacts_panel;
mod byte_map;
mod byte_view;
mod captures;
mod choice;
mod contract_section;
mod decider_section;
mod deletion_dialog;
mod digest_check;
mod exact_text;
mod files_section;
mod header;
mod limits_section;
mod live_reply;
mod meter;
mod model_section;
mod model_state;
mod notices;
mod outcome;
mod persistence;
mod processes;
mod run_panel;
mod script_section;
mod step_entry;
mod task_section;
mod timeline;

use leptos::prelude::*;

use self::artifacts_panel::ArtifactsPanel;
use self::contract_section::ContractSection;
use self::decider_section::DeciderSection;
use self::deletion_dialog::DeletionDialog;
use self::files_section::FilesSection;
use self::header::Header;
use self::limits_section::LimitsSection;
use self::model_section::ModelSection;
use self::notices::Notices;
use self::run_panel::RunPanel;
use self::script_section::ScriptSection;
use self::task_section::TaskSection;
use crate::parameters::{self, Parameters};
use crate::state::Playground;

/// The page.
#[component]
pub fn App() -> impl IntoView {
    let page = Playground::new();
    provide_context(page);
    page.open_storage();
    let parameters = Parameters::of_page();
    parameters.apply(page);
    page.load_first_sample(parameters);
    view! {
        <Header />
        {parameters::whole_page()
            .map(|address| {
                view! {
                    <p class="whole-page">
                        <a href=address target="_blank">
                            "Open this in a page of its own"
                        </a>
                    </p>
                }
            })}
        <Notices />
        <nav class="sections" aria-label="Sections">
            <a href="#setup">"Set-up"</a>
            <a href="#run">"Run"</a>
            <a href="#artifacts">"Artifacts"</a>
        </nav>
        <main>
            <section class="panel" id="setup" aria-labelledby="setup-title">
                <h2 id="setup-title">"Set-up"</h2>
                <TaskSection />
                <FilesSection />
                <ContractSection />
                <DeciderSection />
                <Show when=move || page.live.is_chosen() fallback=ScriptSection>
                    <ModelSection />
                </Show>
                <LimitsSection />
            </section>
            <RunPanel />
            <ArtifactsPanel />
        </main>
        <DeletionDialog />
    }
}
