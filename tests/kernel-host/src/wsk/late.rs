//! What the provider does later, outside of the call that it comes from: in a DPC on some processor, as a network card's interrupt
//! brings it, or on a system worker thread.

use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use super::chance;
use crate::callback::kernel_routine;
use crate::nt::KDPC;
use crate::thread::Thread;
use crate::{dpc, kernel, processor, worker};

type Work = Box<dyn FnOnce() + Send>;

/// A DPC object and what it runs.
struct Carrier {
    deferred: KDPC,
    work: Option<Work>,
}

/// Objects that are not queued, by address. They are never freed: who has queued one may look at it once more.
static IDLE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn idle_carrier() -> *mut Carrier {
    let found = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    if let Some(address) = found {
        return address as *mut Carrier;
    }
    // SAFETY: zeroes are a DPC object, to be initialised before use.
    let deferred = unsafe { std::mem::zeroed() };
    Box::into_raw(Box::new(Carrier { deferred, work: None }))
}

/// # Safety
///
/// The second word is an object that `queue` has queued.
unsafe fn run([_, carrier, ..]: [u64; 4]) {
    let carrier = carrier as *mut Carrier;
    // SAFETY: the context that `queue` has given; the object is this call's until it is idle.
    let work = unsafe { (*carrier).work.take() };
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(carrier as usize);
    if let Some(work) = work {
        work();
    }
}

/// Runs something later, at PASSIVE_LEVEL or DISPATCH_LEVEL. The caller holds no lock of the host.
pub(super) fn queue(work: impl FnOnce() + Send + 'static) {
    if chance::once_in(3) {
        worker::queue(work);
        return;
    }
    let thread = Thread::current();
    let target = if kernel::is_verifying() { chance::below(processor::count()) } else { thread.processor() };
    let carrier = idle_carrier();
    // SAFETY: an idle object, which stays valid for ever.
    unsafe {
        (*carrier).work = Some(Box::new(work));
        let deferred = &raw mut (*carrier).deferred;
        dpc::initialise(deferred, kernel_routine(run), carrier.cast(), false);
        dpc::set_target(deferred, target);
        // As a card's interrupt brings it.
        (*deferred).Importance = dpc::IMPORTANCE_MEDIUM_HIGH;
        dpc::insert(thread, deferred, null_mut(), null_mut());
    }
}
