//! Imports from `ndis.sys`, on Windows targets. The linker writes the import entries itself: no import library is
//! needed.
//!
//! What `ndis.h` defines as macros or inlines is not here.

use super::attribute::NDIS_MINIPORT_ADAPTER_ATTRIBUTES;
use super::buffer::{
    NDIS_RECEIVE_FLAGS, NDIS_SEND_COMPLETE_FLAGS, NET_BUFFER, NET_BUFFER_ALLOCATE_MDL_HANDLER,
    NET_BUFFER_FREE_MDL_HANDLER, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS,
};
use super::configuration::{NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_PARAMETER, NDIS_PARAMETER_TYPE};
use super::device::NDIS_DEVICE_OBJECT_ATTRIBUTES;
use super::event::NET_PNP_EVENT_NOTIFICATION;
use super::indication::NDIS_STATUS_INDICATION;
use super::lock::{LOCK_STATE_EX, NDIS_EVENT, NDIS_RW_LOCK_EX};
use super::memory::EX_POOL_PRIORITY;
use super::miniport::{NDIS_DRIVER_OPTIONAL_HANDLERS, NDIS_MINIPORT_DRIVER_CHARACTERISTICS};
use super::object::{NDIS_HANDLE, NDIS_PORT_NUMBER, NDIS_STRING, PNDIS_HANDLE};
use super::request::NDIS_OID_REQUEST;
use super::rss::NDIS_RSS_PROCESSOR_INFO;
use super::status::NDIS_STATUS;
use super::timer::{NDIS_IO_WORKITEM_ROUTINE, NDIS_TIMER_CHARACTERISTICS};
use crate::nt::{
    BOOLEAN, CM_RESOURCE_LIST, LARGE_INTEGER, LONG, MDL, PDEVICE_OBJECT, PDRIVER_OBJECT, PVOID, SIZE_T, UCHAR, UINT,
    ULONG, UNICODE_STRING, USHORT,
};

