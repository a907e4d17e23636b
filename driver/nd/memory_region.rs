//! Memory regions: memory that a pending request of the process keeps locked, and its registration.
//!
//! The request that brings the memory pends until nothing of the driver maps it any more: the mapping itself holds its lease. A
//! deregistration, the end of the region and the request's cancellation all take the access away first; only a deregistration is refused
//! while windows are bound.

use core::{
    ffi::c_void,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_BUFFER_TOO_SMALL, STATUS_CANCELLED, STATUS_INVALID_BUFFER_SIZE,
    STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS,
};
use softndk_cells::{Dispose, Erased, Shared, View};
use softndk_engine::{ConnectError, Deregistered, MemoryRegion as EngineRegion, Registration, Rights};
use softndk_ioctl::nd::{
    control::{Handle, Register, RegisterReply},
    private::LockMemory,
};
use softndk_kernel::{
    irp::{Buffer, Request},
    pool::PoolBox,
    spin_lock::SpinLock,
};

use super::{
    adapter::{Domain, OpenedAdapter},
    context::{AdapterLife, HandleReservation},
    limits::DEREGISTRATIONS,
    object::{self, Closable, EngineHandle, consumer_object, handle_kind},
    pending::{Lease, NOT_TAKEN, NotTaken, Pended, PendingList, complete_pended},
    request::{Call, Cancellable, answer, check_output, input, named},
    status::{Answered, of_error},
};
use crate::{
    runtime::{
        completion,
        memory::{Access, Chain, Extent, Lender, Mapping},
        platform::{Callback, CancelledRequest, KernelPlatform, RequestCallback, UserModeObject, UserModeRequest},
    },
    tags,
};

/// ND_MR_FLAG_*.
const LOCAL_WRITE: u32 = 0x1;
const REMOTE_READ: u32 = 0x2;
/// Without the local right that it contains.
const REMOTE_WRITE: u32 = 0x4;
const READ_SINK: u32 = 0x8;
const DO_NOT_SECURE: u32 = 0x8000_0000;

/// Memory of a process that a request keeps locked.
struct LockedMemory {
    chain: Chain,
    writable: bool,
    lease: Lease,
}

// SAFETY: the chain is the I/O manager's, which leaves it alone until the request is completed.
unsafe impl Sync for LockedMemory {}

impl Dispose for LockedMemory {}

impl Lender for LockedMemory {}

impl View for LockedMemory {
    type As = dyn Lender;

    fn view(memory: &Shared<Self>) -> &Self::As {
        &**memory
    }
}

pub struct MemoryRegion {
    engine: EngineHandle<EngineRegion<KernelPlatform>>,
    adapter: Shared<OpenedAdapter>,
    state: SpinLock<RegionState>,
}

struct RegionState {
    closed: bool,
    memory: Option<Shared<LockedMemory>>,
    registered: bool,
    /// The Deregisters that wait for the engine, each of the kind of its deregistration's number: the region may be registered and
    /// deregistered again meanwhile.
    deregisters: PendingList,
    /// Deregistrations so far.
    deregistrations: u64,
}

/// A deregistration that the engine has not ended when its call returns.
struct Deregistration {
    region: Shared<MemoryRegion>,
    number: u64,
    /// Written under the region's lock.
    ended: AtomicBool,
}

impl Dispose for Deregistration {}

impl MemoryRegion {
    pub fn engine(&self) -> Result<&EngineRegion<KernelPlatform>, NTSTATUS> {
        self.engine.get()
    }

    /// Takes the access away, whatever is bound.
    fn revoke(&self) {
        let Ok(engine) = self.engine.get() else { return };
        // SAFETY: `revoked` takes anything.
        let callback = unsafe { callback(revoked, core::ptr::null_mut()) };
        if let Ok(Deregistered::Done(retired)) = engine.revoke(callback) {
            completion::retired(retired);
        }
    }

    /// A registration has failed: its memory goes back. One that stands keeps it.
    fn release_unregistered(&self) {
        let memory = {
            let mut state = self.state.lock();
            if state.registered { None } else { state.memory.take() }
        };
        if let Some(memory) = memory {
            memory.lease.end_with(STATUS_CANCELLED);
        }
    }

