//! Threads that keep all others from running.

use core::ffi::c_void;
use core::hint::spin_loop;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::kernel::{
    KeDelayExecutionThread, KeGetCurrentThread, KeQueryActiveProcessorCountEx, KeSetPriorityThread,
    KeWaitForSingleObject, ObReferenceObjectByHandle, ObfDereferenceObject, PsCreateSystemThread, ZwClose,
};

const ALL_GROUPS: u16 = 0xFFFF;
const THREADS: usize = 64;
const LOW_REALTIME: i32 = 16;
const ONE_MILLISECOND: i64 = -10_000;

static SPINNING: AtomicU32 = AtomicU32::new(0);
static STOP: AtomicBool = AtomicBool::new(false);

/// Works without a wait until another thread sets a flag.
unsafe extern "C" fn spin(context: *mut c_void) {
    KeSetPriorityThread(KeGetCurrentThread(), context.addr() as i32);
    SPINNING.fetch_add(1, Ordering::SeqCst);
    while !STOP.load(Ordering::SeqCst) {
        spin_loop();
    }
}

/// A thread a processor: of a priority that lets nothing else run, or of one below.
pub unsafe fn starve(good: bool) {
    let priority = if good { LOW_REALTIME - 1 } else { LOW_REALTIME };
    let count = KeQueryActiveProcessorCountEx(ALL_GROUPS).min(THREADS as u32);
    let (none, mut threads) = (null_mut(), [null_mut(); THREADS]);
    for thread in threads.iter_mut().take(count as usize) {
        let mut handle = none;
        PsCreateSystemThread(
            &raw mut handle,
            0x1F_FFFF,
            none,
            none,
            none,
            spin,
            core::ptr::without_provenance_mut(priority as usize),
        );
        ObReferenceObjectByHandle(handle, 0x1F_FFFF, none, 0, thread, none);
        ZwClose(handle);
    }
    while SPINNING.load(Ordering::SeqCst) < count {
        KeDelayExecutionThread(0, 0, &ONE_MILLISECOND);
    }
    KeDelayExecutionThread(0, 0, &ONE_MILLISECOND);
    STOP.store(true, Ordering::SeqCst);
    for thread in threads.into_iter().take(count as usize) {
        KeWaitForSingleObject(thread, 0, 0, 0, core::ptr::null());
        ObfDereferenceObject(thread);
    }
}
