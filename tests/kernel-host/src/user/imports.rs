//! What programs can import: the table of exported functions, which the loader binds DLLs to and no driver; for programs of others
//! the run-time library besides, and the DLLs that they bring.

use std::sync::Arc;

use super::process::ProcessState;
use super::{kernel32, libraries, ntdll};
use crate::export::{self, ExportDeclaration, Resolved};
use crate::image::Export;
use crate::image::Target;
use crate::image::loader::ImportedFunction;
use crate::thunk;

/// Every table of functions of user mode.
pub static TABLES: &[&[ExportDeclaration]] = &[
    kernel32::address_waits::EXPORTS,
    kernel32::clock::EXPORTS,
    kernel32::ends::EXPORTS,
    kernel32::files::EXPORTS,
    kernel32::host::EXPORTS,
    kernel32::libraries::EXPORTS,
    kernel32::memory::EXPORTS,
    kernel32::ports::EXPORTS,
    kernel32::system::EXPORTS,
    kernel32::threads::EXPORTS,
    kernel32::waits::EXPORTS,
    ntdll::EXPORTS,
];

/// Functions of ntdll.dll that are the kernel's own: they run on the stack of their caller.
const OF_KERNEL: &[&str] = &["memcpy", "memmove", "memset", "memcmp"];

/// The host's private module, which the run-time library imports.
const HOST: &str = "kernel-host.dll";

/// Functions that are imported from ws2_32.dll by number.
const SOCKET_ORDINALS: &[(u16, &str)] = &[
    (1, "accept"),
    (2, "bind"),
    (3, "closesocket"),
    (4, "connect"),
    (5, "getpeername"),
    (6, "getsockname"),
    (7, "getsockopt"),
    (8, "htonl"),
    (9, "htons"),
    (10, "ioctlsocket"),
    (11, "inet_addr"),
    (12, "inet_ntoa"),
    (13, "listen"),
    (14, "ntohl"),
    (15, "ntohs"),
    (16, "recv"),
    (17, "recvfrom"),
    (18, "select"),
    (19, "send"),
    (20, "sendto"),
    (21, "setsockopt"),
    (22, "shutdown"),
    (23, "socket"),
    (57, "gethostname"),
    (111, "WSAGetLastError"),
    (112, "WSASetLastError"),
    (115, "WSAStartup"),
    (116, "WSACleanup"),
    (151, "__WSAFDIsSet"),
];

/// Whether a module is one of user mode.
pub(crate) fn is_module(module: &str) -> bool {
    matches!(module, "kernel32.dll" | "ntdll.dll" | HOST)
}

/// Whether the host has a module of this name, in lower case, itself: by its own exports or by the run-time library.
pub(super) fn is_of_system(module: &str) -> bool {
    const PREFIXES: [&str; 5] = ["api-ms-win-crt-", "api-ms-win-core-", "msvcr", "vcruntime", "ucrtbase"];
    const NAMES: [&str; 5] = ["kernel32.dll", "kernelbase.dll", "ntdll.dll", "ws2_32.dll", HOST];
    NAMES.contains(&module) || PREFIXES.iter().any(|prefix| module.starts_with(prefix))
}

/// The module whose table in the host a module's functions are in.
fn table_of(module: &str) -> &str {
    match module {
        "kernelbase.dll" => "kernel32.dll",
        other if other.starts_with("api-ms-win-core-") => "kernel32.dll",
        other => other,
    }
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
    let module = table_of(&module);
    let mut exports = TABLES.iter().copied().flatten();
    let export = exports.find(|export| export.module == module && export.name == name)?;
    Some(thunk::stub_for(export.address, export.arguments))
}

/// A function of a module that [`is_of_system`] knows.
pub(super) fn of_system(state: &Arc<ProcessState>, module: &str, name: &str) -> Option<usize> {
    address_of(module, name).or_else(|| {
        let run_time = state.program.libraries.run_time()?;
        run_time.exports.iter().find(|(own, _)| own == name).map(|(_, address)| *address)
    })
}

/// As [`address_of`], in a process, for an image with these exports: those of the run-time library are its own imports, too.
pub(super) fn address_for(
    state: &Arc<ProcessState>,
    module: &str,
    function: ImportedFunction<'_>,
    own: &[Export],
) -> Option<usize> {
    let lower = module.to_ascii_lowercase();
    if !is_of_system(&lower) {
        let image = libraries::map(state, &lower)?.ok()?;
        return libraries::export(state, &image, |export| match function {
            ImportedFunction::Name(name) => export.name.as_deref() == Some(name),
            ImportedFunction::Ordinal(ordinal) => export.ordinal == ordinal,
        });
    }
    let name = match function {
        ImportedFunction::Name(name) => name,
        ImportedFunction::Ordinal(ordinal) => {
            let of_sockets = SOCKET_ORDINALS.iter().filter(|_| lower == "ws2_32.dll");
            of_sockets.clone().find(|(number, _)| *number == ordinal).map(|(_, name)| *name)?
        }
    };
    of_system(state, &lower, name).or_else(|| {
        let is_run_time = state.program.is_contained() && state.program.libraries.run_time().is_none();
        let found = own.iter().filter(|_| is_run_time).find(|export| export.name.as_deref() == Some(name))?;
        match &found.target {
            Target::Address(address) => Some(*address),
            Target::Forwarder(_) => None,
        }
    })
}
