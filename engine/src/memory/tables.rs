//! The tables behind memory tokens and logical addresses, one of each for all adapters of a fabric.

use softndk_cells::{Dispose, NoMemory, Shared, SlotTable};

use crate::blocks::Blocks;
use crate::memory::mapping::{Mapping, MappingObject};
use crate::memory::memory_region::TokenEntry;
use crate::memory::protection_domain::RetiredSlots;
use crate::object::scheduler::Scheduler;
use crate::platform::{Lock, Platform};
use crate::token::{LogicalAddress, MemoryToken, TokenSeal};

pub(crate) struct Tables<P: Platform> {
    pub(crate) scheduler: Scheduler<P>,
    pub(crate) seal: TokenSeal,
    /// What memory tokens name.
    pub(crate) tokens: SlotTable<TokenEntry<P>>,
    /// What logical addresses name.
    pub(crate) mappings: SlotTable<Mapping<P>>,
    /// The builder of the mapping in each slot.
    pub(crate) builders: P::Lock<Blocks<Option<Shared<MappingObject<P>>>>>,
    pub(crate) retired_slots: P::Lock<RetiredSlots>,
}

impl<P: Platform> Dispose for Tables<P> {}

impl<P: Platform> Tables<P> {
    pub(crate) fn try_new(scheduler: &Scheduler<P>) -> Result<Shared<Self>, NoMemory> {
        let epoch = scheduler.epoch();
        let generations = |bits: u32| (1 << bits) - 1;
        Shared::try_new(Self {
            scheduler: scheduler.clone(),
            seal: TokenSeal::new(scheduler.platform().secret()?),
            tokens: SlotTable::try_new(
                1 << MemoryToken::SLOT_BITS,
                generations(MemoryToken::GENERATION_BITS),
                epoch.clone(),
            )?,
            mappings: SlotTable::try_new(
                1 << LogicalAddress::SLOT_BITS,
                generations(LogicalAddress::GENERATION_BITS),
                epoch.clone(),
            )?,
            builders: P::Lock::new(Blocks::new()),
            retired_slots: P::Lock::new(RetiredSlots::new()),
        })
    }
}
