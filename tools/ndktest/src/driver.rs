//! What exists once per loaded driver.

use softndk_kernel::{clock::Clock, pool::NoMemory, published::Published, spin_lock::SpinLock};
use wdk_sys::NTSTATUS;

use crate::{
    device::Device,
    interface::Watch,
    session::{closer::Closer, table::Pairs, worker::Workers},
    tags,
    wsk::Client,
};

pub struct Driver {
    pub clock: Clock,
    /// The registration with Winsock Kernel, through which adapters are opened.
    pub client: Client,
    pub workers: Workers,
    pub pairs: Pairs,
    pub closer: Closer,
    /// Tells of addresses that come and go.
    pub watch: Watch,
    device: SpinLock<Option<Device>>,
}

static DRIVER: Published<Driver> = Published::new(tags::DRIVER);

impl Driver {
    /// Builds the driver state and makes it reachable. PASSIVE_LEVEL, from DriverEntry.
    pub fn publish() -> Result<&'static Self, NoMemory> {
        let driver = Self {
            clock: Clock::new(),
            client: Client::try_new()?,
            workers: Workers::try_new()?,
            pairs: Pairs::try_new()?,
            closer: Closer::try_new()?,
            watch: Watch::new(),
            device: SpinLock::new(None),
        };
        DRIVER.publish(driver)
    }

    /// Registers with Winsock Kernel and starts the thread that closes pairs. PASSIVE_LEVEL, from DriverEntry.
    pub fn start(&self) -> Result<(), NTSTATUS> {
        self.client.register()?;
        self.closer.start()?;
        self.watch.start()
    }

    /// Ends the threads and the registration. PASSIVE_LEVEL, when no request and no pair is left.
    pub fn stop(&self) {
        self.watch.stop();
        self.workers.stop();
        self.closer.stop();
        self.client.deregister();
    }

    pub fn set_device(&self, device: Device) {
        *self.device.lock() = Some(device);
    }

    /// PASSIVE_LEVEL.
    pub fn delete_device(&self) {
        let device = self.device.lock().take();
        drop(device);
    }

    /// The driver state, while there is one.
    pub fn get() -> Option<&'static Self> {
        DRIVER.get()
    }

    /// Takes the driver state away. PASSIVE_LEVEL, from DriverEntry's failure path or unload.
    ///
    /// # Safety
    /// Nothing of the driver runs any more or will run again.
    pub unsafe fn withdraw() {
        // SAFETY: the caller's promise.
        unsafe { DRIVER.withdraw() };
    }
}
