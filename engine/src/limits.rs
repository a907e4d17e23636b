//! Every number the engine keeps to: the limits an adapter reports, and the engine's own.
//!
//! What it is not: configuration. The front end picks a profile and may change single fields before it adds the adapter.

/// Bytes of a page; the unit of logical mappings and fast registrations.
pub const PAGE: u64 = 4096;
/// Most bytes copied before another context may have its turn.
pub const PIECE: u64 = 64 * 1024;
/// The end of a message that is stored last and in ascending order.
pub const LAST_BYTES: usize = 64;
/// Most bytes a post at PASSIVE_LEVEL copies before it leaves the rest to a turn.
pub const IN_PLACE_PASSIVE: u64 = 1024 * 1024;
/// Most bytes a post at DISPATCH_LEVEL copies before it leaves the rest to a turn.
pub const IN_PLACE_DISPATCH: u64 = PIECE;
/// Most requests processed in one step.
pub const STEP_REQUESTS: usize = 64;
/// What a request costs at least of a bound in bytes, so that short ones are bounded too.
pub const REQUEST_COST: u64 = 256;
/// Completions gathered before they are entered into a completion queue under one lock.
pub const BATCH: usize = 16;
/// Requests flushed in one step.
pub const FLUSH_STEP: usize = 256;
/// First port given out when a consumer leaves the choice to us.
pub const EPHEMERAL_FIRST: u16 = 49152;
/// Last port given out when a consumer leaves the choice to us.
pub const EPHEMERAL_LAST: u16 = 65535;
/// Room for private data in a connector; no profile may exceed it.
pub const PRIVATE_DATA: usize = 256;
/// Most elements of a receive; no profile may exceed it. A sender keeps room for the elements of any receive it may meet.
pub const RECEIVE_ELEMENTS: usize = 256;
/// Longest logical mapping: the last page of a slot is a guard.
pub const MAPPING_LENGTH: u64 = (1 << 32) - PAGE;
/// Bytes of payload in one frame of the imagined wire.
pub const FRAME_PAYLOAD: u64 = 4096;
/// Bytes of headers in one frame of the imagined wire (Ethernet, IPv6, UDP, transport, checks).
pub const FRAME_OVERHEAD: u64 = 90;
/// Most processors that have a work list of their own; others share.
pub const PROCESSORS: usize = 1024;

/// What one adapter can do; reported through QueryAdapterInfo and enforced here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    pub registration_size: u64,
    /// Pages of one fast registration.
    pub fast_register_pages: u32,
    pub initiator_elements: u32,
    pub receive_elements: u32,
    pub read_elements: u32,
    /// Bytes of one Send, Receive, Read or Write over all its elements.
    pub transfer_length: u32,
    pub inline_data: u32,
    pub inbound_reads: u32,
    pub outbound_reads: u32,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub completion_depth: u32,
    /// Private data with Connect.
    pub caller_data: u32,
    /// Private data with Accept and Reject.
    pub callee_data: u32,
}

impl Limits {
    /// Numbers like those of a widespread card: the default.
    pub const CONNECTX_LIKE: Self = Self {
        registration_size: MAPPING_LENGTH,
        fast_register_pages: 512,
        initiator_elements: 32,
        receive_elements: 32,
        read_elements: 32,
        transfer_length: 1 << 30,
        inline_data: 256,
        inbound_reads: 16,
        outbound_reads: 128,
        receive_depth: 16351,
        initiator_depth: 16351,
        completion_depth: 4_194_303,
        caller_data: 56,
        callee_data: 148,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::CONNECTX_LIKE
    }
}
