//! Findings from facts that only Windows has. Each change of a healthy computer's facts provokes exactly the findings in its row.

use super::judge;
use crate::adapter::AdapterDevice;
use crate::doctor::facts::{
    AdapterFacts, DeviceState, DriverFacts, Facts, InterfaceFacts, ProviderEntry, Service, SystemFacts,
};
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::report::DoctorReport;
use crate::failure::{Failure, Kind};
use crate::identity::{Build, Part};
use crate::info::{self, Link};
use crate::wire::UplinkReport;
use softndk_ioctl::{
    AdapterAddress, AdapterEntry, AdapterFlags, Status, Technology, UPLINK_PEER_MAX, UplinkEntry, UplinkPeer,
};
use std::net::{IpAddr, Ipv4Addr};
use zerocopy::FromZeros;

fn adapter(number: u32) -> AdapterFacts {
    let mut entry = AdapterEntry::new_zeroed();
    (entry.index, entry.interface_index, entry.link_speed) = (number, 10 + number, 10_000_000_000);
    entry.technology = Technology::IWARP;
    entry.flags = AdapterFlags::NDK_ENABLED | AdapterFlags::LINK_UP | AdapterFlags::RUNNING;
    entry.address_count = 1;
    entry.addresses[0] = AdapterAddress::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1 + number as u8)), 24, 0);
    let keywords = [("*NetworkDirect", "1"), ("Transport", "1"), ("NetworkDirectSddl", "D:P(A;;GA;;;SY)")];
    let interface = InterfaceFacts {
        interface_index: 10 + number,
        max_queue_pairs: Some(1024),
        max_completion_queues: Some(1024),
        smb_rdma_capable: Some(true),
        keywords: Some(keywords.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
    };
    AdapterFacts { adapter: info::adapter(&entry, false), interface }
}

fn device(number: u32) -> AdapterDevice {
    let instance = format!(r"ROOT\SOFTNDK\{number:04}");
    AdapterDevice { instance, alias: None, has_driver: true, started: true, problem: None }
}

fn part(name: &'static str, commit: &str) -> Part {
    Part { name, build: Build { version: "0.1.0".to_owned(), commit: commit.to_owned() } }
}

/// A Windows on which all is as it should be.
fn healthy() -> Facts {
    let driver = || DriverFacts { service: Service::Running, device: DeviceState::Open, debug_build: Some(false) };
    Facts {
        parts: vec![part("ndkctl", "abc"), part("softndk.sys", "abc")],
        provider: driver(),
        consumer: driver(),
        adapters: vec![adapter(0), adapter(1)],
        uplinks: vec![uplink(1)],
        consumer_interfaces: Some(vec![10, 11]),
        network_direct: DeviceState::Open,
        entries: Some(vec![ProviderEntry { path: "softnd.dll".to_owned(), dll_is_there: true }]),
        system: SystemFacts {
            elevated: Some(true),
            test_signing: Some(true),
            secure_boot: Some(false),
            signature_trusted: Some(true),
            network_direct: Some(true),
            verifier_flags: Some(0),
            devices: Some(vec![device(0), device(1)]),
        },
    }
}

/// The driver has not been loaded: its device is not there, and it lists no adapters.
fn not_loaded(facts: &mut Facts) {
    facts.provider = DriverFacts { service: Service::Stopped, device: DeviceState::Absent, debug_build: None };
    facts.adapters.clear();
}

fn set(facts: &mut Facts, keyword: &str, value: &str) {
    let keywords = facts.adapters[0].interface.keywords.as_mut().expect("a healthy computer has them");
    keywords.insert(keyword.to_owned(), value.to_owned());
}

fn unset(facts: &mut Facts, keyword: &str) {
    let keywords = facts.adapters[0].interface.keywords.as_mut().expect("a healthy computer has them");
    keywords.remove(keyword);
}

