//! Exported functions that each use a few kernel services in a way that a test can check from outside. Keeps the rules of
//! the kernel; what breaks them is in `tests/bad-drivers`.

#![no_std]
#![allow(unsafe_op_in_unsafe_fn, reason = "every line of a driver this small is unsafe")]
#![allow(clippy::missing_safety_doc, reason = "called by the kernel host's tests only")]

use core::ffi::c_void;
use core::panic::PanicInfo;
use core::ptr::{null, null_mut};

#[unsafe(no_mangle)]
pub static _fltused: i32 = 0;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: a panic is a defect of this crate.
    unsafe { KeBugCheckEx(0x5250_4E43, 0, 0, 0, 0) }
}

type Handle = usize;

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn KeBugCheckEx(code: u32, first: u64, second: u64, third: u64, fourth: u64) -> !;
    fn KeGetCurrentIrql() -> u8;
    fn KeAcquireSpinLockRaiseToDpc(lock: *mut usize) -> u8;
    fn KeReleaseSpinLock(lock: *mut usize, irql: u8);
    fn KeWaitForMultipleObjects(
        count: u32,
        objects: *const *mut c_void,
        wait_type: u32,
        reason: u32,
        mode: u8,
        alertable: u8,
        timeout: *const i64,
        blocks: *mut c_void,
    ) -> i32;
    fn KeDelayExecutionThread(mode: u8, alertable: u8, interval: *const i64) -> i32;
    fn KeInsertQueueDpc(dpc: *mut c_void, first: *mut c_void, second: *mut c_void) -> u8;
    fn KeQueryPerformanceCounter(frequency: *mut i64) -> i64;
    fn ExAllocatePool2(flags: u64, size: usize, tag: u32) -> *mut u8;
    fn ExFreePoolWithTag(block: *mut u8, tag: u32);
    fn PsTerminateSystemThread(status: i32) -> i32;
    fn PsCreateSystemThread(
        handle: *mut Handle,
        access: u32,
        attributes: *const ObjectAttributes,
        process: Handle,
        client: *mut c_void,
        routine: unsafe extern "system" fn(*mut c_void),
        context: *mut c_void,
    ) -> i32;
    fn ObReferenceObjectByHandle(
        handle: Handle,
        access: u32,
        kind: *const c_void,
        mode: u8,
        object: *mut *mut c_void,
        information: *mut c_void,
    ) -> i32;
    fn ObfDereferenceObject(object: *mut c_void) -> isize;
    fn KeWaitForSingleObject(object: *mut c_void, reason: u32, mode: u8, alertable: u8, timeout: *const i64) -> i32;
    fn ZwClose(handle: Handle) -> i32;
    static PsThreadType: *const c_void;
}

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn DbgPrintEx(component: u32, level: u32, format: *const u8, ...) -> u32;
}

#[cfg(feature = "missing-imports")]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn KeNobodyExportsThis();
    fn KeNorThis();
}

#[repr(C)]
struct ObjectAttributes {
    length: u32,
    root: Handle,
    name: *mut c_void,
    attributes: u32,
    security: [*mut c_void; 2],
}

const TAG: u32 = u32::from_le_bytes(*b"prob");
const NON_PAGED: u64 = 0x40;

/// A driver without anything to do.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn DriverEntry(driver: *mut c_void, _path: *const c_void) -> i32 {
    #[cfg(feature = "missing-imports")]
    {
        KeNobodyExportsThis();
        KeNorThis();
    }
    // DRIVER_OBJECT.DriverUnload.
    driver.cast::<u8>().add(104).cast::<usize>().write(unload as *const () as usize);
    0
}

unsafe extern "system" fn unload(_driver: *mut c_void) {}

/// Twelve arguments, eight of them on the stack, each with a weight of its own.
#[unsafe(no_mangle)]
pub extern "system" fn weighted_sum(
    a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64, k: u64, l: u64,
) -> u64 {
    a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l
}

/// Passes more arguments to a variadic import than fit in registers.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn print_values() -> u32 {
    DbgPrintEx(77, 0, c"%d %u %x %s %I64d %c %p".as_ptr().cast(), -5_i32, 7_u32, 0xBEEF_u32, c"text".as_ptr(), -1_i64, 'z' as u32, 0x1234_usize)
}

/// Calls a function of the host `depth` times over, which calls this one again with one less.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn bounce(back: unsafe extern "system" fn(u64, u64) -> u64, depth: u64) -> u64 {
    if depth == 0 { 0 } else { back(back as usize as u64, depth) + 1 }
}

/// Waits for any of some objects (an import with eight arguments).
#[unsafe(no_mangle)]
pub unsafe extern "system" fn wait_for_any(objects: *const *mut c_void, count: u32, timeout: *const i64) -> i32 {
    KeWaitForMultipleObjects(count, objects, 1, 0, 0, 0, timeout, null_mut())
}

