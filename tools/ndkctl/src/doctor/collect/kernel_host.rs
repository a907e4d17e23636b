//! The kernel host's machine: its drivers are loaded, its driver keys are known, and there is no more of Windows.

use super::{Computer, Surroundings};
use crate::doctor::facts::{InterfaceFacts, ProviderEntry, Service, SystemFacts};
use crate::failure::Failure;
use crate::transport::{Machine, SystemDevice};

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
        let keys = self.driver_keys().iter().map(|(interface_index, keywords)| InterfaceFacts {
            interface_index: *interface_index,
            keywords: Some(keywords.clone()),
            ..InterfaceFacts::default()
        });
        let entry = |path: std::path::PathBuf| ProviderEntry {
            dll_is_there: path.is_file(),
            path: path.to_string_lossy().into_owned(),
        };
        Surroundings {
            provider_service: Service::Running,
            consumer_service: Service::Running,
            interfaces: keys.collect(),
            entries: Some(self.provider_dll().map(entry).into_iter().collect()),
            system: SystemFacts::default(),
        }
    }
}
