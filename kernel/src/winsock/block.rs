//! What completions reach: the packets of a socket's calls, the memory that Winsock Kernel uses meanwhile, and how to wake the owner.
//!
//! A request is a letter box. The owner marks it before the call; the completion leaves the result and marks it again; the owner takes the
//! result. So no lock is needed, and a completion inside the call finds everything as it has to be.
//!
//! Rules it keeps: a block stays as long as its owner or a request under way; who lets it go last frees it, also in a completion; the
//! owner makes a call only with a request that is idle.

use core::{
    ffi::c_void,
    net::SocketAddr,
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering, fence},
};

use ndkpi_sys::{
    nt::{NTSTATUS, PIRP, STATUS_DEVICE_NOT_READY, STATUS_MORE_PROCESSING_REQUIRED},
    wsk::WSK_SOCKET,
};
use softndk_cells::Once;
use wdk_sys::{DEVICE_OBJECT, IRP};

use super::{
    Wake,
    client::{Client, Live},
    packet::{Outcome, Packet},
    registration::Provider,
    socket::{Leaf, SocketKind, Spare},
};
use crate::address;
use crate::pool::{NoMemory, PoolArray, PoolBox, Tag};

/// No call is under way, and the owner has taken the result of the last.
const IDLE: u8 = 0;
const UNDER_WAY: u8 = 1;
/// The result is there for the owner.
const DONE: u8 = 2;
/// A call is under way that makes a socket, and its owner has gone.
const ABANDONED: u8 = 3;

struct LetterBox {
    packet: Packet,
    state: AtomicU8,
}

/// See the module.
pub(super) struct Block<B, W> {
    /// The owner and the requests under way.
    users: AtomicUsize,
    tag: Tag,
    /// Set before the first call.
    started: Once<Started<W>>,
    /// For the socket of an abandoned request.
    heir: AtomicPtr<Leaf>,
    requests: PoolArray<LetterBox>,
    /// What is used while calls are under way.
    body: B,
}

struct Started<W> {
    waker: W,
    /// Dropped last.
    live: Live,
}

impl<B, W: Wake> Block<B, W> {
    pub fn body(&self) -> &B {
        &self.body
    }

    /// Before the first call, once. `IRQL <= DISPATCH_LEVEL`.
    pub fn start(&self, client: &'static Client, waker: W) -> Result<(), NTSTATUS> {
        let live = client.enter().ok_or(STATUS_DEVICE_NOT_READY)?;
        self.started.set(Started { waker, live }).map_err(|_| STATUS_DEVICE_NOT_READY)
    }

    /// The provider, good as long as the owner.
    pub fn provider(&self) -> Result<Provider, NTSTATUS> {
        self.started.get().ok_or(STATUS_DEVICE_NOT_READY)?.live.provider()
    }

    /// Whether a call can be made with this request.
    pub fn is_idle(&self, request: usize) -> bool {
        self.requests.get(request).is_some_and(|request| request.state.load(Ordering::Acquire) == IDLE)
    }

    /// The result of a call, once; the request is idle then. For the owner.
    pub fn take(&self, request: usize) -> Option<Outcome> {
        let request = self.requests.get(request)?;
        if request.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        // SAFETY: completed, and the owner, who prepares packets, is here.
        let outcome = unsafe { request.packet.outcome() };
        request.state.store(IDLE, Ordering::Relaxed);
        Some(outcome)
    }

    /// The owner goes while a call may be under way that makes a socket, for which there is this block; the block comes back if the call
    /// is complete.
    pub fn abandon(&self, request: usize, heir: Spare) -> Option<Spare> {
        let Some(request) = self.requests.get(request) else { return Some(heir) };
        self.heir.store(heir.into_raw().as_ptr(), Ordering::Relaxed);
        // Release: the completion finds the heir.
        let now = request.state.compare_exchange(UNDER_WAY, ABANDONED, Ordering::Release, Ordering::Acquire);
        if now.is_ok() { None } else { self.take_heir() }
    }

    fn take_heir(&self) -> Option<Spare> {
        let heir = NonNull::new(self.heir.swap(ptr::null_mut(), Ordering::Relaxed))?;
        // SAFETY: `abandon` gave it up, and it was taken out of its place.
        Some(unsafe { Spare::from_raw(heir) })
    }

    /// The packet of a request is completed.
    fn complete(&self, packet: *mut IRP) {
        let Some(request) = self.requests.iter().find(|request| request.packet.is(packet)) else { return };
        // SAFETY: completed; the owner reads the result only after the state below is DONE.
        let outcome = unsafe { request.packet.outcome() };
        if request.state.swap(DONE, Ordering::AcqRel) == ABANDONED
            && let Some(heir) = self.take_heir()
            && let Some(socket) = socket_of(outcome)
        {
            heir.orphan(socket);
        }
        if let Some(started) = self.started.get() {
            started.waker.wake();
        }
    }
}

/// The socket that a call has answered.
pub(super) fn socket_of(outcome: Outcome) -> Option<NonNull<WSK_SOCKET>> {
    NonNull::new(ptr::with_exposed_provenance_mut(outcome.result().ok()?))
}

