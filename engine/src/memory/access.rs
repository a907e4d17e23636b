//! Access checks: tokens and addresses are resolved to spans of memory.
//!
//! Every access walks the same sequence: token, generation, kind, protection domain (for a window: queue pair), rights, bounds,
//! pages. A [`View`] is valid only while the context stays inside the epoch. The copy itself is in `transfer.rs`.
//!
//! Rules: zero-length accesses are not checked (they touch no memory); the privileged token is good for local scatter/gather
//! elements with logical addresses and never for a peer; page lists are resolved page by page when they are used, so that a
//! page whose mapping was released fails the access instead of touching memory.

use softndk_cells::{Guard, Shared, SlotKey};

use crate::adapter::adapter::LogicalPages;
use crate::error::AccessFault;
use crate::flags::Rights;
use crate::memory::memory_region::{FastRegion, PageList, TokenEntry};
use crate::memory::memory_window::{Binding, WindowObject};
use crate::memory::tables::Tables;
use crate::platform::Platform;
use crate::token::{LogicalAddress, MemoryToken, Sge};

/// The tables and the queue pair that accesses are checked against.
pub(crate) struct Accessor<'g, P: Platform> {
    pub(crate) tables: &'g Tables<P>,
    pub(crate) guard: &'g Guard<'g>,
    /// The protection domain of the queue pair whose memory is accessed.
    pub(crate) domain: MemoryToken,
    /// That queue pair, as the number of its windows; 0 where windows do not matter.
    pub(crate) pair: usize,
}

impl<P: Platform> Clone for Accessor<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Accessor<'_, P> {}

/// Bytes an access may touch.
pub(crate) enum View<'g, P: Platform> {
    /// One stretch of mapped memory, from an offset.
    Memory(&'g P::Memory, u64),
    Pages(PageView<'g>),
}

/// Pages of a fast registration, from an offset in the first page.
pub(crate) struct PageView<'g> {
    list: &'g PageList,
    adapter: u32,
    offset: u64,
}

/// A stretch of mapped memory: the memory, the offset, the length.
pub(crate) type Span<'g, P> = (&'g <P as Platform>::Memory, u64, u64);

/// A stretch of mapped memory whose length the caller knows: the memory, the offset.
pub(crate) type Stretch<'g, P> = (&'g <P as Platform>::Memory, u64);

/// Whose access it is: that of this end's SGEs, or of the peer by its remote tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Local,
    Remote,
}

/// An access: the bytes that a token names, and the rights it takes.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) token: MemoryToken,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) needed: Rights,
}

/// Addresses under one token that follow one another in mapped memory, and the rights to them.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    token: MemoryToken,
    rights: Rights,
    base: u64,
    length: u64,
    /// The offset of the first of them in the memory.
    offset: u64,
}

impl Extent {
    pub(crate) const NOTHING: Self =
        Self { token: MemoryToken::NONE, rights: Rights::empty(), base: 0, length: 0, offset: 0 };

    /// The offset of an access in the memory, where the extent allows it. Not of one without bytes, which is not checked at all.
    #[inline]
    pub(crate) fn offset_of(&self, access: Access) -> Option<u64> {
        let Self { token, rights, base, length, offset } = *self;
        let inside = inside(base, length, access.address, access.length)?;
        let offset = offset.checked_add(inside)?;
        (token == access.token && rights.contains(access.needed) && access.length > 0).then_some(offset)
    }
}

/// The table entry that a grant depends on: while that is there, the grant is good.
#[derive(Clone, Copy)]
pub(crate) enum GrantSource {
    Token(SlotKey),
    Mapping(SlotKey),
}

/// A resolved access: what it may touch, and all else that the same check allows.
pub(crate) struct Grant<'g, P: Platform> {
    pub(crate) extent: Extent,
    pub(crate) memory: &'g P::Memory,
    /// `None`: it is not to be kept.
    pub(crate) source: Option<GrantSource>,
}

