//! Faults by call site: every call of the driver that allocates, maps or starts something is made to fail, at its first,
//! its second and its last hit in a scenario (`conformance::scenario`), until no site is left that was not tried. A site is the
//! stack of return addresses, so the same routine called from two places is two sites, and what a failing path reaches for
//! the first time is tried as well.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "trials.rs"]
mod trials;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("no trials here: they load the driver in the kernel host, which runs on x86-64 Linux only");
}
