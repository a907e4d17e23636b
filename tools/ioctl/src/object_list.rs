//! Every live NDK object, one entry each: its kind, its state, and the objects it keeps.

use crate::header::{Method, Request, RequestHeader, control_code};
use crate::names::open_names;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Antecedents of one object in a listing.
pub const OBJECT_ANTECEDENT_MAX: usize = 6;

/// Lists live objects, in parts. METHOD_BUFFERED.
///
/// Output: one [`ObjectListReply`], then `returned_count` entries of `entry_size` bytes each. The first request starts at
/// position 0; as long as [`ObjectListReply::MORE`] is set, the next one starts at the reply's position. Objects come and go
/// between the parts: each entry was true when it was taken, and an object that exists all the while is listed exactly once.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL (output shorter than the fixed part and one
/// entry); DEVICE_REMOVED (no adapter is left).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectListRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Where to start.
    pub position: ObjectPosition,
}

impl Request for ObjectListRequest {
    const CODE: u32 = control_code(0x803, Method::Buffered);
    type Reply = ObjectListReply;
}

/// A place in the list: an adapter, and a place in its registry. Zeros are the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectPosition {
    /// Index of the adapter to go on with.
    pub adapter: u32,
    /// Its first object not listed yet.
    pub object: u32,
}

/// The fixed part of a list of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectListReply {
    /// ABI version, and the size of this fixed part.
    pub header: RequestHeader,
    /// Entries that follow.
    pub returned_count: u32,
    /// Distance from one entry to the next, in bytes.
    pub entry_size: u32,
    /// Where to go on, if there are more.
    pub next: ObjectPosition,
    /// [`ObjectListReply::MORE`] or 0.
    pub more: u32,
    /// Zero.
    pub reserved: u32,
}

impl ObjectListReply {
    /// In `more`: the list goes on at `next`.
    pub const MORE: u32 = 1;
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectEntry {
    /// The object's number: no other object has it while the driver is loaded. Never 0.
    pub number: u64,
    /// Nanoseconds since it was made.
    pub age: u64,
    /// Numbers of the objects it keeps from being closed; the rest is 0. The way to its NDK_ADAPTER leads over them.
    pub antecedents: [u64; OBJECT_ANTECEDENT_MAX],
    /// Its kind.
    pub kind: ObjectKind,
    /// Its state.
    pub state: ObjectState,
    /// Reasons that keep its close from completing: its consumer (until it closes), `dependants`, and requests and callbacks
    /// under way.
    pub holds: u32,
    /// Objects that have it among their antecedents.
    pub dependants: u32,
    /// Index of its adapter.
    pub adapter: u32,
    /// Of an NDK_ADAPTER: the session of the control device that opened it (a pair's id; all ones: a replay), or 0 for a
    /// foreign consumer. 0 for every other kind.
    pub session: u32,
    /// Of a queue pair: bytes sent so far, with headers as the adapter's counters count them. 0 for every other kind.
    pub sent: u64,
    /// The same, received.
    pub received: u64,
}

open_names! {
    /// Kinds of objects. Open.
    ObjectKind {
        /// NDK_ADAPTER: one open.
        ADAPTER = 1, "adapter";
        /// NDK_CQ.
        COMPLETION_QUEUE = 2, "completion queue";
        /// NDK_PD.
        PROTECTION_DOMAIN = 3, "protection domain";
        /// NDK_MR, registered or fast-register.
        MEMORY_REGION = 4, "memory region";
        /// NDK_MW.
        MEMORY_WINDOW = 5, "memory window";
        /// NDK_SRQ.
        SHARED_RECEIVE_QUEUE = 6, "shared receive queue";
        /// NDK_QP.
        QUEUE_PAIR = 7, "queue pair";
        /// NDK_LISTENER.
        LISTENER = 8, "listener";
        /// NDK_CONNECTOR.
        CONNECTOR = 9, "connector";
        /// NDK_SHARED_ENDPOINT.
        SHARED_ENDPOINT = 10, "shared endpoint";
    }
}

open_names! {
    /// What an object is doing. Open.
    ObjectState {
        /// Made and not used yet.
        IDLE = 1, "idle";
        /// A kind without states.
        OPEN = 2, "open";
        /// A listener.
        LISTENING = 3, "listening";
        /// A listener without its endpoint.
        SILENT = 4, "silent";
        /// A connect is on its way.
        CONNECTING = 5, "connecting";
        /// The peer accepted; the connect is not completed.
        ANSWERED = 6, "answered";
        /// It is neither accepted nor rejected.
        ARRIVED = 7, "arrived";
        /// Accepted; the other end has not completed its connect.
        ACCEPTING = 8, "accepting";
        /// A queue pair of a connection that is being made.
        CLAIMED = 9, "claimed";
        /// Connected.
        CONNECTED = 10, "connected";
        /// Its connection is over.
        ENDED = 11, "ended";
        /// Registered memory.
        REGISTERED = 12, "registered";
        /// A fast-register region ready for requests.
        INITIALIZED = 13, "initialized";
        /// Memory on its way out.
        LEAVING = 14, "leaving";
        /// Closed by its consumer; something holds it.
        CLOSING = 15, "closing";
    }
}

const _: () = {
    assert!(size_of::<ObjectListRequest>() == 16);
    assert!(size_of::<ObjectListReply>() == 32);
    assert!(size_of::<ObjectEntry>() == 104);
    assert!(core::mem::offset_of!(ObjectEntry, antecedents) == 16);
    assert!(core::mem::offset_of!(ObjectEntry, kind) == 64);
    assert!(core::mem::offset_of!(ObjectEntry, session) == 84);
};

#[cfg(test)]
mod tests {
    use super::{ObjectEntry, ObjectKind, ObjectListReply, ObjectState};
    use crate::{Status, list_capacity};

    extern crate std;
    use std::string::ToString;

    #[test]
    fn an_output_holds_the_fixed_part_and_whole_entries() {
        let (head, entry) = (size_of::<ObjectListReply>(), size_of::<ObjectEntry>());
        for (length, capacity) in [(head + entry, 1), (head + 2 * entry - 1, 1), (head + 2 * entry, 2)] {
            assert_eq!(list_capacity::<ObjectListReply, ObjectEntry>(length), Ok(capacity), "{length}");
        }
        for length in [0, 1, head, head + entry - 1] {
            assert_eq!(
                list_capacity::<ObjectListReply, ObjectEntry>(length),
                Err(Status::BUFFER_TOO_SMALL),
                "{length}"
            );
        }
    }

    #[test]
    fn kinds_and_states_of_later_versions_are_numbers() {
        assert_eq!(ObjectKind::QUEUE_PAIR.to_string(), "queue pair");
        assert_eq!(ObjectState::CLOSING.to_string(), "closing");
        assert_eq!((ObjectKind(77).to_string(), ObjectState(0).to_string()), ("77".into(), "0".into()));
    }
}
