//! Programs of others (docs/own-program.md): three console programs, built as others build theirs, on a machine with the driver.

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
