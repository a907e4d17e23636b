//! Change notifications of the unicast address table: the registrations, their callbacks, and the cancellation that waits for
//! calls in progress (NETIOAPI: NotifyUnicastIpAddressChange, CancelMibChangeNotify2).
//!
//! A callback sees only which address of which interface changed; the other members of its row are zero, as documented, so a
//! driver has to look them up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use ndkpi_sys::netioapi::MIB_UNICASTIPADDRESS_ROW;
use ndkpi_sys::nt::{AF_INET, AF_INET6, AF_UNSPEC};

use super::address_table::AddressRow;
use super::mib;
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::dispatcher::Event;
use crate::ndis::loan::Loan;
use crate::ndis::rule::{Group, broken};

/// Kind under which registrations are recorded.
const LEDGER_KIND: &str = "address change notification";

/// First handle; an odd number that is no address.
const FIRST_HANDLE: usize = 0x00ED_1500_D000_0000;

/// What happened to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Change {
    Parameter = 0,
    Added = 1,
    Deleted = 2,
    Initial = 3,
}

struct Registration {
    handle: usize,
    family: u16,
    callback: usize,
    context: usize,
    state: Mutex<Calls>,
    quiet: Event,
}

#[derive(Default)]
struct Calls {
    running: usize,
    cancelled: bool,
}

#[derive(Default)]
struct Registrations {
    live: BTreeMap<usize, Arc<Registration>>,
    issued: usize,
}

static REGISTRATIONS: Mutex<Registrations> = Mutex::new(Registrations { live: BTreeMap::new(), issued: 0 });

thread_local! {
    /// The registrations whose callbacks run on this thread.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn registrations() -> std::sync::MutexGuard<'static, Registrations> {
    REGISTRATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a callback and returns its handle.
pub fn register(family: u16, callback: usize, context: usize, initial: bool) -> usize {
    if !matches!(family, AF_UNSPEC | AF_INET | AF_INET6) {
        broken(Group::Netio, callback, format!("NotifyUnicastIpAddressChange: {family} is no address family"));
    }
    if !crate::image::contains_code(callback) {
        broken(Group::Netio, callback, "NotifyUnicastIpAddressChange: the callback is no code of an image");
    }
    let registration = {
        let mut all = registrations();
        all.issued += 1;
        let handle = FIRST_HANDLE + all.issued * 0x10;
        let registration = Arc::new(Registration {
            handle,
            family,
            callback,
            context,
            state: Mutex::new(Calls::default()),
            quiet: Event::notification(),
        });
        all.live.insert(handle, Arc::clone(&registration));
        registration
    };
    crate::ledger::record(LEDGER_KIND, registration.handle, "");
    if initial {
        registration.call(None, Change::Initial);
    }
    registration.handle
}

/// Ends a registration: no callback begins afterwards, and those in progress have returned.
pub fn cancel(handle: usize) -> bool {
    if INSIDE.with_borrow(|inside| inside.contains(&handle)) {
        broken(
            Group::Netio,
            handle,
            "CancelMibChangeNotify2 is called from the notification's own callback, for which it would wait",
        );
    }
    let Some(registration) = registrations().live.remove(&handle) else { return false };
    let running = {
        let mut calls = registration.state.lock().unwrap_or_else(PoisonError::into_inner);
        calls.cancelled = true;
        calls.running
    };
    if running != 0 {
        registration.quiet.wait(None);
    }
    crate::ledger::release(LEDGER_KIND, handle);
    true
}

/// Notifies every registrant of a change. Runs the callbacks on the calling thread, at PASSIVE_LEVEL.
pub fn announce(row: &AddressRow, change: Change) {
    if change == Change::Deleted {
        crate::wsk::address_removed(row.address.address);
    }
    crate::stack::addresses_changed(row.if_index);
    let all: Vec<_> = registrations().live.values().cloned().collect();
    for registration in all.iter().filter(|registration| registration.wants(row)) {
        registration.call(Some(row), change);
    }
}

/// How many registrations there are.
#[must_use]
pub fn count() -> usize {
    registrations().live.len()
}

impl Registration {
    fn wants(&self, row: &AddressRow) -> bool {
        self.family == AF_UNSPEC || self.family == mib::family(row.address.address)
    }

    fn call(&self, row: Option<&AddressRow>, change: Change) {
        {
            let mut calls = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if calls.cancelled {
                return;
            }
            calls.running += 1;
        }
        let lent = row.map(|row| {
            let mut visible = MIB_UNICASTIPADDRESS_ROW::zeroed();
            visible.Address = mib::socket_address(row.address.address);
            visible.InterfaceLuid.Value = row.luid.0;
            visible.InterfaceIndex = row.if_index;
            Loan::new(visible)
        });
        let pointer: *mut c_void = lent.as_ref().map_or(std::ptr::null_mut(), |row| row.as_pointer().cast());
        let context = Context::new(ContextKind::Notification, "unicast address change callback");
        INSIDE.with_borrow_mut(|inside| inside.push(self.handle));
        // SAFETY: the registered callback, with the arguments of UNICAST_IPADDRESS_CHANGE_CALLBACK.
        unsafe { call_image!(context, self.callback => (); self.context, pointer, change as i32) };
        INSIDE.with_borrow_mut(Vec::pop);
        drop(lent);
        let mut calls = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        calls.running -= 1;
        let last = calls.cancelled && calls.running == 0;
        drop(calls);
        if last {
            self.quiet.set();
        }
    }
}
