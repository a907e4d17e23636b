//! Programs of the host's own: Rust code that runs as code of a process, on a user stack, and calls its DLLs and the functions of
//! user mode directly, by the Windows convention.

use super::imports;
use super::process::Process;

/// A program before its run, and what it gave.
struct Run<P, T> {
    program: Option<P>,
    result: Option<T>,
}

/// What the process calls.
///
/// # Safety
///
/// `run` is the caller's and stays until this returns.
unsafe extern "win64" fn enter<P: FnOnce() -> T, T>(run: *mut Run<P, T>) -> u64 {
    // SAFETY: the caller's contract.
    let run = unsafe { &mut *run };
    run.result = run.program.take().map(|program| program());
    0
}

/// The address by which a program calls a function of kernel32.dll or ntdll.dll; `None` when the host does not have it.
#[must_use]
pub fn function(module: &str, name: &str) -> Option<usize> {
    imports::address_of(module, name)
}

impl Process {
    /// Runs a program as code of this process. What it has on its stack is memory of the process, what it allocates by Rust's means
    /// is not. It starts no threads, and a panic in it ends the host.
    ///
    /// # Panics
    ///
    /// If the process is killed meanwhile; what the program had then is not dropped.
    pub fn run<T>(&self, program: impl FnOnce() -> T) -> T {
        fn address<P: FnOnce() -> T, T>(_: &Run<P, T>) -> usize {
            enter::<P, T> as *const () as usize
        }
        let mut run = Run { program: Some(program), result: None };
        let target = address(&run);
        // SAFETY: the function takes the address of the run, which stays until the call returns.
        unsafe { self.call(target, &[&raw mut run as u64]) };
        run.result.expect("a program that has returned")
    }
}
