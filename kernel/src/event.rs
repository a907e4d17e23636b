//! Kernel events and the mutual exclusion built on one, for code at PASSIVE_LEVEL.
//!
//! A KEVENT links its waiters through itself and must never move, so it lives in a pool block of its own.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, _MODE, _WAIT_TYPE, KEVENT, KPROCESSOR_MODE, LARGE_INTEGER, PVOID, STATUS_TIMEOUT,
    ntddk::{
        KeClearEvent, KeEnterCriticalRegion, KeInitializeEvent, KeLeaveCriticalRegion, KeSetEvent,
        KeWaitForMultipleObjects, KeWaitForSingleObject,
    },
};

use crate::{
    irql,
    pool::{NoMemory, PoolBox, Tag},
};

/// Events that a thread can wait for at a time (THREAD_WAIT_OBJECTS).
const WAIT_MAX: usize = 3;

pub struct Event {
    event: PoolBox<UnsafeCell<KEVENT>>,
}

// SAFETY: the dispatcher serialises every operation on a KEVENT.
unsafe impl Send for Event {}
// SAFETY: as above; all methods take `&self` and go through the dispatcher.
unsafe impl Sync for Event {}

impl Event {
    /// An event that stays signalled until it is cleared.
    pub fn try_notification(tag: Tag) -> Result<Self, NoMemory> {
        Self::try_new(tag, _EVENT_TYPE::NotificationEvent, false)
    }

    /// An event that releases one waiter and clears itself.
    pub fn try_synchronization(tag: Tag, signalled: bool) -> Result<Self, NoMemory> {
        Self::try_new(tag, _EVENT_TYPE::SynchronizationEvent, signalled)
    }

    fn try_new(tag: Tag, kind: _EVENT_TYPE::Type, signalled: bool) -> Result<Self, NoMemory> {
        let event = PoolBox::try_new(tag, UnsafeCell::new(KEVENT::default()))?;
        // SAFETY: the block is non-paged, large enough, and no thread waits on it yet.
        unsafe { KeInitializeEvent(event.get(), kind, u8::from(signalled)) };
        Ok(Self { event })
    }

    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn set(&self) {
        // SAFETY: the event is initialised and Wait is FALSE, so the IRQL is unchanged on return.
        let _previous = unsafe { KeSetEvent(self.event.get(), 0, 0) };
    }

    /// No longer signalled. `IRQL <= DISPATCH_LEVEL`.
    pub fn clear(&self) {
        // SAFETY: the event is initialised.
        unsafe { KeClearEvent(self.event.get()) };
    }

    /// Waits for this event or one of some others, [`WAIT_MAX`] in all, for so many nanoseconds if a limit is given. Which one
    /// it was (this one is 0); none when the time is over. PASSIVE_LEVEL.
    pub fn wait_with(&self, others: &[&Self], limit: Option<u64>) -> Option<usize> {
        let mut objects: [PVOID; WAIT_MAX] = [ptr::null_mut(); WAIT_MAX];
        let mut count = 0;
        for (object, event) in objects.iter_mut().zip([self].iter().chain(others)) {
            *object = event.event.get().cast();
            count += 1;
        }
        // Negative means relative, in units of 100 ns; at least one, so that it is a wait.
        let units = limit.map_or(0, |limit| i64::try_from(limit / 100).unwrap_or(i64::MAX).max(1));
        let mut due = LARGE_INTEGER { QuadPart: -units };
        let due = if limit.is_some() { &raw mut due } else { ptr::null_mut() };
        // SAFETY: the events are initialised, no more than the thread has wait blocks for, and alive for the call; the callers
        // run at PASSIVE_LEVEL; kernel mode, not alertable.
        let status = unsafe {
            KeWaitForMultipleObjects(
                count,
                objects.as_mut_ptr(),
                _WAIT_TYPE::WaitAny,
                _KWAIT_REASON::Executive,
                _MODE::KernelMode as KPROCESSOR_MODE,
                0,
                due,
                ptr::null_mut(),
            )
        };
        // STATUS_WAIT_0 is 0.
        usize::try_from(status).ok().filter(|&index| index < count as usize)
    }

    /// Waits without limit. PASSIVE_LEVEL.
    pub fn wait(&self) {
        // SAFETY: the event is initialised; the callers run at PASSIVE_LEVEL; kernel mode, not alertable, so the wait
        // ends only when the event is signalled.
        let _status = unsafe {
            KeWaitForSingleObject(
                self.event.get().cast(),
                _KWAIT_REASON::Executive,
                _MODE::KernelMode as KPROCESSOR_MODE,
                0,
                ptr::null_mut(),
            )
        };
    }

