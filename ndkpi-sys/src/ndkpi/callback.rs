//! Callbacks of the consumer. The provider calls them holding no lock that the consumer's next call needs.

use super::object::{NDK_CONNECTOR, NDK_OBJECT_HEADER};
use crate::abi::abi_fn;
use crate::nt::{NTSTATUS, PVOID, ULONG};

abi_fn! {
    /// A close that had returned `STATUS_PENDING` is finished. One argument, no status. The last callback ever made for
    /// the object. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_CLOSE_COMPLETION = fn(Context: PVOID);

    /// A request that had returned `STATUS_PENDING` is finished with `Status`. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_REQUEST_COMPLETION = fn(Context: PVOID, Status: NTSTATUS);

    /// A create that had returned `STATUS_PENDING` is finished; on success `pNdkObject` is the new object, on failure
    /// NULL. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_CREATE_COMPLETION = fn(Context: PVOID, Status: NTSTATUS, pNdkObject: *mut NDK_OBJECT_HEADER);

    /// The notification of an armed completion queue. Never two at once for one queue; the arm is cleared before the call. The
    /// consumer may poll, arm and post from inside. IRQL <= DISPATCH_LEVEL.
    ///
    /// `CqStatus`: `STATUS_SUCCESS`; `STATUS_BUFFER_OVERFLOW`, the queue overran; `STATUS_INTERNAL_ERROR`. After an error the
    /// queue and its queue pairs are unusable.
    pub type NDK_FN_CQ_NOTIFICATION_CALLBACK = fn(CqNotificationContext: PVOID, CqStatus: NTSTATUS);

    /// A shared receive queue fell below its threshold. Single shot, armed again by `NdkModifySrq`. IRQL <= DISPATCH_LEVEL.
    ///
    /// `SrqStatus`: `STATUS_SUCCESS`, or `STATUS_INTERNAL_ERROR`: the queue and its queue pairs are unusable.
    pub type NDK_FN_SRQ_NOTIFICATION_CALLBACK = fn(SrqNotificationContext: PVOID, SrqStatus: NTSTATUS);

    /// A connection request. One call per request; `pNdkConnector` was made by the provider and now belongs to the consumer,
    /// which accepts, rejects or closes it, in the callback or after it. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_CONNECT_EVENT_CALLBACK = fn(ConnectEventContext: PVOID, pNdkConnector: *mut NDK_CONNECTOR);

    /// The peer disconnected or vanished. At most once per connection; it flushes nothing. IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_DISCONNECT_EVENT_CALLBACK = fn(DisconnectEventContext: PVOID);

    /// The same with a reason of the provider's own, 0 for none (NDKPI 2.1). IRQL <= DISPATCH_LEVEL.
    pub type NDK_FN_DISCONNECT_EVENT_CALLBACK_EX = fn(DisconnectEventContext: PVOID, ProviderDisconnectReason: ULONG);
}
