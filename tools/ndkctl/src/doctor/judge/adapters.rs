//! The adapters: addresses, wires, links, NDK, what Windows' checkers look at, keywords.

use super::Verdict;
use crate::doctor::facts::{AdapterFacts, DeviceState, Facts};
use crate::doctor::finding::Finding;
use crate::doctor::keyword::{ODD, RANGES};
use crate::info::Link;
use crate::{units, wire};

/// The fastest link that a copy of memory may claim, in bits a second.
const BELIEVABLE: u64 = 40_000_000_000;

/// What is checked of each adapter, and cannot be where the driver does not list them.
const CHECKS: [Finding; 11] = [
    Finding::NoAddress,
    Finding::AloneOnWire,
    Finding::LinkDown,
    Finding::NdkOff,
    Finding::CountsZero,
    Finding::LinkSpeedUnbelievable,
    Finding::NotForSmb,
    Finding::FlowControlAskedFor,
    Finding::WskFindsNoAdapter,
    Finding::KeywordOdd,
    Finding::KeywordInvalid,
];

pub fn judge(facts: &Facts, verdict: &mut Verdict) {
    if facts.provider.device != DeviceState::Open {
        verdict.not_checked.extend(CHECKS);
        return;
    }
    for adapter in &facts.adapters {
        network(facts, adapter, verdict);
        ndk(facts, adapter, verdict);
        checkers(adapter, verdict);
        keywords(adapter, verdict);
        consumer(facts, adapter, verdict);
    }
}

fn network(facts: &Facts, adapter: &AdapterFacts, verdict: &mut Verdict) {
    let (name, alias, shown) = (adapter.name(), adapter.alias(), &adapter.adapter);
    if shown.addresses.is_empty() {
        let next = format!(
            "New-NetIPAddress -InterfaceAlias \"{alias}\" -IPAddress 10.77.0.{} -PrefixLength 24",
            shown.index + 1
        );
        verdict.add(Finding::NoAddress.of(&name, "it has no IP address, so no consumer finds it", next));
    }
    let on_wire = facts.adapters.iter().filter(|other| other.adapter.wire_number == shown.wire_number).count();
    let goes_on = facts.uplinks.iter().any(|uplink| uplink.adapter == shown.index);
    if on_wire < 2 && !goes_on {
        let cause = format!("no other adapter is on wire {}: it reaches itself only", shown.wire_number);
        verdict.add(Finding::AloneOnWire.of(
            &name,
            cause,
            "give another adapter the same WireNumber, add one, or \"ndkctl wire join\"",
        ));
    }
    let state = match shown.link {
        Link::Up => return,
        Link::Paused => "NDIS has paused it",
        Link::Down => "its link is down",
    };
    verdict.add(Finding::LinkDown.of(&name, state, format!("Restart-NetAdapter -Name \"{alias}\"")));
}

/// The keyword is the adapter's own switch; what else switches NDK off is Windows.
fn ndk(facts: &Facts, adapter: &AdapterFacts, verdict: &mut Verdict) {
    // The computer's switch has a finding of its own.
    if adapter.adapter.ndk_enabled || facts.system.network_direct == Some(false) {
        return;
    }
    let (cause, next) = if adapter.keyword("*NetworkDirect") == Some("0") {
        ("its keyword *NetworkDirect is 0", format!("Enable-NetAdapterRdma -Name \"{}\"", adapter.alias()))
    } else {
        let next = "look at Get-NetOffloadGlobalSetting and Get-NetAdapterRdma, then Restart-NetAdapter".to_owned();
        ("Windows has switched NDK off, or has not switched it on yet", next)
    };
    verdict.add(Finding::NdkOff.of(adapter.name(), cause, next));
}

