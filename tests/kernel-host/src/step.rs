//! Single steps: the processor traps after each instruction, and the address of each is kept.
//!
//! The same code takes the same instructions on every run, so counts can be compared where times cannot. One thread at a time
//! counts. Threads beside it are stepped only where [`count_beside`] asks for it.

use std::arch::asm;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fault_handler;
use crate::image::Image;
use crate::image::symbols::Location;
use crate::thread::{self, Thread};

/// Instructions of one count at most; later ones are left out.
const CAPACITY: usize = 1 << 22;
/// The number of the processor's debug exception. What the system says of its cause is no help: a virtual machine may lose it.
const DEBUG_EXCEPTION: i64 = 1;
/// The flag that makes the processor trap after an instruction.
const TRAP_FLAG: i64 = 0x100;

static COUNTING: Mutex<()> = Mutex::new(());
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PLACES: AtomicPtr<Step> = AtomicPtr::new(ptr::null_mut());
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Handlers that may be about to write a place.
static WRITING: AtomicUsize = AtomicUsize::new(0);
/// Threads beside the counting one that have been asked to trap and do.
static ANSWERED: AtomicUsize = AtomicUsize::new(0);
/// Those that have the trap flag: one that waits keeps it until it runs again.
static BESIDE: AtomicUsize = AtomicUsize::new(0);

/// An instruction that ran.
#[derive(Clone, Copy)]
struct Step {
    /// The address of the thread's block.
    thread: usize,
    address: u64,
}

/// The addresses of instructions, in the order in which they ran.
pub struct Steps {
    addresses: Vec<u64>,
}

/// Runs `body` one instruction at a time on the current thread, which takes about a microsecond for each.
pub fn count(body: impl FnOnce()) -> Steps {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    Steps::of(&record(&[], body), |thread| thread == current())
}

/// The same, while every other thread of this name runs one instruction at a time as well: the steps of the current thread, and those of
/// the others.
pub fn count_beside(name: &str, body: impl FnOnce()) -> (Steps, Steps) {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let others: Vec<_> = thread::all().into_iter().filter(|thread| thread.name() == name).collect();
    let steps = record(&others, body);
    (Steps::of(&steps, |thread| thread == current()), Steps::of(&steps, |thread| thread != current()))
}

fn current() -> usize {
    Thread::try_current().map_or(0, |thread| ptr::from_ref(thread).addr())
}

