//! The poller: a thread that looks at the rings of busy queues by itself, so that their processes need no doorbell.
//!
//! A doorbell puts its queue into the list, and the process sees that it is polled. Each round looks at the producer counts of all; a queue for
//! which nothing came for the adapter's `NetworkDirectPollUs` leaves, after one more look: the process either sees that it must ring, or
//! its entry is seen here. With an empty list the thread sleeps.
//!
//! Processes may spin for its work, so it is preferred to them; they need their processors, so it is there only where more are left
//! than two ends of a connection take, and after [`SHIFT`] everything rings for a tick of the system's clock.
//!
//! Rules: PASSIVE_LEVEL, in a critical region; the thread alone writes `polling` into the memory of a process; memory that was taken
//! away is let go in the next round; the thread waits for no thread of a process.

use core::{
    ffi::c_void,
    hint,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::nt::NTSTATUS;
use softndk_cells::{Dispose, Shared, last_look};
use softndk_kernel::{
    clock::Clock,
    event::{CriticalRegion, Event},
    irql,
    pool::{NoMemory, PoolArray},
    spin_lock::SpinLock,
    thread::{self, Thread},
};

use super::{
    queue_pair::QueuePair,
    request_memory::{PollOutcome, RequestMemory},
    rings::Attached,
    shared_receive_queue::SharedReceiveQueue,
};
use crate::tags;

/// Queues polled at a time; those of others ring.
const SLOTS: usize = 64;
/// Processors of a machine that has one for the thread.
const PROCESSORS: u32 = 3;
/// How long the thread works at a stretch, in nanoseconds.
const SHIFT: u64 = 250_000_000;
/// Entries of each ring taken from a queue in a round: one process does not keep the others waiting.
const TURN: u32 = 32;
/// Rounds between two looks at the clock.
const ROUNDS_A_CLOCK: u32 = 32;
/// Rounds without an entry after which a queue leaves although the clock stands still.
const IDLE_ROUNDS: u32 = 1 << 12;

/// A queue with request rings.
pub enum Polled {
    Pair(Shared<QueuePair>),
    SharedQueue(Shared<SharedReceiveQueue>),
}

impl Polled {
    fn requests(&self) -> &RequestMemory {
        match self {
            Self::Pair(pair) => pair.requests(),
            Self::SharedQueue(queue) => queue.requests(),
        }
    }

    /// How long it is polled after its last entry, in nanoseconds; 0: not at all.
    fn window(&self) -> u64 {
        match self {
            Self::Pair(pair) => pair.poll_window(),
            Self::SharedQueue(queue) => queue.poll_window(),
        }
    }

    /// Takes one pass's entries; `None` where a thread of the process takes them. An error ends that for good.
    fn take(&self, memory: &Attached, region: &CriticalRegion) -> Result<Option<PollOutcome>, NTSTATUS> {
        match self {
            Self::Pair(pair) => pair.poll(memory, region, TURN),
            Self::SharedQueue(queue) => queue.poll(memory, region, TURN),
        }
    }
}

/// What others ask of the thread.
struct Poller {
    wake: Event,
    wishes: SpinLock<Wishes>,
    /// Something was added to the wishes.
    notified: AtomicBool,
}

struct Wishes {
    offered: PoolArray<Option<Polled>>,
    /// Queues offered or in the list.
    count: usize,
    end: bool,
    /// The thread's, which takes it.
    list: Option<PollList>,
}

impl Dispose for Poller {}

/// While the device is registered, if the thread could be had.
static POLLER: SpinLock<Option<(Shared<Poller>, Thread)>> = SpinLock::new(None);

fn current() -> Option<Shared<Poller>> {
    POLLER.lock().as_ref().map(|(poller, _)| poller.clone())
}

/// Starts the thread where there is a processor to spare. Without it, or without memory for it, every queue rings. PASSIVE_LEVEL.
pub fn start() {
    if irql::processor_count() < PROCESSORS {
        return;
    }
    let Ok(poller) = Poller::try_new() else { return };
    let context: *const Poller = &raw const *poller;
    // SAFETY: `run` takes the poller's address; `stop` joins the thread before it drops the poller.
    let Ok(thread) = (unsafe { Thread::start(run, context.cast_mut().cast()) }) else { return };
    thread.prefer();
    *POLLER.lock() = Some((poller, thread));
}

/// Ends the thread, with which the queues in its list go. PASSIVE_LEVEL, when no request comes any more.
pub fn stop() {
    let Some((poller, thread)) = POLLER.lock().take() else { return };
    poller.update(|wishes| wishes.end = true);
    thread.join();
    drop(poller);
}

/// Has a queue polled that was busy just now. PASSIVE_LEVEL.
pub fn offer(queue: Polled) {
    if queue.window() == 0 || !queue.requests().begin_polling() {
        return;
    }
    let refused = match current() {
        Some(poller) => poller.offer(queue),
        None => Some(queue),
    };
    if let Some(queue) = refused {
        queue.requests().end_polling();
    }
}

impl Poller {
    fn try_new() -> Result<Shared<Self>, NoMemory> {
        let slots = PoolArray::try_from_fn(tags::ND_POLLER, SLOTS, |_| Ok::<_, NoMemory>(None))?;
        let offered = PoolArray::try_from_fn(tags::ND_POLLER, SLOTS, |_| Ok::<_, NoMemory>(None))?;
        let list = Some(PollList { slots, length: 0 });
        let wishes = Wishes { offered, count: 0, end: false, list };
        Shared::try_new(Self {
            wake: Event::try_synchronization(tags::EVENT, false)?,
            wishes: SpinLock::new(wishes),
            notified: AtomicBool::new(false),
        })
    }

    fn update<R>(&self, act: impl FnOnce(&mut Wishes) -> R) -> R {
        let result = act(&mut self.wishes.lock());
        self.notified.store(true, Ordering::Release);
        self.wake.set();
        result
    }

    /// A queue for the list; it comes back when there is no slot.
    fn offer(&self, queue: Polled) -> Option<Polled> {
        self.update(|wishes| match wishes.offered.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) if wishes.count < SLOTS => {
                wishes.count = wishes.count.saturating_add(1);
                *slot = Some(queue);
                None
            }
            _ => Some(queue),
        })
    }
}

