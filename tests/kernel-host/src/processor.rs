//! Virtual processors. A thread at DISPATCH or above owns its processor, so at most one thread per processor is there; giving
//! the processor up first runs the DPCs queued to it. Each processor also has an operating-system thread of its own that runs
//! its DPCs when no other thread will, and a stack on which its DPCs run.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callout::ContextKind;
use crate::deferred_budget::Running;
use crate::dpc;
use crate::irql::{self, Irql};
use crate::memory::kernel_stack::KernelStack;
use crate::nt::KDPC;
use crate::thread::Thread;

pub const MAXIMUM_PROCESSORS: usize = 64;

/// How often in a row the same thread must have come before a processor becomes its own. Taking that away again costs an
/// interrupt of every processor.
const STREAK_OF_A_FAVOURITE: u32 = 2_000;

/// A processor. Aligned so that two of them share no cache line.
#[repr(align(128))]
pub(crate) struct Processor {
    /// The thread that is at DISPATCH here, or null.
    owner: AtomicPtr<Thread>,
    /// In fast mode: the thread that comes and goes here without touching `owner`, or null. See [`acquire_as_favourite`].
    favourite: AtomicPtr<Thread>,
    /// The last owner, and how often in a row. Touched by the owner only.
    last: AtomicPtr<Thread>,
    streak: AtomicU32,
    waiters: AtomicU32,
    released: AtomicU32,
    pub(crate) queue: DeferredCallQueue,
    stack: OnceLock<KernelStack>,
    own_thread: OnceLock<&'static Thread>,
    /// The futex word of the processor's own thread.
    pub(crate) idle_wake: AtomicU32,
    /// Its own thread sleeps, or is about to: it has to be woken.
    idle_sleeps: AtomicBool,
    /// When the running DPC first called `KeShouldYieldProcessor`, in time stamp ticks; 1 before that, 0 when none runs.
    pub(crate) deferred_call_started: std::sync::atomic::AtomicU64,
    pub(crate) running: Running,
}

/// Where the fast twins find what they look at, see `fast`.
pub(crate) const FAVOURITE_OFFSET: usize = offset_of!(Processor, favourite);
pub(crate) const QUEUE_LENGTH_OFFSET: usize = offset_of!(Processor, queue.length);
pub(crate) const DEFERRED_CALL_OFFSET: usize = offset_of!(Processor, deferred_call_started);

// SAFETY: the stack is made once and its contents are used by the owner only.
unsafe impl Sync for Processor {}

impl Processor {
    const fn new() -> Self {
        Self {
            owner: AtomicPtr::new(ptr::null_mut()),
            favourite: AtomicPtr::new(ptr::null_mut()),
            last: AtomicPtr::new(ptr::null_mut()),
            streak: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            released: AtomicU32::new(0),
            queue: DeferredCallQueue::new(),
            stack: OnceLock::new(),
            own_thread: OnceLock::new(),
            idle_wake: AtomicU32::new(0),
            idle_sleeps: AtomicBool::new(false),
            deferred_call_started: std::sync::atomic::AtomicU64::new(0),
            running: Running::new(),
        }
    }
}

static PROCESSORS: [Processor; MAXIMUM_PROCESSORS] = [const { Processor::new() }; MAXIMUM_PROCESSORS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT_HOME: AtomicUsize = AtomicUsize::new(0);
static STOPPING: AtomicBool = AtomicBool::new(false);
/// Processors may have favourites: fast mode, on a system that has the barrier they need.
static FAVOURITES: AtomicBool = AtomicBool::new(false);

/// How many processors there are.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

pub(crate) fn get(index: usize) -> &'static Processor {
    &PROCESSORS[index % MAXIMUM_PROCESSORS]
}

pub(crate) fn initialise(processors: usize) {
    assert!((1..=MAXIMUM_PROCESSORS).contains(&processors), "1 to {MAXIMUM_PROCESSORS} processors");
    COUNT.store(processors, Ordering::Relaxed);
    for processor in &PROCESSORS[..processors] {
        processor.stack.get_or_init(KernelStack::allocate);
    }
    if !crate::kernel::is_verifying() && !crate::schedule::is_on() {
        FAVOURITES.store(membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED), Ordering::Relaxed);
    }
}

