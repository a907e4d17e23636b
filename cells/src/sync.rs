//! The primitives the cells are made of: those of `core`, or loom's when the model checker runs.
//!
//! Loom treats sequentially consistent accesses as acquire and release and models only the fence, so [`loom_fence`] is a fence
//! there and nothing in the shipped build, where the accesses around it are sequentially consistent themselves.

//!
//! With the feature `points`, in builds with debug assertions, each access to an atomic is a point at which a test may have another
//! context act ([`crate::points`]).

#[cfg(all(not(loom), not(all(feature = "points", debug_assertions))))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(loom))]
pub use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(all(not(loom), feature = "points", debug_assertions))]
pub use crate::points::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use plain::UnsafeCell;

/// Orders the sequentially consistent accesses around it under loom; the shipped build needs no instruction for it.
#[inline]
pub(crate) fn loom_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
mod plain {
    /// `core`'s cell with loom's closure interface, so that one source serves both.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// A pointer for reading; the caller argues that there is no writer meanwhile.
        #[inline]
        pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        /// A pointer for writing; the caller argues that there is no other access meanwhile.
        #[inline]
        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}
