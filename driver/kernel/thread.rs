//! System threads of our own, joined before the memory and the code they use go away.

use core::{ffi::c_void, mem::size_of, ptr, ptr::NonNull};

use wdk_sys::{
    _KWAIT_REASON, _MODE, HANDLE, KPROCESSOR_MODE, LARGE_INTEGER, NTSTATUS, OBJ_KERNEL_HANDLE, OBJECT_ATTRIBUTES,
    STATUS_SUCCESS, THREAD_ALL_ACCESS,
    ntddk::{
        KeDelayExecutionThread, KeSetPriorityThread, KeWaitForSingleObject, ObReferenceObjectByHandle,
        ObfDereferenceObject, PsCreateSystemThread, PsTerminateSystemThread, ZwClose,
    },
};

/// WDM: the lowest of the priorities that the system does not change by itself.
const LOW_REALTIME_PRIORITY: i32 = 16;

/// What a thread runs, at PASSIVE_LEVEL, until it returns.
pub type Routine = unsafe extern "C" fn(*mut c_void);

pub struct Thread {
    object: NonNull<c_void>,
}

// SAFETY: the thread object is referenced and only waited for.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

impl Thread {
    /// Starts a thread at PASSIVE_LEVEL.
    ///
    /// # Safety
    /// `routine` must be sound for `context` until [`Thread::join`] returned, and must end with [`exit`].
    pub unsafe fn start(routine: Routine, context: *mut c_void) -> Result<Self, NTSTATUS> {
        let mut attributes = OBJECT_ATTRIBUTES {
            Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
            RootDirectory: ptr::null_mut(),
            ObjectName: ptr::null_mut(),
            Attributes: OBJ_KERNEL_HANDLE,
            SecurityDescriptor: ptr::null_mut(),
            SecurityQualityOfService: ptr::null_mut(),
        };
        let mut handle: HANDLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL; the attributes live for the call; routine and context are the caller's promise.
        let status = unsafe {
            PsCreateSystemThread(
                &raw mut handle,
                THREAD_ALL_ACCESS,
                &raw mut attributes,
                ptr::null_mut(),
                ptr::null_mut(),
                Some(routine),
                context,
            )
        };
        if status != STATUS_SUCCESS {
            return Err(status);
        }
        let object = reference_and_close(handle);
        // A kernel handle that was just created resolves always; without the object the thread could not be joined, so
        // this driver could never be unloaded safely, which is why the failure is not passed on as a mere status.
        NonNull::new(object).map(|object| Self { object }).ok_or(wdk_sys::STATUS_UNSUCCESSFUL)
    }

    /// Lifts the thread over the ordinary ones, which may be waiting for its work without ever sleeping. PASSIVE_LEVEL.
    pub fn prefer(&self) {
        // SAFETY: a referenced thread object; PASSIVE_LEVEL.
        let _previous = unsafe { KeSetPriorityThread(self.object.as_ptr().cast(), LOW_REALTIME_PRIORITY) };
    }

    /// Waits until the thread has ended. PASSIVE_LEVEL. Tell it to end first.
    pub fn join(self) {
        // SAFETY: a referenced thread object; PASSIVE_LEVEL; no time-out.
        let _status = unsafe {
            KeWaitForSingleObject(
                self.object.as_ptr(),
                _KWAIT_REASON::Executive,
                _MODE::KernelMode as KPROCESSOR_MODE,
                0,
                ptr::null_mut(),
            )
        };
        // SAFETY: gives back the reference taken in `start`, once, because `join` consumes the owner.
        unsafe { ObfDereferenceObject(self.object.as_ptr()) };
    }
}

/// Turns the handle into a referenced object, null on failure, and closes the handle.
fn reference_and_close(handle: HANDLE) -> *mut c_void {
    let mut object: *mut c_void = ptr::null_mut();
    // SAFETY: our own kernel handle; without an object type the check is skipped, which the contract allows for kernel
    // mode; `object` is a valid place for the answer.
    let status = unsafe {
        ObReferenceObjectByHandle(
            handle,
            THREAD_ALL_ACCESS,
            ptr::null_mut(),
            _MODE::KernelMode as KPROCESSOR_MODE,
            &raw mut object,
            ptr::null_mut(),
        )
    };
    // SAFETY: our own kernel handle, closed once.
    let _status = unsafe { ZwClose(handle) };
    if status == STATUS_SUCCESS { object } else { ptr::null_mut() }
}

/// Lets other threads run for a tick of the system's clock. Below DISPATCH_LEVEL.
pub fn pause() {
    // In units of 100 ns, negative: from now on. The system rounds up to its tick.
    let mut interval = LARGE_INTEGER { QuadPart: -1 };
    // SAFETY: the caller's IRQL; not alertable; the interval lives for the call.
    let _status = unsafe { KeDelayExecutionThread(_MODE::KernelMode as KPROCESSOR_MODE, 0, &raw mut interval) };
}

/// Ends the calling system thread.
pub fn exit() {
    // SAFETY: called by threads that `Thread::start` created, as the last thing they do.
    let _status = unsafe { PsTerminateSystemThread(STATUS_SUCCESS) };
}
