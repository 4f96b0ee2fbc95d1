//! A Qwen model in a Web Worker.
//!
//! The page talks to the worker in messages: a [`protocol::Request`] with an
//! id goes in, [`protocol::Event`]s with that id come out, the last of them
//! `loaded`, `done`, `info`, `cached`, `unloaded` or `error`. The worker itself
//! announces once that it is `ready`.
//!
//! Outside a browser the crate is its protocol only, so that a page's code can
//! share the types.

pub mod protocol;

#[cfg(target_family = "wasm")]
mod download;
#[cfg(target_family = "wasm")]
mod worker;
