//! The process, the thread, the machine.

use super::fails;
use crate::memory::PAGE_SIZE;
use crate::processor;
use crate::thread::Thread;
use crate::user::call::{last_error, set_last_error, system_call};
use crate::user::dos_error;
use crate::user::handles::CURRENT_PROCESS;

const PROCESSOR_ARCHITECTURE_AMD64: u16 = 9;
const PROCESSOR_AMD_X8664: u32 = 8664;
const ALLOCATION_GRANULARITY: u32 = 0x1_0000;
const LOWEST_ADDRESS: usize = 0x1_0000;
const STD_OUTPUT_HANDLE: u32 = -11_i32 as u32;
const STD_ERROR_HANDLE: u32 = -12_i32 as u32;
/// The pseudo handles of the standard output and of that of errors.
const STANDARD_OUTPUT: usize = 0x0BAD_0001;
const STANDARD_ERROR: usize = 0x0BAD_0005;
const ERROR_NOACCESS: u32 = 998;
const HIGHEST_ADDRESS: usize = 0x7FFF_FFFE_FFFF;

#[repr(C)]
pub struct SYSTEM_INFO {
    ProcessorArchitecture: u16,
    Reserved: u16,
    PageSize: u32,
    MinimumApplicationAddress: usize,
    MaximumApplicationAddress: usize,
    ActiveProcessorMask: u64,
    NumberOfProcessors: u32,
    ProcessorType: u32,
    AllocationGranularity: u32,
    ProcessorLevel: u16,
    ProcessorRevision: u16,
}

const _: () = assert!(size_of::<SYSTEM_INFO>() == 48);

crate::exports! {
    module "kernel32.dll";

    /// The pseudo handle -1.
    /// Source: Win32: GetCurrentProcess
    [PASSIVE_ONLY] fn GetCurrentProcess() -> usize {
        CURRENT_PROCESS
    }

    /// The number that drivers get from IoGetRequestorProcessId.
    /// Source: Win32: GetCurrentProcessId
    [PASSIVE_ONLY] fn GetCurrentProcessId() -> u32 {
        system_call(|process| process.number)
    }

    /// The number of the kernel thread.
    /// Source: Win32: GetCurrentThreadId
    [PASSIVE_ONLY] fn GetCurrentThreadId() -> u32 {
        Thread::current().identifier() as u32
    }

    /// The error of the last call that failed on this thread.
    /// Source: Win32: GetLastError
    [PASSIVE_ONLY] fn GetLastError() -> u32 {
        last_error()
    }

    /// Source: Win32: SetLastError
    [PASSIVE_ONLY] fn SetLastError(error: u32) {
        set_last_error(error);
    }

    /// Pages of 4 KiB and the kernel's processors.
    /// Source: Win32: GetSystemInfo
    [PASSIVE_ONLY] fn GetSystemInfo(information: *mut SYSTEM_INFO) {
        let processors = processor::count();
        let filled = SYSTEM_INFO {
            ProcessorArchitecture: PROCESSOR_ARCHITECTURE_AMD64,
            Reserved: 0,
            PageSize: PAGE_SIZE as u32,
            MinimumApplicationAddress: LOWEST_ADDRESS,
            MaximumApplicationAddress: HIGHEST_ADDRESS,
            ActiveProcessorMask: u64::MAX >> (64 - processors.min(64)),
            NumberOfProcessors: processors as u32,
            ProcessorType: PROCESSOR_AMD_X8664,
            AllocationGranularity: ALLOCATION_GRANULARITY,
            ProcessorLevel: 0,
            ProcessorRevision: 0,
        };
        // SAFETY: the caller's out parameter.
        unsafe { information.write(filled) };
    }

    /// The command line in bytes.
    /// Source: Win32: GetCommandLineA
    [PASSIVE_ONLY] fn GetCommandLineA() -> usize {
        system_call(|process| process.program.command_line()[0])
    }

    /// Source: Win32: GetCommandLineW
    [PASSIVE_ONLY] fn GetCommandLineW() -> usize {
        system_call(|process| process.program.command_line()[1])
    }

    /// The standard output and that of errors; there is no input.
    /// Source: Win32: GetStdHandle
    [PASSIVE_ONLY] fn GetStdHandle(which: u32) -> usize {
        match which {
            STD_OUTPUT_HANDLE => STANDARD_OUTPUT,
            STD_ERROR_HANDLE => STANDARD_ERROR,
            _ => 0,
        }
    }

    /// Writes to the standard output: that of the process's program, or the host's own where it has none. Files are not written.
    /// Source: Win32: WriteFile
    [PASSIVE_ONLY] fn WriteFile(
        file: usize,
        buffer: usize,
        length: u32,
        written: *mut u32,
        _overlapped: usize,
    ) -> u32 {
        system_call(|process| {
            let Some(bytes) = process.memory.read(buffer, length as usize) else { return fails(ERROR_NOACCESS) };
            if file != STANDARD_OUTPUT && file != STANDARD_ERROR {
                return fails(dos_error::ERROR_INVALID_HANDLE);
            }
            if process.program.is_contained() {
                process.program.write(&bytes);
            } else {
                print!("{}", String::from_utf8_lossy(&bytes));
            }
            if !written.is_null() {
                // SAFETY: the program's place for a number.
                unsafe { written.write(length) };
            }
            1
        })
    }
}
