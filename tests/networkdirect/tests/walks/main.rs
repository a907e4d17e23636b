//! The files that one call enters, against `xtask/lists/walks.md`: the calls run in the release image one instruction at a time.
//!
//! `WALKS_BLESS=1` writes the page. With another image, or without `SOFTNDK_IMAGE`, everything is ignored: what is inlined, and so
//! the order of the files, belongs to one image.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "trials.rs"]
mod trials;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("no walks here: they run in the kernel host, which needs x86-64 Linux");
}
