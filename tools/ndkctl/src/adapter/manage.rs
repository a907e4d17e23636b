//! What `ndkctl adapter add`, `remove` and `list` do.
//!
//! Rules kept here:
//! - as many adapters as are wanted are there afterwards, or those that were there before: nothing half-made stays;
//! - a device without a driver, as an interrupted run leaves it, is removed before another is made;
//! - devices that are not ours are never touched.

use super::devices::{AdapterDevice, Devices};
use crate::failure::{Failure, Kind};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use tabled::builder::Builder;
use tabled::settings::Style;

/// What `adapter add` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceAddReport {
    /// Instance ids of those that were there.
    pub unchanged: Vec<String>,
    pub added: Vec<String>,
    /// Devices without a driver, which an interrupted run had left.
    pub removed: Vec<String>,
    pub restart_needed: bool,
}

/// What `adapter remove` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceRemoveReport {
    pub removed: Vec<String>,
    pub restart_needed: bool,
}

/// What `adapter list` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceListReport {
    pub devices: Vec<AdapterDevice>,
}

/// Makes devices until there are `count`.
pub fn add(devices: &impl Devices, count: usize, inf: Option<&Path>) -> Result<DeviceAddReport, Failure> {
    let (complete, without_driver): (Vec<_>, Vec<_>) =
        devices.list()?.into_iter().partition(|device| device.has_driver);
    let mut restart_needed = false;
    for device in &without_driver {
        restart_needed |= devices.remove(&device.instance)?;
    }
    let mut added = Vec::new();
    for _ in complete.len()..count {
        match add_one(devices, inf) {
            Ok((instance, restart)) => {
                added.push(instance);
                restart_needed |= restart;
            }
            Err(failure) => return Err(undone(devices, &added, failure)),
        }
    }
    let instances = |devices: Vec<AdapterDevice>| devices.into_iter().map(|device| device.instance).collect();
    Ok(DeviceAddReport { unchanged: instances(complete), added, removed: instances(without_driver), restart_needed })
}

/// A device with its driver, or none.
fn add_one(devices: &impl Devices, inf: Option<&Path>) -> Result<(String, bool), Failure> {
    let instance = devices.register()?;
    let installed = devices
        .install(&instance, inf)
        .and_then(|restart| if has_driver(devices, &instance)? { Ok(restart) } else { Err(no_driver(&instance)) });
    match installed {
        Ok(restart) => Ok((instance, restart)),
        Err(failure) => Err(undone(devices, &[instance], failure)),
    }
}

fn has_driver(devices: &impl Devices, instance: &str) -> Result<bool, Failure> {
    Ok(devices.list()?.iter().any(|device| is(device, instance) && device.has_driver))
}

fn is(device: &AdapterDevice, instance: &str) -> bool {
    device.instance.eq_ignore_ascii_case(instance)
}

fn no_driver(instance: &str) -> Failure {
    Failure::new(
        Kind::Refused,
        format!("cannot install the driver of {instance}"),
        "Windows has found no driver for it",
        "check that the INF is that of this architecture and build (19041 or later), and is signed",
    )
}

/// Takes back what was made, and says what of it could not be removed.
fn undone(devices: &impl Devices, made: &[String], mut failure: Failure) -> Failure {
    for instance in made {
        if let Err(second) = devices.remove(instance) {
            failure.cause = format!("{}; {instance} is left and could not be removed: {}", failure.cause, second.cause);
            failure.next_step = format!("{}; then \"ndkctl adapter remove {instance}\"", failure.next_step);
        }
    }
    failure
}

/// Removes one device, or all of ours.
pub fn remove(devices: &impl Devices, wanted: Option<&str>) -> Result<DeviceRemoveReport, Failure> {
    let there = devices.list()?;
    let chosen: Vec<&AdapterDevice> = match wanted {
        None => there.iter().collect(),
        Some(instance) => vec![there.iter().find(|device| is(device, instance)).ok_or_else(|| not_ours(instance))?],
    };
    let (mut report, mut first) = (DeviceRemoveReport { removed: Vec::new(), restart_needed: false }, None);
    for device in chosen {
        match devices.remove(&device.instance) {
            Ok(restart) => {
                report.removed.push(device.instance.clone());
                report.restart_needed |= restart;
            }
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    match first {
        None => Ok(report),
        Some(failure) if report.removed.is_empty() => Err(failure),
        Some(failure) => {
            let cause = format!("{} (removed: {})", failure.cause, report.removed.join(", "));
            Err(Failure { cause, ..failure })
        }
    }
}

fn not_ours(instance: &str) -> Failure {
    Failure::new(
        Kind::Usage,
        format!("cannot remove {instance}"),
        "no adapter of softndk has this instance id",
        "\"ndkctl adapter list\" shows them",
    )
}

/// Lists them.
pub fn list(devices: &impl Devices) -> Result<DeviceListReport, Failure> {
    Ok(DeviceListReport { devices: devices.list()? })
}

const RESTART: &str = "\nrestart Windows to finish";

impl fmt::Display for DeviceAddReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = |what: &str, instances: &[String]| {
            instances.iter().map(|instance| format!("{instance}: {what}")).collect::<Vec<_>>()
        };
        let removed = lines("removed: it had no driver", &self.removed);
        let lines = [removed, lines("was there", &self.unchanged), lines("added", &self.added)].concat();
        write!(formatter, "{}{}", lines.join("\n"), if self.restart_needed { RESTART } else { "" })
    }
}

impl fmt::Display for DeviceRemoveReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.removed.is_empty() {
            return write!(formatter, "there were no adapters of softndk");
        }
        let lines: Vec<_> = self.removed.iter().map(|instance| format!("{instance}: removed")).collect();
        write!(formatter, "{}{}", lines.join("\n"), if self.restart_needed { RESTART } else { "" })
    }
}

impl fmt::Display for DeviceListReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.devices.is_empty() {
            return write!(formatter, "no adapters of softndk; \"ndkctl adapter add\" makes them");
        }
        let mut table = Builder::default();
        table.push_record(["instance", "alias", "state"]);
        for device in &self.devices {
            let alias = device.alias.clone().unwrap_or_else(|| "none".to_owned());
            table.push_record([device.instance.clone(), alias, state(device)]);
        }
        let mut table = table.build();
        table.with(Style::rounded());
        write!(formatter, "{table}")
    }
}

fn state(device: &AdapterDevice) -> String {
    match device {
        AdapterDevice { has_driver: false, .. } => "without a driver".to_owned(),
        AdapterDevice { problem: Some(code), .. } => format!("problem code {code}"),
        AdapterDevice { started: true, .. } => "started".to_owned(),
        AdapterDevice { started: false, .. } => "not started".to_owned(),
    }
}

#[cfg(test)]
#[path = "manage_tests.rs"]
mod tests;
