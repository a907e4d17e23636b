//! A small NDK miniport that keeps the contract, and the places where one case each makes it break it.
//!
//! It has a data path of its own frames (`traffic`) and three kinds of object below the adapter: a protection domain created
//! asynchronously, a completion queue (`queue`) and a connector without a peer (`connector`). Everything it registers
//! is right unless `faulty` says that the running case is the bad twin of the fault named at that line.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use ndkpi_sys::ndis::*;
use ndkpi_sys::ndisndk::*;
use ndkpi_sys::ndkinfo::*;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt;

use crate::kernel::{
    DISPATCH_LEVEL, Dpc, DriverObject, KeAcquireSpinLockAtDpcLevel, KeFlushQueuedDpcs, KeInitializeDpc,
    KeInsertQueueDpc, KeLowerIrql, KeReleaseSpinLockFromDpcLevel, KfRaiseIrql, NtStatus, STATUS_NOT_SUPPORTED,
    STATUS_PENDING, STATUS_SUCCESS, SpinLock, UnicodeString, allocate, free,
};
use crate::spin_lock::Shared;
use crate::{connector, queue, traffic};

/// Where the miniport can break the contract.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    CharacteristicsType,
    CharacteristicsRevision,
    CharacteristicsSize,
    HaltHandlerMissing,
    DirectOidPairMissing,
    ProviderType,
    RegistrationType,
    RegistrationSize,
    GeneralFirst,
    GeneralMissing,
    PowerCapabilitiesMissing,
    MulticastAddress,
    OidMissing,
    NdkOidMissing,
    NdkAttributesSize,
    NdkInfoMissing,
    FastRegisterPagesTooFew,
    SetStatePends,
    EventInOid,
    OidOverrun,
    OidReturnsRaised,
    WorkItemLeft,
    BufferPoolLeft,
    ConfigurationLeft,
    NullSlot,
    WrongObjectType,
    ReservedNotZero,
    TableOnHeap,
    CompletionInCall,
    CompletionAfterSuccess,
    CompletionTwice,
    CompletionNever,
    CloseFails,
    DispatchOverwritten,
    DisconnectTwice,
    DeviceLeft,
    CompletionLocked,
    NotificationLocked,
    NotificationRaised,
    NotificationsAtOnce,
    NotificationAfterClose,
    SendWritten,
    SendKept,
    SendCompletedTwice,
    SendCompletedPending,
    SendCompletedLocked,
    SendCompletedLevelUntold,
    SendTouchedAfterCompletion,
    SendersListIndicated,
    ReceiveShort,
    ReceiveWithoutSource,
    ReceiveMiscounted,
    ReceiveIndicatedTwice,
    ReceiveIndicatedLocked,
    ReceiveFreedEarly,
    ReceiveLevelUntold,
    ReceiveLevelWrong,
    ReceiveWhileHalting,
    PauseFails,
    PauseNeverCompleted,
    PauseCompletedTwice,
    PauseCompletedAndReturned,
    RestartCompletedUnasked,
    RestartNeverCompleted,
    StatusType,
    StatusWithoutSource,
    LinkStateHeader,
    LinkStateShort,
    OidNeverCompleted,
    OidCompletedTwice,
    OidCompletedAndReturned,
    OidTooLate,
    SendTooLate,
    SendsStandStill,
    LevelAsked,
    TimerCancelledRaised,
}

/// The fault of the running case; `None` in every good twin.
static FAULT: AtomicU8 = AtomicU8::new(Fault::None as u8);
static DRIVER_HANDLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static MINIPORT_HANDLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

pub fn faulty(fault: Fault) -> bool {
    FAULT.load(Ordering::Relaxed) == fault as u8
}

/// Chooses the value that the contract requires, or the wrong one in the bad twin of `fault`.
pub fn unless<T>(fault: Fault, right: T, wrong: T) -> T {
    if faulty(fault) { wrong } else { right }
}

/// The handle of the adapter, as NDIS knows it.
pub fn miniport_handle() -> NDIS_HANDLE {
    MINIPORT_HANDLE.load(Ordering::Relaxed)
}

/// The pool of frames, made when the adapter is.
pub fn buffer_pool() -> NDIS_HANDLE {
    BUFFER_POOL.load(Ordering::Relaxed)
}

