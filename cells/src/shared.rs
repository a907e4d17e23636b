//! A counted pointer whose creation can fail.
//!
//! This is `Arc` for a kernel: [`Shared::try_new`] reports a failed allocation instead of ending the system, and the block
//! carries the link that [`List`](crate::List) uses, so that putting an object on a list needs no memory. There are no weak
//! pointers; the close of an object breaks the circles it is part of.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use crate::last::{Dispose, Last};
use crate::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

/// The allocator had nothing left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("out of memory")
    }
}

impl core::error::Error for NoMemory {}

impl From<alloc::collections::TryReserveError> for NoMemory {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self
    }
}

/// What a block begins with, whatever its value: the count, the list link, and what is known of the value's type.
pub(crate) struct Head {
    strong: AtomicUsize,
    /// True while the block is on a list or about to be put there.
    pub(crate) linked: AtomicBool,
    /// The next block of the list; read and written only by the holder of the list.
    pub(crate) next: AtomicPtr<Head>,
    /// The [`Table`](crate::erased) of the value's type, once there is an [`Erased`](crate::Erased) pointer to it.
    pub(crate) table: AtomicPtr<()>,
}

impl Head {
    /// One more count. The caller has one already.
    #[inline]
    pub(crate) fn retain(&self) {
        // Relaxed: the new pointer is made from one that exists, which orders everything needed. The count cannot wrap: each
        // pointer takes eight bytes of memory somewhere, and nothing in this project forgets one.
        self.strong.fetch_add(1, Ordering::Relaxed);
    }

    /// One count less; true when it was the last. Then everything that the other owners did is visible, and the block is the
    /// caller's.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        if self.strong.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        fence(Ordering::Acquire);
        true
    }
}

/// One allocation: the head and the value.
#[repr(C)]
pub(crate) struct Block<T> {
    head: Head,
    pub(crate) value: T,
}

/// A counted pointer to a `T`; when the last one goes, `T` decides what becomes of it.
#[repr(transparent)]
pub struct Shared<T: Dispose> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<Block<T>>,
}

// SAFETY: a `Shared` gives out `&T` from any thread and drops `T` on the thread that drops the last pointer: `T: Send + Sync`
// allows both.
unsafe impl<T: Dispose + Send + Sync> Send for Shared<T> {}
// SAFETY: as for `Send`; the count is atomic.
unsafe impl<T: Dispose + Send + Sync> Sync for Shared<T> {}

/// Memory for a value that is yet to be made. A caller that allocates it first has only the value's parts to undo afterwards,
/// and makes a large value on a frame below which nothing is dropped.
pub struct Reserved<T> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<T>,
}

// SAFETY: owning the memory is owning what will be in it.
unsafe impl<T: Send> Send for Reserved<T> {}

impl<T> Reserved<T> {
    pub fn try_new() -> Result<Self, NoMemory> {
        // SAFETY: the layout is not empty, a `Block` has a count.
        let raw = unsafe { alloc(Layout::new::<Block<T>>()) }.cast::<Block<T>>();
        let block = NonNull::new(raw).ok_or(NoMemory)?;
        Ok(Self { block, _owns: PhantomData })
    }

    /// Moves the value in.
    #[inline]
    pub fn fill(self, value: T) -> Shared<T>
    where
        T: Dispose,
    {
        let block = self.block;
        core::mem::forget(self);
        let head = Head {
            strong: AtomicUsize::new(1),
            linked: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
            table: AtomicPtr::new(ptr::null_mut()),
        };
        let content = Block { head, value };
        // SAFETY: allocated for exactly this layout, and no other pointer to it exists.
        unsafe { block.write(content) };
        Shared { block, _owns: PhantomData }
    }
}

impl<T> Drop for Reserved<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `try_new` with this layout; there is no value in it.
        unsafe { dealloc(self.block.as_ptr().cast(), Layout::new::<Block<T>>()) };
    }
}

impl<T: Dispose> Shared<T> {
    /// Allocates a block and moves the value in. The value is dropped when there is no memory.
    pub fn try_new(value: T) -> Result<Self, NoMemory> {
        Ok(Reserved::try_new()?.fill(value))
    }

    /// Whether both point to the same object.
    pub fn is(&self, other: &Self) -> bool {
        self.block == other.block
    }

    /// A number that differs from that of every other living object of this type.
    pub fn address(&self) -> usize {
        self.block.as_ptr() as usize
    }

