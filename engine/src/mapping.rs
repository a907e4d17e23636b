//! Logical mappings: memory published under logical addresses.
//!
//! What it is: what stands behind NdkBuildLAM. The table entry holds the mapped memory and is read by index during transfers;
//! the builder's object waits, after the release, until nobody copies any more. What it is not: a list of pages; page *i* is
//! the first address plus *i* pages, so a scatter/gather element may run over neighbouring pages.

use softndk_cells::{NoMemory, Removed, Shared, SlotKey};

use crate::cause::RegionError;
use crate::event::{Retired, Sink};
use crate::fabric::Fabric;
use crate::life::{Hold, Object};
use crate::limits;
use crate::opening::OpeningObject;
use crate::platform::{Lock, Memory, Platform};
use crate::token::LogicalAddress;

/// The table entry.
pub(crate) struct Mapping<P: Platform> {
    pub(crate) memory: P::Memory,
    pub(crate) length: u64,
    /// The opening that built it, as a number.
    pub(crate) opening: usize,
}

/// The builder's side: waits for the readers after the release.
pub(crate) struct MappingObject<P: Platform> {
    fabric: Fabric<P>,
    opening: usize,
    key: SlotKey,
    leaving: P::Lock<Leaving<P>>,
}

struct Leaving<P: Platform> {
    hold: Option<Hold<P>>,
    removed: Option<Removed>,
}

/// What [`Opening::build_mapping`](crate::Opening::build_mapping) made: page *i* is `first` plus *i* pages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogicalMapping {
    pub first: LogicalAddress,
    pub pages: u32,
}

/// Publishes memory; it comes back when there is no room.
pub(crate) fn build<P: Platform>(
    opening: &Shared<OpeningObject<P>>,
    memory: P::Memory,
) -> Result<LogicalMapping, (RegionError, P::Memory)> {
    let fabric = &opening.core.fabric;
    let length = memory.length();
    if length == 0 || length > limits::MAPPING_LENGTH {
        return Err((RegionError::BadLength, memory));
    }
    let pages = length.div_ceil(limits::PAGE) as u32;
    let Ok(vacant) = fabric.0.mappings.vacant() else { return Err((RegionError::NoResources, memory)) };
    let key = vacant.key();
    let hold = Hold::new(Object::Opening(opening.clone()));
    let leaving = P::Lock::new(Leaving { hold: Some(hold), removed: None });
    let builder = MappingObject { fabric: fabric.clone(), opening: opening.address(), key, leaving };
    if enter_builder(fabric, builder).is_err() {
        return Err((RegionError::NoResources, memory));
    }
    vacant.fill(Mapping { memory, length, opening: opening.address() });
    Ok(LogicalMapping { first: LogicalAddress::new(key.slot, key.generation, 0), pages })
}

/// Notes who built the mapping in a slot.
fn enter_builder<P: Platform>(fabric: &Fabric<P>, builder: MappingObject<P>) -> Result<(), NoMemory> {
    let slot = builder.key.slot as usize;
    let builder = Shared::try_new(builder)?;
    fabric.0.builders.with(|builders| {
        let missing = (slot + 1).saturating_sub(builders.len());
        builders.try_reserve(missing)?;
        builders.extend((0..missing).map(|_| None));
        if let Some(place) = builders.get_mut(slot) {
            *place = Some(builder);
        }
        Ok(())
    })
}

/// Revokes the mapping that an address lies in; false when the opening has none there.
pub(crate) fn release<P: Platform>(opening: &Shared<OpeningObject<P>>, address: LogicalAddress) -> bool {
    let fabric = &opening.core.fabric;
    let key = SlotKey { slot: address.slot(), generation: address.generation() };
    let builder = fabric.0.builders.with(|builders| {
        let place = builders.get_mut(key.slot as usize)?;
        place.take_if(|builder| builder.key == key && builder.opening == opening.address())
    });
    let Some(builder) = builder else { return false };
    let Some(removed) = fabric.0.mappings.remove(key) else { return false };
    builder.leaving.with(|leaving| leaving.removed = Some(removed));
    fabric.link_mapping(&builder);
    true
}

/// Hands the memory of a released mapping out when nobody copies any more.
pub(crate) fn look_at<P: Platform>(mapping: &Shared<MappingObject<P>>, sink: &mut impl Sink<P>) {
    let fabric = &mapping.fabric;
    let Some(removed) = mapping.leaving.with(|leaving| leaving.removed.take()) else { return };
    match fabric.0.mappings.reclaim(removed) {
        Ok(entry) => {
            if let Some(hold) = mapping.leaving.with(|leaving| leaving.hold.take()) {
                sink.retired(Retired { memory: entry.memory, callback: None, hold });
            }
        }
        Err(removed) => {
            let stamp = removed.stamp();
            mapping.leaving.with(|leaving| leaving.removed = Some(removed));
            fabric.park_mapping(mapping, stamp);
        }
    }
}
