//! Ends of processes.

use super::fails;
use crate::user::call::system_call;
use crate::user::dos_error;
use crate::user::handles::CURRENT_PROCESS;
use crate::user::program_state::ProgramEnd;

crate::exports! {
    module "kernel32.dll";

    /// Ends the process of the calling thread; no DllMain runs any more.
    /// Source: Win32: ExitProcess
    [PASSIVE_ONLY] fn ExitProcess(code: u32) {
        system_call(|process| process.ends(ProgramEnd::Exited(code)));
    }

    /// As ExitProcess; a process ends itself only.
    /// Source: Win32: TerminateProcess
    [PASSIVE_ONLY] fn TerminateProcess(handle: usize, code: u32) -> u32 {
        system_call(|process| {
            if handle != CURRENT_PROCESS {
                return fails(dos_error::ERROR_INVALID_HANDLE);
            }
            process.ends(ProgramEnd::Exited(code));
            1
        })
    }
}
