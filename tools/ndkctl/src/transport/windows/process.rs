//! A client of NetworkDirect in this process.

use super::Machine;
use crate::failure::{Failure, Kind};
use crate::nd::catalog::winsock::{default_dll, wide_path};
use crate::nd::system::System;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use windows_sys::Win32::Foundation::{FreeLibrary, HMODULE};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress, LoadLibraryW};
use windows_sys::core::w;

impl Machine {
    /// The provider DLL that the Winsock catalogue names.
    pub fn provider_dll(&self) -> Option<PathBuf> {
        default_dll().ok()
    }

    /// Loads a provider, runs a program with it, and gives it back.
    pub fn in_process<T>(&self, dll: Option<&Path>, run: impl FnOnce(&System<'_>) -> T) -> Result<T, Failure> {
        let path = dll.map_or_else(default_dll, |path| Ok(path.to_owned()))?;
        let provider = Library::load(&path)?;
        let class_object = provider.function("DllGetClassObject").ok_or_else(|| {
            let cause = "it does not export DllGetClassObject";
            cannot_load(&path, cause, "name a provider of NetworkDirect with --dll")
        })?;
        // SAFETY: a module that every process has, which stays loaded.
        let kernel32 = unsafe { GetModuleHandleW(w!("kernel32.dll")) };
        // SAFETY: the functions of these names, and the DLL stays loaded until the program has ended.
        let system = unsafe { System::new(|name| function(kernel32, name), class_object, None) }?;
        Ok(run(&system))
    }
}

fn cannot_load(path: &Path, cause: &str, next: &str) -> Failure {
    Failure::new(Kind::Unreachable, format!("cannot load {}", path.display()), cause, next)
}

/// The address of an exported function.
fn function(module: HMODULE, name: &str) -> Option<usize> {
    let name = CString::new(name).ok()?;
    // SAFETY: a loaded module, a text with its zero.
    let address = unsafe { GetProcAddress(module, name.as_ptr().cast()) };
    address.map(|address| address as usize)
}

/// A loaded DLL.
struct Library(HMODULE);

impl Library {
    fn load(path: &Path) -> Result<Self, Failure> {
        // SAFETY: a text with its zero; what the DLL does when it is loaded is its own matter.
        let module = unsafe { LoadLibraryW(wide_path(path).as_ptr()) };
        if module.is_null() {
            let cause = std::io::Error::last_os_error().to_string();
            return Err(cannot_load(path, &cause, "check that it is there and is for x64, or name another with --dll"));
        }
        Ok(Self(module))
    }

    fn function(&self, name: &str) -> Option<usize> {
        function(self.0, name)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: loaded once for this value, and nothing of it is used any more.
        unsafe { FreeLibrary(self.0) };
    }
}
