//! Paged pool and lookaside lists, pool freed with something in it that the kernel still uses, pageable code.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::hint::black_box;
use core::mem::size_of;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::Case::{self, Load};
use crate::kernel::{
    DISPATCH_LEVEL, Dpc, Event, ExAllocatePool2, KeDelayExecutionThread, KeInitializeDpc, KeInitializeEvent,
    KeInsertQueueDpc, KeLowerIrql, KeSetEvent, KeWaitForSingleObject, KfRaiseIrql, TAG, allocate, free,
};
use crate::mutexes::{KeInitializeMutex, KeReleaseMutex, Mutex};
use crate::spin_lock::{Shared, run_dpc};

pub static CASES: &[(&str, Case)] = &[
    ("paged-pool-freed-at-dispatch", Load(paged_freed_at_dispatch)),
    ("paged-pool-touched-at-dispatch", Load(paged_touched_at_dispatch)),
    ("paged-code-at-dispatch", Load(paged_code_at_dispatch)),
    ("quota-pool-in-dpc", Load(quota_in_dpc)),
    ("pool-executable", Load(executable)),
    ("pool-freed-with-work-item", Load(freed_with_work_item)),
    ("pool-freed-with-dpc", Load(freed_with_dpc)),
    ("pool-freed-with-lookaside-list", Load(freed_with_lookaside)),
    ("pool-freed-with-held-mutex", Load(freed_with_mutex)),
    ("lookaside-list-initialised-twice", Load(lookaside_twice)),
    ("lookaside-list-of-tiny-blocks", Load(lookaside_of_tiny_blocks)),
    ("event-in-paged-pool", Load(event_in_paged_pool)),
    ("work-item-in-paged-pool", Load(work_item_in_paged_pool)),
];

const POOL_FLAG_NON_PAGED: u64 = crate::kernel::POOL_FLAG_NON_PAGED;
const POOL_FLAG_NON_PAGED_EXECUTE: u64 = 0x80;
const POOL_FLAG_PAGED: u64 = 0x100;
/// NonPagedPoolNx with POOL_QUOTA_FAIL_INSTEAD_OF_RAISE.
const NON_PAGED_NX_OR_NULL: u32 = 0x200 | 8;
const DELAYED_WORK_QUEUE: u32 = 1;

#[repr(C)]
pub struct WorkItem {
    link: [usize; 2],
    routine: unsafe extern "C" fn(*mut c_void),
    parameter: *mut c_void,
}

#[repr(C, align(16))]
struct Lookaside([u8; 256]);

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn ExAllocatePoolWithQuotaTag(kind: u32, size: usize, tag: u32) -> *mut c_void;
    fn ExQueueWorkItem(item: *mut WorkItem, queue: u32);
    fn ExInitializeNPagedLookasideList(
        list: *mut Lookaside,
        allocate: *mut c_void,
        free: *mut c_void,
        flags: u32,
        size: usize,
        tag: u32,
        depth: u16,
    );
    fn ExDeleteNPagedLookasideList(list: *mut Lookaside);
}

unsafe fn pool(flags: u64, size: usize) -> *mut u8 {
    ExAllocatePool2(flags, size, TAG).cast()
}

unsafe fn paged_freed_at_dispatch(good: bool) {
    let block = pool(if good { POOL_FLAG_NON_PAGED } else { POOL_FLAG_PAGED }, 100);
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    free(block);
    KeLowerIrql(before);
}

/// Both twins touch the block below DISPATCH_LEVEL first, so that it is in memory.
unsafe fn paged_touched_at_dispatch(good: bool) {
    let block = pool(POOL_FLAG_PAGED, 100);
    block.write_volatile(1);
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    if !good {
        block.write_volatile(2);
    }
    KeLowerIrql(before);
    block.write_volatile(3);
    free(block);
}

#[inline(never)]
#[unsafe(link_section = "PAGE")]
unsafe extern "C" fn pageable(number: usize) -> usize {
    black_box(number) + 1
}

unsafe fn paged_code_at_dispatch(good: bool) {
    black_box(pageable(1));
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    if good {
        KeLowerIrql(before);
    }
    black_box(pageable(2));
    if !good {
        KeLowerIrql(before);
    }
}

unsafe extern "C" fn take_quota(_: *mut Dpc, bad: *mut c_void, _: *mut c_void, _: *mut c_void) {
    let block = if bad.is_null() {
        ExAllocatePool2(POOL_FLAG_NON_PAGED, 64, TAG)
    } else {
        ExAllocatePoolWithQuotaTag(NON_PAGED_NX_OR_NULL, 64, TAG)
    };
    free(block.cast());
}

unsafe fn quota_in_dpc(good: bool) {
    run_dpc(take_quota, good);
}

unsafe fn executable(good: bool) {
    free(pool(if good { POOL_FLAG_NON_PAGED } else { POOL_FLAG_NON_PAGED_EXECUTE }, 100));
}

/// More than there are worker threads anywhere.
const BUSY: usize = 8;
static GATE: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));
static DONE: Shared<Event> = Shared(UnsafeCell::new(Event([0; 24])));
static ENTERED: AtomicUsize = AtomicUsize::new(0);
static LEFT: AtomicUsize = AtomicUsize::new(0);
static ITEMS: Shared<[Option<WorkItem>; BUSY]> = Shared(UnsafeCell::new([const { None }; BUSY]));

