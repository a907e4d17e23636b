//! The limits an adapter reports, and the engine's own bounds.
//!
//! The front end picks a profile and may change single fields before it adds the adapter. `docs/limits.md` shows the profiles;
//! a test compares it with this file.

use softndk_iwarp::{negotiation::MOST_ANSWERED as MOST_READS, start::MOST_PRIVATE_DATA};

/// Bytes of a page; the unit of logical mappings and fast registrations.
pub const PAGE: u64 = 4096;
/// Most bytes copied before another context may run.
pub const PIECE: u64 = 256 * 1024;
/// Most bytes of a requester's first piece, and of a request that is moved without a piece.
pub const PIECE_FIRST: u64 = PIECE / 2;
/// Most bytes of a piece, however slow the memory is.
pub const PIECE_LEAST: u64 = IN_PLACE_DISPATCH;
/// Bytes of a request from which on a piece that begins with it is timed.
pub const PIECE_TIMED: u64 = 16 * 1024;
/// Nanoseconds above which a piece has taken too long: the next one is half as long.
pub const PIECE_SLOW: u64 = 20_000;
/// Nanoseconds below which a whole piece was quick: the next one is twice as long.
pub const PIECE_QUICK: u64 = 8_000;
/// The end of a message that is stored last and in ascending order.
pub const LAST_BYTES: usize = 64;
/// Most bytes a post at PASSIVE_LEVEL copies before it leaves the rest to a service pass.
pub const IN_PLACE_PASSIVE: u64 = 1024 * 1024;
/// Most bytes a post at DISPATCH_LEVEL copies before it leaves the rest to a service pass.
pub const IN_PLACE_DISPATCH: u64 = 64 * 1024;
/// Most bytes that posts at DISPATCH_LEVEL copy on one processor between two service passes there.
pub const DISPATCH_BYTES: u64 = 4 * IN_PLACE_DISPATCH;
/// Results that polls at DISPATCH_LEVEL hand out on one processor before each queue answers once that it has none, unless more
/// were there at the beginning.
pub const DISPATCH_RESULTS: u64 = 512;
/// Bits of the number of an exhaustion of those results that count; the processor stands above them.
pub const EXHAUSTION_BITS: u32 = 44;
/// Nanoseconds after which the end of a queue pair looks again for a post that it met.
pub const LOOK_AGAIN: u64 = 1_000_000;
/// Most requests processed in one step.
pub const STEP_REQUESTS: usize = 64;
/// What a request costs at least of a bound in bytes, so that short ones are bounded too.
pub const REQUEST_COST: u64 = 256;
/// Completions gathered before they are entered into a completion queue under one lock.
pub const BATCH: usize = 16;
/// Requests flushed in one step.
pub const FLUSH_STEP: usize = 256;
/// Objects of an adapter that one service pass looks through for users of a failed completion queue.
pub const ABORT_STEP: usize = 256;
/// Senders that gave up waiting for a shared receive which one step skips.
pub const GRANT_STEP: usize = 64;
/// Objects with a passed deadline that one service pass puts on its run queue.
pub const EXPIRE_STEP: usize = 64;
/// Objects without pointers that one service pass drops.
pub const DISPOSE_STEP: usize = 32;
/// Of those, how many are taken out under one lock.
pub const DISPOSALS: usize = 4;
/// Traffic counters that are checked for the end of their queue pair when one is made: more than one, so that they do not gather.
pub const UPDATE_STEP: usize = 3;
/// Traffic counters that are read under one lock.
pub const SUM_STEP: usize = 64;
/// Places of an adapter's registry that are visited under one lock.
pub const REGISTRY_STEP: usize = 256;
/// Values of one block of a table that grows by blocks.
pub const BLOCK: usize = 256;
/// Ports that a search for a free one looks at under one lock.
pub const PORT_STEP: usize = 512;
/// Rings of one completion queue: resizes without a poll in between.
pub const RINGS: usize = 16;
/// First port given out when a consumer leaves the choice to the engine.
pub const EPHEMERAL_FIRST: u16 = 49152;
/// Last port given out when a consumer leaves the choice to the engine.
pub const EPHEMERAL_LAST: u16 = 65535;
/// Capacity for private data in a connector; no profile may exceed it.
pub const PRIVATE_DATA: usize = 256;
/// Most SGEs of a receive; no profile may exceed it. A sender reserves capacity for the SGEs of any receive.
pub const RECEIVE_SGES: usize = 64;
/// Longest logical mapping: the last page of a slot is a guard.
pub const MAPPING_LENGTH: u64 = (1 << 32) - PAGE;
/// Bytes of payload in one frame of the imagined wire.
pub const FRAME_PAYLOAD: u64 = 4096;
/// Bytes of headers in one frame of the imagined wire (Ethernet, IPv6, UDP, transport, checks).
pub const FRAME_OVERHEAD: u64 = 90;
/// Most processors that have a run queue of their own; others share.
pub const PROCESSORS: usize = 1024;