/// A case needs one adapter at a time only.
struct Adapter {
    oids: [NDIS_OID; 29],
    info: NDK_ADAPTER_INFO,
    capabilities: NDIS_NDK_CAPABILITIES,
    power: NDIS_PM_CAPABILITIES,
}

static OIDS: [NDIS_OID; 29] = [
    OID_GEN_XMIT_OK,
    OID_GEN_CURRENT_LOOKAHEAD,
    OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_INTERRUPT_MODERATION,
    OID_GEN_LINK_PARAMETERS,
    OID_GEN_MAXIMUM_TOTAL_SIZE,
    OID_GEN_RCV_OK,
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
    OID_GEN_SUPPORTED_LIST,
    OID_NDK_SET_STATE,
    OID_NDK_CONNECTIONS,
    OID_NDK_LOCAL_ENDPOINTS,
    OID_NDK_STATISTICS,
];

fn header(kind: u8, revision: u8, size: u16) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: revision, Size: size }
}

/// Registers the miniport; the case's driver entry.
pub unsafe fn register(driver: *mut DriverObject, path: *const UnicodeString, fault: Fault) -> NtStatus {
    FAULT.store(fault as u8, Ordering::Relaxed);
    let mut characteristics = NDIS_MINIPORT_DRIVER_CHARACTERISTICS::zeroed();
    characteristics.Header = header(
        unless(Fault::CharacteristicsType, NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OBJECT_TYPE_DEFAULT),
        unless(Fault::CharacteristicsRevision, NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2, 9),
        unless(Fault::CharacteristicsSize, NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2, 0x40),
    );
    characteristics.MajorNdisVersion = 6;
    characteristics.MinorNdisVersion = 60;
    characteristics.MajorDriverVersion = 1;
    characteristics.SetOptionsHandler = Some(set_options);
    characteristics.InitializeHandlerEx = Some(initialize);
    characteristics.HaltHandlerEx = if faulty(Fault::HaltHandlerMissing) { None } else { Some(halt) };
    characteristics.UnloadHandler = Some(unload);
    characteristics.PauseHandler = Some(traffic::pause);
    characteristics.RestartHandler = Some(traffic::restart);
    characteristics.OidRequestHandler = Some(oid_request);
    characteristics.SendNetBufferListsHandler = Some(traffic::send);
    characteristics.ReturnNetBufferListsHandler = Some(traffic::take_back);
    characteristics.CancelSendHandler = Some(cancel_send);
    characteristics.DevicePnPEventNotifyHandler = Some(pnp_event);
    characteristics.ShutdownHandlerEx = Some(shutdown);
    characteristics.CancelOidRequestHandler = Some(cancel_oid);
    if !faulty(Fault::DirectOidPairMissing) {
        characteristics.DirectOidRequestHandler = Some(oid_request);
        characteristics.CancelDirectOidRequestHandler = Some(cancel_oid);
    }
    let mut handle = core::ptr::null_mut();
    let status = NdisMRegisterMiniportDriver(
        driver.cast(),
        path.cast_mut().cast(),
        core::ptr::null_mut(),
        &raw mut characteristics,
        &raw mut handle,
    );
    DRIVER_HANDLE.store(handle, Ordering::Relaxed);
    if status == STATUS_SUCCESS { crate::device::register(handle) } else { status }
}

unsafe extern "C" fn set_options(driver: NDIS_HANDLE, _context: NDIS_HANDLE) -> NDIS_STATUS {
    let mut provider = NDIS_NDK_PROVIDER_CHARACTERISTICS {
        Header: header(
            unless(
                Fault::ProviderType,
                NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS,
                NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
            ),
            NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
            size_of::<NDIS_NDK_PROVIDER_CHARACTERISTICS>() as u16,
        ),
        Flags: 0,
        OpenNDKAdapterHandler: Some(open_ndk),
        CloseNDKAdapterHandler: Some(close_ndk),
    };
    NdisSetOptionalHandlers(driver, (&raw mut provider).cast())
}