/// Get-SmbClientNetworkInterface, Get-NetAdapterRdma and Test-Rdma.
fn checkers(adapter: &AdapterFacts, verdict: &mut Verdict) {
    let (name, interface) = (adapter.name(), &adapter.interface);
    for (count, what) in
        [(interface.max_queue_pairs, "MaxQueuePairCount"), (interface.max_completion_queues, "MaxCompletionQueueCount")]
    {
        if verdict.known(count, &[Finding::CountsZero]) == Some(0) {
            let cause = format!("{what} of Get-NetAdapterRdma is 0: Test-Rdma refuses the adapter");
            verdict.add(Finding::CountsZero.of(&name, cause, "switch NDK on first; if it stays 0, please report it"));
        }
    }
    let speed = adapter.adapter.link_speed;
    if speed > BELIEVABLE {
        let cause = format!("it claims {}: test tools judge measured rates as a share of it", units::link_speed(speed));
        verdict.add(Finding::LinkSpeedUnbelievable.of(&name, cause, "set LinkSpeedMbps to 10000, its default"));
    }
    let for_smb = verdict.known(interface.smb_rdma_capable, &[Finding::NotForSmb]);
    if for_smb == Some(false) && adapter.adapter.ndk_enabled {
        let cause = "Get-SmbClientNetworkInterface does not list it as RDMA capable";
        let next =
            "give it an address, check that TCP/IP is bound to it and no virtual switch is, then Restart-NetAdapter";
        verdict.add(Finding::NotForSmb.of(&name, cause, next));
    }
    if adapter.adapter.technology.starts_with("RoCE") {
        let cause = format!("it reports {}: Test-Rdma asks for priority flow control", adapter.adapter.technology);
        let next = "set *NetworkDirectTechnology to 1 (iWARP), or run Test-Rdma with -IsRoCE $false";
        verdict.add(Finding::FlowControlAskedFor.of(&name, cause, next));
    }
}

fn keywords(adapter: &AdapterFacts, verdict: &mut Verdict) {
    let checks = [Finding::KeywordOdd, Finding::KeywordInvalid];
    if verdict.known(adapter.interface.keywords.as_ref(), &checks).is_none() {
        return;
    }
    let set = |keyword: &str, value: &str| {
        let alias = adapter.alias();
        format!(
            "Set-NetAdapterAdvancedProperty -Name \"{alias}\" -RegistryKeyword \"{keyword}\" -RegistryValue {value}"
        )
    };
    for odd in ODD.iter().filter(|odd| adapter.keyword(odd.keyword) == Some(&*odd.value.to_string())) {
        let cause = format!("{} is {}: {}", odd.keyword, odd.value, odd.effect);
        let next = format!("if no test wants it: {}", set(odd.keyword, &odd.usual.to_string()));
        verdict.add(Finding::KeywordOdd.of(adapter.name(), cause, next));
    }
    if let Some(cause) = adapter.keyword("UplinkPeers").and_then(wire::unusable_peers) {
        verdict.add(Finding::KeywordInvalid.of(adapter.name(), cause, "write it with \"ndkctl wire join\""));
    }
    for (keyword, minimum, maximum) in RANGES {
        let Some(value) = adapter.keyword(keyword) else { continue };
        if !value.parse().is_ok_and(|value: u32| (minimum..=maximum).contains(&value)) {
            let cause = format!("{keyword} is \"{value}\": the driver uses the default instead");
            let next = set(keyword, &format!("VALUE, from {minimum} to {maximum}"));
            verdict.add(Finding::KeywordInvalid.of(adapter.name(), cause, next));
        }
    }
}

/// An adapter that is on and has an address can be opened by every NDK consumer.
fn consumer(facts: &Facts, adapter: &AdapterFacts, verdict: &mut Verdict) {
    let shown = &adapter.adapter;
    let opened = verdict.known(facts.consumer_interfaces.as_ref(), &[Finding::WskFindsNoAdapter]);
    if shown.ndk_enabled
        && !shown.addresses.is_empty()
        && opened.is_some_and(|interfaces| !interfaces.contains(&shown.interface_index))
    {
        let cause = "NDK is on and it has an address, but Winsock Kernel does not open it for ndktest.sys";
        let next = "check that TCP/IP is bound to it (Get-NetAdapterBinding), then Restart-NetAdapter; compare UpperRange ndis5 of the INF";
        verdict.add(Finding::WskFindsNoAdapter.of(adapter.name(), cause, next));
    }
}
