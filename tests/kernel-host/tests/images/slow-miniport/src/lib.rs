//! A miniport that completes asynchronously wherever NDIS allows it: restart, pause and OIDs pend, sends are completed from a timer,
//! frames come back as receives that the host has to return, an I/O request waits for its cancel routine. It keeps the
//! contract; the tests check how the kernel host serves it.
//!
//! One adapter, one frame in a list. Work is done by a timer at DISPATCH_LEVEL and, for serial OIDs, by a work item.

#![no_std]
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a driver this small is unsafe")]
#![allow(clippy::missing_safety_doc, reason = "called by the kernel host only")]

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::panic::PanicInfo;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use ndkpi_sys::ndis::*;
use ndkpi_sys::netioapi::*;
use ndkpi_sys::nt;

#[unsafe(no_mangle)]
pub static _fltused: i32 = 0;

/// What the precompiled core library's unwind tables refer to; nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn __CxxFrameHandler3() -> i32 {
    0
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: a panic is a defect of this crate.
    unsafe { KeBugCheckEx(0x5250_4E43, 0, 0, 0, 0) }
}

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn KeBugCheckEx(code: u32, first: u64, second: u64, third: u64, fourth: u64) -> !;
    fn KeAcquireSpinLockRaiseToDpc(lock: *mut usize) -> u8;
    fn KeReleaseSpinLock(lock: *mut usize, irql: u8);
    fn KeFlushQueuedDpcs();
    fn ExAllocatePool2(flags: u64, size: usize, tag: u32) -> *mut u8;
    fn ExFreePoolWithTag(block: *mut u8, tag: u32);
    fn IofCompleteRequest(irp: *mut c_void, boost: i8);
    fn IoReleaseCancelSpinLock(irql: u8);
    fn memcpy(target: *mut u8, source: *const u8, length: usize) -> *mut u8;
}

// What compiled code calls by itself.
#[allow(dead_code, reason = "declared for the linker")]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn memmove(target: *mut u8, source: *const u8, length: usize) -> *mut u8;
    fn memset(target: *mut u8, value: i32, length: usize) -> *mut u8;
    fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32;
}

const TAG: u32 = u32::from_le_bytes(*b"Slow");
const NON_PAGED: u64 = 0x40;
const CAPACITY: u32 = 1600;
const HEADROOM: u32 = 64;
/// A fifth of a second, relative: time enough for a cancellation to come first; kernel time jumps over it.
const SOON: nt::LARGE_INTEGER = nt::LARGE_INTEGER { QuadPart: -2_000_000 };
/// An identifier whose query waits for its cancellation.
const OID_WAITS: u32 = 0xFF01_0001;

static DRIVER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static ADDED: AtomicU32 = AtomicU32::new(0);
static DELETED: AtomicU32 = AtomicU32::new(0);
static INITIAL: AtomicU32 = AtomicU32::new(0);

struct Locked(UnsafeCell<Adapter>, UnsafeCell<usize>);

// SAFETY: the contents are touched with the lock only, apart from initialisation and halt.
unsafe impl Sync for Locked {}

static ADAPTER: Locked = Locked(UnsafeCell::new(Adapter::NONE), UnsafeCell::new(0));

struct Adapter {
    miniport: NDIS_HANDLE,
    timer: NDIS_HANDLE,
    work_item: NDIS_HANDLE,
    /// Lists with data of their own, and lists over MDLs of ours.
    data_pool: NDIS_HANDLE,
    list_pool: NDIS_HANDLE,
    notification: nt::HANDLE,
    device: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
    waiting: *mut NDIS_OID_REQUEST,
    direct: *mut NDIS_OID_REQUEST,
    sends: *mut NET_BUFFER_LIST,
    restarting: bool,
    pausing: bool,
    indicated: u32,
    frames: u32,
}

impl Adapter {
    const NONE: Self = Self {
        miniport: null_mut(),
        timer: null_mut(),
        work_item: null_mut(),
        data_pool: null_mut(),
        list_pool: null_mut(),
        notification: null_mut(),
        device: null_mut(),
        request: null_mut(),
        waiting: null_mut(),
        direct: null_mut(),
        sends: null_mut(),
        restarting: false,
        pausing: false,
        indicated: 0,
        frames: 0,
    };
}

unsafe fn locked<T>(body: impl FnOnce(&mut Adapter) -> T) -> T {
    let irql = KeAcquireSpinLockRaiseToDpc(ADAPTER.1.get());
    let value = body(&mut *ADAPTER.0.get());
    KeReleaseSpinLock(ADAPTER.1.get(), irql);
    value
}

