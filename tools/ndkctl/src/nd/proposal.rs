//! What client and server tell each other in the private data of their connection.

use super::end::EndShape;
use softndk_ioctl::Operation;
use std::hash::{BuildHasher, Hasher, RandomState};

/// What the client is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub work: Work,
    /// Bytes of one request.
    pub size: u32,
    /// Requests outstanding.
    pub depth: u32,
    pub count: u32,
    /// Another connection follows this one.
    pub more: bool,
    /// All connections of one client have the same, and those of other clients another.
    pub session: u16,
}

/// The four bytes at a place.
fn word(bytes: &[u8; 16], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes)
}

/// What the two do with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Messages that are answered one by one.
    PingPong,
    /// One kind of request, from the client.
    Stream(Operation),
    /// The bytes of one kind of request, by the system's TCP beside this connection.
    Tcp(Operation),
    /// The client pulls the server's file: `size` is that of a Read, and the count says nothing.
    Pull,
}

/// Changes when the two would not understand each other.
const VERSION: u8 = 3;
const PING_PONG: u8 = 0;
const PULL: u8 = 8;
/// Beside the code of the operation.
const BY_TCP: u8 = 16;
const MORE: u8 = 1;

/// The most requests outstanding that a client can propose.
pub const MOST_DEPTH: u32 = 1 << 16;

/// The most memory that requests of one end share: as much as every adapter registers. A larger request has its own size.
const MOST_MEMORY: usize = 4 << 20;

/// The largest Read of a pull.
pub const MOST_PULLED: u32 = 1 << 20;

/// Messages of a pull that have memory of their own at each end, and the bytes of one.
pub const MESSAGES: u32 = 8;
pub const MESSAGE_LENGTH: u32 = 48;

/// The most bytes of one of a pull's two windows: with the messages they are no more than [`MOST_MEMORY`].
const MOST_WINDOW: u32 = (MOST_MEMORY as u32 - MESSAGES * MESSAGE_LENGTH) / 2;

impl Proposal {
    /// Bytes of one: as many as every adapter carries.
    pub const LENGTH: usize = 16;

    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let work = match self.work {
            Work::PingPong => PING_PONG,
            Work::Stream(operation) => operation.0 as u8,
            Work::Tcp(operation) => BY_TCP | operation.0 as u8,
            Work::Pull => PULL,
        };
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&[VERSION, work, if self.more { MORE } else { 0 }, 0]);
        bytes[4..8].copy_from_slice(&self.size.to_le_bytes());
        // One less, as there is no depth of 0.
        bytes[8..10].copy_from_slice(&(self.depth.wrapping_sub(1) as u16).to_le_bytes());
        bytes[10..12].copy_from_slice(&self.session.to_le_bytes());
        bytes[12..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// `None` for what no client of this version says.
    #[must_use]
    pub fn decode(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let [VERSION, code, flags, 0, ..] = bytes else { return None };
        let work = match Operation(u32::from(code & !BY_TCP)) {
            operation @ (Operation::READ | Operation::WRITE) if code & BY_TCP != 0 => Work::Tcp(operation),
            operation @ (Operation::READ | Operation::WRITE | Operation::SEND) if code & BY_TCP == 0 => {
                Work::Stream(operation)
            }
            _ if code == PING_PONG => Work::PingPong,
            _ if code == PULL => Work::Pull,
            _ => return None,
        };
        let proposal = Self {
            work,
            size: word(&bytes, 4),
            depth: (word(&bytes, 8) & 0xFFFF) + 1,
            count: word(&bytes, 12),
            more: flags & MORE != 0,
            session: (word(&bytes, 8) >> 16) as u16,
        };
        let is_possible = flags & !MORE == 0 && proposal.count != 0;
        (is_possible && (work != Work::Pull || proposal.is_possible_pull())).then_some(proposal)
    }

    /// One file over one connection, in Reads that fit a window.
    fn is_possible_pull(&self) -> bool {
        !self.more && (1..=MOST_PULLED).contains(&self.size)
    }

    /// What each end needs for it.
    #[must_use]
    pub fn shape(&self) -> EndShape {
        let request = if self.is_by_tcp() { 0 } else { self.size };
        EndShape { depth: self.queue_depth(), request, memory: self.memory() }
    }

    #[must_use]
    pub const fn is_by_tcp(&self) -> bool {
        matches!(self.work, Work::Tcp(_))
    }

    /// Requests, and receives, that a queue pair has to take.
    #[must_use]
    pub const fn queue_depth(&self) -> u32 {
        match self.work {
            Work::Pull => self.depth.saturating_add(MESSAGES),
            _ => self.depth,
        }
    }

    /// Bytes of one of a pull's two windows: as many whole requests as fit.
    #[must_use]
    pub fn window(&self) -> u32 {
        MOST_WINDOW.checked_div(self.size).map_or(0, |requests| requests * self.size)
    }

    /// How many requests have memory of their own, at each end.
    #[must_use]
    pub fn slots(&self) -> u32 {
        let fitting = MOST_MEMORY / (self.size as usize).max(1);
        u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, self.depth)
    }

    /// Bytes of memory of each end: PingPong has one part for what is sent and one for what comes, a pull two windows and its messages.
    #[must_use]
    pub fn memory(&self) -> usize {
        let size = self.size as usize;
        match self.work {
            Work::PingPong => 2 * size,
            Work::Stream(_) => self.slots() as usize * size,
            Work::Tcp(_) => 0,
            Work::Pull => 2 * self.window() as usize + (MESSAGES * MESSAGE_LENGTH) as usize,
        }
    }
}

/// A number for the connections of this client.
#[must_use]
pub fn new_session() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}

