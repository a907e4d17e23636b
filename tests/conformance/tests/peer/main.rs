//! A machine with the loaded image and a peer that is scripted byte by byte: what the wire demands of either role, and what a consumer
//! sees of it. The machine must be clean at its end.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod consumer;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod data;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ends;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod errors;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod roles;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod setup;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trials;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("no trials here: they load the driver in the kernel host, which runs on x86-64 Linux only");
}
