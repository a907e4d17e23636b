//! Dispatcher objects and waits, and the clock that both wait time-outs and timers follow.
//!
//! One lock guards all waits; it is never held while image code runs. Time is the machine's, plus what was skipped: when
//! verifying, the clock jumps to the next deadline as soon as every kernel thread waits and no processor has anything to run,
//! and creeps while something runs, so that a thread which a busy machine keeps waiting is not late. A thread counts as running
//! from before it starts until it has ended or waits *here*; a test that blocks elsewhere uses [`while_blocked`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::bugcheck::{BugCheck, bugcheck, bugcheck_with_stack};
use crate::image::stack_trace;
use crate::irql;
use crate::machine_clock;
use crate::memory::address_space::{self, Zone};
use crate::memory::{paged, pool};
use crate::mutex;
use crate::nt::{DISPATCHER_HEADER, KEVENT, KMUTANT, LIST_ENTRY, object_type};
use crate::priority;
use crate::processor;
use crate::schedule;
use crate::status::{NtStatus, STATUS_CANCELLED, STATUS_SUCCESS, STATUS_TIMEOUT};
use crate::thread::{self, Thread};
use crate::timer;

/// Time in units of 100 ns since boot.
pub type Time = u64;

/// Units of [`Time`] in a second.
pub const UNITS_PER_SECOND: u64 = 10_000_000;

/// What the kernel's time is ahead of the machine's.
pub(crate) static SKIPPED: AtomicU64 = AtomicU64::new(0);

/// How many times slower than the machine's clock the host's goes while something runs, when verifying.
const CREEP: u64 = 16;

/// The time between attempts of [`rest`].
const NEXT_LOOK: Time = UNITS_PER_SECOND / 1000;

/// How long [`rest`] waits for what never comes to rest, in real time.
const REST_LIMIT: Duration = Duration::from_mins(1);

/// How long the clock's thread sleeps at most: it looks for hangs.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How long everything may wait without anything to wake it before the host calls it a hang; in ms, 0 is for ever.
static HANG_LIMIT: AtomicU64 = AtomicU64::new(20_000);

/// For how many such times of the kernel's clock nothing but periodic timers may fire before the host calls that a hang: a DPC may
/// count for a while.
const TICKING_LIMITS: u64 = 30;

/// What happens at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// A wait of the thread with this identifier ends.
    Wait(u64),
    /// A [`rest`] of this thread that began then ends if nothing runs.
    Rest(u64, Instant),
    /// The KTIMER at this address expires.
    Timer(usize),
    /// A miniport's sends are checked.
    Sends(usize),
    /// The stack with this number goes on.
    Stack(usize),
}

struct ThreadWait {
    thread: &'static Thread,
    objects: Vec<usize>,
    all: bool,
    deadline: Option<(Time, u64)>,
    result: Option<NtStatus>,
}

#[derive(Default)]
pub(crate) struct DispatcherState {
    waits: Vec<ThreadWait>,
    running: usize,
    /// Threads that block outside of the kernel: they may come back at any time.
    outside: usize,
    pub(crate) deadlines: BTreeMap<(Time, u64), Deadline>,
    sequence: u64,
    /// Waits of threads that have begun or ended, but for those of the host's workers.
    moves: u64,
    stopping: bool,
}

static STATE: Mutex<Option<DispatcherState>> = Mutex::new(None);
static CLOCK: Condvar = Condvar::new();

