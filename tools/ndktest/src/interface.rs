//! The interfaces of the machine and their IP addresses, read from the unicast address table when they are asked for.

use core::{
    ffi::c_void,
    net::IpAddr,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use ndkpi_sys::{
    netioapi::{
        CancelMibChangeNotify2, FreeMibTable, GetUnicastIpAddressTable, MIB_NOTIFICATION_TYPE,
        MIB_UNICASTIPADDRESS_ROW, MIB_UNICASTIPADDRESS_TABLE, NldsDuplicate, NldsInvalid, NldsTentative,
        NotifyUnicastIpAddressChange,
    },
    nt::{AF_UNSPEC, HANDLE, NTSTATUS, STATUS_SUCCESS},
};
use softndk_ioctl::Status;

use crate::{driver::Driver, socket};

/// The zone in a SCOPE_ID; the four bits above it are the level.
const ZONE: u32 = (1 << 28) - 1;

/// A usable address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The index of its interface, by which adapters are opened.
    pub interface: u32,
    pub net_luid: u64,
    pub ip: IpAddr,
    /// Bits of the on-link prefix.
    pub prefix_length: u8,
    pub scope_id: u32,
}

/// The addresses of all interfaces, as they were when the table was read.
pub struct Addresses {
    table: *mut MIB_UNICASTIPADDRESS_TABLE,
}

impl Addresses {
    /// PASSIVE_LEVEL.
    pub fn read() -> Result<Self, Status> {
        let mut table: *mut MIB_UNICASTIPADDRESS_TABLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL; `table` is a valid place for the answer.
        let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) };
        if status == STATUS_SUCCESS && !table.is_null() { Ok(Self { table }) } else { Err(Status(status)) }
    }

    fn rows(&self) -> &[MIB_UNICASTIPADDRESS_ROW] {
        // SAFETY: the table is valid until it is freed.
        let count = unsafe { (*self.table).NumEntries } as usize;
        // SAFETY: only the address of the first row is computed.
        let first = unsafe { &raw const (*self.table).Table };
        // SAFETY: netio promises NumEntries rows behind the count, in one allocation.
        unsafe { core::slice::from_raw_parts(first.cast(), count) }
    }

    /// Every usable address.
    pub fn iter(&self) -> impl Iterator<Item = Address> {
        self.rows().iter().filter_map(usable)
    }

    /// The usable addresses of one interface.
    pub fn of(&self, interface: u32) -> impl Iterator<Item = Address> {
        self.iter().filter(move |address| address.interface == interface)
    }

    /// The interfaces that have a usable address, each once, in the order of their indices.
    pub fn interfaces(&self) -> impl Iterator<Item = u32> {
        let next = |after: Option<u32>| {
            self.iter().map(|address| address.interface).filter(|index| after.is_none_or(|last| *index > last)).min()
        };
        core::iter::successors(next(None), move |last| next(Some(*last)))
    }

    /// An address to listen on and to connect from: IPv4 before IPv6.
    pub fn first_of(&self, interface: u32) -> Option<IpAddr> {
        self.first_of_family(interface, true).or_else(|| self.first_of_family(interface, false))
    }

    pub fn first_of_family(&self, interface: u32, ipv4: bool) -> Option<IpAddr> {
        self.of(interface).map(|address| address.ip).find(|ip| ip.is_ipv4() == ipv4)
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: the table came from GetUnicastIpAddressTable and is freed once.
        unsafe { FreeMibTable(self.table.cast()) };
    }
}

/// The row's address, unless duplicate address detection still holds it back.
fn usable(row: &MIB_UNICASTIPADDRESS_ROW) -> Option<Address> {
    if row.DadState == NldsInvalid || row.DadState == NldsTentative || row.DadState == NldsDuplicate {
        return None;
    }
    let ip = socket::ip_address(&row.Address)?;
    Some(Address {
        interface: row.InterfaceIndex,
        net_luid: row.InterfaceLuid.Value,
        ip,
        prefix_length: row.OnLinkPrefixLength,
        scope_id: if ip.is_ipv6() { row.ScopeId.Value & ZONE } else { 0 },
    })
}

/// The notification of changes: what is connected over an address that went is closed.
pub struct Watch {
    handle: AtomicPtr<c_void>,
    changes: AtomicU32,
}

impl Watch {
    pub const fn new() -> Self {
        Self { handle: AtomicPtr::new(ptr::null_mut()), changes: AtomicU32::new(0) }
    }

    /// PASSIVE_LEVEL, once the driver state is reachable.
    pub fn start(&self) -> Result<(), NTSTATUS> {
        let mut handle: HANDLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL; the callback uses the driver state only, and `stop` waits for it before that goes.
        let status = unsafe { NotifyUnicastIpAddressChange(AF_UNSPEC, changed, ptr::null_mut(), 0, &raw mut handle) };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        self.handle.store(handle, Ordering::Release);
        Ok(())
    }

    /// Waits for a callback in progress. PASSIVE_LEVEL.
    pub fn stop(&self) {
        let handle = self.handle.swap(ptr::null_mut(), Ordering::AcqRel);
        if !handle.is_null() {
            // SAFETY: the handle came from NotifyUnicastIpAddressChange and is cancelled once; no lock is held.
            let _status = unsafe { CancelMibChangeNotify2(handle) };
        }
    }

    /// Differs from what it was when an address has come or gone since.
    pub fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }
}

/// netio: an address of some interface came, went or changed. PASSIVE_LEVEL.
unsafe extern "C" fn changed(_context: *mut c_void, _row: *mut MIB_UNICASTIPADDRESS_ROW, _kind: MIB_NOTIFICATION_TYPE) {
    if let Some(driver) = Driver::get() {
        driver.watch.changes.fetch_add(1, Ordering::AcqRel);
        driver.closer.wake();
    }
}
