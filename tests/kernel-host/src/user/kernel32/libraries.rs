//! Modules: the program, its DLLs, and the system's, which have one handle, since one library stands for them.

use super::fails;
use super::files::wide_text;
use crate::user::call::system_call;
use crate::user::process::ProcessState;
use crate::user::{imports, libraries};
use std::ffi::CStr;
use std::sync::Arc;

const ERROR_MOD_NOT_FOUND: u32 = 126;
const ERROR_PROC_NOT_FOUND: u32 = 127;

/// The largest ordinal.
const MOST_ORDINAL: usize = 0xFFFF;

/// The folder in which programs believe that they are.
const FOLDER: &str = r"C:\programs\";

/// Modules whose functions are looked up by name alone.
const SYSTEM_MODULES: [&str; 3] = ["kernel32.dll", "ntdll.dll", "ws2_32.dll"];

fn module_of(process: &ProcessState, name: &str) -> Option<usize> {
    let own = &process.program.libraries;
    let name = libraries::file_name(name);
    if imports::is_of_system(&name) {
        return own.run_time().map(|image| image.base);
    }
    own.named(&name)
        .or_else(|| own.program().filter(|image| image.name.eq_ignore_ascii_case(&name)).cloned())
        .map(|image| image.base)
}

/// `name` is an address, or a number.
fn procedure(process: &Arc<ProcessState>, module: usize, name: usize) -> Option<usize> {
    let image = process.program.libraries.at(module)?;
    if name <= MOST_ORDINAL {
        return libraries::export(process, &image, |export| usize::from(export.ordinal) == name);
    }
    // SAFETY: the caller's text.
    let name = unsafe { CStr::from_ptr(name as *const libc::c_char) }.to_str().ok()?;
    if process.program.libraries.run_time().is_some_and(|run_time| run_time.base == module) {
        return SYSTEM_MODULES.iter().find_map(|module| imports::of_system(process, module, name));
    }
    libraries::export(process, &image, |export| export.name.as_deref() == Some(name))
}

crate::exports! {
    module "kernel32.dll";

    /// Loads a DLL by its file name: one that the setup of the process names, or one beside the program; once more is counted. Flags mean
    /// nothing.
    /// Source: Win32: LoadLibraryExW
    [PASSIVE_ONLY] fn LoadLibraryExW(name: *const u16, _file: usize, _flags: u32) -> usize {
        // SAFETY: the caller's text.
        let name = unsafe { wide_text(name) };
        system_call(|process| libraries::load(process, &name).unwrap_or_else(|| fails(ERROR_MOD_NOT_FOUND) as usize))
    }

    /// Takes one use of a DLL back; the last one takes it out.
    /// Source: Win32: FreeLibrary
    [PASSIVE_ONLY] fn FreeLibrary(module: usize) -> u32 {
        system_call(|process| if libraries::unload(process, module) { 1 } else { fails(ERROR_MOD_NOT_FOUND) })
    }

    /// The handle of a module that is there; NULL is the program.
    /// Source: Win32: GetModuleHandleW
    [PASSIVE_ONLY] fn GetModuleHandleW(name: *const u16) -> usize {
        // SAFETY: the caller's text.
        let name = (!name.is_null()).then(|| unsafe { wide_text(name) });
        system_call(|process| {
            let found = match &name {
                Some(name) => module_of(process, name),
                None => process.program.libraries.program().map(|image| image.base),
            };
            found.unwrap_or_else(|| fails(ERROR_MOD_NOT_FOUND) as usize)
        })
    }

    /// The path of a module, in a folder that is always the same.
    /// Source: Win32: GetModuleFileNameW
    [PASSIVE_ONLY] fn GetModuleFileNameW(module: usize, to: usize, size: u32) -> u32 {
        system_call(|process| {
            let own = &process.program.libraries;
            let image = if module == 0 { own.program().cloned() } else { own.at(module) };
            let Some(image) = image else { return fails(ERROR_MOD_NOT_FOUND) };
            let path = format!("{FOLDER}{}", image.name);
            let units: Vec<u8> = path.encode_utf16().take(size.saturating_sub(1) as usize).chain([0]).flat_map(u16::to_le_bytes).collect();
            if size != 0 && process.memory.write(to, &units) { units.len() as u32 / 2 - 1 } else { 0 }
        })
    }

    /// The address of a function of a module, by name or number.
    /// Source: Win32: GetProcAddress
    [PASSIVE_ONLY] fn GetProcAddress(module: usize, name: usize) -> usize {
        system_call(|process| {
            let module = if module == 0 { process.program.libraries.program().map_or(0, |image| image.base) } else { module };
            procedure(process, module, name).unwrap_or_else(|| fails(ERROR_PROC_NOT_FOUND) as usize)
        })
    }
}
