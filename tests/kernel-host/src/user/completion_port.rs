//! Completion ports: packets in the order in which they came, one for each call that takes one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::event;
use super::handles::HandleCount;
use super::process::ProcessState;
use crate::dispatcher::{Event, Time};
use crate::status::{NtStatus, STATUS_SUCCESS, STATUS_TIMEOUT};

/// One completion, or what a program has posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompletionPacket {
    pub key: usize,
    /// The request's ApcContext: its OVERLAPPED.
    pub overlapped: usize,
    pub status: NtStatus,
    pub information: usize,
}

/// How a wait for a packet ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PortWait {
    Packet(CompletionPacket),
    TimedOut,
    /// The port's last handle is closed, or the process is killed.
    Abandoned,
}

pub(super) struct CompletionPort {
    packets: Mutex<VecDeque<CompletionPacket>>,
    /// Set while there may be packets; one waiter takes it, and sets it again for those that it leaves.
    arrived: Event,
    abandoned: AtomicBool,
    pub handles: HandleCount,
}

impl CompletionPort {
    pub fn new() -> Self {
        Self {
            packets: Mutex::new(VecDeque::new()),
            arrived: Event::synchronization(),
            abandoned: AtomicBool::new(false),
            handles: HandleCount::default(),
        }
    }

    fn packets(&self) -> MutexGuard<'_, VecDeque<CompletionPacket>> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a packet, at any level.
    pub fn post(&self, packet: CompletionPacket) {
        self.packets().push_back(packet);
        self.arrived.set();
    }

    /// Nothing can come any more: waits end.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.arrived.set();
    }

    fn take_now(&self) -> Option<CompletionPacket> {
        let mut packets = self.packets();
        let packet = packets.pop_front();
        let more = !packets.is_empty();
        drop(packets);
        if more {
            self.arrived.set();
        }
        packet
    }

    /// The first packet, waited for until a time.
    pub fn take(&self, process: &ProcessState, deadline: Option<Time>) -> PortWait {
        loop {
            if let Some(packet) = self.take_now() {
                return PortWait::Packet(packet);
            }
            if self.abandoned.load(Ordering::SeqCst) {
                self.arrived.set();
                return PortWait::Abandoned;
            }
            match event::wait(process, &self.arrived, deadline) {
                STATUS_SUCCESS => {}
                STATUS_TIMEOUT => return PortWait::TimedOut,
                _ => return PortWait::Abandoned,
            }
        }
    }
}
