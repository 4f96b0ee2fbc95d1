//! The few things that the page asks of the browser itself.

use evidence_core::Sha256Digest;
use js_sys::{Array, ArrayBuffer, Date, Math, Promise, Uint8Array};
use leptos::prelude::{document, request_animation_frame, window};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    Blob, BlobPropertyBag, DomException, FocusOptions, HtmlAnchorElement, HtmlElement, Response,
    Url,
};

/// Where the chosen theme is remembered; `web/theme.js` reads it before the first paint.
const THEME_KEY: &str = "theme";

/// Lets the browser paint and take events for a while.
pub async fn sleep(milliseconds: i32) {
    let timer = Promise::new(&mut |resolve, _| {
        // A timer that cannot be set must not hold anything up.
        if window()
            .set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, milliseconds)
            .is_err()
        {
            let _ = resolve.call0(&JsValue::UNDEFINED);
        }
    });
    let _ = JsFuture::from(timer).await;
}

/// What has the keyboard's focus.
pub fn focused() -> Option<HtmlElement> {
    document().active_element()?.dyn_into().ok()
}

/// Gives the keyboard's focus to an element when it is lost, because what had it is gone or cannot be used
/// any more. A page that does not have the focus, inside of another one, does not take it.
pub fn recover_focus(to: impl FnOnce() -> Option<HtmlElement> + 'static) {
    // By then the page shows the change.
    request_animation_frame(move || {
        let is_lost = focused().is_none_or(|element| {
            // The browser takes it from what is disabled or hidden, in its own time.
            element
                .matches(":disabled, [hidden], body")
                .unwrap_or_default()
        });
        if is_lost
            && document().has_focus().unwrap_or_default()
            && let Some(element) = to()
        {
            let options = FocusOptions::new();
            options.set_prevent_scroll(true);
            let _ = element.focus_with_options(&options);
        }
    });
}

/// A name that nothing else has.
pub fn random_id() -> String {
    let random = || Some(window().crypto().ok()?.random_uuid());
    // It is there in secure contexts alone, and so is everything that the name is needed for.
    random().unwrap_or_else(|| format!("{}-{}", Date::now(), Math::random()))
}

/// The time, in milliseconds since 1970.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time is whole milliseconds, and one before 1970 is as good as 1970"
)]
pub fn now_ms() -> u64 {
    Date::now() as u64
}

/// Milliseconds that no setting of a clock changes, since the page began.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it counts from 0 up, and fractions of a millisecond do not matter"
)]
pub fn monotonic_ms() -> u64 {
    window().performance().map_or(0, |clock| clock.now() as u64)
}

/// A time as people here write it.
#[expect(
    clippy::cast_precision_loss,
    reason = "a time that a date can hold has fewer than 53 bits"
)]
pub fn local_time(at_ms: u64) -> String {
    let date = Date::new(&(at_ms as f64).into());
    date.to_locale_string("default", &JsValue::UNDEFINED).into()
}

/// Whether the page's worker answers addresses below the page.
pub fn has_worker() -> bool {
    // Outside of a secure context there is no container.
    let container = window().navigator().service_worker();
    !container.is_undefined() && container.controller().is_some()
}

/// Puts a text into the clipboard.
///
/// # Errors
///
/// A sentence for the user.
pub async fn copy(text: &str) -> Result<(), String> {
    let clipboard = window().navigator().clipboard();
    let refused = |_| "The browser did not copy it. Copy it by hand.".to_owned();
    if clipboard.is_undefined() {
        return Err(refused(JsValue::UNDEFINED));
    }
    let written = JsFuture::from(clipboard.write_text(text)).await;
    written.map(drop).map_err(refused)
}

/// The whole address of what lies at this place beside the page.
pub fn address_of(place: &str) -> String {
    let base = document().base_uri().ok().flatten().unwrap_or_default();
    Url::new_with_base(place, &base).map_or_else(|_| place.to_owned(), |url| url.href())
}

