//! Finding memory that lies in one stretch, again and again.
//!
//! The accesses of a queue pair mostly name the same memory, so the stretch in which the last one was is tried first. It makes the
//! checks of `access.rs` for the common kinds of memory; where it finds nothing the long way has to be gone, which knows every
//! kind and says why an access is refused.
//!
//! Rule: what was found is good as long as the context stays inside the epoch, also when it has been revoked meanwhile: the
//! revocation is complete only when this context has left.

use softndk_cells::SlotKey;

use crate::flags::Rights;
use crate::memory::access::{Accessor, inside};
use crate::memory::memory_region::{FastRegion, TokenEntry};
use crate::platform::Platform;
use crate::token::{LogicalAddress, MemoryToken};

/// Addresses under one token that follow one another in mapped memory.
struct Known<'g, P: Platform> {
    base: u64,
    length: u64,
    rights: Rights,
    memory: &'g P::Memory,
    /// Where the first of them is in the memory.
    offset: u64,
}

/// See the module.
pub(crate) struct Finder<'g, P: Platform> {
    accessor: Accessor<'g, P>,
    /// The accesses are a peer's: the privileged token is none of its tokens.
    is_remote: bool,
    token: MemoryToken,
    known: Option<Known<'g, P>>,
}

impl<'g, P: Platform> Finder<'g, P> {
    /// For scatter/gather elements.
    pub(crate) fn local(accessor: Accessor<'g, P>) -> Self {
        Self { accessor, is_remote: false, token: MemoryToken::NONE, known: None }
    }

    /// For what a peer names.
    pub(crate) fn remote(accessor: Accessor<'g, P>) -> Self {
        Self { is_remote: true, ..Self::local(accessor) }
    }

    /// `length` bytes from an address on, where an access with the rights that are `needed` may touch them and they lie in one
    /// stretch: the memory, and the offset in it. Not for none: an access without bytes is not checked at all.
    #[inline]
    pub(crate) fn find(
        &mut self,
        token: MemoryToken,
        address: u64,
        length: u64,
        needed: Rights,
    ) -> Option<(&'g P::Memory, u64)> {
        if token == self.token
            && let Some(found) = self.known.as_ref().and_then(|known| known.stretch(address, length, needed))
        {
            return Some(found);
        }
        self.token = token;
        self.known = self.look_up(token, address, length);
        self.known.as_ref()?.stretch(address, length, needed)
    }

    #[inline(never)]
    fn look_up(&self, token: MemoryToken, address: u64, length: u64) -> Option<Known<'g, P>> {
        let Accessor { tables, guard, domain, .. } = self.accessor;
        let key = SlotKey { slot: token.slot(), generation: token.generation() };
        match tables.tokens.get(key, guard)? {
            TokenEntry::Privileged { domain: of, adapter } if *of == domain && !self.is_remote => {
                let first = address & !u64::from(u32::MAX);
                self.mapped(LogicalAddress(first), u64::MAX, *adapter, first, Rights::all())
            }
            TokenEntry::Registered(region) if region.domain == domain => Some(Known {
                base: region.base,
                length: region.length,
                rights: region.rights,
                memory: &region.memory,
                offset: 0,
            }),
            TokenEntry::Fast(region) if region.domain == domain => self.pages(region, address, length),
            _ => None,
        }
    }

    /// The run of pages in which the access begins.
    fn pages(&self, region: &'g FastRegion, address: u64, length: u64) -> Option<Known<'g, P>> {
        let list = region.buffers.read(self.accessor.guard)?;
        if let Some(start) = list.whole() {
            let most = list.length;
            return self.mapped(start, most, region.adapter, list.base, list.rights);
        }
        let at = list.first_byte_offset.checked_add(inside(list.base, list.length, address, length)?)?;
        let (start, most) = list.run_from(at, length)?;
        self.mapped(start, most, region.adapter, address, list.rights)
    }

    /// At most `most` bytes of a mapping from a logical address on, which are named from `base` on.
    fn mapped(
        &self,
        start: LogicalAddress,
        most: u64,
        adapter: u32,
        base: u64,
        rights: Rights,
    ) -> Option<Known<'g, P>> {
        let key = SlotKey { slot: start.slot(), generation: start.generation() };
        let mapping = self.accessor.tables.mappings.get(key, self.accessor.guard)?;
        let offset = u64::from(start.offset());
        let length = mapping.length.checked_sub(offset)?.min(most);
        let known = Known { base, length, rights, memory: &mapping.memory, offset };
        (mapping.adapter == adapter).then_some(known)
    }
}

impl<'g, P: Platform> Known<'g, P> {
    #[inline]
    fn stretch(&self, address: u64, length: u64, needed: Rights) -> Option<(&'g P::Memory, u64)> {
        let offset = inside(self.base, self.length, address, length)?;
        let offset = self.offset.checked_add(offset)?;
        (self.rights.contains(needed) && length > 0).then_some((self.memory, offset))
    }
}
