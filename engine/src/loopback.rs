//! The wire of one machine: the peer is another object of the same fabric, its memory is copied directly.
//!
//! What it is not: a shortcut past the rules; remote accesses are checked against the peer's tokens, domain and rights, and the
//! peer's connector gets messages like one far away would.

use alloc::vec::Vec;
use core::ops::Range;

use softndk_cells::Shared;
use softndk_cells::ring::Receiver;

use crate::access::{Accessor, Denied};
use crate::completion_queue::Completion;
use crate::connector::{self, ConnectorObject};
use crate::flags::Rights;
use crate::platform::Platform;
use crate::queue_pair::{QueuePairObject, Request, state};
use crate::receive_queue::{self, Receive};
use crate::token::Element;
use crate::transfer::{self, CHUNK, Fault, Remote, Spans};
use crate::wire::{Message, Refused, Wire};

/// See the module.
pub(crate) struct Loopback;

/// The peer's memory that a request names.
fn remote<'g, P: Platform>(
    far: &QueuePairObject<P>,
    here: Accessor<'g, P>,
    request: &Request<P>,
    needed: Rights,
) -> Result<Remote<'g, P>, Refused> {
    let accessor = Accessor { domain: far.domain.number, ..here };
    let view = accessor.remote(request.token, request.address, request.length, needed);
    view.map(|view| Remote { accessor, view }).map_err(|Denied| Refused::Remote)
}

impl<P: Platform> Wire<P> for Loopback {
    type FarConnector = Shared<ConnectorObject<P>>;
    type FarQueuePair = Shared<QueuePairObject<P>>;

    fn tell(to: &Self::FarConnector, message: Message<Self::FarQueuePair>) {
        connector::told(to, message);
    }

    #[inline]
    fn read<'g>(
        far: &Self::FarQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused> {
        let mut source = remote(far, here, request, Rights::REMOTE_READ)?;
        let platform = &here.fabric.0.platform;
        transfer::copy(platform, &mut source, local, range, request.length).map_err(|fault| match fault {
            Fault::Source => Refused::Remote,
            Fault::Sink => Refused::Local,
        })
    }

    #[inline]
    fn write<'g>(
        far: &Self::FarQueuePair,
        here: Accessor<'g, P>,
        request: &Request<P>,
        local: &mut impl Spans<'g, P>,
        range: Range<u64>,
    ) -> Result<(), Refused> {
        let mut sink = remote(far, here, request, Rights::REMOTE_WRITE)?;
        let platform = &here.fabric.0.platform;
        transfer::copy(platform, local, &mut sink, range, request.length).map_err(|fault| match fault {
            Fault::Source => Refused::Local,
            Fault::Sink => Refused::Remote,
        })
    }

    fn write_inline(
        far: &Self::FarQueuePair,
        here: Accessor<'_, P>,
        request: &Request<P>,
        chunks: &Receiver<[u8; CHUNK]>,
    ) -> Result<(), Refused> {
        let mut sink = remote(far, here, request, Rights::REMOTE_WRITE)?;
        let platform = &here.fabric.0.platform;
        transfer::store(platform, chunks, request.first, &mut sink, request.length).map_err(|_| Refused::Remote)
    }

    fn begin_send(
        pair: &Shared<QueuePairObject<P>>,
        far: &Self::FarQueuePair,
        filled: usize,
        elements: &mut Vec<Element>,
    ) -> Option<Receive> {
        far.receiving.begin(far.state() & state::DRAIN != 0, filled, pair, elements)
    }

    fn end_sends(far: &Self::FarQueuePair, filled: &[Completion], moving: bool) {
        receive_queue::commit(far, filled, moving);
    }
}
