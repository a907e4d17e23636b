//! Protection domains: which objects may be used together.
//!
//! A domain is the number that regions, windows, queue pairs and the privileged token share, and the parent of the first two.

use softndk_cells::{NoMemory, Removed, Shared, SlotTable};

use crate::adapter::open::OpenObject;
use crate::blocks::Blocks;
use crate::error::CreateError;
use crate::limits::DISPOSE_STEP;
use crate::memory::memory_region::{MemoryRegion, TokenEntry};
use crate::memory::memory_window::MemoryWindow;
use crate::memory::tables::Tables;
use crate::object::event::Close;
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::ObjectKind;
use crate::platform::{Lock, Platform};
use crate::token::MemoryToken;

pub(crate) struct DomainObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) open: Shared<OpenObject<P>>,
    pub(crate) tables: Shared<Tables<P>>,
    /// The number that regions and queue pairs of this domain carry: the key of its privileged token.
    pub(crate) number: MemoryToken,
}

/// A protection domain.
pub struct ProtectionDomain<P: Platform>(pub(crate) Shared<DomainObject<P>>);

impl<P: Platform> Clone for ProtectionDomain<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> ProtectionDomain<P> {
    pub(crate) fn create(
        tables: &Shared<Tables<P>>,
        open: &Shared<OpenObject<P>>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        open.adapter.ready()?;
        tables.retired_slots.with(|retired_slots| retired_slots.prepare(&tables.tokens))?;
        let domain = Self::create_expected(tables, open, consumer_object);
        if domain.is_err() {
            tables.retired_slots.with(RetiredSlots::cancel);
        }
        domain
    }

    /// As [`Self::create`], once the capacity for its removal is reserved.
    fn create_expected(
        tables: &Shared<Tables<P>>,
        open: &Shared<OpenObject<P>>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &open.adapter;
        let vacant = tables.tokens.vacant()?;
        let number = tables.seal.token(vacant.key());
        let antecedents = Antecedents::none().with(Object::of(open));
        let core = adapter.core(ObjectKind::ProtectionDomain, Some(consumer_object), antecedents);
        let domain = Shared::try_new(DomainObject { core, open: open.clone(), tables: tables.clone(), number })?;
        adapter.register(&Object::of(&domain))?;
        vacant.fill(TokenEntry::Privileged { domain: number, adapter: adapter.number });
        Ok(Self(domain))
    }

    /// Grants local access to logical addresses, never remote access.
    pub fn privileged_token(&self) -> MemoryToken {
        self.0.number
    }

    pub fn create_memory_region(
        &self,
        fast_register: bool,
        consumer_object: P::ConsumerObject,
    ) -> Result<MemoryRegion<P>, CreateError> {
        MemoryRegion::create(&self.0, fast_register, consumer_object)
    }

    pub fn create_memory_window(&self, consumer_object: P::ConsumerObject) -> Result<MemoryWindow<P>, CreateError> {
        MemoryWindow::create(&self.0, consumer_object)
    }

    /// Keeps the close from completing while something of the front end's own is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || {})
    }
}

impl<P: Platform> Drop for DomainObject<P> {
    /// The last pointer is dropped, and with it every queue pair that could use the token; only guesses may still find it.
    fn drop(&mut self) {
        let tables = &self.tables;
        let key = tables.seal.key(self.number);
        // A domain that was never published has an empty slot under its key, or another domain's under a newer one.
        let Some(removed) = tables.tokens.remove(key) else { return };
        tables.retired_slots.with(|retired_slots| retired_slots.retire(&tables.tokens, removed));
    }
}

object!(DomainObject {});

/// Slots of domains that are gone while a context was still inside the epoch; reused when the next domain is made.
pub(crate) struct RetiredSlots {
    /// Domains that exist or are being made; each has its place reserved in `removed`.
    live: usize,
    removed: Blocks<Removed>,
}

impl RetiredSlots {
    pub(crate) const fn new() -> Self {
        Self { live: 0, removed: Blocks::new() }
    }

    /// Frees some of what has become free, reserves the place of one more domain in `removed`, and counts it: two that are made at a
    /// time reserve two.
    fn prepare<T>(&mut self, tokens: &SlotTable<T>) -> Result<(), NoMemory> {
        for _ in 0..DISPOSE_STEP {
            match self.removed.pop().map(|removed| tokens.reclaim(removed)) {
                Some(Ok(entry)) => drop(entry),
                Some(Err(removed)) => {
                    // The place is the one it was popped from.
                    let kept = self.removed.push_within_capacity(removed);
                    debug_assert!(kept.is_ok());
                    break;
                }
                None => break,
            }
        }
        self.removed.reserve(self.removed.len().saturating_add(self.live + 1))?;
        self.live += 1;
        Ok(())
    }

    /// The domain that a place was reserved for is not made.
    fn cancel(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    fn retire<T>(&mut self, tokens: &SlotTable<T>, removed: Removed) {
        self.live = self.live.saturating_sub(1);
        match tokens.reclaim(removed) {
            Ok(entry) => drop(entry),
            Err(removed) => {
                // `prepare` reserved a place for every living domain.
                let kept = self.removed.push_within_capacity(removed);
                debug_assert!(kept.is_ok());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use softndk_cells::{Epoch, Shared, SlotTable};

    use super::RetiredSlots;

    /// Both are prepared before either is there: what two processors do at a time.
    #[test]
    fn domains_that_are_made_at_a_time_all_have_a_place_for_their_removal() {
        let epoch = Shared::try_new(Epoch::try_new(1).unwrap()).unwrap();
        let tokens = SlotTable::try_new(64, 3, epoch.clone()).unwrap();
        let mut retired_slots = RetiredSlots::new();
        let keys: Vec<_> = (0..20)
            .map(|number| {
                retired_slots.prepare(&tokens).unwrap();
                assert!(retired_slots.removed.capacity() >= retired_slots.live);
                tokens.insert(number).unwrap()
            })
            .collect();
        let capacity = retired_slots.removed.capacity();
        assert!(capacity >= keys.len(), "capacity {capacity}");
        let guard = epoch.enter(0);
        for key in &keys {
            retired_slots.retire(&tokens, tokens.remove(*key).unwrap());
        }
        assert_eq!((retired_slots.removed.len(), retired_slots.live), (keys.len(), 0));
        drop(guard);
        retired_slots.prepare(&tokens).unwrap();
        assert_eq!((retired_slots.removed.len(), retired_slots.live), (0, 1));
        retired_slots.cancel();
        assert_eq!(retired_slots.live, 0);
    }
}