pub(crate) struct LockedDispatcher(MutexGuard<'static, Option<DispatcherState>>);

impl std::ops::Deref for LockedDispatcher {
    type Target = DispatcherState;

    fn deref(&self) -> &DispatcherState {
        match &*self.0 {
            Some(state) => state,
            None => unreachable!("made when it was locked"),
        }
    }
}

impl std::ops::DerefMut for LockedDispatcher {
    fn deref_mut(&mut self) -> &mut DispatcherState {
        self.0.get_or_insert_with(DispatcherState::default)
    }
}

pub(crate) fn lock() -> LockedDispatcher {
    let mut guard = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    guard.get_or_insert_with(DispatcherState::default);
    LockedDispatcher(guard)
}

pub(crate) fn initialise(hang_limit: Option<Duration>) {
    machine_clock::start(!crate::kernel::is_verifying() && !schedule::is_on());
    HANG_LIMIT.store(hang_limit.map_or(0, |limit| limit.as_millis() as u64), Ordering::Relaxed);
}

/// Interrupt time: 100 ns units since boot, including what was skipped.
pub fn now() -> Time {
    if schedule::is_on() {
        return schedule::time() + SKIPPED.load(Ordering::Relaxed);
    }
    machine_clock::now() / creep() + SKIPPED.load(Ordering::Relaxed)
}

/// How much of the time was skipped because every thread waited: the same however slow the machine is.
pub fn skipped() -> Time {
    SKIPPED.load(Ordering::Relaxed)
}

/// Busy waiting: as long by the machine's clock as by the host's, however slow that is.
pub(crate) fn stall(time: Duration) {
    if schedule::is_on() {
        SKIPPED.fetch_add(time.as_nanos() as u64 / 100, Ordering::Relaxed);
        return;
    }
    let (machine, host) = (Instant::now(), now());
    while machine.elapsed() < time {
        std::hint::spin_loop();
    }
    let (ours, asked) = (now() - host, time.as_nanos() as u64 / 100);
    SKIPPED.fetch_add(asked.saturating_sub(ours), Ordering::Relaxed);
}

fn creep() -> u64 {
    if crate::kernel::is_verifying() { CREEP } else { 1 }
}

/// Starts the thread that serves deadlines.
pub(crate) fn start_clock() {
    thread_starting();
    let place = schedule::announce();
    let started = std::thread::Builder::new().name("clock".to_owned()).stack_size(1 << 20).spawn(move || {
        place.take_as_clock();
        let _attachment = thread::attach("clock");
        processor_thread_started(Thread::current());
        if schedule::is_on() {
            scheduled_clock_loop();
        } else {
            clock_loop();
        }
    });
    assert!(started.is_ok(), "cannot start the clock");
}

pub(crate) fn stop_clock() {
    lock().stopping = true;
    CLOCK.notify_all();
}

fn clock_loop() {
    let mut state = lock();
    let mut blocked_since: Option<Instant> = None;
    let mut ticking = None;
    while !state.stopping {
        let next = state.deadlines.keys().next().copied();
        let time = now();
        if let Some((due, _)) = next
            && due <= time
        {
            blocked_since = None;
            let deadline = state.deadlines.pop_first().map(|(_, deadline)| deadline);
            if let Some(deadline) = deadline {
                state = serve(state, deadline);
            }
            continue;
        }
        let idle = state.is_idle();
        if idle && let Some((due, _)) = next {
            check_ticking(&state, &mut ticking);
            if crate::kernel::is_verifying() {
                SKIPPED.fetch_add(due - time, Ordering::Relaxed);
                continue;
            }
        } else if idle {
            check_hang(&state, &mut blocked_since);
        } else {
            blocked_since = None;
        }
        let until = next.map_or(LONGEST_SLEEP, |(due, _)| real_time_of(due - time).min(LONGEST_SLEEP));
        let until =
            if state.running == 0 { until.min(Duration::from_millis(if idle { 250 } else { 1 })) } else { until };
        state =
            LockedDispatcher(CLOCK.wait_timeout(state.0, until).unwrap_or_else(std::sync::PoisonError::into_inner).0);
    }
}

/// The clock of a schedule: time goes on with every point, and jumps when no thread is ready.
fn scheduled_clock_loop() {
    let mut blocked_since: Option<Instant> = None;
    let mut ticking = None;
    loop {
        let mut state = lock();
        if state.stopping {
            return;
        }
        let next = state.deadlines.keys().next().map(|(due, _)| *due);
        schedule::first_deadline(next);
        let time = now();
        match next {
            Some(due) if due <= time => {
                if let Some((_, deadline)) = state.deadlines.pop_first() {
                    drop(serve(state, deadline));
                }
                continue;
            }
            Some(due) if state.is_idle() && schedule::only_the_clock() => {
                check_ticking(&state, &mut ticking);
                SKIPPED.fetch_add(due - time, Ordering::Relaxed);
                continue;
            }
            _ => drop(state),
        }
        if schedule::clock_rests(Thread::current()) {
            blocked_since = None;
        } else {
            let state = lock();
            if state.is_idle() && state.deadlines.is_empty() {
                check_hang(&state, &mut blocked_since);
            }
        }
    }
}

/// How long the machine's clock takes for so much time in which something runs.
fn real_time_of(time: Time) -> Duration {
    Duration::from_nanos(time.saturating_mul(100 * creep()))
}

/// Ends a wait or fires a timer. The lock is given back and taken again around the DPC of a timer.
fn serve(mut state: LockedDispatcher, deadline: Deadline) -> LockedDispatcher {
    match deadline {
        Deadline::Wait(identifier) => {
            if let Some(index) = state.wait_of(identifier) {
                finish(&mut state, index, STATUS_TIMEOUT);
            }
            state
        }
        Deadline::Rest(identifier, since) => {
            match state.wait_of(identifier) {
                Some(index) if state.is_idle() => finish(&mut state, index, STATUS_TIMEOUT),
                Some(index) if since.elapsed() > REST_LIMIT => finish(&mut state, index, STATUS_CANCELLED),
                Some(index) => {
                    let key = state.add_deadline(now() + NEXT_LOOK, deadline);
                    state.waits[index].deadline = Some(key);
                }
                None => {}
            }
            state
        }
        Deadline::Timer(address) => {
            let deferred = timer::expire(&mut state, address);
            drop(state);
            if let Some(deferred) = deferred {
                timer::queue_deferred_call(deferred);
            }
            lock()
        }
        Deadline::Sends(miniport) => {
            drop(state);
            crate::ndis::data_path::check_send_deadline(miniport);
            lock()
        }
        Deadline::Stack(number) => {
            drop(state);
            crate::stack::deadline(number);
            lock()
        }
    }
}

fn check_hang(state: &DispatcherState, blocked_since: &mut Option<Instant>) {
    let limit = HANG_LIMIT.load(Ordering::Relaxed);
    let since = blocked_since.get_or_insert_with(Instant::now);
    if limit == 0 || !state.is_waited() || since.elapsed() < Duration::from_millis(limit) {
        return;
    }
    hangs(state, format!("every kernel thread waits and nothing will wake one ({limit} ms passed):"));
}

/// As [`check_hang`], where something is always pending: timers that fire again and again, and no thread moves.
fn check_ticking(state: &DispatcherState, since: &mut Option<(Time, u64)>) {
    let limit = HANG_LIMIT.load(Ordering::Relaxed) * (UNITS_PER_SECOND / 1000) * TICKING_LIMITS;
    let periodic = |deadline: &Deadline| matches!(deadline, Deadline::Timer(timer) if timer::is_periodic(*timer));
    if limit == 0 || !state.is_waited() || !state.deadlines.values().all(periodic) {
        *since = None;
        return;
    }
    let now = now();
    let (began, _) = *since.insert(since.filter(|(_, moves)| *moves == state.moves).unwrap_or((now, state.moves)));
    if now - began < limit {
        return;
    }
    let seconds = (now - began) / UNITS_PER_SECOND;
    let mut rule =
        format!("every kernel thread waits, and in {seconds} s of its time only periodic timers have fired:");
    for deadline in state.deadlines.values() {
        if let Deadline::Timer(timer) = deadline {
            let _ = write!(rule, "\n***   {}, {}", describe_object(*timer), timer::describe_period(*timer));
        }
    }
    hangs(state, rule);
}

/// The report: what it comes from, then the threads and their waits, then the objects of NDK.
fn hangs(state: &DispatcherState, mut rule: String) -> ! {
    let pending = crate::ndk::mediator::Pending::look();
    pending.describe_answer(&mut rule);
    for wait in state.waits.iter().filter(|wait| !wait.thread.serves_others()) {
        describe_wait(&mut rule, wait);
    }
    pending.describe_objects(&mut rule);
    crate::wsk::describe(&mut rule);
    bugcheck_with_stack(BugCheck::UNMOUNTABLE_HANG, [0, 0, 0, 0], &rule, &[]);
}

/// A thread that waits: in what, for what, and from where in its images.
fn describe_wait(text: &mut String, wait: &ThreadWait) {
    let thread = wait.thread;
    let name = thread.name.try_borrow().map(|name| name.clone()).unwrap_or_default();
    let place = thread.last_export().map_or("the host", |export| export.name);
    let kind = if wait.all && wait.objects.len() > 1 { "all of " } else { "" };
    let objects: Vec<String> = wait.objects.iter().map(|object| describe_object(*object)).collect();
    let identifier = thread.identifier();
    let _ = write!(text, "\n***   thread {identifier} \"{name}\" waits in {place} for {kind}{}", objects.join("; "));
    for active in thread.contexts.try_borrow().iter().flat_map(|contexts| contexts.iter().rev()) {
        let _ = write!(text, "\n***     inside {}", active.name);
    }
    for frame in stack_trace::of_thread(thread) {
        let _ = write!(text, "\n***       {frame}");
    }
}

/// A dispatcher object that is waited for: its kind, its state, and its owner.
fn describe_object(address: usize) -> String {
    let header = address as *mut DISPATCHER_HEADER;
    // SAFETY: an object that a thread waits for stays until the wait ends.
    let (kind, state) =
        unsafe { ((*header).Type.load(Ordering::Relaxed) & 0x7F, (*header).SignalState.load(Ordering::Relaxed)) };
    let kind = match kind {
        object_type::NOTIFICATION_EVENT => "a notification event",
        object_type::SYNCHRONIZATION_EVENT => "a synchronization event",
        object_type::MUTANT => "a mutex",
        object_type::SEMAPHORE => "a semaphore",
        object_type::THREAD => "the end of a thread",
        object_type::NOTIFICATION_TIMER | object_type::SYNCHRONIZATION_TIMER => "a timer",
        _ => "an object",
    };
    let owner = match address_space::zone_of(address) {
        Some(Zone::Pool) => pool::whereabouts(address).unwrap_or_else(|| "in the kernel's pool".to_owned()),
        Some(Zone::Images) => crate::image::containing(address).map_or_else(
            || "in an image".to_owned(),
            |image| format!("a variable of {} (+{:#x})", image.name, address - image.base),
        ),
        Some(Zone::Stacks) => stack_owner(address),
        Some(_) => "in mapped memory".to_owned(),
        None => "the host's own".to_owned(),
    };
    format!("{kind} at {address:#x} (state {state}), {owner}")
}

fn stack_owner(address: usize) -> String {
    let owns = |thread: &&'static Thread| {
        thread
            .stack
            .try_borrow()
            .is_ok_and(|stack| stack.as_ref().is_some_and(|stack| stack.range().contains(&(address as u64))))
    };
    let owner = thread::all().into_iter().find(owns);
    owner.map_or_else(
        || "on a kernel stack".to_owned(),
        |thread| format!("on the stack of thread {}", thread.identifier()),
    )
}

