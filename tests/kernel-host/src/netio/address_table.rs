//! The interfaces of the host and their unicast IP addresses, as TCP/IP keeps them: the data behind `GetUnicastIpAddressTable`
//! and the interface conversions. Plain data; the exports copy rows out of it, notifications are in `notification`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::inf::InterfaceAddress;

/// `NET_LUID` of an interface: index in bits 24..48, interface type in bits 48..64 (NETIOAPI: `NET_LUID_LH`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceLuid(pub u64);

impl InterfaceLuid {
    #[must_use]
    pub fn new(if_type: u16, index: u32) -> Self {
        Self((u64::from(if_type) << 48) | (u64::from(index & 0x00FF_FFFF) << 24))
    }

    /// That of the real network card, of which no driver is seen.
    pub const CARD: Self = Self((IF_TYPE_ETHERNET as u64) << 48 | CARD_NUMBER << 24);
}

/// Where duplicate address detection stands with an address: `NL_DAD_STATE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum DetectionState {
    Invalid = 0,
    /// The result is not known yet.
    Tentative = 1,
    /// Another station has the address.
    Duplicate = 2,
    /// Still good, not for new uses where there is another.
    Deprecated = 3,
    Preferred = 4,
}

/// One address of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRow {
    pub luid: InterfaceLuid,
    pub if_index: u32,
    pub address: InterfaceAddress,
    pub detection: DetectionState,
}

#[derive(Default)]
struct AddressRows {
    interfaces: BTreeMap<u32, InterfaceLuid>,
    rows: Vec<AddressRow>,
    luids_given: u32,
}

/// The table of this host. It starts with the loopback interface, index 1, as Windows does, and with a network card.
pub struct AddressTable {
    inner: Mutex<AddressRows>,
}

/// Interface type of software loopback (RFC 1213 numbers, `IF_TYPE_SOFTWARE_LOOPBACK`).
const IF_TYPE_LOOPBACK: u16 = 24;
const LOOPBACK_INDEX: u32 = 1;
/// `IF_TYPE_ETHERNET_CSMACD`.
const IF_TYPE_ETHERNET: u16 = 6;
/// Of the LUID: below the numbers that adapters get.
const CARD_NUMBER: u64 = 0x7001;
/// The interface of the real network card, which has no address at the start.
pub const CARD_INDEX: u32 = 3;
/// The first index an installed adapter gets; the ones below belong to the system's own interfaces.
const FIRST_ADAPTER_INDEX: u32 = 4;

impl Default for AddressTable {
    fn default() -> Self {
        Self::new()
    }
}

impl AddressTable {
    #[must_use]
    pub fn new() -> Self {
        let luid = InterfaceLuid::new(IF_TYPE_LOOPBACK, 0);
        let v4 = InterfaceAddress { address: std::net::Ipv4Addr::LOCALHOST.into(), prefix_length: 8 };
        let v6 = InterfaceAddress { address: std::net::Ipv6Addr::LOCALHOST.into(), prefix_length: 128 };
        let rows = [v4, v6].map(|address| AddressRow {
            luid,
            if_index: LOOPBACK_INDEX,
            address,
            detection: DetectionState::Preferred,
        });
        let interfaces = BTreeMap::from([(LOOPBACK_INDEX, luid), (CARD_INDEX, InterfaceLuid::CARD)]);
        Self { inner: Mutex::new(AddressRows { interfaces, rows: rows.to_vec(), luids_given: 0 }) }
    }

    /// Enters an interface; `None` when the given index is taken.
    pub fn add_interface(&self, if_type: u16, if_index: Option<u32>) -> Option<(u32, InterfaceLuid)> {
        let mut inner = self.lock();
        let free = (FIRST_ADAPTER_INDEX..u32::MAX).find(|index| !inner.interfaces.contains_key(index));
        let if_index = if_index.or(free).filter(|index| *index != 0 && !inner.interfaces.contains_key(index))?;
        inner.luids_given += 1;
        // An odd starting point, so that neither index nor LUID is mistaken for the other or for a small count.
        let luid = InterfaceLuid::new(if_type, 0x8000 + inner.luids_given);
        inner.interfaces.insert(if_index, luid);
        Some((if_index, luid))
    }

    /// Takes an interface out and returns the addresses that go with it.
    pub fn remove_interface(&self, if_index: u32) -> Vec<AddressRow> {
        let mut inner = self.lock();
        inner.interfaces.remove(&if_index);
        let (gone, kept) = inner.rows.iter().partition(|row| row.if_index == if_index);
        inner.rows = kept;
        gone
    }

    /// Adds an address; `None` when the interface does not exist or the address is there already.
    pub fn add(&self, if_index: u32, address: InterfaceAddress, detection: DetectionState) -> Option<AddressRow> {
        let mut inner = self.lock();
        let luid = *inner.interfaces.get(&if_index)?;
        if inner.rows.iter().any(|row| row.if_index == if_index && row.address.address == address.address) {
            return None;
        }
        let row = AddressRow { luid, if_index, address, detection };
        inner.rows.push(row);
        Some(row)
    }

    /// What duplicate address detection has found out about an address; `None` when the address is not there.
    pub fn set_detection(
        &self,
        if_index: u32,
        address: std::net::IpAddr,
        detection: DetectionState,
    ) -> Option<AddressRow> {
        let mut inner = self.lock();
        let row = inner.rows.iter_mut().find(|row| row.if_index == if_index && row.address.address == address)?;
        row.detection = detection;
        Some(*row)
    }

    /// Removes an address; `None` when it is not there.
    pub fn remove(&self, if_index: u32, address: std::net::IpAddr) -> Option<AddressRow> {
        let mut inner = self.lock();
        let position = inner.rows.iter().position(|row| row.if_index == if_index && row.address.address == address)?;
        Some(inner.rows.remove(position))
    }

    /// Every row, in the order of their arrival.
    #[must_use]
    pub fn rows(&self) -> Vec<AddressRow> {
        self.lock().rows.clone()
    }

    #[must_use]
    pub fn luid_of(&self, if_index: u32) -> Option<InterfaceLuid> {
        self.lock().interfaces.get(&if_index).copied()
    }

    #[must_use]
    pub fn index_of(&self, luid: InterfaceLuid) -> Option<u32> {
        self.lock().interfaces.iter().find(|(_, known)| **known == luid).map(|(index, _)| *index)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AddressRows> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> InterfaceAddress {
        InterfaceAddress { address: text.parse().expect("an address"), prefix_length: 24 }
    }

    #[test]
    fn addresses_come_and_go_with_their_interface() {
        let table = AddressTable::new();
        let (first, luid) = table.add_interface(6, None).expect("an index");
        assert_eq!(table.add_interface(6, Some(first)), None);
        assert_eq!(table.luid_of(first), Some(luid));
        assert_eq!(table.index_of(luid), Some(first));
        assert!(table.add(first, address("10.0.0.1"), DetectionState::Preferred).is_some());
        assert!(table.add(first, address("10.0.0.1"), DetectionState::Preferred).is_none());
        assert!(table.add(first + 1, address("10.0.0.1"), DetectionState::Preferred).is_none());
        assert_eq!(table.rows().len(), 3);
        assert_eq!(table.remove_interface(first).len(), 1);
        assert_eq!(table.index_of(luid), None);
    }
}
