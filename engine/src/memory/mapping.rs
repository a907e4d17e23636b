//! Logical mappings: memory published under logical addresses (NdkBuildLAM).
//!
//! The table entry holds the mapped memory and is read by index during transfers; the builder's object waits, after the
//! release, until no context copies any more. Where page *i* is depends on the adapter's [`LogicalPages`].

use softndk_cells::{Dispose, Last, Removed, Shared, SlotKey, Stamp, View};

use crate::adapter::adapter::LogicalPages;
use crate::adapter::open::OpenObject;
use crate::error::RegionError;
use crate::limits;
use crate::limits::REGISTRY_STEP;
use crate::memory::tables::Tables;
use crate::object::event::{Retired, ServicePass, Sink};
use crate::object::header::{AnyObject, Core, Hold, Object};
use crate::platform::{Lock, Memory, Platform};
use crate::token::LogicalAddress;

/// The table entry.
pub(crate) struct Mapping<P: Platform> {
    pub(crate) memory: P::Memory,
    pub(crate) length: u64,
    /// The adapter it was built on, as a number: the addresses are good for all of its opens.
    pub(crate) adapter: u32,
    pub(crate) pages: LogicalPages,
}

impl<P: Platform> Mapping<P> {
    /// Where `length` bytes from an offset among the addresses on are in the memory.
    pub(crate) fn memory_offset(&self, offset: u64, length: u64) -> Option<u64> {
        let ends = offset.checked_add(length)? <= self.length;
        match self.pages {
            LogicalPages::Adjoining => ends.then_some(offset),
            LogicalPages::Scattered => {
                let inside = offset % limits::PAGE;
                let page = self.length.checked_sub(limits::PAGE)?.checked_sub(offset.checked_sub(inside)?)?;
                (inside.checked_add(length)? <= limits::PAGE).then_some(page.checked_add(inside)?)
            }
        }
    }
}

/// The builder's side: waits for the readers after the release.
pub(crate) struct MappingObject<P: Platform> {
    tables: Shared<Tables<P>>,
    adapter: u32,
    /// The number of the open that built it; it is released with that open.
    open: usize,
    key: SlotKey,
    leaving: P::Lock<LeavingMapping<P>>,
}

struct LeavingMapping<P: Platform> {
    hold: Option<Hold<P>>,
    removed: Option<Removed>,
}

/// What [`Open::build_mapping`](crate::Open::build_mapping) made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogicalMapping {
    /// The lowest address, by which it is released.
    pub first: LogicalAddress,
    pub pages: u32,
    pub order: LogicalPages,
}

impl LogicalMapping {
    /// The address of a page of the memory.
    #[must_use]
    pub const fn address_of(&self, page: u32) -> LogicalAddress {
        let place = match self.order {
            LogicalPages::Adjoining => page,
            LogicalPages::Scattered => self.pages.saturating_sub(1).saturating_sub(page),
        };
        LogicalAddress(self.first.0.wrapping_add((place as u64).wrapping_mul(limits::PAGE)))
    }
}

/// Publishes memory; the memory comes back when the table is full.
pub(crate) fn build<P: Platform>(
    tables: &Shared<Tables<P>>,
    open: &Shared<OpenObject<P>>,
    memory: P::Memory,
) -> Result<LogicalMapping, (RegionError, P::Memory)> {
    let length = memory.length();
    let order = open.adapter.logical_pages;
    let is_whole = order == LogicalPages::Adjoining || length % limits::PAGE == 0;
    if length == 0 || length > limits::MAPPING_LENGTH || !is_whole {
        return Err((RegionError::BadLength, memory));
    }
    let pages = length.div_ceil(limits::PAGE) as u32;
    let Ok(vacant) = tables.mappings.vacant() else { return Err((RegionError::NoResources, memory)) };
    let key = vacant.key();
    let hold = Hold::new(Object::of(open));
    let leaving = P::Lock::new(LeavingMapping { hold: Some(hold), removed: None });
    let adapter = open.adapter.number;
    let builder = MappingObject { tables: tables.clone(), adapter, open: open.address(), key, leaving };
    let Ok(builder) = Shared::try_new(builder) else { return Err((RegionError::NoResources, memory)) };
    let published = tables.builders.with(|builders| {
        // Under this lock, because a close marks the open before it looks for its mappings: either the close finds this
        // mapping, or this check sees the close.
        if open.core.is_closing() {
            return Err((RegionError::Closing, memory, builder));
        }
        let slot = key.slot as usize;
        while builders.len() <= slot {
            if builders.push(None).is_err() {
                return Err((RegionError::NoResources, memory, builder));
            }
        }
        if let Some(place) = builders.get_mut(slot) {
            *place = Some(builder);
        }
        // A context that finds the builder finds the entry too.
        vacant.fill(Mapping { memory, length, adapter, pages: order });
        Ok(())
    });
    match published {
        Ok(()) => Ok(LogicalMapping { first: LogicalAddress::new(key.slot, key.generation, 0), pages, order }),
        // The builder and its hold are dropped here, outside the lock.
        Err((error, memory, _builder)) => Err((error, memory)),
    }
}

