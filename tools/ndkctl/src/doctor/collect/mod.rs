//! Collects the facts: the control devices' answers, which are the same on every system, and what only the system knows.

#[cfg(not(windows))]
mod kernel_host;
#[cfg(any(windows, test))]
mod powershell;
#[cfg(windows)]
mod windows;

use super::facts::{
    AdapterFacts, DeviceState, DriverFacts, Facts, InterfaceFacts, ProviderEntry, Service, SystemFacts,
};
use crate::arguments::MachineArguments;
use crate::client::Client;
use crate::failure::{Failure, Kind};
use crate::identity::{Build, Part, ProviderDll};
use crate::info;
use crate::transport::{Device, Machine};
use crate::wire::UplinkReport;
use softndk_ioctl::{AdapterEntry, AdapterFlags, VersionFlags, VersionReply};
use std::path::Path;

/// A computer that is looked at.
trait Computer {
    type Device: Device;
    fn open_provider(&self) -> Result<Self::Device, Failure>;
    fn open_consumer(&self) -> Result<Self::Device, Failure>;
    fn open_network_direct(&self) -> Result<Self::Device, Failure>;
    fn surroundings(&self) -> Surroundings;
}

/// What the devices do not say.
struct Surroundings {
    provider_service: Service,
    consumer_service: Service,
    interfaces: Vec<InterfaceFacts>,
    entries: Option<Vec<ProviderEntry>>,
    system: SystemFacts,
}

/// The facts of this computer, or of the kernel host's machine.
pub fn facts(arguments: &MachineArguments) -> Result<Facts, Failure> {
    let machine = match Machine::start(arguments) {
        Ok(machine) => machine,
        // The command line is no matter of the machine.
        Err(failure) if failure.kind == Kind::Usage => return Err(failure),
        Err(failure) => return Ok(without_machine(&failure)),
    };
    let facts = of_computer(&machine);
    machine.finish()?;
    Ok(facts)
}

/// The kernel host could not load a driver.
fn without_machine(failure: &Failure) -> Facts {
    let driver = || {
        let device = DeviceState::Failed { cause: format!("{}: {}", failure.what, failure.cause) };
        DriverFacts { service: Service::Absent, device, debug_build: None }
    };
    Facts {
        parts: parts(None, None, None),
        provider: driver(),
        consumer: driver(),
        adapters: Vec::new(),
        uplinks: Vec::new(),
        consumer_interfaces: None,
        network_direct: DeviceState::Absent,
        entries: None,
        system: SystemFacts::default(),
    }
}

/// A driver's answers.
struct DriverAnswers {
    version: VersionReply,
    adapters: Vec<AdapterEntry>,
    /// None of a consumer.
    uplinks: Vec<UplinkReport>,
}

fn ask<D: Device>(device: Result<D, Failure>) -> Result<DriverAnswers, Failure> {
    let (client, version) = device.and_then(Client::connect)?;
    // Only the provider has them.
    let uplinks = client.uplinks().unwrap_or_default().iter().map(UplinkReport::of).collect();
    Ok(DriverAnswers { version, adapters: client.adapters()?, uplinks })
}

fn of_computer(computer: &impl Computer) -> Facts {
    let (provider, consumer) = (ask(computer.open_provider()), ask(computer.open_consumer()));
    let Surroundings { provider_service, consumer_service, interfaces, entries, system } = computer.surroundings();
    let dll = entries.as_ref().and_then(|entries| ProviderDll::read(Path::new(&entries.first()?.path)));
    let listed = provider.as_ref().map_or(&[][..], |answers| &answers.adapters);
    Facts {
        parts: parts(provider.as_ref().ok(), consumer.as_ref().ok(), dll),
        adapters: listed.iter().map(|entry| adapter(entry, &interfaces)).collect(),
        uplinks: provider.as_ref().map(|answers| answers.uplinks.clone()).unwrap_or_default(),
        consumer_interfaces: consumer.as_ref().ok().map(opened),
        provider: driver(provider_service, &provider),
        consumer: driver(consumer_service, &consumer),
        network_direct: computer
            .open_network_direct()
            .map_or_else(|failure| DeviceState::of(&failure), |_| DeviceState::Open),
        entries,
        system,
    }
}

fn parts(provider: Option<&DriverAnswers>, consumer: Option<&DriverAnswers>, dll: Option<ProviderDll>) -> Vec<Part> {
    let driver = |answers: Option<&DriverAnswers>| answers.map(|answers| Build::of_driver(&answers.version));
    let builds = [
        ("ndkctl", Some(Build::of_tool())),
        ("softndk.sys", driver(provider)),
        ("ndktest.sys", driver(consumer)),
        ("softnd.dll", dll.and_then(|dll| dll.build)),
    ];
    builds.into_iter().filter_map(|(name, build)| Some(Part { name, build: build? })).collect()
}

fn driver(service: Service, answers: &Result<DriverAnswers, Failure>) -> DriverFacts {
    match answers {
        Ok(answers) => {
            let debug_build = Some(answers.version.flags.contains(VersionFlags::DEBUG_BUILD));
            DriverFacts { service, device: DeviceState::Open, debug_build }
        }
        Err(failure) => DriverFacts { service, device: DeviceState::of(failure), debug_build: None },
    }
}

fn adapter(entry: &AdapterEntry, interfaces: &[InterfaceFacts]) -> AdapterFacts {
    let interface = interfaces.iter().find(|interface| interface.interface_index == entry.interface_index);
    AdapterFacts { adapter: info::adapter(entry, false), interface: interface.cloned().unwrap_or_default() }
}

/// The interfaces that the consumer opens.
fn opened(answers: &DriverAnswers) -> Vec<u32> {
    let opens = |entry: &&AdapterEntry| entry.flags.contains(AdapterFlags::NDK_ENABLED);
    answers.adapters.iter().filter(opens).map(|entry| entry.interface_index).collect()
}
