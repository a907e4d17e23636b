//! Counting instructions: the processor traps after each, and the address of each is kept.
//!
//! The same code takes the same instructions on every run, so counts can be compared where times cannot. One thread at a time
//! counts; what other threads do meanwhile is not counted.

use std::arch::asm;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Instructions of one count at most; later ones are left out.
const CAPACITY: usize = 1 << 22;
/// The number of the processor's debug exception. What the system says of its cause is no help: a virtual machine may lose it.
const DEBUG_EXCEPTION: i64 = 1;
/// The flag that makes the processor trap after an instruction.
const TRAP_FLAG: u64 = 0x100;

static COUNTING: Mutex<()> = Mutex::new(());
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PLACES: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The addresses of instructions, in the order in which they ran.
pub struct Steps {
    addresses: Vec<u64>,
}

/// Runs `body` one instruction at a time on the current thread, which takes about a microsecond for each.
pub fn count(body: impl FnOnce()) -> Steps {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut addresses = vec![0_u64; CAPACITY];
    TAKEN.store(0, Ordering::SeqCst);
    PLACES.store(addresses.as_mut_ptr(), Ordering::SeqCst);
    ACTIVE.store(true, Ordering::SeqCst);
    set_trap_flag(true);
    body();
    set_trap_flag(false);
    ACTIVE.store(false, Ordering::SeqCst);
    addresses.truncate(TAKEN.load(Ordering::SeqCst).min(CAPACITY));
    Steps { addresses }
}

#[inline(never)]
fn set_trap_flag(on: bool) {
    // SAFETY: changes the one flag, for which the handler of faults is prepared.
    unsafe {
        if on {
            asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG);
        } else {
            asm!("pushfq", "and qword ptr [rsp], {mask}", "popfq", mask = const !(TRAP_FLAG as i32));
        }
    }
}

/// Notes an instruction; whether the signal was one of stepping. Runs in the signal handler and takes nothing.
pub(crate) fn stepped(signal: libc::c_int, trap: i64, instruction: usize) -> bool {
    if signal != libc::SIGTRAP || trap != DEBUG_EXCEPTION || !ACTIVE.load(Ordering::Relaxed) {
        return false;
    }
    let index = TAKEN.fetch_add(1, Ordering::Relaxed);
    if index < CAPACITY {
        // SAFETY: the places are there while a count is active.
        unsafe { PLACES.load(Ordering::Relaxed).add(index).write(instruction as u64) };
    }
    true
}

impl Steps {
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
        let mut offsets: BTreeMap<u32, u64> = BTreeMap::new();
        for address in self.addresses.iter().filter(|address| image.contains(**address as usize)) {
            *offsets.entry((*address as usize - image.base) as u32).or_default() += 1;
        }
        let places: Vec<u32> = offsets.keys().copied().collect();
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        for (frames, count) in image.symbols.locate(&places).into_iter().zip(offsets.values()) {
            let function = if inlined { frames.first() } else { frames.last() }
                .map_or_else(|| "?".to_owned(), |frame| frame.function.clone());
            *functions.entry(function).or_default() += count;
        }
        let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
        functions.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        functions
    }
}

fn find(name: &str) -> Option<std::sync::Arc<crate::image::Image>> {
    crate::image::all().into_iter().find(|image| image.name.eq_ignore_ascii_case(name))
}
