//! The engine of this driver, and what runs it: service passes and the mapper's thread.
//!
//! There is one for all adapters. It knows neither adapters nor the miniport: they are put together from it (`driver.rs`).

use softndk_engine::Fabric;
use softndk_kernel::{pool::NoMemory, published::Published};
use wdk_sys::NTSTATUS;

use crate::{
    runtime::{mapper::Mapper, platform::KernelPlatform, service::ProcessorServices, sockets},
    tags,
};

pub struct Engine {
    pub fabric: Fabric<KernelPlatform>,
    pub mapper: Mapper,
}

static ENGINE: Published<Engine> = Published::new(tags::NDK_ENGINE);

impl Engine {
    /// Builds the engine and makes it reachable. PASSIVE_LEVEL, from DriverEntry.
    pub fn publish() -> Result<&'static Self, NoMemory> {
        let services = ProcessorServices::try_new()?;
        let processors = services.processors.count();
        let fabric = Fabric::try_new(KernelPlatform::new(services), processors)?;
        ENGINE.publish(Self { fabric, mapper: Mapper::try_new()? })
    }

    /// Starts the threads, and makes sockets possible. PASSIVE_LEVEL, from DriverEntry.
    pub fn start(&'static self) -> Result<(), NTSTATUS> {
        sockets::start()?;
        self.mapper.start()?;
        self.fabric.platform().services.start()
    }

    /// Waits for the threads and DPCs to end. PASSIVE_LEVEL, when no adapter is left.
    pub fn stop(&self) {
        // Before the services: the end of a mapper's job releases holds, which schedules a pass. No adapter is left, so no job
        // can come.
        self.mapper.stop();
        // The passes close what is still open.
        sockets::stop();
        self.fabric.platform().services.stop();
    }

    /// The engine, while there is one.
    pub fn get() -> Option<&'static Self> {
        ENGINE.get()
    }

    /// Takes the engine away. PASSIVE_LEVEL.
    ///
    /// # Safety
    /// Nothing of the driver runs any more or will run again.
    pub unsafe fn withdraw() {
        // SAFETY: the caller's promise.
        unsafe { ENGINE.withdraw() };
        // SAFETY: as above.
        unsafe { sockets::withdraw() };
    }
}
