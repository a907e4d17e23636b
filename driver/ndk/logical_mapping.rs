//! NdkBuildLAM and NdkReleaseLAM: adapter logical addresses for memory that a consumer pinned.
//!
//! A logical address is a token of the engine, never a bus address and never a pointer: generation, slot, offset. The mapping
//! is built from the consumer's MDL and does not keep it: the consumer may free the MDL when the request is complete.

use core::mem::offset_of;

use ndkpi_sys::{
    ndkpi::{
        NDK_ADAPTER, NDK_FN_BUILD_LAM, NDK_FN_RELEASE_LAM, NDK_FN_REQUEST_COMPLETION, NDK_LOGICAL_ADDRESS,
        NDK_LOGICAL_ADDRESS_MAPPING,
    },
    nt::{MDL, NTSTATUS, PVOID, SIZE_T, STATUS_PENDING, STATUS_SUCCESS, ULONG},
};
use softndk_engine::{
    Hold, LogicalAddress, LogicalMapping, Open, Releasing, Retired, StillCopied, limits::MAPPING_LENGTH,
};
use softndk_ioctl::{NdkCall, RefusalWay};
use softndk_kernel::{irql, pool::NoMemory};

use super::{
    entry::{Argument, Block, Input, MdlChain, entry},
    open::OpenRef,
};
use crate::{
    link::configuration::CompletionMode,
    runtime::{
        callback, completion, deferred,
        engine::Engine,
        errors::MappingError,
        memory::{Access, Chain, Extent, Mapping},
        platform::{Callback, KernelPlatform},
        refusal::{Nothing, Refusal, refuse, refuse_by},
    },
};

pub const BUILD: NDK_FN_BUILD_LAM = entry!(
    build(
        *mut NDK_ADAPTER,
        [*mut MDL, SIZE_T],
        [Option<NDK_FN_REQUEST_COMPLETION>, PVOID],
        [*mut NDK_LOGICAL_ADDRESS_MAPPING, *mut ULONG, *mut ULONG]
    ) -> NTSTATUS
);
pub const RELEASE: NDK_FN_RELEASE_LAM = entry!(release(*mut NDK_ADAPTER, *mut NDK_LOGICAL_ADDRESS_MAPPING));

/// A longer mapping is not built by a caller at DISPATCH_LEVEL with a completion.
const LONG: u64 = 64 << 20;

/// The consumer's buffer for the result. Left to the driver until the request is complete.
#[derive(Clone, Copy)]
pub struct Output {
    mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut ULONG,
    first_byte_offset: *mut ULONG,
}

impl Argument<(*mut NDK_LOGICAL_ADDRESS_MAPPING, *mut ULONG, *mut ULONG)> for Output {
    unsafe fn take(
        (mapping, size, first_byte_offset): (*mut NDK_LOGICAL_ADDRESS_MAPPING, *mut ULONG, *mut ULONG),
    ) -> Self {
        Self { mapping, size, first_byte_offset }
    }
}

/// A buffer that is large enough.
struct Checked {
    output: Output,
    needed: ULONG,
}

/// A BuildLAM that the mapper does.
struct BuildRequest {
    engine_open: Open<KernelPlatform>,
    chain: Chain,
    output: Checked,
    callback: Callback<NDK_FN_REQUEST_COMPLETION>,
    /// Keeps the open from closing meanwhile.
    hold: Hold<KernelPlatform>,
}

// SAFETY: the consumer leaves its buffers to the driver until the request is complete, on whatever thread that happens.
unsafe impl Send for BuildRequest {}

