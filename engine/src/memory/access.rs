//! Access checks: tokens and addresses are resolved to spans of memory.
//!
//! Every access walks the same sequence: token, generation, kind, protection domain (for a window: queue pair), rights, bounds,
//! pages. A [`View`] is valid only while the context stays inside the epoch. The copy itself is in `transfer.rs`.
//!
//! Rules: zero-length accesses are not checked (they touch no memory); the privileged token is good for local scatter/gather
//! elements with logical addresses and never for a peer; page lists are resolved page by page when they are used, so that a
//! page whose mapping was released fails the access instead of touching memory.

use softndk_cells::{Guard, Shared, SlotKey};

use crate::error::AccessFault;
use crate::flags::Rights;
use crate::memory::memory_region::{FastRegion, PageList, TokenEntry};
use crate::memory::memory_window::WindowObject;
use crate::memory::tables::Tables;
use crate::platform::Platform;
use crate::token::{LogicalAddress, MemoryToken, Sge};

/// The place and the rights of an access.
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
    /// Pages of a fast registration, from an offset in the first page.
    Pages { list: &'g PageList, adapter: u32, offset: u64 },
}

/// A stretch of mapped memory: the memory, the offset, the length.
pub(crate) type Span<'g, P> = (&'g <P as Platform>::Memory, u64, u64);

/// A stretch of mapped memory whose length the caller knows: the memory, the offset.
pub(crate) type Stretch<'g, P> = (&'g <P as Platform>::Memory, u64);

impl<'g, P: Platform> Accessor<'g, P> {
    fn entry(self, token: MemoryToken) -> Result<&'g TokenEntry<P>, AccessFault> {
        let key = SlotKey { slot: token.slot(), generation: token.generation() };
        self.tables.tokens.get(key, self.guard).ok_or_else(|| self.no_entry(key))
    }

    #[cold]
    fn no_entry(self, key: SlotKey) -> AccessFault {
        if self.tables.tokens.is_stale(key) { AccessFault::StaleToken } else { AccessFault::NoToken }
    }

    /// A local scatter/gather element.
    pub(crate) fn local(self, sge: &Sge, needed: Rights) -> Result<View<'g, P>, AccessFault> {
        let length = u64::from(sge.length);
        match self.entry(sge.token)? {
            TokenEntry::Privileged { domain, adapter } if *domain == self.domain => {
                let stretch = self.stretch(LogicalAddress(sge.address), length, *adapter);
                stretch.map(|(memory, offset)| View::Memory(memory, offset)).ok_or(AccessFault::NoMapping)
            }
            TokenEntry::Privileged { .. } => Err(AccessFault::Domain),
            TokenEntry::Window(_) => Err(AccessFault::WindowToken),
            other => self.region(other, sge.address, length, needed),
        }
    }

    /// What a peer names by its remote token.
    pub(crate) fn remote(
        self,
        token: MemoryToken,
        address: u64,
        length: u64,
        needed: Rights,
    ) -> Result<View<'g, P>, AccessFault> {
        match self.entry(token)? {
            TokenEntry::Window(window) => self.window(window, token, address, length, needed),
            other => self.region(other, address, length, needed),
        }
    }

    /// A window lends memory of its region to the peer of one queue pair.
    #[cold]
    fn window(
        self,
        window: &'g WindowObject<P>,
        token: MemoryToken,
        address: u64,
        length: u64,
        needed: Rights,
    ) -> Result<View<'g, P>, AccessFault> {
        let binding = window.binding.read(self.guard).ok_or(AccessFault::NotInUse)?;
        if binding.token != token {
            return Err(AccessFault::StaleToken);
        }
        if binding.pair != self.pair {
            return Err(AccessFault::QueuePair);
        }
        let granted = binding.rights.contains(needed);
        let offset = inside(binding.address, binding.length, address, length).filter(|_| granted);
        offset.ok_or_else(|| refused(true, granted))?;
        match self.tables.tokens.get(binding.region, self.guard) {
            Some(region @ TokenEntry::Registered(_)) => self.region(region, address, length, Rights::empty()),
            _ => Err(AccessFault::NotInUse),
        }
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

    fn region(
        self,
        entry: &'g TokenEntry<P>,
        address: u64,
        length: u64,
        needed: Rights,
    ) -> Result<View<'g, P>, AccessFault> {
        match entry {
            TokenEntry::Privileged { .. } => Err(AccessFault::PrivilegedToken),
            TokenEntry::Window(_) => Err(AccessFault::WindowToken),
            TokenEntry::Registered(region) => {
                let (in_domain, has_rights) = (region.domain == self.domain, region.rights.contains(needed));
                let offset = inside(region.base, region.length, address, length).filter(|_| in_domain && has_rights);
                let view = offset.map(|offset| View::Memory(&region.memory, offset));
                view.ok_or_else(|| refused(in_domain, has_rights))
            }
            TokenEntry::Fast(region) => {
                let list = region.buffers.read(self.guard).ok_or(AccessFault::NotInUse)?;
                let (in_domain, has_rights) = (region.domain == self.domain, list.rights.contains(needed));
                let offset = inside(list.base, list.length, address, length).filter(|_| in_domain && has_rights);
                let offset = offset.and_then(|offset| list.first_byte_offset.checked_add(offset));
                let offset = offset.ok_or_else(|| refused(in_domain, has_rights))?;
                Ok(View::Pages { list, adapter: region.adapter, offset })
            }
        }
    }

    /// Logical addresses of one mapping of one adapter, whichever open it was built on.
    fn stretch(self, address: LogicalAddress, length: u64, adapter: u32) -> Option<Stretch<'g, P>> {
        let key = SlotKey { slot: address.slot(), generation: address.generation() };
        let mapping = self.tables.mappings.get(key, self.guard)?;
        let offset = mapping.place(u64::from(address.offset()), length)?;
        (mapping.adapter == adapter).then_some((&mapping.memory, offset))
    }

    /// The stretch that begins `at` bytes into the view, at most `most` (at least one) bytes long.
    #[inline]
    pub(crate) fn span(self, view: &View<'g, P>, at: u64, most: u64) -> Result<Span<'g, P>, AccessFault> {
        match view {
            View::Memory(memory, offset) => Ok((*memory, offset.checked_add(at).ok_or(AccessFault::Bounds)?, most)),
            View::Pages { list, adapter, offset } => {
                self.pages(list, *adapter, offset.checked_add(at).ok_or(AccessFault::Bounds)?, most)
            }
        }
    }

    /// Neighbouring pages of a list that are neighbours in one mapping too are one stretch.
    fn pages(self, list: &'g PageList, adapter: u32, at: u64, most: u64) -> Result<Span<'g, P>, AccessFault> {
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