/// A queue in the thread's list.
struct PollSlot {
    queue: Polled,
    memory: Shared<Attached>,
    window: u64,
    /// Producer counts as they were when entries were last taken.
    seen: Option<(u32, u32)>,
    /// When the last entry came, and the rounds since.
    active: u64,
    idle_rounds: u32,
}

impl PollSlot {
    /// The slot of a queue that has memory; any other is forgotten.
    fn adopt(queue: Polled, now: u64) -> Option<Self> {
        let Some(memory) = queue.requests().memory() else {
            queue.requests().end_polling();
            return None;
        };
        memory.show_polling(true);
        let window = queue.window();
        Some(Self { queue, memory, window, seen: None, active: now, idle_rounds: 0 })
    }

    /// Takes what has come; false when the queue leaves the list.
    fn look(&mut self, now: u64, region: &CriticalRegion) -> bool {
        if self.memory.is_revoked() {
            return false;
        }
        if self.seen != Some(self.memory.producers()) {
            (self.active, self.idle_rounds) = (now, 0);
            return self.take(region).is_ok();
        }
        self.idle_rounds = self.idle_rounds.saturating_add(1);
        let idle = now.saturating_sub(self.active);
        idle < self.window && (idle != 0 || self.idle_rounds < IDLE_ROUNDS)
    }

    /// Takes one pass's entries; whether there are more.
    fn take(&mut self, region: &CriticalRegion) -> Result<bool, NTSTATUS> {
        let produced = self.memory.producers();
        // The holder of the pass takes at least these.
        let left = PollOutcome { produced, more: false };
        let PollOutcome { produced, more } = self.queue.take(&self.memory, region)?.unwrap_or(left);
        self.seen = Some(produced).filter(|_| !more);
        Ok(more)
    }