impl DispatcherState {
    /// A thread waits that has something of its own to do, and none is outside of the kernel.
    fn is_waited(&self) -> bool {
        self.outside == 0 && self.waits.iter().any(|wait| !wait.thread.serves_others())
    }

    /// Every kernel thread waits and no processor has anything to run.
    fn is_idle(&self) -> bool {
        self.running == 0 && !processor::any_active()
    }

    /// The place of a thread's wait.
    fn wait_of(&self, identifier: u64) -> Option<usize> {
        self.waits.iter().position(|wait| wait.thread.identifier() == identifier)
    }

    /// Adds a deadline and wakes the clock when it is the first.
    pub(crate) fn add_deadline(&mut self, due: Time, deadline: Deadline) -> (Time, u64) {
        self.sequence += 1;
        let key = (due, self.sequence);
        self.deadlines.insert(key, deadline);
        schedule::deadline_added(due);
        if self.deadlines.keys().next() == Some(&key) {
            CLOCK.notify_all();
        }
        key
    }

    fn set_running(&mut self, more: bool) {
        if more {
            self.running += 1;
        } else {
            self.running = self.running.saturating_sub(1);
            if self.running == 0 {
                wake_idle_clock();
            }
        }
    }

    /// Gives a signalled object to its waiters.
    ///
    /// # Safety
    ///
    /// `object` is a dispatcher object.
    pub(crate) unsafe fn signal(&mut self, object: usize) {
        let mut index = 0;
        while index < self.waits.len() {
            let waits_for_it = self.waits[index].objects.contains(&object);
            // SAFETY: objects that are waited for are live.
            let satisfied = waits_for_it.then(|| unsafe { self.try_satisfy(index) }).flatten();
            match satisfied {
                Some(status) => finish(self, index, status),
                None => index += 1,
            }
        }
    }

