//! Atomics for tests: each access is a point, at which the test may have another context act.
//!
//! A step between two accesses cannot be seen by anything else, so that a test that goes through all points of a call has met each of
//! its windows, those without a lock too. What a weaker order of memory would show is loom's.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

std::thread_local! {
    static HOOK: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Has `hook` called before each access of this thread to an atomic, or nothing.
pub fn set_hook(hook: Option<fn()>) {
    HOOK.set(hook);
}

#[inline]
fn point() {
    if let Ok(Some(hook)) = HOOK.try_with(Cell::get) {
        hook();
    }
}

macro_rules! atomics {
    ($($name:ident $(<$of:ident>)? : $value:ty;)*) => {$(
        /// As that of `core`.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name $(<$of>)? (core::sync::atomic::$name $(<$of>)?);

        impl $(<$of>)? $name $(<$of>)? {
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }
        }

        impl $(<$of>)? Deref for $name $(<$of>)? {
            type Target = core::sync::atomic::$name $(<$of>)?;

            #[inline]
            fn deref(&self) -> &Self::Target {
                point();
                &self.0
            }
        }

        impl $(<$of>)? DerefMut for $name $(<$of>)? {
            #[inline]
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }
    )*};
}

atomics! {
    AtomicBool: bool;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
    AtomicPtr<T>: *mut T;
}
