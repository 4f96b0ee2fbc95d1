//! A Qwen model in a Web Worker: what `evidence_model_protocol` describes, over
//! evidence-qwen. There is nothing here outside of a browser.

#![cfg(target_arch = "wasm32")]

mod cache;
mod download;
mod js;
mod worker;
