//! Functions of memory regions and memory windows.

use super::super::callback::NDK_FN_REQUEST_COMPLETION;
use super::super::flag::NDK_MR_FLAGS;
use super::super::object::{NDK_MR, NDK_MW};
use crate::abi::abi_fn;
use crate::nt::{BOOLEAN, MDL, NTSTATUS, PVOID, SIZE_T, UINT32, ULONG};

abi_fn! {
    /// Registers the first `Length` bytes of a virtually contiguous MDL chain. The chain's virtual address becomes the
    /// base of the region, as an index only. The chain is the consumer's again when the request has completed. IRQL <=
    /// DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_INVALID_PARAMETER`: not virtually contiguous.
    /// - `STATUS_INSUFFICIENT_RESOURCES` (inline or completion)
    pub type NDK_FN_REGISTER_MR = fn(
        pNdkMr: *mut NDK_MR,
        Mdl: *mut MDL,
        Length: SIZE_T,
        Flags: NDK_MR_FLAGS,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Ends a registration. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    pub type NDK_FN_DEREGISTER_MR = fn(
        pNdkMr: *mut NDK_MR,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// Prepares a region created for fast registration for up to `AdapterPageCount` pages. Both tokens are readable
    /// afterwards. IRQL <= DISPATCH_LEVEL.
    ///
    /// - `STATUS_SUCCESS`
    /// - `STATUS_PENDING`
    /// - `STATUS_IMPLEMENTATION_LIMIT`: too many pages.
    pub type NDK_FN_INITIALIZE_FAST_REGISTER_MR = fn(
        pNdkMr: *mut NDK_MR,
        AdapterPageCount: ULONG,
        RemoteAccess: BOOLEAN,
        RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
        RequestContext: PVOID,
    ) -> NTSTATUS;

    /// The token that peers use for this region; valid after registration or initialisation. Never 0. IRQL <=
    /// DISPATCH_LEVEL.
    pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MR = fn(pNdkMr: *mut NDK_MR) -> UINT32;

    /// The token for local elements; valid after registration or initialisation. Never 0. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_GET_LOCAL_TOKEN_FROM_MR = fn(pNdkMr: *mut NDK_MR) -> UINT32;

    /// The token that peers use for this window; valid as soon as `NdkBind` has returned. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MW = fn(pNdkMw: *mut NDK_MW) -> UINT32;
}
