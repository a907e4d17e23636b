//! Instructions that the release image takes for a request, against the numbers in `instructions.json`.
//!
//! Times depend on the machine and on what else it does; instructions do not. A row that takes over 5 % more than its number fails;
//! so does one that takes over 5 % less, so that the file stays true. `INSTRUCTIONS_BLESS=1` writes the file;
//! `INSTRUCTIONS_OF=ROW` prints which functions a row's instructions are in, with `INLINED=1` by the functions they come from.
//! Rows are without long copies: a string instruction counts once a byte here.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "instructions/rows.rs"]
mod rows;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    rows::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("nothing is counted here: the kernel host runs on x86-64 Linux only");
}
