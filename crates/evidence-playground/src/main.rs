//! The playground page: a script or a model works through real logs, and everything that the model
//! sees, asks for and leaves behind can be looked at byte for byte.
//!
//! The page holds no rule about bytes. It shows what `evidence-core` decides, what `evidence-store`
//! keeps and what `evidence-agent` runs.

// A component owns its arguments, the page's state (a bundle of signals) among them, and one view is
// one expression, however long.
#![allow(
    clippy::large_types_passed_by_value,
    clippy::needless_pass_by_value,
    clippy::too_many_lines
)]

mod artifacts;
mod browser;
mod components;
mod intake;
mod limits;
mod live;
mod measured;
mod parameters;
mod player;
mod processes;
mod runner;
mod samples;
mod script;
mod state;
mod storage;
mod sweeper;
mod text;

use leptos::prelude::*;

use crate::components::App;

fn main() {
    mount_to_body(App);
}