/// What an access has been resolved to.
enum Resolved<'g, P: Platform> {
    Stretch(Grant<'g, P>),
    Pages(PageView<'g>, Extent),
}

impl<'g, P: Platform> Accessor<'g, P> {
    fn entry(self, token: MemoryToken) -> Result<&'g TokenEntry<P>, AccessFault> {
        let key = self.tables.seal.key(token);
        self.tables.tokens.get(key, self.guard).ok_or_else(|| self.no_entry(key))
    }

    #[cold]
    fn no_entry(self, key: SlotKey) -> AccessFault {
        if self.tables.tokens.is_stale(key) { AccessFault::StaleToken } else { AccessFault::NoToken }
    }

    /// A local scatter/gather element.
    pub(crate) fn local(self, sge: &Sge, needed: Rights) -> Result<View<'g, P>, AccessFault> {
        let access = Access { token: sge.token, address: sge.address, length: u64::from(sge.length), needed };
        self.view(&access, Side::Local)
    }

    /// What the peer names by a remote token.
    pub(crate) fn remote(self, access: &Access) -> Result<View<'g, P>, AccessFault> {
        self.view(access, Side::Remote)
    }

    fn view(self, access: &Access, side: Side) -> Result<View<'g, P>, AccessFault> {
        Ok(match self.resolve(access, side)? {
            Resolved::Stretch(grant) => {
                View::Memory(grant.memory, grant.extent.offset_of(*access).ok_or(AccessFault::Bounds)?)
            }
            Resolved::Pages(pages, _) => View::Pages(pages),
        })
    }

    /// The stretch in which an access begins, with all that the same check allows.
    pub(crate) fn grant(self, access: &Access, side: Side) -> Result<Grant<'g, P>, AccessFault> {
        match self.resolve(access, side)? {
            Resolved::Stretch(grant) => Ok(grant),
            Resolved::Pages(pages, extent) => {
                let (start, length) = pages.list.run_from(pages.offset, access.length).ok_or(AccessFault::Bounds)?;
                let run = Extent { base: access.address, length, ..extent };
                self.mapped(start, pages.adapter, run).ok_or(AccessFault::NoMapping)
            }
        }
    }

    /// The one check of an access.
    fn resolve(self, access: &Access, side: Side) -> Result<Resolved<'g, P>, AccessFault> {
        let extent = Extent { token: access.token, ..Extent::NOTHING };
        match (self.entry(access.token)?, side) {
            (TokenEntry::Privileged { domain, adapter }, Side::Local) => {
                if *domain != self.domain {
                    return Err(AccessFault::Domain);
                }
                self.logical(access, *adapter, extent).map(Resolved::Stretch).ok_or(AccessFault::NoMapping)
            }
            (TokenEntry::Privileged { .. }, Side::Remote) => Err(AccessFault::PrivilegedToken),
            (TokenEntry::Window(window), Side::Remote) => self.window(window, access).map(Resolved::Stretch),
            (TokenEntry::Window(_), Side::Local) => Err(AccessFault::WindowToken),
            (TokenEntry::Registered(region), _) => {
                let extent = Extent { rights: region.rights, base: region.base, length: region.length, ..extent };
                self.check(region.domain, &extent, access)?;
                let source = Some(GrantSource::Token(self.tables.seal.key(access.token)));
                Ok(Resolved::Stretch(Grant { extent, memory: &region.memory, source }))
            }
            (TokenEntry::Fast(region), _) => {
                let list = region.buffers.read(self.guard).ok_or(AccessFault::NotInUse)?;
                let extent = Extent { rights: list.rights, base: list.base, length: list.length, ..extent };
                let offset = self.check(region.domain, &extent, access)?;
                if let Some(grant) = list.whole().and_then(|start| self.mapped(start, region.adapter, extent)) {
                    return Ok(Resolved::Stretch(grant));
                }
                let offset = list.first_byte_offset.checked_add(offset).ok_or(AccessFault::Bounds)?;
                Ok(Resolved::Pages(PageView { list, adapter: region.adapter, offset }, extent))
            }
        }
    }

    /// The offset of an access in a region, or what is wrong with it, in the order of the checks.
    #[inline]
    fn check(self, domain: MemoryToken, extent: &Extent, access: &Access) -> Result<u64, AccessFault> {
        let (in_domain, has_rights) = (domain == self.domain, extent.rights.contains(access.needed));
        let offset = inside(extent.base, extent.length, access.address, access.length);
        offset.filter(|_| in_domain && has_rights).ok_or_else(|| refused(in_domain, has_rights))
    }

    /// A window lends memory of its region to the peer of one queue pair.
    #[cold]
    fn window(self, window: &'g WindowObject<P>, access: &Access) -> Result<Grant<'g, P>, AccessFault> {
        let binding = window.binding.read(self.guard).ok_or(AccessFault::NotInUse)?;
        if binding.token != access.token {
            return Err(AccessFault::StaleToken);
        }
        if binding.pair != self.pair {
            return Err(AccessFault::QueuePair);
        }
        let Binding { rights, address: base, length, .. } = *binding;
        self.check(self.domain, &Extent { token: access.token, rights, base, length, offset: 0 }, access)?;
        let Some(TokenEntry::Registered(region)) = self.tables.tokens.get(binding.region, self.guard) else {
            return Err(AccessFault::NotInUse);
        };
        let within = Extent { token: access.token, rights, base: region.base, length: region.length, offset: 0 };
        let offset = self.check(region.domain, &within, &Access { address: base, length, ..*access })?;
        let extent = Extent { base, length, offset, ..within };
        Ok(Grant { extent, memory: &region.memory, source: None })
    }

    /// The window that a peer wants to invalidate.
    pub(crate) fn window_of_peer(self, token: MemoryToken) -> Result<&'g Shared<WindowObject<P>>, AccessFault> {
        match self.entry(token)? {
            TokenEntry::Window(window) => {
                let binding = window.binding.read(self.guard).ok_or(AccessFault::NotInUse)?;
                let is_its = binding.token == token && binding.pair == self.pair;
                if is_its { Ok(window) } else { Err(AccessFault::NotInvalidated) }
            }
            _ => Err(AccessFault::NotInvalidated),
        }
    }

    /// The fast-register region that a peer wants to invalidate; only one that was registered with remote access.
    pub(crate) fn fast_of_peer(self, token: MemoryToken) -> Result<&'g FastRegion, AccessFault> {
        self.fast(token).and_then(|fast| if fast.remote_access { Ok(fast) } else { Err(AccessFault::NotInvalidated) })
    }

    /// The fast-register region under a token, while it has pages.
    pub(crate) fn fast(self, token: MemoryToken) -> Result<&'g FastRegion, AccessFault> {
        match self.entry(token)? {
            TokenEntry::Fast(fast) if fast.domain == self.domain && fast.buffers.is_published() => Ok(fast),
            _ => Err(AccessFault::NotInvalidated),
        }
    }

    /// Logical addresses under the privileged token.
    fn logical(self, access: &Access, adapter: u32, extent: Extent) -> Option<Grant<'g, P>> {
        let first = access.address & !u64::from(u32::MAX);
        let whole = Extent { rights: Rights::all(), base: first, length: u64::MAX, ..extent };
        let grant = self.mapped(LogicalAddress(first), adapter, whole).or_else(|| {
            let (memory, offset) = self.stretch(LogicalAddress(access.address), access.length, adapter)?;
            let page = Extent { base: access.address, length: access.length, offset, ..whole };
            Some(Grant { extent: page, memory, source: None })
        })?;
        grant.extent.offset_of(*access).map(|_| grant)
    }

    /// At most the length of an extent of a mapping from a logical address on, where the pages of mappings adjoin.
    fn mapped(self, start: LogicalAddress, adapter: u32, extent: Extent) -> Option<Grant<'g, P>> {
        let key = SlotKey { slot: start.slot(), generation: start.generation() };
        let mapping = self.tables.mappings.get(key, self.guard)?;
        let offset = u64::from(start.offset());
        let length = mapping.length.checked_sub(offset)?.min(extent.length);
        let is_whole = mapping.adapter == adapter && mapping.pages == LogicalPages::Adjoining;
        let source = Some(GrantSource::Mapping(key));
        is_whole.then_some(Grant { extent: Extent { length, offset, ..extent }, memory: &mapping.memory, source })
    }

    /// Logical addresses of one mapping of one adapter, whichever open it was built on.
    fn stretch(self, address: LogicalAddress, length: u64, adapter: u32) -> Option<Stretch<'g, P>> {
        let key = SlotKey { slot: address.slot(), generation: address.generation() };
        let mapping = self.tables.mappings.get(key, self.guard)?;
        let offset = mapping.memory_offset(u64::from(address.offset()), length)?;
        (mapping.adapter == adapter).then_some((&mapping.memory, offset))
    }

    /// The stretch that begins `at` bytes into the view, at most `most` (at least one) bytes long.
    #[inline]
    pub(crate) fn span(self, view: &View<'g, P>, at: u64, most: u64) -> Result<Span<'g, P>, AccessFault> {
        match view {
            View::Memory(memory, offset) => Ok((*memory, offset.checked_add(at).ok_or(AccessFault::Bounds)?, most)),
            View::Pages(pages) => {
                let at = pages.offset.checked_add(at).ok_or(AccessFault::Bounds)?;
                self.run(pages.list, pages.adapter, at, most)
            }
        }
    }

    /// Neighbouring pages of a list that are neighbours in one mapping too are one stretch.
    fn run(self, list: &'g PageList, adapter: u32, at: u64, most: u64) -> Result<Span<'g, P>, AccessFault> {
        let (start, length) = list.run_from(at, most).ok_or(AccessFault::Bounds)?;
        let (memory, offset) = self.stretch(start, length, adapter).ok_or(AccessFault::NoMapping)?;
        Ok((memory, offset, length))
    }
}

/// What was wrong with an access to memory that is there, in the order of the checks.
#[cold]
fn refused(in_domain: bool, has_rights: bool) -> AccessFault {
    match (in_domain, has_rights) {
        (false, _) => AccessFault::Domain,
        (true, false) => AccessFault::Rights,
        (true, true) => AccessFault::Bounds,
    }
}

/// The offset of `address` in a region, when `length` bytes from there lie inside.
pub(crate) fn inside(base: u64, size: u64, address: u64, length: u64) -> Option<u64> {
    let offset = address.checked_sub(base)?;
    (offset.checked_add(length)? <= size).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn bounds_are_exact_at_both_ends_and_do_not_wrap() {
        let (base, size) = (0x1000, 0x100);
        for (address, length, offset) in [
            (0x1000, 0, Some(0)),
            (0x1000, 0x100, Some(0)),
            (0x1000, 0x101, None),
            (0xfff, 1, None),
            (0x10ff, 1, Some(0xff)),
            (0x10ff, 2, None),
            (0x1100, 0, Some(0x100)),
            (0x1101, 0, None),
            (u64::MAX, 1, None),
            (0x1001, u64::MAX, None),
        ] {
            assert_eq!(inside(base, size, address, length), offset, "{address:#x}+{length:#x}");
        }
        assert_eq!(inside(u64::MAX - 0xff, 0x100, u64::MAX, 1), Some(0xff));
        assert_eq!(inside(u64::MAX - 0xff, 0x100, u64::MAX, 2), None);
    }
}
