//! The functions of the system that the provider calls, those of `imports.txt` and no others.

#![allow(clippy::upper_case_acronyms, reason = "names of the system")]

use core::ffi::c_void;

pub const INFINITE: u32 = u32::MAX;
pub const GENERIC_READ_WRITE: u32 = 0xC000_0000;
pub const SHARE_READ_WRITE: u32 = 3;
pub const OPEN_EXISTING: u32 = 3;
pub const FILE_FLAG_OVERLAPPED: u32 = 0x4000_0000;
pub const DUPLICATE_SAME_ACCESS: u32 = 2;
pub const COMMIT_AND_RESERVE: u32 = 0x3000;
pub const RELEASE: u32 = 0x8000;
pub const PAGE_READWRITE: u32 = 4;
pub const SKIP_COMPLETION_PORT_ON_SUCCESS: u8 = 1;
pub const SKIP_SET_EVENT_ON_HANDLE: u8 = 2;
pub const ERROR_FILE_NOT_FOUND: u32 = 2;
pub const ERROR_PATH_NOT_FOUND: u32 = 3;
pub const ERROR_ACCESS_DENIED: u32 = 5;

/// HANDLE.
pub type RawHandle = *mut c_void;

/// INVALID_HANDLE_VALUE.
pub const INVALID_HANDLE: RawHandle = usize::MAX as RawHandle;

/// IO_STATUS_BLOCK. The first four bytes are the status.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IoStatusBlock {
    pub status: usize,
    pub information: usize,
}

/// Declares the functions: imports on Windows, elsewhere calls of [`simulated`].
macro_rules! imports {
    ($($module:literal { $(fn $name:ident($($argument:ident: $Type:ty),* $(,)?) $(-> $Result:ty)?;)* })*) => {
        $(
            #[cfg(windows)]
            #[link(name = $module, kind = "raw-dylib", modifiers = "+verbatim")]
            unsafe extern "system" {
                $(pub fn $name($($argument: $Type),*) $(-> $Result)?;)*
            }
        )*

        #[cfg(not(windows))]
        #[allow(non_snake_case, reason = "names of the system")]
        mod simulation {
            use super::*;
            $($(
                /// # Safety
                /// As of the system's function of this name.
                #[allow(clippy::too_many_arguments, reason = "the system's function has as many")]
                pub unsafe fn $name($($argument: $Type),*) $(-> $Result)? {
                    // SAFETY: the caller's promise.
                    unsafe { simulated::$name($($argument),*) }
                }
            )*)*
        }
        #[cfg(not(windows))]
        pub use simulation::*;

        /// What is declared, for the comparison with `imports.txt`.
        #[cfg(test)]
        pub const DECLARED: &[(&str, &str)] = &[$($(($module, stringify!($name)),)*)*];
    };
}

imports! {
    "kernel32.dll" {
        fn CancelIoEx(file: RawHandle, overlapped: *mut c_void) -> i32;
        fn CloseHandle(handle: RawHandle) -> i32;
        fn CreateEventW(security: *const c_void, manual_reset: i32, initial: i32, name: *const u16) -> RawHandle;
        fn CreateFileW(
            name: *const u16,
            access: u32,
            share: u32,
            security: *const c_void,
            disposition: u32,
            flags: u32,
            template: RawHandle,
        ) -> RawHandle;
        fn CreateIoCompletionPort(file: RawHandle, port: RawHandle, key: usize, threads: u32) -> RawHandle;
        fn DuplicateHandle(
            source_process: RawHandle,
            source: RawHandle,
            target_process: RawHandle,
            target: *mut RawHandle,
            access: u32,
            inherit: i32,
            options: u32,
        ) -> i32;
        fn GetCurrentProcess() -> RawHandle;
        fn GetLastError() -> u32;
        fn GetProcessHeap() -> RawHandle;
        fn GetQueuedCompletionStatus(
            port: RawHandle,
            bytes: *mut u32,
            key: *mut usize,
            overlapped: *mut *mut c_void,
            milliseconds: u32,
        ) -> i32;
        fn HeapAlloc(heap: RawHandle, flags: u32, bytes: usize) -> *mut c_void;
        fn HeapFree(heap: RawHandle, flags: u32, block: *mut c_void) -> i32;
        fn SetFileCompletionNotificationModes(file: RawHandle, modes: u8) -> i32;
        fn Sleep(milliseconds: u32);
        fn SwitchToThread() -> i32;
        fn VirtualAlloc(address: *mut c_void, bytes: usize, kind: u32, protection: u32) -> *mut c_void;
        fn VirtualFree(address: *mut c_void, bytes: usize, kind: u32) -> i32;
        fn WaitForSingleObject(handle: RawHandle, milliseconds: u32) -> u32;
    }
    "ntdll.dll" {
        fn NtDeviceIoControlFile(
            file: RawHandle,
            event: RawHandle,
            apc: *mut c_void,
            apc_context: *mut c_void,
            status: *mut IoStatusBlock,
            code: u32,
            input: *const c_void,
            input_length: u32,
            output: *mut c_void,
            output_length: u32,
        ) -> i32;
    }
}

#[cfg(not(windows))]
pub mod simulated;

#[cfg(test)]
mod tests {
    use super::DECLARED;
    use std::{format, string::String, vec::Vec};

    #[test]
    fn list_of_imports_is_what_is_declared() {
        let listed = include_str!("../imports.txt").lines().filter(|line| !line.starts_with('#'));
        let declared = DECLARED.iter().map(|(module, name)| format!("{module} {name}")).collect::<Vec<String>>();
        assert_eq!(listed.collect::<Vec<_>>(), declared);
    }
}
