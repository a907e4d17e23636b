//! Event Tracing for Windows: providers, and what they write ([`event_tracing`]).

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::event_tracing::{self, Written};
use crate::fault;
use crate::host_lock::HostLock;
use crate::irql::DISPATCH;
use crate::ledger;
use crate::memory::mdl;
use crate::status::{self, NtStatus};
use crate::thread::Thread;

const KIND: &str = "ETW registration";
/// The kind under which registrations with WMI are recorded, by device object or callback.
pub(crate) const KIND_WMI: &str = "WMI registration";

/// `PENABLECALLBACK`: source, control code, level, keywords any and all, filter, context.
type EnableCallback = extern "win64" fn(*const c_void, u32, u8, u64, u64, *const c_void, *const c_void);

/// What a provider registered: its identity, its callback and the callback's context.
#[derive(Clone, Copy)]
struct RegisteredProvider {
    provider: usize,
    callback: usize,
    context: usize,
}

/// By handle. A callback runs without the lock; the end of its registration waits for it.
static REGISTERED: HostLock<BTreeMap<u64, RegisteredProvider>> = HostLock::new(BTreeMap::new());
static CALLBACKS: AtomicUsize = AtomicUsize::new(0);

static ENABLE: Context = Context::new(ContextKind::Notification, "the enable callback of an ETW provider");

/// `EVENT_DESCRIPTOR`.
#[repr(C)]
pub struct EventDescriptor {
    id: u16,
    version: u8,
    channel: u8,
    level: u8,
    opcode: u8,
    task: u16,
    keyword: u64,
}

/// `EVENT_DATA_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DataDescriptor {
    address: u64,
    size: u32,
    /// 0 data, 1 the event's metadata, 2 the provider's traits.
    kind: u32,
}

/// MAX_EVENT_DATA_DESCRIPTORS.
const DESCRIPTORS: u32 = 128;
/// What an event may have in all.
const EVENT_BYTES: usize = 65_536;

fn check(function: &str, handle: u64) {
    if !ledger::holds(KIND, handle as usize) {
        let rule = format!("{function} of {handle:#x}, which is no registered provider (any more)");
        bugcheck(BugCheck::INVALID_KERNEL_HANDLE, [handle, 0, 0, 0], rule);
    }
}

/// The bytes that a descriptor describes. At DISPATCH_LEVEL they must not be pageable.
fn described(descriptor: DataDescriptor) -> &'static [u8] {
    let address = descriptor.address as usize;
    if descriptor.size == 0 {
        return &[];
    }
    if Thread::current().irql() >= DISPATCH
        && let Some(what) = mdl::pageable(address)
    {
        bugcheck(
            BugCheck::IRQL_NOT_LESS_OR_EQUAL,
            [descriptor.address, DISPATCH.into(), 0, 0],
            format!("an event is written at DISPATCH_LEVEL with data in {what}"),
        );
    }
    // SAFETY: the image's memory, which it gave for the call.
    unsafe { std::slice::from_raw_parts(address as *const u8, descriptor.size as usize) }
}

/// Runs the callback that a provider registered.
fn enable(registration: RegisteredProvider, on: bool) {
    let RegisteredProvider { provider, callback, context } = registration;
    if callback == 0 {
        return;
    }
    let null = std::ptr::null::<c_void>();
    // SAFETY: the image's callback with its documented arguments.
    unsafe {
        let callback = std::mem::transmute::<usize, EnableCallback>(callback);
        call_image!(ENABLE, callback => (); provider as *const c_void, u32::from(on), 0xFF_u8, u64::MAX, 0_u64, null, context);
    }
}

/// Runs the enable callback of every registered provider: a session came or went.
pub(crate) fn enable_all(on: bool) {
    CALLBACKS.fetch_add(1, Ordering::SeqCst);
    let registered: Vec<_> = REGISTERED.lock().values().copied().collect();
    for registration in registered {
        enable(registration, on);
    }
    CALLBACKS.fetch_sub(1, Ordering::SeqCst);
}

/// Takes an event apart; dropped where no session listens.
fn write(event: *const EventDescriptor, count: u32, data: *const DataDescriptor) -> NtStatus {
    if count > DESCRIPTORS {
        return status::STATUS_INVALID_PARAMETER;
    }
    let descriptors = if count == 0 {
        &[][..]
    } else {
        // SAFETY: so many descriptors, of the image.
        unsafe { std::slice::from_raw_parts(data, count as usize) }
    };
    // SAFETY: the image's descriptor.
    let (level, keyword) = unsafe { ((*event).level, (*event).keyword) };
    let mut written = Written { level, keyword, metadata: Vec::new(), traits: Vec::new(), data: Vec::new() };
    for descriptor in descriptors {
        let part = match descriptor.kind & 0xFF {
            0 => &mut written.data,
            1 => &mut written.metadata,
            2 => &mut written.traits,
            _ => return status::STATUS_INVALID_PARAMETER,
        };
        part.extend(described(*descriptor));
    }
    if written.data.len() + written.metadata.len() + written.traits.len() > EVENT_BYTES {
        return status::STATUS_BUFFER_OVERFLOW;
    }
    if event_tracing::listens() {
        event_tracing::keep(written);
    }
    status::STATUS_SUCCESS
}

