//! The calls that the driver refused last: which, on what, with which status and why.

use crate::header::{Method, Request, RequestHeader, control_code};
use crate::names::open_names;
use crate::object_list::ObjectKind;
use crate::status::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Refusals that the driver keeps; an older one gives its place to a new one.
pub const REFUSALS_KEPT: usize = 256;

/// In front of the refusals where they lie in the driver's memory: then their total as in [`RefusalListReply`], then
/// [`REFUSALS_KEPT`] entries, whose place is their number modulo that and whose age is the time they were made.
pub const REFUSALS_SIGNATURE: u64 = u64::from_le_bytes(*b"SoftRef1");

/// Lists the refusals that are kept, in parts. METHOD_BUFFERED.
///
/// Output: one [`RefusalListReply`], then `returned_count` entries of `entry_size` bytes each, oldest first, from the one with
/// the number `first` or, if that is gone, the oldest that is kept. The next part begins at [`RefusalListReply::next`]; a part
/// without entries is the end. A tool that continues from there gets the new refusals, and by the numbers sees what it missed.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL (output shorter than the fixed part and one
/// entry); DEVICE_REMOVED (no adapter is left).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RefusalListRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Number of the first refusal to list; 0 begins with the oldest.
    pub first: u64,
}

impl Request for RefusalListRequest {
    const CODE: u32 = control_code(0x804, Method::Buffered);
    type Reply = RefusalListReply;
}

/// The fixed part of a list of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RefusalListReply {
    /// ABI version, and the size of this fixed part.
    pub header: RequestHeader,
    /// Entries that follow.
    pub returned_count: u32,
    /// Distance from one entry to the next, in bytes.
    pub entry_size: u32,
    /// Where to go on.
    pub next: u64,
    /// Refusals since the driver was loaded; the newest has this number, the first had 1.
    pub total: u64,
}

/// One refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RefusalEntry {
    /// 1 for the driver's first, and one more with each.
    pub number: u64,
    /// Nanoseconds since.
    pub age: u64,
    /// Number of the object that the call was made on, as the object list has it; 0 when the call named none.
    pub object: u64,
    /// What that object is; 0 when the call named none.
    pub kind: ObjectKind,
    /// Which call.
    pub call: NdkCall,
    /// The status it was answered with.
    pub status: i32,
    /// Why.
    pub cause: RefusalCause,
    /// How the refusal was reported to the caller.
    pub way: RefusalWay,
    /// IRQL at which the driver decided.
    pub irql: u32,
    /// Processor on which the driver decided.
    pub processor: u32,
    /// At whose memory or receive; 0 when none was the reason.
    pub place: RefusalPlace,
}

impl RefusalEntry {
    /// The status.
    #[must_use]
    pub const fn status(&self) -> Status {
        Status(self.status)
    }
}