    unsafe fn try_satisfy(&self, index: usize) -> Option<NtStatus> {
        let wait = &self.waits[index];
        // SAFETY: the caller's contract.
        unsafe { consume(&wait.objects, wait.all, wait.thread) }
    }
}

/// Nothing runs any more: virtual time may jump. Real time does not, so in fast mode the clock sleeps until its next deadline, and
/// sees a hang a second later.
fn wake_idle_clock() {
    if crate::kernel::is_verifying() || schedule::is_on() {
        CLOCK.notify_all();
    }
}

/// Values of a thread's futex word: it waits, its wait is over, it sleeps.
const WAITS: u32 = 0;
const WOKEN: u32 = 1;
const SLEEPS: u32 = 2;

/// Ends the wait at `index` and lets its thread run.
fn finish(state: &mut DispatcherState, index: usize, status: NtStatus) {
    let mut wait = state.waits.swap_remove(index);
    if let Some(key) = wait.deadline.take() {
        state.deadlines.remove(&key);
    }
    wait.result = Some(status);
    state.moves += u64::from(!wait.thread.serves_others());
    state.set_running(true);
    wait.thread.runnable.store(true, Ordering::Relaxed);
    priority::ready_changed(wait.thread, true);
    wait.thread.wait_result.store(status, Ordering::Relaxed);
    let before = wait.thread.wake.swap(WOKEN, Ordering::AcqRel);
    if schedule::is_on() {
        schedule::wake(wait.thread);
    } else if before == SLEEPS {
        processor::futex_wake(&wait.thread.wake, 1);
    }
}

