//! What exists once per loaded driver: the registration, the table of adapters, the named devices.
//!
//! The table is a few pointers under a spin lock. A context that takes an adapter out of it holds a reference on the adapter's
//! gate; HaltEx removes the pointer, shuts the gate and waits before anything of the adapter is freed.

use core::{
    ffi::c_void,
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    adapter::Adapter,
    device::NamedDevice,
    link::{
        Station,
        uplink::{END_POINT_MAX, EndPoints},
    },
    runtime::engine::Engine,
    tags,
};
use softndk_kernel::{pool::NoMemory, published::Published, spin_lock::SpinLock, work::Task};

/// Adapters one driver serves at the same time.
pub const ADAPTER_MAX: usize = 32;

pub struct Driver {
    /// Handle of the miniport registration; null until registered.
    registration: AtomicPtr<c_void>,
    adapters: SpinLock<[Entry; ADAPTER_MAX]>,
    /// The tools' device.
    pub control: NamedDevice,
    /// The device of user-mode NetworkDirect.
    pub network_direct: NamedDevice,
    pub engine: &'static Engine,
    /// Sockets of the adapters' uplinks.
    pub end_points: EndPoints,
}

const _: () = assert!(ADAPTER_MAX <= END_POINT_MAX, "each adapter may have an end point of its own");

/// A place in the adapter table.
#[derive(Clone, Copy)]
enum Entry {
    Free,
    /// InitializeEx is building the adapter.
    Reserved,
    Running(NonNull<Adapter>),
}

// SAFETY: the pointer is followed only with a reference on the adapter's gate, from any processor.
unsafe impl Send for Entry {}

static DRIVER: Published<Driver> = Published::new(tags::DRIVER);

impl Driver {
    /// Builds the driver state and makes it reachable. PASSIVE_LEVEL, from DriverEntry.
    pub fn publish() -> Result<&'static Self, NoMemory> {
        let engine = Engine::publish()?;
        let made = Self::try_new(engine).and_then(|driver| DRIVER.publish(driver));
        if made.is_err() {
            // SAFETY: nothing has been started, and nothing but this function knows the engine.
            unsafe { Engine::withdraw() };
        }
        made
    }

    fn try_new(engine: &'static Engine) -> Result<Self, NoMemory> {
        Ok(Self {
            registration: AtomicPtr::new(ptr::null_mut()),
            adapters: SpinLock::new([Entry::Free; ADAPTER_MAX]),
            control: NamedDevice::try_new()?,
            network_direct: NamedDevice::try_new()?,
            engine,
            end_points: EndPoints::try_new()?,
        })
    }

    /// The driver state, while there is one.
    pub fn get() -> Option<&'static Self> {
        DRIVER.get()
    }

    /// Takes the driver state and the engine away. PASSIVE_LEVEL, from DriverEntry's failure path or unload.
    ///
    /// # Safety
    /// Nothing of the driver runs any more or will run again.
    pub unsafe fn withdraw() {
        // SAFETY: the caller's promise.
        unsafe { DRIVER.withdraw() };
        // SAFETY: as above.
        unsafe { Engine::withdraw() };
    }

    /// Handle of the miniport registration.
    pub fn registration(&self) -> *mut c_void {
        self.registration.load(Ordering::Acquire)
    }

    pub fn set_registration(&self, handle: *mut c_void) {
        self.registration.store(handle, Ordering::Release);
    }

    /// A place for a new adapter, or `None` when [`ADAPTER_MAX`] are there.
    pub fn reserve(&'static self) -> Option<Reservation> {
        let mut adapters = self.adapters.lock();
        let (index, entry) = adapters.iter_mut().enumerate().find(|(_, entry)| matches!(entry, Entry::Free))?;
        *entry = Entry::Reserved;
        Some(Reservation { driver: self, index, kept: false })
    }

    /// The adapter with this index, if it is running.
    pub fn adapter(&self, index: usize) -> Option<AdapterReference> {
        let adapters = self.adapters.lock();
        match adapters.get(index) {
            Some(&Entry::Running(adapter)) => AdapterReference::take(adapter),
            _ => None,
        }
    }

    /// Visits the station of each running adapter. `IRQL <= DISPATCH_LEVEL`.
    pub fn each_station(&self, visit: &mut dyn FnMut(usize, &Task<Station>)) {
        for adapter in (0..ADAPTER_MAX).filter_map(|index| self.adapter(index)) {
            visit(adapter.index, &adapter.station);
        }
    }

    pub fn adapter_count(&self) -> u32 {
        let adapters = self.adapters.lock();
        adapters.iter().filter(|entry| matches!(entry, Entry::Running(_))).count() as u32
    }

    /// Removes an adapter from the table; references taken before stay valid until its gate is shut. Its place stays taken
    /// until [`Driver::release`].
    pub fn remove(&self, index: usize) {
        self.set(index, Entry::Reserved);
    }

    /// Lets another adapter have the place of one that was removed.
    pub fn release(&self, index: usize) {
        self.set(index, Entry::Free);
    }

    fn set(&self, index: usize, value: Entry) {
        if let Some(entry) = self.adapters.lock().get_mut(index) {
            *entry = value;
        }
    }
}

/// A reserved place; given back unless an adapter is put into it.
pub struct Reservation {
    driver: &'static Driver,
    index: usize,
    kept: bool,
}

impl Reservation {
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Makes the adapter reachable for others.
    pub fn publish(mut self, adapter: NonNull<Adapter>) {
        self.kept = true;
        self.driver.set(self.index, Entry::Running(adapter));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.kept {
            self.driver.set(self.index, Entry::Free);
        }
    }
}

/// Keeps an adapter from being freed. Must not be held across a wait for the adapter's own end.
pub struct AdapterReference {
    adapter: NonNull<Adapter>,
}

// SAFETY: the reference may be given back on any processor and thread.
unsafe impl Send for AdapterReference {}

impl AdapterReference {
    fn take(adapter: NonNull<Adapter>) -> Option<Self> {
        // SAFETY: an adapter in the table is alive, and the table's lock is held by the caller.
        let alive = unsafe { adapter.as_ref() };
        // Lazily: a reference made for a shut gate would release what was not acquired.
        alive.gate.acquire().then(|| Self { adapter })
    }
}

impl Deref for AdapterReference {
    type Target = Adapter;

    fn deref(&self) -> &Adapter {
        // SAFETY: the gate reference keeps the adapter alive.
        unsafe { self.adapter.as_ref() }
    }
}

impl Drop for AdapterReference {
    fn drop(&mut self) {
        self.gate.release();
    }
}
