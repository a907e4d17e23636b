//! A spin lock that owns what it guards and raises to DISPATCH_LEVEL while it is held.
//!
//! Rules it keeps: non-recursive; never held across a callback of a consumer, an NDIS indication or completion, or a wait.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use wdk_sys::{
    KIRQL, KSPIN_LOCK,
    ntddk::{KeAcquireSpinLockRaiseToDpc, KeReleaseSpinLock},
};

pub struct SpinLock<T> {
    // KeInitializeSpinLock stores zero, so a zeroed lock is an initialised one.
    lock: UnsafeCell<KSPIN_LOCK>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one holder at a time, so sharing it needs only that the value may be sent.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub const fn new(value: T) -> Self {
        Self { lock: UnsafeCell::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock and raises to DISPATCH_LEVEL. `IRQL <= DISPATCH_LEVEL`.
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        // SAFETY: the lock word is initialised, non-paged (every lock lives in the image or in non-paged pool) and used
        // only through this type.
        let irql = unsafe { KeAcquireSpinLockRaiseToDpc(self.lock.get()) };
        SpinLockGuard { owner: self, irql, not_send: PhantomData }
    }
}

pub struct SpinLockGuard<'a, T> {
    owner: &'a SpinLock<T>,
    irql: KIRQL,
    // Released by the processor that acquired it, at the IRQL it raised.
    not_send: PhantomData<*mut ()>,
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no one else reaches the value.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock and is borrowed mutably.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the lock was acquired by this guard on this processor and `irql` is what the acquisition returned.
        unsafe { KeReleaseSpinLock(self.owner.lock.get(), self.irql) };
    }
}
