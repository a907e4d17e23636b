//! Both drivers: installed, loaded, reachable, of one build.

use super::Verdict;
use crate::doctor::facts::{DeviceState, DriverFacts, Facts, Service};
use crate::doctor::finding::Finding;
use crate::identity::{self, OneBuild};

const PROVIDER: &str = "softndk.sys";
const CONSUMER: &str = "ndktest.sys";
const INSTALL: &str = "install the package with setup.ps1 -Install (on Linux: cargo xtask driver --release)";

pub fn judge(facts: &Facts, verdict: &mut Verdict) {
    provider(&facts.provider, verdict);
    consumer(&facts.consumer, verdict);
    if OneBuild::of(&facts.parts) == OneBuild::No {
        let cause = identity::list(&facts.parts);
        verdict.add(Finding::BuildsDiffer.of("softndk", cause, "install all parts of one package: setup.ps1 -Upgrade"));
    }
    for (name, driver) in [(PROVIDER, &facts.provider), (CONSUMER, &facts.consumer)] {
        if verdict.known(driver.debug_build, &[Finding::DebugBuild]) == Some(true) {
            let cause = "it is built with debug assertions: its speed is not representative";
            verdict.add(Finding::DebugBuild.of(name, cause, "measure with the optimised one"));
        }
    }
}

fn provider(driver: &DriverFacts, verdict: &mut Verdict) {
    match (&driver.device, driver.service) {
        (DeviceState::Open, _) => {}
        (DeviceState::OtherAbi, _) => {
            let cause = "it answers, but has another version of the control device's ABI than this tool";
            verdict.add(Finding::AbiDiffers.of(PROVIDER, cause, "use the ndkctl of the driver's package"));
        }
        (DeviceState::Denied, _) => {
            let cause = r"this user may not open \\.\SoftNdk: SYSTEM and elevated administrators may";
            verdict.add(Finding::NotElevated.of(PROVIDER, cause, "run ndkctl from an elevated prompt"));
        }
        (_, Service::Absent) => {
            let cause = cause_of(driver, "there is no service softndk");
            verdict.add(Finding::DriverAbsent.of(PROVIDER, cause, INSTALL));
        }
        (DeviceState::Absent, _) => {
            let cause = r"\\.\SoftNdk is not there: the driver is loaded with its first adapter";
            let next = "look at the findings about devices and signing; \"ndkctl adapter add\" makes adapters";
            verdict.add(Finding::DriverStopped.of(PROVIDER, cause, next));
        }
        (DeviceState::Failed { cause }, _) => {
            let next = "look at the adapter in Device Manager and at the System event log";
            verdict.add(Finding::DeviceUnreachable.of(PROVIDER, cause.clone(), next));
        }
    }
}

/// Why a driver is not there, as far as it is known.
fn cause_of(driver: &DriverFacts, otherwise: &str) -> String {
    match &driver.device {
        DeviceState::Failed { cause } => cause.clone(),
        _ => otherwise.to_owned(),
    }
}

/// Commands that move data need it; the provider does not.
fn consumer(driver: &DriverFacts, verdict: &mut Verdict) {
    let without = "ping, copy, perf, connect, replay and stress need it";
    match (&driver.device, driver.service) {
        // What one device refuses the other does, too: it is said once, of the provider.
        (DeviceState::Open | DeviceState::Denied, _) => {}
        (_, Service::Absent) => {
            let cause = format!("{}; {without}", cause_of(driver, "there is no service ndktest"));
            verdict.add(Finding::ConsumerAbsent.of(CONSUMER, cause, INSTALL));
        }
        (DeviceState::Absent, _) => {
            let cause = format!(r"\\.\NdkTest is not there; {without}");
            verdict.add(Finding::ConsumerStopped.of(CONSUMER, cause, "sc.exe start ndktest"));
        }
        (DeviceState::OtherAbi, _) => {
            let cause = "it has another version of the control device's ABI than this tool";
            verdict.add(Finding::ConsumerUnreachable.of(CONSUMER, cause, "use the ndkctl of the driver's package"));
        }
        (DeviceState::Failed { cause }, _) => {
            let next = "sc.exe stop ndktest, then sc.exe start ndktest; the System event log says more";
            verdict.add(Finding::ConsumerUnreachable.of(CONSUMER, cause.clone(), next));
        }
    }
}