/// Starts the processors' own threads.
pub(crate) fn start() {
    for index in 0..count() {
        crate::dispatcher::thread_starting();
        let place = crate::schedule::announce();
        let started =
            std::thread::Builder::new().name(format!("processor {index}")).stack_size(1 << 20).spawn(move || {
                place.take();
                let _attachment = crate::thread::attach(&format!("processor {index}"));
                let thread = Thread::current();
                thread.set_processor(index);
                thread.affinity.store(1 << index, Ordering::Relaxed);
                get(index).own_thread.get_or_init(|| thread);
                crate::dispatcher::processor_thread_started(thread);
                idle_loop(thread, index);
            });
        assert!(started.is_ok(), "cannot start the thread of processor {index}");
    }
}

pub(crate) fn stop() {
    STOPPING.store(true, Ordering::SeqCst);
    (0..count()).for_each(wake_idle);
}

fn idle_loop(thread: &'static Thread, index: usize) {
    let processor = get(index);
    let spin = if crate::kernel::is_verifying() || crate::schedule::is_on() { 0 } else { 20_000 };
    while !STOPPING.load(Ordering::SeqCst) {
        let word = processor.idle_wake.load(Ordering::SeqCst);
        if processor.queue.length() == 0 {
            let began = crate::thunk::time_stamp_counter();
            while processor.queue.length() == 0 && crate::thunk::time_stamp_counter().wrapping_sub(began) < spin {
                std::hint::spin_loop();
            }
        }
        if processor.queue.length() != 0 {
            acquire(thread);
            thread.set_irql(irql::DISPATCH);
            release(thread, irql::PASSIVE);
            crate::dispatcher::processor_became_idle();
        } else if crate::schedule::is_on() {
            crate::schedule::wait_while(thread, &processor.idle_wake, word, "an idle processor");
        } else {
            // Either a context that has something to do changes the word before, and this does not sleep, or it sees the flag.
            processor.idle_sleeps.store(true, Ordering::SeqCst);
            futex_wait(&processor.idle_wake, word);
            processor.idle_sleeps.store(false, Ordering::SeqCst);
        }
    }
}

/// Wakes the processor's own thread when no other thread is there to run the queue.
pub(crate) fn wake(index: usize) {
    // Either this context sees that the processor is owned, or its owner sees the DPC when it leaves.
    fence(Ordering::SeqCst);
    if get(index).owner.load(Ordering::SeqCst).is_null() {
        wake_idle(index);
    }
}

fn wake_idle(index: usize) {
    let processor = get(index);
    processor.idle_wake.fetch_add(1, Ordering::SeqCst);
    match processor.own_thread.get() {
        Some(thread) if crate::schedule::is_on() => crate::schedule::wake(thread),
        _ if processor.idle_sleeps.load(Ordering::SeqCst) => futex_wake(&processor.idle_wake, 1),
        _ => {}
    }
}

/// Where the next thread is at home.
pub(crate) fn home_of_next_thread() -> usize {
    NEXT_HOME.fetch_add(1, Ordering::Relaxed) % count().max(1)
}

/// Whether any processor has DPCs to run or a thread at DISPATCH.
pub(crate) fn any_active() -> bool {
    PROCESSORS[..count()]
        .iter()
        .any(|processor| processor.queue.length() != 0 || !processor.owner.load(Ordering::SeqCst).is_null())
}

/// As [`any_active`], without the processor on which a thread is at DISPATCH.
pub(crate) fn any_active_besides(thread: &Thread) -> bool {
    PROCESSORS[..count()].iter().any(|processor| {
        let owner = processor.owner.load(Ordering::SeqCst).cast_const();
        if owner.is_null() { processor.queue.length() != 0 } else { !ptr::eq(owner, thread) }
    })
}

/// Takes the thread's processor, or another that its affinity allows.
#[inline]
pub(crate) fn acquire(thread: &'static Thread) {
    if !acquire_as_favourite(thread) && !try_acquire(thread, thread.processor()) {
        acquire_contended(thread);
    }
}

