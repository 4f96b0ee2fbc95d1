use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::artifacts::ArtifactKey;
use crate::browser;
use crate::state::Playground;
use crate::text::counted;

/// Recomputes the digest by the browser's own cryptography, over bytes read anew.
#[component]
pub fn DigestCheck(
    /// Whose digest.
    key: ArtifactKey,
) -> impl IntoView {
    let page = Playground::of_page();
    let verdict = RwSignal::new(None::<Result<String, String>>);
    let check = move |_| {
        let Some(storage) = page.storage.get_untracked() else {
            return;
        };
        let key = key.clone();
        spawn_local(async move {
            let Ok(bytes) = storage.read(&key).await else {
                // What is shown is no longer what is stored.
                page.read_again(key);
                return;
            };
            let answer = match browser::web_crypto_sha256(&bytes).await {
                Ok(digest) if digest == key.sha256 => Ok(format!(
                    "WebCrypto agrees: it computed the same SHA-256 over {}.",
                    counted(bytes.len(), "byte")
                )),
                Ok(digest) => Err(format!(
                    "WebCrypto does not agree: it computed {digest}. Do not trust these bytes."
                )),
                Err(error) => Err(error),
            };
            verdict.set(Some(answer));
        });
    };
    view! {
        <div class="digest-check">
            <button type="button" on:click=check>
                "Recompute with WebCrypto"
            </button>
            <p role="status">
                {move || {
                    verdict
                        .get()
                        .map(|answer| match answer {
                            Ok(agrees) => view! { <span class="agrees">{agrees}</span> },
                            Err(differs) => view! { <span class="problem">{differs}</span> },
                        })
                }}
            </p>
        </div>
    }
}
