//! What this machine takes for what every data path is made of; `cargo xtask bench` measures the driver beside it.

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
