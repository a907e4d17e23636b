//! I/O work items: they belong to a driver or a device object, and keep the driver's image in memory until their routine
//! has returned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::dispatcher::{self, Event};
use crate::exports;
use crate::fault;
use crate::host_lock::HostLock;
use crate::image;
use crate::ledger::{self, Leak};
use crate::memory::{paged, pool};
use crate::worker;

/// The kind under which work items are recorded.
pub const LEDGER_KIND: &str = "I/O work item";

const TAG: u32 = u32::from_le_bytes(*b"IoWi");
/// What Windows would need for one; drivers ask for it.
const SIZE: usize = 0x58;
const IDLE: u32 = 0x4944_4C45;
const QUEUED: u32 = 0x5155_4555;

/// How a routine is called: `IO_WORKITEM_ROUTINE` has two arguments, `IO_WORKITEM_ROUTINE_EX` three.
#[derive(Clone, Copy)]
enum Form {
    Device,
    Item,
}

#[repr(C)]
struct IoWorkItem {
    owner: *mut c_void,
    state: u32,
}

/// `WORK_QUEUE_ITEM`.
#[repr(C)]
pub struct WorkQueueItem {
    link: [usize; 2],
    routine: usize,
    parameter: u64,
}

/// Routines that are queued or running, and the unloads that wait for those of their image.
#[derive(Default)]
struct RunningRoutines {
    /// By the base of their image.
    counts: BTreeMap<usize, usize>,
    waiters: Vec<(usize, Arc<Event>)>,
}

impl RunningRoutines {
    fn is_idle(&self, base: usize) -> bool {
        self.counts.get(&base).is_none_or(|count| *count == 0)
    }

    fn idle_waiters(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.waiters.iter().filter(|(base, _)| self.is_idle(*base)).map(|(_, event)| event)
    }
}

static RUNNING: HostLock<RunningRoutines> =
    HostLock::new(RunningRoutines { counts: BTreeMap::new(), waiters: Vec::new() });

fn running() -> MutexGuard<'static, RunningRoutines> {
    RUNNING.lock()
}

exports! {
    module "ntoskrnl.exe";

    /// The size of a work item that the driver has memory of its own for.
    /// Source: WDM: IoSizeofWorkItem
    [ANY] fn IoSizeofWorkItem() -> u32 {
        SIZE as u32
    }

    /// Makes a work item in memory of the driver's.
    /// Checks: an owner; not in pageable memory
    /// Source: WDM: IoInitializeWorkItem
    [UP_TO_DISPATCH] fn IoInitializeWorkItem(owner: *mut c_void, item: *mut c_void) {
        if owner.is_null() {
            wrong(item, "IoInitializeWorkItem is given no driver or device object");
        }
        check_memory(item as usize, "IoInitializeWorkItem");
        // SAFETY: the image's memory of `IoSizeofWorkItem` bytes.
        unsafe { item.cast::<IoWorkItem>().write(IoWorkItem { owner, state: IDLE }) };
        ledger::record(LEDGER_KIND, item as usize, "");
    }

    /// Ends a work item in memory of the driver's.
    /// Checks: an initialised item that is not queued
    /// Source: WDM: IoUninitializeWorkItem
    [UP_TO_DISPATCH] fn IoUninitializeWorkItem(item: *mut c_void) {
        end(item, "IoUninitializeWorkItem");
    }

    /// Makes a work item.
    /// Checks: an owner; can be made to fail
    /// Source: WDM: IoAllocateWorkItem
    [UP_TO_DISPATCH] fn IoAllocateWorkItem(owner: *mut c_void) -> *mut c_void {
        if owner.is_null() {
            wrong(owner, "IoAllocateWorkItem is given no device object");
        }
        if fault::should_fail("IoAllocateWorkItem") {
            return std::ptr::null_mut();
        }
        let Some(item) = pool::allocate_for_host(SIZE, TAG) else { return std::ptr::null_mut() };
        // SAFETY: fresh memory.
        unsafe { item.cast::<IoWorkItem>().write(IoWorkItem { owner, state: IDLE }) };
        ledger::record(LEDGER_KIND, item as usize, "");
        item.cast()
    }

    /// Frees a work item.
    /// Checks: one of IoAllocateWorkItem that is not queued
    /// Source: WDM: IoFreeWorkItem
    [UP_TO_DISPATCH] fn IoFreeWorkItem(item: *mut c_void) {
        end(item, "IoFreeWorkItem");
        pool::free_for_host(item.cast(), TAG);
    }

    /// Queues a routine that gets the device object and its context.
    /// Checks: an item that is not queued
    /// Source: WDM: IoQueueWorkItem
    [UP_TO_DISPATCH] fn IoQueueWorkItem(item: *mut c_void, routine: usize, _queue: u32, context: u64) {
        queue(item, routine, context, Form::Device, "IoQueueWorkItem");
    }

    /// Queues a routine without an owner; the driver itself has to see that it is not unloaded meanwhile.
    /// Checks: an item that is not queued; not in pageable memory; none queued or running when the driver is unloaded
    /// Source: WDM: ExQueueWorkItem
    [UP_TO_DISPATCH] fn ExQueueWorkItem(item: *const WorkQueueItem, _queue: u32) {
        // SAFETY: the image's item, filled by the inline ExInitializeWorkItem.
        let (routine, parameter) = unsafe { ((*item).routine, (*item).parameter) };
        check_memory(item as usize, "ExQueueWorkItem");
        let address = item as usize;
        if !queued().insert(address) {
            wrong(address as *mut c_void, "ExQueueWorkItem is given a work item that is queued already");
        }
        let base = image::containing(routine).map_or(0, |image| image.base);
        count(&UNREFERENCED, base, 1);
        worker::queue(move || {
            queued().remove(&address);
            let name = Context::new(ContextKind::WorkItem, "executive work item");
            // SAFETY: the routine that was queued, with its parameter.
            unsafe { call_image!(name, routine => (); parameter) };
            count(&UNREFERENCED, base, -1);
        });
    }

    /// Queues a routine that gets the owner, its context and the item.
    /// Checks: an item that is not queued
    /// Source: WDM: IoQueueWorkItemEx
    [UP_TO_DISPATCH] fn IoQueueWorkItemEx(item: *mut c_void, routine: usize, _queue: u32, context: u64) {
        queue(item, routine, context, Form::Item, "IoQueueWorkItemEx");
    }
}

