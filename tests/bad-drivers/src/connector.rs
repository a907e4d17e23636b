//! The miniport's one connector: a connect request succeeds at once, and its disconnect event comes at once; it has no peer.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;

use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt;

use crate::kernel::{Dpc, KeInitializeDpc, KeInsertQueueDpc, NtStatus, STATUS_SUCCESS};
use crate::miniport::{Fault, faulty, object_header, refuse};
use crate::spin_lock::Shared;

static CONNECTOR: Shared<MaybeUninit<NDK_CONNECTOR>> = Shared(UnsafeCell::new(MaybeUninit::zeroed()));
static EVENT: Shared<Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>> = Shared(UnsafeCell::new(None));
static CONTEXT: Shared<*mut c_void> = Shared(UnsafeCell::new(core::ptr::null_mut()));
static DPC: Shared<Dpc> = Shared(UnsafeCell::new(Dpc([0; 64])));

static TABLE: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: close,
    NdkQueryExtension: refuse(),
    NdkConnect: refuse(),
    NdkConnectWithSharedEndpoint: refuse(),
    NdkCompleteConnect: complete_connect,
    NdkAccept: refuse(),
    NdkReject: refuse(),
    NdkGetConnectionData: refuse(),
    NdkGetLocalAddress: refuse(),
    NdkGetPeerAddress: refuse(),
    NdkDisconnect: refuse(),
    NdkCompleteConnectEx: refuse(),
    NdkAcceptEx: refuse(),
};

pub unsafe extern "C" fn create(
    _adapter: *mut NDK_ADAPTER,
    _completion: Option<NDK_FN_CREATE_COMPLETION>,
    _request: nt::PVOID,
    out: *mut *mut NDK_CONNECTOR,
) -> NtStatus {
    let connector = CONNECTOR.0.get().cast::<NDK_CONNECTOR>();
    (*connector).Header = object_header(NdkObjectTypeConnector);
    (*connector).Dispatch = &raw const TABLE;
    *out = connector;
    STATUS_SUCCESS
}

unsafe extern "C" fn complete_connect(
    _connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    context: nt::PVOID,
    _completion: Option<NDK_FN_REQUEST_COMPLETION>,
    _request: nt::PVOID,
) -> NtStatus {
    *EVENT.0.get() = event;
    *CONTEXT.0.get() = context;
    KeInitializeDpc(DPC.0.get(), peer_leaves, core::ptr::null_mut());
    KeInsertQueueDpc(DPC.0.get(), core::ptr::null_mut(), core::ptr::null_mut());
    STATUS_SUCCESS
}

unsafe extern "C" fn peer_leaves(_: *mut Dpc, _: *mut c_void, _: *mut c_void, _: *mut c_void) {
    let Some(event) = *EVENT.0.get() else { return };
    event(*CONTEXT.0.get());
    if faulty(Fault::DisconnectTwice) {
        event(*CONTEXT.0.get());
    }
}

unsafe extern "C" fn close(
    _object: *mut NDK_OBJECT_HEADER,
    _completion: Option<NDK_FN_CLOSE_COMPLETION>,
    _context: nt::PVOID,
) -> NtStatus {
    STATUS_SUCCESS
}
