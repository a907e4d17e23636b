//! The thread that closes pairs whose connection ended.
//!
//! A provider on which NDK is switched off, or which is halted, waits until every NDK adapter is closed. It ends the connections
//! first; the disconnect event wakes this thread, which closes what the pair stands on, the opens last. It does nothing else, so it
//! is there when all other threads wait for user mode or for transfers.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use softndk_kernel::{
    event::Event,
    pool::NoMemory,
    spin_lock::SpinLock,
    thread::{self, Thread},
};
use wdk_sys::NTSTATUS;

use crate::{driver::Driver, tags};

pub struct Closer {
    called: Event,
    stopping: AtomicBool,
    thread: SpinLock<Option<Thread>>,
}

impl Closer {
    pub fn try_new() -> Result<Self, NoMemory> {
        Ok(Self {
            called: Event::try_synchronization(tags::EVENT, false)?,
            stopping: AtomicBool::new(false),
            thread: SpinLock::new(None),
        })
    }

    /// PASSIVE_LEVEL, once the driver state is reachable.
    pub fn start(&self) -> Result<(), NTSTATUS> {
        // SAFETY: `run` uses the driver state only; `stop` joins the thread before that goes.
        let thread = unsafe { Thread::start(run, ptr::null_mut()) }?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// PASSIVE_LEVEL.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.called.set();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    /// A connection has ended. `IRQL <= DISPATCH_LEVEL`.
    pub fn wake(&self) {
        self.called.set();
    }
}

unsafe extern "C" fn run(_context: *mut c_void) {
    if let Some(driver) = Driver::get() {
        let closer = &driver.closer;
        loop {
            closer.called.wait();
            if closer.stopping.load(Ordering::Acquire) {
                break;
            }
            driver.pairs.end_disconnected(driver);
        }
    }
    thread::exit();
}