open_names! {
    /// Calls that can be refused, by the names of the dispatch tables. Open.
    NdkCall {
        /// NdkOpenAdapter.
        OPEN_ADAPTER = 1, "NdkOpenAdapter";
        /// NdkQueryAdapterInfo.
        QUERY_ADAPTER_INFO = 2, "NdkQueryAdapterInfo";
        /// NdkCreateCq.
        CREATE_CQ = 3, "NdkCreateCq";
        /// NdkCreatePd.
        CREATE_PD = 4, "NdkCreatePd";
        /// NdkCreateSharedEndpoint.
        CREATE_SHARED_ENDPOINT = 5, "NdkCreateSharedEndpoint";
        /// NdkCreateConnector.
        CREATE_CONNECTOR = 6, "NdkCreateConnector";
        /// NdkCreateListener.
        CREATE_LISTENER = 7, "NdkCreateListener";
        /// NdkBuildLAM.
        BUILD_LAM = 8, "NdkBuildLAM";
        /// NdkReleaseLAM.
        RELEASE_LAM = 9, "NdkReleaseLAM";
        /// NdkQueryExtension.
        QUERY_EXTENSION = 10, "NdkQueryExtension";
        /// NdkClose.
        CLOSE = 11, "NdkClose";
        /// NdkResizeCq.
        RESIZE_CQ = 12, "NdkResizeCq";
        /// NdkControlCqInterruptModeration.
        CONTROL_CQ_INTERRUPT_MODERATION = 13, "NdkControlCqInterruptModeration";
        /// NdkGetCqResults.
        GET_CQ_RESULTS = 14, "NdkGetCqResults";
        /// NdkCreateMr.
        CREATE_MR = 15, "NdkCreateMr";
        /// NdkCreateMw.
        CREATE_MW = 16, "NdkCreateMw";
        /// NdkCreateSrq.
        CREATE_SRQ = 17, "NdkCreateSrq";
        /// NdkCreateQp.
        CREATE_QP = 18, "NdkCreateQp";
        /// NdkCreateQpWithSrq.
        CREATE_QP_WITH_SRQ = 19, "NdkCreateQpWithSrq";
        /// NdkRegisterMr.
        REGISTER_MR = 20, "NdkRegisterMr";
        /// NdkDeregisterMr.
        DEREGISTER_MR = 21, "NdkDeregisterMr";
        /// NdkInitializeFastRegisterMr.
        INITIALIZE_FAST_REGISTER_MR = 22, "NdkInitializeFastRegisterMr";
        /// NdkModifySrq.
        MODIFY_SRQ = 23, "NdkModifySrq";
        /// NdkSrqReceive.
        SRQ_RECEIVE = 24, "NdkSrqReceive";
        /// NdkSend.
        SEND = 25, "NdkSend";
        /// NdkSendAndInvalidate.
        SEND_AND_INVALIDATE = 26, "NdkSendAndInvalidate";
        /// NdkReceive.
        RECEIVE = 27, "NdkReceive";
        /// NdkRead.
        READ = 28, "NdkRead";
        /// NdkWrite.
        WRITE = 29, "NdkWrite";
        /// NdkBind.
        BIND = 30, "NdkBind";
        /// NdkFastRegister.
        FAST_REGISTER = 31, "NdkFastRegister";
        /// NdkInvalidate.
        INVALIDATE = 32, "NdkInvalidate";
        /// NdkListen.
        LISTEN = 33, "NdkListen";
        /// NdkConnect.
        CONNECT = 34, "NdkConnect";
        /// NdkConnectWithSharedEndpoint.
        CONNECT_WITH_SHARED_ENDPOINT = 35, "NdkConnectWithSharedEndpoint";
        /// NdkCompleteConnect.
        COMPLETE_CONNECT = 36, "NdkCompleteConnect";
        /// NdkCompleteConnectEx.
        COMPLETE_CONNECT_EX = 37, "NdkCompleteConnectEx";
        /// NdkAccept.
        ACCEPT = 38, "NdkAccept";
        /// NdkAcceptEx.
        ACCEPT_EX = 39, "NdkAcceptEx";
        /// NdkReject.
        REJECT = 40, "NdkReject";
        /// NdkGetConnectionData.
        GET_CONNECTION_DATA = 41, "NdkGetConnectionData";
        /// NdkGetLocalAddress.
        GET_LOCAL_ADDRESS = 42, "NdkGetLocalAddress";
        /// NdkGetPeerAddress.
        GET_PEER_ADDRESS = 43, "NdkGetPeerAddress";
        /// NdkDisconnect.
        DISCONNECT = 44, "NdkDisconnect";
        /// NdisMNetPnPEvent.
        NET_PNP_EVENT = 45, "NdisMNetPnPEvent";
        /// MiniportInitializeEx.
        INITIALIZE = 46, "MiniportInitializeEx";
        /// A message on a stream of iWARP. The object is the queue pair.
        STREAM = 47, "a message of iWARP";
        /// IND2Adapter::Query.
        ND_QUERY = 64, "IND2Adapter::Query";
        /// A request of user-mode NetworkDirect. The object is the number of the process.
        NETWORK_DIRECT = 65, "a request of NetworkDirect";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_PROVIDER_INIT = 0x10000, "ND_PROVIDER_INIT";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_PROVIDER_BIND_FILE = 0x10001, "ND_PROVIDER_BIND_FILE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_PROVIDER_QUERY_ADDRESS_LIST = 0x10002, "ND_PROVIDER_QUERY_ADDRESS_LIST";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_PROVIDER_RESOLVE_ADDRESS = 0x10003, "ND_PROVIDER_RESOLVE_ADDRESS";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_ADAPTER_OPEN = 0x10040, "ND_ADAPTER_OPEN";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_ADAPTER_CLOSE = 0x10041, "ND_ADAPTER_CLOSE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_ADAPTER_QUERY = 0x10042, "ND_ADAPTER_QUERY";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_ADAPTER_QUERY_ADDRESS_LIST = 0x10043, "ND_ADAPTER_QUERY_ADDRESS_LIST";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_PD_CREATE = 0x10080, "ND_PD_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_PD_FREE = 0x10081, "ND_PD_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CQ_CREATE = 0x100c0, "ND_CQ_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CQ_FREE = 0x100c1, "ND_CQ_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CQ_CANCEL_IO = 0x100c2, "ND_CQ_CANCEL_IO";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CQ_GET_AFFINITY = 0x100c3, "ND_CQ_GET_AFFINITY";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CQ_MODIFY = 0x100c4, "ND_CQ_MODIFY";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CQ_NOTIFY = 0x100c5, "ND_CQ_NOTIFY";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_MR_CREATE = 0x10100, "ND_MR_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_MR_FREE = 0x10101, "ND_MR_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_MR_CANCEL_IO = 0x10102, "ND_MR_CANCEL_IO";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_MR_REGISTER = 0x10103, "ND_MR_REGISTER";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_MR_DEREGISTER = 0x10104, "ND_MR_DEREGISTER";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_MW_CREATE = 0x10140, "ND_MW_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_MW_FREE = 0x10141, "ND_MW_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_SRQ_CREATE = 0x10180, "ND_SRQ_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_SRQ_FREE = 0x10181, "ND_SRQ_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_SRQ_CANCEL_IO = 0x10182, "ND_SRQ_CANCEL_IO";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_SRQ_GET_AFFINITY = 0x10183, "ND_SRQ_GET_AFFINITY";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_SRQ_MODIFY = 0x10184, "ND_SRQ_MODIFY";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_SRQ_NOTIFY = 0x10185, "ND_SRQ_NOTIFY";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_CREATE = 0x101c0, "ND_CONNECTOR_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_FREE = 0x101c1, "ND_CONNECTOR_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_CANCEL_IO = 0x101c2, "ND_CONNECTOR_CANCEL_IO";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_BIND = 0x101c3, "ND_CONNECTOR_BIND";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_CONNECT = 0x101c4, "ND_CONNECTOR_CONNECT";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_COMPLETE_CONNECT = 0x101c5, "ND_CONNECTOR_COMPLETE_CONNECT";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_ACCEPT = 0x101c6, "ND_CONNECTOR_ACCEPT";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_REJECT = 0x101c7, "ND_CONNECTOR_REJECT";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_GET_READ_LIMITS = 0x101c8, "ND_CONNECTOR_GET_READ_LIMITS";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_GET_PRIVATE_DATA = 0x101c9, "ND_CONNECTOR_GET_PRIVATE_DATA";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_GET_PEER_ADDRESS = 0x101ca, "ND_CONNECTOR_GET_PEER_ADDRESS";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_GET_ADDRESS = 0x101cb, "ND_CONNECTOR_GET_ADDRESS";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_NOTIFY_DISCONNECT = 0x101cc, "ND_CONNECTOR_NOTIFY_DISCONNECT";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_CONNECTOR_DISCONNECT = 0x101cd, "ND_CONNECTOR_DISCONNECT";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_LISTENER_CREATE = 0x10200, "ND_LISTENER_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_LISTENER_FREE = 0x10201, "ND_LISTENER_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_LISTENER_CANCEL_IO = 0x10202, "ND_LISTENER_CANCEL_IO";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_LISTENER_BIND = 0x10203, "ND_LISTENER_BIND";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_LISTENER_LISTEN = 0x10204, "ND_LISTENER_LISTEN";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_LISTENER_GET_ADDRESS = 0x10205, "ND_LISTENER_GET_ADDRESS";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_LISTENER_GET_CONNECTION_REQUEST = 0x10206, "ND_LISTENER_GET_CONNECTION_REQUEST";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_QP_CREATE = 0x10240, "ND_QP_CREATE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_QP_CREATE_WITH_SRQ = 0x10241, "ND_QP_CREATE_WITH_SRQ";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_QP_FREE = 0x10242, "ND_QP_FREE";
        /// A request of NetworkDirect, by its name in ndioctl.h.
        ND_QP_FLUSH = 0x10243, "ND_QP_FLUSH";
        /// A request of softnd.dll.
        ND_LOCK_FOR_WRITING = 0x10800, "ND_LOCK_FOR_WRITING";
        /// A request of softnd.dll.
        ND_LOCK_FOR_READING = 0x10801, "ND_LOCK_FOR_READING";
        /// A request of softnd.dll.
        ND_ATTACH = 0x10802, "ND_ATTACH";
        /// A request of softnd.dll.
        ND_DOORBELL = 0x10803, "ND_DOORBELL";
        /// A request of softnd.dll.
        ND_BIND_WINDOW = 0x10804, "ND_BIND_WINDOW";
        /// A request of softnd.dll.
        ND_GET_PRIVATE_DATA = 0x10805, "ND_GET_PRIVATE_DATA";
        /// A request of softnd.dll.
        ND_QUERY_ADDRESSES = 0x10806, "ND_QUERY_ADDRESSES";
    }
}

