//! Threads for requests that take their time, and the ways in which such a request ends early.
//!
//! A request that pends waits; a thread takes it into its slot, does it at PASSIVE_LEVEL and completes it. Threads are
//! started when all others are busy, up to a limit, and live until the driver is unloaded.
//!
//! Every request has its cancel routine from the moment it waits until just before it is completed. What takes the routine out
//! of the IRP decides: if it is a thread of the driver, the routine is not called any more and the request is that thread's; if it
//! is the I/O manager, the routine is going to look for the request, and the request stays where it is until the routine has run.
//! One that waits it completes; one in a slot it leaves to the thread, which it wakes.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use softndk_ioctl::Status;
use softndk_kernel::{
    event::Event,
    pool::{NoMemory, PoolArray, PoolBox},
    spin_lock::SpinLock,
    thread::{self, Thread},
};
use wdk_sys::{DEVICE_OBJECT, IRP, ntddk::IoReleaseCancelSpinLock};

use crate::{driver::Driver, session::request::PendingRequest, tags};

/// Requests done at the same time; more wait.
const THREAD_MAX: usize = 32;
/// Requests that are done or wait; more are refused.
const REQUEST_MAX: usize = 512;

pub struct Workers {
    state: SpinLock<WorkerState>,
    wake: Event,
    /// For each slot: what is done there may have to end.
    calls: PoolArray<Event>,
    stopping: AtomicBool,
    /// Requests that have or wait for a thread. Counted up under the lock of the state.
    busy: AtomicU32,
}

struct WorkerState {
    waiting: WaitingRequests,
    slots: PoolArray<WorkerSlot>,
    threads: PoolArray<Option<Thread>>,
    started: usize,
    /// Threads on their way: a start may fail, so they are not counted on yet.
    starting: usize,
}

/// Where one thread works.
#[derive(Clone, Copy, Default)]
struct WorkerSlot {
    taken: bool,
    /// The request it works on, by [`Request::id`](softndk_kernel::irp::Request::id); 0 is none.
    request: usize,
    /// That request's cancel routine has been here.
    cancelled: bool,
}

/// Requests that are not begun, oldest first.
struct WaitingRequests {
    places: PoolArray<Option<PoolBox<PendingRequest>>>,
    length: usize,
}

impl WaitingRequests {
    fn push(&mut self, request: PoolBox<PendingRequest>) {
        // There are enough places: no more are counted than there are places.
        if let Some(place) = self.places.get_mut(self.length) {
            *place = Some(request);
            self.length += 1;
        }
    }

    /// Takes the oldest of a kind; the younger ones move up.
    fn take(&mut self, wanted: impl Fn(&PendingRequest) -> bool) -> Option<PoolBox<PendingRequest>> {
        let standing = self.places.get_mut(..self.length)?;
        let index = standing.iter().position(|place| place.as_ref().is_some_and(|request| wanted(request)))?;
        let request = standing.get_mut(index)?.take();
        standing.get_mut(index..).filter(|rest| !rest.is_empty())?.rotate_left(1);
        self.length -= 1;
        request
    }
}

impl Workers {
    #[inline(never)]
    pub fn try_new() -> Result<Self, NoMemory> {
        let places = PoolArray::try_from_fn(tags::SESSION, REQUEST_MAX, |_| Ok::<_, NoMemory>(None))?;
        let slots = PoolArray::try_from_fn(tags::SESSION, THREAD_MAX, |_| Ok::<_, NoMemory>(WorkerSlot::default()))?;
        let threads = PoolArray::try_from_fn(tags::SESSION, THREAD_MAX, |_| Ok::<_, NoMemory>(None))?;
        let state =
            WorkerState { waiting: WaitingRequests { places, length: 0 }, slots, threads, started: 0, starting: 0 };
        Ok(Self {
            state: SpinLock::new(state),
            wake: Event::try_synchronization(tags::EVENT, false)?,
            calls: PoolArray::try_from_fn(tags::SESSION, THREAD_MAX, |_| {
                Event::try_synchronization(tags::EVENT, false)
            })?,
            stopping: AtomicBool::new(false),
            busy: AtomicU32::new(0),
        })
    }

