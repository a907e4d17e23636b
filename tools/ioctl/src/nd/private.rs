//! Codes of our own beside `ndioctl.h`: memory, queues in shared memory, doorbells, outputs that the header does not have. They want a
//! handle that was opened for reading and writing; with any other the I/O manager answers ACCESS_DENIED.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::control::structures;
use crate::header::Method;

/// FILE_DEVICE_NETWORK, FILE_READ_ACCESS and FILE_WRITE_ACCESS, a function from the vendors' range.
const fn code(function: u32, method: Method) -> u32 {
    0x0012_C000 | (function << 2) | method as u32
}

/// Brings memory for a registration with local write: METHOD_OUT_DIRECT, so that the I/O manager checks that the caller may write
/// it. Input: [`LockMemory`]; the output buffer is the memory. It pends as long as the memory is registered, which keeps its pages
/// locked, and is sent through the provider's own file: it ends with SUCCESS when the region is deregistered or freed, with
/// CANCELLED when it is cancelled, which first revokes every access. [`super::control::MR_REGISTER`] then makes the registration.
/// A failure comes at once: ACCESS_VIOLATION from the I/O manager; INVALID_HANDLE; INVALID_DEVICE_STATE (the region has
/// memory); INVALID_PARAMETER; INSUFFICIENT_RESOURCES.
pub const LOCK_FOR_WRITING: u32 = code(0x800, Method::OutDirect);

/// As [`LOCK_FOR_WRITING`], for a registration without local write: METHOD_IN_DIRECT.
pub const LOCK_FOR_READING: u32 = code(0x801, Method::InDirect);

/// Gives a queue pair, a completion queue or a shared receive queue its memory: METHOD_OUT_DIRECT. Input: [`Attach`]; the output
/// buffer is the memory, as long as [`super::rings`] says, zeroed, on a page boundary. It pends until the queue is freed, resized
/// (a completion queue) or its file is closed. Without it nothing can be posted. A failure comes at once: INVALID_HANDLE,
/// INVALID_DEVICE_STATE (there is one, and this is no resize), BUFFER_TOO_SMALL, INVALID_PARAMETER, INSUFFICIENT_RESOURCES,
/// REVISION_MISMATCH (another layout of the rings than the driver's).
pub const ATTACH: u32 = code(0x802, Method::OutDirect);

/// The rings of a queue pair or a shared receive queue have new entries, or a completion queue's ring has room again. Input:
/// [`super::control::Handle`]; no output. Returns when the entries are posted and what has completed is in the completion rings.
/// INVALID_PARAMETER: an entry or a count made no sense, which has ended the queue; INVALID_DEVICE_STATE: it has ended so before, or has
/// no memory.
pub const DOORBELL: u32 = code(0x803, Method::Buffered);

/// Binds a window, after everything in the queue pair's ring. Input: [`BindWindow`]; output: [`BindWindowReply`]. Statuses: those of
/// IND2QueuePair::Bind.
pub const BIND_WINDOW: u32 = code(0x804, Method::Buffered);

/// The private data of a connector with its full length. Input: [`super::control::Handle`]; output: [`PrivateDataReply`] and as
/// many bytes as fit. SUCCESS also when not all fit.
pub const GET_PRIVATE_DATA: u32 = code(0x805, Method::Buffered);

/// The addresses of all adapters (handle 0) or of one. Input: [`super::control::Handle`]; output: [`AddressListReply`] and as many
/// [`super::control::SocketAddress`] as fit. SUCCESS also when not all fit.
pub const QUERY_ADDRESSES: u32 = code(0x806, Method::Buffered);

structures! {
    /// The answer to PROVIDER_INIT, where the output has room for it: the name of the process's handles for PROVIDER_BIND_FILE, which is
    /// sent through the file to be bound, by the same process.
    ProviderToken (8) {
        token: u64,
    }

    /// May stand behind [`super::control::CreateQueuePair`] in the input: what comes with each result. Without it that is 0.
    QueuePairContext (8) {
        context: u64,
    }

    /// For [`LOCK_FOR_WRITING`] and [`LOCK_FOR_READING`].
    LockMemory (16) {
        version: u32,
        reserved: u32,
        region: u64,
    }

    /// For [`ATTACH`].
    Attach (16) {
        version: u32,
        /// [`LAYOUT`](super::rings::LAYOUT) of the library.
        layout: u32,
        handle: u64,
    }

    /// For [`BIND_WINDOW`].
    BindWindow (56) {
        version: u32,
        /// ND_OP_FLAG_*.
        flags: u32,
        queue_pair: u64,
        region: u64,
        window: u64,
        context: u64,
        address: u64,
        length: u64,
    }

    /// The token that peers use from the Bind's completion on.
    BindWindowReply (8) {
        remote_token: u32,
        reserved: u32,
    }

    /// For [`GET_PRIVATE_DATA`].
    PrivateDataReply (8) {
        /// All bytes there are.
        length: u32,
        /// Bytes that follow.
        returned: u32,
    }

    /// For [`QUERY_ADDRESSES`].
    AddressListReply (8) {
        /// All addresses there are.
        count: u32,
        /// Those that follow.
        returned: u32,
    }
}