    /// The number of pointers now; for tests and listings only.
    pub fn count(&self) -> usize {
        self.block().head.strong.load(Ordering::Relaxed)
    }

    /// Whether this is the only pointer. If so, everything the others did is visible.
    pub fn is_unique(&self) -> bool {
        self.block().head.strong.load(Ordering::Acquire) == 1
    }

    pub(crate) fn block(&self) -> &Block<T> {
        // SAFETY: the count of this pointer keeps the block allocated and initialised.
        unsafe { self.block.as_ref() }
    }

    /// The head of the block; the pointer may be used for the whole block.
    pub(crate) fn head(&self) -> NonNull<Head> {
        self.block.cast()
    }
}

/// A pointer with a count of its own to a block: [`Shared`], or [`Erased`](crate::Erased).
///
/// # Safety
/// `into_head` gives up the pointer without giving up its count, `from_head` takes it back; both are about the same block.
pub unsafe trait Counted: Sized {
    #[doc(hidden)]
    fn into_head(self) -> Raw;

    /// # Safety
    /// `raw` came from `into_head` of this very type and has not been taken back since.
    #[doc(hidden)]
    unsafe fn from_head(raw: Raw) -> Self;

    #[doc(hidden)]
    fn as_head(&self) -> Raw;
}

/// The head of a block that is kept alive elsewhere.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Raw(pub(crate) NonNull<Head>);

// SAFETY: a block begins with its head, and the pointer is the one that the block was allocated with.
unsafe impl<T: Dispose> Counted for Shared<T> {
    fn into_head(self) -> Raw {
        let head = self.head();
        core::mem::forget(self);
        Raw(head)
    }

    unsafe fn from_head(raw: Raw) -> Self {
        Self { block: raw.0.cast(), _owns: PhantomData }
    }

    fn as_head(&self) -> Raw {
        Raw(self.head())
    }
}

impl<T: Dispose> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.block().value
    }
}

impl<T: Dispose> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.block().head.retain();
        Self { block: self.block, _owns: PhantomData }
    }
}

impl<T: Dispose> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        if self.block().head.release() {
            // SAFETY: the last count was this pointer's, which is not used again.
            T::dispose(unsafe { Last::own(self.block) });
        }
    }
}

impl<T: Dispose + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::Cell;

    use super::{Reserved, Shared};
    use crate::Dispose;

    struct Counted<'a>(&'a Cell<u32>);

    impl Dispose for Counted<'_> {}

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn reserved_memory_takes_a_value_or_goes_without_one() {
        let drops = Cell::new(0);
        drop(Reserved::<Counted<'_>>::try_new().unwrap());
        assert_eq!(drops.get(), 0);
        let filled = Reserved::try_new().unwrap().fill(Counted(&drops));
        assert_eq!((filled.count(), filled.0.get()), (1, 0));
        drop(filled);
        assert_eq!(drops.get(), 1);
    }

    #[test]
    fn value_is_dropped_once_with_the_last_pointer() {
        let drops = Cell::new(0);
        let first = Shared::try_new(Counted(&drops)).unwrap();
        let second = first.clone();
        assert!(first.is(&second));
        assert!(!first.is(&Shared::try_new(Counted(&drops)).unwrap()));
        assert_eq!(drops.replace(0), 1);
        assert_eq!(first.count(), 2);
        assert!(!first.is_unique());
        drop(first);
        assert!(second.is_unique());
        assert_eq!(drops.get(), 0);
        drop(second);
        assert_eq!(drops.get(), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::Shared;
    use crate::Dispose;
    use crate::sync::UnsafeCell;

    /// Read by every owner, written when the last one goes.
    struct Content(UnsafeCell<u32>);

    impl Dispose for Content {}

    // SAFETY: the model checks exactly this: that the reads are over when the last owner writes.
    unsafe impl Sync for Content {}

    impl Content {
        fn read(&self) {
            // SAFETY: as above.
            self.0.with(|content| unsafe { assert_eq!(*content, 7) });
        }
    }

    impl Drop for Content {
        fn drop(&mut self) {
            // SAFETY: as above.
            self.0.with_mut(|content| unsafe { *content = 0 });
        }
    }

    #[test]
    fn two_owners_dropping_at_once_free_it_once_after_their_last_use() {
        loom::model(|| {
            let first = Shared::try_new(Content(UnsafeCell::new(7))).unwrap();
            let second = first.clone();
            let other = thread::spawn(move || second.read());
            first.read();
            drop(first);
            other.join().unwrap();
        });
    }
}
