//! Finding memory that lies in one stretch, again and again.
//!
//! The accesses of a queue pair mostly name the same memory, so the stretch in which the last one was is tried first. It makes the
//! checks of `access.rs` for the common kinds of memory; where it finds nothing the long way has to be gone, which knows every
//! kind and says why an access is refused.
//!
//! Rule: what was found is good as long as the context stays inside the epoch, also when it has been revoked meanwhile: the
//! revocation is complete only when this context has left.

use softndk_cells::{Guard, Kept, SlotKey};

use crate::adapter::adapter::LogicalPages;
use crate::flags::Rights;
use crate::memory::access::{Accessor, inside};
use crate::memory::mapping::Mapping;
use crate::memory::memory_region::{FastRegion, TokenEntry};
use crate::memory::tables::Tables;
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;
use crate::token::{LogicalAddress, MemoryToken};

/// Addresses under one token that follow one another in mapped memory.
#[derive(Clone, Copy)]
struct Named {
    token: MemoryToken,
    rights: Rights,
    base: u64,
    length: u64,
    /// Where the first of them is in the memory.
    offset: u64,
}

impl Named {
    const NOTHING: Self = Self { token: MemoryToken::NONE, rights: Rights::empty(), base: 0, length: 0, offset: 0 };
}

/// The stretch that was found last, kept from one turn of a context to the next.
pub(crate) struct KeptStretch<P: Platform> {
    named: Named,
    /// The token names a mapping by its logical addresses, or pages of one; else it names the memory itself.
    is_mapping: bool,
    memory: Kept<P::Memory>,
}

impl<P: Platform> KeptStretch<P> {
    pub(crate) fn new(scheduler: &Scheduler<P>) -> Self {
        Self { named: Named::NOTHING, is_mapping: false, memory: Kept::new(scheduler.epoch().clone()) }
    }

    /// The stretch, unless something has been retired since.
    #[inline]
    fn get<'g>(&self, tables: &'g Tables<P>, guard: &'g Guard<'_>) -> Option<Known<'g, P>> {
        let memory = if self.is_mapping {
            self.memory.get(&tables.mappings, guard)
        } else {
            self.memory.get(&tables.tokens, guard)
        };
        memory.map(|memory| Known { named: self.named, memory })
    }
}

struct Known<'g, P: Platform> {
    named: Named,
    memory: &'g P::Memory,
}

/// See the module.
pub(crate) struct Finder<'g, P: Platform> {
    accessor: Accessor<'g, P>,
    /// The accesses are a peer's: the privileged token is none of its tokens.
    is_remote: bool,
    kept: &'g mut KeptStretch<P>,
    known: Option<Known<'g, P>>,
}

impl<'g, P: Platform> Finder<'g, P> {
    /// For scatter/gather elements. `kept` is used for one end of one connection and for one kind of accesses only.
    #[inline]
    pub(crate) fn local(accessor: Accessor<'g, P>, kept: &'g mut KeptStretch<P>) -> Self {
        let known = kept.get(accessor.tables, accessor.guard);
        Self { accessor, is_remote: false, kept, known }
    }

    /// For what a peer names.
    #[inline]
    pub(crate) fn remote(accessor: Accessor<'g, P>, kept: &'g mut KeptStretch<P>) -> Self {
        Self { is_remote: true, ..Self::local(accessor, kept) }
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
        if let Some(known) = &self.known
            && let Some(found) = known.stretch(token, address, length, needed)
        {
            return Some(found);
        }
        self.known = self.look_up(token, address, length);
        self.known.as_ref()?.stretch(token, address, length, needed)
    }

    #[inline(never)]
    fn look_up(&mut self, token: MemoryToken, address: u64, length: u64) -> Option<Known<'g, P>> {
        let Accessor { tables, guard, domain, .. } = self.accessor;
        let key = SlotKey { slot: token.slot(), generation: token.generation() };
        let named = Named { token, ..Named::NOTHING };
        self.kept.is_mapping = false;
        let known = match self.kept.memory.find(&tables.tokens, key, guard, registered)? {
            TokenEntry::Privileged { domain: of, adapter } if *of == domain && !self.is_remote => {
                let first = address & !u64::from(u32::MAX);
                let named = Named { rights: Rights::all(), base: first, length: u64::MAX, ..named };
                self.mapped(LogicalAddress(first), *adapter, named)
            }
            TokenEntry::Registered(region) if region.domain == domain => {
                let named = Named { rights: region.rights, base: region.base, length: region.length, ..named };
                Some(Known { named, memory: &region.memory })
            }
            TokenEntry::Fast(region) if region.domain == domain => self.pages(region, named, address, length),
            _ => None,
        };
        self.kept.named = known.as_ref().map_or(Named::NOTHING, |known| known.named);
        known
    }

    /// The run of pages in which the access begins.
    fn pages(&mut self, region: &'g FastRegion, named: Named, address: u64, length: u64) -> Option<Known<'g, P>> {
        let list = region.buffers.read(self.accessor.guard)?;
        let named = Named { rights: list.rights, ..named };
        if let Some(start) = list.whole() {
            return self.mapped(start, region.adapter, Named { base: list.base, length: list.length, ..named });
        }
        let at = list.first_byte_offset.checked_add(inside(list.base, list.length, address, length)?)?;
        let (start, most) = list.run_from(at, length)?;
        self.mapped(start, region.adapter, Named { base: address, length: most, ..named })
    }

    /// At most as many bytes as are named of a mapping from a logical address on.
    fn mapped(&mut self, start: LogicalAddress, adapter: u32, named: Named) -> Option<Known<'g, P>> {
        let Accessor { tables, guard, .. } = self.accessor;
        let key = SlotKey { slot: start.slot(), generation: start.generation() };
        self.kept.is_mapping = true;
        let mapping =
            self.kept.memory.find(&tables.mappings, key, guard, |mapping: &Mapping<P>| Some(&mapping.memory))?;
        if mapping.pages != LogicalPages::Adjoining {
            // Page by page, on the long way.
            return None;
        }
        let offset = u64::from(start.offset());
        let length = mapping.length.checked_sub(offset)?.min(named.length);
        let known = Known { named: Named { length, offset, ..named }, memory: &mapping.memory };
        (mapping.adapter == adapter).then_some(known)
    }
}

fn registered<P: Platform>(entry: &TokenEntry<P>) -> Option<&P::Memory> {
    if let TokenEntry::Registered(region) = entry { Some(&region.memory) } else { None }
}

impl<'g, P: Platform> Known<'g, P> {
    #[inline]
    fn stretch(&self, token: MemoryToken, address: u64, length: u64, needed: Rights) -> Option<(&'g P::Memory, u64)> {
        let Named { token: named, rights, base, length: size, offset } = self.named;
        let inside = inside(base, size, address, length)?;
        let offset = offset.checked_add(inside)?;
        (named == token && rights.contains(needed) && length > 0).then_some((self.memory, offset))
    }
}
