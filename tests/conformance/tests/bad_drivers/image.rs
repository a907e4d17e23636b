//! Builds the image of the bad drivers, where it is not given by `SOFTNDK_BAD_DRIVERS`.

use std::path::PathBuf;
use std::process::Command;

use conformance::machine::workspace;

/// The path of the image; built with cargo, which does nothing when nothing has changed.
pub fn build() -> PathBuf {
    if let Some(given) = std::env::var_os(super::IMAGE) {
        return workspace().join(given);
    }
    let target = workspace().join("target/bad-drivers");
    let output = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--locked"])
        .current_dir(workspace().join("tests/bad-drivers"))
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap_or_else(|error| panic!("cargo cannot be started: {error}"));
    assert!(
        output.status.success(),
        "the bad drivers do not build; `cargo xtask setup` installs what it takes:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    target.join("x86_64-pc-windows-msvc/release/bad_drivers.dll")
}