    /// Leaves the list: the process has to ring again. It stays where there is more than one pass takes.
    fn leave(mut self, region: &CriticalRegion) -> Option<Self> {
        // What the process posts from here on rings, or is seen now.
        let produced = last_look::withdraw(|| self.memory.show_polling(false), || self.memory.producers());
        let unseen = !self.memory.is_revoked() && self.seen != Some(produced);
        if unseen && self.take(region) == Ok(true) {
            self.memory.show_polling(true);
            return Some(self);
        }
        let Self { queue, memory, .. } = self;
        drop(memory);
        // A doorbell from here on offers the queue again.
        queue.requests().end_polling();
        None
    }
}

/// The list of the thread.
struct PollList {
    slots: PoolArray<Option<PollSlot>>,
    /// How many of the first slots may be taken.
    length: usize,
}

impl PollList {
    /// Takes what was offered: there is a slot for each.
    fn adopt(&mut self, poller: &Poller, now: u64) {
        for index in 0..SLOTS {
            let Some(slot) = self.slots.get_mut(index) else { return };
            while slot.is_none() {
                let offered = poller.wishes.lock().offered.iter_mut().find_map(Option::take);
                let Some(queue) = offered else { return };
                *slot = PollSlot::adopt(queue, now);
                if slot.is_some() {
                    self.length = self.length.max(index.saturating_add(1));
                } else {
                    poller.forget();
                }
            }
        }
    }

    /// Keeps those that `stay`.
    fn keep(&mut self, poller: &Poller, region: &CriticalRegion, stay: impl Fn(&mut PollSlot) -> bool) {
        let mut last = 0;
        for (index, slot) in self.slots.iter_mut().take(self.length).enumerate() {
            if let Some(left) = slot.take_if(|slot| !stay(slot)) {
                *slot = left.leave(region);
                if slot.is_none() {
                    poller.forget();
                }
            }
            if slot.is_some() {
                last = index.saturating_add(1);
            }
        }
        self.length = last;
    }
}

unsafe extern "C" fn run(context: *mut c_void) {
    // SAFETY: `start` passes the poller, which lives until this thread is joined.
    if let Some(poller) = unsafe { context.cast::<Poller>().as_ref() } {
        let list = poller.wishes.lock().list.take();
        if let Some(list) = list {
            poller.poll(list);
        }
    }
    thread::exit();
}

impl Poller {
    /// A queue has left the list.
    fn forget(&self) {
        let mut wishes = self.wishes.lock();
        wishes.count = wishes.count.saturating_sub(1);
    }

    fn poll(&self, mut list: PollList) {
        // Of the thread, not of each pass: it takes one after the other.
        let region = CriticalRegion::enter();
        let clock = Clock::new();
        let (mut now, mut round) = (clock.now(), 0_u32);
        let mut began = now;
        loop {
            if list.length == 0 && !self.notified.load(Ordering::Acquire) {
                self.wake.wait();
                now = clock.now();
                began = now;
            }
            let mut end = false;
            // Read first: the exchange is a locked instruction, and hardly ever finds something.
            if self.notified.load(Ordering::Relaxed) && self.notified.swap(false, Ordering::AcqRel) {
                list.adopt(self, now);
                end = self.wishes.lock().end;
            }
            list.keep(self, &region, |slot| !end && slot.look(now, &region));
            if end {
                return;
            }
            round = round.wrapping_add(1);
            if round.is_multiple_of(ROUNDS_A_CLOCK) {
                now = clock.now();
            }
            if now.saturating_sub(began) > SHIFT {
                list.keep(self, &region, |_| false);
                thread::pause();
                now = clock.now();
                began = now;
            }
            hint::spin_loop();
        }
    }
}
