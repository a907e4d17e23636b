//! Where the driver's image is, and the workspace that it is built in.

use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The image that `SOFTNDK_IMAGE` names, or that `cargo xtask driver` leaves; it has to be built before.
pub fn image() -> PathBuf {
    if let Some(named) = std::env::var_os("SOFTNDK_IMAGE") {
        return PathBuf::from(named);
    }
    let images = ["target/driver/x64/debug/softndk.sys", "target/driver/x64/release/softndk.sys"];
    let found = images.iter().map(|image| root().join(image)).find(|image| image.exists());
    found.expect("no driver image: build it with \"cargo xtask driver\"")
}