/// Work items of `ExQueueWorkItem` that are queued, by their addresses.
static QUEUED_ITEMS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn queued() -> MutexGuard<'static, BTreeSet<usize>> {
    QUEUED_ITEMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queued work item inside a range of addresses.
pub(crate) fn queued_within(start: usize, end: usize) -> Option<usize> {
    let executive = queued().range(start..end).next().copied();
    executive.or_else(|| {
        // SAFETY: an item that is written down was initialised there.
        ledger::within(LEDGER_KIND, start..end)
            .filter(|item| unsafe { (*(*item as *const IoWorkItem)).state == QUEUED })
    })
}

fn check_memory(item: usize, function: &str) {
    if crate::kernel::is_verifying() && paged::is_pageable(item) {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x131, item as u64, 0, 0],
            format!("{function} is given a work item in pageable memory"),
        );
    }
}

fn wrong(item: *mut c_void, rule: impl AsRef<str>) -> ! {
    bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [0x101F, item as u64, 0, 0], rule)
}

fn live(item: *mut c_void, function: &str) -> *mut IoWorkItem {
    if !ledger::holds(LEDGER_KIND, item as usize) {
        wrong(item, format!("{function} is given what is no work item (any more)"));
    }
    item.cast()
}

fn end(item: *mut c_void, function: &str) {
    let live = live(item, function);
    // SAFETY: a live work item.
    if unsafe { (*live).state } == QUEUED {
        wrong(item, format!("{function} is given a work item that is queued"));
    }
    ledger::release(LEDGER_KIND, item as usize);
}

fn queue(item: *mut c_void, routine: usize, context: u64, form: Form, function: &str) {
    let live = live(item, function);
    // SAFETY: a live work item, whose state is exchanged at once: of two threads that queue it the second is wrong.
    let (owner, before) = unsafe { ((*live).owner as usize, state_of(live).swap(QUEUED, Ordering::SeqCst)) };
    if before == QUEUED {
        wrong(item, format!("{function} is given a work item that is queued already"));
    }
    let base = image::containing(routine).map_or(0, |image| image.base);
    *running().counts.entry(base).or_default() += 1;
    let item = item as usize;
    worker::queue(move || {
        // From here on the routine may end or queue the item again.
        // SAFETY: queued items cannot have been ended.
        unsafe { state_of(item as *mut IoWorkItem) }.store(IDLE, Ordering::SeqCst);
        let name = Context::new(ContextKind::WorkItem, "I/O work item");
        // SAFETY: the routine that was queued, with the arguments of its type.
        unsafe {
            match form {
                Form::Device => call_image!(name, routine => (); owner, context),
                Form::Item => call_image!(name, routine => (); owner, context, item),
            }
        }
        returned(base);
    });
}

/// # Safety
///
/// `item` is a live work item.
unsafe fn state_of<'a>(item: *mut IoWorkItem) -> &'a AtomicU32 {
    // SAFETY: the caller's contract.
    unsafe { AtomicU32::from_ptr(&raw mut (*item).state) }
}

fn returned(base: usize) {
    let mut running = running();
    if let Some(count) = running.counts.get_mut(&base) {
        *count -= 1;
    }
    // Each unload has an event of its own, so that none takes another's wake-up.
    let idle: Vec<_> = running.idle_waiters().cloned().collect();
    drop(running);
    for event in &idle {
        event.set();
    }
}

/// Executive work items that are queued or running, by the base of their image.
static UNREFERENCED: Mutex<Option<HashMap<usize, isize>>> = Mutex::new(None);

fn count(items: &Mutex<Option<HashMap<usize, isize>>>, base: usize, more: isize) -> isize {
    let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
    let number = items.get_or_insert_default().entry(base).or_default();
    *number += more;
    *number
}

/// Executive work items of an image that is about to be unloaded. One that has finished its work gets the time to return.
pub(crate) fn unreferenced_of(base: usize) -> Option<Leak> {
    const LAST_INSTRUCTIONS: i64 = -100_000;
    if count(&UNREFERENCED, base, 0) == 0 {
        return None;
    }
    dispatcher::delay(LAST_INSTRUCTIONS);
    let left = count(&UNREFERENCED, base, 0) as usize;
    let kind = "executive work item".to_owned();
    (left != 0).then(|| Leak { kind, detail: "queued or running".to_owned(), count: left, bytes: 0, stack: Vec::new() })
}

/// Waits until no routine of an image is queued or running: what the reference to its driver object is for.
pub(crate) fn wait_for_image(base: usize) {
    let event = {
        let mut running = running();
        if running.is_idle(base) {
            return;
        }
        let event = Arc::new(Event::notification());
        running.waiters.push((base, Arc::clone(&event)));
        event
    };
    event.wait(None);
    running().waiters.retain(|(_, other)| !Arc::ptr_eq(other, &event));
}
