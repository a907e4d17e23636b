//! The functions of the system for unit tests on other systems: memory, events, files of one simulated device, completion ports.
//!
//! The device is what the thread's [`install`] has given: requests go to its [`Driver`]. Without one there is no device.

#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "names and parameters of the system"
)]

use core::ffi::c_void;
use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc},
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet, VecDeque},
    ptr,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use softnd_interfaces::Status;

use super::{ERROR_FILE_NOT_FOUND, INVALID_HANDLE, IoStatusBlock, RawHandle};

/// One request, as a driver gets it.
pub struct Call<'call> {
    pub code: u32,
    pub input: &'call [u8],
    pub output: (*mut u8, usize),
}

/// A request that pends.
pub struct Pended {
    block: usize,
    context: usize,
    file: usize,
}

/// What answers the requests of the simulated device.
pub trait Driver: Send + Sync {
    /// Status and bytes; with PENDING the driver gets `pended` by [`Driver::pend`].
    fn control(&self, call: &Call<'_>) -> (Status, usize);

    fn pend(&self, code: u32, pended: Pended);
}

impl Call<'_> {
    /// Writes an answer, as far as it fits.
    pub fn answer(&self, bytes: &[u8]) -> (Status, usize) {
        let length = bytes.len().min(self.output.1);
        // SAFETY: the caller's buffer is as long as it said.
        unsafe { self.output.0.copy_from_nonoverlapping(bytes.as_ptr(), length) };
        (Status::SUCCESS, length)
    }
}

impl Pended {
    /// Ends the request: the status is written, and a packet queued where one is wanted.
    pub fn finish(self, status: Status, information: usize) {
        // SAFETY: the block of a request that pends is there until it has ended.
        unsafe {
            (self.block as *mut IoStatusBlock).write(IoStatusBlock { status: status.0 as u32 as usize, information });
        };
        let mut world = world();
        let port = world.files.get(&self.file).map_or(0, |file| file.port);
        if self.context != 0
            && let Some(packets) = world.ports.get_mut(&port)
        {
            packets.push_back(self.context);
        }
    }
}

#[derive(Default)]
struct SimulatedSystem {
    next: usize,
    files: HashMap<usize, File>,
    ports: HashMap<usize, VecDeque<usize>>,
    events: HashSet<usize>,
    blocks: HashMap<usize, Layout>,
}

#[derive(Clone)]
struct File {
    driver: Arc<dyn Driver>,
    port: usize,
}

static WORLD: LazyLock<Mutex<SimulatedSystem>> = LazyLock::new(Mutex::default);

fn world() -> MutexGuard<'static, SimulatedSystem> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedSystem {
    fn handle(&mut self) -> usize {
        self.next += 4;
        self.next
    }
}

