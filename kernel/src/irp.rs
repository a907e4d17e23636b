//! Reading an IRP of a control device and completing it; the buffer of a buffered request.
//!
//! The parameters are taken out once, when the request arrives; afterwards only the buffers and the completion are touched.
//! The I/O manager writes other fields of an IRP at any time (cancelling does), so fields are read and written by their
//! addresses and no reference is made to an IRP or a stack location.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicPtr, Ordering, fence},
};

use wdk_sys::{
    DRIVER_CANCEL, FILE_OBJECT, IO_NO_INCREMENT, IO_STACK_LOCATION, IRP, KPROCESSOR_MODE, MDL, NTSTATUS,
    STATUS_PENDING,
    ntddk::{IoGetRequestorProcessId, IoReleaseCancelSpinLock, IofCompleteRequest},
};

/// SL_PENDING_RETURNED: what IoMarkIrpPending sets in the stack location.
const PENDING_RETURNED: u8 = 1;

/// An IRP that the driver has to complete, exactly once.
pub struct Request {
    irp: NonNull<IRP>,
    stack: NonNull<IO_STACK_LOCATION>,
}

// SAFETY: an IRP belongs to the driver that has to complete it and may be completed on any thread.
unsafe impl Send for Request {}

/// Lengths and code of a device control request.
#[derive(Clone, Copy)]
pub struct DeviceControl {
    pub code: u32,
    pub input_length: usize,
    pub output_length: usize,
}

impl Request {
    /// Takes the IRP that the I/O manager hands to a dispatch routine.
    ///
    /// # Safety
    /// `irp` is such an IRP, and is used through this value only.
    pub unsafe fn from_raw(irp: *mut IRP) -> Option<Self> {
        let irp = NonNull::new(irp)?;
        // SAFETY: the IRP is ours until it is completed, and a dispatched one uses the overlay form of its tail; only the
        // address of the field is computed.
        let place =
            unsafe { &raw const (*irp.as_ptr()).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation };
        // SAFETY: a field of the driver's IRP, which the I/O manager has set.
        let stack = unsafe { place.read() };
        Some(Self { irp, stack: NonNull::new(stack)? })
    }

    /// The parameters of a device control request.
    pub fn device_control(&self) -> DeviceControl {
        // SAFETY: the current stack location belongs to the driver until the IRP is completed, and the caller is the device
        // control routine, so this form of the union is in use; only the address of the field is computed.
        let place = unsafe { &raw const (*self.stack.as_ptr()).Parameters.DeviceIoControl };
        // SAFETY: as above; all of it is numbers.
        let parameters = unsafe { place.read() };
        DeviceControl {
            code: parameters.IoControlCode,
            input_length: parameters.InputBufferLength as usize,
            output_length: parameters.OutputBufferLength as usize,
        }
    }

    /// The mode of the code that sent the request: kernel or user.
    pub fn requestor_mode(&self) -> KPROCESSOR_MODE {
        // SAFETY: the IRP is the driver's until it is completed; only the address of the field is computed.
        let place = unsafe { &raw const (*self.irp.as_ptr()).RequestorMode };
        // SAFETY: a field of the driver's IRP, which no one writes after it was sent.
        unsafe { place.read() }
    }

    /// The file the request came through.
    pub fn file(&self) -> Option<NonNull<FILE_OBJECT>> {
        // SAFETY: the current stack location belongs to the driver until the IRP is completed; only the address of the field is
        // computed.
        let place = unsafe { &raw const (*self.stack.as_ptr()).FileObject };
        // SAFETY: as above.
        NonNull::new(unsafe { place.read() })
    }

    /// The buffer that METHOD_BUFFERED shares between input and output; null when both are empty.
    pub fn system_buffer(&self) -> *mut c_void {
        // SAFETY: the IRP belongs to the driver until it is completed; only the address of the field is computed.
        let place = unsafe { &raw const (*self.irp.as_ptr()).AssociatedIrp.SystemBuffer };
        // SAFETY: as above; a device control IRP uses this member of the union.
        unsafe { place.read() }
    }

    /// The locked pages of the second buffer of a direct method.
    pub fn mdl(&self) -> *mut MDL {
        // SAFETY: the IRP belongs to the driver until it is completed; only the address of the field is computed.
        let place = unsafe { &raw const (*self.irp.as_ptr()).MdlAddress };
        // SAFETY: as above.
        unsafe { place.read() }
    }

    /// Completes the request.
    pub fn complete(self, status: NTSTATUS, information: usize) {
        // SAFETY: the IRP belongs to the driver until it is completed; only the address of the field is computed.
        let place = unsafe { &raw mut (*self.irp.as_ptr()).IoStatus.__bindgen_anon_1.Status };
        // SAFETY: as above.
        unsafe { place.write(status) };
        // SAFETY: as above.
        let place = unsafe { &raw mut (*self.irp.as_ptr()).IoStatus.Information };
        // SAFETY: as above.
        unsafe { place.write(information as u64) };
        // SAFETY: every IRP is completed once, because `complete` consumes the only value that stands for it; IRQL <=
        // DISPATCH_LEVEL.
        unsafe { IofCompleteRequest(self.irp.as_ptr(), IO_NO_INCREMENT as i8) };
    }

    /// IoMarkIrpPending: before another context can complete the request; the dispatch routine then returns the result.
    pub fn mark_pending(&mut self) -> NTSTATUS {
        // SAFETY: the current stack location belongs to the driver until the IRP is completed; only the address of the field is
        // computed.
        let place = unsafe { &raw mut (*self.stack.as_ptr()).Control };
        // SAFETY: as above.
        let control = unsafe { place.read() };
        // SAFETY: as above.
        unsafe { place.write(control | PENDING_RETURNED) };
        STATUS_PENDING
    }