    /// Takes the memory away from the region; its request ends with this status once it is unmapped.
    fn release(&self, status: NTSTATUS, fits: impl FnOnce(&LockedMemory) -> bool) -> bool {
        let (memory, registered) = {
            let mut state = self.state.lock();
            let memory = state.memory.take_if(|memory| fits(memory));
            let registered = memory.is_some() && core::mem::take(&mut state.registered);
            (memory, registered)
        };
        let Some(memory) = memory else { return false };
        memory.lease.end_with(status);
        if registered {
            self.revoke();
        }
        true
    }
}

/// A revocation has ended: its memory is gone.
unsafe fn revoked(_context: *mut c_void, _result: Result<(), ConnectError>) {}

/// A deregistration has ended. `IRQL <= DISPATCH_LEVEL`.
unsafe fn deregistered(context: *mut c_void, _result: Result<(), ConnectError>) {
    // SAFETY: the engine calls back once what it has taken, with the pointer that `deregister_now` left with it.
    let Some(deregistration) = (unsafe { Deregistration::taken(context) }) else { return };
    let waiting = {
        let mut state = deregistration.region.state.lock();
        deregistration.ended.store(true, Ordering::Relaxed);
        state.deregisters.take(|pended| pended.kind() == deregistration.number)
    };
    if let Some(pended) = waiting {
        pended.finish(STATUS_SUCCESS);
    }
}

impl Deregistration {
    /// The next one of a region, and a pointer to it to leave with the engine.
    fn leave(region: &Shared<MemoryRegion>) -> Result<(Shared<Self>, NonNull<Shared<Self>>), NTSTATUS> {
        let number = {
            let mut state = region.state.lock();
            state.deregistrations = state.deregistrations.wrapping_add(1);
            state.deregistrations
        };
        let made = object::block(Self { region: region.clone(), number, ended: AtomicBool::new(false) })?;
        let left = PoolBox::try_new(tags::ND_REQUEST, made.clone()).map_err(object::no_memory)?;
        Ok((made, left.into_raw()))
    }

    /// The pointer that was left with the engine.
    ///
    /// # Safety
    /// `context` is the pointer of [`Self::leave`], and is not used again.
    unsafe fn taken(context: *mut c_void) -> Option<Shared<Self>> {
        let place = NonNull::new(context.cast::<Shared<Self>>())?;
        // SAFETY: the caller's promise; the box had this tag.
        Some(unsafe { PoolBox::from_raw(tags::ND_REQUEST, place) }.into_inner())
    }
}

handle_kind!(MemoryRegion);

impl UserModeObject for Shared<MemoryRegion> {
    fn cancelled(&self, request: CancelledRequest) {
        let waiting = self.state.lock().deregisters.take_cancelled(request);
        if let Some(pended) = waiting {
            pended.finish(STATUS_CANCELLED);
            return;
        }
        self.release(STATUS_CANCELLED, |memory| memory.lease.is_of_request(request));
    }
}

impl Cancellable for MemoryRegion {
    fn cancel_all(&self) {
        let waiting = self.state.lock().deregisters.take_all();
        waiting.finish(STATUS_CANCELLED);
    }
}

impl Closable for Shared<MemoryRegion> {
    fn close(&self, _status: NTSTATUS) {
        self.state.lock().closed = true;
        self.cancel_all();
        self.release(STATUS_SUCCESS, |_| true);
        if let Ok(engine) = self.engine.get() {
            object::finish(engine.close(object::no_callback()));
        }
    }

    fn end_file(&self, file: u64) {
        let waiting = self.state.lock().deregisters.take_of_file(file);
        waiting.finish(STATUS_CANCELLED);
        self.release(STATUS_CANCELLED, |memory| memory.lease.is_of_file(file));
    }

    fn lends_memory_of(&self, file: u64) -> bool {
        self.state.lock().memory.as_ref().is_some_and(|memory| memory.lease.is_of_file(file))
    }

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }
}

/// MR_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    check_output::<u64>(buffer)?;
    let domain = call.context.object::<Domain>(asked.handle)?;
    let adapter = domain.adapter.clone();
    let mut reservation = HandleReservation::try_new(call, &[asked.handle], Some(&adapter.life))?;
    let state = RegionState {
        closed: false,
        memory: None,
        registered: false,
        deregisters: PendingList::new(),
        deregistrations: 0,
    };
    let region = object::block(MemoryRegion {
        engine: EngineHandle::none(&mut reservation),
        adapter,
        state: SpinLock::new(state),
    })?;
    let engine = domain.engine()?.create_memory_region(false, consumer_object(&region)).map_err(of_error)?;
    // SAFETY: no other context has the object yet.
    unsafe { region.engine.set(engine) };
    answer(buffer, &reservation.fill(region))
}