    /// Waits at most `milliseconds`; true when the event was signalled. PASSIVE_LEVEL.
    pub fn wait_at_most(&self, milliseconds: u32) -> bool {
        // Negative means relative, in units of 100 ns.
        let mut due = LARGE_INTEGER { QuadPart: -(i64::from(milliseconds) * 10_000) };
        // SAFETY: as `wait`; the time-out lives on this stack for the whole call.
        let status = unsafe {
            KeWaitForSingleObject(
                self.event.get().cast(),
                _KWAIT_REASON::Executive,
                _MODE::KernelMode as KPROCESSOR_MODE,
                0,
                &raw mut due,
            )
        };
        status != STATUS_TIMEOUT
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// There may be contexts that wait.
const WAITED_FOR: u32 = 2;
/// A context that does not wait has left its work to the holder.
const ASKED: u32 = 4;

/// The calling thread's critical region: it cannot be suspended until this is dropped, on the same thread. For a thread that takes mutexes
/// all the time; it may wait meanwhile.
pub struct CriticalRegion {
    /// Of this thread only.
    _thread: PhantomData<*mut ()>,
}

impl CriticalRegion {
    /// `IRQL <= APC_LEVEL`.
    pub fn enter() -> Self {
        // SAFETY: paired with KeLeaveCriticalRegion in the drop, on the same thread.
        unsafe { KeEnterCriticalRegion() };
        Self { _thread: PhantomData }
    }

    /// None at DISPATCH_LEVEL, where nothing suspends a thread. `IRQL <= DISPATCH_LEVEL`.
    pub fn enter_below_dispatch() -> Option<Self> {
        (!irql::at_dispatch()).then(Self::enter)
    }
}

impl Drop for CriticalRegion {
    fn drop(&mut self) {
        // SAFETY: paired with KeEnterCriticalRegion in `enter`.
        unsafe { KeLeaveCriticalRegion() };
    }
}

/// Mutual exclusion at PASSIVE_LEVEL that leaves the IRQL at PASSIVE_LEVEL (a FAST_MUTEX would raise to APC_LEVEL, where
/// NdisRegisterDeviceEx and the address table functions must not be called). The event is touched only where there is a wait.
pub struct Mutex<T> {
    state: AtomicU32,
    released: Event,
    value: UnsafeCell<T>,
}

// SAFETY: the state admits one holder at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub fn try_new(tag: Tag, value: T) -> Result<Self, NoMemory> {
        let released = Event::try_synchronization(tag, false)?;
        Ok(Self { state: AtomicU32::new(FREE), released, value: UnsafeCell::new(value) })
    }

    /// PASSIVE_LEVEL. Inside a critical region, so that the holder cannot be suspended.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let region = CriticalRegion::enter();
        self.acquire();
        MutexGuard { owner: self, region: Some(region) }
    }

    /// For a thread that is in a critical region and does not wait: a holder that there is finds the work when it releases
    /// ([`MutexGuard::release`]). What the caller wrote before is visible to it then. `IRQL <= APC_LEVEL`.
    pub fn lock_or_ask<'a>(&'a self, _region: &'a CriticalRegion) -> Option<MutexGuard<'a, T>> {
        let asked = |state| Some(if state == FREE { HELD } else { state | ASKED });
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, asked);
        // Lazily: a guard that is dropped releases.
        (before == Ok(FREE)).then(|| MutexGuard { owner: self, region: None })
    }

    /// Whether work was left to the holder.
    fn release(&self) -> bool {
        let before = self.state.swap(FREE, Ordering::AcqRel);
        if before & WAITED_FOR != 0 {
            self.released.set();
        }
        before & ASKED != 0
    }

    #[inline]
    fn acquire(&self) {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Who has waited cannot know of others that do.
            while self.state.fetch_or(HELD | WAITED_FOR, Ordering::AcqRel) & HELD != 0 {
                self.released.wait();
            }
        }
    }
}

pub struct MutexGuard<'a, T> {
    owner: &'a Mutex<T>,
    /// Left behind the release.
    region: Option<CriticalRegion>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the mutex.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the mutex and is borrowed mutably.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> MutexGuard<'_, T> {
    /// Releases the mutex; whether a context that does not wait has left work meanwhile. It is the caller's then.
    #[must_use]
    pub fn release(mut self) -> bool {
        let region = self.region.take();
        let asked = self.owner.release();
        core::mem::forget(self);
        drop(region);
        asked
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    /// For holders that no work is left to.
    fn drop(&mut self) {
        self.owner.release();
    }
}
