//! Rows and tables of `netioapi.h` from this host's address table, and the exports that give them out.

use std::collections::HashMap;
use std::ffi::c_void;
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, PoisonError};

use ndkpi_sys::netioapi::{MIB_UNICASTIPADDRESS_ROW, MIB_UNICASTIPADDRESS_TABLE, NL_DAD_STATE};
use ndkpi_sys::nt::{AF_INET, AF_INET6, AF_UNSPEC, IN_ADDR, IN6_ADDR, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET};

use super::address_table::{AddressRow, InterfaceLuid};
use super::{notification, table};
use crate::ndis::loan::LoanedBytes;
use crate::ndis::rule::{Group, broken};
use crate::status::{self, NtStatus};

const LEDGER_KIND: &str = "address table of netio";
const FOREVER: u32 = u32::MAX;

static TABLES: LazyLock<Mutex<HashMap<usize, LoanedBytes>>> = LazyLock::new(|| Mutex::new(HashMap::new()));

/// The alias of the interface with this index.
#[must_use]
pub fn interface_name(index: u32) -> String {
    format!("Ethernet {index}")
}

/// The address family number of an address.
#[must_use]
pub fn family(address: IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// An address with port 0.
#[must_use]
pub fn socket_address(address: IpAddr) -> SOCKADDR_INET {
    match address {
        IpAddr::V4(address) => SOCKADDR_INET {
            Ipv4: SOCKADDR_IN {
                sin_family: AF_INET,
                sin_port: 0,
                sin_addr: IN_ADDR { S_addr: u32::from_ne_bytes(address.octets()) },
                sin_zero: [0; 8],
            },
        },
        IpAddr::V6(address) => SOCKADDR_INET {
            Ipv6: SOCKADDR_IN6 {
                sin6_family: AF_INET6,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: IN6_ADDR { Byte: address.octets() },
                sin6_scope_id: 0,
            },
        },
    }
}

fn address_of(address: &SOCKADDR_INET) -> Option<IpAddr> {
    match address.family() {
        AF_INET => {
            // SAFETY: the family names this member, and any bytes are valid for it.
            let address = unsafe { address.Ipv4 };
            Some(IpAddr::from(address.sin_addr.S_addr.to_ne_bytes()))
        }
        AF_INET6 => {
            // SAFETY: the family names this member, and any bytes are valid for it.
            let address = unsafe { address.Ipv6 };
            Some(IpAddr::from(address.sin6_addr.Byte))
        }
        _ => None,
    }
}

fn full_row(row: &AddressRow) -> MIB_UNICASTIPADDRESS_ROW {
    let mut full = MIB_UNICASTIPADDRESS_ROW::zeroed();
    full.Address = socket_address(row.address.address);
    full.InterfaceLuid.Value = row.luid.0;
    full.InterfaceIndex = row.if_index;
    if let IpAddr::V6(address) = row.address.address
        && address.is_unicast_link_local()
    {
        full.ScopeId.Value = row.if_index;
        full.Address.Ipv6.sin6_scope_id = row.if_index;
    }
    full.PrefixOrigin.0 = 1;
    full.SuffixOrigin.0 = 1;
    full.ValidLifetime = FOREVER;
    full.PreferredLifetime = FOREVER;
    full.OnLinkPrefixLength = row.address.prefix_length;
    full.DadState = NL_DAD_STATE(row.detection as i32);
    full
}

fn build_table(rows: &[AddressRow]) -> LoanedBytes {
    const FIRST_ROW: usize = std::mem::offset_of!(MIB_UNICASTIPADDRESS_TABLE, Table);
    let row_size = size_of::<MIB_UNICASTIPADDRESS_ROW>();
    let memory = LoanedBytes::filled(FIRST_ROW + rows.len() * row_size, 0);
    // SAFETY: the block is sized for the count and that many rows, and is aligned for both.
    unsafe {
        memory.as_pointer().cast::<u32>().write(rows.len() as u32);
        let first = memory.as_pointer().add(FIRST_ROW).cast::<MIB_UNICASTIPADDRESS_ROW>();
        for (index, row) in rows.iter().enumerate() {
            first.add(index).write(full_row(row));
        }
    }
    memory
}

crate::exports! {
    module "netio.sys";

    /// Gives a copy of the address table.
    /// Checks: a known address family.
    /// Source: NETIOAPI: GetUnicastIpAddressTable
    [PASSIVE_ONLY] fn GetUnicastIpAddressTable(family_wanted: u16, given: *mut *mut MIB_UNICASTIPADDRESS_TABLE) -> NtStatus {
        if given.is_null() || !matches!(family_wanted, AF_UNSPEC | AF_INET | AF_INET6) {
            return status::STATUS_INVALID_PARAMETER;
        }
        if crate::fault::should_fail("GetUnicastIpAddressTable") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        let mut rows = table().rows();
        rows.retain(|row| family_wanted == AF_UNSPEC || family(row.address.address) == family_wanted);
        if rows.is_empty() {
            return status::STATUS_NOT_FOUND;
        }
        let memory = build_table(&rows);
        let address = memory.as_pointer();
        crate::ledger::record(LEDGER_KIND, address as usize, "");
        TABLES.lock().unwrap_or_else(PoisonError::into_inner).insert(address as usize, memory);
        // SAFETY: the caller's out parameter.
        unsafe { given.write(address.cast()) };
        status::STATUS_SUCCESS
    }

    /// Fills the row of one address, named by address and interface.
    /// Source: NETIOAPI: GetUnicastIpAddressEntry
    [PASSIVE_ONLY] fn GetUnicastIpAddressEntry(row: *mut MIB_UNICASTIPADDRESS_ROW) -> NtStatus {
        if row.is_null() {
            return status::STATUS_INVALID_PARAMETER;
        }
        // SAFETY: not null; the caller's structure by contract.
        let asked = unsafe { row.read_unaligned() };
        let Some(address) = address_of(&asked.Address) else { return status::STATUS_INVALID_PARAMETER };
        let luid = asked.InterfaceLuid.Value;
        let rows = table().rows();
        let mut matching = rows.iter().filter(|row| row.address.address == address);
        let found = matching.find(|row| row.luid.0 == luid || (luid == 0 && row.if_index == asked.InterfaceIndex));
        let Some(found) = found else { return status::STATUS_NOT_FOUND };
        // SAFETY: as above.
        unsafe { row.write_unaligned(full_row(found)) };
        status::STATUS_SUCCESS
    }

    /// Frees a table of GetUnicastIpAddressTable.
    /// Checks: a live table, freed once.
    /// Source: NETIOAPI: FreeMibTable
    [PASSIVE_ONLY] fn FreeMibTable(memory: *mut c_void) {
        let freed = TABLES.lock().unwrap_or_else(PoisonError::into_inner).remove(&(memory as usize));
        if freed.is_none() {
            broken(Group::Netio, memory as usize, "FreeMibTable: no live table of netio (freed twice?)");
        }
        crate::ledger::release(LEDGER_KIND, memory as usize);
    }

    /// Registers a callback for address changes; with InitialNotification it is called once before this returns.
    /// Checks: address family, a callback in an image.
    /// Source: NETIOAPI: NotifyUnicastIpAddressChange
    [PASSIVE_ONLY] fn NotifyUnicastIpAddressChange(
        family: u16,
        callback: *mut c_void,
        context: *mut c_void,
        initial: u8,
        handle: *mut *mut c_void,
    ) -> NtStatus {
        if handle.is_null() {
            return status::STATUS_INVALID_PARAMETER;
        }
        if crate::fault::should_fail("NotifyUnicastIpAddressChange") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        let registered = notification::register(family, callback as usize, context as usize, initial != 0);
        // SAFETY: the caller's out parameter.
        unsafe { handle.write(registered as *mut c_void) };
        status::STATUS_SUCCESS
    }

    /// Ends a registration and waits for its callbacks in progress.
    /// Checks: not from the callback itself, a live handle.
    /// Source: NETIOAPI: CancelMibChangeNotify2
    [PASSIVE_ONLY] fn CancelMibChangeNotify2(handle: *mut c_void) -> NtStatus {
        if notification::cancel(handle as usize) {
            return status::STATUS_SUCCESS;
        }
        broken(Group::Netio, handle as usize, "CancelMibChangeNotify2: no live notification handle (cancelled twice?)");
    }

    /// Interface index of an interface LUID.
    /// Source: NETIOAPI: ConvertInterfaceLuidToIndex
    [UP_TO_DISPATCH] fn ConvertInterfaceLuidToIndex(luid: *const u64, index: *mut u32) -> NtStatus {
        if luid.is_null() || index.is_null() {
            return status::STATUS_INVALID_PARAMETER;
        }
        // SAFETY: not null; a NET_LUID by contract.
        let luid = unsafe { luid.read_unaligned() };
        let found = table().index_of(InterfaceLuid(luid));
        // SAFETY: the caller's out parameter.
        unsafe { index.write(found.unwrap_or(0)) };
        if found.is_some() { status::STATUS_SUCCESS } else { status::STATUS_INVALID_PARAMETER }
    }

    /// The name that an administrator sees: "Ethernet" and the index.
    /// Checks: space for it, STATUS_BUFFER_TOO_SMALL otherwise
    /// Source: NETIOAPI: ConvertInterfaceLuidToAlias
    [PASSIVE_ONLY] fn ConvertInterfaceLuidToAlias(luid: *const u64, alias: *mut u16, length: usize) -> NtStatus {
        if luid.is_null() || alias.is_null() {
            return status::STATUS_INVALID_PARAMETER;
        }
        // SAFETY: not null; a NET_LUID by contract.
        let luid = unsafe { luid.read_unaligned() };
        let Some(index) = table().index_of(InterfaceLuid(luid)) else { return status::STATUS_INVALID_PARAMETER };
        let name: Vec<u16> = interface_name(index).encode_utf16().chain([0]).collect();
        if name.len() > length {
            return status::STATUS_BUFFER_TOO_SMALL;
        }
        // SAFETY: the caller's buffer of `length` characters.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), alias, name.len()) };
        status::STATUS_SUCCESS
    }

    /// Interface LUID of an interface index.
    /// Source: NETIOAPI: ConvertInterfaceIndexToLuid
    [UP_TO_DISPATCH] fn ConvertInterfaceIndexToLuid(index: u32, luid: *mut u64) -> NtStatus {
        if luid.is_null() {
            return status::STATUS_INVALID_PARAMETER;
        }
        let found = table().luid_of(index);
        // SAFETY: the caller's out parameter.
        unsafe { luid.write(found.map_or(0, |luid| luid.0)) };
        if found.is_some() { status::STATUS_SUCCESS } else { status::STATUS_INVALID_PARAMETER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_through_a_socket_address() {
        for text in ["10.1.2.3", "fd00::1:2"] {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(address_of(&socket_address(address)), Some(address));
        }
    }
}
