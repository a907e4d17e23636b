//! The objects behind the layer: what it wrote into each, and what the provider had there before.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::NDK_OBJECT_HEADER;

use super::super::object_check::{self, Kind};
use super::tables;
use crate::ndis::rule::{Group, broken};

/// An open adapter and everything that came from it.
pub(super) struct Family {
    pub version: NDK_VERSION,
    objects: AtomicUsize,
    /// Logical address mappings that are built, by the address of the consumer's structure.
    mappings: Mutex<HashSet<u64>>,
}

impl Family {
    pub(super) fn new(version: NDK_VERSION) -> Self {
        Self { version, objects: AtomicUsize::new(0), mappings: Mutex::default() }
    }

    fn mappings(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A mapping is to be built here: none may be there already.
    pub(super) fn check_unmapped(&self, mapping: u64) {
        if self.mappings().contains(&mapping) {
            broken(
                Group::Ndk,
                mapping as usize,
                "NdkBuildLAM is given the structure of a mapping that is not released",
            );
        }
    }

    pub(super) fn mapped(&self, mapping: u64) {
        self.mappings().insert(mapping);
    }

    pub(super) fn unmapped(&self, mapping: u64) {
        if !self.mappings().remove(&mapping) {
            broken(Group::Ndk, mapping as usize, "NdkReleaseLAM is given what is no mapping (released twice?)");
        }
    }

    /// Mappings that are not released.
    pub(super) fn mappings_left(&self) -> usize {
        self.mappings().len()
    }

    /// Objects that are neither closed nor being closed, the adapter not counted.
    pub(super) fn objects(&self) -> usize {
        self.objects.load(Ordering::SeqCst)
    }
}

/// One object.
pub(super) struct Object {
    pub kind: Kind,
    pub address: usize,
    pub family: Arc<Family>,
    /// The provider's own dispatch table.
    provider: usize,
    /// What the reserved block holds while the object is open.
    reserved: [usize; 4],
    closed: AtomicBool,
    /// Notifications that run now.
    pub notifying: AtomicU32,
    /// A disconnect was told.
    pub disconnected: AtomicBool,
}

static OBJECTS: Mutex<Option<HashMap<usize, Arc<Object>>>> = Mutex::new(None);

fn objects() -> MutexGuard<'static, Option<HashMap<usize, Arc<Object>>>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes an object over that the provider just handed out.
pub(super) fn adopt(kind: Kind, pointer: *mut NDK_OBJECT_HEADER, family: &Arc<Family>, function: &str) {
    let address = pointer as usize;
    // SAFETY: the provider handed it out as an object of this kind; a wild pointer is reported by the fault handler.
    if let Err(rule) = unsafe { object_check::check_object(kind, pointer, family.version) } {
        broken(Group::Ndk, address, format!("{function}: {rule}"));
    }
    // SAFETY: as above.
    let provider = unsafe { pointer.add(1).cast::<usize>().read() };
    // Values that nobody writes by accident, and that differ from object to object.
    let reserved = std::array::from_fn(|word| address.rotate_left(8 * word as u32 + 3) ^ 0x4E44_4B4D_4544_4941);
    let object = Arc::new(Object {
        kind,
        address,
        family: Arc::clone(family),
        provider,
        reserved,
        closed: AtomicBool::new(false),
        notifying: AtomicU32::new(0),
        disconnected: AtomicBool::new(false),
    });
    // SAFETY: dispatch and reserved block are the layer's from here on.
    unsafe {
        reserved_block(pointer).write(reserved);
        pointer.add(1).cast::<usize>().write(tables::of(kind) as usize);
    }
    if kind != Kind::Adapter {
        family.objects.fetch_add(1, Ordering::SeqCst);
    }
    if objects().get_or_insert_default().insert(address, object).is_some() {
        broken(Group::Ndk, address, format!("{function} hands out a {kind:?} object that is open already"));
    }
}

/// The reserved block of an object.
fn reserved_block(pointer: *mut NDK_OBJECT_HEADER) -> *mut [usize; 4] {
    pointer.cast::<u8>().wrapping_add(std::mem::offset_of!(NDK_OBJECT_HEADER, NdkReserved)).cast()
}

/// The open object of this kind at an address.
pub(super) fn find(kind: Kind, address: usize, function: &str) -> Arc<Object> {
    let found = objects().get_or_insert_default().get(&address).cloned();
    match found {
        Some(object) if object.kind == kind => {
            object.check();
            object
        }
        Some(object) => {
            broken(Group::Ndk, address, format!("{function} is given a {:?} object as {kind:?}", object.kind))
        }
        None => broken(Group::Ndk, address, format!("{function} is given a {kind:?} object that is not open")),
    }
}

/// Looks at an object that the provider calls back about: when it has taken its table back, the consumer's next call passes the
/// layer by. The lock keeps a close from beginning meanwhile.
pub(super) fn check_unless_closing(object: &Arc<Object>) {
    let objects = objects();
    let open =
        objects.as_ref().and_then(|open| open.get(&object.address)).is_some_and(|open| Arc::ptr_eq(open, object));
    let word = if open { object.overwritten() } else { None };
    drop(objects);
    if let Some(word) = word {
        object.accuse(word);
    }
}

/// Takes an object out, whose close begins: the consumer does not use it any more, and the provider may soon hand its
/// address out again.
pub(super) fn take(kind: Kind, address: usize, function: &str) -> Arc<Object> {
    let object = find(kind, address, function);
    objects().get_or_insert_default().remove(&address);
    if kind != Kind::Adapter {
        object.family.objects.fetch_sub(1, Ordering::SeqCst);
    }
    object
}

impl Object {
    /// The provider's function in a slot.
    pub(super) fn provider_function(&self, slot: usize) -> usize {
        // SAFETY: checked when the object was adopted: a complete table in read-only memory of the provider's image.
        unsafe { (self.provider as *const usize).add(slot).read() }
    }

    pub(super) fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The layer's words are still what it wrote.
    fn check(&self) {
        if let Some(word) = self.overwritten() {
            self.accuse(word);
        }
    }

    fn accuse(&self, word: &str) -> ! {
        broken(Group::Ndk, self.address, format!("somebody wrote to {word} of an open {:?} object", self.kind));
    }

    /// The word of an open object that somebody wrote to.
    fn overwritten(&self) -> Option<&'static str> {
        let pointer = self.address as *mut NDK_OBJECT_HEADER;
        // SAFETY: an open object.
        let (reserved, table) = unsafe { (reserved_block(pointer).read(), pointer.add(1).cast::<usize>().read()) };
        if reserved != self.reserved {
            return Some("NdkReserved");
        }
        (table != tables::of(self.kind) as usize).then_some("Dispatch")
    }
}