unsafe fn schedule() {
    let timer = locked(|adapter| adapter.timer);
    NdisSetTimerObject(timer, SOON, 0, null_mut());
}

fn header(kind: u8, revision: u8, size: u16) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: revision, Size: size }
}

#[unsafe(no_mangle)]
pub unsafe extern "system" fn DriverEntry(driver: *mut nt::DRIVER_OBJECT, path: *mut nt::UNICODE_STRING) -> i32 {
    let mut characteristics = NDIS_MINIPORT_DRIVER_CHARACTERISTICS::zeroed();
    characteristics.Header = header(NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS, 2, 0x98);
    characteristics.MajorNdisVersion = 6;
    characteristics.MinorNdisVersion = 60;
    characteristics.InitializeHandlerEx = Some(initialize);
    characteristics.HaltHandlerEx = Some(halt);
    characteristics.UnloadHandler = Some(unload);
    characteristics.PauseHandler = Some(pause);
    characteristics.RestartHandler = Some(restart);
    characteristics.OidRequestHandler = Some(oid_request);
    characteristics.CancelOidRequestHandler = Some(cancel_oid);
    characteristics.DirectOidRequestHandler = Some(direct_oid_request);
    characteristics.CancelDirectOidRequestHandler = Some(cancel_oid);
    characteristics.SendNetBufferListsHandler = Some(send);
    characteristics.CancelSendHandler = Some(cancel_send);
    characteristics.ReturnNetBufferListsHandler = Some(take_back);
    characteristics.DevicePnPEventNotifyHandler = Some(device_event);
    characteristics.ShutdownHandlerEx = Some(shutdown);
    let mut handle = null_mut();
    let status = NdisMRegisterMiniportDriver(driver, path, null_mut(), &raw mut characteristics, &raw mut handle);
    DRIVER.store(handle, Ordering::Relaxed);
    status
}

unsafe extern "C" fn unload(_driver: *mut nt::DRIVER_OBJECT) {
    NdisMDeregisterMiniportDriver(DRIVER.load(Ordering::Relaxed));
}

unsafe extern "C" fn device_event(_context: NDIS_HANDLE, _event: *mut NET_DEVICE_PNP_EVENT) {}
unsafe extern "C" fn shutdown(_context: NDIS_HANDLE, _action: NDIS_SHUTDOWN_ACTION) {}

// ---- life cycle ----

static POWER: Shared<NDIS_PM_CAPABILITIES> = Shared(UnsafeCell::new(NDIS_PM_CAPABILITIES::zeroed()));

struct Shared<T>(UnsafeCell<T>);

// SAFETY: written once, before any reader.
unsafe impl<T> Sync for Shared<T> {}

static OIDS: [NDIS_OID; 24] = [
    OID_GEN_CURRENT_LOOKAHEAD,
    OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_INTERRUPT_MODERATION,
    OID_GEN_LINK_PARAMETERS,
    OID_GEN_MAXIMUM_TOTAL_SIZE,
    OID_GEN_RCV_OK,
    OID_GEN_XMIT_OK,
    OID_GEN_RECEIVE_BLOCK_SIZE,
    OID_GEN_TRANSMIT_BLOCK_SIZE,
    OID_GEN_RECEIVE_BUFFER_SPACE,
    OID_GEN_TRANSMIT_BUFFER_SPACE,
    OID_GEN_STATISTICS,
    OID_GEN_VENDOR_DESCRIPTION,
    OID_GEN_VENDOR_DRIVER_VERSION,
    OID_GEN_VENDOR_ID,
    OID_802_3_PERMANENT_ADDRESS,
    OID_802_3_CURRENT_ADDRESS,
    OID_802_3_MULTICAST_LIST,
    OID_802_3_MAXIMUM_LIST_SIZE,
    OID_802_3_RCV_ERROR_ALIGNMENT,
    OID_802_3_XMIT_ONE_COLLISION,
    OID_802_3_XMIT_MORE_COLLISIONS,
    OID_PNP_SET_POWER,
    OID_PNP_QUERY_POWER,
];