/// Sleeps and says how many units the clock moved.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn sleep(interval: i64) -> i64 {
    let before = KeQueryPerformanceCounter(null_mut());
    KeDelayExecutionThread(0, 0, &interval);
    KeQueryPerformanceCounter(null_mut()) - before
}

/// Takes and releases a spin lock so many times.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn spin_lock_pairs(lock: *mut usize, count: u64) {
    for _ in 0..count {
        let old = KeAcquireSpinLockRaiseToDpc(lock);
        KeReleaseSpinLock(lock, old);
    }
}

/// Adds to a plain counter under a spin lock: only right when the lock excludes.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn add_under_lock(lock: *mut usize, counter: *mut u64, count: u64) {
    for _ in 0..count {
        let old = KeAcquireSpinLockRaiseToDpc(lock);
        counter.write_volatile(counter.read_volatile() + 1);
        KeReleaseSpinLock(lock, old);
    }
}

/// A call of a function by its address, and what it returned.
#[repr(C)]
pub struct Call {
    function: unsafe extern "system" fn(usize, usize, usize) -> usize,
    arguments: [usize; 3],
    result: usize,
}

/// Makes the calls one after the other.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn make_calls(calls: *mut Call, count: usize) {
    for index in 0..count {
        let call = &mut *calls.add(index);
        let [first, second, third] = call.arguments;
        call.result = (call.function)(first, second, third);
    }
}

/// Asks for the level so many times.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn irql_calls(count: u64) -> u64 {
    (0..count).map(|_| u64::from(KeGetCurrentIrql())).sum()
}

/// Queues a DPC so many times.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn queue_calls(dpc: *mut c_void, count: u64) -> u64 {
    (0..count).map(|_| u64::from(KeInsertQueueDpc(dpc, null_mut(), null_mut()))).sum()
}

/// A DPC routine: counts itself in its context and writes its level behind the count.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn counting_routine(_dpc: *mut c_void, context: *mut u64, _first: *mut c_void, _second: *mut c_void) {
    context.write_volatile(context.read_volatile() + 1);
    context.add(1).write_volatile(u64::from(KeGetCurrentIrql()));
}

/// Allocates and frees at two places; returns how many of `count` rounds got both blocks.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn allocate_at_two_places(count: u64) -> u64 {
    let mut both = 0;
    for _ in 0..count {
        let first = ExAllocatePool2(NON_PAGED, 64, TAG);
        let second = ExAllocatePool2(NON_PAGED, 5000, TAG);
        both += u64::from(!first.is_null() && !second.is_null());
        for block in [first, second] {
            if !block.is_null() {
                ExFreePoolWithTag(block, TAG);
            }
        }
    }
    both
}

/// Leaves a block behind and returns it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn allocate(size: usize) -> *mut u8 {
    ExAllocatePool2(NON_PAGED, size, TAG)
}

/// Frees a block.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn free(block: *mut u8) {
    ExFreePoolWithTag(block, TAG);
}

/// Uses about so many bytes of stack.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn use_stack(bytes: u64) -> u64 {
    let mut buffer = core::mem::MaybeUninit::<[u8; 512]>::uninit();
    let start = buffer.as_mut_ptr().cast::<u8>();
    for index in 0..512 {
        start.add(index).write_volatile(index as u8);
    }
    let below = if bytes > 512 { use_stack(bytes - 512) } else { 0 };
    below + u64::from(start.read_volatile())
}

#[inline(never)]
unsafe fn end_the_thread(context: *mut u64) {
    context.write_volatile(1);
    PsTerminateSystemThread(0);
    context.write_volatile(2);
}

unsafe extern "system" fn thread_that_ends_deep_inside(context: *mut c_void) {
    end_the_thread(context.cast());
}

/// Starts a thread that ends itself in a nested call, joins it and returns the wait's status.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn run_thread(context: *mut u64) -> i32 {
    let attributes =
        ObjectAttributes { length: 48, root: 0, name: null_mut(), attributes: 0x200, security: [null_mut(); 2] };
    let mut handle = 0;
    let status = PsCreateSystemThread(&mut handle, 0, &attributes, 0, null_mut(), thread_that_ends_deep_inside, context.cast());
    if status < 0 {
        return status;
    }
    let mut thread = null_mut();
    let status = ObReferenceObjectByHandle(handle, 0, PsThreadType, 0, &mut thread, null_mut());
    ZwClose(handle);
    if status < 0 {
        return status;
    }
    let status = KeWaitForSingleObject(thread, 0, 0, 0, null());
    ObfDereferenceObject(thread);
    status
}

#[inline(never)]
unsafe fn innermost_function(address: *const u64) -> u64 {
    address.read_volatile() + 1
}

/// Reads an address two calls down, so that a report's stack has something to name.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn outermost_function(address: *const u64) -> u64 {
    innermost_function(address) + 1
}