open_names! {
    /// How a refusal is reported. Open.
    RefusalWay {
        /// By the value that the call returns, or, where the adapter makes calls pend, by its completion instead of that.
        CALL = 1, "call";
        /// By the completion of a call that pended.
        COMPLETION = 2, "completion";
        /// By a result in a completion queue.
        RESULT = 3, "result";
        /// By a result at the other end of the connection: a request of the peer failed here, and no result here says so.
        PEER = 4, "peer's result";
        /// By a Terminate of the peer, which has ended the stream to it.
        PEER_TERMINATE = 5, "peer's Terminate";
        /// By a Terminate to the peer.
        TERMINATE = 6, "Terminate";
    }
}

open_names! {
    /// Whose memory or receive did not allow a request, as seen from the object of the entry. Open.
    RefusalPlace {
        /// In words: the request's own elements, as a source.
        OWN_SOURCE = 1, "the request's own elements, as a source";
        /// In words: the request's own elements, as a sink.
        OWN_SINK = 2, "the request's own elements, as a sink";
        /// In words: the peer's memory, as a source.
        PEER_SOURCE = 3, "the peer's memory, as a source";
        /// In words: the peer's memory, as a sink.
        PEER_SINK = 4, "the peer's memory, as a sink";
        /// In words: the peer's receive.
        PEER_RECEIVE = 5, "the peer's receive";
        /// In words: this end's memory, as the source of a peer's request.
        HERE_SOURCE = 6, "this end's memory, as the source of a peer's request";
        /// In words: this end's memory, as the sink of a peer's request.
        HERE_SINK = 7, "this end's memory, as the sink of a peer's request";
    }
}

