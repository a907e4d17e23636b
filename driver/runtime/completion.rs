//! Ends of objects and of registrations: memory is unmapped, by the mapper's thread where it is large, and then the consumer is called.

use core::sync::atomic::{AtomicU32, Ordering};

use ndkpi_sys::nt::STATUS_SUCCESS;
use softndk_engine::{CloseCompletion, Retired};

use super::{
    callback,
    engine::Engine,
    mapper::Release,
    memory::Mapping,
    platform::{KernelPlatform, RequestCallback},
};

/// Logical address mappings of all adapters that are not unmapped yet.
static LOGICAL_MAPPINGS: AtomicU32 = AtomicU32::new(0);

/// A logical address mapping was made. It is unmapped when the engine retires it without a callback.
pub fn logical_mapping_made() {
    LOGICAL_MAPPINGS.fetch_add(1, Ordering::Relaxed);
}

/// Logical address mappings that are not unmapped yet.
pub fn logical_mappings() -> u32 {
    LOGICAL_MAPPINGS.load(Ordering::Relaxed)
}

/// A close that pended is complete. Large memory is unmapped by the mapper first. `IRQL <= DISPATCH_LEVEL`.
pub fn closed(mut completion: CloseCompletion<KernelPlatform>) {
    let space = completion.object.memory.as_mut().and_then(Mapping::take_retire_space);
    match (space, Engine::get()) {
        (Some(space), Some(engine)) => engine.mapper.release(space, Release::Close(completion)),
        _ => finish_closed(completion),
    }
}

/// Unmaps, frees, completes the consumer's close, and then releases the object's antecedents.
pub fn finish_closed(mut completion: CloseCompletion<KernelPlatform>) {
    drop(completion.object.memory.take());
    drop(completion.object.consumer_object.take());
    if completion.callback.is_there() {
        callback::make(|| completion.callback.complete());
    }
    drop(completion);
}

/// Memory that nothing copies any more; large memory is unmapped by the mapper. A Deregister waits for it, or the close of an
/// open whose consumer did not release the mapping (a mapping that is released is unmapped in the call). `IRQL <=
/// DISPATCH_LEVEL`.
pub fn retired(mut retired: Retired<KernelPlatform>) {
    let space = retired.memory.take_retire_space();
    match (space, Engine::get()) {
        (Some(space), Some(engine)) => engine.mapper.release(space, Release::Unmap(retired)),
        _ => finish_retired(retired),
    }
}

/// Unmaps and completes the Deregister that waits for it, if one does.
pub fn finish_retired(retired: Retired<KernelPlatform>) {
    let callback = retired.callback;
    drop(retired.memory);
    match callback {
        Some(RequestCallback::Consumer(request)) => callback::make(|| request.callback.complete(STATUS_SUCCESS)),
        Some(RequestCallback::UserMode(callback)) => callback::make(|| callback.complete(Ok(()))),
        None => drop(LOGICAL_MAPPINGS.fetch_sub(1, Ordering::Relaxed)),
    }
    // What is left of `retired` ends here and lets the region close.
}
