//! The consumer of `tests/c-consumer`, a driver in C that uses NDK as a storage initiator does.
//!
//! It shares nothing with the provider: its headers are its own. `cargo test -p kernel-host --test c_consumer` runs it.

use crate::{c_image, workspace::Workspace};
use anyhow::Result;
use std::path::PathBuf;

const IMAGE: c_image::CImage<'static> = c_image::CImage {
    name: "c-consumer.sys",
    sources: &["tests/c-consumer/src"],
    include: &["tests/c-consumer/include"],
    imports: &["tests/c-consumer/ntoskrnl.def", "tests/c-consumer/netio.def"],
    exports: None,
};

/// Where the image is once it is built.
pub fn image(workspace: &Workspace) -> PathBuf {
    c_image::path(workspace, IMAGE.name)
}

/// Builds the image and returns its path.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    c_image::build(workspace, &IMAGE)
}

/// Builds a copy of the consumer from sources in another folder, for tests that change a line.
pub fn build_copy(workspace: &Workspace, name: &str, sources: &str) -> Result<PathBuf> {
    c_image::build(workspace, &c_image::CImage { name, sources: &[sources], ..IMAGE })
}