/// Two atomic exchanges for every rise to DISPATCH would cost more than what most drivers do there. So in fast mode a thread
/// that keeps coming to the same processor becomes its favourite: it only raises a flag of its own and checks whether it still
/// is the favourite. Every other thread owns the processor the ordinary way first, then takes the favour away, makes every
/// processor of the machine pass a barrier, and waits until the flag is down. The barrier makes one of the two see the other,
/// at no cost for the favourite.
#[inline]
fn acquire_as_favourite(thread: &'static Thread) -> bool {
    let favourite = &get(thread.processor()).favourite;
    if !ptr::eq(favourite.load(Ordering::Relaxed), thread) {
        return false;
    }
    thread.at_favourite.store(true, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    if ptr::eq(favourite.load(Ordering::Acquire), thread) {
        return true;
    }
    thread.at_favourite.store(false, Ordering::Release);
    false
}

#[inline]
fn try_acquire(thread: &'static Thread, index: usize) -> bool {
    let processor = get(index);
    let mine = processor
        .owner
        .compare_exchange(ptr::null_mut(), ptr::from_ref(thread).cast_mut(), Ordering::SeqCst, Ordering::Relaxed)
        .is_ok();
    if mine && !processor.favourite.load(Ordering::Relaxed).is_null() {
        end_favour(processor);
    }
    mine
}

/// Takes the favour away and waits until the favourite is not there. The caller owns the processor.
#[cold]
#[inline(never)]
extern "win64" fn end_favour(processor: &Processor) {
    let favourite = processor.favourite.swap(ptr::null_mut(), Ordering::SeqCst);
    processor.streak.store(0, Ordering::Relaxed);
    assert!(membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED), "the barrier was there at boot");
    // SAFETY: blocks of threads are never freed.
    let Some(favourite) = (unsafe { favourite.as_ref() }) else { return };
    let mut rounds = 0_u32;
    while favourite.at_favourite.load(Ordering::Acquire) {
        std::hint::spin_loop();
        rounds += 1;
        if rounds.is_multiple_of(1_024) {
            std::thread::yield_now();
        }
    }
}

