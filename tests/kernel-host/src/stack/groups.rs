//! The multicast list of an adapter, as TCP/IP sets it: all hosts and all nodes, and the solicited-node group of each IPv6 address,
//! by which neighbour discovery finds it.

use std::net::IpAddr;

use crate::inf::InterfaceAddress;
use crate::ndis::miniport::{Miniport, MiniportState};
use crate::ndis::oid::OID_802_3_MULTICAST_LIST;
use crate::ndis::oid_request::OidKind;
use crate::ndis::{log, status};

const ALL_HOSTS: [u8; 6] = [0x01, 0x00, 0x5E, 0x00, 0x00, 0x01];
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0x00, 0x00, 0x00, 0x01];

/// The Ethernet addresses of the groups that an adapter with these addresses listens to, each once.
fn groups(addresses: &[InterfaceAddress]) -> Vec<[u8; 6]> {
    let mut groups = vec![ALL_HOSTS];
    let v6 = addresses.iter().filter_map(|address| match address.address {
        IpAddr::V6(address) => Some(address.octets()),
        IpAddr::V4(_) => None,
    });
    for octets in v6 {
        let solicited = [0x33, 0x33, 0xFF, octets[13], octets[14], octets[15]];
        groups.extend([ALL_NODES, solicited]);
    }
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Sets the list by its OID. PASSIVE_LEVEL.
pub(super) fn set(miniport: &Miniport, addresses: &[InterfaceAddress]) {
    if !matches!(miniport.state(), MiniportState::Running | MiniportState::Paused) {
        return;
    }
    let list = OidKind::Set(groups(addresses).concat());
    let answer = miniport.oids.request(miniport, OID_802_3_MULTICAST_LIST, &list);
    if answer.status != status::SUCCESS {
        log::record(format!("OID_802_3_MULTICAST_LIST fails with NDIS_STATUS_{}", status::name(answer.status)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> InterfaceAddress {
        InterfaceAddress { address: text.parse().expect("an address"), prefix_length: 64 }
    }

    #[test]
    fn each_group_is_listed_once() {
        assert_eq!(groups(&[address("10.0.0.1")]), [ALL_HOSTS]);
        let all = groups(&[address("fd00::1:2:3"), address("fe80::1:2:3"), address("fd00::4"), address("10.0.0.1")]);
        let solicited = [[0x33, 0x33, 0xFF, 0, 0, 4], [0x33, 0x33, 0xFF, 2, 0, 3]];
        assert_eq!(all, [ALL_HOSTS, ALL_NODES, solicited[0], solicited[1]]);
    }
}