/// A mapping that is revoked and possibly still in use by a copy. Dropping it leaves the rest to a service pass.
#[must_use = "dropping it leaves the memory to a service pass"]
pub struct Releasing<P: Platform>(Shared<MappingObject<P>>);

/// Another context may be copying from or to the mapping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StillCopied;

impl<P: Platform> Releasing<P> {
    /// The memory, once nothing copies any more; `None` after that. A context that is inside stays for one piece of copying at
    /// most.
    pub fn try_finish(&self) -> Result<Option<Retired<P>>, StillCopied> {
        self.0.finish().map_err(|_stamp| StillCopied)
    }
}

impl<P: Platform> Drop for Releasing<P> {
    fn drop(&mut self) {
        if self.0.leaving.with(|leaving| leaving.removed.is_some()) {
            self.0.tables.scheduler.link(&Object::of(&self.0));
        }
    }
}

/// Revokes the mapping that an address lies in, if the open's adapter has one there. Whichever open built it: a release cannot
/// report anything, and its consumer takes the memory back.
pub(crate) fn release<P: Platform>(
    tables: &Tables<P>,
    open: &Shared<OpenObject<P>>,
    address: LogicalAddress,
) -> Option<Releasing<P>> {
    let key = SlotKey { slot: address.slot(), generation: address.generation() };
    let builder = tables.builders.with(|builders| {
        let place = builders.get_mut(key.slot as usize)?;
        place.take_if(|builder| builder.key == key && builder.adapter == open.adapter.number)
    });
    builder.and_then(|builder| revoke(&builder))
}

/// Revokes every mapping of an open that is being closed: those whose build finished after the close began, and those that its
/// consumer did not release.
pub(crate) fn release_all<P: Platform>(tables: &Tables<P>, open: &Shared<OpenObject<P>>) {
    let mut from = 0_usize;
    loop {
        let found = tables.builders.with(|builders| {
            let end = builders.len().min(from.saturating_add(REGISTRY_STEP));
            for slot in from..end {
                let place = builders.get_mut(slot)?;
                if let Some(builder) = place.take_if(|builder| builder.open == open.address()) {
                    return Some((slot.saturating_add(1), Some(builder)));
                }
            }
            (from < end).then_some((end, None))
        });
        let Some((next, builder)) = found else { return };
        from = next;
        drop(builder.as_ref().and_then(revoke));
    }
}

/// Takes the entry out of the table.
fn revoke<P: Platform>(builder: &Shared<MappingObject<P>>) -> Option<Releasing<P>> {
    let removed = builder.tables.mappings.remove(builder.key)?;
    builder.leaving.with(|leaving| leaving.removed = Some(removed));
    Some(Releasing(builder.clone()))
}

impl<P: Platform> MappingObject<P> {
    /// Takes the memory of a released mapping out when no context copies any more; else returns the stamp to wait for.
    fn finish(&self) -> Result<Option<Retired<P>>, Stamp> {
        let Some(removed) = self.leaving.with(|leaving| leaving.removed.take()) else { return Ok(None) };
        match self.tables.mappings.reclaim(removed) {
            Ok(entry) => {
                let hold = self.leaving.with(|leaving| leaving.hold.take());
                Ok(hold.map(|hold| Retired { memory: entry.memory, callback: None, hold }))
            }
            Err(removed) => {
                let stamp = removed.stamp();
                self.leaving.with(|leaving| leaving.removed = Some(removed));
                Err(stamp)
            }
        }
    }
}

impl<P: Platform> Dispose for MappingObject<P> {
    fn dispose(last: Last<Self>) {
        let scheduler = last.tables.scheduler.clone();
        scheduler.dispose(last.into());
    }
}

impl<P: Platform> View for MappingObject<P> {
    type As = dyn AnyObject<P>;

    fn view(object: &Shared<Self>) -> &Self::As {
        object
    }
}

impl<P: Platform> AnyObject<P> for Shared<MappingObject<P>> {
    fn core(&self) -> Option<&Core<P>> {
        None
    }

    fn work(&self, pass: &mut ServicePass<'_, P>) {
        service(self, pass.sink);
    }
}

/// Hands the memory of a released mapping out when no context copies any more.
fn service<P: Platform>(mapping: &Shared<MappingObject<P>>, sink: &mut dyn Sink<P>) {
    match mapping.finish() {
        Ok(Some(retired)) => sink.retired(retired),
        Ok(None) => {}
        Err(stamp) => mapping.tables.scheduler.park(&Object::of(mapping), stamp),
    }
}
