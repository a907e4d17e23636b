//! What two processors of this machine do; `cargo xtask bench` compares the driver with it.

#[cfg(target_os = "linux")]
mod program;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("this binds threads to processors of Linux");
    std::process::ExitCode::FAILURE
}
