//! The packet of one call at a time of Winsock Kernel.
//!
//! Rules it keeps: allocated by the I/O manager with one stack location; made new before each call; its completion routine is called on
//! success, error and cancelling, and answers that the packet is still ours, so that the I/O manager does not touch it any more.

use core::{ffi::c_void, ptr::NonNull};

use ndkpi_sys::nt::{self, NTSTATUS, STATUS_SUCCESS};
use wdk_sys::{
    DEVICE_OBJECT, IRP, SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS,
    ntddk::{IoAllocateIrp, IoFreeIrp, IoReuseIrp},
};

use crate::pool::NoMemory;

/// Called at completion, `IRQL <= DISPATCH_LEVEL`; returns `STATUS_MORE_PROCESSING_REQUIRED`.
pub(super) type CompletionRoutine = unsafe extern "C" fn(*mut DEVICE_OBJECT, *mut IRP, *mut c_void) -> NTSTATUS;

/// What a call has come to.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    status: NTSTATUS,
    information: usize,
}

impl Outcome {
    /// What the call has answered, or why it has failed.
    pub fn result(self) -> Result<usize, NTSTATUS> {
        if self.status == STATUS_SUCCESS { Ok(self.information) } else { Err(self.status) }
    }
}

pub(super) struct Packet(NonNull<IRP>);

// SAFETY: a packet belongs to its owner, or while a call is under way to Winsock Kernel, whichever thread that is on.
unsafe impl Send for Packet {}
// SAFETY: what is done by a shared reference is done by one context at a time, as the functions ask.
unsafe impl Sync for Packet {}

impl Packet {
    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new() -> Result<Self, NoMemory> {
        // SAFETY: `IRQL <= DISPATCH_LEVEL`; one stack location, no quota.
        let packet = unsafe { IoAllocateIrp(1, 0) };
        NonNull::new(packet).map(Self).ok_or(NoMemory)
    }

    /// Whether it is this one.
    pub fn is(&self, packet: *mut IRP) -> bool {
        self.0.as_ptr() == packet
    }

    /// Prepares it for a call.
    ///
    /// # Safety
    /// No call with it is under way, and no other context prepares it or reads its outcome.
    pub unsafe fn prepare(&self, routine: CompletionRoutine, context: *mut c_void) -> nt::PIRP {
        let packet = self.0.as_ptr();
        // SAFETY: allocated by IoAllocateIrp and not under way (the caller's promise).
        unsafe { IoReuseIrp(packet, STATUS_SUCCESS) };
        // SAFETY: the packet is ours, and this form of its tail is in use; only the address of the field is computed.
        let place = unsafe { &raw const (*packet).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation };
        // SAFETY: a field that the I/O manager has set when it made the packet new.
        let current = unsafe { place.read() };
        // IoGetNextIrpStackLocation and IoSetCompletionRoutine, which are inline in C.
        // SAFETY: the packet is new, so the current location is one behind the only one.
        let next = unsafe { current.sub(1) };
        // SAFETY: the location belongs to the packet's owner before the call; only the address of the field is computed.
        let place = unsafe { &raw mut (*next).CompletionRoutine };
        // SAFETY: as above.
        unsafe { place.write(Some(routine)) };
        // SAFETY: as above.
        let place = unsafe { &raw mut (*next).Context };
        // SAFETY: as above.
        unsafe { place.write(context) };
        // SAFETY: as above.
        let place = unsafe { &raw mut (*next).Control };
        // SAFETY: as above.
        unsafe { place.write((SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL) as u8) };
        packet.cast()
    }

    /// What the last call has come to.
    ///
    /// # Safety
    /// It has been completed, and no other context prepares it.
    pub unsafe fn outcome(&self) -> Outcome {
        // SAFETY: the packet is ours again (the caller's promise); only the address of the field is computed.
        let place = unsafe { &raw const (*self.0.as_ptr()).IoStatus.__bindgen_anon_1.Status };
        // SAFETY: written before the completion.
        let status = unsafe { place.read() };
        // SAFETY: as above.
        let place = unsafe { &raw const (*self.0.as_ptr()).IoStatus.Information };
        // SAFETY: as above.
        let information = unsafe { place.read() };
        Outcome { status, information: information as usize }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: allocated by IoAllocateIrp; its owner lets it go when no call is under way, at the earliest in the completion routine.
        unsafe { IoFreeIrp(self.0.as_ptr()) };
    }
}