unsafe extern "C" fn initialize(
    miniport: NDIS_HANDLE,
    _context: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    set_attributes(miniport);
    let adapter = &mut *ADAPTER.0.get();
    *adapter = Adapter::NONE;
    adapter.miniport = miniport;
    adapter.work_item = NdisAllocateIoWorkItem(miniport);
    let mut timer = NDIS_TIMER_CHARACTERISTICS::zeroed();
    timer.Header = header(NDIS_OBJECT_TYPE_TIMER_CHARACTERISTICS, 1, 0x18);
    timer.AllocationTag = TAG;
    timer.TimerFunction = Some(timer_expired);
    let status = NdisAllocateTimerObject(miniport, &raw mut timer, &raw mut adapter.timer);
    if status != NDIS_STATUS_SUCCESS {
        return status;
    }
    adapter.data_pool = pool(miniport, CAPACITY);
    adapter.list_pool = pool(miniport, 0);
    let context = miniport;
    let status =
        NotifyUnicastIpAddressChange(nt::AF_UNSPEC, address_changed, context, 1, &raw mut adapter.notification);
    if status != 0 {
        return NDIS_STATUS_FAILURE;
    }
    adapter.device = register_device();
    NDIS_STATUS_SUCCESS
}

unsafe fn pool(miniport: NDIS_HANDLE, data: u32) -> NDIS_HANDLE {
    let mut parameters = NET_BUFFER_LIST_POOL_PARAMETERS::zeroed();
    parameters.Header = header(NDIS_OBJECT_TYPE_DEFAULT, 1, 0x10);
    parameters.fAllocateNetBuffer = 1;
    parameters.PoolTag = TAG;
    parameters.DataSize = data;
    NdisAllocateNetBufferListPool(miniport, &raw mut parameters)
}

unsafe fn set_attributes(miniport: NDIS_HANDLE) {
    let mut registration = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::zeroed();
    registration.Header = header(NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, 2, 0x1C);
    registration.MiniportAdapterContext = ADAPTER.0.get().cast();
    NdisMSetMiniportAttributes(miniport, (&raw mut registration).cast());
    const SPEED: u64 = 1_000_000_000;
    let mut general = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES::zeroed();
    general.Header = header(NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, 2, 0xE0);
    general.PhysicalMediumType = NdisPhysicalMedium802_3;
    general.MtuSize = 1500;
    general.MaxXmitLinkSpeed = SPEED;
    general.XmitLinkSpeed = SPEED;
    general.MaxRcvLinkSpeed = SPEED;
    general.RcvLinkSpeed = SPEED;
    general.MediaConnectState = MediaConnectStateConnected;
    general.MediaDuplexState = MediaDuplexStateFull;
    general.LookaheadSize = 1500;
    general.SupportedPacketFilters = NDIS_PACKET_TYPES::from_bits_retain(0x2F);
    general.MaxMulticastListSize = 32;
    general.MacAddressLength = 6;
    general.PermanentMacAddress[..6].copy_from_slice(&[2, 0, 0, 0x51, 0x0E, 1]);
    general.CurrentMacAddress[..6].copy_from_slice(&[2, 0, 0, 0x51, 0x0E, 1]);
    general.AccessType = NET_IF_ACCESS_BROADCAST;
    general.ConnectionType = NET_IF_CONNECTION_DEDICATED;
    general.IfType = 6;
    general.SupportedStatistics = NDIS_STATISTICS_FLAGS::from_bits_retain(0x003F_87FF);
    general.SupportedOidList = OIDS.as_ptr().cast_mut();
    general.SupportedOidListLength = size_of_val(&OIDS) as u32;
    (*POWER.0.get()).Header = header(NDIS_OBJECT_TYPE_DEFAULT, 2, 0x3C);
    general.PowerManagementCapabilitiesEx = POWER.0.get();
    NdisMSetMiniportAttributes(miniport, (&raw mut general).cast());
}

unsafe extern "C" fn halt(_context: NDIS_HANDLE, _action: NDIS_HALT_ACTION) {
    let adapter = core::mem::replace(&mut *ADAPTER.0.get(), Adapter::NONE);
    NdisDeregisterDeviceEx(adapter.device);
    CancelMibChangeNotify2(adapter.notification);
    NdisCancelTimerObject(adapter.timer);
    KeFlushQueuedDpcs();
    NdisFreeTimerObject(adapter.timer);
    NdisFreeIoWorkItem(adapter.work_item);
    NdisFreeNetBufferListPool(adapter.data_pool);
    NdisFreeNetBufferListPool(adapter.list_pool);
}

unsafe extern "C" fn restart(_context: NDIS_HANDLE, _parameters: *mut NDIS_MINIPORT_RESTART_PARAMETERS) -> NDIS_STATUS {
    locked(|adapter| adapter.restarting = true);
    schedule();
    NDIS_STATUS_PENDING
}

