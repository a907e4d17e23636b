//! Counters of one adapter, as OID_NDK_STATISTICS reports them.
//!
//! What it is: event counters, and traffic counters spread over lines by processor so that connections do not fight for one.
//! What it is not: counted per request; a queue pair adds up its step and enters the sum once.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::limits;

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Outbound connections established.
    pub connect: u64,
    /// Inbound connections established.
    pub accept: u64,
    /// Failed attempts in both directions.
    pub connect_failure: u64,
    /// Established connections that ended before their consumer wanted.
    pub connection_error: u64,
    /// Connections established now.
    pub active_connection: u64,
    /// Completion queues that failed.
    pub completion_queue_error: u64,
    pub octets_in: u64,
    pub octets_out: u64,
    pub frames_in: u64,
    pub frames_out: u64,
}

/// Payload that one step of a queue pair moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) octets: u64,
    pub(crate) frames: u64,
}

impl Traffic {
    /// Adds one message, or one piece of it, cut into frames.
    pub(crate) fn add(&mut self, bytes: u64) {
        let frames = bytes.div_ceil(limits::FRAME_PAYLOAD).max(1);
        self.frames = self.frames.wrapping_add(frames);
        self.octets = self.octets.wrapping_add(bytes.wrapping_add(frames * limits::FRAME_OVERHEAD));
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.frames == 0
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Line {
    octets_in: AtomicU64,
    octets_out: AtomicU64,
    frames_in: AtomicU64,
    frames_out: AtomicU64,
}

/// The living counters of an adapter.
#[derive(Default)]
pub(crate) struct Statistics {
    pub(crate) connect: AtomicU64,
    pub(crate) accept: AtomicU64,
    pub(crate) connect_failure: AtomicU64,
    pub(crate) connection_error: AtomicU64,
    pub(crate) active_connection: AtomicU64,
    pub(crate) completion_queue_error: AtomicU64,
    lines: [Line; 8],
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Statistics {
    fn line(&self, processor: u32) -> Option<&Line> {
        self.lines.get(processor as usize % self.lines.len())
    }

    pub(crate) fn received(&self, processor: u32, traffic: Traffic) {
        if let Some(line) = self.line(processor).filter(|_| !traffic.is_empty()) {
            line.octets_in.fetch_add(traffic.octets, Ordering::Relaxed);
            line.frames_in.fetch_add(traffic.frames, Ordering::Relaxed);
        }
    }

    pub(crate) fn sent(&self, processor: u32, traffic: Traffic) {
        if let Some(line) = self.line(processor).filter(|_| !traffic.is_empty()) {
            line.octets_out.fetch_add(traffic.octets, Ordering::Relaxed);
            line.frames_out.fetch_add(traffic.frames, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Counters {
        let one = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sum = |pick: fn(&Line) -> &AtomicU64| {
            self.lines.iter().fold(0_u64, |sum, line| sum.wrapping_add(one(pick(line))))
        };
        Counters {
            connect: one(&self.connect),
            accept: one(&self.accept),
            connect_failure: one(&self.connect_failure),
            connection_error: one(&self.connection_error),
            active_connection: one(&self.active_connection),
            completion_queue_error: one(&self.completion_queue_error),
            octets_in: sum(|line| &line.octets_in),
            octets_out: sum(|line| &line.octets_out),
            frames_in: sum(|line| &line.frames_in),
            frames_out: sum(|line| &line.frames_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Statistics, Traffic};

    #[test]
    fn a_message_is_cut_into_frames_each_with_its_overhead() {
        for (bytes, frames) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (65536, 16)] {
            let mut traffic = Traffic::default();
            traffic.add(bytes);
            assert_eq!((traffic.frames, traffic.octets), (frames, bytes + frames * 90));
        }
    }

    #[test]
    fn lines_of_all_processors_add_up() {
        let statistics = Statistics::default();
        for processor in 0..20 {
            statistics.sent(processor, Traffic { octets: 10, frames: 1 });
        }
        assert_eq!((statistics.read().octets_out, statistics.read().frames_out), (200, 20));
        assert_eq!(statistics.read().octets_in, 0);
    }
}