open_names! {
    /// Why a call was refused. Open. The names are sentences without their end.
    RefusalCause {
        /// In words: an object argument is NULL, or no object of this driver.
        NO_OBJECT = 0x1, "an object argument is NULL, or no object of this driver";
        /// In words: a callback that the call needs is NULL.
        NO_CALLBACK = 0x2, "a callback that the call needs is NULL";
        /// In words: the place for the result is NULL.
        NO_PLACE = 0x3, "the place for the result is NULL";
        /// In words: a list that has elements is NULL or not aligned.
        NO_LIST = 0x4, "a list that has elements is NULL or not aligned";
        /// In words: a flag that the call does not have.
        UNKNOWN_FLAGS = 0x5, "a flag that the call does not have";
        /// In words: a length of zero, or no place for a length.
        NO_LENGTH = 0x6, "a length of zero, or no place for a length";
        /// In words: a socket address that is NULL or shorter than its family's.
        BAD_ADDRESS_ARGUMENT = 0x7, "a socket address that is NULL or shorter than its family's";
        /// In words: a socket address of a family other than IPv4 and IPv6.
        UNKNOWN_FAMILY = 0x8, "a socket address of a family other than IPv4 and IPv6";
        /// In words: private data with a length is NULL.
        NO_PRIVATE_DATA = 0x9, "private data with a length is NULL";
        /// In words: the buffer is shorter than the result; the needed length is written.
        SMALL_BUFFER = 0xa, "the buffer is shorter than the result; the needed length is written";
        /// In words: no extension is offered.
        NO_EXTENSION = 0xb, "no extension is offered";
        /// In words: the object has no such address (yet).
        NO_ADDRESS_YET = 0xc, "the object has no such address (yet)";
        /// In words: no version that satisfies the wanted one is spoken.
        UNKNOWN_VERSION = 0xd, "no version that satisfies the wanted one is spoken";
        /// In words: NDK is off on the adapter, or the adapter is leaving.
        NDK_OFF = 0xe, "NDK is off on the adapter, or the adapter is leaving";
        /// In words: the process has as many objects as it may (NetworkDirectObjects).
        QUOTA_OBJECTS = 0x20, "the process has as many objects as it may (NetworkDirectObjects)";
        /// In words: the process has as much non-paged pool as it may (NetworkDirectPoolMiB).
        QUOTA_POOL = 0x21, "the process has as much non-paged pool as it may (NetworkDirectPoolMiB)";
        /// In words: the process has as much memory locked as it may (NetworkDirectLockedMiB).
        QUOTA_LOCKED = 0x22, "the process has as much memory locked as it may (NetworkDirectLockedMiB)";
        /// In words: as many requests of the process pend as may (NetworkDirectRequests).
        QUOTA_REQUESTS = 0x23, "as many requests of the process pend as may (NetworkDirectRequests)";
        /// In words: the system has no memory left for it.
        NO_MEMORY = 0xf, "the system has no memory left for it";
        /// In words: the region was made for fast registration.
        FAST_REGISTER_REGION = 0x10, "the region was made for fast registration";
        /// In words: NDIS did not take the event.
        NDIS_REFUSED = 0x11, "NDIS did not take the event";
        /// In words: memory or a table of the adapter ran out.
        CREATE_NO_RESOURCES = 0x100, "memory or a table of the adapter ran out";
        /// In words: a number is over the adapter's limit.
        CREATE_OVER_LIMIT = 0x101, "a number is over the adapter's limit";
        /// In words: the objects belong to different adapters or protection domains.
        CREATE_FOREIGN = 0x102, "the objects belong to different adapters or protection domains";
        /// In words: the adapter is leaving, or NDK is off.
        CREATE_ADAPTER_GONE = 0x103, "the adapter is leaving, or NDK is off";
        /// In words: the MDL chain is shorter than the length, or not virtually contiguous.
        MAPPING_NOT_CONTIGUOUS = 0x200, "the MDL chain is shorter than the length, or not virtually contiguous";
        /// In words: the MDL's pages are not locked and not non-paged pool.
        MAPPING_NOT_PINNED = 0x201, "the MDL's pages are not locked and not non-paged pool";
        /// In words: more bytes than can be mapped at a time.
        MAPPING_TOO_LONG = 0x202, "more bytes than can be mapped at a time";
        /// In words: the system has no memory or mappings left for it.
        MAPPING_NO_RESOURCES = 0x203, "the system has no memory or mappings left for it";
        /// In words: memory or memory tokens ran out.
        REGION_NO_RESOURCES = 0x300, "memory or memory tokens ran out";
        /// In words: a length that the region cannot have.
        REGION_BAD_LENGTH = 0x301, "a length that the region cannot have";
        /// In words: the region is registered already, or not registered.
        REGION_IN_USE = 0x302, "the region is registered already, or not registered";
        /// In words: memory windows are bound to the region.
        REGION_WINDOWS_BOUND = 0x303, "memory windows are bound to the region";
        /// In words: the region is of the other kind, or not initialized for fast registration.
        REGION_WRONG_KIND = 0x304, "the region is of the other kind, or not initialized for fast registration";
        /// In words: more pages than the adapter fast-registers.
        REGION_TOO_MANY_PAGES = 0x305, "more pages than the adapter fast-registers";
        /// In words: the region is being closed.
        REGION_CLOSING = 0x306, "the region is being closed";
        /// In words: no memory for the new depth.
        RESIZE_NO_RESOURCES = 0x400, "no memory for the new depth";
        /// In words: a depth over the adapter's limit, or zero.
        RESIZE_OVER_LIMIT = 0x401, "a depth over the adapter's limit, or zero";
        /// In words: the new depth is less than what the queue holds.
        RESIZE_OCCUPIED = 0x402, "the new depth is less than what the queue holds";
        /// In words: the queue has failed.
        RESIZE_FAILED = 0x403, "the queue has failed";
        /// In words: no timer for the interval.
        MODERATION_NO_RESOURCES = 0x500, "no timer for the interval";
        /// In words: an interval without a count, or a count without an interval.
        MODERATION_MIX = 0x501, "an interval without a count, or a count without an interval";
        /// In words: as many requests are outstanding as the queue was made for.
        POST_QUEUE_FULL = 0x600, "as many requests are outstanding as the queue was made for";
        /// In words: more scatter/gather elements than the queue was made for.
        POST_TOO_MANY_ELEMENTS = 0x601, "more scatter/gather elements than the queue was made for";
        /// In words: more bytes than the adapter transfers in a request.
        POST_TOO_MUCH_DATA = 0x602, "more bytes than the adapter transfers in a request";
        /// In words: a flag that does not go with the request.
        POST_BAD_FLAGS = 0x603, "a flag that does not go with the request";
        /// In words: an argument that the request cannot have.
        POST_BAD_PARAMETER = 0x604, "an argument that the request cannot have";
        /// In words: the queue pair was never connected.
        POST_NOT_CONNECTED = 0x605, "the queue pair was never connected";
        /// In words: the memory does not belong to the queue pair's protection domain or lacks the right.
        POST_ACCESS_DENIED = 0x606, "the memory does not belong to the queue pair's protection domain or lacks the right";
        /// In words: no space for the request's list.
        POST_NO_RESOURCES = 0x607, "no space for the request's list";
        /// In words: another thread posts to the queue at the same time.
        POST_CONCURRENT = 0x608, "another thread posts to the queue at the same time";
        /// In words: a local element lies outside of its region, or the region lacks the right.
        RESULT_LOCAL_ACCESS = 0x700, "a local element lies outside of its region, or the region lacks the right";
        /// In words: the peer's memory or rights do not allow the access.
        RESULT_REMOTE_ACCESS = 0x701, "the peer's memory or rights do not allow the access";
        /// In words: the peer's memory, rights or receive did not allow the request.
        RESULT_REMOTE_ERROR = 0x702, "the peer's memory, rights or receive did not allow the request";
        /// In words: the peer posted no receive in time.
        RESULT_NOT_READY = 0x703, "the peer posted no receive in time";
        /// In words: the message is longer than the receive's elements.
        RESULT_RECEIVE_TOO_SMALL = 0x704, "the message is longer than the receive's elements";
        /// In words: the request cannot be done on its objects in their present state.
        RESULT_INVALID_REQUEST = 0x705, "the request cannot be done on its objects in their present state";
        /// In words: nothing has had the token.
        RESULT_NO_TOKEN = 0x710, "nothing has had the token";
        /// In words: the token was good once: its object is gone or has another one since.
        RESULT_STALE_TOKEN = 0x711, "the token was good once: its object is gone or has another one since";
        /// In words: the token is the privileged one, which is for local elements only.
        RESULT_PRIVILEGED_TOKEN = 0x712, "the token is the privileged one, which is for local elements only";
        /// In words: the token is of a window, which is for the peer only.
        RESULT_WINDOW_TOKEN = 0x713, "the token is of a window, which is for the peer only";
        /// In words: the region is not registered, or the window not bound, now.
        RESULT_NOT_IN_USE = 0x714, "the region is not registered, or the window not bound, now";
        /// In words: the memory is of another protection domain than the queue pair.
        RESULT_OTHER_DOMAIN = 0x715, "the memory is of another protection domain than the queue pair";
        /// In words: the window is bound for another queue pair.
        RESULT_OTHER_QUEUE_PAIR = 0x716, "the window is bound for another queue pair";
        /// In words: the memory does not grant the right that the access needs.
        RESULT_NO_RIGHT = 0x717, "the memory does not grant the right that the access needs";
        /// In words: the access is outside of the registered or bound range.
        RESULT_OUT_OF_BOUNDS = 0x718, "the access is outside of the registered or bound range";
        /// In words: a logical address is in no mapping of the adapter, or the element runs out of one.
        RESULT_NO_MAPPING = 0x719, "a logical address is in no mapping of the adapter, or the element runs out of one";
        /// In words: the receive's elements together are shorter than the message.
        RESULT_SHORT_RECEIVE = 0x71a, "the receive's elements together are shorter than the message";
        /// In words: the token to invalidate is of nothing that the sender may invalidate.
        RESULT_NOT_INVALIDATED = 0x71b, "the token to invalidate is of nothing that the sender may invalidate";
        /// In words: memory ran out.
        CONNECT_NO_RESOURCES = 0x800, "memory ran out";
        /// In words: the adapter does not have the local address.
        CONNECT_INVALID_ADDRESS = 0x801, "the adapter does not have the local address";
        /// In words: the local address and port are in use.
        CONNECT_ADDRESS_IN_USE = 0x802, "the local address and port are in use";
        /// In words: a connection between the two addresses exists.
        CONNECT_TUPLE_IN_USE = 0x803, "a connection between the two addresses exists";
        /// In words: no port is left.
        CONNECT_NO_PORTS = 0x804, "no port is left";
        /// In words: there is no way to the destination's network.
        CONNECT_NETWORK_UNREACHABLE = 0x805, "there is no way to the destination's network";
        /// In words: no adapter on the wire has the destination.
        CONNECT_HOST_UNREACHABLE = 0x806, "no adapter on the wire has the destination";
        /// In words: nothing listens there, or the listener rejected.
        CONNECT_REFUSED = 0x807, "nothing listens there, or the listener rejected";
        /// In words: the peer or an adapter ended the attempt.
        CONNECT_ABORTED = 0x808, "the peer or an adapter ended the attempt";
        /// In words: the peer did not answer in time.
        CONNECT_TIMED_OUT = 0x809, "the peer did not answer in time";
        /// In words: the queue pair or connector is connected or connecting.
        CONNECT_ALREADY_CONNECTED = 0x80a, "the queue pair or connector is connected or connecting";
        /// In words: the call does not fit the connector's state.
        CONNECT_INVALID_STATE = 0x80b, "the call does not fit the connector's state";
        /// In words: more private data than a connection carries.
        CONNECT_PRIVATE_DATA_TOO_LONG = 0x80c, "more private data than a connection carries";
        /// In words: the objects belong to different adapters.
        CONNECT_FOREIGN = 0x80d, "the objects belong to different adapters";
        /// In words: the adapter is leaving, or NDK is off.
        CONNECT_ADAPTER_GONE = 0x80e, "the adapter is leaving, or NDK is off";
        /// In words: a memory address of the request cannot be accessed, or a right is missing.
        ND_NO_ACCESS = 0x900, "a memory address of the request cannot be accessed, or a right is missing";
        /// In words: a number or a length that the request cannot have.
        ND_BAD_REQUEST = 0x901, "a number or a length that the request cannot have";
        /// In words: no such request, another version of its structure, or one that its object cannot do.
        ND_UNKNOWN_REQUEST = 0x902, "no such request, another version of its structure, or one that its object cannot do";
        /// In words: the request does not fit the state of its object.
        ND_WRONG_STATE = 0x903, "the request does not fit the state of its object";
        /// In words: the DLL and the driver lay the queues out differently: they are not of one build.
        ND_OTHER_LAYOUT = 0x904, "the DLL and the driver lay the queues out differently: they are not of one build";
        /// In words: the output is shorter than the answer.
        ND_SHORT_OUTPUT = 0x905, "the output is shorter than the answer";
        /// In words: other objects were made from the object, and are left.
        ND_IN_USE = 0x906, "other objects were made from the object, and are left";
        /// In words: the name of the destination stands for no host.
        ND_NO_HOST = 0x907, "the name of the destination stands for no host";
        /// In words: a handle that names no such object.
        ND_BAD_HANDLE = 0x909, "a handle that names no such object";
        /// In words: for the reason that the status names.
        ND_STATUS = 0x908, "for the reason that the status names";
        /// In words: the method's first parameter cannot be what it is.
        ND_PARAMETER_1 = 0x910, "the method's first parameter cannot be what it is";
        /// In words: the method's second parameter cannot be what it is.
        ND_PARAMETER_2 = 0x911, "the method's second parameter cannot be what it is";
        /// In words: the method's third parameter cannot be what it is.
        ND_PARAMETER_3 = 0x912, "the method's third parameter cannot be what it is";
        /// In words: the method's fourth parameter cannot be what it is.
        ND_PARAMETER_4 = 0x913, "the method's fourth parameter cannot be what it is";
        /// In words: the method's fifth parameter cannot be what it is.
        ND_PARAMETER_5 = 0x914, "the method's fifth parameter cannot be what it is";
        /// In words: the method's sixth parameter cannot be what it is.
        ND_PARAMETER_6 = 0x915, "the method's sixth parameter cannot be what it is";
        /// In words: the method's seventh parameter cannot be what it is.
        ND_PARAMETER_7 = 0x916, "the method's seventh parameter cannot be what it is";
        /// In words: the method's eighth parameter cannot be what it is.
        ND_PARAMETER_8 = 0x917, "the method's eighth parameter cannot be what it is";
        /// In words: the method's ninth parameter cannot be what it is.
        ND_PARAMETER_9 = 0x918, "the method's ninth parameter cannot be what it is";
        /// In words: the method's tenth parameter cannot be what it is.
        ND_PARAMETER_10 = 0x919, "the method's tenth parameter cannot be what it is";
        /// In words: Terminate 0/0/00: local catastrophic error.
        TERMINATE_0_0_00 = 0xa000_0000, "Terminate 0/0/00: local catastrophic error";
        /// In words: Terminate 0/1/00: invalid STag.
        TERMINATE_0_1_00 = 0xa000_0100, "Terminate 0/1/00: invalid STag";
        /// In words: Terminate 0/1/01: base or bounds.
        TERMINATE_0_1_01 = 0xa000_0101, "Terminate 0/1/01: base or bounds";
        /// In words: Terminate 0/1/02: access rights.
        TERMINATE_0_1_02 = 0xa000_0102, "Terminate 0/1/02: access rights";
        /// In words: Terminate 0/1/03: STag of another stream.
        TERMINATE_0_1_03 = 0xa000_0103, "Terminate 0/1/03: STag of another stream";
        /// In words: Terminate 0/1/04: tagged offset wraps.
        TERMINATE_0_1_04 = 0xa000_0104, "Terminate 0/1/04: tagged offset wraps";
        /// In words: Terminate 0/1/09: STag of another domain cannot be invalidated.
        TERMINATE_0_1_09 = 0xa000_0109, "Terminate 0/1/09: STag of another domain cannot be invalidated";
        /// In words: Terminate 0/1/ff: unspecified protection error.
        TERMINATE_0_1_FF = 0xa000_01ff, "Terminate 0/1/ff: unspecified protection error";
        /// In words: Terminate 0/2/05: RDMAP version.
        TERMINATE_0_2_05 = 0xa000_0205, "Terminate 0/2/05: RDMAP version";
        /// In words: Terminate 0/2/06: unexpected opcode.
        TERMINATE_0_2_06 = 0xa000_0206, "Terminate 0/2/06: unexpected opcode";
        /// In words: Terminate 0/2/07: catastrophic error of the stream.
        TERMINATE_0_2_07 = 0xa000_0207, "Terminate 0/2/07: catastrophic error of the stream";
        /// In words: Terminate 0/2/08: catastrophic error.
        TERMINATE_0_2_08 = 0xa000_0208, "Terminate 0/2/08: catastrophic error";
        /// In words: Terminate 0/2/09: STag cannot be invalidated.
        TERMINATE_0_2_09 = 0xa000_0209, "Terminate 0/2/09: STag cannot be invalidated";
        /// In words: Terminate 0/2/ff: unspecified operation error.
        TERMINATE_0_2_FF = 0xa000_02ff, "Terminate 0/2/ff: unspecified operation error";
        /// In words: Terminate 1/0/00: local catastrophic DDP error.
        TERMINATE_1_0_00 = 0xa001_0000, "Terminate 1/0/00: local catastrophic DDP error";
        /// In words: Terminate 1/1/00: tagged buffer: invalid STag.
        TERMINATE_1_1_00 = 0xa001_0100, "Terminate 1/1/00: tagged buffer: invalid STag";
        /// In words: Terminate 1/1/01: tagged buffer: base or bounds.
        TERMINATE_1_1_01 = 0xa001_0101, "Terminate 1/1/01: tagged buffer: base or bounds";
        /// In words: Terminate 1/1/02: tagged buffer: STag of another stream.
        TERMINATE_1_1_02 = 0xa001_0102, "Terminate 1/1/02: tagged buffer: STag of another stream";
        /// In words: Terminate 1/1/03: tagged buffer: offset wraps.
        TERMINATE_1_1_03 = 0xa001_0103, "Terminate 1/1/03: tagged buffer: offset wraps";
        /// In words: Terminate 1/1/04: tagged buffer: DDP version.
        TERMINATE_1_1_04 = 0xa001_0104, "Terminate 1/1/04: tagged buffer: DDP version";
        /// In words: Terminate 1/2/01: untagged buffer: queue number.
        TERMINATE_1_2_01 = 0xa001_0201, "Terminate 1/2/01: untagged buffer: queue number";
        /// In words: Terminate 1/2/02: untagged buffer: none is available.
        TERMINATE_1_2_02 = 0xa001_0202, "Terminate 1/2/02: untagged buffer: none is available";
        /// In words: Terminate 1/2/03: untagged buffer: message sequence number.
        TERMINATE_1_2_03 = 0xa001_0203, "Terminate 1/2/03: untagged buffer: message sequence number";
        /// In words: Terminate 1/2/04: untagged buffer: message offset.
        TERMINATE_1_2_04 = 0xa001_0204, "Terminate 1/2/04: untagged buffer: message offset";
        /// In words: Terminate 1/2/05: untagged buffer: message too long.
        TERMINATE_1_2_05 = 0xa001_0205, "Terminate 1/2/05: untagged buffer: message too long";
        /// In words: Terminate 1/2/06: untagged buffer: DDP version.
        TERMINATE_1_2_06 = 0xa001_0206, "Terminate 1/2/06: untagged buffer: DDP version";
        /// In words: Terminate 2/0/01: stream lost.
        TERMINATE_2_0_01 = 0xa002_0001, "Terminate 2/0/01: stream lost";
        /// In words: Terminate 2/0/02: CRC.
        TERMINATE_2_0_02 = 0xa002_0002, "Terminate 2/0/02: CRC";
        /// In words: Terminate 2/0/03: marker or frame length.
        TERMINATE_2_0_03 = 0xa002_0003, "Terminate 2/0/03: marker or frame length";
        /// In words: Terminate 2/0/04: MPA Request or Reply.
        TERMINATE_2_0_04 = 0xa002_0004, "Terminate 2/0/04: MPA Request or Reply";
        /// In words: Terminate 2/0/05: local catastrophic MPA error.
        TERMINATE_2_0_05 = 0xa002_0005, "Terminate 2/0/05: local catastrophic MPA error";
        /// In words: Terminate 2/0/06: insufficient IRD.
        TERMINATE_2_0_06 = 0xa002_0006, "Terminate 2/0/06: insufficient IRD";
        /// In words: Terminate 2/0/07: no matching ready-to-receive.
        TERMINATE_2_0_07 = 0xa002_0007, "Terminate 2/0/07: no matching ready-to-receive";
    }
}

