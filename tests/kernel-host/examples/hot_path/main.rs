//! What the exports on a driver's hot path cost in fast mode: `hot_path IMAGE [CYCLES]`, where IMAGE is the probe image of this
//! crate's tests and CYCLES what a change of the level is charged. Prints nanoseconds a call.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod program;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> std::process::ExitCode {
    eprintln!("this loads drivers in the kernel host, which runs on x86-64 Linux only");
    std::process::ExitCode::FAILURE
}
