//! Callbacks of consumers that are made outside of a service pass: every one at DISPATCH_LEVEL.
//!
//! A consumer meets its callbacks at one level, from DPC and thread alike (NDKPI: every callback is `IRQL <= DISPATCH_LEVEL`):
//! what it may do there does not depend on how busy the machine is, and a wait in a callback is seen the first time it is
//! tried. The processor is marked meanwhile, so that posts made inside only enqueue (`engine/src/object/allowance.rs`).
//!
//! The callbacks of a service pass need none of this: the whole pass runs so (`service.rs`).

use softndk_kernel::irql;

use crate::runtime::engine::Engine;

/// Makes one callback. `IRQL <= DISPATCH_LEVEL`, no lock held.
pub fn make<R>(call: impl FnOnce() -> R) -> R {
    match Engine::get() {
        Some(engine) => engine.fabric.callback(call),
        None => irql::raised(|_| call()),
    }
}
