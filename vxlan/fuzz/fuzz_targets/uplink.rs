//! What reaches an uplink from outside: datagrams of any bytes, in any order and at any time, and the text of the registry. The table is
//! compared with a list of everything that was learned.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use softndk_vxlan::forwarding::AGE;
use softndk_vxlan::{ForwardingTable, HEADER_LENGTH, MacAddress, PEER_MAX, PeerList, datagram, frame};

#[path = "../../../tests/conformance/fuzz/fuzz_targets/seeds.rs"]
mod seeds;

/// Places of the table: two sets.
const PLACES: usize = 8;

fuzz_target!(init: seeds::write(seeds()), |bytes: &[u8]| {
    let Some((what, bytes)) = bytes.split_first() else { return };
    if what % 2 == 0 { text(bytes) } else { datagrams(bytes) }
});

/// A list of peers is what its text says, and reads as itself.
fn text(bytes: &[u8]) {
    let units: Vec<u16> = bytes.iter().map(|byte| u16::from(*byte)).collect();
    let Ok(list) = PeerList::read(&units) else { return };
    let peers: Vec<IpAddr> = list.iter().collect();
    assert!(peers.len() == list.len() && peers.len() <= PEER_MAX);
    assert!(peers.iter().all(|peer| peer.is_ipv6() == peers[0].is_ipv6()));
    let again: Vec<u16> = peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",").encode_utf16().collect();
    assert_eq!(PeerList::read(&again), Ok(list));
}

/// Datagrams, each behind its sender, the time since the last one, and its length.
fn datagrams(mut bytes: &[u8]) {
    let mut table = ForwardingTable::new(vec![None; PLACES]);
    let mut learned: Vec<(MacAddress, IpAddr, u64)> = Vec::new();
    let mut now = 0;
    while let Some(([sender, later, length], rest)) = bytes.split_first_chunk::<3>() {
        let (datagram, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        now += u64::from(*later) * (AGE / 64);
        let Ok((network, inner)) = datagram::read(datagram) else { continue };
        assert_eq!(inner, &datagram[HEADER_LENGTH..]);
        assert_eq!(datagram::header(network)[4..7], datagram[4..7]);
        let (_, source) = frame::ends(inner).expect("a whole Ethernet header");
        let _ = frame::ip_destination(inner);
        let peer = IpAddr::from([192, 0, 2, *sender]);
        table.learn(source, peer, now);
        if !frame::is_group(source) {
            learned.push((source, peer, now));
        }
        for (station, ..) in &learned {
            let (_, peer, at) = learned.iter().rfind(|(other, ..)| other == station).expect("it was learned");
            let found = table.find(*station, now);
            // A full set may have forgotten it, and nothing else may be found.
            assert!(found.is_none() || (found == Some(*peer) && now - at < AGE));
        }
        if learned.len() > 64 {
            return;
        }
    }
}

/// A datagram of one station, two of another that moves, and lists of peers.
fn seeds() -> Vec<Vec<u8>> {
    let one = |sender: u8, later: u8, station: u8| {
        let mut bytes = vec![sender, later, 22, 8, 0, 0, 0, 0, 0, 7, 0];
        bytes.extend([0xFF; 6]);
        bytes.extend([2, 0, 0, 0, 0, station, 0x88, 0xB5]);
        bytes
    };
    let frames = [vec![1], one(1, 0, 1), one(1, 1, 2), one(2, 70, 2)].concat();
    vec![frames, b"\x00192.0.2.1, 192.0.2.2".to_vec(), b"\x002001:db8::1;2001:db8::2".to_vec(), b"\x00 ,".to_vec()]
}
