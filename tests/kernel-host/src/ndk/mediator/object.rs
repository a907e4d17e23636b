//! The objects behind the layer: what it wrote into each, and what the provider had there before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::NDK_OBJECT_HEADER;

use super::super::object_check::{self, NdkObjectKind};
use super::tables;
use crate::host_lock::HostLock;
use crate::image::stack_trace;
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
pub(super) struct NdkObject {
    pub kind: NdkObjectKind,
    pub address: usize,
    pub family: Arc<Family>,
    /// The provider's own dispatch table.
    provider: usize,
    /// What the reserved block holds while the object is open.
    reserved: [usize; 4],
    closed: AtomicBool,
    /// Notifications that run now.
    pub notifying: AtomicU32,
    /// A disconnect was indicated.
    pub disconnected: AtomicBool,
    /// Its number among the objects of its kind.
    serial: usize,
    /// The function that made it.
    made_by: String,
    /// Where in the consumer it was made, and where its close was called.
    made_at: Vec<u64>,
    closed_at: OnceLock<Vec<u64>>,
    /// Callbacks of it that have not returned.
    pub telling: AtomicU32,
    /// The objects that it was made of or is connected with: their closes wait for its own.
    needed: Mutex<Vec<Arc<NdkObject>>>,
}

static OBJECTS: HostLock<Option<HashMap<usize, Arc<NdkObject>>>> = HostLock::new(None);

fn objects() -> MutexGuard<'static, Option<HashMap<usize, Arc<NdkObject>>>> {
    OBJECTS.lock()
}

/// Takes an object over that the provider just handed out.
pub(super) fn adopt(kind: NdkObjectKind, pointer: *mut NDK_OBJECT_HEADER, family: &Arc<Family>, function: &str) {
    let address = pointer as usize;
    // SAFETY: the provider handed it out as an object of this kind; a wild pointer is reported by the fault handler.
    if let Err(rule) = unsafe { object_check::check_object(kind, pointer, family.version) } {
        broken(Group::Ndk, address, format!("{function}: {rule}"));
    }
    // SAFETY: as above.
    let provider = unsafe { pointer.add(1).cast::<usize>().read() };
    let object = NdkObject::new(kind, address, family, provider, function);
    // SAFETY: dispatch and reserved block are the layer's from here on.
    unsafe {
        reserved_block(pointer).write(object.reserved);
        pointer.add(1).cast::<usize>().write(tables::of(kind) as usize);
    }
    if kind != NdkObjectKind::Adapter {
        family.objects.fetch_add(1, Ordering::SeqCst);
    }
    let object = Arc::new(object);
    if objects().get_or_insert_default().insert(address, object).is_some() {
        broken(Group::Ndk, address, format!("{function} hands out a {kind:?} object that is open already"));
    }
}

fn next_serial(kind: NdkObjectKind) -> usize {
    static SERIALS: [AtomicUsize; 10] = [const { AtomicUsize::new(0) }; 10];
    SERIALS[kind as usize].fetch_add(1, Ordering::Relaxed) + 1
}

/// Objects whose close was called and has not completed.
static CLOSING: HostLock<Vec<Arc<NdkObject>>> = HostLock::new(Vec::new());

fn closing() -> MutexGuard<'static, Vec<Arc<NdkObject>>> {
    CLOSING.lock()
}

/// The open object at an address, whatever its kind.
pub(super) fn open_at(address: usize) -> Option<Arc<NdkObject>> {
    objects().get_or_insert_default().get(&address).cloned()
}

/// The name of the open object at an address.
pub(super) fn name_at(address: usize) -> Option<String> {
    open_at(address).map(|object| object.name())
}

/// Open objects and those that are being closed, for reports; nothing when a lock is held.
pub(super) fn live() -> (Vec<Arc<NdkObject>>, Vec<Arc<NdkObject>>) {
    let open = OBJECTS.try_lock();
    let mut open: Vec<Arc<NdkObject>> =
        open.iter().flat_map(|open| open.iter()).flat_map(|open| open.values().cloned()).collect();
    open.sort_by_key(|object| (object.kind as usize, object.serial));
    let closing = CLOSING.try_lock().map_or_else(Vec::new, |closing| closing.clone());
    (open, closing)
}

/// The reserved block of an object.
fn reserved_block(pointer: *mut NDK_OBJECT_HEADER) -> *mut [usize; 4] {
    pointer.cast::<u8>().wrapping_add(std::mem::offset_of!(NDK_OBJECT_HEADER, NdkReserved)).cast()
}

/// The open object of this kind at an address.
pub(super) fn find(kind: NdkObjectKind, address: usize, function: &str) -> Arc<NdkObject> {
    judge(objects().get_or_insert_default().get(&address).cloned(), kind, address, function)
}

/// What was found at an address, if it is an open object of this kind.
fn judge(found: Option<Arc<NdkObject>>, kind: NdkObjectKind, address: usize, function: &str) -> Arc<NdkObject> {
    match found {
        Some(object) if object.kind == kind => {
            object.check();
            object
        }
        Some(object) => {
            broken(Group::Ndk, address, format!("{function} is given a {:?} object as {kind:?}", object.kind))
        }
        None => {
            let history = closed_at(address).map_or_else(String::new, |history| format!(": {history}"));
            broken(Group::Ndk, address, format!("{function} is given a {kind:?} object that is not open{history}"))
        }
    }
}

