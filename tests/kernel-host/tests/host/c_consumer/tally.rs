//! The consumer's counts, as it writes them to its registry key.

use kernel_host::registry::{self, Value};

use super::machine::SERVICE;

/// The kinds of work requests, in the order of the consumer's tally.
const KINDS: [&str; 7] = ["Receive", "Send", "SendAndInvalidate", "FastRegister", "Invalidate", "Read", "Write"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub posted: i64,
    pub refused: i64,
    pub completed: i64,
    pub silent: i64,
    pub failed: i64,
}

/// `TALLY` of `tests/c-consumer/src/consumer.h`.
#[derive(Clone, Debug)]
pub struct Tally {
    pub state: u32,
    pub status: u32,
    pub kinds: [Kind; 7],
    pub requests: i64,
    pub initiator_bytes: i64,
    pub target_bytes: i64,
    pub initiator_checksum: i64,
    pub target_checksum: i64,
    pub mismatches: i64,
    pub unknown_results: i64,
    pub notifications: i64,
    pub notifications_at_dispatch: i64,
    pub mappings_pended: i64,
    pub longest: i64,
}

pub const RUNNING: u32 = 1;
pub const DONE: u32 = 3;

impl Tally {
    pub fn read() -> Option<Self> {
        let value: Value = registry::get(&registry::parameters_path(SERVICE), "Tally")?;
        let mut words = value.data.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight")));
        let mut next = || words.next().expect("a tally has more words");
        let head = next();
        Some(Self {
            state: head as u32,
            status: (head >> 32) as u32,
            kinds: std::array::from_fn(|_| Kind {
                posted: next(),
                refused: next(),
                completed: next(),
                silent: next(),
                failed: next(),
            }),
            requests: next(),
            initiator_bytes: next(),
            target_bytes: next(),
            initiator_checksum: next(),
            target_checksum: next(),
            mismatches: next(),
            unknown_results: next(),
            notifications: next(),
            notifications_at_dispatch: next(),
            mappings_pended: next(),
            longest: next(),
        })
    }

    /// Whatever the end: nothing is lost, nothing comes twice, no byte is wrong.
    pub fn check_books(&self) {
        for (kind, name) in self.kinds.iter().zip(KINDS) {
            assert_eq!(kind.posted, kind.completed + kind.silent, "{name}: posted = completed + silent in {self:#?}");
        }
        assert_eq!((self.state, self.mismatches, self.unknown_results), (DONE, 0, 0), "no byte is wrong: {self:#?}");
    }
}
