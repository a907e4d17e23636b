//! The IP addresses of one adapter's interface: the addresses for listening and connecting.
//!
//! TCP/IP owns the addresses. On a change notification (netio.sys) the driver reads the unicast table afresh, filters it by its
//! interface and swaps the snapshot, which is readable at DISPATCH_LEVEL. The notification is cancelled in HaltEx, never from
//! the callback and never under a lock that the callback takes.

use core::{
    ffi::c_void,
    net::{IpAddr, Ipv4Addr},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::{
    netioapi::{
        CancelMibChangeNotify2, FreeMibTable, GetUnicastIpAddressTable, MIB_NOTIFICATION_TYPE,
        MIB_UNICASTIPADDRESS_ROW, MIB_UNICASTIPADDRESS_TABLE, NldsDuplicate, NldsInvalid, NldsTentative,
        NotifyUnicastIpAddressChange,
    },
    nt::{AF_INET, AF_INET6, AF_UNSPEC, HANDLE, NTSTATUS, SOCKADDR_INET, STATUS_SUCCESS},
};
use softndk_engine::AdapterAddress;
use softndk_kernel::{
    event::Mutex,
    pool::{NoMemory, PoolSlice},
    spin_lock::SpinLock,
};

use crate::tags;

/// The zone in a SCOPE_ID; the four bits above it are the level.
const ZONE: u32 = (1 << 28) - 1;

/// An address of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    /// Bits of the on-link prefix.
    pub prefix_length: u8,
    pub scope_id: u32,
}

/// netio's call when an address of some interface was added, removed or changed.
pub type Changed = unsafe extern "C" fn(*mut c_void, *mut MIB_UNICASTIPADDRESS_ROW, MIB_NOTIFICATION_TYPE);

/// Where a fresh list of addresses goes; `None` without memory for it.
pub type Publish<'a> = &'a dyn Fn(&[AdapterAddress]) -> Option<()>;

pub struct Addresses {
    /// The interface.
    net_luid: u64,
    snapshot: SpinLock<Option<PoolSlice<Option<Address>>>>,
    /// One refresh at a time, so that an older table never replaces a newer one.
    refreshing: Mutex<()>,
    notification: SpinLock<NotificationHandle>,
    /// A change could not be read for want of memory: [`Self::catch_up`] tries again.
    stale: AtomicBool,
}

#[derive(Clone, Copy)]
struct NotificationHandle(HANDLE);

// SAFETY: a token that netio accepts from every thread.
unsafe impl Send for NotificationHandle {}

impl Addresses {
    pub fn try_new(net_luid: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            net_luid,
            snapshot: SpinLock::new(None),
            refreshing: Mutex::try_new(tags::EVENT, ())?,
            notification: SpinLock::new(NotificationHandle(ptr::null_mut())),
            stale: AtomicBool::new(false),
        })
    }

    /// The interface.
    pub const fn net_luid(&self) -> u64 {
        self.net_luid
    }

    /// Has `changed` called with `context` on every change, at PASSIVE_LEVEL. The first table is still to be read
    /// ([`Self::refresh`]). PASSIVE_LEVEL.
    ///
    /// # Safety
    /// The function takes this context, which lives until [`Self::forget`] has returned.
    pub unsafe fn watch(&self, changed: Changed, context: *mut c_void) -> Result<(), NTSTATUS> {
        let mut handle: HANDLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL; the context outlives the notification (the caller's promise); a place for the answer.
        let status = unsafe { NotifyUnicastIpAddressChange(AF_UNSPEC, changed, context, 0, &raw mut handle) };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        self.notification.lock().0 = handle;
        Ok(())
    }

    /// Cancels the notification and waits for a callback in progress. PASSIVE_LEVEL.
    pub fn forget(&self) {
        let handle = core::mem::replace(&mut self.notification.lock().0, ptr::null_mut());
        if !handle.is_null() {
            // SAFETY: the handle came from NotifyUnicastIpAddressChange and is cancelled once; no lock is held, and this
            // is not the callback.
            let _status = unsafe { CancelMibChangeNotify2(handle) };
        }
    }

    /// Calls `visit` for each address, under the snapshot's lock: `visit` must be short. `IRQL <= DISPATCH_LEVEL`.
    pub fn for_each(&self, mut visit: impl FnMut(Address)) {
        if let Some(addresses) = self.snapshot.lock().as_deref() {
            addresses.iter().flatten().for_each(|address| visit(*address));
        }
    }

    /// Reads the table and passes the addresses on; false when that fails for want of memory: [`Self::catch_up`] tries again.
    /// PASSIVE_LEVEL.
    pub fn refresh(&self, publish: Publish<'_>) -> bool {
        let followed = self.read(publish).is_some();
        if !followed {
            self.stale.store(true, Ordering::SeqCst);
        }
        followed
    }

    /// Follows the changes that could not be followed when they came; false while that still does not succeed. PASSIVE_LEVEL.
    pub fn catch_up(&self, publish: Publish<'_>) -> bool {
        !self.stale.swap(false, Ordering::SeqCst) || self.refresh(publish)
    }

    /// Reads the table, swaps the snapshot and passes it on; `None` without memory for one of them.
    fn read(&self, publish: Publish<'_>) -> Option<()> {
        let _one_at_a_time = self.refreshing.lock();
        let fresh = Table::read().ok()?.of_interface(self.net_luid).ok()?;
        let plain = plain(&fresh).ok()?;
        // The old snapshot is freed outside the lock.
        let old = self.snapshot.lock().replace(fresh);
        drop(old);
        publish(&plain)
    }
}