/// Takes what a wait is for, if it is there: the index of the object, or 0 for all.
///
/// # Safety
///
/// All are dispatcher objects.
unsafe fn consume(objects: &[usize], all: bool, thread: &'static Thread) -> Option<NtStatus> {
    // SAFETY: the caller's contract.
    let ready = |object: &usize| unsafe { is_signalled(*object as *mut DISPATCHER_HEADER, thread) };
    if all {
        if !objects.iter().all(ready) {
            return None;
        }
        // SAFETY: the caller's contract.
        objects.iter().for_each(|object| unsafe { take(*object as *mut DISPATCHER_HEADER, thread) });
        return Some(STATUS_SUCCESS);
    }
    let index = objects.iter().position(ready)?;
    // SAFETY: the caller's contract.
    unsafe { take(objects[index] as *mut DISPATCHER_HEADER, thread) };
    Some(index as NtStatus)
}

unsafe fn is_signalled(header: *mut DISPATCHER_HEADER, thread: &Thread) -> bool {
    // SAFETY: the caller's contract: a dispatcher object.
    unsafe {
        let kind = (*header).Type.load(Ordering::Relaxed) & 0x7F;
        if kind == object_type::MUTANT {
            let owner = (*header.cast::<KMUTANT>()).OwnerThread;
            return (*header).SignalState.load(Ordering::Relaxed) > 0 || owner == thread.object();
        }
        (*header).SignalState.load(Ordering::Relaxed) > 0
    }
}

/// What a satisfied wait does to the object.
unsafe fn take(header: *mut DISPATCHER_HEADER, thread: &Thread) {
    // SAFETY: the caller's contract: a dispatcher object.
    unsafe {
        let state = &(*header).SignalState;
        match (*header).Type.load(Ordering::Relaxed) & 0x7F {
            object_type::SYNCHRONIZATION_EVENT | object_type::SYNCHRONIZATION_TIMER => {
                state.store(0, Ordering::Relaxed);
            }
            object_type::SEMAPHORE => {
                state.fetch_sub(1, Ordering::Relaxed);
            }
            object_type::MUTANT => {
                state.fetch_sub(1, Ordering::Relaxed);
                (*header.cast::<KMUTANT>()).OwnerThread = thread.object();
            }
            _ => {}
        }
    }
}

/// Fills a dispatcher header: type, size in words, state, empty wait list.
///
/// # Safety
///
/// `header` is writable.
pub(crate) unsafe fn initialise_header(header: *mut DISPATCHER_HEADER, kind: u8, bytes: usize, state: i32) {
    // SAFETY: the caller's contract.
    unsafe {
        (*header).Type.store(kind, Ordering::Relaxed);
        (*header).Signalling.store(0, Ordering::Relaxed);
        (*header).Size.store((bytes / 4) as u8, Ordering::Relaxed);
        (*header).Reserved1.store(0, Ordering::Relaxed);
        (*header).SignalState.store(state, Ordering::Relaxed);
        let list = &raw mut (*header).WaitListHead;
        (*list).Flink = list;
        (*list).Blink = list;
    }
}

/// Objects that threads synchronise with lie in memory that is always there.
pub(crate) fn check_place(object: usize, function: &str) {
    if crate::kernel::is_verifying() && paged::is_pageable(object) {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0xE1, object as u64, 0, 0],
            format!("{function} is given a synchronization object in pageable memory, at {object:#x}"),
        );
    }
}

/// What a function that initialises an object checks: its place, and that nothing uses what is there.
pub(crate) fn check_initialisation(object: usize, function: &str) {
    check_place(object, function);
    mutex::check_not_held(object, function);
    if crate::kernel::is_verifying() && waited_within(object, object + 1).is_some() {
        mutex::initialised_again(object, format!("{function} initialises {object:#x}, which a thread waits for"));
    }
}

