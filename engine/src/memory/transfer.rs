//! Moving a message: two sequences of spans, copied piece by piece in the order a consumer may rely on.
//!
//! This is the loop between scatter/gather lists, remote views and inline bytes. [`Accessor`] checks the rights and makes every
//! span.
//!
//! Rule (NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED): the last bytes of a message (at most [`LAST_BYTES`]) are stored after all
//! others and in ascending order.

use core::ops::Range;

use softndk_cells::ring::{Receiver, Together};

use crate::error::AccessFault;
use crate::flags::Rights;
use crate::limits::LAST_BYTES;
use crate::memory::access::{Accessor, Span, View};
use crate::platform::Platform;
use crate::token::Sge;

/// Which side an access failed on, and what was wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    Source(AccessFault),
    Sink(AccessFault),
}

impl Fault {
    /// What was wrong, on whichever side.
    pub(crate) const fn what(self) -> AccessFault {
        match self {
            Self::Source(fault) | Self::Sink(fault) => fault,
        }
    }
}

/// A message as a sequence of spans, walked forwards.
pub(crate) trait Spans<'g, P: Platform> {
    /// The stretch at an offset of the message, at most `most` bytes long and never empty.
    fn span(&mut self, at: u64, most: u64) -> Result<Span<'g, P>, AccessFault>;
}

/// SGEs by number, wherever they are kept.
pub(crate) trait Sges {
    fn count(&self) -> usize;
    fn sge(&self, index: usize) -> Option<Sge>;
}

/// SGEs of the request at the front of a queue: one in the request itself, or several in the ring.
pub(crate) struct Queued<'a> {
    ring: &'a Receiver<Sge, Together>,
    first: usize,
    count: usize,
    single: Sge,
}

impl<'a> Queued<'a> {
    /// `count` SGEs from `first` on in the ring; one alone is `single`.
    pub(crate) fn new(ring: &'a Receiver<Sge, Together>, first: usize, count: usize, single: Sge) -> Self {
        Self { ring, first, count, single }
    }
}

impl Sges for Queued<'_> {
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn sge(&self, index: usize) -> Option<Sge> {
        if self.count == 1 {
            return (index == 0).then_some(self.single);
        }
        if index >= self.count {
            return None;
        }
        self.ring.peek(self.first.wrapping_add(index)).copied()
    }
}

impl Sges for &[Sge] {
    fn count(&self) -> usize {
        self.len()
    }

    fn sge(&self, index: usize) -> Option<Sge> {
        self.get(index).copied()
    }
}

/// A scatter/gather list as spans.
pub(crate) struct List<'g, P: Platform, E> {
    accessor: Accessor<'g, P>,
    sges: E,
    needed: Rights,
    /// The SGE the walk is at, where it begins in the message, and its view.
    index: usize,
    start: u64,
    current: Option<(u64, View<'g, P>)>,
}

impl<'g, P: Platform, E: Sges> List<'g, P, E> {
    pub(crate) fn new(accessor: Accessor<'g, P>, sges: E, needed: Rights) -> Self {
        Self { accessor, sges, needed, index: 0, start: 0, current: None }
    }

    /// Checks every SGE, so that a message with an invalid one moves no byte.
    pub(crate) fn check(&mut self) -> Result<(), AccessFault> {
        // Backwards, so that the view of the first SGE stays for the walk.
        for index in (0..self.sges.count()).rev() {
            let sge = self.sges.sge(index).ok_or(AccessFault::Bounds)?;
            self.current = None;
            if sge.length > 0 {
                let view = self.accessor.local(&sge, self.needed)?;
                self.current = Some((u64::from(sge.length), view));
            }
        }
        Ok(())
    }
}

