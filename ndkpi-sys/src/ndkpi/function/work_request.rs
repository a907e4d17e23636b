//! Functions of a queue pair: posting work.
//!
//! None of them pends. `STATUS_SUCCESS` means queued, and a completion queue entry follows (unless `NDK_OP_FLAG_SILENT_SUCCESS`
//! and success); any failure means that nothing was queued, and starts the earlier requests that were deferred. NDKPI names no
//! codes for a full queue, too many elements, too much data or bad flags. Arrays are read during the call only. The consumer
//! serialises posts per queue; a flush can come at any time.

use super::super::flag::NDK_OP_FLAGS;
use super::super::memory::{NDK_LOGICAL_ADDRESS, NDK_SGE};
use super::super::object::{NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_QP};
use crate::abi::abi_fn;
use crate::nt::{NTSTATUS, PVOID, SIZE_T, UINT32, UINT64, ULONG};

abi_fn! {
    /// Cancels everything pending on both queues; the entries carry `STATUS_CANCELLED`. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_FLUSH = fn(pNdkQp: *mut NDK_QP);

    /// Sends to the peer's next receive. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_INVALID`: not connected.
    pub type NDK_FN_SEND = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
        Flags: NDK_OP_FLAGS,
    ) -> NTSTATUS;

    /// Sends, and invalidates a token of the peer before its receive completes (NDKPI 1.2). Completes as a Send. Mind
    /// the order: flags, then token. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_INVALID`: not connected.
    pub type NDK_FN_SEND_AND_INVALIDATE = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
        Flags: NDK_OP_FLAGS,
        RemoteToken: UINT32,
    ) -> NTSTATUS;

    /// Posts a receive; allowed before the queue pair is connected. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    pub type NDK_FN_RECEIVE = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
    ) -> NTSTATUS;

    /// Binds a window to a part of a registered region. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_INVALID`: not connected.
    /// - `STATUS_ACCESS_VIOLATION`: the region lacks the right.
    pub type NDK_FN_BIND = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pMr: *mut NDK_MR,
        pMw: *mut NDK_MW,
        VirtualAddress: PVOID,
        Length: SIZE_T,
        Flags: NDK_OP_FLAGS,
    ) -> NTSTATUS;

    /// Gives a fast-register region pages, a base address and rights. `FBO` is the offset in the first page;
    /// `BaseVirtualAddress` is a label of the consumer's. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_INVALID`: not connected.
    /// - `STATUS_ACCESS_VIOLATION`: remote rights for a region initialised without remote access.
    pub type NDK_FN_FAST_REGISTER = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pMr: *mut NDK_MR,
        AdapterPageCount: ULONG,
        AdapterPageArray: *const NDK_LOGICAL_ADDRESS,
        FBO: ULONG,
        Length: SIZE_T,
        BaseVirtualAddress: PVOID,
        Flags: NDK_OP_FLAGS,
    ) -> NTSTATUS;

    /// Ends a fast registration or a binding; the object's type says which. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_INVALID`: not connected.
    pub type NDK_FN_INVALIDATE = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pNdkMrOrMw: *mut NDK_OBJECT_HEADER,
        Flags: NDK_OP_FLAGS,
    ) -> NTSTATUS;

    /// Reads remote memory into local elements. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_INVALID`: not connected.
    /// - `STATUS_REMOTE_RESOURCES`: past the end of the remote memory, where that is known inline.
    pub type NDK_FN_READ = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
        RemoteAddress: UINT64,
        RemoteToken: UINT32,
        Flags: NDK_OP_FLAGS,
    ) -> NTSTATUS;

    /// Writes local elements to remote memory. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_CONNECTION_INVALID`: not connected.
    pub type NDK_FN_WRITE = fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
        RemoteAddress: UINT64,
        RemoteToken: UINT32,
        Flags: NDK_OP_FLAGS,
    ) -> NTSTATUS;
}
