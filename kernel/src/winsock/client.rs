//! A client of Winsock Kernel that has sockets.
//!
//! Rules it keeps: the provider is captured without waiting, when a socket first needs it, and held until the end; the end waits for every
//! socket. What a socket was asked for and came only after its owner had gone is closed by [`Client::reap`], since the completion that
//! brings it must not do that.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use ndkpi_sys::{
    nt::{NTSTATUS, STATUS_DEVICE_NOT_READY},
    wsk::WSK_NO_WAIT,
};

use super::{
    registration::{Captured, Provider, Registration},
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
    /// Passed by what lives for sockets, until the last completion of theirs.
    gate: Rundown,
    /// How many have passed.
    live: AtomicUsize,
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
            ending: AtomicBool::new(false),
            changed: Event::try_synchronization(tag, false)?,
            orphans: SpinLock::new(Orphans::new()),
        })
    }

    /// PASSIVE_LEVEL, once.
    pub fn register(&self) -> Result<(), NTSTATUS> {
        self.registration.register()
    }

    /// Ends the registration: refuses new sockets, and waits until every connection and listener that was started is dropped and its
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
        // For those that have been counted out and are about to leave.
        self.gate.shut();
        let provider = self.provider.lock().take();
        if provider.is_some() {
            // SAFETY: kept when it was put there; no socket is left that would use it.
            unsafe { self.registration.release() };
        }
        self.registration.deregister();
    }

    /// Takes hold of the provider apart from the sockets ([`Registration::capture`]).
    pub fn capture(&self, limit: u32) -> Result<Captured<'_>, NTSTATUS> {
        self.registration.capture(limit)
    }

    /// Whether sockets can be made: takes hold of the provider, until the registration ends. `IRQL <= DISPATCH_LEVEL`.
    pub fn ready(&'static self) -> Result<(), NTSTATUS> {
        let live = self.enter().ok_or(STATUS_DEVICE_NOT_READY)?;
        live.provider().map(|_| ())
    }

    /// Closes the sockets that came when nobody wanted them any more. Connecting and listening do so as well, as does the end of the
    /// registration. `IRQL <= DISPATCH_LEVEL`; not in a completion.
    pub fn reap(&self) {
        loop {
            let orphan = self.orphans.lock().pop();
            let Some(orphan) = orphan else { return };
            // SAFETY: the leaf of a socket that came, from `leave_orphan`, which has given it up.
            drop(unsafe { Socket::from_leaf(orphan) });
        }
    }

    /// Keeps a socket for [`Client::reap`]. `IRQL <= DISPATCH_LEVEL`, also in a completion.
    pub(super) fn leave_orphan(&self, leaf: NonNull<Leaf>) {
        self.orphans.lock().push(leaf);
        // The caller has passed the gate, so the client is still there.
        self.changed.set();
    }

    /// Lets something in that lives for a socket, unless the registration is ending. `IRQL <= DISPATCH_LEVEL`.
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

/// The passage of something that lives for a socket. The last thing that it touches of the driver is this, when it is dropped.
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