impl<'g, P: Platform, E: Sges> Spans<'g, P> for List<'g, P, E> {
    #[inline]
    fn span(&mut self, at: u64, most: u64) -> Result<Span<'g, P>, AccessFault> {
        loop {
            if let Some((length, view)) = &self.current {
                let inside = at.checked_sub(self.start).ok_or(AccessFault::Bounds)?;
                if inside < *length {
                    return self.accessor.span(view, inside, most.min(length - inside));
                }
                self.start = self.start.checked_add(*length).ok_or(AccessFault::Bounds)?;
                self.index = self.index.checked_add(1).ok_or(AccessFault::Bounds)?;
                self.current = None;
            }
            let sge = self.sges.sge(self.index).ok_or(AccessFault::Bounds)?;
            let length = u64::from(sge.length);
            let end = self.start.checked_add(length).ok_or(AccessFault::Bounds)?;
            if at >= end {
                self.start = end;
                self.index = self.index.checked_add(1).ok_or(AccessFault::Bounds)?;
                continue;
            }
            self.current = Some((length, self.accessor.local(&sge, self.needed)?));
        }
    }
}

/// Remote memory as spans.
pub(crate) struct Remote<'g, P: Platform> {
    pub(crate) accessor: Accessor<'g, P>,
    pub(crate) view: View<'g, P>,
}

impl<'g, P: Platform> Spans<'g, P> for Remote<'g, P> {
    #[inline]
    fn span(&mut self, at: u64, most: u64) -> Result<Span<'g, P>, AccessFault> {
        self.accessor.span(&self.view, at, most)
    }
}

/// Copies bytes `from..until` of a message of `total` bytes.
#[inline]
fn copy<'f, 't, P: Platform>(
    platform: &P,
    source: &mut impl Spans<'f, P>,
    sink: &mut impl Spans<'t, P>,
    range: Range<u64>,
    total: u64,
) -> Result<(), Fault> {
    let bulk = total.saturating_sub(LAST_BYTES as u64);
    let mut at = range.start;
    while at < range.end {
        let end = if at < bulk { range.end.min(bulk) } else { range.end };
        let (from, from_offset, length) = source.span(at, end.saturating_sub(at)).map_err(Fault::Source)?;
        let (to, to_offset, length) = sink.span(at, length).map_err(Fault::Sink)?;
        if at < bulk {
            platform.copy((to, to_offset), (from, from_offset), length as usize);
        } else {
            platform.copy_last((to, to_offset), (from, from_offset), length as usize);
        }
        at = at.saturating_add(length);
    }
    Ok(())
}

/// Bytes of an inline message in one entry of the inline ring.
pub(crate) const CHUNK: usize = 64;

/// Stores a range of an inline message, whose chunks begin at `first`.
fn store<'g, P: Platform>(
    platform: &P,
    (chunks, first): (&Receiver<[u8; CHUNK], Together>, usize),
    sink: &mut impl Spans<'g, P>,
    range: Range<u64>,
) -> Result<(), Fault> {
    let mut at = range.start;
    while at < range.end {
        let inside = at as usize % CHUNK;
        let chunk = chunks.peek(first.wrapping_add(at as usize / CHUNK)).ok_or(Fault::Source(AccessFault::Bounds))?;
        let most = ((CHUNK - inside) as u64).min(range.end.saturating_sub(at));
        let (to, offset, length) = sink.span(at, most).map_err(Fault::Sink)?;
        let bytes =
            chunk.get(inside..inside.saturating_add(length as usize)).ok_or(Fault::Source(AccessFault::Bounds))?;
        platform.store((to, offset), bytes);
        at = at.saturating_add(length);
    }
    Ok(())
}

/// The bytes of a request at the end that posted it.
pub(crate) trait LocalBytes<P: Platform> {
    /// Copies a range of a message of `total` bytes into memory.
    fn copy_to<'t>(
        &mut self,
        platform: &P,
        sink: &mut impl Spans<'t, P>,
        range: Range<u64>,
        total: u64,
    ) -> Result<(), Fault>;

    /// Copies a range of a message of `total` bytes out of memory.
    fn copy_from<'f>(
        &mut self,
        platform: &P,
        source: &mut impl Spans<'f, P>,
        range: Range<u64>,
        total: u64,
    ) -> Result<(), Fault>;

    /// Copies a range of them into bytes of a transport's own.
    fn load(&mut self, platform: &P, range: Range<u64>, into: &mut [u8]) -> Result<(), Fault>;

    /// Copies bytes of a transport's own into a range of them.
    fn store(&mut self, platform: &P, bytes: &[u8], range: Range<u64>) -> Result<(), Fault>;
}