/// The wait of a thread whose stack may be paged out meanwhile, for what lies on a kernel stack.
pub(crate) fn check_mode(objects: &[usize], mode: u8, function: &str) {
    const USER_MODE: u8 = 1;
    if mode != USER_MODE {
        return;
    }
    if let Some(object) = objects.iter().find(|object| address_space::zone_of(**object) == Some(Zone::Stacks)) {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x123, *object as u64, 0, 0],
            format!(
                "{function} waits in UserMode for {object:#x}, which lies on a kernel stack that may be paged out meanwhile"
            ),
        );
    }
}

/// The checks of a dispatcher object that an image hands over.
unsafe fn check_object(header: *mut DISPATCHER_HEADER, what: &str) {
    // SAFETY: a wrong address faults and is reported.
    let kind = unsafe { (*header).Type.load(Ordering::Relaxed) } & 0x7F;
    let known = matches!(
        kind,
        object_type::NOTIFICATION_EVENT
            | object_type::SYNCHRONIZATION_EVENT
            | object_type::MUTANT
            | object_type::SEMAPHORE
            | object_type::THREAD
            | object_type::NOTIFICATION_TIMER
            | object_type::SYNCHRONIZATION_TIMER
    );
    // An initialised header's list points somewhere; a zeroed one was never initialised.
    // SAFETY: as above.
    let initialised = unsafe { !(*header).WaitListHead.Flink.is_null() };
    if !known || !initialised {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x100B, header as u64, u64::from(kind), 0],
            format!("{what} is given something that is no initialised dispatcher object"),
        );
    }
}

/// A relative or absolute Windows time-out as a deadline.
pub(crate) fn deadline_of(interval: i64) -> Time {
    if interval <= 0 {
        now().saturating_add(interval.unsigned_abs())
    } else {
        timer::interrupt_time_of_system_time(interval)
    }
}

/// Waits for objects. `timeout` is `None` for ever, `Some(0)` only checks.
///
/// # Safety
///
/// All are initialised dispatcher objects that stay valid.
pub(crate) unsafe fn wait(what: &str, objects: &[usize], all: bool, timeout: Option<i64>) -> NtStatus {
    // SAFETY: the caller's contract.
    unsafe { wait_with(what, objects, all, timeout, Deadline::Wait) }
}

/// As [`wait`]; `ending` makes the deadline of this thread.
///
/// # Safety
///
/// As [`wait`].
unsafe fn wait_with(
    what: &str,
    objects: &[usize],
    all: bool,
    timeout: Option<i64>,
    ending: fn(u64) -> Deadline,
) -> NtStatus {
    let thread = Thread::current();
    let level = thread.irql();
    if level >= irql::DISPATCH && timeout != Some(0) {
        waited_at_dispatch(thread, what);
    }
    // SAFETY: the caller's contract.
    objects.iter().for_each(|object| unsafe { check_object(*object as *mut DISPATCHER_HEADER, what) });
    // SAFETY: objects that were checked just now; those of others may be gone when the wait is over.
    let mutexes = unsafe { mutex::among(objects) };
    if timeout.is_none() && (all || objects.len() == 1) {
        for (_, mutex) in &mutexes {
            mutex::acquiring(thread, *mutex);
        }
    }
    let mut state = lock();
    // SAFETY: the caller's contract.
    if let Some(status) = unsafe { consume(objects, all, thread) } {
        drop(state);
        record_mutexes(thread, &mutexes, all, status);
        return status;
    }
    if timeout == Some(0) {
        return STATUS_TIMEOUT;
    }
    let identifier = thread.identifier();
    let deadline = timeout.map(|interval| state.add_deadline(deadline_of(interval), ending(identifier)));
    thread.wake.store(WAITS, Ordering::Relaxed);
    thread.runnable.store(false, Ordering::Relaxed);
    thread.waits.fetch_add(1, Ordering::Relaxed);
    priority::ready_changed(thread, false);
    state.moves += u64::from(!thread.serves_others());
    state.waits.push(ThreadWait { thread, objects: objects.to_vec(), all, deadline, result: None });
    state.set_running(false);
    drop(state);
    let status = block(thread);
    record_mutexes(thread, &mutexes, all, status);
    status
}

/// Records the mutexes, by their index in the wait, that it has given to its thread.
fn record_mutexes(thread: &Thread, mutexes: &[(usize, usize)], all: bool, status: NtStatus) {
    let Ok(satisfied) = usize::try_from(status) else { return };
    let got = mutexes.iter().filter(|(index, _)| status < STATUS_TIMEOUT && (all || *index == satisfied));
    for (_, mutex) in got {
        mutex::acquired(thread, *mutex, mutex::MutexKind::Mutex);
    }
}

