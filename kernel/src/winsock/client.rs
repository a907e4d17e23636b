//! A client of Winsock Kernel that has sockets.
//!
//! Rules it keeps: the provider is captured without waiting, when a socket first needs it, and held until the end; the end waits for every
//! socket. What a socket was asked for and came only after its owner had gone is closed by [`Client::reap`], since the completion that
//! brings it must not do that.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use ndkpi_sys::{nt::NTSTATUS, wsk::WSK_NO_WAIT};

use super::{
    registration::{Provider, Registration},
    socket::{Leaf, Orphans, Socket},
};
use crate::{
    event::Event,
    pool::{NoMemory, Tag},
    rundown::Rundown,
    spin_lock::SpinLock,
};

pub struct Client {
    registration: Registration,
    /// The provider, once a socket has needed it.
    provider: SpinLock<Option<Provider>>,
    /// Held by the blocks of sockets, until their last completion.
    gate: Rundown,
    /// How many hold it.
    live: AtomicUsize,
    /// Sockets whose close is not complete: they may still have their ports.
    closing: AtomicUsize,
    /// No more sockets are made.
    ending: AtomicBool,
    /// There is something for [`Client::deregister`] to look at.
    changed: Event,
    orphans: SpinLock<Orphans>,
}

impl Client {
    pub fn try_new(tag: Tag) -> Result<Self, NoMemory> {
        Ok(Self {
            registration: Registration::try_new(tag)?,
            provider: SpinLock::new(None),
            gate: Rundown::try_open(tag)?,
            live: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            changed: Event::try_synchronization(tag, false)?,
            orphans: SpinLock::new(Orphans::new()),
        })
    }

    /// PASSIVE_LEVEL, once.
    pub fn register(&self) -> Result<(), NTSTATUS> {
        self.registration.register()
    }

    /// Ends the registration: refuses new sockets, and waits until every socket that was started is dropped and its
    /// socket closed. PASSIVE_LEVEL.
    pub fn deregister(&self) {
        self.ending.store(true, Ordering::SeqCst);
        loop {
            self.reap();
            if self.live.load(Ordering::SeqCst) == 0 {
                break;
            }
            self.changed.wait();
        }
        // For references that are counted out and not yet released.
        self.gate.shut();
        let provider = self.provider.lock().take();
        if provider.is_some() {
            // SAFETY: kept when it was put there; no socket is left that would use it.
            unsafe { self.registration.release() };
        }
        self.registration.deregister();
    }

    /// Closes the sockets that were made after their owner had been dropped. Connecting, listening and the end of the registration call
    /// it too. `IRQL <= DISPATCH_LEVEL`; not in a completion.
    pub fn reap(&self) {
        loop {
            let orphan = self.orphans.lock().pop();
            let Some(orphan) = orphan else { return };
            // SAFETY: the leaf of a socket that came, from `leave_orphan`, which has given it up.
            drop(unsafe { Socket::from_leaf(orphan) });
        }
    }

    /// Keeps a socket without an owner for [`Client::reap`]. `IRQL <= DISPATCH_LEVEL`, also in a completion.
    pub(super) fn leave_orphan(&self, leaf: NonNull<Leaf>) {
        self.orphans.lock().push(leaf);
        // The caller holds a rundown reference, so the client is still there.
        self.changed.set();
    }

    /// A socket is about to be closed.
    pub(super) fn begins_close(&self) {
        self.closing.fetch_add(1, Ordering::SeqCst);
    }

    /// The close of a socket is complete.
    pub(super) fn ends_close(&self) {
        self.closing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a port in use may be that of a socket of this client that is being closed.
    pub(super) fn is_closing_sockets(&self) -> bool {
        self.closing.load(Ordering::SeqCst) != 0
    }

    /// Takes a rundown reference for a block of a socket, unless the registration is ending. `IRQL <= DISPATCH_LEVEL`.
    pub(super) fn enter(&'static self) -> Option<Live> {
        if !self.gate.acquire() {
            return None;
        }
        self.live.fetch_add(1, Ordering::SeqCst);
        let live = Live(self);
        // After it was counted: either the end has seen the count, or this sees the end.
        (!self.ending.load(Ordering::SeqCst)).then_some(live)
    }
}

/// The rundown reference of a block of a socket. Dropping it is the block's last access to the driver.
pub(super) struct Live(&'static Client);

impl Live {
    pub fn client(&self) -> &'static Client {
        self.0
    }

    /// The provider, which is held until after this has gone.
    pub fn provider(&self) -> Result<Provider, NTSTATUS> {
        if let Some(provider) = *self.0.provider.lock() {
            return Ok(provider);
        }
        // The lock is not held over the call: two may come here, and the second lets its capture go.
        let captured = self.0.registration.capture(WSK_NO_WAIT)?;
        let mut kept = self.0.provider.lock();
        if let Some(provider) = *kept {
            drop(kept);
            drop(captured);
            return Ok(provider);
        }
        let provider = captured.keep();
        *kept = Some(provider);
        Ok(provider)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let client = self.0;
        client.live.fetch_sub(1, Ordering::SeqCst);
        if client.ending.load(Ordering::SeqCst) {
            client.changed.set();
        }
        client.gate.release();
    }
}
