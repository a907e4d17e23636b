//! The transport inside one machine: the peer is another object of the same fabric, its memory is copied directly.
//!
//! Every operation ends at once. The responder is called in the requester's own context.

use core::ops::Range;

use softndk_cells::{NoMemory, Shared, Stamp};

use crate::counters::Traffic;
use crate::error::Outcome;
use crate::flags::Rights;
use crate::memory::transfer::{Fault, LocalBytes};
use crate::object::header::Object;
use crate::object::scheduler::Scheduler;
use crate::platform::{Lock, Platform};
use crate::queue_pair::pair::QueuePairObject;
use crate::queue_pair::responder::Responder;
use crate::queue_pair::transport::{
    Answer, AtHand, Begun, Failure, Filled, Near, NotSent, Refused, RemoteBuffer, SendMessage, Transport,
};
use crate::token::MemoryToken;

/// See the module.
pub(crate) struct Loopback<P: Platform>(Responder<P>);

impl<P: Platform> Transport<P> for Loopback<P> {
    fn try_new(_scheduler: &Scheduler<P>) -> Result<Self, NoMemory> {
        Ok(Self(Responder::new()))
    }

    #[inline]
    fn connect(&mut self, pair: &QueuePairObject<P>) -> bool {
        if self.0.pair().is_none() {
            self.0.attach(pair.link.with(|link| link.peer.clone()));
        }
        self.0.pair().is_some()
    }

    #[inline]
    fn read(
        &mut self,
        near: Near<'_, P>,
        source: RemoteBuffer,
        sink: &mut impl LocalBytes<P>,
        range: Range<u64>,
    ) -> Answer<Result<u64, Refused>> {
        let moved = range.end.saturating_sub(range.start);
        let remote = self.0.remote(near.inside, source, Rights::REMOTE_READ).map_err(Refused::Remote);
        let copied = remote.and_then(|mut remote| {
            let platform = near.pair.core.scheduler.platform();
            sink.copy_from(platform, &mut remote, range, source.length).map_err(|fault| match fault {
                Fault::Source(fault) => Refused::Remote(fault),
                Fault::Sink(fault) => Refused::Local(fault),
            })
        });
        Answer::Ready(copied.map(|()| moved))
    }

    #[inline]
    fn write(
        &mut self,
        near: Near<'_, P>,
        source: &mut impl LocalBytes<P>,
        sink: RemoteBuffer,
        range: Range<u64>,
    ) -> Answer<Result<u64, Refused>> {
        let moved = range.end.saturating_sub(range.start);
        let remote = self.0.remote(near.inside, sink, Rights::REMOTE_WRITE).map_err(Refused::Remote);
        let copied = remote.and_then(|mut remote| {
            let platform = near.pair.core.scheduler.platform();
            source.copy_to(platform, &mut remote, range, sink.length).map_err(|fault| match fault {
                Fault::Source(fault) => Refused::Local(fault),
                Fault::Sink(fault) => Refused::Remote(fault),
            })
        });
        Answer::Ready(copied.map(|()| moved))
    }

    #[inline]
    fn at_hand(&mut self) -> Option<AtHand<'_, P>> {
        self.0.at_hand()
    }

    #[inline]
    fn begin_send(&mut self, near: Near<'_, P>, message: SendMessage, filled: &mut Filled) -> Answer<Begun> {
        Answer::Ready(self.0.begin(near.inside, message, &Object::of(near.pair), &mut filled.completions))
    }

    #[inline]
    fn send(
        &mut self,
        near: Near<'_, P>,
        message: SendMessage,
        source: &mut impl LocalBytes<P>,
        range: Range<u64>,
        filled: &mut Filled,
    ) -> Answer<Result<u64, NotSent>> {
        let moved = range.end.saturating_sub(range.start);
        let copied =
            self.0.sink(near.inside).map_err(Fault::Sink).and_then(|mut sink| {
                source.copy_to(near.pair.core.scheduler.platform(), &mut sink, range, message.length)
            });
        Answer::Ready(match copied {
            Ok(()) => Ok(moved),
            Err(Fault::Source(fault)) => Err(NotSent::Local(fault)),
            Err(Fault::Sink(fault)) => {
                let failure = Failure::of(Outcome::LocalAccess, fault);
                Err(NotSent::Receiver(self.0.fail_receive(message, failure, &mut filled.completions)))
            }
        })
    }

    fn invalidate(&mut self, near: Near<'_, P>, token: MemoryToken) -> Answer<Option<Stamp>> {
        Answer::Ready(self.0.invalidate(near.inside, token))
    }

    #[inline]
    fn end_send(&mut self, _pair: &Shared<QueuePairObject<P>>, message: SendMessage, filled: &mut Filled) {
        self.0.fill(message, Outcome::Success, &mut filled.completions);
    }

    #[inline]
    fn end_request(&mut self, _pair: &Shared<QueuePairObject<P>>, filled: &mut Filled) {
        self.0.end_request(&mut filled.completions);
    }

    fn has_gathered(&self, filled: &Filled) -> bool {
        !filled.completions.is_empty()
    }

    #[inline]
    fn is_full(&self, filled: &Filled) -> bool {
        filled.completions.is_full()
    }

    #[inline]
    fn commit(
        &mut self,
        _pair: &Shared<QueuePairObject<P>>,
        filled: &mut Filled,
        outgoing: Traffic,
        incoming: Traffic,
    ) {
        self.0.commit(&mut filled.completions, incoming, outgoing);
        filled.ahead.clear();
    }

    fn release(&mut self, _pair: &Shared<QueuePairObject<P>>) {
        drop(self.0.release());
    }
}