/// Makes the thread the processor's favourite when it has earned it. The caller owns the processor and is about to leave.
#[inline]
fn consider_favour(thread: &'static Thread, processor: &Processor) {
    if !FAVOURITES.load(Ordering::Relaxed) {
        return;
    }
    if !ptr::eq(processor.last.load(Ordering::Relaxed), thread) {
        processor.last.store(ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
        processor.streak.store(0, Ordering::Relaxed);
        return;
    }
    let streak = processor.streak.load(Ordering::Relaxed) + 1;
    processor.streak.store(streak, Ordering::Relaxed);
    if streak >= STREAK_OF_A_FAVOURITE && processor.waiters.load(Ordering::Relaxed) == 0 {
        processor.favourite.store(ptr::from_ref(thread).cast_mut(), Ordering::SeqCst);
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes two integers and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Takes the processor that the thread is at, and no other.
pub(crate) fn acquire_here(thread: &'static Thread) {
    if !acquire_as_favourite(thread) && !try_acquire(thread, thread.processor()) {
        bound_to(thread.processor(), || acquire_contended(thread));
    }
}

/// Runs `work` at this processor and no other, also where another thread is there, as under `KeSetSystemGroupAffinityThread`.
pub fn bound_to<T>(index: usize, work: impl FnOnce() -> T) -> T {
    let thread = Thread::current();
    let (home, affinity) = (thread.processor(), thread.affinity.swap(1 << index, Ordering::Relaxed));
    thread.set_processor(index);
    let result = work();
    thread.set_processor(home);
    thread.affinity.store(affinity, Ordering::Relaxed);
    result
}

#[cold]
#[inline(never)]
extern "win64" fn acquire_contended(thread: &'static Thread) {
    let home = thread.processor();
    let affinity = thread.affinity.load(Ordering::Relaxed);
    for index in 0..count() {
        // Another thread's favourite is left alone: it will be back soon.
        let free = get(index).favourite.load(Ordering::Relaxed).is_null();
        if free && affinity >> index & 1 != 0 && try_acquire(thread, index) {
            thread.set_processor(index);
            return;
        }
    }
    if crate::schedule::is_on() {
        // Any that is free by then, as a scheduler would find one.
        return crate::schedule::until(thread, "the processor is taken", || {
            let free = (0..count()).find(|index| affinity >> index & 1 != 0 && try_acquire(thread, *index))?;
            thread.set_processor(free);
            Some(())
        });
    }
    let processor = get(home);
    for _ in 0..2_000 {
        if processor.owner.load(Ordering::Relaxed).is_null() && try_acquire(thread, home) {
            return;
        }
        std::hint::spin_loop();
    }
    processor.waiters.fetch_add(1, Ordering::SeqCst);
    loop {
        let released = processor.released.load(Ordering::SeqCst);
        if try_acquire(thread, home) {
            break;
        }
        futex_wait(&processor.released, released);
    }
    processor.waiters.fetch_sub(1, Ordering::SeqCst);
}

/// Runs the queued DPCs, gives the processor up and lowers the thread to `level`.
#[inline]
pub(crate) fn release(thread: &'static Thread, level: Irql) {
    let index = thread.processor();
    let processor = get(index);
    if processor.deferred_call_started.load(Ordering::Relaxed) != 0 {
        lowered_inside_deferred_call(thread, level);
    }
    if thread.at_favourite.load(Ordering::Relaxed) {
        while processor.queue.length() != 0 {
            dpc::run_queue(thread, processor);
        }
        // What another thread queues from here on is run by the processor's own thread: queueing to a processor without an
        // owner wakes it.
        thread.at_favourite.store(false, Ordering::Release);
        thread.set_irql(level);
        return;
    }
    loop {
        while processor.queue.length() != 0 {
            dpc::run_queue(thread, processor);
        }
        consider_favour(thread, processor);
        processor.owner.swap(ptr::null_mut(), Ordering::SeqCst);
        if processor.waiters.load(Ordering::SeqCst) != 0 {
            wake_waiter(processor);
        }
        // A DPC queued between the check and the release is run here, unless another owner has come.
        if processor.queue.length() == 0 || !try_acquire(thread, index) {
            break;
        }
    }
    thread.set_irql(level);
}

#[cold]
#[inline(never)]
extern "win64" fn wake_waiter(processor: &Processor) {
    processor.released.fetch_add(1, Ordering::SeqCst);
    futex_wake(&processor.released, 1);
}

#[cold]
#[inline(never)]
extern "win64" fn lowered_inside_deferred_call(thread: &Thread, level: Irql) -> ! {
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [0x1007, u64::from(thread.irql()), u64::from(level), 0],
        format!("a DPC lowers the IRQL to {}; it runs at DISPATCH_LEVEL until it returns", irql::name(level)),
    )
}

/// Goes to each processor once, so that every DPC that was queued or running has ended. At PASSIVE.
pub(crate) fn visit_all(thread: &'static Thread) {
    let level = thread.irql();
    for index in 0..count() {
        bound_to(index, || {
            acquire(thread);
            thread.set_irql(irql::DISPATCH);
            release(thread, level);
        });
    }
}

/// Runs `body` on the processor's own DPC stack.
pub(crate) fn on_deferred_call_stack<T>(thread: &Thread, processor: &Processor, body: impl FnOnce() -> T) -> T {
    let own = thread.kernel_stack.get();
    if let Some(stack) = processor.stack.get() {
        thread.kernel_stack.set(stack.top() as u64);
    }
    let result = body();
    thread.kernel_stack.set(own);
    result
}

/// The DPC stacks of all processors.
pub(crate) fn deferred_call_stack_ranges() -> Vec<Range<u64>> {
    PROCESSORS[..count()].iter().filter_map(|processor| processor.stack.get()).map(KernelStack::range).collect()
}

/// The DPC stack that an address lies in.
pub(crate) fn deferred_call_stack_at(address: usize) -> Option<&'static KernelStack> {
    PROCESSORS[..count()]
        .iter()
        .filter_map(|processor| processor.stack.get())
        .find(|stack| (stack.bottom()..=stack.top()).contains(&address))
}

/// Whether an address is the guard page of a DPC stack.
pub(crate) fn is_deferred_call_stack_guard(address: usize) -> bool {
    PROCESSORS[..count()].iter().filter_map(|processor| processor.stack.get()).any(|stack| stack.is_guard(address))
}

/// Whether the current thread is in a DPC.
pub fn in_deferred_call(thread: &Thread) -> bool {
    thread.is_inside(ContextKind::DeferredProcedureCall)
}

/// A processor's queue of DPCs, linked through the objects themselves. Its own small lock is held for a few
/// instructions only.
pub(crate) struct DeferredCallQueue {
    locked: AtomicBool,
    /// How many are queued. Written under the lock, read by any thread.
    length: AtomicU32,
    ends: UnsafeCell<Ends>,
}

struct Ends {
    head: *mut KDPC,
    tail: *mut KDPC,
}

// SAFETY: the ends are touched under `locked` only.
unsafe impl Sync for DeferredCallQueue {}

impl DeferredCallQueue {
    const fn new() -> Self {
        Self {
            locked: AtomicBool::new(false),
            length: AtomicU32::new(0),
            ends: UnsafeCell::new(Ends { head: ptr::null_mut(), tail: ptr::null_mut() }),
        }
    }

    /// How many DPCs are queued and not yet taken.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.length.load(Ordering::SeqCst)
    }

    /// Changes the length; under the lock.
    fn lengthen(&self, by: i32) {
        self.length.store(self.length.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Release);
    }

    #[inline]
    fn with<T>(&self, body: impl FnOnce(&mut Ends) -> T) -> T {
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        // SAFETY: the flag makes this the only reference.
        let result = body(unsafe { &mut *self.ends.get() });
        self.locked.store(false, Ordering::Release);
        result
    }

    /// Appends, or puts in front (high importance).
    ///
    /// # Safety
    ///
    /// The DPC is initialised, stays valid while queued, and is in no queue.
    pub(crate) unsafe fn push(&self, deferred: *mut KDPC, in_front: bool) {
        // SAFETY: the caller's contract for this DPC, and the same for those queued before.
        self.with(|ends| unsafe {
            self.lengthen(1);
            (*deferred).DpcListEntry = ptr::null_mut();
            if ends.head.is_null() {
                ends.head = deferred;
                ends.tail = deferred;
            } else if in_front {
                (*deferred).DpcListEntry = ends.head;
                ends.head = deferred;
            } else {
                (*ends.tail).DpcListEntry = deferred;
                ends.tail = deferred;
            }
        });
    }

    /// Takes the first, runs `take` on it while the queue is locked (so that a re-queue cannot be lost) and returns
    /// its result.
    pub(crate) fn pop<T>(&self, take: impl FnOnce(*mut KDPC) -> T) -> Option<T> {
        self.with(|ends| {
            let first = ends.head;
            if first.is_null() {
                return None;
            }
            self.lengthen(-1);
            // SAFETY: queued DPCs stay valid.
            ends.head = unsafe { (*first).DpcListEntry };
            if ends.head.is_null() {
                ends.tail = ptr::null_mut();
            }
            Some(take(first))
        })
    }

    /// Takes a certain DPC out; whether it was there.
    pub(crate) fn remove(&self, deferred: *mut KDPC) -> bool {
        // SAFETY: queued DPCs stay valid.
        self.with(|ends| unsafe {
            let mut before: *mut KDPC = ptr::null_mut();
            let mut at = ends.head;
            while !at.is_null() && at != deferred {
                before = at;
                at = (*at).DpcListEntry;
            }
            if at.is_null() {
                return false;
            }
            self.lengthen(-1);
            let next = (*at).DpcListEntry;
            if before.is_null() {
                ends.head = next;
            } else {
                (*before).DpcListEntry = next;
            }
            if ends.tail == at {
                ends.tail = before;
            }
            (*at).DpcData = ptr::null_mut();
            true
        })
    }

    /// The queued DPCs and their routines.
    pub(crate) fn calls(&self) -> Vec<(usize, usize)> {
        self.with(|ends| {
            let mut found = Vec::new();
            let mut at = ends.head;
            while !at.is_null() {
                // SAFETY: queued DPCs stay valid.
                let (routine, next) = unsafe { ((*at).DeferredRoutine as usize, (*at).DpcListEntry) };
                found.push((at as usize, routine));
                at = next;
            }
            found
        })
    }

    /// The addresses of the queued DPCs.
    pub(crate) fn addresses(&self) -> Vec<usize> {
        self.with(|ends| {
            let mut found = Vec::new();
            let mut at = ends.head;
            while !at.is_null() {
                found.push(at as usize);
                // SAFETY: queued DPCs stay valid.
                at = unsafe { (*at).DpcListEntry };
            }
            found
        })
    }
}

/// Sleeps while the word has this value.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
    // SAFETY: the word is a live 32-bit integer.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            ptr::null::<libc::timespec>(),
        );
    }
}

/// Sleeps while the word has this value, but not longer than this.
pub(crate) fn futex_wait_for(word: &AtomicU32, value: u32, longest: std::time::Duration) {
    let time = libc::timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
    // SAFETY: the word is a live 32-bit integer, and the time is a local.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const time,
        );
    }
}

/// Wakes sleepers on the word.
pub(crate) fn futex_wake(word: &AtomicU32, sleepers: i32) {
    // SAFETY: the word is a live 32-bit integer.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, sleepers);
    }
}