/// An uplink on which all is as it should be.
fn uplink(last: u8) -> UplinkReport {
    uplink_to([192, 0, 2, last])
}

fn uplink_to(address: [u8; 4]) -> UplinkReport {
    let mut peers = [UplinkPeer::UNUSED; UPLINK_PEER_MAX];
    let address = AdapterAddress::new(address.into(), 0, 0);
    peers[0] = UplinkPeer { address, stations: 1, has_answered: 1, sent: 5, received: 5, ..UplinkPeer::UNUSED };
    let mut entry = UplinkEntry::new_zeroed();
    (entry.port, entry.mtu, entry.peer_count, entry.peers) = (4789, 1450, 1, peers);
    UplinkReport::of(&entry)
}

type Change = fn(&mut Facts);

/// A finding, what provokes it, and what else that provokes.
const PROVOKED: &[(Finding, Change, &[Finding])] = &[
    (
        Finding::DriverAbsent,
        |facts| {
            not_loaded(facts);
            facts.provider.service = Service::Absent;
        },
        &[],
    ),
    (Finding::DriverStopped, not_loaded, &[]),
    (Finding::DeviceUnreachable, |facts| facts.provider.device = DeviceState::Failed { cause: "busy".to_owned() }, &[]),
    (Finding::NotElevated, |facts| facts.provider.device = DeviceState::Denied, &[]),
    (Finding::AbiDiffers, |facts| facts.provider.device = DeviceState::OtherAbi, &[]),
    (Finding::BuildsDiffer, |facts| facts.parts[1] = part("softndk.sys", "abd"), &[]),
    (Finding::BuildsDiffer, |facts| facts.parts[1] = part("softndk.sys", "unknown"), &[]),
    (Finding::DebugBuild, |facts| facts.consumer.debug_build = Some(true), &[]),
    (
        Finding::TestSigningOff,
        |facts| {
            not_loaded(facts);
            facts.system.test_signing = Some(false);
        },
        &[Finding::DriverStopped],
    ),
    (
        Finding::SecureBootOn,
        |facts| {
            not_loaded(facts);
            (facts.system.secure_boot, facts.system.test_signing) = (Some(true), Some(false));
        },
        &[Finding::DriverStopped, Finding::TestSigningOff],
    ),
    (
        Finding::CertificateMissing,
        |facts| {
            not_loaded(facts);
            facts.system.signature_trusted = Some(false);
        },
        &[Finding::DriverStopped],
    ),
    (
        Finding::NoAdapters,
        |facts| {
            not_loaded(facts);
            facts.system.devices = Some(Vec::new());
        },
        &[Finding::DriverStopped],
    ),
    (
        Finding::NoAdapters,
        |facts| {
            facts.adapters.clear();
            facts.system.devices = None;
        },
        &[],
    ),
    (Finding::AdapterProblem, |facts| facts.system.devices.as_mut().unwrap()[1].problem = Some(52), &[]),
    (Finding::AdapterProblem, |facts| facts.system.devices.as_mut().unwrap()[1].has_driver = false, &[]),
    (Finding::NoAddress, |facts| facts.adapters[0].adapter.addresses.clear(), &[]),
    (Finding::AloneOnWire, |facts| facts.adapters[1].adapter.wire_number = 7, &[]),
    (Finding::LinkDown, |facts| facts.adapters[0].adapter.link = Link::Down, &[]),
    (Finding::LinkDown, |facts| facts.adapters[0].adapter.link = Link::Paused, &[]),
    (Finding::NdkOff, |facts| facts.adapters[1].adapter.ndk_enabled = false, &[]),
    (
        Finding::NdkOffGlobally,
        |facts| {
            facts.system.network_direct = Some(false);
            facts.adapters.iter_mut().for_each(|adapter| adapter.adapter.ndk_enabled = false);
        },
        &[],
    ),
    (Finding::CountsZero, |facts| facts.adapters[0].interface.max_queue_pairs = Some(0), &[]),
    (Finding::CountsZero, |facts| facts.adapters[0].interface.max_completion_queues = Some(0), &[]),
    (Finding::LinkSpeedUnbelievable, |facts| facts.adapters[1].adapter.link_speed = 100_000_000_000, &[]),
    (Finding::NotForSmb, |facts| facts.adapters[0].interface.smb_rdma_capable = Some(false), &[]),
    (Finding::FlowControlAskedFor, |facts| facts.adapters[0].adapter.technology = "RoCEv2".to_owned(), &[]),
    (Finding::ProviderAbsent, |facts| facts.entries = Some(Vec::new()), &[]),
    (Finding::ProviderDllMissing, |facts| facts.entries.as_mut().unwrap()[0].dll_is_there = false, &[]),
    (Finding::ProviderRefuses, |facts| facts.network_direct = DeviceState::Denied, &[]),
    (Finding::ProviderForAdministrators, |facts| unset(facts, "NetworkDirectSddl"), &[]),
    (
        Finding::ConsumerAbsent,
        |facts| (facts.consumer.service, facts.consumer.device) = (Service::Absent, DeviceState::Absent),
        &[],
    ),
    (
        Finding::ConsumerStopped,
        |facts| (facts.consumer.service, facts.consumer.device) = (Service::Stopped, DeviceState::Absent),
        &[],
    ),
    (Finding::ConsumerUnreachable, |facts| facts.consumer.device = DeviceState::OtherAbi, &[]),
    (
        Finding::ConsumerUnreachable,
        |facts| facts.consumer.device = DeviceState::Failed { cause: "busy".to_owned() },
        &[],
    ),
    (Finding::WskFindsNoAdapter, |facts| facts.consumer_interfaces = Some(vec![11]), &[]),
    (Finding::KeywordOdd, |facts| set(facts, "completionmode", "2"), &[]),
    (Finding::KeywordInvalid, |facts| set(facts, "WireNumber", "70000"), &[]),
    (Finding::KeywordInvalid, |facts| set(facts, "LinkSpeedMbps", "fast"), &[]),
    (Finding::KeywordInvalid, |facts| set(facts, "UplinkPeers", "server7"), &[]),
    (
        Finding::UplinkNotOpen,
        |facts| {
            facts.uplinks = vec![uplink(2)];
            facts.uplinks[0].open = false;
        },
        &[],
    ),
    (Finding::UplinkWithoutStreams, |facts| set(facts, "Transport", "0"), &[]),
    (Finding::UplinkWithoutStreams, |facts| unset(facts, "Transport"), &[]),
    (Finding::UplinkIntoItself, |facts| facts.uplinks = vec![uplink_to([10, 77, 0, 9])], &[]),
    (
        Finding::UplinkIntoItself,
        |facts| {
            facts.uplinks = vec![uplink(2)];
            facts.uplinks[0].dropped.looped = 1;
        },
        &[],
    ),
    (
        Finding::StationAddressTwice,
        |facts| {
            facts.uplinks = vec![uplink(2)];
            facts.uplinks[0].dropped.duplicates = 1;
        },
        &[],
    ),
    (
        Finding::PeerSilent,
        |facts| {
            facts.uplinks = vec![uplink(2)];
            facts.uplinks[0].peers[0].last_frame = None;
        },
        &[],
    ),
    (
        Finding::UnknownSenders,
        |facts| {
            facts.uplinks = vec![uplink(2)];
            facts.uplinks[0].dropped.foreign = 1;
        },
        &[],
    ),
    (Finding::FaultsInjected, |facts| facts.system.verifier_flags = Some(0x0022_09BF), &[]),
];