    /// The key by which a cancel routine, which gets the IRP, finds the request.
    pub fn id(&self) -> usize {
        self.irp.addr().get()
    }

    /// Whether the request has been cancelled. The I/O manager sets the flag before it takes the cancel routine.
    pub fn is_cancelled(&self) -> bool {
        // SAFETY: the IRP lives until it is completed; only the address of the flag is computed.
        let flag = unsafe { &raw const (*self.irp.as_ptr()).Cancel };
        // SAFETY: the I/O manager sets the flag at any time; a volatile read sees it eventually.
        unsafe { flag.read_volatile() != 0 }
    }

    /// Leaves a word of the driver's in the packet, for its cancel routine ([`cancel_entered`]). The packet is the driver's.
    pub fn set_driver_word(&self, word: NonNull<c_void>) {
        // SAFETY: the IRP belongs to the driver until it is completed, and with it this member of the overlay; only the address
        // of the field is computed.
        let place =
            unsafe { &raw mut (*self.irp.as_ptr()).Tail.Overlay.__bindgen_anon_1.__bindgen_anon_1.DriverContext };
        // SAFETY: as above; the first of four words.
        unsafe { place.cast::<*mut c_void>().write(word.as_ptr()) };
    }

    /// The number of the process that sent the request. `IRQL <= DISPATCH_LEVEL`.
    pub fn process(&self) -> u32 {
        // SAFETY: the IRP is the driver's and not completed.
        unsafe { IoGetRequestorProcessId(self.irp.as_ptr()) }
    }

    /// IoSetCancelRoutine (inline in C). The caller checks afterwards whether the request is cancelled already: then the
    /// routine is not called.
    pub fn set_cancel_routine(&self, routine: DRIVER_CANCEL) {
        let routine = routine.map_or(ptr::null_mut(), |routine| routine as *mut c_void);
        self.exchange_cancel_routine(routine);
        // The I/O manager writes the flag and reads the routine; here it is the other way round.
        fence(Ordering::SeqCst);
    }

    /// Takes the cancel routine back; false when the I/O manager has taken it, to call it or in the middle of that.
    pub fn take_cancel_routine(&self) -> bool {
        !self.exchange_cancel_routine(ptr::null_mut()).is_null()
    }

    fn exchange_cancel_routine(&self, routine: *mut c_void) -> *mut c_void {
        // SAFETY: the IRP belongs to the driver until it is completed; only the address of the field is computed.
        let place = unsafe { &raw mut (*self.irp.as_ptr()).CancelRoutine };
        // SAFETY: a pointer-sized, aligned field that every context exchanges atomically (WDM: IoSetCancelRoutine).
        let place = unsafe { AtomicPtr::from_ptr(place.cast::<*mut c_void>()) };
        place.swap(routine, Ordering::SeqCst)
    }
}

/// A cancel routine begins: gives the cancel spin lock back, and returns what [`Request::set_driver_word`] has left.
///
/// # Safety
/// `irp` is what the I/O manager has called the cancel routine with, which calls this first; the packet is not completed before the
/// routine has run.
pub unsafe fn cancel_entered(irp: *mut IRP) -> *mut c_void {
    // SAFETY: the packet lives (the caller's promise); only the address of the field is computed.
    let place = unsafe { &raw const (*irp).Tail.Overlay.__bindgen_anon_1.__bindgen_anon_1.DriverContext };
    // SAFETY: as above; the first of four words.
    let word = unsafe { place.cast::<*mut c_void>().read() };
    // SAFETY: as above; only the address of the field is computed.
    let level = unsafe { &raw const (*irp).CancelIrql };
    // SAFETY: written by the I/O manager before it called.
    let level = unsafe { level.read() };
    // SAFETY: a cancel routine is entered with the lock, acquired at this level.
    unsafe { IoReleaseCancelSpinLock(level) };
    word
}

/// The system buffer of a buffered request: input first, overwritten by the output.
pub struct Buffer {
    start: *mut u8,
    input_length: usize,
    output_length: usize,
}

impl Buffer {
    pub fn of(request: &Request) -> Self {
        let parameters = request.device_control();
        let start = request.system_buffer().cast::<u8>();
        if start.is_null() {
            return Self { start, input_length: 0, output_length: 0 };
        }
        Self { start, input_length: parameters.input_length, output_length: parameters.output_length }
    }

    /// The input bytes. What is believed of them must be a copy.
    pub fn input(&self) -> &[u8] {
        if self.input_length == 0 {
            return &[];
        }
        // SAFETY: the I/O manager allocated the system buffer for the longer of both lengths and copied the input into it.
        unsafe { slice::from_raw_parts(self.start, self.input_length) }
    }

    /// Room for the output.
    pub fn output_length(&self) -> usize {
        self.output_length
    }

    /// The output bytes, zeroed, so that nothing of the pool block's past reaches the caller.
    pub fn output(&mut self) -> &mut [u8] {
        if self.output_length == 0 {
            return &mut [];
        }
        // SAFETY: the system buffer is at least as long as the output; `&mut self` makes this the only view.
        let output = unsafe { slice::from_raw_parts_mut(self.start, self.output_length) };
        output.fill(0);
        output
    }

    /// Makes these bytes the output; how many they are, or nothing where they do not fit.
    pub fn answer(&mut self, bytes: &[u8]) -> Option<usize> {
        self.output().get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(bytes.len())
    }
}
