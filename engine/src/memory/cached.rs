//! Grants of `access.rs`, cached from one access to the next.
//!
//! The accesses of a queue pair mostly name the same memory, so the last grant is tried first. Where neither it nor a new one covers an
//! access, the caller walks the spans of the access instead, which knows every kind of memory and says why an access is refused.
//!
//! Rule: a grant is good as long as the context stays inside the epoch, also when it has been revoked meanwhile: the revocation
//! is complete only when this context has left.

use softndk_cells::{Cached, Guard};

use crate::flags::Rights;
use crate::memory::access::{Access, Accessor, Extent, Grant, GrantSource, Side, Stretch};
use crate::memory::memory_region::TokenEntry;
use crate::memory::tables::Tables;
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;
use crate::token::MemoryToken;

/// The last grant, from one service pass to the next.
pub(crate) struct CachedGrant<P: Platform> {
    extent: Extent,
    /// The memory is in the table of mappings; else in that of tokens.
    is_mapping: bool,
    memory: Cached<P::Memory>,
}

impl<P: Platform> CachedGrant<P> {
    pub(crate) fn new(scheduler: &Scheduler<P>) -> Self {
        Self { extent: Extent::NOTHING, is_mapping: false, memory: Cached::new(scheduler.epoch().clone()) }
    }

    /// The memory, unless something has been retired since.
    #[inline]
    fn get<'g>(&self, tables: &'g Tables<P>, guard: &'g Guard<'_>) -> Option<&'g P::Memory> {
        if self.is_mapping { self.memory.get(&tables.mappings, guard) } else { self.memory.get(&tables.tokens, guard) }
    }

    /// Keeps a grant that says what it depends on; any other leaves the one before, which is as good as it was.
    fn put(&mut self, grant: &Grant<'_, P>, tables: &Tables<P>, guard: &Guard<'_>) {
        let (is_there, is_mapping) = match grant.source {
            None => return,
            Some(GrantSource::Token(key)) => {
                (self.memory.find(&tables.tokens, key, guard, registered).is_some(), false)
            }
            Some(GrantSource::Mapping(key)) => {
                (self.memory.find(&tables.mappings, key, guard, |mapping| Some(&mapping.memory)).is_some(), true)
            }
        };
        self.is_mapping = is_mapping;
        self.extent = if is_there { grant.extent } else { Extent::NOTHING };
    }
}

fn registered<P: Platform>(entry: &TokenEntry<P>) -> Option<&P::Memory> {
    if let TokenEntry::Registered(region) = entry { Some(&region.memory) } else { None }
}

/// The accesses of one side of one end of a connection.
pub(crate) struct CachedAccessor<'g, P: Platform> {
    accessor: Accessor<'g, P>,
    side: Side,
    cached: &'g mut CachedGrant<P>,
    known: Option<Known<'g, P>>,
}

impl<'g, P: Platform> CachedAccessor<'g, P> {
    #[inline]
    pub(crate) fn new(accessor: Accessor<'g, P>, side: Side, cached: &'g mut CachedGrant<P>) -> Self {
        let known = cached.get(accessor.tables, accessor.guard).map(|memory| Known { extent: cached.extent, memory });
        Self { accessor, side, cached, known }
    }

    /// The stretch that an access may touch; `None` where it is refused, has no bytes, or lies in several stretches.
    #[inline]
    pub(crate) fn find(
        &mut self,
        token: MemoryToken,
        address: u64,
        length: u64,
        needed: Rights,
    ) -> Option<Stretch<'g, P>> {
        let access = Access { token, address, length, needed };
        if let Some(known) = &self.known
            && let Some(found) = known.stretch(access)
        {
            return Some(found);
        }
        self.known = self.resolve(token, address, length, needed);
        self.known.as_ref()?.stretch(access)
    }

    #[cold]
    #[inline(never)]
    fn resolve(&mut self, token: MemoryToken, address: u64, length: u64, needed: Rights) -> Option<Known<'g, P>> {
        let Accessor { tables, guard, .. } = self.accessor;
        // Made here: a caller that finds the grant in the cache stores nothing.
        let access = Access { token, address, length, needed };
        let grant = self.accessor.grant(&access, self.side).ok()?;
        self.cached.put(&grant, tables, guard);
        let Grant { extent, memory, .. } = grant;
        Some(Known { extent, memory })
    }
}

struct Known<'g, P: Platform> {
    extent: Extent,
    memory: &'g P::Memory,
}

impl<'g, P: Platform> Known<'g, P> {
    #[inline]
    fn stretch(&self, access: Access) -> Option<Stretch<'g, P>> {
        Some((self.memory, self.extent.offset_of(access)?))
    }
}
