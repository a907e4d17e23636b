//! Memory windows: what a queue pair binds to a region.

use ndkpi_sys::nt::NTSTATUS;
use softndk_cells::Shared;
use softndk_engine::MemoryWindow as EngineWindow;
use softndk_ioctl::nd::control::Handle;
use softndk_kernel::irp::Buffer;

use super::{
    adapter::{Domain, OpenedAdapter},
    context::{AdapterLife, HandleReservation},
    object::{self, Closable, EngineHandle, consumer_object, handle_kind},
    request::{Call, answer, check_output, input},
    status::{Answered, of_error},
};
use crate::runtime::platform::{CancelledRequest, KernelPlatform, UserModeObject};

pub struct MemoryWindow {
    engine: EngineHandle<EngineWindow<KernelPlatform>>,
    adapter: Shared<OpenedAdapter>,
}

impl MemoryWindow {
    pub fn engine(&self) -> Result<&EngineWindow<KernelPlatform>, NTSTATUS> {
        self.engine.get()
    }
}

handle_kind!(MemoryWindow);

impl UserModeObject for Shared<MemoryWindow> {
    fn cancelled(&self, _request: CancelledRequest) {}
}

impl Closable for Shared<MemoryWindow> {
    fn close(&self, _status: NTSTATUS) {
        if let Ok(engine) = self.engine.get() {
            object::finish(engine.close(object::no_callback()));
        }
    }

    fn end_file(&self, _file: u64) {}

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }
}

/// MW_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    check_output::<u64>(buffer)?;
    let domain = call.context.object::<Domain>(asked.handle)?;
    let adapter = domain.adapter.clone();
    let mut reservation = HandleReservation::try_new(call, &[asked.handle], Some(&adapter.life))?;
    let window = object::block(MemoryWindow { engine: EngineHandle::none(&mut reservation), adapter })?;
    let engine = domain.engine()?.create_memory_window(consumer_object(&window)).map_err(of_error)?;
    // SAFETY: no other context has the object yet.
    unsafe { window.engine.set(engine) };
    answer(buffer, &reservation.fill(window))
}
