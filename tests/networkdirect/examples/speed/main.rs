//! The speed of reads through softnd.dll, in the kernel host's fast mode.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod program;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() {
    program::main();
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("this loads the driver in the kernel host, which runs on x86-64 Linux only");
}