thread_local! {
    static DRIVER: RefCell<Option<Arc<dyn Driver>>> = const { RefCell::new(None) };
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// Gives this thread a device.
pub fn install(driver: Arc<dyn Driver>) {
    DRIVER.with_borrow_mut(|current| *current = Some(driver));
}

pub unsafe fn CancelIoEx(_file: RawHandle, _overlapped: *mut c_void) -> i32 {
    1
}

pub unsafe fn CloseHandle(handle: RawHandle) -> i32 {
    let mut world = world();
    let handle = handle as usize;
    let file = world.files.remove(&handle);
    let known = file.is_some() | world.ports.remove(&handle).is_some() | world.events.remove(&handle);
    drop(world);
    drop(file);
    // It would be the last error of a call that failed before.
    assert!(known, "what is no handle is closed");
    1
}

pub unsafe fn CreateEventW(_: *const c_void, _: i32, _: i32, _: *const u16) -> RawHandle {
    let mut world = world();
    let handle = world.handle();
    world.events.insert(handle);
    handle as RawHandle
}

pub unsafe fn CreateFileW(_: *const u16, _: u32, _: u32, _: *const c_void, _: u32, _: u32, _: RawHandle) -> RawHandle {
    let Some(driver) = DRIVER.with_borrow(Clone::clone) else {
        LAST_ERROR.set(ERROR_FILE_NOT_FOUND);
        return INVALID_HANDLE;
    };
    let mut world = world();
    let handle = world.handle();
    world.files.insert(handle, File { driver, port: 0 });
    handle as RawHandle
}

pub unsafe fn CreateIoCompletionPort(file: RawHandle, port: RawHandle, _: usize, _: u32) -> RawHandle {
    let mut world = world();
    let port = if port.is_null() { world.handle() } else { port as usize };
    world.ports.entry(port).or_default();
    if let Some(file) = world.files.get_mut(&(file as usize)) {
        file.port = port;
    }
    port as RawHandle
}

pub unsafe fn DuplicateHandle(
    _: RawHandle,
    source: RawHandle,
    _: RawHandle,
    target: *mut RawHandle,
    _: u32,
    _: i32,
    _: u32,
) -> i32 {
    let mut world = world();
    let Some(file) = world.files.get(&(source as usize)).cloned() else { return 0 };
    let handle = world.handle();
    world.files.insert(handle, file);
    // SAFETY: the caller's promise.
    unsafe { target.write(handle as RawHandle) };
    1
}

pub unsafe fn GetCurrentProcess() -> RawHandle {
    INVALID_HANDLE
}

pub unsafe fn GetLastError() -> u32 {
    LAST_ERROR.get()
}

pub unsafe fn GetProcessHeap() -> RawHandle {
    INVALID_HANDLE
}

pub unsafe fn GetQueuedCompletionStatus(
    port: RawHandle,
    _: *mut u32,
    _: *mut usize,
    overlapped: *mut *mut c_void,
    _: u32,
) -> i32 {
    let packet = world().ports.get_mut(&(port as usize)).and_then(VecDeque::pop_front);
    // SAFETY: the caller's promise.
    unsafe { overlapped.write(packet.unwrap_or(0) as *mut c_void) };
    i32::from(packet.is_some())
}

const HEAP_ALIGNMENT: usize = 16;
const PAGE: usize = 4096;

fn allocated(layout: Layout, block: *mut u8) -> *mut c_void {
    world().blocks.insert(block as usize, layout);
    block.cast()
}

fn freed(block: *mut c_void) -> i32 {
    let Some(layout) = world().blocks.remove(&(block as usize)) else { return 0 };
    // SAFETY: the block was allocated with this layout and is freed once.
    unsafe { dealloc(block.cast(), layout) };
    1
}

pub unsafe fn HeapAlloc(_: RawHandle, _: u32, bytes: usize) -> *mut c_void {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), HEAP_ALIGNMENT) else { return ptr::null_mut() };
    // SAFETY: the layout is not empty.
    allocated(layout, unsafe { alloc(layout) })
}

pub unsafe fn HeapFree(_: RawHandle, _: u32, block: *mut c_void) -> i32 {
    freed(block)
}

pub unsafe fn SetFileCompletionNotificationModes(_: RawHandle, _: u8) -> i32 {
    1
}

pub unsafe fn Sleep(milliseconds: u32) {
    thread::sleep(Duration::from_millis(u64::from(milliseconds)));
}

pub unsafe fn SwitchToThread() -> i32 {
    thread::yield_now();
    1
}

pub unsafe fn VirtualAlloc(_: *mut c_void, bytes: usize, _: u32, _: u32) -> *mut c_void {
    let Ok(layout) = Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE) else { return ptr::null_mut() };
    // SAFETY: the layout is not empty.
    allocated(layout, unsafe { alloc_zeroed(layout) })
}

pub unsafe fn VirtualFree(address: *mut c_void, _: usize, _: u32) -> i32 {
    freed(address)
}

pub unsafe fn WaitForSingleObject(_: RawHandle, _: u32) -> u32 {
    thread::yield_now();
    0
}

pub unsafe fn NtDeviceIoControlFile(
    file: RawHandle,
    _event: RawHandle,
    _apc: *mut c_void,
    context: *mut c_void,
    status: *mut IoStatusBlock,
    code: u32,
    input: *const c_void,
    input_length: u32,
    output: *mut c_void,
    output_length: u32,
) -> i32 {
    let found = world().files.get(&(file as usize)).cloned();
    let Some(found) = found else { return Status::INVALID_HANDLE.0 };
    // SAFETY: the caller's promise.
    let input = unsafe { std::slice::from_raw_parts(input.cast::<u8>(), input_length as usize) };
    let call = Call { code, input, output: (output.cast(), output_length as usize) };
    let (answered, information) = found.driver.control(&call);
    if answered == Status::PENDING {
        found.driver.pend(code, Pended { block: status as usize, context: context as usize, file: file as usize });
    } else if !answered.is_error() {
        // SAFETY: the caller's promise.
        unsafe { status.write(IoStatusBlock { status: answered.0 as u32 as usize, information }) };
    }
    answered.0
}