const _: () = {
    assert!(core::mem::offset_of!(RefusalEntry, place) == 52);
    assert!(size_of::<RefusalListRequest>() == 16);
    assert!(size_of::<RefusalListReply>() == 32);
    assert!(size_of::<RefusalEntry>() == 56);
    assert!(core::mem::offset_of!(RefusalEntry, kind) == 24);
    assert!(core::mem::offset_of!(RefusalEntry, processor) == 48);
};

impl RefusalCause {
    /// The cause of a Terminate: its layer, the type of its error, its code. What no RFC has a name for is a number.
    #[must_use]
    pub const fn of_terminate(layer: u8, kind: u8, code: u8) -> Self {
        Self(TERMINATES | (layer as u32) << 16 | (kind as u32) << 8 | code as u32)
    }

    /// Layer, type and code of a Terminate.
    #[must_use]
    pub const fn terminate(self) -> Option<[u8; 3]> {
        let [group, layer, kind, code] = self.0.to_be_bytes();
        if group == TERMINATES.to_be_bytes()[0] { Some([layer, kind, code]) } else { None }
    }
}

/// The causes that are Terminates.
const TERMINATES: u32 = 0xa000_0000;

#[cfg(test)]
mod tests {
    use super::{NdkCall, RefusalCause, RefusalEntry, RefusalListReply};
    use crate::{Status, list_capacity};

    extern crate std;
    use std::string::ToString;

    #[test]
    fn an_output_holds_the_fixed_part_and_whole_entries() {
        let (head, entry) = (size_of::<RefusalListReply>(), size_of::<RefusalEntry>());
        for (length, capacity) in [(head + entry, 1), (head + 2 * entry - 1, 1), (head + 2 * entry, 2)] {
            assert_eq!(list_capacity::<RefusalListReply, RefusalEntry>(length), Ok(capacity), "{length}");
        }
        for length in [0, 1, head, head + entry - 1] {
            assert_eq!(
                list_capacity::<RefusalListReply, RefusalEntry>(length),
                Err(Status::BUFFER_TOO_SMALL),
                "{length}"
            );
        }
    }

    #[test]
    fn calls_and_causes_of_later_versions_are_numbers() {
        assert_eq!(NdkCall::SEND_AND_INVALIDATE.to_string(), "NdkSendAndInvalidate");
        assert_eq!(
            RefusalCause::POST_QUEUE_FULL.to_string(),
            "as many requests are outstanding as the queue was made for"
        );
        assert_eq!((NdkCall(9999).to_string(), RefusalCause(0).to_string()), ("9999".into(), "0".into()));
    }
}