unsafe extern "C" fn pause(_context: NDIS_HANDLE, _parameters: *mut NDIS_MINIPORT_PAUSE_PARAMETERS) -> NDIS_STATUS {
    locked(|adapter| adapter.pausing = true);
    schedule();
    NDIS_STATUS_PENDING
}

/// Does everything that was put off, at DISPATCH_LEVEL, no lock held over a call into NDIS.
unsafe extern "C" fn timer_expired(_: nt::PVOID, _: nt::PVOID, _: nt::PVOID, _: nt::PVOID) {
    let (miniport, restarting, direct, sends) = locked(|adapter| {
        let restarting = core::mem::take(&mut adapter.restarting);
        let direct = core::mem::replace(&mut adapter.direct, null_mut());
        let sends = core::mem::replace(&mut adapter.sends, null_mut());
        (adapter.miniport, restarting, direct, sends)
    });
    if restarting {
        NdisMRestartComplete(miniport, NDIS_STATUS_SUCCESS);
    }
    if !direct.is_null() {
        let status = answer(direct);
        NdisMDirectOidRequestComplete(miniport, direct, status);
    }
    let mut list = sends;
    while !list.is_null() {
        let next = (*list).Next;
        reflect(miniport, list);
        (*list).Next = null_mut();
        (*list).Status = NDIS_STATUS_SUCCESS;
        NdisMSendNetBufferListsComplete(miniport, list, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL);
        list = next;
    }
    complete_pause(miniport);
}

unsafe fn complete_pause(miniport: NDIS_HANDLE) {
    let idle = locked(|adapter| {
        let idle = adapter.pausing && adapter.indicated == 0 && adapter.sends.is_null();
        adapter.pausing &= !idle;
        idle
    });
    if idle {
        NdisMPauseComplete(miniport);
    }
}

// ---- frames ----

unsafe extern "C" fn send(_context: NDIS_HANDLE, chain: *mut NET_BUFFER_LIST, _port: u32, _flags: NDIS_SEND_FLAGS) {
    locked(|adapter| {
        let mut place = &raw mut adapter.sends;
        while !(*place).is_null() {
            place = &raw mut (**place).Next;
        }
        *place = chain;
    });
    schedule();
}

unsafe extern "C" fn cancel_send(_context: NDIS_HANDLE, id: nt::PVOID) {
    let (miniport, cancelled) = locked(|adapter| {
        let mut cancelled = null_mut();
        let mut place = &raw mut adapter.sends;
        while !(*place).is_null() {
            let list = *place;
            if NDIS_GET_NET_BUFFER_LIST_CANCEL_ID(list) == id {
                *place = (*list).Next;
                (*list).Next = cancelled;
                (*list).Status = NDIS_STATUS_SEND_ABORTED;
                cancelled = list;
            } else {
                place = &raw mut (*list).Next;
            }
        }
        (adapter.miniport, cancelled)
    });
    if !cancelled.is_null() {
        NdisMSendNetBufferListsComplete(miniport, cancelled, NDIS_SEND_COMPLETE_FLAGS::empty());
    }
}

/// Indicates a copy of a sent frame, alternately in a list with data of the pool and in one over an MDL of ours.
unsafe fn reflect(miniport: NDIS_HANDLE, sent: *mut NET_BUFFER_LIST) {
    let buffer = (*sent).FirstNetBuffer;
    let length = (*buffer).NbDataLength.DataLength;
    let storage = ExAllocatePool2(NON_PAGED, CAPACITY as usize, TAG);
    let data = NdisGetDataBuffer(buffer, length, storage.cast(), 1, 0).cast::<u8>();
    let (data_pool, list_pool, parity) = locked(|adapter| {
        adapter.frames += 1;
        adapter.indicated += 1;
        (adapter.data_pool, adapter.list_pool, adapter.frames % 2)
    });
    let list = if parity == 0 {
        from_data_pool(data_pool, data, length)
    } else {
        over_own_mdl(miniport, list_pool, data, length)
    };
    ExFreePoolWithTag(storage, TAG);
    (*list).SourceHandle = miniport;
    (*list).Status = NDIS_STATUS_SUCCESS;
    NdisMIndicateReceiveNetBufferLists(miniport, list, 0, 1, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL);
}

