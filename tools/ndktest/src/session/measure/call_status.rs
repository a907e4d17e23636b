//! What a pended NDK call says in the end, waited for by looking: most calls of a connection answer within microseconds, and an event for
//! each would cost more than the call.

use core::{
    ptr,
    sync::atomic::{AtomicI32, AtomicPtr, Ordering},
};

use ndkpi_sys::{
    ndkpi::NDK_OBJECT_HEADER,
    nt::{NTSTATUS, STATUS_PENDING},
};
use softndk_ioctl::Status;
use softndk_kernel::thread;

use super::interruption::Interruption;
use crate::session::{consumer::check, object::PendingCall, pair::SPINS};

/// One call at a time. It stays where it is while one is pending.
pub struct CallStatus {
    status: AtomicI32,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

impl CallStatus {
    pub const fn new() -> Self {
        Self { status: AtomicI32::new(STATUS_PENDING), object: AtomicPtr::new(ptr::null_mut()) }
    }

    pub fn is_there(&self) -> bool {
        self.status.load(Ordering::Acquire) != STATUS_PENDING
    }

    /// As [`PendingCall::wait`], but gives up when the measurement has to end: then the object of the call has to be closed before this goes.
    pub fn wait_unless(&self, status: NTSTATUS, interruption: &Interruption<'_>) -> Result<(), Status> {
        let mut spins = 0;
        while status == STATUS_PENDING && !self.is_there() {
            if spin(&mut spins) {
                interruption.check()?;
            }
        }
        check(self.wait(status))
    }
}

// SAFETY: the status is stored after the object, and waited for.
unsafe impl PendingCall for CallStatus {
    fn begin(&self) {
        self.status.store(STATUS_PENDING, Ordering::Relaxed);
    }

    fn complete(&self, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        self.object.store(object, Ordering::Relaxed);
        self.status.store(status, Ordering::Release);
    }

    fn wait(&self, status: NTSTATUS) -> NTSTATUS {
        if status != STATUS_PENDING {
            return status;
        }
        let mut spins = 0;
        while !self.is_there() {
            spin(&mut spins);
        }
        self.status.load(Ordering::Acquire)
    }

    fn object(&self) -> *mut NDK_OBJECT_HEADER {
        self.object.load(Ordering::Acquire)
    }
}

/// One look too many; now and then lets other threads run. Whether it did. PASSIVE_LEVEL.
pub fn spin(spins: &mut u32) -> bool {
    core::hint::spin_loop();
    *spins += 1;
    let over_the_limit = *spins >= SPINS;
    if over_the_limit {
        *spins = 0;
        thread::pause();
    }
    over_the_limit
}
