//! Functions of completion queues and shared receive queues. The consumer serialises polling and arming per queue.

use super::super::callback::NDK_FN_REQUEST_COMPLETION;
use super::super::memory::NDK_SGE;
use super::super::object::{NDK_CQ, NDK_SRQ};
use super::super::result::{NDK_RESULT, NDK_RESULT_EX};
use crate::abi::abi_fn;
use crate::nt::{NTSTATUS, PVOID, ULONG};

abi_fn! {
    /// Changes the depth of a completion queue. Only with `NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED`. IRQL <=
    /// DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_INVALID_PARAMETER`: deeper than `MaxCqDepth`.
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_RESIZE_CQ = fn(
        pNdkCq: *mut NDK_CQ,
        CqDepth: ULONG,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Requests one notification; `Type` is `NDK_CQ_NOTIFY_ERRORS`, `_ANY` or `_SOLICITED`. Arming an armed queue keeps the
    /// stronger type (errors < solicited < any). Entries added since the last notification fire at once. IRQL <=
    /// DISPATCH_LEVEL.
    pub type NDK_FN_ARM_CQ = fn(pNdkCq: *mut NDK_CQ, Type: ULONG);

    /// Takes up to `nResults` entries off the queue; returns how many. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_GET_CQ_RESULTS = fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT, nResults: ULONG) -> ULONG;

    /// As [`NDK_FN_GET_CQ_RESULTS`], with more in an entry (NDKPI 1.2). IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_GET_CQ_RESULTS_EX = fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT_EX, nResults: ULONG) -> ULONG;

    /// Delays notifications until `ModerationCount` completions or `ModerationInterval` microseconds. Interval 0, count
    /// 0 or 1 turn moderation off; MAXULONG takes one of the two out of the rule. Never pends. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_NOT_SUPPORTED`: if and only if `NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED` is absent.
    /// - `STATUS_INVALID_PARAMETER_MIX`: both infinite.
    /// - `STATUS_INSUFFICIENT_RESOURCES`
    pub type NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION = fn(
        pNdkCq: *mut NDK_CQ,
        ModerationInterval: ULONG,
        ModerationCount: ULONG,
    ) -> NTSTATUS;

    /// Changes depth (0: keep) and threshold (0: keep, also the arm state; else arm) of a shared receive queue. IRQL <=
    /// DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_INVALID_PARAMETER`
    pub type NDK_FN_MODIFY_SRQ = fn(
        pNdkSrq: *mut NDK_SRQ,
        SrqDepth: ULONG,
        NotifyThreshold: ULONG,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Posts a receive to a shared receive queue. The element array is read during the call only. IRQL <=
    /// DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`: queued.
    /// - any failure: not queued; NDKPI names no codes.
    pub type NDK_FN_SRQ_RECEIVE = fn(
        pNdkSrq: *mut NDK_SRQ,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
    ) -> NTSTATUS;
}