unsafe extern "C" fn initialize(
    miniport: NDIS_HANDLE,
    _context: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    MINIPORT_HANDLE.store(miniport, Ordering::Relaxed);
    let adapter = allocate(size_of::<Adapter>()).cast::<Adapter>();
    (*adapter).oids = OIDS;
    (*adapter).power.Header = header(NDIS_OBJECT_TYPE_DEFAULT, NDIS_PM_CAPABILITIES_REVISION_2, 0x3C);
    (*adapter).info = adapter_info(NDK_VERSION { Major: 2, Minor: 1 });
    let steps: [unsafe fn(NDIS_HANDLE, *mut Adapter) -> NDIS_STATUS; 3] = if faulty(Fault::GeneralFirst) {
        [set_general, set_registration, set_ndk]
    } else {
        [set_registration, set_general, set_ndk]
    };
    for step in steps {
        let status = step(miniport, adapter);
        if status != NDIS_STATUS_SUCCESS {
            free(adapter.cast());
            return status;
        }
    }
    make_leftovers(miniport);
    traffic::make_timer(miniport);
    NDIS_STATUS_SUCCESS
}

unsafe fn set_registration(miniport: NDIS_HANDLE, adapter: *mut Adapter) -> NDIS_STATUS {
    let mut attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::zeroed();
    attributes.Header = header(
        unless(
            Fault::RegistrationType,
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
            NDIS_OBJECT_TYPE_DEFAULT,
        ),
        NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
        unless(Fault::RegistrationSize, NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2, 8),
    );
    attributes.MiniportAdapterContext = adapter.cast();
    attributes.AttributeFlags =
        NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK | NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND;
    NdisMSetMiniportAttributes(miniport, (&raw mut attributes).cast())
}

unsafe fn set_general(miniport: NDIS_HANDLE, adapter: *mut Adapter) -> NDIS_STATUS {
    if faulty(Fault::GeneralMissing) {
        return NDIS_STATUS_SUCCESS;
    }
    const SPEED: u64 = 100_000_000_000;
    let mut general = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES::zeroed();
    general.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    );
    general.MediaType = NdisMedium802_3;
    general.PhysicalMediumType = NdisPhysicalMedium802_3;
    general.MtuSize = 1500;
    general.MaxXmitLinkSpeed = SPEED;
    general.XmitLinkSpeed = SPEED;
    general.MaxRcvLinkSpeed = SPEED;
    general.RcvLinkSpeed = SPEED;
    general.MediaConnectState = MediaConnectStateConnected;
    general.MediaDuplexState = MediaDuplexStateFull;
    general.LookaheadSize = 1500;
    general.MacOptions = NDIS_MAC_OPTIONS::from_bits_retain(0xD);
    general.SupportedPacketFilters = NDIS_PACKET_TYPES::from_bits_retain(0x2F);
    general.MaxMulticastListSize = 32;
    general.MacAddressLength = 6;
    let address = [unless(Fault::MulticastAddress, 0x02, 0x03), 0, 0, 0xBA, 0xD0, 1];
    general.PermanentMacAddress[..6].copy_from_slice(&address);
    general.CurrentMacAddress[..6].copy_from_slice(&address);
    general.AccessType = NET_IF_ACCESS_BROADCAST;
    general.DirectionType = NET_IF_DIRECTION_SENDRECEIVE;
    general.ConnectionType = NET_IF_CONNECTION_DEDICATED;
    general.IfType = 6;
    general.SupportedStatistics = NDIS_STATISTICS_FLAGS::from_bits_retain(0x003F_87FF);
    // The two lists are trimmed at their ends: GEN_XMIT_OK is first, NDK_STATISTICS last.
    let skip = usize::from(faulty(Fault::OidMissing));
    let count = OIDS.len() - skip - usize::from(faulty(Fault::NdkOidMissing));
    general.SupportedOidList = (&raw mut (*adapter).oids).cast::<NDIS_OID>().add(skip);
    general.SupportedOidListLength = (count * size_of::<NDIS_OID>()) as u32;
    if !faulty(Fault::PowerCapabilitiesMissing) {
        general.PowerManagementCapabilitiesEx = &raw mut (*adapter).power;
    }
    NdisMSetMiniportAttributes(miniport, (&raw mut general).cast())
}