/// The addresses with their zones, in the engine's form.
fn plain(addresses: &[Option<Address>]) -> Result<PoolSlice<AdapterAddress>, NoMemory> {
    let none = AdapterAddress::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let mut list = PoolSlice::try_filled(tags::ADDRESS_TABLE, addresses.len(), none)?;
    for (place, address) in list.iter_mut().zip(addresses.iter().flatten()) {
        *place = AdapterAddress { ip: address.ip, scope_id: address.scope_id };
    }
    Ok(list)
}

/// The unicast address table of all interfaces.
struct Table {
    table: *mut MIB_UNICASTIPADDRESS_TABLE,
}

impl Table {
    fn read() -> Result<Self, NTSTATUS> {
        let mut table: *mut MIB_UNICASTIPADDRESS_TABLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL; `table` is a valid place for the answer.
        let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) };
        if status == STATUS_SUCCESS && !table.is_null() { Ok(Self { table }) } else { Err(status) }
    }

    fn rows(&self) -> &[MIB_UNICASTIPADDRESS_ROW] {
        // SAFETY: the table is valid until it is freed.
        let count = unsafe { (*self.table).NumEntries } as usize;
        // SAFETY: only the address of the first row is computed.
        let first = unsafe { &raw const (*self.table).Table };
        // SAFETY: netio promises NumEntries rows behind the count, in one allocation.
        unsafe { core::slice::from_raw_parts(first.cast(), count) }
    }

    /// The usable addresses of one interface.
    fn of_interface(&self, net_luid: u64) -> Result<PoolSlice<Option<Address>>, NoMemory> {
        let ours = || self.rows().iter().filter(move |row| luid(row) == net_luid).filter_map(usable);
        let mut addresses = PoolSlice::try_filled(tags::ADDRESS_TABLE, ours().count(), None)?;
        for (place, address) in addresses.iter_mut().zip(ours()) {
            *place = Some(address);
        }
        Ok(addresses)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the table came from GetUnicastIpAddressTable and is freed once.
        unsafe { FreeMibTable(self.table.cast()) };
    }
}

fn luid(row: &MIB_UNICASTIPADDRESS_ROW) -> u64 {
    row.InterfaceLuid.Value
}

/// The row's address, unless duplicate address detection still holds it back.
fn usable(row: &MIB_UNICASTIPADDRESS_ROW) -> Option<Address> {
    if row.DadState == NldsInvalid || row.DadState == NldsTentative || row.DadState == NldsDuplicate {
        return None;
    }
    let ip = ip_address(&row.Address)?;
    let scope_id = if ip.is_ipv6() { row.ScopeId.Value & ZONE } else { 0 };
    Some(Address { ip, prefix_length: row.OnLinkPrefixLength, scope_id })
}

/// The IP address in a socket address, if it is of a supported family.
pub fn ip_address(address: &SOCKADDR_INET) -> Option<IpAddr> {
    let family = address.family();
    if family == AF_INET {
        // SAFETY: the family says that this is the IPv4 form, whose bytes are all plain data.
        let bytes = unsafe { address.Ipv4.sin_addr };
        Some(IpAddr::from(bytes.S_addr.to_ne_bytes()))
    } else if family == AF_INET6 {
        // SAFETY: the family says that this is the IPv6 form, whose bytes are all plain data.
        let bytes = unsafe { address.Ipv6.sin6_addr };
        Some(IpAddr::from(bytes.Byte))
    } else {
        None
    }
}