/// What one adapter can do; reported through QueryAdapterInfo and enforced here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    pub registration_size: u64,
    /// Pages of one fast registration.
    pub fast_register_pages: u32,
    pub initiator_sges: u32,
    pub receive_sges: u32,
    pub read_sges: u32,
    /// Bytes of one Send, Receive, Read or Write over all its SGEs.
    pub transfer_length: u32,
    pub inline_data: u32,
    pub inbound_reads: u32,
    pub outbound_reads: u32,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub completion_depth: u32,
    /// Receives of a shared receive queue.
    pub shared_depth: u32,
    /// Private data with Connect.
    pub caller_data: u32,
    /// Private data with Accept and Reject.
    pub callee_data: u32,
    /// Objects of each kind: completion queues, protection domains, regions, queue pairs and so on. Listeners,
    /// connectors and shared endpoints are not counted: nothing reports a limit of theirs.
    pub objects: u32,
}

impl Limits {
    /// Numbers like those of a widespread card: the default.
    pub const CONNECTX_LIKE: Self = Self {
        registration_size: MAPPING_LENGTH,
        fast_register_pages: 512,
        initiator_sges: 32,
        receive_sges: 32,
        read_sges: 32,
        transfer_length: 1 << 30,
        inline_data: 256,
        inbound_reads: 16,
        outbound_reads: 128,
        receive_depth: 16351,
        initiator_depth: 16351,
        completion_depth: 4_194_303,
        shared_depth: 16351,
        caller_data: 56,
        callee_data: 148,
        objects: 0x0001_0000,
    };

    /// No limit below the default, most of them at the engine's maximum. All maxima together take about half a gigabyte, so the
    /// depths and SGE counts stay below theirs.
    pub const GENEROUS: Self = Self {
        fast_register_pages: 4096,
        initiator_sges: 64,
        receive_sges: 64,
        read_sges: 64,
        transfer_length: u32::MAX,
        inline_data: 1024,
        inbound_reads: 256,
        outbound_reads: 256,
        receive_depth: 32767,
        initiator_depth: 32767,
        shared_depth: 32767,
        caller_data: PRIVATE_DATA as u32,
        callee_data: PRIVATE_DATA as u32,
        objects: 0x0004_0000,
        ..Self::CONNECTX_LIKE
    };

    /// As little as the contract lets a card have: for consumers that assume a particular card's limits.
    pub const TINY: Self = Self {
        registration_size: 4 << 20,
        // NDKPI: NDK_ADAPTER_INFO: 16 at least.
        fast_register_pages: 16,
        initiator_sges: 4,
        receive_sges: 4,
        read_sges: 2,
        transfer_length: 2 << 20,
        inline_data: 16,
        inbound_reads: 1,
        outbound_reads: 1,
        receive_depth: 64,
        initiator_depth: 64,
        completion_depth: 256,
        shared_depth: 64,
        caller_data: 16,
        callee_data: 16,
        objects: 256,
    };
}

impl Limits {
    /// As far as every peer across a stream gets along with them: more private data, or more Reads at a time, some do not survive.
    #[must_use]
    pub fn across_streams(self) -> Self {
        let data = MOST_PRIVATE_DATA as u32;
        Self {
            inbound_reads: self.inbound_reads.min(MOST_READS.into()),
            outbound_reads: self.outbound_reads.min(MOST_READS.into()),
            caller_data: self.caller_data.min(data),
            callee_data: self.callee_data.min(data),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::CONNECTX_LIKE
    }
}

/// Bytes of a stream that the system has and the peer has not acknowledged, and bytes of the system that wait for the stream: as many
/// as go out in a round trip at the rate that is possible.
pub const SOCKET_SEND: usize = 256 * 1024;
pub const SOCKET_RECEIVE: usize = 256 * 1024;
/// The same, and those that wait for a socket, until a connection that has come is accepted: a start-up frame.
pub const STREAM_START: usize = 1024;
/// Bytes of a stream that wait for its socket, bytes of Sends that wait there for a receive, and the longest payload of a frame.
pub const STREAM_SEND: usize = 64 * 1024;
pub const STREAM_HELD: usize = 64 * 1024;
pub const STREAM_PAYLOAD: usize = 8192;
/// Bytes of pool that a connection takes from its acceptance on, at most: these, the longest frame, and its objects.
pub const STREAM_POOL: usize = SOCKET_SEND + SOCKET_RECEIVE + STREAM_SEND + STREAM_HELD + 64 * 1024 + 32 * 1024;
/// Addresses of an adapter that one listener listens at by streams.
pub const PORTS: usize = 16;
/// Other ports that are tried where a program has the one that was picked for a listener.
pub const PORT_TRIES: u16 = 128;
/// Connections that wait for their Request, of one listening socket, how many one step accepts, and how long one may wait, in
/// nanoseconds.
pub const HALF_OPEN: usize = 64;
pub const STEP_ACCEPTS: usize = 16;
pub const REQUEST_LIMIT: u64 = 5_000_000_000;
/// After which a listening socket that lacked memory or its port tries again, in nanoseconds.
pub const PORT_RETRY: u64 = 100_000_000;
/// How often a port that a socket of this machine may still have while it is closed is asked for again, each after [`PORT_RETRY`].
pub const PORT_BINDS: u8 = 10;
/// How often a connection whose port is in use asks for another one: TCP may remember the one that it gives, too.
pub const OTHER_PORTS: u8 = 8;
/// After which an initiator that has received nothing sends an empty Write, in nanoseconds, and how many it sends.
pub const NUDGE_AFTER: u64 = 75_000_000;
pub const NUDGES: u8 = 2;
/// How long a stream that has been ended waits for the end of its peer, in nanoseconds.
pub const LINGER: u64 = 2_000_000_000;
/// How long a stream whose both sides have ended goes on sending what is left, in nanoseconds.
pub const LAST_SENDS: u64 = 30_000_000_000;
/// Pieces of what has been received that one step takes.
pub const STREAM_PIECES: usize = 32;

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{FRAME_PAYLOAD, Limits, MAPPING_LENGTH, PRIVATE_DATA, RECEIVE_SGES};
    use std::string::String;