/// All of the pool's data is unused at first: a retreat makes space for data, an advance gives back the excess.
unsafe fn from_data_pool(pool: NDIS_HANDLE, data: *const u8, length: u32) -> *mut NET_BUFFER_LIST {
    let list = NdisAllocateNetBufferList(pool, 0, 0);
    let buffer = (*list).FirstNetBuffer;
    NdisRetreatNetBufferDataStart(buffer, length + HEADROOM, 0, None);
    NdisAdvanceNetBufferDataStart(buffer, HEADROOM, 0, None);
    let place = NdisGetDataBuffer(buffer, length, null_mut(), 1, 0).cast::<u8>();
    memcpy(place, data, length as usize);
    list
}

unsafe fn over_own_mdl(miniport: NDIS_HANDLE, pool: NDIS_HANDLE, data: *const u8, length: u32) -> *mut NET_BUFFER_LIST {
    let block = ExAllocatePool2(NON_PAGED, CAPACITY as usize, TAG);
    memcpy(block.add(HEADROOM as usize), data, length as usize);
    let mdl = NdisAllocateMdl(miniport, block.cast(), CAPACITY);
    let list = NdisAllocateNetBufferAndNetBufferList(pool, 0, 0, mdl, HEADROOM, length as usize);
    (*list).MiniportReserved[0] = block.cast();
    list
}

unsafe extern "C" fn take_back(_context: NDIS_HANDLE, chain: *mut NET_BUFFER_LIST, _flags: NDIS_RETURN_FLAGS) {
    let mut list = chain;
    while !list.is_null() {
        let next = (*list).Next;
        let block = (*list).MiniportReserved[0].cast::<u8>();
        if !block.is_null() {
            NdisFreeMdl((*(*list).FirstNetBuffer).MdlChain);
            ExFreePoolWithTag(block, TAG);
        }
        NdisFreeNetBufferList(list);
        locked(|adapter| adapter.indicated -= 1);
        list = next;
    }
    let miniport = locked(|adapter| adapter.miniport);
    complete_pause(miniport);
}

// ---- OIDs ----

/// Four zero bytes for every query, success for every set.
unsafe fn answer(request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let query = &raw mut (*request).DATA.QUERY_INFORMATION;
    if (*request).RequestType == NdisRequestSetInformation {
        (*query).BytesWritten = (*query).InformationBufferLength;
        return NDIS_STATUS_SUCCESS;
    }
    if (*query).InformationBufferLength < 4 {
        (*query).BytesNeeded = 4;
        return NDIS_STATUS_BUFFER_TOO_SHORT;
    }
    (*query).InformationBuffer.cast::<u32>().write_unaligned(0);
    (*query).BytesWritten = 4;
    NDIS_STATUS_SUCCESS
}

unsafe extern "C" fn oid_request(_context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    if (*request).Oid() == OID_WAITS {
        locked(|adapter| adapter.waiting = request);
        return NDIS_STATUS_PENDING;
    }
    let item = locked(|adapter| {
        adapter.request = request;
        adapter.work_item
    });
    NdisQueueIoWorkItem(item, work, null_mut());
    NDIS_STATUS_PENDING
}

unsafe extern "C" fn work(_context: nt::PVOID, _item: NDIS_HANDLE) {
    let (miniport, request) =
        locked(|adapter| (adapter.miniport, core::mem::replace(&mut adapter.request, null_mut())));
    let status = answer(request);
    NdisMOidRequestComplete(miniport, request, status);
}

unsafe extern "C" fn direct_oid_request(_context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    locked(|adapter| adapter.direct = request);
    schedule();
    NDIS_STATUS_PENDING
}

unsafe extern "C" fn cancel_oid(_context: NDIS_HANDLE, id: nt::PVOID) {
    let (miniport, request) = locked(|adapter| {
        let request = adapter.waiting;
        if !request.is_null() && (*request).RequestId == id {
            adapter.waiting = null_mut();
            return (adapter.miniport, request);
        }
        (adapter.miniport, null_mut())
    });
    if !request.is_null() {
        NdisMOidRequestComplete(miniport, request, NDIS_STATUS_REQUEST_ABORTED);
    }
}

// ---- addresses ----

