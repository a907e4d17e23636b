//! Kernel objects that are counted by reference (threads, so far) and the handles that images have of them.
//!
//! The memory of an object that is gone is taken out of the address space, so that a late use is a fault with a name.

use std::collections::BTreeMap;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::dispatcher;
use crate::host_lock::HostLock;
use crate::ledger;
use crate::memory::address_space::{Protection, Reservation, Zone};
use crate::memory::frames;
use crate::nt::{KTHREAD, object_type};
use crate::thread::Thread;

/// The kind under which open handles are recorded.
pub const LEDGER_KIND: &str = "open handle";
/// The kind under which references that an image took are recorded.
pub const LEDGER_KIND_REFERENCE: &str = "object reference";

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Thread,
}

struct KernelObject {
    kind: ObjectKind,
    references: usize,
    memory: Reservation,
    frames: std::ops::Range<u32>,
}

#[derive(Default)]
struct ObjectTable {
    objects: BTreeMap<usize, KernelObject>,
    handles: BTreeMap<usize, usize>,
    next_handle: usize,
}

static TABLE: HostLock<Option<ObjectTable>> = HostLock::new(None);

fn with<T>(body: impl FnOnce(&mut ObjectTable) -> T) -> T {
    body(TABLE.lock().get_or_insert_default())
}

/// Makes the dispatcher object of a thread, with one reference for as long as the thread exists.
pub(crate) fn create_thread_object(thread: &'static Thread) -> *mut KTHREAD {
    let memory = Reservation::new(Zone::Pool, crate::memory::PAGE_SIZE).unwrap_or_else(|| panic!("no addresses left"));
    let frames = frames::allocate_run(1).unwrap_or_else(|| panic!("no memory for a thread object"));
    memory.map_run(0, frames.clone(), Protection::ReadWrite);
    let object = memory.address() as *mut KTHREAD;
    // SAFETY: fresh memory of a page.
    unsafe {
        std::ptr::write_bytes(object.cast::<u8>(), 0, crate::memory::PAGE_SIZE);
        dispatcher::initialise_header(object.cast(), object_type::THREAD, size_of::<KTHREAD>(), 0);
        (*object).Thread = std::ptr::from_ref(thread).cast();
    }
    with(|table| {
        table.objects.insert(object as usize, KernelObject { kind: ObjectKind::Thread, references: 1, memory, frames });
    });
    object
}

/// Adds a reference. False when there is no such object.
pub(crate) fn reference(object: usize) -> bool {
    with(|table| {
        let found = table.objects.get_mut(&object);
        found.map(|object| object.references += 1).is_some()
    })
}

/// Adds a reference to the object of a handle, which may be closed at any time. `None` when it is not open.
pub(crate) fn reference_by_handle(handle: usize) -> Option<usize> {
    with(|table| {
        let object = *table.handles.get(&handle)?;
        table.objects.get_mut(&object)?.references += 1;
        Some(object)
    })
}

/// Drops a reference and removes the object after its last.
pub(crate) fn dereference(object: usize, what: &str) {
    let gone = with(|table| {
        let Some(found) = table.objects.get_mut(&object) else { return Err(()) };
        found.references -= 1;
        if found.references > 0 {
            return Ok(None);
        }
        Ok(table.objects.remove(&object))
    });
    match gone {
        Ok(None) => {}
        Ok(Some(removed)) => {
            removed.memory.release();
            frames::free_run(removed.frames);
        }
        Err(()) => bugcheck(
            BugCheck::REFERENCE_BY_POINTER,
            [0, object as u64, 0, 0],
            format!("{what} is given {object:#x}, which is no object (any more)"),
        ),
    }
}

/// The kind of an object.
pub fn kind_of(object: usize) -> Option<ObjectKind> {
    with(|table| table.objects.get(&object).map(|object| object.kind))
}

/// Opens a handle to an object, which gets a reference.
pub(crate) fn open(object: usize) -> Option<usize> {
    with(|table| {
        table.objects.get_mut(&object)?.references += 1;
        table.next_handle += 4;
        // Kernel handles of Windows have the upper bits set.
        let handle = 0xFFFF_FFFF_8000_0000 | table.next_handle;
        table.handles.insert(handle, object);
        Some(handle)
    })
}

/// The object of a handle.
pub fn object_of(handle: usize) -> Option<usize> {
    with(|table| table.handles.get(&handle).copied())
}

/// Closes a handle; false when it is not open.
pub(crate) fn close(handle: usize) -> bool {
    let Some(object) = with(|table| table.handles.remove(&handle)) else { return false };
    ledger::release(LEDGER_KIND, handle);
    dereference(object, "ZwClose");
    true
}
