//! A socket of Winsock Kernel and what closes it.
//!
//! A socket has a pool block of its own, made before the socket is asked for, with the packet of its closing: so whoever has one can drop
//! it. The block is freed in the completion of the closing, the last completion of the socket.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use ndkpi_sys::{
    nt::{NTSTATUS, STATUS_DEVICE_NOT_READY, STATUS_MORE_PROCESSING_REQUIRED},
    wsk::{
        IPPROTO_TCP, IPPROTO_UDP, SOCK_DGRAM, SOCK_STREAM, WSK_FLAG_CONNECTION_SOCKET, WSK_FLAG_DATAGRAM_SOCKET,
        WSK_FLAG_LISTEN_SOCKET, WSK_PROVIDER_BASIC_DISPATCH, WSK_PROVIDER_CONNECTION_DISPATCH,
        WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_PROVIDER_LISTEN_DISPATCH, WSK_SOCKET,
    },
};
use wdk_sys::{DEVICE_OBJECT, IRP};

use super::{
    client::{Client, Live},
    packet::Packet,
};
use crate::pool::{NoMemory, PoolBox, Tag};

/// What kind of socket is asked for.
#[derive(Clone, Copy)]
pub(super) struct SocketKind {
    pub socket_type: u16,
    pub protocol: u32,
    /// `WSK_FLAG_…`.
    pub flags: u32,
}

impl SocketKind {
    pub const LISTENING: Self = Self { socket_type: SOCK_STREAM, protocol: IPPROTO_TCP, flags: WSK_FLAG_LISTEN_SOCKET };
    pub const CONNECTION: Self =
        Self { socket_type: SOCK_STREAM, protocol: IPPROTO_TCP, flags: WSK_FLAG_CONNECTION_SOCKET };
    pub const DATAGRAM: Self = Self { socket_type: SOCK_DGRAM, protocol: IPPROTO_UDP, flags: WSK_FLAG_DATAGRAM_SOCKET };
}

/// The block of a socket.
pub(super) struct Leaf {
    packet: Packet,
    /// The socket, once there is one.
    socket: AtomicPtr<WSK_SOCKET>,
    /// The next one in a list of orphans, whose lock guards it.
    next: AtomicPtr<Leaf>,
    live: Option<Live>,
    tag: Tag,
}

/// The block of a socket that there is not yet.
pub(super) struct Spare(PoolBox<Leaf>);

impl Spare {
    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new(tag: Tag) -> Result<Self, NoMemory> {
        let leaf = Leaf {
            packet: Packet::try_new()?,
            socket: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
            live: None,
            tag,
        };
        PoolBox::try_new(tag, leaf).map(Self)
    }

    /// Before a socket is asked for: has the client wait for it. `IRQL <= DISPATCH_LEVEL`.
    pub fn arm(&mut self, client: &'static Client) -> Result<(), NTSTATUS> {
        if self.0.live.is_none() {
            self.0.live = Some(client.enter().ok_or(STATUS_DEVICE_NOT_READY)?);
        }
        Ok(())
    }

    /// Gives up the ownership; [`Spare::from_raw`] takes it back.
    pub fn into_raw(self) -> NonNull<Leaf> {
        self.0.into_raw()
    }

    /// # Safety
    /// The leaf came from [`Spare::into_raw`] and is not used any more.
    pub unsafe fn from_raw(leaf: NonNull<Leaf>) -> Self {
        // SAFETY: the block is still allocated (the caller's promise).
        let tag = unsafe { leaf.as_ref() }.tag;
        // SAFETY: as above; every leaf is in a block with its own tag.
        Self(unsafe { PoolBox::from_raw(tag, leaf) })
    }

    /// Hands a socket whose owner has been dropped to the client, which closes it. In a completion.
    pub fn orphan(self, socket: NonNull<WSK_SOCKET>) {
        let Some(client) = self.0.live.as_ref().map(Live::client) else { return };
        self.0.socket.store(socket.as_ptr(), Ordering::Release);
        client.leave_orphan(self.0.into_raw());
    }
}

/// An open socket; closed when it is dropped, which is not in a completion. `IRQL <= DISPATCH_LEVEL`.
pub(super) struct Socket(NonNull<Leaf>);

// SAFETY: a socket may be used from every thread; its owner sees to it that calls do not overlap with its closing.
unsafe impl Send for Socket {}
// SAFETY: nothing is done with a shared reference but to read the address.
unsafe impl Sync for Socket {}