unsafe fn set_ndk(miniport: NDIS_HANDLE, adapter: *mut Adapter) -> NDIS_STATUS {
    if faulty(Fault::GeneralMissing) {
        return NDIS_STATUS_SUCCESS;
    }
    let capabilities = &raw mut (*adapter).capabilities;
    (*capabilities).Header = header(NDIS_OBJECT_TYPE_DEFAULT, 1, size_of::<NDIS_NDK_CAPABILITIES>() as u16);
    (*capabilities).MaxQpCount = 64;
    (*capabilities).MaxCqCount = 64;
    (*capabilities).MaxMrCount = 64;
    (*capabilities).MaxPdCount = 64;
    (*capabilities).NdkInfo =
        if faulty(Fault::NdkInfoMissing) { core::ptr::null_mut() } else { &raw mut (*adapter).info };
    let mut attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES::zeroed();
    attributes.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
        unless(Fault::NdkAttributesSize, size_of::<NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES>() as u16, 4),
    );
    attributes.Enabled = 1;
    attributes.NdkCapabilities = capabilities;
    NdisMSetMiniportAttributes(miniport, (&raw mut attributes).cast())
}

fn adapter_info(version: NDK_VERSION) -> NDK_ADAPTER_INFO {
    let mut info = NDK_ADAPTER_INFO::zeroed();
    info.Version = version;
    info.MaxRegistrationSize = 1 << 30;
    info.FRMRPageCount = unless(Fault::FastRegisterPagesTooFew, 16, 15);
    info.MaxInitiatorRequestSge = 4;
    info.MaxReceiveRequestSge = 4;
    info.MaxReadRequestSge = 4;
    info.MaxTransferLength = 1 << 20;
    info.MaxInboundReadLimit = 16;
    info.MaxOutboundReadLimit = 16;
    info.MaxReceiveQueueDepth = 128;
    info.MaxInitiatorQueueDepth = 128;
    info.MaxCqDepth = 256;
    info.LargeRequestThreshold = 4096;
    info.MaxCallerData = 56;
    info.MaxCalleeData = 56;
    info.AdapterFlags = NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
    info.RdmaTechnology = NdkiWarp;
    info
}

static WORK_ITEM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static BUFFER_POOL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Allocates one of each resource that HaltEx must free.
unsafe fn make_leftovers(miniport: NDIS_HANDLE) {
    WORK_ITEM.store(NdisAllocateIoWorkItem(miniport), Ordering::Relaxed);
    let mut parameters = NET_BUFFER_LIST_POOL_PARAMETERS::zeroed();
    parameters.Header = header(NDIS_OBJECT_TYPE_DEFAULT, 1, size_of::<NET_BUFFER_LIST_POOL_PARAMETERS>() as u16);
    parameters.fAllocateNetBuffer = 1;
    parameters.PoolTag = crate::kernel::TAG;
    parameters.DataSize = 1514;
    BUFFER_POOL.store(NdisAllocateNetBufferListPool(miniport, &raw mut parameters), Ordering::Relaxed);
    let mut object = NDIS_CONFIGURATION_OBJECT::zeroed();
    object.Header = header(NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, 1, 0x14);
    object.NdisHandle = miniport;
    let mut configuration = core::ptr::null_mut();
    let status = NdisOpenConfigurationEx(&raw mut object, &raw mut configuration);
    if status == NDIS_STATUS_SUCCESS && !faulty(Fault::ConfigurationLeft) {
        NdisCloseConfiguration(configuration);
    }
}

unsafe extern "C" fn halt(context: NDIS_HANDLE, _action: NDIS_HALT_ACTION) {
    traffic::halting();
    traffic::free_timer();
    let item = WORK_ITEM.load(Ordering::Relaxed);
    if !item.is_null() && !faulty(Fault::WorkItemLeft) {
        NdisFreeIoWorkItem(item);
    }
    let pool = BUFFER_POOL.load(Ordering::Relaxed);
    if !pool.is_null() && !faulty(Fault::BufferPoolLeft) {
        NdisFreeNetBufferListPool(pool);
    }
    KeFlushQueuedDpcs();
    free(context.cast());
}

unsafe extern "C" fn unload(_driver: *mut nt::DRIVER_OBJECT) {
    if !faulty(Fault::DeviceLeft) {
        crate::device::deregister();
    }
    NdisMDeregisterMiniportDriver(DRIVER_HANDLE.load(Ordering::Relaxed));
}

