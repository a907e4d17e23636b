//! The same sequences on the loaded driver image, through its replay session. The image is that of `cargo xtask driver`, or
//! `SOFTNDK_IMAGE`.
#![cfg(not(any(windows, feature = "streams")))]

use std::path::Path;
use std::process::Command;

#[test]
fn the_image_keeps_what_the_model_says() {
    keeps("auto", "20000", "4");
}

#[test]
fn it_does_when_every_call_pends_that_may() {
    keeps("force-async", "5000", "5");
}

#[test]
fn it_does_when_every_call_answers_inline_that_may() {
    keeps("force-inline", "5000", "6");
}

fn keeps(completion_mode: &str, operations: &str, seed: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let given = std::env::var_os("SOFTNDK_IMAGE");
    let image = root.join(given.unwrap_or_else(|| "target/driver/x64/debug/softndk.sys".into()));
    // A process of its own: a bugcheck ends it.
    let mut oracle = Command::new(env!("CARGO_BIN_EXE_oracle"));
    oracle.current_dir(&root).args(["--operations", operations, "--seed", seed, "--image"]).arg(image);
    oracle.args(["--completion-mode", completion_mode]);
    let output = oracle.output().expect("the oracle runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(" 0 differences"), "{text}");
}