/// LOCK_FOR_WRITING.
pub fn lock_for_writing(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    lock(call, request, true)
}

/// LOCK_FOR_READING.
pub fn lock_for_reading(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    lock(call, request, false)
}

fn lock(call: &Call, request: Request, writable: bool) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let (region, memory) = match prepare(call, &request, writable) {
        Ok(prepared) => prepared,
        Err(status) => return Err((request, status)),
    };
    let pended = match Pended::begin(request, call, object::owner(&region), 0) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    memory.lease.fill(pended);
    let taken = {
        let mut state = region.state.lock();
        if state.closed || memory.lease.is_cancelled() {
            Err(NOT_TAKEN)
        } else if state.memory.is_some() {
            Err(STATUS_INVALID_DEVICE_STATE)
        } else {
            state.memory = Some(memory.clone());
            Ok(())
        }
    };
    if let Err(status) = taken {
        memory.lease.end_with(status);
    }
    // Where it was not taken, this is the last pointer, which ends the request.
    drop(memory);
    Ok(STATUS_PENDING)
}

/// The region and the memory of a lock request.
fn prepare(
    call: &Call,
    request: &Request,
    writable: bool,
) -> Result<(Shared<MemoryRegion>, Shared<LockedMemory>), NTSTATUS> {
    let asked: LockMemory = input(&Buffer::of(request))?;
    let region = call.context.object::<MemoryRegion>(asked.region)?;
    let length = request.device_control().output_length;
    if request.mdl().is_null() || length == 0 {
        return Err(STATUS_INVALID_BUFFER_SIZE);
    }
    if region.state.lock().memory.is_some() {
        return Err(STATUS_INVALID_DEVICE_STATE);
    }
    let longest = region.engine()?.longest();
    // SAFETY: the I/O manager made the MDL for this request, which is not completed before the memory is released.
    let chain = unsafe { Chain::check(request.mdl().cast(), length as u64, longest) }.map_err(of_error)?;
    let memory = object::block(LockedMemory { chain, writable, lease: Lease::new() })?;
    Ok((region, memory))
}

/// What the flags of a registration grant.
fn rights(flags: u32, writable: bool) -> Result<Rights, NTSTATUS> {
    if flags & !(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | READ_SINK | DO_NOT_SECURE) != 0
        || flags & (LOCAL_WRITE | REMOTE_WRITE) == REMOTE_WRITE
    {
        return Err(STATUS_INVALID_PARAMETER);
    }
    if flags & LOCAL_WRITE != 0 && !writable {
        return Err(STATUS_ACCESS_VIOLATION);
    }
    let mut rights = Rights::empty();
    // The target of a Read is written; it needs no right of a peer here.
    rights.set(Rights::LOCAL_WRITE, flags & LOCAL_WRITE != 0 || (flags & READ_SINK != 0 && writable));
    rights.set(Rights::REMOTE_READ, flags & REMOTE_READ != 0);
    rights.set(Rights::REMOTE_WRITE, flags & REMOTE_WRITE != 0);
    Ok(rights)
}

/// MR_REGISTER. Done at once, and completed as a request that pended.
pub fn register(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let mut buffer = Buffer::of(&request);
    let registered = register_now(call, &buffer);
    let bytes = registered.and_then(|reply| answer(&mut buffer, &reply));
    match bytes {
        Ok(bytes) => Ok(complete_pended(request, STATUS_SUCCESS, bytes)),
        Err(status) => Err((request, status)),
    }
}

fn register_now(call: &Call, buffer: &Buffer) -> Result<RegisterReply, NTSTATUS> {
    let asked: Register = input(buffer)?;
    check_output::<RegisterReply>(buffer).map_err(|_| STATUS_BUFFER_TOO_SMALL)?;
    let region = call.context.object::<MemoryRegion>(asked.handle)?;
    let registered = register_locked(&region, &asked);
    if registered.is_err() {
        region.release_unregistered();
    }
    registered
}

