//! The best route to an address: through the interface that has it in its on-link prefix, or else through the real network card.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ndkpi_sys::netioapi::{MIB_IPFORWARD_ROW2, NlroManual, RouteProtocolLocal, RouteProtocolNetMgmt};
use ndkpi_sys::nt::SOCKADDR_INET;

use super::address_table::{AddressRow, CARD_INDEX, DetectionState, InterfaceLuid};
use super::mib::{address_of, socket_address};
use super::notification::{Change, announce};
use super::table;
use crate::inf::InterfaceAddress;
use crate::status::{self, NtStatus};

/// What the network card has where a test has not said otherwise; this host takes nothing for them.
const CARD_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CARD_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1);
/// Its routers.
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 0xFE);

/// Gives the real network card, an interface that no driver is seen of, another address; false when it has it.
pub fn add_card_address(address: InterfaceAddress) -> bool {
    let row = table().add(CARD_INDEX, address, DetectionState::Preferred);
    if let Some(row) = &row {
        announce(row, Change::Added);
    }
    row.is_some()
}

/// A route, and the address to send from.
struct Route {
    luid: InterfaceLuid,
    if_index: u32,
    prefix: InterfaceAddress,
    next_hop: IpAddr,
    source: IpAddr,
}

/// The bits of an address before and behind the end of a prefix.
fn network_of(address: IpAddr, prefix_length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_length.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_length.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn is_on_link(row: &AddressRow, destination: IpAddr) -> bool {
    let own = row.address;
    let usable = matches!(row.detection, DetectionState::Preferred | DetectionState::Deprecated);
    let one_family = own.address.is_ipv4() == destination.is_ipv4();
    usable && one_family && network_of(own.address, own.prefix_length) == network_of(destination, own.prefix_length)
}

/// The best route through one interface, or through any.
fn best_route(rows: &[AddressRow], interface: Option<u32>, destination: IpAddr) -> Option<Route> {
    let named = |row: &&AddressRow| interface.is_none_or(|index| row.if_index == index);
    let on_link = rows.iter().filter(named).filter(|row| is_on_link(row, destination));
    // The first of those that are as long.
    let best = on_link.rev().max_by_key(|row| row.address.prefix_length);
    if let Some(row) = best {
        let prefix = InterfaceAddress {
            address: network_of(destination, row.address.prefix_length),
            prefix_length: row.address.prefix_length,
        };
        let next_hop = unspecified(destination);
        return Some(Route { luid: row.luid, if_index: row.if_index, prefix, next_hop, source: row.address.address });
    }
    interface.is_none_or(|index| index == CARD_INDEX).then(|| default_route(rows, destination))
}

/// Through the card.
fn default_route(rows: &[AddressRow], destination: IpAddr) -> Route {
    let fits = |address: &IpAddr| address.is_ipv4() == destination.is_ipv4();
    let own = rows.iter().filter(|row| row.if_index == CARD_INDEX).map(|row| row.address.address).find(fits);
    let given = own.or_else(|| crate::wsk::machine_addresses().into_iter().find(fits));
    let (source, next_hop) = match destination {
        IpAddr::V4(_) => (CARD_V4.into(), ROUTER_V4.into()),
        IpAddr::V6(_) => (CARD_V6.into(), ROUTER_V6.into()),
    };
    Route {
        luid: InterfaceLuid::CARD,
        if_index: CARD_INDEX,
        prefix: InterfaceAddress { address: unspecified(destination), prefix_length: 0 },
        next_hop,
        source: given.unwrap_or(source),
    }
}

fn row_of(route: &Route) -> MIB_IPFORWARD_ROW2 {
    const FOREVER: u32 = u32::MAX;
    let mut row = MIB_IPFORWARD_ROW2::zeroed();
    row.InterfaceLuid.Value = route.luid.0;
    row.InterfaceIndex = route.if_index;
    row.DestinationPrefix.Prefix = socket_address(route.prefix.address);
    row.DestinationPrefix.PrefixLength = route.prefix.prefix_length;
    row.NextHop = socket_address(route.next_hop);
    row.ValidLifetime = FOREVER;
    row.PreferredLifetime = FOREVER;
    row.Metric = 256;
    row.Protocol = if route.next_hop.is_unspecified() { RouteProtocolLocal } else { RouteProtocolNetMgmt };
    row.Loopback = u8::from(route.source.is_loopback());
    row.Immortal = 1;
    row.Origin = NlroManual;
    row
}

crate::exports! {
    module "netio.sys";

    /// The best route to an address, through one interface or through any: the one with the longest on-link prefix, else the real network card.
    /// Checks: addresses of a known family, can be made to fail
    /// Source: NETIOAPI: GetBestRoute2
    [PASSIVE_ONLY] fn GetBestRoute2(
        luid: *const u64,
        if_index: u32,
        source: *const SOCKADDR_INET,
        destination: *const SOCKADDR_INET,
        _sort_options: u32,
        best: *mut MIB_IPFORWARD_ROW2,
        best_source: *mut SOCKADDR_INET,
    ) -> NtStatus {
        if destination.is_null() || best.is_null() || best_source.is_null() {
            return status::STATUS_INVALID_PARAMETER;
        }
        // SAFETY: not null; the caller's structure by contract.
        let destination = unsafe { destination.read_unaligned() };
        let Some(wanted) = address_of(&destination) else { return status::STATUS_INVALID_PARAMETER };
        if crate::fault::should_fail("GetBestRoute2") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: a NET_LUID by contract, where it is given.
        let luid = if luid.is_null() { 0 } else { unsafe { luid.read_unaligned() } };
        let interface = match (luid, if_index) {
            (0, 0) => None,
            (0, index) => Some(table().luid_of(index).map(|_| index)),
            (luid, _) => Some(table().index_of(InterfaceLuid(luid))),
        };
        let interface = match interface {
            Some(None) => return status::STATUS_NOT_FOUND,
            Some(index) => index,
            None => None,
        };
        let Some(route) = best_route(&table().rows(), interface, wanted) else {
            return status::STATUS_NETWORK_UNREACHABLE;
        };
        // SAFETY: the caller's structure by contract, where it is given.
        let asked = if source.is_null() { None } else { Some(unsafe { source.read_unaligned() }) };
        // SAFETY: the caller's out parameters.
        unsafe {
            best.write_unaligned(row_of(&route));
            best_source.write_unaligned(asked.unwrap_or_else(|| socket_address(route.source)));
        }
        status::STATUS_SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(if_index: u32, address: &str, prefix_length: u8) -> AddressRow {
        let address = InterfaceAddress { address: address.parse().expect("an address"), prefix_length };
        AddressRow { luid: InterfaceLuid::new(6, if_index), if_index, address, detection: DetectionState::Preferred }
    }

    fn route(rows: &[AddressRow], interface: Option<u32>, to: &str) -> Option<(u32, String, u8)> {
        let route = best_route(rows, interface, to.parse().expect("an address"))?;
        Some((route.if_index, route.source.to_string(), route.prefix.prefix_length))
    }

    #[test]
    fn longest_prefix_wins_and_the_card_has_the_rest() {
        let rows = [row(11, "10.0.0.1", 8), row(12, "10.77.0.1", 16), row(13, "10.77.0.2", 16), row(12, "fd00::1", 64)];
        assert_eq!(route(&rows, None, "10.77.3.4"), Some((12, "10.77.0.1".into(), 16)));
        assert_eq!(route(&rows, None, "10.78.3.4"), Some((11, "10.0.0.1".into(), 8)));
        assert_eq!(route(&rows, Some(13), "10.77.3.4"), Some((13, "10.77.0.2".into(), 16)));
        assert_eq!(route(&rows, None, "fd00::9:9"), Some((12, "fd00::1".into(), 64)));
        assert_eq!(route(&rows, None, "198.51.100.7"), Some((CARD_INDEX, "192.0.2.1".into(), 0)));
        assert_eq!(route(&rows, None, "fd01::9"), Some((CARD_INDEX, "2001:db8::1".into(), 0)));
        assert_eq!(route(&rows, Some(12), "198.51.100.7"), None);
        assert_eq!(route(&rows, Some(CARD_INDEX), "10.77.3.4"), Some((CARD_INDEX, "192.0.2.1".into(), 0)));
    }

    #[test]
    fn address_of_the_card_is_the_source_and_one_that_is_not_usable_is_none() {
        let rows = [row(CARD_INDEX, "198.51.100.1", 24)];
        assert_eq!(route(&rows, None, "203.0.113.9"), Some((CARD_INDEX, "198.51.100.1".into(), 0)));
        assert_eq!(route(&rows, None, "198.51.100.9"), Some((CARD_INDEX, "198.51.100.1".into(), 24)));
        let tentative = AddressRow { detection: DetectionState::Tentative, ..row(11, "10.0.0.1", 8) };
        assert_eq!(route(&[tentative], None, "10.0.0.2"), Some((CARD_INDEX, "192.0.2.1".into(), 0)));
    }

    #[test]
    fn row_has_the_route() {
        let rows = [row(12, "10.77.0.1", 16)];
        let on_link = row_of(&best_route(&rows, None, "10.77.3.4".parse().expect("an address")).expect("a route"));
        assert_eq!(address_of(&on_link.DestinationPrefix.Prefix), Some(Ipv4Addr::new(10, 77, 0, 0).into()));
        assert_eq!(address_of(&on_link.NextHop), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!((on_link.InterfaceIndex, on_link.DestinationPrefix.PrefixLength), (12, 16));
        assert_eq!(on_link.InterfaceLuid.Value, InterfaceLuid::new(6, 12).0);
        let far = row_of(&best_route(&rows, None, "8.8.8.8".parse().expect("an address")).expect("a route"));
        assert_eq!(address_of(&far.NextHop), Some(ROUTER_V4.into()));
    }
}
