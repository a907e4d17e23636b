//! The dispatch table of a memory region.

use ndkpi_sys::{
    ndkpi::{NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MR_DISPATCH, NDK_MR_FLAGS},
    nt::{BOOLEAN, FALSE, MDL, NTSTATUS, PVOID, SIZE_T, STATUS_PENDING, STATUS_SUCCESS, UINT32, ULONG},
};
use softndk_engine::{Deregistered, Hold, MemoryRegion, Registration, Retired, Rights};
use softndk_ioctl::{NdkCall, RefusalWay};
use softndk_kernel::pool::NoMemory;

use super::{
    consumer_object,
    entry::{MdlChain, entry},
    extension::query_extension,
    kind::kind,
};
use crate::{
    link::configuration::CompletionMode,
    runtime::{
        callback, completion, deferred,
        engine::Engine,
        memory::{Access, Chain, Extent, Mapping},
        platform::{Callback, ConsumerRequest, KernelPlatform},
        refusal::{Nothing, Refusal, refuse, refuse_by},
    },
};

kind!(MemoryRegionKind, MemoryRegionRef: MemoryRegion, NDK_MR, NdkObjectTypeMr, MEMORY_REGION);

pub static DISPATCH: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: consumer_object::close::<MemoryRegionKind>,
    NdkQueryExtension: query_extension,
    NdkRegisterMr: entry!(
        register(*mut NDK_MR, [*mut MDL, SIZE_T], NDK_MR_FLAGS, [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]) -> NTSTATUS
    ),
    NdkDeregisterMr: entry!(deregister(*mut NDK_MR, [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]) -> NTSTATUS),
    NdkInitializeFastRegisterMr: entry!(
        initialize_fast_register(*mut NDK_MR, ULONG, BOOLEAN, [Option<NDK_FN_REQUEST_COMPLETION>, PVOID]) -> NTSTATUS
    ),
    NdkGetRemoteTokenFromMr: entry!(remote_token(*mut NDK_MR) -> UINT32),
    NdkGetLocalTokenFromMr: entry!(local_token(*mut NDK_MR) -> UINT32),
};

/// What the flags of a registration grant; `None` for flags NDKPI does not have.
///
/// NDKPI: NDK_MR_FLAG_ALLOW_REMOTE_WRITE holds the local write bit; the remote bit alone makes no sense.
fn rights(flags: NDK_MR_FLAGS) -> Option<Rights> {
    let known = NDK_MR_FLAGS::ALLOW_REMOTE_READ | NDK_MR_FLAGS::ALLOW_REMOTE_WRITE | NDK_MR_FLAGS::RDMA_READ_SINK;
    let remote_write = flags.contains(NDK_MR_FLAGS::ALLOW_REMOTE_WRITE);
    let remote_bit = flags.bits() & ndkpi_sys::ndkpi::NDK_MR_FLAG_REMOTE_WRITE_BIT != 0;
    if !known.contains(flags) || (remote_bit && !remote_write) {
        return None;
    }
    let mut rights = Rights::empty();
    rights.set(Rights::LOCAL_WRITE, flags.contains(NDK_MR_FLAGS::ALLOW_LOCAL_WRITE));
    rights.set(Rights::REMOTE_READ, flags.contains(NDK_MR_FLAGS::ALLOW_REMOTE_READ));
    rights.set(Rights::REMOTE_WRITE, remote_write);
    Some(rights)
}

/// NDKPI: NDK_FN_REGISTER_MR. Inline, or PENDING through the mapper's thread for large memory.
fn register(
    region: MemoryRegionRef<'_>,
    chain: MdlChain,
    flags: NDK_MR_FLAGS,
    completion: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
) -> NTSTATUS {
    let Some((object, region)) = region.both() else {
        return refuse(NdkCall::REGISTER_MR, &Nothing, Refusal::NO_OBJECT);
    };
    let Some(rights) = rights(flags) else { return refuse(NdkCall::REGISTER_MR, region, Refusal::UNKNOWN_FLAGS) };
    if region.is_fast_register() {
        return refuse(NdkCall::REGISTER_MR, region, Refusal::FAST_REGISTER_REGION);
    }
    let chain = match chain.get(region.longest()) {
        Ok(chain) => chain,
        Err(cause) => return refuse(NdkCall::REGISTER_MR, region, cause),
    };
    let completion_mode = object.origin.completion_mode;
    match completion {
        Some(callback) if chain.is_large() && completion_mode != CompletionMode::Inline => {
            register_deferred(region, chain, rights, callback)
        }
        _ => {
            let registered = register_chain(region, &chain, rights);
            let refused = |refusal| refuse(NdkCall::REGISTER_MR, region, refusal);
            let status = registered.map_or_else(refused, |()| STATUS_SUCCESS);
            deferred::request(completion_mode, status, completion, || region.hold())
        }
    }
}

