//! NdkBuildLAM and NdkReleaseLAM: adapter logical addresses for memory that a consumer pinned.
//!
//! A logical address is a token of the engine, never a bus address and never a pointer: generation, slot, offset. The mapping
//! is built from the consumer's MDL and does not keep it: the consumer may free the MDL when the request is complete.

use core::{
    mem::offset_of,
    sync::atomic::{AtomicU32, Ordering},
};

use ndkpi_sys::{
    ndkpi::{NDK_ADAPTER, NDK_FN_REQUEST_COMPLETION, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING},
    nt::{MDL, NTSTATUS, PAGE_SIZE, PVOID, SIZE_T, STATUS_PENDING, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{
    Hold, LogicalAddress, LogicalMapping, Open, Releasing, Retired, StillCopied, limits::MAPPING_LENGTH,
};
use softndk_ioctl::{NdkCall, RefusalWay};
use softndk_kernel::{irql, pool::PoolBox};

use super::{consumer_object, deferred, open::OpenAdapter};
use crate::{
    callback,
    configuration::CompletionMode,
    driver::Driver,
    mapper::{Job, Work},
    memory::{Access, Chain, Extent, Mapping, MappingError},
    platform::{Callback, KernelPlatform},
    refusal::{Nothing, Refusal, refuse, refuse_by},
    tags,
};

/// Mappings of all adapters that are not unmapped yet.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// Mappings not unmapped yet.
pub fn live() -> u32 {
    LIVE.load(Ordering::Relaxed)
}

/// A longer mapping is not built by a caller at DISPATCH_LEVEL with a completion.
const LONG: u64 = 64 << 20;

/// A released mapping has been unmapped.
pub fn unmapped() {
    LIVE.fetch_sub(1, Ordering::Relaxed);
}

/// The consumer's buffer for the result, checked for size.
#[derive(Clone, Copy)]
struct Output {
    mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut ULONG,
    first_byte_offset: *mut ULONG,
    needed: ULONG,
}

/// A BuildLAM that the mapper does.
pub struct BuildRequest {
    engine_open: Open<KernelPlatform>,
    chain: Chain,
    output: Output,
    callback: Callback<NDK_FN_REQUEST_COMPLETION>,
    /// Keeps the open from closing meanwhile.
    hold: Hold<KernelPlatform>,
}

// SAFETY: the consumer leaves its buffers to the driver until the request is complete, on whatever thread that happens.
unsafe impl Send for BuildRequest {}

/// NDKPI: NDK_FN_BUILD_LAM. Inline whatever its size, because consumers pass no context for its completion; except at
/// DISPATCH_LEVEL with a completion and more than [`LONG`]: then the mapper's thread maps it.
pub unsafe extern "C" fn build(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    length: SIZE_T,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
    mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    mapping_size: *mut ULONG,
    first_byte_offset: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer passes an adapter that it opened.
    let Some(open) = (unsafe { OpenAdapter::from_object(adapter) }) else {
        return refuse(NdkCall::BUILD_LAM, &Nothing, Refusal::NO_OBJECT);
    };
    let (Some(engine_open), false) = (open.engine_open(), mapping_size.is_null() || length == 0) else {
        return refuse(NdkCall::BUILD_LAM, &open.engine_open(), Refusal::NO_LENGTH);
    };
    // SAFETY: the consumer passes a chain that it leaves alone until the request has completed.
    let chain = match unsafe { Chain::check(mdl, length as u64, MAPPING_LENGTH) } {
        Ok(chain) => chain,
        Err(cause) => return refuse(NdkCall::BUILD_LAM, engine_open, cause),
    };
    let Some(needed) = size_for(&chain) else {
        return refuse(NdkCall::BUILD_LAM, engine_open, MappingError::TooLong);
    };
    // SAFETY: the consumer's place for the size.
    let capacity = unsafe { mapping_size.replace(needed) };
    if mapping.is_null() || capacity < needed {
        return refuse(NdkCall::BUILD_LAM, engine_open, Refusal::SMALL_BUFFER);
    }
    let output = Output { mapping, size: mapping_size, first_byte_offset, needed };
    let completion_mode = open.origin.completion_mode;
    let callback = completion.map(|function| Callback::new(function, context));
    match callback {
        Some(callback) if is_for_thread(&chain, completion_mode) => {
            build_deferred(engine_open, chain, output, callback)
        }
        _ => {
            let refused = |refusal| refuse(NdkCall::BUILD_LAM, engine_open, refusal);
            let status = build_now(engine_open, &chain, output).map_or_else(refused, |()| STATUS_SUCCESS);
            deferred::request(completion_mode, status, callback, || engine_open.hold())
        }
    }
}

/// Whether a mapping with a completion is left to the mapper's thread.
fn is_for_thread(chain: &Chain, completion_mode: CompletionMode) -> bool {
    match completion_mode {
        CompletionMode::Auto => chain.length > LONG && irql::at_dispatch(),
        CompletionMode::Pending => chain.is_large(),
        CompletionMode::Inline => false,
    }
}

/// Bytes of a mapping for all pages of a chain.
fn size_for(chain: &Chain) -> Option<ULONG> {
    let pages = usize::try_from(chain.pages()).ok()?;
    ULONG::try_from(NDK_LOGICAL_ADDRESS_MAPPING::size_for(pages)?).ok()
}

fn build_now(engine_open: &Open<KernelPlatform>, chain: &Chain, output: Output) -> Result<(), Refusal> {
    let memory = Mapping::try_new(chain, Access::ReadWrite, Extent::Pages)?;
    match engine_open.build_mapping(memory) {
        Ok(built) => {
            LIVE.fetch_add(1, Ordering::Relaxed);
            output.write(&built, chain.first_byte_offset());
            Ok(())
        }
        Err((cause, _unmapped_here)) => Err(cause.into()),
    }
}

fn build_deferred(
    engine_open: &Open<KernelPlatform>,
    chain: Chain,
    output: Output,
    callback: Callback<NDK_FN_REQUEST_COMPLETION>,
) -> NTSTATUS {
    let Some(driver) = Driver::get() else { return refuse(NdkCall::BUILD_LAM, engine_open, Refusal::NO_MEMORY) };
    let request = BuildRequest { engine_open: engine_open.clone(), chain, output, callback, hold: engine_open.hold() };
    match PoolBox::try_new(tags::MAPPING, Job::new(Work::Build(request))) {
        Ok(job) => {
            driver.mapper.queue(job);
            STATUS_PENDING
        }
        Err(_) => refuse(NdkCall::BUILD_LAM, engine_open, Refusal::NO_MEMORY),
    }
}

impl BuildRequest {
    /// The mapper's part. PASSIVE_LEVEL.
    pub fn run(self) {
        let refused = |refusal| refuse_by(RefusalWay::COMPLETION, NdkCall::BUILD_LAM, &self.engine_open, refusal);
        let status = build_now(&self.engine_open, &self.chain, self.output).map_or_else(refused, |()| STATUS_SUCCESS);
        // SAFETY: the consumer gave function and context with the request, which answered STATUS_PENDING.
        callback::make(|| unsafe { (self.callback.function)(self.callback.context.0, status) });
        // Only now may the open finish its close.
        drop(self.hold);
    }
}

impl Output {
    /// Fills the consumer's buffers.
    fn write(&self, built: &LogicalMapping, first_byte_offset: u32) {
        let head = NDK_LOGICAL_ADDRESS_MAPPING {
            // The name of the mapping again, never a pointer.
            AdapterContext: core::ptr::without_provenance_mut(built.first.0 as usize),
            AdapterPageCount: built.pages,
            AdapterPageArray: [NDK_LOGICAL_ADDRESS { QuadPart: built.first.0.cast_signed() }],
        };
        // SAFETY: the buffer is large enough for the head and all pages (`build` compared the sizes).
        unsafe { self.mapping.write(head) };
        // SAFETY: only the address of the array is computed.
        let array = unsafe { self.mapping.byte_add(offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray)) };
        for page in 1..built.pages as usize {
            let address = built.first.0.wrapping_add((page * PAGE_SIZE) as u64);
            // SAFETY: inside the consumer's buffer, as above.
            let place = unsafe { array.cast::<NDK_LOGICAL_ADDRESS>().add(page) };
            // SAFETY: as above.
            unsafe { place.write(NDK_LOGICAL_ADDRESS { QuadPart: address.cast_signed() }) };
        }
        // SAFETY: the consumer's place for the size.
        unsafe { self.size.write(self.needed) };
        // SAFETY: null, or the consumer's place for the offset.
        if let Some(place) = unsafe { self.first_byte_offset.as_mut() } {
            *place = first_byte_offset;
        }
    }
}

/// NDKPI: NDK_FN_RELEASE_LAM. The consumer has no requests left that use the mapping, and may free the memory when this
/// returns: so it is unmapped here, however large it is.
pub unsafe extern "C" fn release(adapter: *mut NDK_ADAPTER, mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
    // SAFETY: the consumer passes an adapter that it opened.
    let open = unsafe { OpenAdapter::from_object(adapter) };
    // SAFETY: the consumer passes a mapping that BuildLAM filled.
    let (Some(engine_open), Some(mapping)) = (open.and_then(OpenAdapter::engine_open), unsafe { mapping.as_ref() })
    else {
        return;
    };
    let address = LogicalAddress(mapping.AdapterContext.addr() as u64);
    // None: a mapping that is not there (any more); a release cannot report it.
    let Some(releasing) = engine_open.begin_release(address) else { return };
    if let Some(retired) = wait_for_others(&releasing) {
        consumer_object::finish_retired(retired);
    }
}

/// Waits until the contexts that were copying when the mapping was released have finished their piece: a few microseconds,
/// because none of them can be preempted (each piece is copied at DISPATCH_LEVEL).
fn wait_for_others(releasing: &Releasing<KernelPlatform>) -> Option<Retired<KernelPlatform>> {
    loop {
        match releasing.try_finish() {
            Ok(retired) => return retired,
            Err(StillCopied) => irql::stall(),
        }
    }
}
