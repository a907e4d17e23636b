//! The ways of adapters to other machines.

use super::Verdict;
use crate::doctor::facts::{DeviceState, Facts};
use crate::doctor::finding::Finding;
use crate::wire::{self, UplinkPeerReport, UplinkReport};
use std::net::IpAddr;

const CHECKS: [Finding; 6] = [
    Finding::UplinkWithoutStreams,
    Finding::UplinkNotOpen,
    Finding::UplinkIntoItself,
    Finding::StationAddressTwice,
    Finding::PeerSilent,
    Finding::UnknownSenders,
];

pub fn judge(facts: &Facts, verdict: &mut Verdict) {
    if facts.provider.device != DeviceState::Open {
        verdict.not_checked.extend(CHECKS);
        return;
    }
    for uplink in &facts.uplinks {
        let name = format!("adapter {}", uplink.adapter);
        socket(&name, uplink, verdict);
        transport(facts, uplink, verdict);
        let networks = facts.adapters.iter().flat_map(|adapter| &adapter.adapter.addresses);
        let networks = networks.filter_map(|network| {
            let (address, prefix) = network.split_once('/')?;
            Some((address.parse().ok()?, prefix.parse().ok()?))
        });
        let networks = networks.collect::<Vec<_>>();
        for peer in &uplink.peers {
            judge_peer(&name, uplink, peer, &networks, verdict);
        }
        twice(&name, uplink, verdict);
        unknown_senders(&name, uplink, verdict);
    }
}

/// As on a machine that is the copy of another one.
fn twice(name: &str, uplink: &UplinkReport, verdict: &mut Verdict) {
    let duplicates = uplink.dropped.duplicates;
    if duplicates != 0 {
        let cause = format!("{duplicates} frames came from its own station address: another machine has it, too");
        let next =
            "set NetworkAddress of one of them to another address, such as 020000000001, or install softndk anew there";
        verdict.add(Finding::StationAddressTwice.of(name, cause, next));
    }
}

/// Connections to the peers' adapters need streams.
fn transport(facts: &Facts, uplink: &UplinkReport, verdict: &mut Verdict) {
    let Some(adapter) = facts.adapters.iter().find(|adapter| adapter.adapter.index == uplink.adapter) else { return };
    let checks = [Finding::UplinkWithoutStreams];
    if verdict.known(adapter.interface.keywords.as_ref(), &checks).is_none()
        || wire::has_streams(adapter.keyword("Transport"))
    {
        return;
    }
    let cause = "frames go to the peers, RDMA does not: Transport is 0 (loopback)";
    let next = wire::set_transport(adapter.alias());
    verdict.add(Finding::UplinkWithoutStreams.of(adapter.name(), cause, next));
}

fn socket(name: &str, uplink: &UplinkReport, verdict: &mut Verdict) {
    if uplink.open {
        return;
    }
    let (number, port) = (uplink.wire_number, uplink.port);
    let cause = format!("UDP port {port} of wire {number} is not open: {}", uplink.status);
    let next = format!(
        "name the program that has it with \"Get-NetUDPEndpoint -LocalPort {port}\", or name another one at all machines with --port of \"ndkctl wire join\""
    );
    verdict.add(Finding::UplinkNotOpen.of(name, cause, next));
}

fn judge_peer(
    name: &str,
    uplink: &UplinkReport,
    peer: &UplinkPeerReport,
    networks: &[(IpAddr, u8)],
    verdict: &mut Verdict,
) {
    let Some(address) = peer.address else { return };
    if wire::network_of(address, networks).is_some() || (uplink.dropped.looped != 0 && uplink.peers.len() == 1) {
        let cause = format!("the way to peer {address} leads through the adapters themselves");
        let next = "name the address of the other machine's real network card, and give the adapters addresses of a network of their own";
        verdict.add(Finding::UplinkIntoItself.of(name, cause, next));
    } else if peer.last_frame.is_none() && peer.frames_sent != 0 && uplink.open {
        let (sent, port, number) = (peer.frames_sent, uplink.port, uplink.wire_number);
        let cause = format!("{sent} frames went to peer {address}, and none has come from it");
        let next = format!(
            "check there: this machine is a peer, the wire number is {number}, and the firewall lets UDP port {port} in (docs/windows.md)"
        );
        verdict.add(Finding::PeerSilent.of(name, cause, next));
    }
}

fn unknown_senders(name: &str, uplink: &UplinkReport, verdict: &mut Verdict) {
    let foreign = uplink.dropped.foreign;
    if foreign == 0 {
        return;
    }
    let cause = format!("{foreign} datagrams came from machines that are no peers, or for other wire numbers");
    let next = "name these machines with \"ndkctl wire join\", with the same wire number at both ends; or keep them out by the firewall";
    verdict.add(Finding::UnknownSenders.of(name, cause, next));
}