    const PROFILES: [(&str, Limits); 3] =
        [("connectx-like", Limits::CONNECTX_LIKE), ("generous", Limits::GENEROUS), ("tiny", Limits::TINY)];

    /// What is reported under which name.
    fn rows(limits: &Limits) -> [(&'static str, u64); 16] {
        // Destructured, so that a new limit cannot be left out here.
        let Limits {
            registration_size,
            fast_register_pages,
            initiator_sges,
            receive_sges,
            read_sges,
            transfer_length,
            inline_data,
            inbound_reads,
            outbound_reads,
            receive_depth,
            initiator_depth,
            shared_depth,
            completion_depth,
            caller_data,
            callee_data,
            objects,
        } = *limits;
        [
            ("MaxRegistrationSize, MaxWindowSize", registration_size),
            ("FRMRPageCount", fast_register_pages.into()),
            ("MaxInitiatorRequestSge", initiator_sges.into()),
            ("MaxReceiveRequestSge", receive_sges.into()),
            ("MaxReadRequestSge", read_sges.into()),
            ("MaxTransferLength", transfer_length.into()),
            ("MaxInlineDataSize", inline_data.into()),
            ("MaxInboundReadLimit", inbound_reads.into()),
            ("MaxOutboundReadLimit", outbound_reads.into()),
            ("MaxReceiveQueueDepth", receive_depth.into()),
            ("MaxSrqDepth", shared_depth.into()),
            ("MaxInitiatorQueueDepth", initiator_depth.into()),
            ("MaxCqDepth", completion_depth.into()),
            ("MaxCallerData", caller_data.into()),
            ("MaxCalleeData", callee_data.into()),
            ("MaxQpCount, MaxCqCount, MaxMrCount, MaxPdCount, MaxMwCount, MaxSrqCount", objects.into()),
        ]
    }

    fn table() -> String {
        use core::fmt::Write as _;

        let columns = PROFILES.map(|(_, limits)| rows(&limits));
        let mut table = String::from("| | connectx-like | generous | tiny |\n|---|---|---|---|\n");
        for (index, (name, _)) in columns[0].iter().enumerate() {
            let [first, second, third] = [0, 1, 2].map(|profile: usize| columns[profile][index].1);
            writeln!(table, "| {name} | {first} | {second} | {third} |").unwrap();
        }
        table
    }

    #[test]
    fn page_shows_the_numbers_as_they_are() {
        let page = include_str!("../../docs/limits.md");
        let table = table();
        assert!(page.contains(&table), "docs/limits.md should have this table:\n{table}");
    }

    #[test]
    fn profiles_are_what_the_engine_takes_and_the_contract_allows() {
        for (name, limits) in PROFILES {
            assert!(limits.fast_register_pages >= 16, "{name}");
            assert!(limits.read_sges <= limits.initiator_sges && limits.read_sges > 0, "{name}");
            assert!(limits.registration_size <= MAPPING_LENGTH && limits.registration_size >= FRAME_PAYLOAD, "{name}");
            assert!(limits.caller_data.max(limits.callee_data) as usize <= PRIVATE_DATA, "{name}");
            assert!(limits.receive_sges as usize <= RECEIVE_SGES, "{name}");
            assert!(limits.completion_depth >= limits.receive_depth.max(limits.initiator_depth), "{name}");
        }
    }
}
