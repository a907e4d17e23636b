//! Two machines in two processes, each with the loaded image and one adapter: connections between them over TCP, from the start-up to
//! every way they end. Both hosts must be clean at their ends.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "failing_calls.rs"]
mod failing_calls;
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
