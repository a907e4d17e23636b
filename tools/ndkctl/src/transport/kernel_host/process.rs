//! A client of NetworkDirect in a process of the kernel host, with the real DLL.

use super::Machine;
use crate::failure::{Failure, Kind};
use crate::nd::system::System;
use kernel_host::user::{Dll, program};
use std::path::{Path, PathBuf};

/// Where `cargo xtask softnd` leaves the provider.
const DEFAULT_DLLS: [&str; 2] = ["target/softnd/x64/release/softnd.dll", "target/softnd/x64/debug/softnd.dll"];

impl Machine {
    /// The provider DLL that is used unless another is named.
    pub fn provider_dll(&self) -> Option<PathBuf> {
        let named = std::env::var_os("SOFTNDK_DLL").map(PathBuf::from);
        named.or_else(|| find_dll(None).ok())
    }

    /// Starts a process, loads a provider in it, runs a program as its code, and ends it. The provider must have no objects left.
    pub fn in_process<T>(&self, dll: Option<&Path>, run: impl FnOnce(&System<'_>) -> T) -> Result<T, Failure> {
        let path = find_dll(dll)?;
        let process = self.kernel.start_process();
        let provider = process.load_dll(&path).map_err(|error| cannot_load(&path, &error.to_string()))?;
        let class_object = exported(&provider, &path, "DllGetClassObject")?;
        let can_unload = exported(&provider, &path, "DllCanUnloadNow")?;
        let sent = || process.control_requests();
        // SAFETY: the functions are the process's own, which ends after the program.
        let system = unsafe { System::new(|name| program::function("kernel32.dll", name), class_object, Some(&sent)) }?;
        let result = process.run(|| run(&system));
        // SAFETY: an exported function without arguments.
        let answer = unsafe { process.call(can_unload, &[]) } as u32;
        process.exit();
        if answer == 0 { Ok(result) } else { Err(left_behind(&path)) }
    }
}

fn find_dll(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    let found = DEFAULT_DLLS.iter().map(PathBuf::from).find(|path| path.exists());
    wanted.map(Path::to_owned).or(found).ok_or_else(|| {
        let cause = format!("neither {} nor {} is there", DEFAULT_DLLS[0], DEFAULT_DLLS[1]);
        let next = "build it with \"cargo xtask softnd --release\", or name one with --dll";
        Failure::new(Kind::Unreachable, "cannot find softnd.dll", cause, next)
    })
}

fn cannot_load(path: &Path, cause: &str) -> Failure {
    let next = "build it with \"cargo xtask softnd --release\", or name another with --dll";
    Failure::new(Kind::Unreachable, format!("cannot load {}", path.display()), cause, next)
}

fn exported(dll: &Dll, path: &Path, name: &str) -> Result<usize, Failure> {
    dll.export(name).ok_or_else(|| cannot_load(path, &format!("it does not export {name}")))
}

fn left_behind(path: &Path) -> Failure {
    Failure::new(
        Kind::LeftBehind,
        format!("{} still has objects when its client has released all of them", path.display()),
        "DllCanUnloadNow gives S_FALSE",
        "this is a fault of the provider; please report it",
    )
}