#[test]
fn healthy_computer_has_no_findings_and_everything_is_checked() {
    let (found, not_checked) = judge(&healthy());
    assert!(found.is_empty(), "{found:?}");
    assert!(not_checked.is_empty(), "{not_checked:?}");
}

#[test]
fn each_change_provokes_its_findings_and_no_others() {
    for (row, (finding, change, beside)) in PROVOKED.iter().enumerate() {
        let mut facts = healthy();
        change(&mut facts);
        let mut made: Vec<_> = judge(&facts).0.iter().map(|found| found.finding).collect();
        made.sort_unstable();
        // Two adapters may have the same.
        made.dedup();
        let mut expected = [&[*finding], *beside].concat();
        expected.sort_unstable();
        assert_eq!(made, expected, "row {row}");
    }
}

#[test]
fn no_finding_is_without_a_provocation() {
    for finding in Finding::ALL {
        assert!(PROVOKED.iter().any(|(provoked, ..)| provoked == finding), "nothing provokes {finding:?}");
    }
}

#[test]
fn low_resources_alone_are_faults() {
    let mut facts = healthy();
    facts.system.verifier_flags = Some(0x0022_09BB);
    assert!(judge(&facts).0.is_empty(), "the standard flags fail no allocation");
}

#[test]
fn worst_finding_comes_first_and_decides() {
    let mut facts = healthy();
    assert_eq!(DoctorReport::of(facts.clone()).worst(), None);
    facts.consumer.debug_build = Some(true);
    assert_eq!(DoctorReport::of(facts.clone()).worst(), Some(Severity::Note));
    facts.adapters[0].adapter.link = Link::Down;
    facts.system.network_direct = Some(false);
    let report = DoctorReport::of(facts);
    assert_eq!((report.worst(), report.errors, report.warnings, report.notes), (Some(Severity::Error), 1, 1, 1));
    let text = report.to_string();
    let places = ["error: this computer", "warning: adapter 0", "note: ndktest.sys"].map(|line| text.find(line));
    assert!(places.is_sorted() && places[0] == Some(0), "{text}");
    assert!(text.contains("Set-NetOffloadGlobalSetting -NetworkDirect Enabled"), "{text}");
    assert!(text.ends_with(&format!("{} checks: 1 error, 1 warning, 1 note", Finding::ALL.len())), "{text}");
}

