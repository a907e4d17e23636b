//! Completing packets: some inside a call, most later, in an order that each lane of a socket keeps. No lock of the host is held
//! while a completion routine runs.

use std::sync::Arc;

use super::client::Client;
use super::socket::{Closed, LEDGER_KIND, LaneId, Next, SocketAnswer, SocketId, stack};
use super::{address, chance, late};
use crate::io::own_packet::Taken;
use crate::status;

/// A packet that is about to be completed, with what it belongs to.
pub(super) struct Finished {
    pub(super) socket: Option<SocketId>,
    pub(super) client: Arc<Client>,
    pub(super) packet: Taken,
    pub(super) answer: SocketAnswer,
}

impl Finished {
    /// Completes the packet here and now.
    pub(super) fn deliver(self) {
        let Self { socket, client, packet, answer } = self;
        if let Some(accepted) = answer.accepted {
            client.socket_begins();
            crate::ledger::record_for(LEDGER_KIND, accepted, "accepted", client.image.as_ref(), Vec::new());
        }
        if answer.connected
            && let Some(id) = socket
        {
            stack().connected(id);
        }
        for (to, found) in answer.addresses {
            // SAFETY: where the driver asks for it, until the completion.
            unsafe { address::write(to, found) };
        }
        if let Some((to, flags)) = answer.flags {
            // SAFETY: as above.
            unsafe { (to as *mut u32).write(flags) };
        }
        packet.complete(answer.status, answer.information);
        client.request_ends();
        let closed = socket.and_then(|id| stack().completed(id));
        if let Some(closed) = closed {
            closed.deliver();
        }
    }
}

impl Closed {
    /// Completes the close: the socket is gone.
    pub(super) fn deliver(self) {
        let Self { memory, client, packet, port } = self;
        if let Some(port) = port {
            stack().free_port(port);
        }
        crate::ledger::release(LEDGER_KIND, memory.as_pointer() as usize);
        drop(memory);
        packet.complete(status::STATUS_SUCCESS, 0);
        client.socket_ends();
        client.request_ends();
    }
}

/// Lanes can go on: within the call that is running, or later.
pub(super) fn kick(lanes: Vec<LaneId>) {
    for lane in lanes {
        if chance::once_in(4) {
            run(lane);
        } else {
            queue(lane);
        }
    }
}

fn queue(lane: LaneId) {
    if stack().begin_queueing(lane) {
        late::queue(move || {
            stack().dequeued(lane);
            run(lane);
        });
    }
}

/// Lanes can go on because of what has come from outside; on the thread that found it, which runs on no processor.
pub(super) fn interrupt(lanes: Vec<LaneId>) {
    for lane in lanes {
        if stack().begin_queueing(lane) {
            late::interrupt(move || {
                stack().dequeued(lane);
                run(lane);
            });
        }
    }
}

/// Completes what a lane has, until nothing is left or another thread is to go on.
fn run(lane: LaneId) {
    if !stack().start(lane) {
        return;
    }
    loop {
        let mut locked = stack();
        let next = locked.service(lane);
        let woken = locked.woken();
        drop(locked);
        // Not from here: a chain of completions would grow with the connections that wake each other.
        woken.into_iter().for_each(queue);
        match next {
            Next::Stop => return,
            Next::Later => return queue(lane),
            Next::Complete(packet, answer, client) => {
                Finished { socket: Some(lane.0), client, packet, answer }.deliver();
            }
        }
        if chance::once_in(4) {
            stack().stop(lane);
            return queue(lane);
        }
    }
}