unsafe extern "C" fn wait_at_the_gate(_: *mut c_void) {
    ENTERED.fetch_add(1, Ordering::AcqRel);
    KeWaitForSingleObject(GATE.0.get().cast(), 0, 0, 0, core::ptr::null());
    LEFT.fetch_add(1, Ordering::AcqRel);
}

unsafe extern "C" fn say_done(_: *mut c_void) {
    KeSetEvent(DONE.0.get(), 0, 0);
}

unsafe fn sleep() {
    let delay = -10_000;
    KeDelayExecutionThread(0, 0, &raw const delay);
}

/// Every worker waits at the gate, so that what is queued behind stays queued.
unsafe fn keep_workers_busy() {
    KeInitializeEvent(GATE.0.get(), 0, 0);
    for slot in &mut *ITEMS.0.get() {
        let item = slot.insert(WorkItem { link: [0; 2], routine: wait_at_the_gate, parameter: core::ptr::null_mut() });
        ExQueueWorkItem(item, DELAYED_WORK_QUEUE);
    }
    let mut before = usize::MAX;
    while ENTERED.load(Ordering::Acquire) != before {
        before = ENTERED.load(Ordering::Acquire);
        sleep();
    }
}

unsafe fn freed_with_work_item(good: bool) {
    KeInitializeEvent(DONE.0.get(), 0, 0);
    keep_workers_busy();
    let item = allocate(size_of::<WorkItem>()).cast::<WorkItem>();
    item.write(WorkItem { link: [0; 2], routine: say_done, parameter: core::ptr::null_mut() });
    ExQueueWorkItem(item, DELAYED_WORK_QUEUE);
    if good {
        KeSetEvent(GATE.0.get(), 0, 0);
        KeWaitForSingleObject(DONE.0.get().cast(), 0, 0, 0, core::ptr::null());
        while LEFT.load(Ordering::Acquire) != BUSY {
            sleep();
        }
    }
    free(item.cast());
}

unsafe extern "C" fn nothing(_: *mut Dpc, _: *mut c_void, _: *mut c_void, _: *mut c_void) {}

unsafe fn freed_with_dpc(good: bool) {
    let dpc = allocate(size_of::<Dpc>()).cast::<Dpc>();
    KeInitializeDpc(dpc, nothing, core::ptr::null_mut());
    let before = KfRaiseIrql(DISPATCH_LEVEL);
    KeInsertQueueDpc(dpc, core::ptr::null_mut(), core::ptr::null_mut());
    if good {
        KeLowerIrql(before);
    }
    free(dpc.cast());
    if !good {
        KeLowerIrql(before);
    }
}

unsafe fn initialise_list(list: *mut Lookaside, size: usize) {
    let none = core::ptr::null_mut();
    ExInitializeNPagedLookasideList(list, none, none, 0x200, size, TAG, 0);
}

unsafe fn freed_with_lookaside(good: bool) {
    let list = allocate(size_of::<Lookaside>()).cast::<Lookaside>();
    initialise_list(list, 64);
    if good {
        ExDeleteNPagedLookasideList(list);
    }
    free(list.cast());
}

unsafe fn freed_with_mutex(good: bool) {
    let mutex = allocate(size_of::<Mutex>()).cast::<Mutex>();
    KeInitializeMutex(mutex, 0);
    KeWaitForSingleObject(mutex.cast(), 0, 0, 0, core::ptr::null());
    if good {
        KeReleaseMutex(mutex, 0);
    }
    free(mutex.cast());
}

static LIST: Shared<Lookaside> = Shared(UnsafeCell::new(Lookaside([0; 256])));

unsafe fn lookaside_twice(good: bool) {
    initialise_list(LIST.0.get(), 64);
    if good {
        ExDeleteNPagedLookasideList(LIST.0.get());
    }
    initialise_list(LIST.0.get(), 64);
    ExDeleteNPagedLookasideList(LIST.0.get());
}

unsafe fn lookaside_of_tiny_blocks(good: bool) {
    initialise_list(LIST.0.get(), if good { 8 } else { 4 });
    ExDeleteNPagedLookasideList(LIST.0.get());
}

unsafe fn event_in_paged_pool(good: bool) {
    let event = pool(if good { POOL_FLAG_NON_PAGED } else { POOL_FLAG_PAGED }, size_of::<Event>()).cast::<Event>();
    KeInitializeEvent(event, 0, 1);
    KeWaitForSingleObject(event.cast(), 0, 0, 0, core::ptr::null());
    free(event.cast());
}

unsafe fn work_item_in_paged_pool(good: bool) {
    let flags = if good { POOL_FLAG_NON_PAGED } else { POOL_FLAG_PAGED };
    KeInitializeEvent(DONE.0.get(), 0, 0);
    let item = pool(flags, size_of::<WorkItem>()).cast::<WorkItem>();
    item.write(WorkItem { link: [0; 2], routine: say_done, parameter: core::ptr::null_mut() });
    ExQueueWorkItem(item, DELAYED_WORK_QUEUE);
    KeWaitForSingleObject(DONE.0.get().cast(), 0, 0, 0, core::ptr::null());
    free(item.cast());
}
