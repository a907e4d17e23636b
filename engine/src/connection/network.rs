//! What a connection attempt looks through: the adapters of a fabric and the endpoints in use.

use alloc::vec::Vec;

use softndk_cells::{NoMemory, Shared};

use crate::adapter::adapter::AdapterObject;
use crate::capacity::push_within_capacity;
use crate::connection::endpoint::Directory;
use crate::platform::{Lock, Platform};

pub(crate) struct Network<P: Platform> {
    pub(crate) directory: P::Lock<Directory<P>>,
    adapters: P::Lock<Vec<Shared<AdapterObject<P>>>>,
}

impl<P: Platform> Network<P> {
    pub(crate) fn try_new() -> Result<Shared<Self>, NoMemory> {
        Shared::try_new(Self { directory: P::Lock::new(Directory::new()), adapters: P::Lock::new(Vec::new()) })
    }

    pub(crate) fn add_adapter(&self, adapter: &Shared<AdapterObject<P>>) -> Result<(), NoMemory> {
        self.adapters.with(|adapters| {
            adapters.try_reserve(1)?;
            push_within_capacity(adapters, adapter.clone()).map_err(|_| NoMemory)
        })
    }

    pub(crate) fn remove_adapter(&self, adapter: &Shared<AdapterObject<P>>) {
        self.adapters.with(|adapters| adapters.retain(|other| !other.is(adapter)));
    }

    /// The first adapter that satisfies `wanted`.
    pub(crate) fn find_adapter(&self, wanted: impl Fn(&AdapterObject<P>) -> bool) -> Option<Shared<AdapterObject<P>>> {
        self.adapters.with(|adapters| adapters.iter().find(|adapter| wanted(adapter)).cloned())
    }
}