/// How many closed objects are remembered for reports.
const REMEMBERED: usize = 4096;

/// Objects by their addresses, the last one closed last.
static RECENTLY_CLOSED: Mutex<VecDeque<(usize, Arc<NdkObject>)>> = Mutex::new(VecDeque::new());

fn recently_closed() -> MutexGuard<'static, VecDeque<(usize, Arc<NdkObject>)>> {
    RECENTLY_CLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an address was before it was closed, with the caller of the close; for the report of a fault.
pub(super) fn closed_at(address: usize) -> Option<String> {
    let closed = RECENTLY_CLOSED.try_lock().ok()?;
    let length = size_of::<NDK_OBJECT_HEADER>() + size_of::<usize>();
    let found = closed.iter().rev().find(|(at, _)| (*at..*at + length).contains(&address))?;
    Some(history(found))
}

/// What is known of an object that was closed.
fn history((_, object): &(usize, Arc<NdkObject>)) -> String {
    let state = if object.is_closed() { "was closed" } else { "is being closed" };
    format!("{}\n***     it {state} by a call{}", object.origin(), object.place_of_close())
}

/// Where the consumer is; when verifying, because it takes time.
pub(super) fn call_site() -> Vec<u64> {
    if crate::kernel::is_verifying() { stack_trace::addresses() } else { Vec::new() }
}

/// The innermost functions of a call, a line each.
pub(super) fn place(addresses: &[u64]) -> String {
    const SHOWN: usize = 4;
    let mut text = String::new();
    for frame in stack_trace::name(addresses).iter().take(SHOWN) {
        let _ = write!(text, "\n***       {frame}");
    }
    text
}

/// Checks an object that the provider calls back about: when it has taken its table back, the consumer's next call passes the
/// layer by. The lock keeps a close from beginning meanwhile.
pub(super) fn check_unless_closing(object: &Arc<NdkObject>) {
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
pub(super) fn take(kind: NdkObjectKind, address: usize, function: &str) -> Arc<NdkObject> {
    // One hold: of two closes at once the second finds nothing.
    let object = judge(objects().get_or_insert_default().remove(&address), kind, address, function);
    if kind != NdkObjectKind::Adapter {
        object.family.objects.fetch_sub(1, Ordering::SeqCst);
    }
    let _ = object.closed_at.set(call_site());
    closing().push(Arc::clone(&object));
    if crate::kernel::is_verifying() {
        let mut closed = recently_closed();
        closed.retain(|(at, _)| *at != address);
        closed.push_back((address, Arc::clone(&object)));
        if closed.len() > REMEMBERED {
            closed.pop_front();
        }
    }
    object
}

impl NdkObject {
    fn new(kind: NdkObjectKind, address: usize, family: &Arc<Family>, provider: usize, function: &str) -> Self {
        // Values that no one writes by accident, and that differ from object to object.
        let reserved = std::array::from_fn(|word| address.rotate_left(8 * word as u32 + 3) ^ 0x4E44_4B4D_4544_4941);
        Self {
            kind,
            address,
            family: Arc::clone(family),
            provider,
            reserved,
            closed: AtomicBool::new(false),
            notifying: AtomicU32::new(0),
            disconnected: AtomicBool::new(false),
            serial: next_serial(kind),
            made_by: function.to_owned(),
            made_at: call_site(),
            closed_at: OnceLock::new(),
            telling: AtomicU32::new(0),
            needed: Mutex::default(),
        }
    }

    /// The provider's function in a slot.
    pub(super) fn provider_function(&self, slot: usize) -> usize {
        // SAFETY: checked when the object was adopted: a complete table in read-only memory of the provider's image.
        unsafe { (self.provider as *const usize).add(slot).read() }
    }

    pub(super) fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
        closing().retain(|other| !std::ptr::eq(&raw const **other, self));
        // Nothing waits for it any more.
        self.needed().clear();
    }

    fn needed(&self) -> MutexGuard<'_, Vec<Arc<NdkObject>>> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was made of these objects, or is connected with them.
    pub(super) fn needs(&self, others: &[Arc<NdkObject>]) {
        let mut needed = self.needed();
        for other in others {
            if !needed.iter().any(|known| Arc::ptr_eq(known, other)) {
                needed.push(Arc::clone(other));
            }
        }
    }

    /// Whether the close of another object has to wait for this one's.
    pub(super) fn holds(&self, other: &Arc<NdkObject>) -> bool {
        let held = |needed: MutexGuard<'_, Vec<Arc<NdkObject>>>| needed.iter().any(|known| Arc::ptr_eq(known, other));
        self.needed.try_lock().is_ok_and(held)
    }

    /// `QueuePair#3`.
    pub(super) fn name(&self) -> String {
        format!("{:?}#{}", self.kind, self.serial)
    }

    /// Its creator, with the place in the consumer.
    pub(super) fn origin(&self) -> String {
        format!("{} at {:#x}, made by {}{}", self.name(), self.address, self.made_by, place(&self.made_at))
    }

    /// Where its close was called.
    pub(super) fn place_of_close(&self) -> String {
        self.closed_at.get().map_or_else(String::new, |addresses| place(addresses))
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
        broken(Group::Ndk, self.address, format!("{word} of an open {:?} object was overwritten", self.kind));
    }

    /// The word of an open object that was overwritten.
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