    /// Makes sure that there is a thread for one more request, and counts the request: `queue` or `give_back` follows.
    /// PASSIVE_LEVEL. False: there is none and none can be made, or there are too many requests.
    pub fn prepare(&self) -> bool {
        {
            let mut state = self.state.lock();
            let busy = self.busy.load(Ordering::Relaxed) as usize;
            let full = state.started + state.starting == THREAD_MAX;
            if busy >= REQUEST_MAX || (full && state.started == 0) {
                // In the second case all are being started, and each start may still fail.
                return false;
            }
            // Counted at once: of two requests that come together only one gets the thread that is free.
            self.busy.fetch_add(1, Ordering::Relaxed);
            if busy < state.started || full {
                return true;
            }
            state.starting += 1;
        }
        // SAFETY: `run` uses the driver state only; `stop` joins the thread before that goes.
        let thread = unsafe { Thread::start(run, ptr::null_mut()) };
        let mut state = self.state.lock();
        state.starting -= 1;
        let Ok(thread) = thread else {
            let others = state.started != 0;
            if !others {
                self.give_back();
            }
            return others;
        };
        // There is a slot: no more threads are started than there are slots, and which one it is does not matter.
        if let Some(slot) = state.threads.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(thread);
        }
        state.started += 1;
        true
    }

    /// A request that `prepare` counted is not queued, or is over.
    pub fn give_back(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// Queues a request that `prepare` counted. `IRQL <= DISPATCH_LEVEL`.
    pub fn queue(&self, request: PoolBox<PendingRequest>) {
        let over = {
            let mut state = self.state.lock();
            request.irp().set_cancel_routine(Some(cancel));
            // What ends requests has not seen this one so far.
            match request.ended() {
                Some(status) if request.irp().take_cancel_routine() => Some((request, status)),
                _ => {
                    state.waiting.push(request);
                    None
                }
            }
        };
        match over {
            Some((request, status)) => self.dismiss(request, status),
            None => self.wake.set(),
        }
    }

    /// Something has happened for which requests end, and can be seen: those that wait end now, the threads of the others are woken.
    /// PASSIVE_LEVEL, without a lock.
    pub fn call_off(&self) {
        loop {
            let over = {
                let mut state = self.state.lock();
                // The I/O manager's cancel routine comes for the ones of which it has it.
                state.waiting.take(|request| request.ended().is_some() && request.irp().take_cancel_routine())
            };
            let Some(request) = over else { break };
            let status = request.ended().unwrap_or(Status::CANCELLED);
            self.dismiss(request, status);
        }
        for call in self.calls.iter() {
            call.set();
        }
    }

    /// Completes a request that is not begun.
    fn dismiss(&self, request: PoolBox<PendingRequest>, status: Status) {
        // First: when a request is completed, the driver may go.
        self.give_back();
        request.into_inner().finish(Err(status).into());
    }

    /// The cancel routine of a request, which stays where it is until this has run.
    fn cancelled(&self, id: usize) {
        let waiting = {
            let mut state = self.state.lock();
            let waiting = state.waiting.take(|request| request.irp().id() == id);
            if waiting.is_none() {
                let mut slots = state.slots.iter_mut().zip(self.calls.iter());
                if let Some((slot, call)) = slots.find(|(slot, _)| slot.request == id) {
                    slot.cancelled = true;
                    call.set();
                }
            }
            waiting
        };
        if let Some(request) = waiting {
            self.dismiss(request, Status::CANCELLED);
        }
    }

    /// A slot for a thread: there are as many as threads.
    fn take_slot(&self) -> Option<(usize, &Event)> {
        let mut state = self.state.lock();
        let mut slots = state.slots.iter_mut().zip(self.calls.iter()).enumerate();
        let (index, (slot, call)) = slots.find(|(_, (slot, _))| !slot.taken)?;
        slot.taken = true;
        Some((index, call))
    }

    /// The oldest request, in the slot now, and whether more wait behind it.
    fn take(&self, slot: usize) -> Option<(PoolBox<PendingRequest>, bool)> {
        let mut state = self.state.lock();
        let request = state.waiting.take(|_| true)?;
        if let Some(slot) = state.slots.get_mut(slot) {
            *slot = WorkerSlot { taken: true, request: request.irp().id(), cancelled: false };
        }
        Some((request, state.waiting.length != 0))
    }

    /// Takes a request from its slot. Afterwards it is not cancelled any more. PASSIVE_LEVEL.
    fn clear(&self, slot: usize, call: &Event, request: &PendingRequest) {
        if !request.irp().take_cancel_routine() {
            // It has been called, on another processor perhaps, and needs the request until it has been here.
            while !self.state.lock().slots.get(slot).is_none_or(|slot| slot.cancelled) {
                call.wait();
            }
        }
        if let Some(slot) = self.state.lock().slots.get_mut(slot) {
            *slot = WorkerSlot { taken: true, ..WorkerSlot::default() };
        }
    }

    fn work(&self, driver: &'static Driver, slot: usize, call: &Event) {
        while let Some((request, more)) = self.take(slot) {
            if more {
                // Another thread may take the next one.
                self.wake.set();
            }
            let outcome = request.act(driver, call);
            self.clear(slot, call, &request);
            self.give_back();
            request.into_inner().finish(outcome);
        }
    }

    /// PASSIVE_LEVEL, when no request is left.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for index in 0..THREAD_MAX {
            let thread = self.state.lock().threads.get_mut(index).and_then(Option::take);
            if let Some(thread) = thread {
                // Each thread that leaves wakes the next one.
                self.wake.set();
                thread.join();
            }
        }
    }
}

unsafe extern "C" fn run(_context: *mut c_void) {
    if let Some(driver) = Driver::get() {
        let workers = &driver.workers;
        if let Some((slot, call)) = workers.take_slot() {
            while !workers.stopping.load(Ordering::Acquire) {
                workers.wake.wait();
                workers.work(driver, slot, call);
            }
        }
        workers.wake.set();
    }
    thread::exit();
}

/// DRIVER_CANCEL of every request that pends: called with the system's cancel spin lock, which it gives back.
///
/// # Safety
/// The I/O manager passes an IRP that has this routine, and has taken the routine out of it.
unsafe extern "C" fn cancel(_device: *mut DEVICE_OBJECT, irp: *mut IRP) {
    // SAFETY: the IRP is not completed before this routine has found it.
    let level = unsafe { (*irp).CancelIrql };
    // SAFETY: the routine is entered with the lock, acquired at this level.
    unsafe { IoReleaseCancelSpinLock(level) };
    if let Some(driver) = Driver::get() {
        driver.workers.cancelled(irp.addr());
    }
}
