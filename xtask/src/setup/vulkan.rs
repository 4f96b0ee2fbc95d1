//! A Vulkan driver for the models' kernels: one that computes on the CPU does.

use std::fs;
use std::path::Path;

use super::debian::Missing;

/// Where drivers say that they are there.
const DRIVERS: [&str; 3] = [
    "/usr/share/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/etc/vulkan/icd.d",
];

/// The packages that bring a driver, if this system wants one and has none.
pub fn missing() -> Option<Missing> {
    let has_driver = |directory: &str| {
        fs::read_dir(Path::new(directory)).is_ok_and(|mut files| files.next().is_some())
    };
    let wants_one = cfg!(target_os = "linux") && !DRIVERS.into_iter().any(has_driver);
    wants_one.then_some(Missing {
        packages: &["mesa-vulkan-drivers"],
        purpose: "the tests of the models on a GPU or its software",
    })
}