/// The owner's hold on a block.
pub(super) struct Owner<B, W: Wake>(NonNull<Block<B, W>>);

// SAFETY: what is in the block may be used from every thread: the body by its own rules, the rest through atomics.
unsafe impl<B: Send + Sync, W: Wake> Send for Owner<B, W> {}
// SAFETY: as above.
unsafe impl<B: Send + Sync, W: Wake> Sync for Owner<B, W> {}

impl<B, W: Wake> Owner<B, W> {
    /// A block with so many requests. `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new(tag: Tag, requests: usize, body: B) -> Result<Self, NoMemory> {
        let request = |_| Packet::try_new().map(|packet| LetterBox { packet, state: AtomicU8::new(IDLE) });
        let block = Block {
            users: AtomicUsize::new(1),
            tag,
            started: Once::new(),
            heir: AtomicPtr::new(ptr::null_mut()),
            requests: PoolArray::try_from_fn(tag, requests, request)?,
            body,
        };
        PoolBox::try_new(tag, block).map(|block| Self(block.into_raw()))
    }

    /// Makes a call with a request that is idle. The call gives the packet to one function of Winsock Kernel, which completes it in any
    /// case, also before it returns. What the function returned: an error where nothing has been begun, though the completion may be
    /// still to come.
    pub fn issue(&self, request: usize, call: impl FnOnce(PIRP) -> NTSTATUS) -> NTSTATUS {
        let Some(request) = self.requests.get(request) else { return STATUS_DEVICE_NOT_READY };
        if request.state.load(Ordering::Acquire) != IDLE {
            return STATUS_DEVICE_NOT_READY;
        }
        self.users.fetch_add(1, Ordering::Relaxed);
        request.state.store(UNDER_WAY, Ordering::Relaxed);
        // SAFETY: idle, and only the owner makes calls; the routine gives back the use that was counted above.
        let packet = unsafe { request.packet.prepare(completed::<B, W>, self.0.as_ptr().cast()) };
        call(packet)
    }
}

impl<B, W: Wake> Owner<B, W> {
    /// Asks for a socket of this kind for an address like this one, without event callbacks.
    pub fn make_socket(&self, request: usize, like: &SocketAddr, kind: SocketKind) -> Result<(), NTSTATUS> {
        let family = address::family(like);
        let provider = self.provider()?;
        // SAFETY: a provider that is held has a complete table.
        let make = unsafe { (*provider.dispatch).WskSocket };
        self.issue(request, |packet| {
            // SAFETY: the provider is held; no callbacks, so no context and no table of ours; a packet for this call.
            unsafe {
                make(
                    provider.client,
                    family,
                    kind.socket_type,
                    kind.protocol,
                    kind.flags,
                    ptr::null_mut(),
                    ptr::null(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    packet,
                )
            }
        });
        Ok(())
    }
}

impl<B, W: Wake> Deref for Owner<B, W> {
    type Target = Block<B, W>;

    fn deref(&self) -> &Block<B, W> {
        // SAFETY: the owner is counted, so the block is there.
        unsafe { self.0.as_ref() }
    }
}

impl<B, W: Wake> Drop for Owner<B, W> {
    fn drop(&mut self) {
        // SAFETY: the owner was counted, and goes.
        unsafe { release(self.0) };
    }
}

/// A user of the block goes; the last one frees it. `IRQL <= DISPATCH_LEVEL`, also in a completion.
///
/// # Safety
/// The user was counted and does not use the block any more.
#[inline(never)]
unsafe fn release<B, W: Wake>(block: NonNull<Block<B, W>>) {
    // SAFETY: the user is counted, so the block is there.
    let users = unsafe { &block.as_ref().users };
    if users.fetch_sub(1, Ordering::Release) != 1 {
        return;
    }
    fence(Ordering::Acquire);
    // SAFETY: the caller was the last user, so no other context has the block; only its tag is read.
    let tag = unsafe { block.as_ref() }.tag;
    // SAFETY: made in a box with this tag, given up by `Owner::try_new`, and this was its last user.
    let block = unsafe { PoolBox::from_raw(tag, block) };
    let Block { requests, body, started, .. } = block.into_inner();
    // A packet goes in its own completion, which may do that: it is not touched after the answer of the completion routine.
    drop(requests);
    drop(body);
    // Last, and in it the passage last, because the driver may be unloaded from then on.
    drop(started);
}

/// A call is complete.
unsafe extern "C" fn completed<B, W: Wake>(
    _device: *mut DEVICE_OBJECT,
    packet: *mut IRP,
    context: *mut c_void,
) -> NTSTATUS {
    if let Some(block) = NonNull::new(context.cast::<Block<B, W>>()) {
        // SAFETY: the request is counted, so the block is there.
        unsafe { block.as_ref() }.complete(packet);
        // SAFETY: counted when the call was made; the last thing that is done with the block.
        unsafe { release(block) };
    }
    STATUS_MORE_PROCESSING_REQUIRED
}
