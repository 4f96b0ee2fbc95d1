//! The browser that runs the tests of the page and of the WebAssembly crates.

use std::path::PathBuf;

use super::debian::{Distribution, Missing};
use crate::process;

/// A browser and the `WebDriver` server of the same version.
#[derive(Clone, Debug)]
pub struct Browser {
    pub chromium: PathBuf,
    pub chromedriver: PathBuf,
}

/// What a machine may call the browser, Debian's name first.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// The browser on the PATH, if both parts of it are there.
pub fn locate() -> Option<Browser> {
    Some(Browser {
        chromium: NAMES.into_iter().find_map(process::find_on_path)?,
        chromedriver: process::find_on_path("chromedriver")?,
    })
}

/// The packages that bring it.
pub fn packages() -> Missing {
    let packages: &[&str] = match Distribution::detect().id.as_str() {
        "ubuntu" => &["chromium-browser", "chromium-chromedriver"],
        _ => &["chromium", "chromium-driver"],
    };
    Missing {
        packages,
        purpose: "the tests in a browser",
    }
}