#[test]
fn facts_that_a_system_does_not_have_are_named() {
    let facts = Facts { system: SystemFacts::default(), entries: None, ..healthy() };
    let report = DoctorReport::of(facts);
    assert!(report.findings.is_empty(), "{report}");
    for finding in [Finding::TestSigningOff, Finding::SecureBootOn, Finding::NdkOffGlobally, Finding::ProviderAbsent] {
        assert!(report.not_checked.contains(&finding) && report.to_string().contains(finding.checked()), "{report}");
    }
}

#[test]
fn adapters_that_the_driver_does_not_list_are_not_checked() {
    let mut facts = healthy();
    facts.provider.device = DeviceState::Denied;
    facts.adapters[0].adapter.addresses.clear();
    let (found, not_checked) = judge(&facts);
    assert_eq!(found.iter().map(|found| found.finding).collect::<Vec<_>>(), [Finding::NotElevated]);
    assert!(not_checked.contains(&Finding::NoAddress) && not_checked.contains(&Finding::KeywordInvalid));
}

#[test]
fn failure_of_an_open_says_in_which_state_the_device_is() {
    let of = |status: Status| {
        let failure = Failure::new(Kind::Unreachable, "cannot open", "because", "");
        DeviceState::of(&Failure { status: Some(status.0.cast_unsigned()), ..failure })
    };
    assert_eq!(of(Status::OBJECT_NAME_NOT_FOUND), DeviceState::Absent);
    assert_eq!(of(Status::ACCESS_DENIED), DeviceState::Denied);
    assert_eq!(of(Status::REVISION_MISMATCH), DeviceState::OtherAbi);
    assert_eq!(of(Status::DEVICE_BUSY), DeviceState::Failed { cause: "because".to_owned() });
}
