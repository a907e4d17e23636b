//! This computer: devices by SetupAPI, the Winsock catalogue, code integrity, and what PowerShell says.

use super::powershell::{ShellAnswers, service};
use super::{Computer, Surroundings};
use crate::adapter::{Devices, SetupApi};
use crate::doctor::facts::{ProviderEntry, SystemFacts};
use crate::failure::Failure;
use crate::nd::catalog::install::Catalog;
use crate::nd::catalog::winsock::{Winsock, expanded};
use crate::transport::{Machine, SystemDevice};
use windows_sys::Wdk::System::SystemInformation::{NtQuerySystemInformation, SystemCodeIntegrityInformation};

impl Computer for Machine {
    type Device = SystemDevice;

    fn open_provider(&self) -> Result<SystemDevice, Failure> {
        self.open_provider()
    }

    fn open_consumer(&self) -> Result<SystemDevice, Failure> {
        self.open()
    }

    fn open_network_direct(&self) -> Result<SystemDevice, Failure> {
        self.open_network_direct()
    }

    fn surroundings(&self) -> Surroundings {
        let answers = ShellAnswers::collect();
        Surroundings {
            provider_service: service(answers.provider_service.as_deref()),
            consumer_service: service(answers.consumer_service.as_deref()),
            entries: entries(),
            system: SystemFacts {
                elevated: answers.elevated,
                test_signing: test_signing(),
                secure_boot: answers.secure_boot,
                signature_trusted: answers.signature_trusted,
                network_direct: answers.network_direct,
                verifier_flags: answers.verifier_flags_of_ours(),
                devices: SetupApi.list().ok(),
            },
            interfaces: answers.interfaces,
        }
    }
}

/// The entries of softnd.dll, that of version 2 first.
fn entries() -> Option<Vec<ProviderEntry>> {
    let entries = Winsock::start().and_then(|winsock| winsock.entries()).ok()?;
    let ours = entries.iter().filter(|entry| entry.info.generation().is_some());
    let shown = ours.map(|entry| {
        let path = expanded(&entry.path);
        ProviderEntry { dll_is_there: path.is_file(), path: path.to_string_lossy().into_owned() }
    });
    let mut shown: Vec<_> = shown.collect();
    shown.dedup();
    Some(shown)
}

/// SYSTEM_CODEINTEGRITY_INFORMATION.
#[repr(C)]
struct CodeIntegrity {
    length: u32,
    options: u32,
}

/// Whether test-signed drivers are loaded now: what bcdedit lists counts from the next start on.
fn test_signing() -> Option<bool> {
    const TEST_SIGN: u32 = 0x2;
    let length = size_of::<CodeIntegrity>() as u32;
    let mut information = CodeIntegrity { length, options: 0 };
    let (place, returned) = ((&raw mut information).cast(), std::ptr::null_mut());
    // SAFETY: a structure of as many bytes as the length says, which says its size itself.
    let status = unsafe { NtQuerySystemInformation(SystemCodeIntegrityInformation, place, length, returned) };
    (status >= 0).then_some(information.options & TEST_SIGN != 0)
}
