//! What programs can import: the table of exported functions, which the loader binds DLLs to and no driver.

use super::{kernel32, ntdll};
use crate::export::{self, ExportDeclaration, Resolved};
use crate::thunk;

/// Every table of functions of user mode.
pub static TABLES: &[&[ExportDeclaration]] = &[
    kernel32::files::EXPORTS,
    kernel32::memory::EXPORTS,
    kernel32::ports::EXPORTS,
    kernel32::system::EXPORTS,
    kernel32::waits::EXPORTS,
    ntdll::EXPORTS,
];

/// Functions of ntdll.dll that are the kernel's own: they run on the stack of their caller.
const OF_KERNEL: &[&str] = &["memcpy", "memmove", "memset", "memcmp"];

/// Whether a module is one of user mode.
pub(crate) fn is_module(module: &str) -> bool {
    matches!(module, "kernel32.dll" | "ntdll.dll")
}

/// What the import slot of a DLL receives, by the module's file name (any case) and the function's (exact).
pub(crate) fn address_of(module: &str, name: &str) -> Option<usize> {
    let module = module.to_ascii_lowercase();
    if module == "ntdll.dll" && OF_KERNEL.contains(&name) {
        return match export::resolve("ntoskrnl.exe", name)? {
            Resolved::Function(export) => Some(export.address as usize),
            Resolved::Data(_) => None,
        };
    }
    let mut exports = TABLES.iter().copied().flatten();
    let export = exports.find(|export| export.module == module && export.name == name)?;
    Some(thunk::stub_for(export.address, export.arguments))
}
