//! The loaded image against Linux: siw, the software iWARP of its kernel, in a guest that `cargo xtask interop` boots and names.
//! Both sides of each connection are looked at. Without a guest there is nothing to do.

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
