//! Functions of a protection domain: creating the objects that belong to it.

use super::super::callback::{NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK};
use super::super::object::{NDK_CQ, NDK_MR, NDK_MW, NDK_PD, NDK_QP, NDK_SRQ};
use crate::abi::abi_fn;
use crate::nt::{BOOLEAN, GROUP_AFFINITY, NTSTATUS, PVOID, UINT32, ULONG};

abi_fn! {
    /// Creates a memory region, for fast registration only or for `NdkRegisterMr` only. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkMr` is the region.
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_MR = fn(
        pNdkPd: *mut NDK_PD,
        FastRegister: BOOLEAN,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkMr: *mut *mut NDK_MR,
    ) -> NTSTATUS;

    /// Creates a memory window, unbound. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkMw` is the window.
    /// - `STATUS_PENDING`
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_MW = fn(
        pNdkPd: *mut NDK_PD,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkMw: *mut *mut NDK_MW,
    ) -> NTSTATUS;

    /// Creates a shared receive queue. `Affinity` may be NULL. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkSrq` is the queue.
    /// - `STATUS_PENDING`
    /// - `STATUS_INVALID_PARAMETER`: depth or elements over the adapter's limits.
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_SRQ = fn(
        pNdkPd: *mut NDK_PD,
        SrqDepth: ULONG,
        MaxReceiveRequestSge: ULONG,
        NotifyThreshold: ULONG,
        SrqNotification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
        SrqNotificationContext: PVOID,
        Affinity: *mut GROUP_AFFINITY,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkSrq: *mut *mut NDK_SRQ,
    ) -> NTSTATUS;

    /// Creates a queue pair. The two completion queues may be one. `QPContext` comes back in every result. IRQL <=
    /// DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: `*ppNdkQp` is the queue pair.
    /// - `STATUS_PENDING`
    /// - `STATUS_INVALID_PARAMETER`: a depth, an element count or the inline size is over the adapter's limits.
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_CREATE_QP = fn(
        pNdkPd: *mut NDK_PD,
        pReceiveCq: *mut NDK_CQ,
        pInitiatorCq: *mut NDK_CQ,
        QPContext: PVOID,
        ReceiveQueueDepth: ULONG,
        InitiatorQueueDepth: ULONG,
        MaxReceiveRequestSge: ULONG,
        MaxInitiatorRequestSge: ULONG,
        InlineDataSize: ULONG,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkQp: *mut *mut NDK_QP,
    ) -> NTSTATUS;

    /// Creates a queue pair that receives from a shared receive queue. Statuses as [`NDK_FN_CREATE_QP`]. IRQL <=
    /// DISPATCH_LEVEL.
    pub type NDK_FN_CREATE_QP_WITH_SRQ = fn(
        pNdkPd: *mut NDK_PD,
        pReceiveCq: *mut NDK_CQ,
        pInitiatorCq: *mut NDK_CQ,
        pSrq: *mut NDK_SRQ,
        QPContext: PVOID,
        InitiatorQueueDepth: ULONG,
        MaxInitiatorRequestSge: ULONG,
        InlineDataSize: ULONG,
        CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
        RequestContext: PVOID,
        ppNdkQp: *mut *mut NDK_QP,
    ) -> NTSTATUS;

    /// The local token for raw adapter logical addresses: local read and write, never remote access. IRQL <=
    /// DISPATCH_LEVEL.
    pub type NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN = fn(pNdkPd: *mut NDK_PD, pToken: *mut UINT32);
}