/// Runs `body`, with `COUNTING` held, and returns the steps of all threads.
fn record(others: &[&'static Thread], body: impl FnOnce()) -> Vec<Step> {
    let mut steps = Vec::with_capacity(CAPACITY);
    TAKEN.store(0, Ordering::SeqCst);
    PLACES.store(steps.as_mut_ptr(), Ordering::SeqCst);
    ACTIVE.store(true, Ordering::SeqCst);
    begin_beside(others);
    set_trap_flag(true);
    body();
    set_trap_flag(false);
    ACTIVE.store(false, Ordering::SeqCst);
    // A handler that begins from here on writes nothing.
    while WRITING.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    // SAFETY: each of these places was written by the handler that took its number, and none of them is left.
    unsafe { steps.set_len(TAKEN.load(Ordering::SeqCst).min(CAPACITY)) };
    steps
}

/// Has threads trap, and returns when they do.
fn begin_beside(threads: &[&'static Thread]) {
    if threads.is_empty() {
        return;
    }
    fault_handler::install_steps();
    ANSWERED.store(0, Ordering::SeqCst);
    let asked = threads.iter().filter(|thread| fault_handler::request_steps(thread.task)).count();
    while ANSWERED.load(Ordering::SeqCst) < asked {
        std::thread::yield_now();
    }
}

#[inline(never)]
fn set_trap_flag(on: bool) {
    // SAFETY: changes the one flag, for which the handler of faults is prepared.
    unsafe {
        if on {
            asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG);
        } else {
            asm!("pushfq", "and qword ptr [rsp], {mask}", "popfq", mask = const !TRAP_FLAG);
        }
    }
}

/// The current thread is to trap from its next instruction on; `flags` are its own. Runs in a signal handler.
pub(crate) fn begin(flags: &mut i64) {
    if *flags & TRAP_FLAG == 0 {
        *flags |= TRAP_FLAG;
        BESIDE.fetch_add(1, Ordering::SeqCst);
    }
    ANSWERED.fetch_add(1, Ordering::SeqCst);
}

/// Notes an instruction; whether the signal was one of stepping. Runs in the signal handler and takes nothing.
pub(crate) fn stepped(signal: libc::c_int, trap: i64, instruction: usize, flags: &mut i64) -> bool {
    if signal != libc::SIGTRAP || trap != DEBUG_EXCEPTION {
        return false;
    }
    WRITING.fetch_add(1, Ordering::SeqCst);
    let active = ACTIVE.load(Ordering::SeqCst);
    if active {
        let index = TAKEN.fetch_add(1, Ordering::Relaxed);
        if index < CAPACITY {
            let step = Step { thread: current(), address: instruction as u64 };
            // SAFETY: the places are there while a handler that has found a count active is in `WRITING`, and this one is its own.
            unsafe { PLACES.load(Ordering::Relaxed).add(index).write(step) };
        }
    }
    WRITING.fetch_sub(1, Ordering::SeqCst);
    active || end_beside(flags)
}

/// The end of stepping for a thread beside one whose count is over; whether it is such a thread.
fn end_beside(flags: &mut i64) -> bool {
    let is_stepped = *flags & TRAP_FLAG != 0 && BESIDE.load(Ordering::SeqCst) != 0;
    if is_stepped {
        *flags &= !TRAP_FLAG;
        BESIDE.fetch_sub(1, Ordering::SeqCst);
    }
    is_stepped
}

impl Steps {
    fn of(steps: &[Step], is_wanted: impl Fn(usize) -> bool) -> Self {
        Self { addresses: steps.iter().filter(|step| is_wanted(step.thread)).map(|step| step.address).collect() }
    }

    /// Instructions of the image with this file name.
    pub fn of_image(&self, name: &str) -> u64 {
        let Some(image) = find(name) else { return 0 };
        self.addresses.iter().filter(|address| image.contains(**address as usize)).count() as u64
    }

    /// All instructions, those of the host included.
    pub fn all(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// Instructions of an image by function, most first: by the inlined function that an instruction comes from, or by the one that
    /// it was inlined into.
    pub fn by_function(&self, name: &str, inlined: bool) -> Vec<(String, u64)> {
        let Some(image) = find(name) else { return Vec::new() };
        let located = self.located(&image);
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        for frames in self.addresses.iter().filter_map(|address| located.get(address)) {
            let function = if inlined { frames.first() } else { frames.last() }
                .map_or_else(|| "?".to_owned(), |frame| frame.function.clone());
            *functions.entry(function).or_default() += 1;
        }
        let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
        functions.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        functions
    }

    /// The functions of each instruction in these images, in the order in which the instructions ran: the inlined function first, then
    /// what it was inlined into. Instructions elsewhere are left out, and equal neighbours are one.
    pub fn locations(&self, images: &[&str]) -> Vec<Arc<[Location]>> {
        let images: Vec<_> = images.iter().filter_map(|name| find(name)).map(|image| self.located(&image)).collect();
        let known = |address: &u64| images.iter().find_map(|of_image| of_image.get(address)).cloned();
        let mut locations: Vec<_> = self.addresses.iter().filter_map(known).collect();
        locations.dedup_by(|one, other| Arc::ptr_eq(one, other));
        locations
    }

    /// The steps from the first one to the last in a wanted function of an image. A function's name has its path and its types.
    #[must_use]
    pub fn within(self, name: &str, is_wanted: impl Fn(&str) -> bool) -> Self {
        let located = find(name).map(|image| self.located(&image)).unwrap_or_default();
        let is_inside = |address: &u64| {
            located.get(address).is_some_and(|functions| functions.iter().any(|it| is_wanted(&it.function)))
        };
        let first = self.addresses.iter().position(is_inside).unwrap_or(self.addresses.len());
        let end = self.addresses.iter().rposition(is_inside).map_or(first, |last| last + 1);
        Self { addresses: self.addresses[first..end].to_vec() }
    }

    /// Functions by address.
    fn located(&self, image: &Image) -> BTreeMap<u64, Arc<[Location]>> {
        let of_image = self.addresses.iter().copied().filter(|address| image.contains(*address as usize));
        let addresses: Vec<u64> = of_image.collect::<BTreeSet<_>>().into_iter().collect();
        let offsets: Vec<u32> = addresses.iter().map(|address| (*address as usize - image.base) as u32).collect();
        let located = image.symbols.locate(&offsets).into_iter().map(Arc::from);
        addresses.into_iter().zip(located).collect()
    }
}

fn find(name: &str) -> Option<Arc<Image>> {
    crate::image::all().into_iter().find(|image| image.name.eq_ignore_ascii_case(name))
}