unsafe extern "C" fn oid_request(_context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let query = &raw mut (*request).DATA.QUERY_INFORMATION;
    if (*request).RequestType == NdisRequestSetInformation {
        return set(request);
    }
    // Every query is answered with as many zeros as fit into four bytes.
    let length = (*query).InformationBufferLength.min(4);
    core::ptr::write_bytes((*query).InformationBuffer.cast::<u8>(), 0, length as usize);
    (*query).BytesWritten = unless(Fault::OidOverrun, length, (*query).InformationBufferLength + 1);
    if faulty(Fault::OidReturnsRaised) {
        KfRaiseIrql(DISPATCH_LEVEL);
    }
    traffic::end_request(request)
}

unsafe fn set(request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let set = &raw mut (*request).DATA.SET_INFORMATION;
    (*set).BytesRead = (*set).InformationBufferLength;
    if (*set).Oid != OID_NDK_SET_STATE {
        return NDIS_STATUS_SUCCESS;
    }
    if faulty(Fault::EventInOid) {
        let mut event = NET_PNP_EVENT_NOTIFICATION::zeroed();
        event.Header = header(
            NDIS_OBJECT_TYPE_DEFAULT,
            NET_PNP_EVENT_NOTIFICATION_REVISION_2,
            NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2,
        );
        event.NetPnPEvent.NetEvent = NetEventNDKDisable;
        NdisMNetPnPEvent(MINIPORT_HANDLE.load(Ordering::Relaxed), &raw mut event);
    }
    unless(Fault::SetStatePends, NDIS_STATUS_SUCCESS, NDIS_STATUS_PENDING)
}

unsafe extern "C" fn cancel_oid(_context: NDIS_HANDLE, _id: nt::PVOID) {}

unsafe extern "C" fn cancel_send(_context: NDIS_HANDLE, _id: nt::PVOID) {}
unsafe extern "C" fn pnp_event(_context: NDIS_HANDLE, _event: *mut NET_DEVICE_PNP_EVENT) {}
unsafe extern "C" fn shutdown(_context: NDIS_HANDLE, _action: NDIS_SHUTDOWN_ACTION) {}

// ---- the NDK side ----

/// An NDK adapter object and the one protection domain that a case creates below it.
#[repr(C)]
struct Opened {
    object: NDK_ADAPTER,
    table: NDK_ADAPTER_DISPATCH,
    domain: NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
}

static LOCK: Shared<SpinLock> = Shared(UnsafeCell::new(0));
static DPC: Shared<Dpc> = Shared(UnsafeCell::new(Dpc([0; 64])));

unsafe extern "C" fn unsupported() -> NtStatus {
    STATUS_NOT_SUPPORTED
}

/// The same refusal under the type of any slot: the caller cleans the stack, so the arguments do not matter.
pub const fn refuse<F: Copy>() -> F {
    assert!(size_of::<F>() == size_of::<usize>());
    let function: unsafe extern "C" fn() -> NtStatus = unsupported;
    unsafe { core::mem::transmute_copy(&function) }
}

static ADAPTER_TABLE: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: refuse(),
    NdkQueryAdapterInfo: query_info,
    NdkCreateCq: queue::create,
    NdkCreatePd: create_domain,
    NdkCreateSharedEndpoint: refuse(),
    NdkCreateConnector: connector::create,
    NdkCreateListener: refuse(),
    NdkBuildLAM: refuse(),
    NdkReleaseLAM: release_mapping,
};

static DOMAIN_TABLE: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: close_domain,
    NdkQueryExtension: refuse(),
    NdkCreateMr: refuse(),
    NdkCreateMw: refuse(),
    NdkCreateSrq: refuse(),
    NdkCreateQp: refuse(),
    NdkCreateQpWithSrq: refuse(),
    NdkGetPrivilegedMemoryRegionToken: privileged_token,
};

pub fn object_header(kind: NDK_OBJECT_TYPE) -> NDK_OBJECT_HEADER {
    let mut header = NDK_OBJECT_HEADER::zeroed();
    header.Version = NDK_VERSION { Major: 2, Minor: 1 };
    header.ObjectType = kind;
    header
}