/// Maps and registers.
fn register_chain(region: &MemoryRegion<KernelPlatform>, chain: &Chain, rights: Rights) -> Result<(), Refusal> {
    let access = if rights.contains(Rights::LOCAL_WRITE) { Access::ReadWrite } else { Access::ReadOnly };
    let memory = Mapping::try_new(chain, access, Extent::Bytes)?;
    let registration = Registration { memory, base: chain.base, length: chain.length, rights };
    region.register(registration).map_err(|(cause, _unmapped_here)| cause.into())
}

/// Leaves the registration to the mapper.
fn register_deferred(
    region: &MemoryRegion<KernelPlatform>,
    chain: Chain,
    rights: Rights,
    callback: Callback<NDK_FN_REQUEST_COMPLETION>,
) -> NTSTATUS {
    let Some(engine) = Engine::get() else { return refuse(NdkCall::REGISTER_MR, region, Refusal::NO_MEMORY) };
    let request = RegisterRequest { region: region.clone(), chain, rights, callback, hold: region.hold() };
    match engine.mapper.request(move || register_now(request)) {
        Ok(()) => STATUS_PENDING,
        Err(NoMemory) => refuse(NdkCall::REGISTER_MR, region, Refusal::NO_MEMORY),
    }
}

/// A registration that the mapper does.
struct RegisterRequest {
    region: MemoryRegion<KernelPlatform>,
    chain: Chain,
    rights: Rights,
    callback: Callback<NDK_FN_REQUEST_COMPLETION>,
    /// Keeps the region from closing meanwhile.
    hold: Hold<KernelPlatform>,
}

/// The mapper's part of a registration. PASSIVE_LEVEL.
fn register_now(request: RegisterRequest) {
    let refused = |refusal| refuse_by(RefusalWay::COMPLETION, NdkCall::REGISTER_MR, &request.region, refusal);
    let registered = register_chain(&request.region, &request.chain, request.rights);
    let status = registered.map_or_else(refused, |()| STATUS_SUCCESS);
    callback::make(|| request.callback.complete(status));
    // Only now may the region finish its close.
    drop(request.hold);
}

/// NDKPI: NDK_FN_DEREGISTER_MR. PENDING while something still copies, or while large memory is unmapped by the mapper's thread.
fn deregister(region: MemoryRegionRef<'_>, completion: Option<Callback<NDK_FN_REQUEST_COMPLETION>>) -> NTSTATUS {
    let Some((object, region)) = region.both() else {
        return refuse(NdkCall::DEREGISTER_MR, &Nothing, Refusal::NO_OBJECT);
    };
    let completion_mode = object.origin.completion_mode;
    let Some(callback) = completion else { return refuse(NdkCall::DEREGISTER_MR, region, Refusal::NO_CALLBACK) };
    // The consumer may close the region from the completion, before the engine returns here.
    let region = region.clone();
    let callback = ConsumerRequest { callback, call: NdkCall::DEREGISTER_MR };
    match region.deregister(callback.into()) {
        Ok(Deregistered::Pending) => STATUS_PENDING,
        Ok(Deregistered::Done(retired)) => deregistered(retired, completion_mode, callback),
        Err(cause) => refuse(NdkCall::DEREGISTER_MR, &region, cause),
    }
}

/// Completes a deregister that the engine did at once.
fn deregistered(
    mut retired: Retired<KernelPlatform>,
    completion_mode: CompletionMode,
    callback: ConsumerRequest,
) -> NTSTATUS {
    if let Some(space) = deferred::space(completion_mode) {
        retired.callback = Some(callback.into());
        return space.deliver(deferred::Answer::Retired(retired));
    }
    if retired.memory.is_large() && completion_mode != CompletionMode::Inline {
        retired.callback = Some(callback.into());
        completion::retired(retired);
        return STATUS_PENDING;
    }
    drop(retired);
    STATUS_SUCCESS
}

/// NDKPI: NDK_FN_INITIALIZE_FAST_REGISTER_MR.
fn initialize_fast_register(
    region: MemoryRegionRef<'_>,
    pages: ULONG,
    remote_access: BOOLEAN,
    completion: Option<Callback<NDK_FN_REQUEST_COMPLETION>>,
) -> NTSTATUS {
    let Some((object, region)) = region.both() else {
        return refuse(NdkCall::INITIALIZE_FAST_REGISTER_MR, &Nothing, Refusal::NO_OBJECT);
    };
    let initialized = region.initialize_fast_register(pages, remote_access != FALSE);
    let refused = |cause| refuse(NdkCall::INITIALIZE_FAST_REGISTER_MR, region, cause);
    let status = initialized.map_or_else(refused, |()| STATUS_SUCCESS);
    deferred::request(object.origin.completion_mode, status, completion, || region.hold())
}

/// NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MR.
fn remote_token(region: MemoryRegionRef<'_>) -> UINT32 {
    region.get().map_or(0, |region| region.remote_token().0)
}

/// NDKPI: NDK_FN_GET_LOCAL_TOKEN_FROM_MR.
fn local_token(region: MemoryRegionRef<'_>) -> UINT32 {
    region.get().map_or(0, |region| region.local_token().0)
}