#[link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    /// Registers the driver; `MiniportSetOptions` runs inside. PASSIVE_LEVEL.
    pub fn NdisMRegisterMiniportDriver(
        DriverObject: PDRIVER_OBJECT,
        RegistryPath: *mut UNICODE_STRING,
        MiniportDriverContext: NDIS_HANDLE,
        MiniportDriverCharacteristics: *mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NdisMiniportDriverHandle: PNDIS_HANDLE,
    ) -> NDIS_STATUS;

    /// Undoes the registration. PASSIVE_LEVEL.
    pub fn NdisMDeregisterMiniportDriver(NdisMiniportDriverHandle: NDIS_HANDLE);

    /// Gives NDIS optional handlers, from `MiniportSetOptions`: `SUCCESS`, `RESOURCES`, `NOT_SUPPORTED`, `FAILURE`.
    /// PASSIVE_LEVEL.
    pub fn NdisSetOptionalHandlers(
        NdisHandle: NDIS_HANDLE,
        OptionalHandlers: *mut NDIS_DRIVER_OPTIONAL_HANDLERS,
    ) -> NDIS_STATUS;

    /// Sets one block of attributes, from `MiniportInitializeEx`. PASSIVE_LEVEL.
    pub fn NdisMSetMiniportAttributes(
        NdisMiniportHandle: NDIS_HANDLE,
        MiniportAttributes: *mut NDIS_MINIPORT_ADAPTER_ATTRIBUTES,
    ) -> NDIS_STATUS;

    /// Version of the running NDIS: major << 16 | minor. Any IRQL.
    pub fn NdisGetVersion() -> UINT;

    /// Completes a pended OID request. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMOidRequestComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        OidRequest: *mut NDIS_OID_REQUEST,
        Status: NDIS_STATUS,
    );

    /// Completes a pended direct OID request. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMDirectOidRequestComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        OidRequest: *mut NDIS_OID_REQUEST,
        Status: NDIS_STATUS,
    );

    /// Completes a pended pause. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMPauseComplete(MiniportAdapterHandle: NDIS_HANDLE);

    /// Completes a pended restart. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMRestartComplete(MiniportAdapterHandle: NDIS_HANDLE, Status: NDIS_STATUS);

    /// Completes a pended reset. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMResetComplete(MiniportAdapterHandle: NDIS_HANDLE, Status: NDIS_STATUS, AddressingReset: BOOLEAN);

    /// Gives sent lists back. No lock held. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMSendNetBufferListsComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetBufferList: *mut NET_BUFFER_LIST,
        SendCompleteFlags: NDIS_SEND_COMPLETE_FLAGS,
    );

    /// Indicates received lists. No lock held, not from the send path. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMIndicateReceiveNetBufferLists(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetBufferList: *mut NET_BUFFER_LIST,
        PortNumber: NDIS_PORT_NUMBER,
        NumberOfNetBufferLists: ULONG,
        ReceiveFlags: NDIS_RECEIVE_FLAGS,
    );

    /// Indicates a change of status. IRQL <= DISPATCH_LEVEL.
    pub fn NdisMIndicateStatusEx(MiniportAdapterHandle: NDIS_HANDLE, StatusIndication: *mut NDIS_STATUS_INDICATION);

    /// Raises an event to the layers above; NDK disable blocks until every NDK adapter is closed. Never from an OID
    /// handler. PASSIVE_LEVEL.
    pub fn NdisMNetPnPEvent(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetPnPEventNotification: *mut NET_PNP_EVENT_NOTIFICATION,
    ) -> NDIS_STATUS;

    /// Requests the removal of a failed adapter. PASSIVE_LEVEL.
    pub fn NdisMRemoveMiniport(MiniportHandle: NDIS_HANDLE) -> NDIS_STATUS;

    /// Opens the adapter's registry parameters. PASSIVE_LEVEL.
    pub fn NdisOpenConfigurationEx(
        ConfigObject: *mut NDIS_CONFIGURATION_OBJECT,
        ConfigurationHandle: PNDIS_HANDLE,
    ) -> NDIS_STATUS;

    /// Reads one parameter; its memory is freed with the handle. PASSIVE_LEVEL.
    pub fn NdisReadConfiguration(
        Status: *mut NDIS_STATUS,
        ParameterValue: *mut *mut NDIS_CONFIGURATION_PARAMETER,
        ConfigurationHandle: NDIS_HANDLE,
        Keyword: *mut NDIS_STRING,
        ParameterType: NDIS_PARAMETER_TYPE,
    );

    /// Reads the MAC address override. PASSIVE_LEVEL.
    pub fn NdisReadNetworkAddress(
        Status: *mut NDIS_STATUS,
        NetworkAddress: *mut PVOID,
        NetworkAddressLength: *mut UINT,
        ConfigurationHandle: NDIS_HANDLE,
    );

    /// Writes one parameter. PASSIVE_LEVEL.
    pub fn NdisWriteConfiguration(
        Status: *mut NDIS_STATUS,
        ConfigurationHandle: NDIS_HANDLE,
        Keyword: *mut NDIS_STRING,
        ParameterValue: *mut NDIS_CONFIGURATION_PARAMETER,
    );

    /// Closes the handle. PASSIVE_LEVEL.
    pub fn NdisCloseConfiguration(ConfigurationHandle: NDIS_HANDLE);

    /// Device objects and resources of an adapter; each out pointer may be NULL. PASSIVE_LEVEL.
    pub fn NdisMGetDeviceProperty(
        MiniportAdapterHandle: NDIS_HANDLE,
        PhysicalDeviceObject: *mut PDEVICE_OBJECT,
        FunctionalDeviceObject: *mut PDEVICE_OBJECT,
        NextDeviceObject: *mut PDEVICE_OBJECT,
        AllocatedResources: *mut *mut CM_RESOURCE_LIST,
        AllocatedResourcesTranslated: *mut *mut CM_RESOURCE_LIST,
    );

    /// Writes an event log entry with `ULONG` values. IRQL <= DISPATCH_LEVEL.
    pub fn NdisWriteErrorLogEntry(NdisAdapterHandle: NDIS_HANDLE, ErrorCode: ULONG, NumberOfErrorValues: ULONG, ...);

    /// Makes a pool; NULL on shortage. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateNetBufferListPool(
        NdisHandle: NDIS_HANDLE,
        Parameters: *const NET_BUFFER_LIST_POOL_PARAMETERS,
    ) -> NDIS_HANDLE;

    /// Frees a pool; every list is back. IRQL <= DISPATCH_LEVEL.
    pub fn NdisFreeNetBufferListPool(PoolHandle: NDIS_HANDLE);

    /// Takes a list; NULL on shortage. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateNetBufferList(
        PoolHandle: NDIS_HANDLE,
        ContextSize: USHORT,
        ContextBackFill: USHORT,
    ) -> *mut NET_BUFFER_LIST;

    /// Takes a list with one buffer over an MDL; NULL on shortage. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateNetBufferAndNetBufferList(
        PoolHandle: NDIS_HANDLE,
        ContextSize: USHORT,
        ContextBackFill: USHORT,
        MdlChain: *mut MDL,
        DataOffset: ULONG,
        DataLength: SIZE_T,
    ) -> *mut NET_BUFFER_LIST;

    /// Gives a list back to its pool. IRQL <= DISPATCH_LEVEL.
    pub fn NdisFreeNetBufferList(NetBufferList: *mut NET_BUFFER_LIST);

    /// Makes an MDL for non-paged memory; NULL on shortage. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateMdl(NdisHandle: NDIS_HANDLE, VirtualAddress: PVOID, Length: ULONG) -> *mut MDL;

    /// Frees it. IRQL <= DISPATCH_LEVEL.
    pub fn NdisFreeMdl(Mdl: *mut MDL);

    /// Contiguous view of the first bytes of a buffer, copied to `Storage` if need be; NULL if that fails. IRQL <=
    /// DISPATCH_LEVEL.
    pub fn NdisGetDataBuffer(
        NetBuffer: *mut NET_BUFFER,
        BytesNeeded: ULONG,
        Storage: PVOID,
        AlignMultiple: ULONG,
        AlignOffset: ULONG,
    ) -> PVOID;

    /// Moves the data start forward. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAdvanceNetBufferDataStart(
        NetBuffer: *mut NET_BUFFER,
        DataOffsetDelta: ULONG,
        FreeMdl: BOOLEAN,
        FreeMdlHandler: Option<NET_BUFFER_FREE_MDL_HANDLER>,
    );

    /// Moves the data start back. IRQL <= DISPATCH_LEVEL.
    pub fn NdisRetreatNetBufferDataStart(
        NetBuffer: *mut NET_BUFFER,
        DataOffsetDelta: ULONG,
        DataBackFill: ULONG,
        AllocateMdlHandler: Option<NET_BUFFER_ALLOCATE_MDL_HANDLER>,
    ) -> NDIS_STATUS;

    /// Copies between buffers. IRQL <= DISPATCH_LEVEL.
    pub fn NdisCopyFromNetBufferToNetBuffer(
        Destination: *mut NET_BUFFER,
        DestinationOffset: ULONG,
        BytesToCopy: ULONG,
        Source: *const NET_BUFFER,
        SourceOffset: ULONG,
        BytesCopied: *mut ULONG,
    ) -> NDIS_STATUS;

    /// Makes a work item; NULL on shortage. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateIoWorkItem(NdisObjectHandle: NDIS_HANDLE) -> NDIS_HANDLE;

    /// Queues it; its function runs at PASSIVE_LEVEL. IRQL <= DISPATCH_LEVEL.
    pub fn NdisQueueIoWorkItem(
        NdisIoWorkItemHandle: NDIS_HANDLE,
        Routine: NDIS_IO_WORKITEM_ROUTINE,
        WorkItemContext: PVOID,
    );

    /// Frees it; not while queued. IRQL <= DISPATCH_LEVEL.
    pub fn NdisFreeIoWorkItem(NdisIoWorkItemHandle: NDIS_HANDLE);

    /// Makes a timer. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateTimerObject(
        NdisHandle: NDIS_HANDLE,
        TimerCharacteristics: *mut NDIS_TIMER_CHARACTERISTICS,
        pTimerObject: PNDIS_HANDLE,
    ) -> NDIS_STATUS;

    /// Starts a timer; TRUE if it was running. IRQL <= DISPATCH_LEVEL.
    pub fn NdisSetTimerObject(
        TimerObject: NDIS_HANDLE,
        DueTime: LARGE_INTEGER,
        MillisecondsPeriod: LONG,
        FunctionContext: PVOID,
    ) -> BOOLEAN;

    /// Stops a timer; TRUE if it was queued. A periodic timer: PASSIVE_LEVEL, and its function has returned. A one-shot
    /// timer: IRQL <= DISPATCH_LEVEL, and after FALSE its function may still run.
    pub fn NdisCancelTimerObject(TimerObject: NDIS_HANDLE) -> BOOLEAN;

    /// Frees a stopped timer. IRQL <= DISPATCH_LEVEL.
    pub fn NdisFreeTimerObject(TimerObject: NDIS_HANDLE);

    /// Makes a read/write lock; NULL on shortage. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateRWLock(NdisHandle: NDIS_HANDLE) -> *mut NDIS_RW_LOCK_EX;

    /// Frees it. IRQL <= DISPATCH_LEVEL.
    pub fn NdisFreeRWLock(Lock: *mut NDIS_RW_LOCK_EX);

    /// Acquires it to read. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAcquireRWLockRead(Lock: *mut NDIS_RW_LOCK_EX, LockState: *mut LOCK_STATE_EX, Flags: UCHAR);

    /// Acquires it to write. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAcquireRWLockWrite(Lock: *mut NDIS_RW_LOCK_EX, LockState: *mut LOCK_STATE_EX, Flags: UCHAR);

    /// Releases it. DISPATCH_LEVEL.
    pub fn NdisReleaseRWLock(Lock: *mut NDIS_RW_LOCK_EX, LockState: *mut LOCK_STATE_EX);

    /// Makes a control device; the handle is the driver's. PASSIVE_LEVEL.
    pub fn NdisRegisterDeviceEx(
        NdisHandle: NDIS_HANDLE,
        DeviceObjectAttributes: *mut NDIS_DEVICE_OBJECT_ATTRIBUTES,
        pDeviceObject: *mut PDEVICE_OBJECT,
        NdisDeviceHandle: PNDIS_HANDLE,
    ) -> NDIS_STATUS;

    /// Removes it. PASSIVE_LEVEL.
    pub fn NdisDeregisterDeviceEx(NdisDeviceHandle: NDIS_HANDLE);

    /// The driver's bytes of a control device. IRQL <= DISPATCH_LEVEL.
    pub fn NdisGetDeviceReservedExtension(DeviceObject: PDEVICE_OBJECT) -> PVOID;

    /// Sleeps. PASSIVE_LEVEL.
    pub fn NdisMSleep(MicrosecondsToSleep: ULONG);

    /// Initialises an event, not signalled. IRQL <= DISPATCH_LEVEL.
    pub fn NdisInitializeEvent(Event: *mut NDIS_EVENT);

    /// Signals it. IRQL <= DISPATCH_LEVEL.
    pub fn NdisSetEvent(Event: *mut NDIS_EVENT);

    /// Resets it. IRQL <= DISPATCH_LEVEL.
    pub fn NdisResetEvent(Event: *mut NDIS_EVENT);

    /// Waits for it, 0 for ever; TRUE if signalled. PASSIVE_LEVEL.
    pub fn NdisWaitEvent(Event: *mut NDIS_EVENT, MsToWait: UINT) -> BOOLEAN;

    /// Processors for receive side scaling; `RssProcessorInfo` may be NULL to ask for the size. `SUCCESS`,
    /// `BUFFER_TOO_SHORT`. IRQL <= DISPATCH_LEVEL.
    pub fn NdisGetRssProcessorInformation(
        NdisHandle: NDIS_HANDLE,
        RssProcessorInfo: *mut NDIS_RSS_PROCESSOR_INFO,
        Size: *mut SIZE_T,
    ) -> NDIS_STATUS;

    /// Allocates non-paged memory; NULL on shortage. IRQL <= DISPATCH_LEVEL.
    pub fn NdisAllocateMemoryWithTagPriority(
        NdisHandle: NDIS_HANDLE,
        Length: UINT,
        Tag: ULONG,
        Priority: EX_POOL_PRIORITY,
    ) -> PVOID;

    /// Frees it; `MemoryFlags` is 0. IRQL <= DISPATCH_LEVEL.
    pub fn NdisFreeMemory(VirtualAddress: PVOID, Length: UINT, MemoryFlags: UINT);

    /// Address of a routine of NDIS by name, or NULL. PASSIVE_LEVEL.
    pub fn NdisGetRoutineAddress(NdisRoutineName: *mut NDIS_STRING) -> PVOID;
}