/// Why a server refuses a connection request: the private data of its rejection. Understood by every version from 3 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not what a client of this version says.
    OtherVersion,
    /// The client wants another work than this server's.
    OtherWork,
    /// The server waits for another connection of the client that it serves.
    Busy,
}

/// What the bytes of a refusal begin with.
const REFUSAL: [u8; 7] = *b"ndkctl\0";

impl Refusal {
    const ALL: [Self; 3] = [Self::OtherVersion, Self::OtherWork, Self::Busy];

    const fn code(self) -> u8 {
        match self {
            Self::OtherVersion => 1,
            Self::OtherWork => 2,
            Self::Busy => 3,
        }
    }

    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let mut bytes = [self.code(); 8];
        bytes[..REFUSAL.len()].copy_from_slice(&REFUSAL);
        bytes
    }

    /// `None` for what no server of ours says.
    #[must_use]
    pub fn decode(bytes: [u8; 8]) -> Option<Self> {
        let code = bytes.strip_prefix(&REFUSAL)?.first()?;
        Self::ALL.into_iter().find(|refusal| refusal.code() == *code)
    }

    /// What is wrong with the client, for a message of the server.
    #[must_use]
    pub const fn of_client(self) -> &'static str {
        match self {
            Self::OtherVersion => "it does not say what an ndkctl of this version says",
            Self::OtherWork => "it asks for another work than this server's",
            Self::Busy => "another client is served",
        }
    }

    /// Why the server refused, for a message of the client, and the next step.
    #[must_use]
    pub const fn of_server(self) -> (&'static str, &'static str) {
        match self {
            Self::OtherVersion => {
                ("the server is an ndkctl that does not understand the request", "use the same ndkctl on both sides")
            }
            Self::OtherWork => ("the server does another work", "use the same command on both sides"),
            Self::Busy => ("the server serves another client", "wait until that has ended, and start the server again"),
        }
    }
}

/// Where the client reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    pub address: u64,
    pub token: u32,
}

impl RemoteMemory {
    #[must_use]
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: [u8; 16]) -> Self {
        let [low, high, token, _] = [0, 4, 8, 12].map(|at| word(&bytes, at));
        Self { address: u64::from(low) | u64::from(high) << 32, token }
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_DEPTH, MOST_MEMORY, MOST_PULLED, Proposal, Refusal, RemoteMemory, Work};
    use softndk_ioctl::Operation;

    const PROPOSAL: Proposal =
        Proposal { work: Work::PingPong, size: 64, depth: 3, count: 9, more: true, session: 0x0102 };

    #[test]
    fn proposals_are_understood() {
        for work in [
            Work::PingPong,
            Work::Stream(Operation::READ),
            Work::Stream(Operation::WRITE),
            Work::Stream(Operation::SEND),
            Work::Tcp(Operation::READ),
            Work::Tcp(Operation::WRITE),
        ] {
            let proposal = Proposal { work, ..PROPOSAL };
            assert_eq!(Proposal::decode(proposal.encode()), Some(proposal));
        }
        let memory = RemoteMemory { address: 0x1234_5678_9ABC_DEF0, token: 7 };
        assert_eq!(RemoteMemory::decode(memory.encode()), memory);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = PROPOSAL.encode();
        for (at, byte) in
            [(0, 2), (1, 9), (1, 0x10), (1, 0x18), (1, 0x10 | Operation::SEND.0 as u8), (2, 2), (3, 1), (12, 0)]
        {
            let mut bytes = good;
            bytes[at] = byte;
            assert_eq!(Proposal::decode(bytes), None, "byte {at} is {byte}");
        }
        for depth in [1, MOST_DEPTH] {
            let proposal = Proposal { depth, ..PROPOSAL };
            assert_eq!(Proposal::decode(proposal.encode()), Some(proposal));
        }
    }

    const PULL: Proposal = Proposal { work: Work::Pull, size: 4096, depth: 3, count: 1, more: false, session: 7 };

    #[test]
    fn pull_has_one_connection_and_reads_that_fit_its_windows() {
        for size in [1, 4096, MOST_PULLED] {
            let pull = Proposal { size, ..PULL };
            assert_eq!(Proposal::decode(pull.encode()), Some(pull));
            assert!(pull.window() >= size && pull.window().is_multiple_of(size), "{size}");
            assert!(pull.memory() <= MOST_MEMORY && pull.memory() > 2 * pull.window() as usize, "{size}");
        }
        for pull in
            [Proposal { size: 0, ..PULL }, Proposal { size: MOST_PULLED + 1, ..PULL }, Proposal { more: true, ..PULL }]
        {
            assert_eq!(Proposal::decode(pull.encode()), None, "{pull:?}");
        }
        assert!(PULL.queue_depth() > PULL.depth && PROPOSAL.queue_depth() == PROPOSAL.depth);
    }

    #[test]
    fn refusals_are_understood_and_other_private_data_are_none() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::decode(refusal.encode()), Some(refusal));
        }
        let mut unknown = Refusal::Busy.encode();
        unknown[7] = 4;
        for bytes in [[0; 8], unknown, *b"ndkctl1\x03"] {
            assert_eq!(Refusal::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn requests_share_memory_that_would_be_too_much() {
        let with = |size, depth| Proposal { work: Work::Stream(Operation::READ), size, depth, ..PROPOSAL };
        let most = MOST_MEMORY as u32;
        for (size, depth, slots) in
            [(100, 8, 8), (most / 4, 4, 4), (most / 4 + 1, 4, 3), (most, 4, 1), (most + 1, 4, 1), (0, 9, 9)]
        {
            assert_eq!(with(size, depth).slots(), slots, "{size} bytes, {depth} deep");
            assert_eq!(with(size, depth).memory(), slots as usize * size as usize);
        }
        assert_eq!(PROPOSAL.memory(), 2 * 64);
    }
}
