//! System threads of our own, joined before the memory and the code they use go away.
//!
//! A thread is known by its handle, which the system gives together with the thread: nothing that can fail lies between a thread that
//! runs and its being joined.

use core::{ffi::c_void, marker::PhantomData, mem::size_of, ptr};

use wdk_sys::{
    _MODE, GROUP_AFFINITY, HANDLE, KPROCESSOR_MODE, LARGE_INTEGER, NTSTATUS, OBJ_KERNEL_HANDLE, OBJECT_ATTRIBUTES,
    STATUS_SUCCESS, THREAD_ALL_ACCESS,
    ntddk::{
        KeDelayExecutionThread, KeRevertToUserGroupAffinityThread, KeSetPriorityThread, KeSetSystemGroupAffinityThread,
        ObReferenceObjectByHandle, ObfDereferenceObject, PsCreateSystemThread, PsTerminateSystemThread, ZwClose,
        ZwWaitForSingleObject,
    },
};

use crate::irql;

/// The highest of the ordinary priorities: above threads that poll for our work, below every real-time thread.
const HIGHEST_ORDINARY_PRIORITY: i32 = 15;

/// What a thread runs, at PASSIVE_LEVEL, until it returns.
pub type ThreadRoutine = unsafe extern "C" fn(*mut c_void);

pub struct Thread {
    /// A kernel handle: good in whatever process, for kernel callers only.
    handle: HANDLE,
}

// SAFETY: the handle is a token that every thread may use.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

impl Thread {
    /// Starts a thread at PASSIVE_LEVEL.
    ///
    /// # Safety
    /// `routine` must be sound for `context` until [`Thread::join`] returned, and must end with [`exit`].
    pub unsafe fn start(routine: ThreadRoutine, context: *mut c_void) -> Result<Self, NTSTATUS> {
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
        if status == STATUS_SUCCESS { Ok(Self { handle }) } else { Err(status) }
    }

    /// Lifts the thread over most ordinary ones, which may be polling for its work without ever sleeping. Who prefers a thread has
    /// it [`pause`] when it has been busy for long. One that cannot be lifted does the same work later. PASSIVE_LEVEL.
    pub fn prefer(&self) {
        let mut object: *mut c_void = ptr::null_mut();
        // SAFETY: our own kernel handle; without an object type the check is skipped, which the contract allows for kernel
        // mode; `object` is a valid place for the answer.
        let status = unsafe {
            ObReferenceObjectByHandle(
                self.handle,
                THREAD_ALL_ACCESS,
                ptr::null_mut(),
                _MODE::KernelMode as KPROCESSOR_MODE,
                &raw mut object,
                ptr::null_mut(),
            )
        };
        if status != STATUS_SUCCESS {
            return;
        }
        // SAFETY: a referenced thread object; PASSIVE_LEVEL.
        let _previous = unsafe { KeSetPriorityThread(object.cast(), HIGHEST_ORDINARY_PRIORITY) };
        // SAFETY: gives back the reference taken above.
        unsafe { ObfDereferenceObject(object) };
    }

    /// Waits until the thread has ended. PASSIVE_LEVEL. Tell it to end first.
    pub fn join(self) {
        // SAFETY: our own kernel handle; PASSIVE_LEVEL; not alertable; no time-out.
        let _status = unsafe { ZwWaitForSingleObject(self.handle, 0, ptr::null_mut()) };
        // SAFETY: our own kernel handle, closed once, because `join` consumes the owner.
        let _status = unsafe { ZwClose(self.handle) };
    }
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

/// The calling thread's stay on one processor, which ends when this is dropped, on the same thread. `IRQL <= APC_LEVEL`.
pub struct Bound {
    before: GROUP_AFFINITY,
    /// Of this thread only.
    _thread: PhantomData<*mut ()>,
}

impl Bound {
    /// Has the calling thread run on a processor, by its index over all groups; nothing if there is no such processor.
    pub fn to(processor: u32) -> Option<Self> {
        let (mask, group) = irql::affinity(processor)?;
        let mut wanted = GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
        let mut before = GROUP_AFFINITY::default();
        // SAFETY: `IRQL <= APC_LEVEL`, which is where threads are bound; both structures live for the call.
        unsafe { KeSetSystemGroupAffinityThread(&raw mut wanted, &raw mut before) };
        Some(Self { before, _thread: PhantomData })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: what `to` was given, on the same thread.
        unsafe { KeRevertToUserGroupAffinityThread(&raw mut self.before) };
    }
}
