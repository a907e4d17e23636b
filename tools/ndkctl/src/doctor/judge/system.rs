//! The computer: signing, Secure Boot, devices, the switch for NDK, Driver Verifier.

use super::Verdict;
use crate::adapter::AdapterDevice;
use crate::doctor::facts::{DeviceState, Facts};
use crate::doctor::finding::Finding;

const COMPUTER: &str = "this computer";
/// Driver Verifier's randomised low resources simulation.
const LOW_RESOURCES: u32 = 0x4;

pub fn judge(facts: &Facts, verdict: &mut Verdict) {
    signing(facts, verdict);
    devices(facts, verdict);
    let system = &facts.system;
    if verdict.known(system.network_direct, &[Finding::NdkOffGlobally]) == Some(false) {
        let cause = "NetworkDirect is disabled in the global offload settings";
        verdict.add(Finding::NdkOffGlobally.of(COMPUTER, cause, "Set-NetOffloadGlobalSetting -NetworkDirect Enabled"));
    }
    if verdict.known(system.verifier_flags, &[Finding::FaultsInjected]).is_some_and(|flags| flags & LOW_RESOURCES != 0)
    {
        let cause = "Driver Verifier makes allocations of softndk's drivers fail at random (low resources simulation)";
        let next = "expect STATUS_INSUFFICIENT_RESOURCES, or \"verifier /reset\" and a restart";
        verdict.add(Finding::FaultsInjected.of("softndk", cause, next));
    }
}

/// A driver that answers is signed well enough.
fn signing(facts: &Facts, verdict: &mut Verdict) {
    let system = &facts.system;
    let answers = facts.provider.device != DeviceState::Absent;
    let test_signing = verdict.known(system.test_signing, &[Finding::TestSigningOff]);
    let secure_boot = verdict.known(system.secure_boot, &[Finding::SecureBootOn]);
    let trusted = verdict.known(system.signature_trusted, &[Finding::CertificateMissing]);
    if answers {
        return;
    }
    if secure_boot == Some(true) && test_signing != Some(true) {
        let cause = "Secure Boot is on: Windows does not load test-signed drivers, and does not let test signing be switched on";
        verdict.add(Finding::SecureBootOn.of(
            COMPUTER,
            cause,
            "switch Secure Boot off in the firmware settings or the virtual machine's",
        ));
    }
    if test_signing == Some(false) {
        let cause = "test signing is not in force; what is set counts from the next start on";
        verdict.add(Finding::TestSigningOff.of(COMPUTER, cause, "bcdedit /set testsigning on, then restart"));
    }
    if trusted == Some(false) {
        let cause = "the signature of softndk.sys is not one that this computer trusts";
        verdict.add(Finding::CertificateMissing.of(
            "softndk.sys",
            cause,
            "setup.ps1 -Install makes the certificate and signs with it",
        ));
    }
}

fn devices(facts: &Facts, verdict: &mut Verdict) {
    let devices = verdict.known(facts.system.devices.as_ref(), &[Finding::AdapterProblem]);
    let reachable = facts.provider.device == DeviceState::Open;
    let none = devices.map_or(reachable && facts.adapters.is_empty(), Vec::is_empty);
    if none {
        let next = "ndkctl adapter add --count 2";
        verdict.add(Finding::NoAdapters.of("softndk", r"no device has the hardware id root\softndk", next));
    }
    for device in devices.into_iter().flatten() {
        if let Some((cause, next)) = problem(device) {
            verdict.add(Finding::AdapterProblem.of(device.instance.clone(), cause, next));
        }
    }
}

/// What Device Manager's codes mean for this driver.
fn problem(device: &AdapterDevice) -> Option<(String, &'static str)> {
    if !device.has_driver {
        return Some(("no driver is installed for it".to_owned(), "ndkctl adapter add replaces it"));
    }
    let code = device.problem?;
    let (meaning, next) = match code {
        10 => ("the driver has refused to start it", "look at the System event log for softndk"),
        14 => ("a restart is needed", "restart Windows"),
        22 => ("it is disabled", "Enable-PnpDevice, or Device Manager"),
        28 => ("no driver is installed for it", "ndkctl adapter add replaces it"),
        31 | 39 => (
            "the driver was not loaded",
            "look at the findings about signing; then Disable-PnpDevice and Enable-PnpDevice",
        ),
        52 => ("the driver's signature is not accepted", "look at the findings about signing"),
        _ => ("Device Manager says more", "look at its properties in Device Manager"),
    };
    Some((format!("problem code {code}: {meaning}"), next))
}