unsafe extern "C" fn address_changed(
    _context: nt::PVOID,
    row: *mut MIB_UNICASTIPADDRESS_ROW,
    kind: MIB_NOTIFICATION_TYPE,
) {
    if kind == MibInitialNotification {
        INITIAL.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut full = *row;
    let found = GetUnicastIpAddressEntry(&raw mut full) == 0;
    let mut index = 0;
    ConvertInterfaceLuidToIndex(&raw const (*row).InterfaceLuid, &raw mut index);
    let right = index == (*row).InterfaceIndex;
    if kind == MibAddInstance && found && right && full.OnLinkPrefixLength == 24 {
        ADDED.fetch_add(1, Ordering::Relaxed);
    }
    if kind == MibDeleteInstance && !found && right {
        DELETED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Initial notifications, additions that could be looked up and deletions that could not be any more.
#[unsafe(no_mangle)]
pub extern "system" fn address_events() -> u64 {
    let [initial, added, deleted] = [&INITIAL, &ADDED, &DELETED].map(|count| u64::from(count.load(Ordering::Relaxed)));
    initial << 32 | added << 16 | deleted
}

// ---- control device ----

const IRP_STATUS: usize = 0x30;
const IRP_INFORMATION: usize = 0x38;
const IRP_CANCEL: usize = 0x44;
const IRP_CANCEL_IRQL: usize = 0x45;
const IRP_CANCEL_ROUTINE: usize = 0x68;
const IRP_STACK_LOCATION: usize = 0xB8;
const STATUS_CANCELLED: i32 = 0xC000_0120_u32 as i32;

macro_rules! utf16 {
    ($text:literal) => {{
        static UNITS: [u16; $text.len()] = {
            let mut units = [0; $text.len()];
            let mut index = 0;
            while index < units.len() {
                units[index] = $text[index] as u16;
                index += 1;
            }
            units
        };
        let bytes = (UNITS.len() * 2) as u16;
        nt::UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: UNITS.as_ptr().cast_mut() }
    }};
}

unsafe fn register_device() -> NDIS_HANDLE {
    let mut name = utf16!(br"\Device\SlowMiniport");
    let mut link = utf16!(br"\DosDevices\SlowMiniport");
    let access = utf16!(br"D:P(A;;GA;;;SY)(A;;GA;;;BA)");
    let mut table: [Option<nt::PDRIVER_DISPATCH>; 28] = [None; 28];
    table[0x00] = Some(succeed);
    table[0x02] = Some(succeed);
    table[0x0E] = Some(wait_for_cancel);
    table[0x12] = Some(succeed);
    let mut attributes = NDIS_DEVICE_OBJECT_ATTRIBUTES::zeroed();
    attributes.Header = header(NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES, 1, 0x38);
    attributes.DeviceName = &raw mut name;
    attributes.SymbolicName = &raw mut link;
    attributes.MajorFunctions = (&raw mut table).cast();
    attributes.DefaultSDDLString = &raw const access;
    let (mut object, mut handle) = (null_mut(), null_mut());
    let driver = DRIVER.load(Ordering::Relaxed);
    NdisRegisterDeviceEx(driver, &raw mut attributes, &raw mut object, &raw mut handle);
    handle
}

unsafe fn complete(irp: *mut nt::IRP, status: i32) -> i32 {
    irp.byte_add(IRP_STATUS).cast::<i32>().write(status);
    irp.byte_add(IRP_INFORMATION).cast::<usize>().write(0);
    IofCompleteRequest(irp.cast(), 0);
    status
}

unsafe extern "C" fn succeed(_device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) -> i32 {
    complete(irp, 0)
}

unsafe fn set_cancel_routine(irp: *mut nt::IRP, routine: usize) -> usize {
    let place = irp.byte_add(IRP_CANCEL_ROUTINE).cast::<usize>();
    core::sync::atomic::AtomicUsize::from_ptr(place).swap(routine, Ordering::SeqCst)
}

/// Pends with a cancel routine; a packet that is cancelled already ends at once, unless the routine has run before.
unsafe extern "C" fn wait_for_cancel(_device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) -> i32 {
    const PENDING: i32 = 0x103;
    const PENDING_RETURNED: u8 = 1;
    let stack = irp.byte_add(IRP_STACK_LOCATION).cast::<*mut u8>().read();
    *stack.add(3) |= PENDING_RETURNED;
    set_cancel_routine(irp, cancelled as *const () as usize);
    let late = irp.byte_add(IRP_CANCEL).cast::<u8>().read_volatile() != 0;
    if late && set_cancel_routine(irp, 0) != 0 {
        complete(irp, STATUS_CANCELLED);
    }
    PENDING
}

unsafe extern "C" fn cancelled(_device: *mut nt::DEVICE_OBJECT, irp: *mut nt::IRP) {
    IoReleaseCancelSpinLock(irp.byte_add(IRP_CANCEL_IRQL).cast::<u8>().read());
    complete(irp, STATUS_CANCELLED);
}
