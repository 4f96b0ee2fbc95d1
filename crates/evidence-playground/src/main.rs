//! The playground page.

use leptos::prelude::*;

fn main() {
    mount_to_body(|| view! { <h1>"bounded-evidence"</h1> });
}