impl Socket {
    /// Takes over a socket that a call made with the armed block has answered.
    pub fn new(spare: Spare, socket: NonNull<WSK_SOCKET>) -> Self {
        spare.0.socket.store(socket.as_ptr(), Ordering::Release);
        Self(spare.0.into_raw())
    }

    /// # Safety
    /// The leaf of an open socket that has no other owner.
    pub unsafe fn from_leaf(leaf: NonNull<Leaf>) -> Self {
        Self(leaf)
    }

    pub fn as_ptr(&self) -> *mut WSK_SOCKET {
        // SAFETY: the block stays until the closing is complete, which begins with the drop of this value.
        unsafe { self.0.as_ref() }.socket.load(Ordering::Acquire)
    }

    /// The functions of a connection.
    ///
    /// # Safety
    /// It was made or accepted as a connection.
    pub unsafe fn connection(&self) -> WSK_PROVIDER_CONNECTION_DISPATCH {
        // SAFETY: the provider's table for this kind, which stays for as long as the socket; all of it is addresses.
        unsafe { self.table().cast::<WSK_PROVIDER_CONNECTION_DISPATCH>().read() }
    }

    /// The functions of a listening socket.
    ///
    /// # Safety
    /// It was made as one.
    pub unsafe fn listener(&self) -> WSK_PROVIDER_LISTEN_DISPATCH {
        // SAFETY: as for a connection.
        unsafe { self.table().cast::<WSK_PROVIDER_LISTEN_DISPATCH>().read() }
    }

    /// The functions of a datagram socket.
    ///
    /// # Safety
    /// It was made as one.
    pub unsafe fn datagram(&self) -> WSK_PROVIDER_DATAGRAM_DISPATCH {
        // SAFETY: as for a connection.
        unsafe { self.table().cast::<WSK_PROVIDER_DATAGRAM_DISPATCH>().read() }
    }

    fn table(&self) -> *const c_void {
        // SAFETY: the socket is open; the provider has set its table before it gave it out.
        unsafe { (*self.as_ptr()).Dispatch }
    }
}

impl Drop for Socket {
    // On its own frame: owners are dropped deep below entry points.
    #[inline(never)]
    fn drop(&mut self) {
        let (leaf, socket) = (self.0, self.as_ptr());
        // SAFETY: every kind of socket has a table that begins with the basic functions.
        let table = unsafe { self.table().cast::<WSK_PROVIDER_BASIC_DISPATCH>().read() };
        // SAFETY: the block stays until its completion routine has run.
        let block = unsafe { leaf.as_ref() };
        if let Some(live) = &block.live {
            live.client().begins_close();
        }
        // SAFETY: used for this call only; the routine takes the leaf.
        let packet = unsafe { block.packet.prepare(closed, leaf.as_ptr().cast()) };
        // SAFETY: an open socket, closed once; no call of it is executing and none comes after, because each borrows this value. What
        // it returns is advisory. The block may have gone when it returns.
        let _advice = unsafe { (table.WskCloseSocket)(socket, packet) };
    }
}

/// The socket is closed: this is its last completion.
unsafe extern "C" fn closed(_device: *mut DEVICE_OBJECT, _packet: *mut IRP, context: *mut c_void) -> NTSTATUS {
    if let Some(leaf) = NonNull::new(context.cast::<Leaf>()) {
        // SAFETY: given up by the socket that was closed, which is not used any more.
        let mut leaf = unsafe { Spare::from_raw(leaf) };
        let live = leaf.0.live.take();
        if let Some(live) = &live {
            live.client().ends_close();
        }
        // The packet goes with it, which its own completion may do: it is not touched after the answer below.
        drop(leaf);
        // Last, because the driver may be unloaded from then on.
        drop(live);
    }
    STATUS_MORE_PROCESSING_REQUIRED
}

/// Sockets that were made after their owner had been dropped.
pub(super) struct Orphans(*mut Leaf);

// SAFETY: the leaves belong to the list until they are taken, whichever processor does that.
unsafe impl Send for Orphans {}

impl Orphans {
    pub const fn new() -> Self {
        Self(ptr::null_mut())
    }

    pub fn push(&mut self, leaf: NonNull<Leaf>) {
        // SAFETY: given up to the list, so it stays until it is popped.
        unsafe { leaf.as_ref() }.next.store(self.0, Ordering::Relaxed);
        self.0 = leaf.as_ptr();
    }

    pub fn pop(&mut self) -> Option<NonNull<Leaf>> {
        let leaf = NonNull::new(self.0)?;
        // SAFETY: `push` took it, and it is in no other place.
        self.0 = unsafe { leaf.as_ref() }.next.swap(ptr::null_mut(), Ordering::Relaxed);
        Some(leaf)
    }
}