/// NDKPI: NDK_FN_BUILD_LAM. Inline whatever its size, because consumers pass no context for its completion; except at
/// DISPATCH_LEVEL with a completion and more than [`LONG`]: then the mapper's thread maps it.
fn build(
    open: OpenRef<'_>,
    chain: MdlChain,
    completion: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
    output: Output,
) -> NTSTATUS {
    let Some(open) = open.block() else {
        return refuse(NdkCall::BUILD_LAM, &Nothing, Refusal::NO_OBJECT);
    };
    let (Some(engine_open), false) = (open.handle(), output.size.is_null() || chain.length == 0) else {
        return refuse(NdkCall::BUILD_LAM, &open.handle(), Refusal::NO_LENGTH);
    };
    let chain = match chain.get(MAPPING_LENGTH) {
        Ok(chain) => chain,
        Err(cause) => return refuse(NdkCall::BUILD_LAM, engine_open, cause),
    };
    let Some(needed) = size_for(&chain) else {
        return refuse(NdkCall::BUILD_LAM, engine_open, MappingError::TooLong);
    };
    let output = match output.check(needed) {
        Ok(output) => output,
        Err(refusal) => return refuse(NdkCall::BUILD_LAM, engine_open, refusal),
    };
    let completion_mode = open.origin.completion_mode;
    match completion {
        Some(callback) if is_for_thread(&chain, completion_mode) => {
            build_deferred(engine_open, chain, output, callback)
        }
        _ => {
            let refused = |refusal| refuse(NdkCall::BUILD_LAM, engine_open, refusal);
            let status = build_now(engine_open, &chain, &output).map_or_else(refused, |()| STATUS_SUCCESS);
            deferred::request(completion_mode, status, completion, || engine_open.hold())
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

fn build_now(engine_open: &Open<KernelPlatform>, chain: &Chain, output: &Checked) -> Result<(), Refusal> {
    let memory = Mapping::try_new(chain, Access::ReadWrite, Extent::Pages)?;
    match engine_open.build_mapping(memory) {
        Ok(built) => {
            completion::logical_mapping_made();
            output.write(&built, chain.first_byte_offset());
            Ok(())
        }
        Err((cause, _unmapped_here)) => Err(cause.into()),
    }
}

fn build_deferred(
    engine_open: &Open<KernelPlatform>,
    chain: Chain,
    output: Checked,
    callback: Callback<NDK_FN_REQUEST_COMPLETION>,
) -> NTSTATUS {
    let Some(engine) = Engine::get() else { return refuse(NdkCall::BUILD_LAM, engine_open, Refusal::NO_MEMORY) };
    let request = BuildRequest { engine_open: engine_open.clone(), chain, output, callback, hold: engine_open.hold() };
    match engine.mapper.request(move || request.run()) {
        Ok(()) => STATUS_PENDING,
        Err(NoMemory) => refuse(NdkCall::BUILD_LAM, engine_open, Refusal::NO_MEMORY),
    }
}

impl BuildRequest {
    /// The mapper's part. PASSIVE_LEVEL.
    fn run(self) {
        let refused = |refusal| refuse_by(RefusalWay::COMPLETION, NdkCall::BUILD_LAM, &self.engine_open, refusal);
        let status = build_now(&self.engine_open, &self.chain, &self.output).map_or_else(refused, |()| STATUS_SUCCESS);
        callback::make(|| self.callback.complete(status));
        // Only now may the open finish its close.
        drop(self.hold);
    }
}

impl Output {
    /// Tells the consumer how large a buffer has to be, and compares.
    fn check(self, needed: ULONG) -> Result<Checked, Refusal> {
        // SAFETY: the consumer's place for the size (`take`); `build` found that there is one.
        let capacity = unsafe { self.size.replace(needed) };
        if self.mapping.is_null() || capacity < needed {
            return Err(Refusal::SMALL_BUFFER);
        }
        Ok(Checked { output: self, needed })
    }
}

impl Checked {
    /// Fills the consumer's buffers.
    fn write(&self, built: &LogicalMapping, first_byte_offset: u32) {
        let head = NDK_LOGICAL_ADDRESS_MAPPING {
            // The name of the mapping again, never a pointer.
            AdapterContext: core::ptr::without_provenance_mut(built.first.0 as usize),
            AdapterPageCount: built.pages,
            AdapterPageArray: [NDK_LOGICAL_ADDRESS { QuadPart: built.address_of(0).0.cast_signed() }],
        };
        // SAFETY: the buffer is large enough for the head and all pages (`check`).
        unsafe { self.output.mapping.write(head) };
        // SAFETY: only the address of the array is computed.
        let array = unsafe { self.output.mapping.byte_add(offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray)) };
        for page in 1..built.pages {
            // SAFETY: inside the consumer's buffer, as above.
            let place = unsafe { array.cast::<NDK_LOGICAL_ADDRESS>().add(page as usize) };
            // SAFETY: as above.
            unsafe { place.write(NDK_LOGICAL_ADDRESS { QuadPart: built.address_of(page).0.cast_signed() }) };
        }
        // SAFETY: the consumer's place for the size.
        unsafe { self.output.size.write(self.needed) };
        if !self.output.first_byte_offset.is_null() {
            // SAFETY: the consumer's place for the offset.
            unsafe { self.output.first_byte_offset.write(first_byte_offset) };
        }
    }
}

/// NDKPI: NDK_FN_RELEASE_LAM. The consumer has no requests left that use the mapping, and may free the memory when this
/// returns: so it is unmapped here, however large it is.
fn release(open: OpenRef<'_>, mapping: Input<'_, NDK_LOGICAL_ADDRESS_MAPPING>) {
    let (Some(engine_open), Some(mapping)) = (open.get(), mapping.get()) else { return };
    let address = LogicalAddress(mapping.AdapterContext.addr() as u64);
    // None: a mapping that is not there (any more); a release cannot report it.
    let Some(releasing) = engine_open.begin_release(address) else { return };
    if let Some(retired) = wait_for_others(&releasing) {
        completion::finish_retired(retired);
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