impl<P: Platform, E: Sges> LocalBytes<P> for List<'_, P, E> {
    #[inline]
    fn copy_to<'t>(
        &mut self,
        platform: &P,
        sink: &mut impl Spans<'t, P>,
        range: Range<u64>,
        total: u64,
    ) -> Result<(), Fault> {
        copy(platform, self, sink, range, total)
    }

    #[inline]
    fn copy_from<'f>(
        &mut self,
        platform: &P,
        source: &mut impl Spans<'f, P>,
        range: Range<u64>,
        total: u64,
    ) -> Result<(), Fault> {
        copy(platform, source, self, range, total)
    }

    fn load(&mut self, platform: &P, range: Range<u64>, into: &mut [u8]) -> Result<(), Fault> {
        load(platform, self, range, into)
    }

    fn store(&mut self, platform: &P, bytes: &[u8], range: Range<u64>) -> Result<(), Fault> {
        store_bytes(platform, bytes, self, range)
    }
}

/// Inline data: chunks of a ring, from the first on. The engine's own copy needs no check and is never written.
pub(crate) struct InlineBytes<'r>(pub(crate) &'r Receiver<[u8; CHUNK], Together>, pub(crate) usize);

impl<P: Platform> LocalBytes<P> for InlineBytes<'_> {
    fn copy_to<'t>(
        &mut self,
        platform: &P,
        sink: &mut impl Spans<'t, P>,
        range: Range<u64>,
        _total: u64,
    ) -> Result<(), Fault> {
        store(platform, (self.0, self.1), sink, range)
    }

    fn copy_from<'f>(
        &mut self,
        _platform: &P,
        _source: &mut impl Spans<'f, P>,
        _range: Range<u64>,
        _total: u64,
    ) -> Result<(), Fault> {
        Err(Fault::Sink(AccessFault::Bounds))
    }

    fn load(&mut self, _platform: &P, range: Range<u64>, into: &mut [u8]) -> Result<(), Fault> {
        for (at, byte) in range.zip(into) {
            let chunk =
                self.0.peek(self.1.wrapping_add(at as usize / CHUNK)).ok_or(Fault::Source(AccessFault::Bounds))?;
            *byte = *chunk.get(at as usize % CHUNK).ok_or(Fault::Source(AccessFault::Bounds))?;
        }
        Ok(())
    }

    fn store(&mut self, _platform: &P, _bytes: &[u8], _range: Range<u64>) -> Result<(), Fault> {
        Err(Fault::Sink(AccessFault::Bounds))
    }
}

/// Copies bytes out of a range of mapped memory.
pub(crate) fn load<'g, P: Platform>(
    platform: &P,
    source: &mut impl Spans<'g, P>,
    range: Range<u64>,
    into: &mut [u8],
) -> Result<(), Fault> {
    let mut at = range.start;
    while at < range.end {
        let (from, offset, length) = source.span(at, range.end.saturating_sub(at)).map_err(Fault::Source)?;
        let start = at.saturating_sub(range.start) as usize;
        let into =
            into.get_mut(start..start.saturating_add(length as usize)).ok_or(Fault::Sink(AccessFault::Bounds))?;
        platform.load(into, (from, offset));
        at = at.saturating_add(length);
    }
    Ok(())
}

/// Stores bytes in a range of mapped memory, in ascending order.
pub(crate) fn store_bytes<'g, P: Platform>(
    platform: &P,
    bytes: &[u8],
    sink: &mut impl Spans<'g, P>,
    range: Range<u64>,
) -> Result<(), Fault> {
    let mut at = range.start;
    while at < range.end {
        let (to, offset, length) = sink.span(at, range.end.saturating_sub(at)).map_err(Fault::Sink)?;
        let start = at.saturating_sub(range.start) as usize;
        let bytes =
            bytes.get(start..start.saturating_add(length as usize)).ok_or(Fault::Source(AccessFault::Bounds))?;
        platform.store((to, offset), bytes);
        at = at.saturating_add(length);
    }
    Ok(())
}
