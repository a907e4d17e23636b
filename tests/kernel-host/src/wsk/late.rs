//! What the provider does later, outside of the call that it comes from: in a DPC on some processor, as a network card's interrupt
//! brings it, or on a system worker thread; or after a time.

use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::chance;
use crate::callback::kernel_routine;
use crate::nt::{KDPC, KTIMER};
use crate::thread::Thread;
use crate::{dpc, kernel, ledger, processor, timer, worker};

type Work = Box<dyn FnOnce() + Send>;

/// A DPC object, a timer that may queue it, and what it runs.
struct Carrier {
    timer: KTIMER,
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
    // SAFETY: zeroes are such objects, to be initialised before use.
    let (timer, deferred) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    Box::into_raw(Box::new(Carrier { timer, deferred, work: None }))
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
pub(crate) fn queue(work: impl FnOnce() + Send + 'static) {
    if chance::once_in(3) {
        worker::queue_own(work);
        return;
    }
    let carrier = load(Box::new(work));
    // SAFETY: an object that `load` has prepared.
    unsafe { dpc::insert(Thread::current(), &raw mut (*carrier).deferred, null_mut(), null_mut()) };
}

/// Runs something at DISPATCH_LEVEL, by an interrupt: the caller's thread runs on no processor.
pub(crate) fn interrupt(work: impl FnOnce() + Send + 'static) {
    let carrier = load(Box::new(work));
    // SAFETY: an object that `load` has prepared.
    unsafe { dpc::insert_from_clock(Thread::current(), &raw mut (*carrier).deferred) };
}

/// Runs something at DISPATCH_LEVEL after a time.
pub(crate) fn after(time: Duration, work: impl FnOnce() + Send + 'static) {
    let carrier = load(Box::new(work));
    let due = -((time.as_nanos() / 100) as i64);
    // SAFETY: an object that `load` has prepared, and a timer that is not set.
    unsafe {
        let timer = &raw mut (*carrier).timer;
        timer::initialise(timer, false);
        timer::set(timer, due, 0, &raw mut (*carrier).deferred);
        // It is the transport's, not the driver's that is calling.
        ledger::release(timer::LEDGER_KIND, timer as usize);
    }
}

/// An object whose DPC does this, on some processor.
fn load(work: Work) -> *mut Carrier {
    let here = Thread::current().processor();
    let target = if kernel::is_verifying() { chance::below(processor::count()) } else { here };
    let carrier = idle_carrier();
    // SAFETY: an idle object, which stays valid for ever.
    unsafe {
        (*carrier).work = Some(work);
        let deferred = &raw mut (*carrier).deferred;
        dpc::initialise(deferred, kernel_routine(run), carrier.cast(), false);
        dpc::set_target(deferred, target);
        // As a card's interrupt brings it.
        (*deferred).Importance = dpc::IMPORTANCE_MEDIUM_HIGH;
    }
    carrier
}