fn register_locked(region: &MemoryRegion, asked: &Register) -> Result<RegisterReply, NTSTATUS> {
    let engine = region.engine()?;
    if asked.address == 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    if asked.length == 0 {
        return Err(STATUS_INVALID_BUFFER_SIZE);
    }
    if asked.length > engine.longest() || asked.target_address != asked.address {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let memory = region.state.lock().memory.clone().ok_or(STATUS_INVALID_DEVICE_STATE)?;
    if asked.address != memory.chain.base || asked.length > memory.chain.length {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let rights = rights(asked.flags, memory.writable)?;
    let access = if memory.writable { Access::ReadWrite } else { Access::ReadOnly };
    let mut mapping = Mapping::try_new(&memory.chain, access, Extent::Bytes).map_err(of_error)?;
    mapping.keep(Erased::of(&memory));
    let registration = Registration { memory: mapping, base: asked.address, length: asked.length, rights };
    engine.register(registration).map_err(|(cause, _unmapped_here)| of_error(cause))?;
    let reply = RegisterReply { local_token: engine.local_token().0, remote_token: engine.remote_token().0 };
    let stands = {
        let mut state = region.state.lock();
        // The request that brought the memory may have been cancelled meanwhile, and the region closed.
        let stands = !state.closed && state.memory.as_ref().is_some_and(|now| now.is(&memory));
        state.registered |= stands;
        stands
    };
    if !stands {
        region.revoke();
        return Err(STATUS_CANCELLED);
    }
    Ok(reply)
}

/// MR_DEREGISTER. RESOURCE_IN_USE at once while windows are bound.
pub fn deregister(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let deregistration = match deregister_now(call, &Buffer::of(&request)) {
        Ok(Some(deregistration)) => deregistration,
        Ok(None) => return Ok(complete_pended(request, STATUS_SUCCESS, 0)),
        Err(status) => return Err((request, status)),
    };
    let region = &deregistration.region;
    let pended = match Pended::begin(request, call, object::owner(region), deregistration.number) {
        Ok(pended) => pended,
        Err(refused) => return Ok(complete_pended(refused.request, STATUS_SUCCESS, 0)),
    };
    let waits = {
        let mut state = region.state.lock();
        // The access is gone either way; the request that brought the memory waits for the rest.
        if deregistration.ended.load(Ordering::Relaxed) || state.deregisters.length() >= DEREGISTRATIONS {
            Err(NotTaken::new(pended, STATUS_SUCCESS))
        } else if state.closed {
            Err(NotTaken::new(pended, NOT_TAKEN))
        } else {
            state.deregisters.push(pended)
        }
    };
    if let Err(not_taken) = waits {
        not_taken.finish();
    }
    Ok(STATUS_PENDING)
}

/// Deregisters; what the engine has not ended yet comes back. Without memory for that nothing does: the access is gone either way.
fn deregister_now(call: &Call, buffer: &Buffer) -> Result<Option<Shared<Deregistration>>, NTSTATUS> {
    let region = named::<MemoryRegion>(call, buffer)?;
    let engine = region.engine()?;
    let left = Deregistration::leave(&region);
    let ended = match &left {
        // SAFETY: `deregistered` takes what was left, and the engine calls it once if it takes it at all.
        Ok((_, place)) => engine.deregister(unsafe { callback(deregistered, place.as_ptr().cast()) }),
        // SAFETY: `revoked` takes anything.
        Err(_) => engine.deregister(unsafe { callback(revoked, core::ptr::null_mut()) }),
    };
    let pends = matches!(ended, Ok(Deregistered::Pending));
    let deregistration = left.ok().and_then(|(deregistration, place)| {
        // SAFETY: the engine has not taken it.
        let unused = if pends { None } else { unsafe { Deregistration::taken(place.as_ptr().cast()) } };
        unused.is_none().then_some(deregistration)
    });
    drop(ended.map_err(of_error)?);
    let memory = {
        let mut state = region.state.lock();
        state.registered = false;
        state.memory.take()
    };
    // The mapping has a pointer, too: the request ends with the later of both.
    drop(memory);
    Ok(deregistration)
}

/// # Safety
/// `function` may be called with `context`.
unsafe fn callback(function: UserModeRequest, context: *mut c_void) -> RequestCallback {
    // SAFETY: the caller's promise.
    RequestCallback::UserMode(unsafe { Callback::new(function, context) })
}