#[cold]
fn waited_at_dispatch(thread: &Thread, what: &str) -> ! {
    let code = if processor::in_deferred_call(thread) {
        BugCheck::ATTEMPTED_SWITCH_FROM_DPC
    } else {
        BugCheck::IRQL_NOT_LESS_OR_EQUAL
    };
    let held = thread.spin_locks_held.load(Ordering::Relaxed);
    let holding = if held == 0 { String::new() } else { format!(" with {held} spin lock(s) held") };
    let inside = thread.running_callback().map_or_else(String::new, |name| format!(" inside the callback {name}"));
    bugcheck(
        code,
        [thread.object() as u64, u64::from(thread.irql()), u64::from(held), 0],
        format!("{what} would wait at {}{holding}{inside}; a wait needs <= APC_LEVEL", irql::name(thread.irql())),
    )
}

fn block(thread: &'static Thread) -> NtStatus {
    if schedule::is_on() {
        schedule::wait_while(thread, &thread.wake, WAITS, "a wait");
        return thread.wait_result.load(Ordering::Relaxed);
    }
    if !crate::kernel::is_verifying() {
        // A futex round trip costs tens of microseconds; what is about to come is worth a short spin.
        let began = crate::thunk::time_stamp_counter();
        while thread.wake.load(Ordering::Acquire) == WAITS
            && crate::thunk::time_stamp_counter().wrapping_sub(began) < 60_000
        {
            std::hint::spin_loop();
        }
    }
    // Fails when the wait is over.
    let _ = thread.wake.compare_exchange(WAITS, SLEEPS, Ordering::AcqRel, Ordering::Acquire);
    while thread.wake.load(Ordering::Acquire) == SLEEPS {
        processor::futex_wait(&thread.wake, SLEEPS);
    }
    schedule::wait_is_over(thread);
    thread.wait_result.load(Ordering::Relaxed)
}

/// Lets the current thread sleep.
pub fn delay(interval: i64) {
    let thread = Thread::current();
    if thread.irql() >= irql::DISPATCH {
        waited_at_dispatch(thread, "KeDelayExecutionThread");
    }
    let event = Event::notification();
    event.wait_interval(Some(if interval == 0 { -1 } else { interval }));
}

/// As [`delay`], until the first tick of the clock behind the interval when verifying.
pub(crate) fn delay_to_a_tick(interval: i64) {
    if interval >= 0 || !crate::kernel::is_verifying() {
        return delay(interval);
    }
    let now = now();
    let due = (now + interval.unsigned_abs()).next_multiple_of(u64::from(timer::INCREMENT));
    delay(-i64::try_from(due - now).unwrap_or(i64::MAX));
}

/// Lets the current thread sleep for an interval at least, and then until nothing runs: every other kernel thread waits and no
/// DPC is queued. False when that did not come about within a minute of real time.
#[must_use]
pub fn rest(interval: i64) -> bool {
    let event = Event::notification();
    let ending = |identifier| Deadline::Rest(identifier, Instant::now());
    // SAFETY: the host's own event, which outlives the wait.
    let status = unsafe { wait_with("the host", &[event.address() as usize], false, Some(interval), ending) };
    status == STATUS_TIMEOUT
}

/// Signals an event and returns the state before.
///
/// # Safety
///
/// `event` is an initialised event.
pub(crate) unsafe fn set_event(event: *mut KEVENT) -> i32 {
    // SAFETY: the caller's contract.
    unsafe {
        check_object(event.cast(), "KeSetEvent");
        let mut state = lock();
        let before = (*event).Header.SignalState.swap(1, Ordering::Relaxed);
        if before == 0 {
            state.signal(event as usize);
        }
        before
    }
}

/// Sets the state of a counting object and wakes waiters.
///
/// # Safety
///
/// `header` is an initialised dispatcher object.
pub(crate) unsafe fn change(header: *mut DISPATCHER_HEADER, change: impl FnOnce(i32) -> i32) -> i32 {
    // SAFETY: the caller's contract.
    unsafe {
        let mut state = lock();
        let before = (*header).SignalState.load(Ordering::Relaxed);
        (*header).SignalState.store(change(before), Ordering::Relaxed);
        state.signal(header as usize);
        before
    }
}

/// Whether a thread waits for an object inside an address range; its address.
pub(crate) fn waited_within(start: usize, end: usize) -> Option<usize> {
    lock().waits.iter().flat_map(|wait| wait.objects.iter().copied()).find(|object| (start..end).contains(object))
}

/// An event of the host's own. Waiting for it lets virtual time go on.
#[derive(Debug)]
pub struct Event {
    event: Box<KEVENT>,
}

