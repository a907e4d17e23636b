//! What is posted to a queue pair: requests of the initiator queue, and receives.

use softndk_cells::ring::{Receiver, Together};
use softndk_cells::{Ready, Shared};

use crate::flags::{Operation, RequestFlags, Rights};
use crate::memory::memory_region::{FastRegion, RegionObject};
use crate::memory::memory_window::WindowObject;
use crate::memory::transfer::Queued;
use crate::platform::Platform;
use crate::token::{MemoryToken, Sge};

/// A posted initiator request.
pub(crate) struct Request<P: Platform> {
    pub(crate) operation: Operation,
    pub(crate) flags: RequestFlags,
    pub(crate) context: u64,
    pub(crate) count: u16,
    /// The SGE of a request that has one; it is not in the ring. Of others its address is where the SGEs, or the chunks of inline data,
    /// begin in their ring. Of a Bind: the token of the region.
    pub(crate) single: Sge,
    pub(crate) length: u64,
    pub(crate) address: u64,
    /// The peer's token; of a Bind: the token to give.
    pub(crate) token: MemoryToken,
    /// What comes with the peer's receive, of a request with immediate data.
    pub(crate) immediate: u32,
    pub(crate) subject: Subject<P>,
    /// A Read, Write or Send of one SGE that invalidates nothing: it may be moved in one go.
    pub(crate) is_plain: bool,
}

impl<P: Platform> Request<P> {
    /// Where its SGEs, or the chunks of its inline data, begin in their rings; for a request that has not one SGE.
    #[inline]
    pub(crate) const fn first(&self) -> usize {
        self.single.address as usize
    }

    /// How many bytes it moves.
    pub(crate) const fn bytes(&self) -> u32 {
        match self.operation {
            Operation::Bind | Operation::FastRegister | Operation::Invalidate => 0,
            _ => self.length as u32,
        }
    }

    /// Its SGEs; `ring` is that of its queue pair.
    #[inline]
    pub(crate) fn sges<'a>(&self, ring: &'a Receiver<Sge, Together>) -> Queued<'a> {
        Queued::new(ring, self.first(), usize::from(self.count), self.single)
    }
}

/// What a request is about, if not only bytes.
pub(crate) enum Subject<P: Platform> {
    Bytes,
    Fast(Shared<FastRegion>),
    /// With the page list to publish, until that is done.
    Pages(Shared<FastRegion>, Option<Ready>),
    Window(Shared<WindowObject<P>>),
    Binding(Shared<WindowObject<P>>, Shared<RegionObject<P>>, Rights),
}

impl<P: Platform> Subject<P> {
    /// Frees the page list of a registration that did not take place.
    pub(crate) fn discard(&mut self) {
        if let Self::Pages(fast, ready) = self
            && let Some(ready) = ready.take()
        {
            fast.buffers.discard(ready);
        }
    }
}

/// A posted receive.
#[derive(Clone, Copy)]
pub(crate) struct Receive {
    pub(crate) context: u64,
    pub(crate) first: usize,
    /// The SGE of a receive that has one; it is not in the ring.
    pub(crate) single: Sge,
    /// As long as a message may be.
    pub(crate) length: u32,
    pub(crate) count: u16,
    /// Taken from a shared queue: it belongs to the queue pair that took it, and completes there.
    pub(crate) shared: bool,
}
