//! What the engine needs from the system around it: lock, copy, scheduling, clock, processor.
//!
//! This is the one border towards kernel or test harness; everything is dispatched statically. It has no callbacks: what must
//! happen outside is handed out by [`Fabric::service_pass`](crate::Fabric::service_pass).
//!
//! Rules for implementers: every method may be called at DISPATCH_LEVEL and must not wait. Locks are held for a few hundred
//! nanoseconds and nest only in one order: connector, peer link of a queue pair, endpoint directory, registry of objects,
//! window, windows of a queue pair, a window's place among them, region, receive queue, shared receive queue, a queue pair's
//! place among its waiting senders, completion queue, close state, run queue, those parked for the epoch, timers.

pub(crate) mod socket;

use core::net::SocketAddr;

use softndk_cells::NoMemory;

use crate::change::{ConnectionRecord, Terminate};
use crate::error::{AccessFault, ConnectError};
use crate::flags::{ObjectKind, Operation};
use crate::limits::LAST_BYTES;
use socket::{ListeningSocket, Socket};

/// A lock around a value, taken for the length of a closure.
pub trait Lock<T>: Send + Sync {
    fn new(value: T) -> Self;

    /// Runs `access` with the value; never calls back into anything but the engine.
    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R;
}

/// Mapped memory behind a region or a logical mapping. Dropping it unmaps; the engine drops none itself but hands each back
/// through [`Retired`](crate::Retired) or [`Closed`](crate::Closed), at ≤ DISPATCH_LEVEL, when nothing copies any more.
pub trait Memory: Send + Sync + 'static {
    /// Bytes that can be reached, from offset 0.
    fn length(&self) -> u64;
}

/// The system around the engine.
pub trait Platform: Send + Sync + Sized + 'static {
    type Lock<T: Send>: Lock<T>;
    type Memory: Memory;
    /// The consumer-visible object, kept by the engine while its object lives and handed back when that is finished.
    type ConsumerObject: Send;
    /// Reports that a close is complete (function and context).
    type CloseCallback: Copy + Send + Sync;
    /// Reports that a request is complete.
    type RequestCallback: Copy + Send + Sync;
    /// Reports completions in a queue.
    type NotifyCallback: Copy + Send + Sync;
    /// Reports an incoming connection.
    type ConnectCallback: Copy + Send + Sync;
    /// Reports that the peer has gone.
    type DisconnectCallback: Copy + Send + Sync;

    /// One end of a connection of TCP.
    type Socket: Socket<Self>;
    /// What takes such connections.
    type ListeningSocket: ListeningSocket<Self>;

    /// A socket that will connect from an address and port to another: from the port if it is free, else from any.
    fn connect(&self, from: SocketAddr, to: SocketAddr) -> Result<Self::Socket, ConnectError>;

    /// A socket that will listen.
    fn listen(&self, at: SocketAddr) -> Result<Self::ListeningSocket, ConnectError>;

    /// Copies between mapped memory. The engine has checked both ranges against [`Memory::length`]. Either side may be written
    /// by its owner or overlap the other at the same time: use raw pointers and an order of your own choice.
    fn copy(&self, to: (&Self::Memory, u64), from: (&Self::Memory, u64), length: usize);

    /// Copies the end of a message (at most [`LAST_BYTES`](crate::limits::LAST_BYTES)): after everything copied before has
    /// become visible, in ascending order, the last byte last.
    fn copy_last(&self, to: (&Self::Memory, u64), from: (&Self::Memory, u64), length: usize);

    /// Copies a whole message: what is not its end as [`Self::copy`] does, then its end as [`Self::copy_last`] does.
    fn copy_message(&self, to: (&Self::Memory, u64), from: (&Self::Memory, u64), length: usize) {
        let bulk = length.saturating_sub(LAST_BYTES);
        let after = |(memory, offset): (_, u64)| (memory, offset.saturating_add(bulk as u64));
        if bulk > 0 {
            self.copy(to, from, bulk);
        }
        self.copy_last(after(to), after(from), length.min(LAST_BYTES));
    }

    /// Stores bytes of the engine's own (an inline message) into mapped memory, in ascending order.
    fn store(&self, to: (&Self::Memory, u64), bytes: &[u8]);

    /// Reads mapped memory into bytes of the engine's own; it may be written by its owner at the same time.
    fn load(&self, into: &mut [u8], from: (&Self::Memory, u64));

    /// Reads an inline scatter/gather element: here `address` is a real address, readable until the post returns.
    fn read_inline(&self, address: u64, into: &mut [u8]);

    /// Numbers that no peer can guess, for the tokens of memory. Once, when the fabric is made.
    fn secret(&self) -> Result<[u32; 4], NoMemory>;

    /// The processor that runs this code now; a hint where the caller may be moved.
    fn processor(&self) -> u32;

    /// Makes sure that [`Fabric::service_pass`](crate::Fabric::service_pass) runs soon for this processor. Called when its list was empty, also
    /// by others while a pass works off what it has taken: a front end takes several for one. Not after
    /// [`Pass::More`](crate::Pass::More), nor for what a pass adds to its own run queue. Perhaps with a lock of the engine held: do not call back.
    fn schedule(&self, processor: u32);

    /// Makes sure that [`Fabric::service_pass`](crate::Fabric::service_pass) runs for this processor when [`Self::now`] has reached `deadline`,
    /// not before and as soon as possible after; at once for a moment that is past. A newer wish replaces the older one of the
    /// same processor; wishes of one processor come one at a time. Perhaps with a lock of the engine held: do not call back.
    fn wake_at(&self, processor: u32, deadline: u64);

    /// Nanoseconds by which [`Self::wake_at`] may be late on a machine that is not busy.
    fn timer_resolution(&self) -> u64 {
        1_000_000
    }

    /// True when the caller is at DISPATCH_LEVEL and must be quick.
    fn at_dispatch(&self) -> bool;

    /// True when a DPC should end.
    fn should_yield(&self) -> bool {
        false
    }

    /// Nanoseconds since a fixed point in time.
    fn now(&self) -> u64;

    /// A request of a peer has failed by the memory of the end with this queue pair, which has no completion that says so. For a
    /// record: inside the epoch and with no lock held; do not call back.
    fn peer_refused(&self, _queue_pair: (ObjectKind, u64), _operation: Operation, _fault: AccessFault) {}

    /// The stream to the peer of this queue pair has been ended by a Terminate with this code. For a record, as the one above; perhaps
    /// outside of the epoch.
    fn stream_terminated(&self, _queue_pair: (ObjectKind, u64), _terminate: Terminate) {}

    /// Something became of one end of a connection. For a record: with no lock held, in no order with what other processors report;
    /// do not call back.
    fn connection_changed(&self, _record: &ConnectionRecord) {}

    /// Runs one piece of work (at most [`PIECE`](crate::limits::PIECE) bytes of copying) at DISPATCH_LEVEL: a context that holds a queue pair or is inside the
    /// epoch must not be preempted, or every other context that waits for it stands still.
    /// The piece learns whether the caller was there already.
    fn raised<R>(&self, piece: impl FnOnce(bool) -> R) -> R {
        piece(self.at_dispatch())
    }
}