// SAFETY: the event is only touched under the dispatcher's lock and through atomics.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Stays signalled until it is reset.
    pub fn notification() -> Self {
        Self::new(object_type::NOTIFICATION_EVENT)
    }

    /// Wakes one waiter and resets itself.
    pub fn synchronization() -> Self {
        Self::new(object_type::SYNCHRONIZATION_EVENT)
    }

    /// A semaphore: each wait that is satisfied takes one.
    pub fn counting(count: i32) -> Self {
        let event = Self::new(object_type::SEMAPHORE);
        event.event.Header.SignalState.store(count, Ordering::Relaxed);
        event
    }

    /// Adds to what [`Self::counting`] counts; the count before, or `None` when it would be more than `most`.
    pub fn add(&self, count: i32, most: i32) -> Option<i32> {
        let mut fits = false;
        // SAFETY: the host's own object, initialised.
        let before = unsafe {
            change(self.address().cast(), |before| {
                fits = before.checked_add(count).is_some_and(|sum| sum <= most);
                if fits { before + count } else { before }
            })
        };
        fits.then_some(before)
    }

    fn new(kind: u8) -> Self {
        let null = LIST_ENTRY { Flink: std::ptr::null_mut(), Blink: std::ptr::null_mut() };
        let mut event = Box::new(KEVENT {
            Header: DISPATCHER_HEADER {
                Type: 0.into(),
                Signalling: 0.into(),
                Size: 0.into(),
                Reserved1: 0.into(),
                SignalState: 0.into(),
                WaitListHead: null,
            },
        });
        // SAFETY: the host's own event.
        unsafe { initialise_header(&raw mut event.Header, kind, size_of::<KEVENT>(), 0) };
        Self { event }
    }

    /// For a wait for several objects.
    pub(crate) fn address(&self) -> *mut KEVENT {
        (&raw const *self.event).cast_mut()
    }

    pub fn set(&self) {
        // SAFETY: the host's own event, initialised.
        unsafe { set_event(self.address()) };
    }

    pub fn reset(&self) {
        let _state = lock();
        self.event.Header.SignalState.store(0, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.event.Header.SignalState.load(Ordering::Relaxed) != 0
    }

    /// Waits; false when the time ran out. Must be below DISPATCH.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.wait_interval(timeout.map(|timeout| -((timeout.as_nanos() / 100).max(1) as i64))) == STATUS_SUCCESS
    }

    fn wait_interval(&self, interval: Option<i64>) -> NtStatus {
        // SAFETY: the host's own event, which outlives the wait.
        unsafe { wait("the host", &[self.address() as usize], false, interval) }
    }
}

/// Runs something that blocks outside of the kernel (a join, a channel), so that virtual time does not stand still for
/// this thread meanwhile.
pub fn while_blocked<T>(body: impl FnOnce() -> T) -> T {
    lock().outside += 1;
    set_blocked(true);
    let result = if schedule::is_on() { schedule::outside(body) } else { body() };
    set_blocked(false);
    lock().outside -= 1;
    result
}

/// The current thread does not count as running while it is blocked.
pub(crate) fn set_blocked(blocked: bool) {
    lock().set_running(!blocked);
}

/// A thread is being made; it counts as running from now on.
pub(crate) fn thread_starting() {
    lock().set_running(true);
}

/// Takes back the count of [`thread_starting`], after [`thread_attached`] counted the thread itself.
pub(crate) fn thread_started() {
    lock().set_running(false);
}

pub(crate) fn thread_attached(_thread: &'static Thread) {
    lock().set_running(true);
}

pub(crate) fn thread_detaching(thread: &'static Thread) {
    let mut state = lock();
    state.set_running(false);
    thread.runnable.store(false, Ordering::Relaxed);
    priority::ready_changed(thread, false);
}

/// Whether every other thread of the kernel waits, and no other processor has anything to run. The caller counts as running.
pub(crate) fn all_others_wait(thread: &Thread) -> bool {
    // A thread that is interrupted in the host may hold the lock itself.
    let waits = STATE.try_lock().is_ok_and(|state| state.as_ref().is_none_or(|state| state.running <= 1));
    waits && !processor::any_active_besides(thread)
}

/// The threads of processors and the clock do not count: they run only when there is something to run.
pub(crate) fn processor_thread_started(thread: &'static Thread) {
    priority::set_highest(thread);
    let mut state = lock();
    state.set_running(false);
    state.set_running(false);
}

/// A processor has emptied its queue.
pub(crate) fn processor_became_idle() {
    if (crate::kernel::is_verifying() || schedule::is_on()) && lock().running == 0 {
        CLOCK.notify_all();
    }
}