unsafe extern "C" fn open_ndk(
    _context: NDIS_HANDLE,
    _parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    out: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS {
    let opened = allocate(size_of::<Opened>()).cast::<Opened>();
    (*opened).object.Header = object_header(unless(Fault::WrongObjectType, NdkObjectTypeAdapter, NdkObjectTypeQp));
    if faulty(Fault::ReservedNotZero) {
        (&raw mut (*opened).object.Header.NdkReserved).cast::<u64>().write(1);
    }
    (*opened).object.Dispatch = &raw const ADAPTER_TABLE;
    if faulty(Fault::NullSlot) || faulty(Fault::TableOnHeap) {
        core::ptr::copy_nonoverlapping(&raw const ADAPTER_TABLE, &raw mut (*opened).table, 1);
        (*opened).object.Dispatch = &raw const (*opened).table;
    }
    if faulty(Fault::NullSlot) {
        (&raw mut (*opened).table).cast::<usize>().add(2).write(0);
    }
    *out = opened.cast();
    NDIS_STATUS_SUCCESS
}

unsafe extern "C" fn close_ndk(_context: NDIS_HANDLE, adapter: *mut NDK_ADAPTER) {
    queue::adapter_closes();
    KeFlushQueuedDpcs();
    free(adapter.cast());
}

unsafe extern "C" fn query_info(_adapter: *mut NDK_ADAPTER, info: *mut NDK_ADAPTER_INFO, size: *mut u32) -> NtStatus {
    let needed = size_of::<NDK_ADAPTER_INFO>() as u32;
    if info.is_null() || *size < needed {
        *size = needed;
        return ndkpi_sys::nt::STATUS_BUFFER_TOO_SMALL;
    }
    info.write(adapter_info(NDK_VERSION { Major: 2, Minor: 1 }));
    *size = needed;
    STATUS_SUCCESS
}

unsafe extern "C" fn complete_creation(_: *mut Dpc, opened: *mut c_void, _: *mut c_void, _: *mut c_void) {
    let opened = opened.cast::<Opened>();
    if let Some(completion) = (*opened).completion {
        let object = (&raw mut (*opened).domain).cast();
        let locked = faulty(Fault::CompletionLocked);
        if locked {
            KeAcquireSpinLockAtDpcLevel(LOCK.0.get());
        }
        completion((*opened).context, STATUS_SUCCESS, object);
        if locked {
            KeReleaseSpinLockFromDpcLevel(LOCK.0.get());
        }
        if faulty(Fault::CompletionTwice) {
            completion((*opened).context, STATUS_SUCCESS, object);
        }
    }
}

unsafe extern "C" fn create_domain(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: nt::PVOID,
    out: *mut *mut NDK_PD,
) -> NtStatus {
    let opened = adapter.cast::<Opened>();
    (*opened).domain.Header = object_header(NdkObjectTypePd);
    (*opened).domain.Dispatch = &raw const DOMAIN_TABLE;
    (*opened).completion = completion;
    (*opened).context = context;
    if faulty(Fault::CompletionInCall) {
        let before = KfRaiseIrql(DISPATCH_LEVEL);
        complete_creation(core::ptr::null_mut(), opened.cast(), core::ptr::null_mut(), core::ptr::null_mut());
        KeLowerIrql(before);
        return STATUS_PENDING;
    }
    KeInitializeDpc(DPC.0.get(), complete_creation, opened.cast());
    if faulty(Fault::CompletionNever) {
        return STATUS_PENDING;
    }
    KeInsertQueueDpc(DPC.0.get(), core::ptr::null_mut(), core::ptr::null_mut());
    if faulty(Fault::CompletionAfterSuccess) {
        *out = &raw mut (*opened).domain;
        return STATUS_SUCCESS;
    }
    STATUS_PENDING
}

unsafe extern "C" fn close_domain(
    _object: *mut NDK_OBJECT_HEADER,
    _completion: Option<NDK_FN_CLOSE_COMPLETION>,
    _context: nt::PVOID,
) -> NtStatus {
    unless(Fault::CloseFails, STATUS_SUCCESS, STATUS_NOT_SUPPORTED)
}

unsafe extern "C" fn release_mapping(_adapter: *mut NDK_ADAPTER, _mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING) {}

unsafe extern "C" fn privileged_token(_domain: *mut NDK_PD, token: *mut u32) {
    *token = 1;
}
