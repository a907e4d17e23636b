//! The wire inside one machine: the peer is another object of the same fabric, its memory is copied directly.
//!
//! Remote accesses are checked against the peer's tokens, domain and rights.

use alloc::vec::Vec;
use core::ops::Range;

use softndk_cells::ring::Receiver;
use softndk_cells::{Shared, Stamp};

use crate::completion::completion_queue::Completion;
use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::Rights;
use crate::memory::access::{Accessor, Denied};
use crate::memory::memory_window;
use crate::memory::transfer::{self, CHUNK, Fault, List, Remote, Spans};
use crate::platform::Platform;
use crate::queue_pair::pair::{End, QueuePairObject, Request, state};
use crate::queue_pair::receive_queue;
use crate::queue_pair::wire::{Begun, Delivery, Refused, Wire};
use crate::token::{MemoryToken, Sge};

/// See the module.
pub(crate) struct Loopback;

/// The peer's memory that a request names.
fn remote<'g, P: Platform>(
    peer: &Shared<QueuePairObject<P>>,
    here: Accessor<'g, P>,
    request: &Request<P>,
    needed: Rights,
) -> Result<Remote<'g, P>, Refused> {
    let accessor = there(peer, here);
    let view = accessor.remote(request.token, request.address, request.length, needed);
    view.map(|view| Remote { accessor, view }).map_err(|Denied| Refused::Remote)
}

impl<P: Platform> Wire<P> for Loopback {
    type PeerQueuePair = Shared<QueuePairObject<P>>;

    #[inline]
    fn read<'g>(
        peer: &Self::PeerQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused> {
        let mut source = remote(peer, here, request, Rights::REMOTE_READ)?;
        let platform = here.tables.scheduler.platform();
        transfer::copy(platform, &mut source, local, range, request.length).map_err(|fault| match fault {
            Fault::Source => Refused::Remote,
            Fault::Sink => Refused::Local,
        })
    }

    #[inline]
    fn write<'g>(
        peer: &Self::PeerQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused> {
        let mut sink = remote(peer, here, request, Rights::REMOTE_WRITE)?;
        let platform = here.tables.scheduler.platform();
        transfer::copy(platform, local, &mut sink, range, request.length).map_err(|fault| match fault {
            Fault::Source => Refused::Local,
            Fault::Sink => Refused::Remote,
        })
    }

    fn write_inline(
        peer: &Self::PeerQueuePair,
        here: Accessor<'_, P>,
        request: &Request<P>,
        chunks: &Receiver<[u8; CHUNK]>,
    ) -> Result<(), Refused> {
        let mut sink = remote(peer, here, request, Rights::REMOTE_WRITE)?;
        let platform = here.tables.scheduler.platform();
        transfer::store(platform, chunks, request.first, &mut sink, request.length).map_err(|_| Refused::Remote)
    }

    fn begin_send(
        pair: &Shared<QueuePairObject<P>>,
        peer: &Self::PeerQueuePair,
        here: Accessor<'_, P>,
        delivery: Delivery,
        sges: &mut Vec<Sge>,
    ) -> Begun {
        let there = there(peer, here);
        let known = |token| there.fast_of_peer(token).is_ok() || there.window_of_peer(token).is_ok();
        if delivery.invalidates.is_some_and(|token| !known(token)) {
            return Begun::UnknownToken;
        }
        let receive = if let Some(attachment) = &peer.attachment {
            receive_queue::begin_shared(peer, attachment, delivery.filled, pair, sges)
        } else {
            let draining = peer.state() & state::DRAIN != 0;
            peer.receiving.begin(draining, delivery.filled, pair, sges)
        };
        let Some(receive) = receive else { return Begun::NoReceive };
        if delivery.length > receive.length {
            return Begun::Failed(receive, Outcome::ReceiveTooSmall);
        }
        let checked = delivery.length == 0 || sink(there, sges).check().is_ok();
        if checked { Begun::Found(receive) } else { Begun::Failed(receive, Outcome::LocalAccess) }
    }

    #[inline]
    fn send<'g>(
        peer: &Self::PeerQueuePair,
        here: Accessor<'g, P>,
        sges: &[Sge],
        source: &mut impl Spans<'g, P>,
        range: Range<u64>,
        total: u64,
    ) -> Result<(), Fault> {
        transfer::copy(here.tables.scheduler.platform(), source, &mut sink(there(peer, here), sges), range, total)
    }

    fn send_inline(
        peer: &Self::PeerQueuePair,
        here: Accessor<'_, P>,
        sges: &[Sge],
        (chunks, first): (&Receiver<[u8; CHUNK]>, usize),
        total: u64,
    ) -> Result<(), Fault> {
        transfer::store(here.tables.scheduler.platform(), chunks, first, &mut sink(there(peer, here), sges), total)
    }

    fn invalidate(peer: &Self::PeerQueuePair, here: Accessor<'_, P>, token: MemoryToken) -> Option<Stamp> {
        let there = there(peer, here);
        match there.fast_of_peer(token) {
            Ok(fast) => fast.buffers.withdraw(),
            Err(Denied) => memory_window::unbind(there.window_of_peer(token).ok()?, |bound| bound.is(&peer.windows)),
        }
    }

    fn is_patient(peer: &Self::PeerQueuePair) -> bool {
        peer.attachment.is_some()
    }

    fn end_sends(peer: &Self::PeerQueuePair, filled: &mut [Completion], moving: bool) {
        receive_queue::commit(peer, filled, moving);
    }

    fn give_up(peer: &Self::PeerQueuePair) {
        if let Some(attachment) = &peer.attachment {
            attachment.leave();
        }
    }

    fn break_off(peer: &Self::PeerQueuePair) {
        peer.end();
    }

    fn count(peer: &Self::PeerQueuePair, sent: Traffic, received: Traffic) {
        peer.traffic_counter.count_other(sent, received);
    }
}

/// Access to the peer's memory.
fn there<'g, P: Platform>(peer: &Shared<QueuePairObject<P>>, here: Accessor<'g, P>) -> Accessor<'g, P> {
    Accessor { domain: peer.domain.number, pair: peer.windows.address(), ..here }
}

/// The SGEs of the peer's receive as the target of a message.
fn sink<'g, 'e, P: Platform>(there: Accessor<'g, P>, sges: &'e [Sge]) -> List<'g, P, &'e [Sge]> {
    List::new(there, sges, Rights::LOCAL_WRITE)
}
