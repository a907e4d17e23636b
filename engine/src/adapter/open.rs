//! One open of an adapter: the root of a consumer's objects (NDK_ADAPTER).

use core::sync::atomic::{AtomicU64, Ordering};

use softndk_cells::Shared;

use crate::adapter::adapter::AdapterObject;
use crate::error::CreateError;
use crate::object::header::{Antecedents, Core, Object, object};
use crate::object::snapshot::ObjectKind;
use crate::platform::Platform;
use crate::semantics::Semantics;

pub(crate) struct OpenObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) adapter: Shared<AdapterObject<P>>,
    pub(crate) semantics: Semantics,
    /// The front end's name for its consumer, for listings.
    label: AtomicU64,
}

impl<P: Platform> OpenObject<P> {
    pub(crate) fn create(
        adapter: &Shared<AdapterObject<P>>,
        semantics: Semantics,
        consumer_object: P::ConsumerObject,
    ) -> Result<Shared<Self>, CreateError> {
        adapter.ready()?;
        let core = adapter.core(ObjectKind::Open, Some(consumer_object), Antecedents::none());
        let open = Shared::try_new(Self { core, adapter: adapter.clone(), semantics, label: AtomicU64::new(0) })?;
        adapter.register(&Object::of(&open))?;
        Ok(open)
    }

    pub(crate) fn set_label(&self, label: u64) {
        self.label.store(label, Ordering::Relaxed);
    }
}

object!(OpenObject {
    fn is_limited(&self) -> bool {
        false
    }

    fn label(&self) -> u64 {
        self.label.load(Ordering::Relaxed)
    }
});
