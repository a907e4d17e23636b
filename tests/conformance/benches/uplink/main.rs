//! How fast frames cross between two machines, beside plain datagrams, measured.

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
