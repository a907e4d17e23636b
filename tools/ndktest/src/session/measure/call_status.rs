//! What a pended NDK call says in the end, waited for by looking: most calls of a connection answer within microseconds, and an event for
//! each would cost more than the call.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicI32, AtomicPtr, Ordering},
};

use ndkpi_sys::{
    ndkpi::NDK_OBJECT_HEADER,
    nt::{NTSTATUS, STATUS_PENDING, STATUS_SUCCESS},
};
use softndk_ioctl::Status;
use softndk_kernel::thread;

use super::interruption::Interruption;
use crate::session::{consumer::check, pair::SPINS};

/// One call at a time. It stays where it is while one is pending.
pub struct CallStatus {
    status: AtomicI32,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

impl CallStatus {
    pub const fn new() -> Self {
        Self { status: AtomicI32::new(STATUS_PENDING), object: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Ready for a call, whose context this is.
    pub fn context(&self) -> *mut c_void {
        self.status.store(STATUS_PENDING, Ordering::Relaxed);
        ptr::from_ref(self).cast_mut().cast()
    }

    pub fn is_there(&self) -> bool {
        self.status.load(Ordering::Acquire) != STATUS_PENDING
    }

    /// Waits for a call that answered PENDING; any other answer is final. PASSIVE_LEVEL.
    pub fn wait(&self, status: NTSTATUS) -> NTSTATUS {
        if status != STATUS_PENDING {
            return status;
        }
        let mut spins = 0;
        while !self.is_there() {
            spin(&mut spins);
        }
        self.status.load(Ordering::Acquire)
    }

    /// As [`CallStatus::wait`], but gives up when the measurement has to end: then the object of the call has to be closed before this goes.
    pub fn wait_unless(&self, status: NTSTATUS, interruption: &Interruption<'_>) -> Result<(), Status> {
        let mut spins = 0;
        while status == STATUS_PENDING && !self.is_there() {
            if spin(&mut spins) {
                interruption.check()?;
            }
        }
        check(self.wait(status))
    }

    /// The object of a create call.
    pub fn object<T>(&self, status: NTSTATUS, inline: *mut T) -> Result<*mut T, Status> {
        check(self.wait(status))?;
        let object = if status == STATUS_PENDING { self.object.load(Ordering::Acquire).cast() } else { inline };
        if object.is_null() { Err(Status::INSUFFICIENT_RESOURCES) } else { Ok(object) }
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

/// NDK_FN_REQUEST_COMPLETION of a [`CallStatus`].
pub unsafe extern "C" fn request_done(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the answer stays until the call is complete or its object closed.
    if let Some(answer) = unsafe { context.cast::<CallStatus>().as_ref() } {
        answer.status.store(status, Ordering::Release);
    }
}

/// NDK_FN_CREATE_COMPLETION of a [`CallStatus`].
pub unsafe extern "C" fn create_done(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: as `request_done`.
    if let Some(answer) = unsafe { context.cast::<CallStatus>().as_ref() } {
        answer.object.store(object, Ordering::Relaxed);
        answer.status.store(status, Ordering::Release);
    }
}

/// NDK_FN_CLOSE_COMPLETION of a [`CallStatus`].
pub unsafe extern "C" fn close_done(context: *mut c_void) {
    // SAFETY: as `request_done`.
    unsafe { request_done(context, STATUS_SUCCESS) };
}
