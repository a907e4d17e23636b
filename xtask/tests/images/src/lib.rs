//! What every image needs: an allocator, a panic handler, and the symbol that stands for floating point.

#![no_std]

#[path = "../../../../kernel/src/guard_support.rs"]
mod guard_support;

use core::{
    alloc::{GlobalAlloc, Layout},
    ffi::c_void,
    panic::PanicInfo,
};

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn ExAllocatePool2(flags: u64, size: usize, tag: u32) -> *mut c_void;
    fn ExFreePoolWithTag(block: *mut c_void, tag: u32);
    // What the compiler calls by itself.
    pub fn memcpy(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void;
    pub fn memset(to: *mut c_void, value: i32, length: usize) -> *mut c_void;
    fn KeBugCheckEx(code: u32, first: usize, second: usize, third: usize, fourth: usize) -> !;
}

struct Pool;

// SAFETY: the pool returns blocks of at least the size asked for, aligned to 16 bytes, or null.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and tag may be asked for.
        unsafe { ExAllocatePool2(0x40, layout.size(), 0x7473_6574) }.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller hands back a block of `alloc`.
        unsafe { ExFreePoolWithTag(block.cast(), 0x7473_6574) }
    }
}

#[global_allocator]
static POOL: Pool = Pool;

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    // SAFETY: never returns, whatever the state.
    unsafe { KeBugCheckEx(0xE2, 0, 0, 0, 0) }
}

#[unsafe(no_mangle)]
pub static _fltused: i32 = 0;

/// The handler that unwinding would call; nothing unwinds.
#[unsafe(no_mangle)]
extern "C" fn __CxxFrameHandler3() -> i32 {
    0
}

/// A driver's object, of which the images use a few callback slots.
#[repr(C)]
pub struct Driver {
    pub callbacks: [Option<unsafe extern "C" fn(usize) -> usize>; 4],
}