crate::exports! {
    module "ntoskrnl.exe";

    /// Registers a provider, and enables it where a session listens.
    /// Checks: can be made to fail; unregistered before the driver is unloaded
    /// Source: ETW: EtwRegister
    [PASSIVE_ONLY] fn EtwRegister(
        provider: *const c_void, callback: *const c_void, context: *const c_void, handle: *mut u64,
    ) -> NtStatus {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        if fault::should_fail("EtwRegister") {
            return status::STATUS_INSUFFICIENT_RESOURCES;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ledger::record(KIND, number, "");
        let registration =
            RegisteredProvider { provider: provider.addr(), callback: callback.addr(), context: context.addr() };
        REGISTERED.lock().insert(number as u64, registration);
        if event_tracing::listens() {
            enable(registration, true);
        }
        // SAFETY: the image's output.
        unsafe { handle.write(number as u64) };
        status::STATUS_SUCCESS
    }

    /// Ends a registration.
    /// Checks: a registered provider
    /// Source: ETW: EtwUnregister
    [PASSIVE_ONLY] fn EtwUnregister(handle: u64) -> NtStatus {
        check("EtwUnregister", handle);
        REGISTERED.lock().remove(&handle);
        while CALLBACKS.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        ledger::release(KIND, handle as usize);
        status::STATUS_SUCCESS
    }

    /// Whether a session wants the event.
    /// Source: ETW: EtwEventEnabled
    [ANY] fn EtwEventEnabled(_handle: u64, _event: *const c_void) -> u8 {
        u8::from(event_tracing::listens())
    }

    /// Whether a session listens to the provider.
    /// Source: ETW: EtwProviderEnabled
    [ANY] fn EtwProviderEnabled(_handle: u64, _level: u8, _keyword: u64) -> u8 {
        u8::from(event_tracing::listens())
    }

    /// Takes traits of the provider, which come again with each event.
    /// Checks: a registered provider
    /// Source: ETW: EtwSetInformation
    [PASSIVE_ONLY] fn EtwSetInformation(handle: u64, _class: u32, _information: *const c_void, _length: u32) -> NtStatus {
        check("EtwSetInformation", handle);
        status::STATUS_SUCCESS
    }

    /// Gives a thread's activity or makes a new one: all zero here.
    /// Source: ETW: EtwActivityIdControl
    [UP_TO_APC] fn EtwActivityIdControl(_code: u32, activity: *mut [u8; 16]) -> NtStatus {
        // SAFETY: the image's place.
        unsafe { activity.write([0; 16]) };
        status::STATUS_SUCCESS
    }

    /// Writes an event.
    /// Checks: a registered provider; at DISPATCH_LEVEL no data in pageable memory
    /// Source: ETW: EtwWrite
    [ANY] fn EtwWrite(
        handle: u64, event: *const EventDescriptor, _activity: *const c_void, count: u32, data: *const DataDescriptor,
    ) -> NtStatus {
        check("EtwWrite", handle);
        write(event, count, data)
    }

    /// Writes an event.
    /// Checks: as EtwWrite
    /// Source: ETW: EtwWriteTransfer
    [ANY] fn EtwWriteTransfer(
        handle: u64, event: *const EventDescriptor, _activity: *const c_void, _related: *const c_void, count: u32,
        data: *const DataDescriptor,
    ) -> NtStatus {
        check("EtwWriteTransfer", handle);
        write(event, count, data)
    }

    /// Takes a registration or its end, of a device object or of a callback (WPP); nothing is asked of it.
    /// Checks: ended before the device is deleted and the driver is unloaded
    /// Source: WDM: IoWMIRegistrationControl
    [PASSIVE_ONLY] fn IoWMIRegistrationControl(object: *mut c_void, action: u32) -> NtStatus {
        const REGISTER: u32 = 1;
        const DEREGISTER: u32 = 2;
        // The low word is the action, the high one the kind of the object.
        match action & 0xFFFF {
            REGISTER => ledger::record(KIND_WMI, object as usize, "(WMI callback or device)"),
            DEREGISTER if ledger::release(KIND_WMI, object as usize).is_none() => return status::STATUS_INVALID_PARAMETER,
            _ => {}
        }
        status::STATUS_SUCCESS
    }
}
