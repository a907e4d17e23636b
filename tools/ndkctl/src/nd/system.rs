//! What the client needs of its system: some functions of kernel32.dll, and the provider's way in.

use crate::failure::{Failure, Kind};
use softnd_interfaces::{Guid, Status, function};
use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::ptr;

const MEM_COMMIT: u32 = 0x1000;
const MEM_RESERVE: u32 = 0x2000;
const MEM_RELEASE: u32 = 0x8000;
const PAGE_READWRITE: u32 = 4;

const WAIT_OBJECT_0: u32 = 0;

/// A handle of the system.
pub type Handle = *mut c_void;

type CreateEvent = function!((attributes: *const c_void, manual_reset: i32, initial: i32, name: *const u16) -> Handle);
type CloseHandle = function!((handle: Handle) -> i32);
type WaitForSingleObject = function!((handle: Handle, milliseconds: u32) -> u32);
type SwitchToThread = function!(() -> i32);
type VirtualAlloc = function!((address: *mut c_void, length: usize, kind: u32, protection: u32) -> *mut c_void);
type VirtualFree = function!((address: *mut c_void, length: usize, kind: u32) -> i32);
type GetClassObject = function!((class: *const Guid, iid: *const Guid, out: *mut *mut c_void) -> Status);

/// Functions of a process that has loaded the provider.
pub struct System<'p> {
    create_event: CreateEvent,
    close_handle: CloseHandle,
    wait_for_single_object: WaitForSingleObject,
    switch_to_thread: SwitchToThread,
    virtual_alloc: VirtualAlloc,
    virtual_free: VirtualFree,
    class_object: GetClassObject,
    control_requests: Option<&'p (dyn Fn() -> u64 + 'p)>,
}

impl fmt::Debug for System<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("System").finish_non_exhaustive()
    }
}

impl<'p> System<'p> {
    /// `kernel32` gives the address of a function by its name, `class_object` is the DLL's DllGetClassObject, and `control_requests`
    /// counts the requests that the process has sent to drivers, where that can be known.
    ///
    /// # Safety
    ///
    /// The addresses are those of functions of these names, with the calling convention of Windows, as long as `'p`.
    pub unsafe fn new(
        kernel32: impl Fn(&str) -> Option<usize>,
        class_object: usize,
        control_requests: Option<&'p (dyn Fn() -> u64 + 'p)>,
    ) -> Result<Self, Failure> {
        let address = |name: &str| {
            kernel32(name).ok_or_else(|| {
                let cause = format!("kernel32.dll has no {name}");
                Failure::new(Kind::Unreachable, "cannot run a NetworkDirect client", cause, "use a newer Windows")
            })
        };
        /// A function by its address.
        macro_rules! at {
            ($Function:ty, $address:expr) => {
                // SAFETY: the caller's contract: a function of this type.
                unsafe { mem::transmute::<usize, $Function>($address) }
            };
        }
        Ok(Self {
            create_event: at!(CreateEvent, address("CreateEventW")?),
            close_handle: at!(CloseHandle, address("CloseHandle")?),
            wait_for_single_object: at!(WaitForSingleObject, address("WaitForSingleObject")?),
            switch_to_thread: at!(SwitchToThread, address("SwitchToThread")?),
            virtual_alloc: at!(VirtualAlloc, address("VirtualAlloc")?),
            virtual_free: at!(VirtualFree, address("VirtualFree")?),
            class_object: at!(GetClassObject, class_object),
            control_requests,
        })
    }

    /// How many control requests the process has sent; `None` where that is not counted.
    #[must_use]
    pub fn control_requests(&self) -> Option<u64> {
        self.control_requests.map(|count| count())
    }

    /// Lets other threads run.
    pub fn yield_now(&self) {
        // SAFETY: no arguments.
        unsafe { (self.switch_to_thread)() };
    }

    /// An event that stays signalled until it is reset; `None` when there are no more.
    pub(super) fn create_event(&self) -> Option<Handle> {
        // SAFETY: no attributes and no name.
        let handle = unsafe { (self.create_event)(ptr::null(), 1, 0, ptr::null()) };
        (!handle.is_null()).then_some(handle)
    }

    /// Waits for an event; `false` when it is not signalled in time.
    ///
    /// # Safety
    ///
    /// `event` is an open handle of an event.
    pub(super) unsafe fn wait(&self, event: Handle, milliseconds: u32) -> bool {
        // SAFETY: the caller's contract.
        let answer = unsafe { (self.wait_for_single_object)(event, milliseconds) };
        answer == WAIT_OBJECT_0
    }

    /// # Safety
    ///
    /// `handle` is open and not used again.
    pub(super) unsafe fn close(&self, handle: Handle) {
        // SAFETY: the caller's contract.
        unsafe { (self.close_handle)(handle) };
    }

    /// Zeroed pages, to be given to [`Self::free`]; null when there is no memory.
    pub(super) fn allocate(&self, length: usize) -> *mut c_void {
        // SAFETY: pages wherever the system wants.
        unsafe { (self.virtual_alloc)(ptr::null_mut(), length, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE) }
    }

    /// # Safety
    ///
    /// `address` is of [`Self::allocate`] and the pages are not used again.
    pub(super) unsafe fn free(&self, address: *mut c_void) {
        // SAFETY: the caller's contract.
        unsafe { (self.virtual_free)(address, 0, MEM_RELEASE) };
    }

    /// DllGetClassObject.
    ///
    /// # Safety
    ///
    /// `out` may be written.
    pub(super) unsafe fn class_object(&self, class: &Guid, iid: &Guid, out: *mut *mut c_void) -> Status {
        // SAFETY: two identifiers, and the caller's contract.
        unsafe { (self.class_object)(class, iid, out) }
    }
}