/// Fetches a file that lies beside the page.
///
/// # Errors
///
/// A sentence for the user.
pub async fn fetch(address: &str) -> Result<Vec<u8>, String> {
    let unreachable =
        |_| format!("{address} could not be fetched. Check the connection and reload the page.");
    let response: Response = JsFuture::from(window().fetch_with_str(address))
        .await
        .map_err(unreachable)?
        .unchecked_into();
    if !response.ok() {
        return Err(format!(
            "{address} could not be fetched: the server answered {}.",
            response.status()
        ));
    }
    let body = response.array_buffer().map_err(unreachable)?;
    let body: ArrayBuffer = JsFuture::from(body)
        .await
        .map_err(unreachable)?
        .unchecked_into();
    Ok(Uint8Array::new(&body).to_vec())
}

/// Offers exact bytes as a file.
///
/// # Errors
///
/// A sentence for the user.
pub fn download(name: &str, bytes: &[u8]) -> Result<(), String> {
    let save = || -> Result<(), JsValue> {
        let options = BlobPropertyBag::new();
        options.set_type("application/octet-stream");
        let parts = Array::of1(&Uint8Array::from(bytes));
        let blob = Blob::new_with_u8_array_sequence_and_options(&parts, &options)?;
        let address = Url::create_object_url_with_blob(&blob)?;
        let link: HtmlAnchorElement = document().create_element("a")?.unchecked_into();
        link.set_href(&address);
        link.set_download(name);
        link.click();
        Url::revoke_object_url(&address)
    };
    save().map_err(|error| format!("The browser did not save {name}: {}.", reason(&error)))
}

/// The SHA-256 that the browser's own cryptography computes.
///
/// # Errors
///
/// A sentence for the user.
pub async fn web_crypto_sha256(bytes: &[u8]) -> Result<Sha256Digest, String> {
    let missing = |_| {
        "WebCrypto is not available here: browsers offer it to pages from https:// and from \
         localhost only."
            .to_owned()
    };
    let crypto = window().crypto().map_err(missing)?;
    // Outside of a secure context there is a `crypto` without its `subtle`.
    let subtle = crypto.subtle();
    if subtle.is_undefined() {
        return Err(missing(JsValue::UNDEFINED));
    }
    let digest = subtle
        .digest_with_str_and_buffer_source("SHA-256", &Uint8Array::from(bytes))
        .map_err(missing)?;
    let digest = JsFuture::from(digest).await.map_err(missing)?;
    let digest = Uint8Array::new(&digest).to_vec();
    <[u8; 32]>::try_from(digest)
        .map(Sha256Digest::from_bytes)
        .map_err(|_| "WebCrypto answered with something that is no SHA-256.".to_owned())
}

/// What an exception says, in its own words.
pub fn reason(error: &JsValue) -> String {
    error.dyn_ref::<DomException>().map_or_else(
        || {
            error.dyn_ref::<js_sys::Error>().map_or_else(
                || "unknown reason".to_owned(),
                |error| error.message().into(),
            )
        },
        |error| error.message().trim_end_matches('.').to_owned(),
    )
}

/// Whether the page is dark now: by choice, or because the system is.
pub fn is_dark() -> bool {
    match root_theme().as_deref() {
        Some("dark") => true,
        Some("light") => false,
        _ => window()
            .match_media("(prefers-color-scheme: dark)")
            .ok()
            .flatten()
            .is_some_and(|query| query.matches()),
    }
}

fn root_theme() -> Option<String> {
    document().document_element()?.get_attribute("data-theme")
}

/// Changes the theme and remembers it where the browser allows that.
pub fn set_dark(dark: bool) {
    let theme = if dark { "dark" } else { "light" };
    if let Some(root) = document().document_element() {
        let _ = root.set_attribute("data-theme", theme);
    }
    if let Ok(Some(storage)) = window().local_storage() {
        let _ = storage.set_item(THEME_KEY, theme);
    }
}
