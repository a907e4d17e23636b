//! What becomes of a value whose last pointer has gone.
//!
//! A value that owns pointers to others, which own pointers in turn, would be dropped with all of them on whatever stack and
//! under whatever lock its last pointer goes. A type decides by [`Dispose`] that this happens elsewhere: its hook gets [`Last`],
//! which owns the block, and puts it on a [`List`](crate::List). Dropping what comes off the list drops one value; the values that
//! it kept alive are put on the list by their own hooks.
//!
//! Rule: a block that a `Last` owns has no pointer, so none can be made, and its link is free.

use alloc::alloc::dealloc;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::erased::{View, set_table, table};
use crate::list::Linked;
use crate::shared::{Block, Counted, Head, Raw};

/// What a type does when the last [`Shared`](crate::Shared) or [`Erased`](crate::Erased) pointer to one of its values goes.
pub trait Dispose: Sized {
    /// Runs where the last pointer is dropped: under any lock that is held there. Unless a type says otherwise, the value is
    /// dropped at once.
    #[inline]
    fn dispose(last: Last<Self>) {
        drop(last);
    }
}

/// A value whose last pointer has gone, and its memory: dropping this drops and frees it.
pub struct Last<T> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<Block<T>>,
}

// SAFETY: owning the block is owning its value; the count's fence ordered every former owner's accesses before.
unsafe impl<T: Send> Send for Last<T> {}

impl<T> Last<T> {
    /// # Safety
    /// `block` is initialised, its count has reached zero by the caller's doing, and the caller gives it up.
    pub(crate) unsafe fn own(block: NonNull<Block<T>>) -> Self {
        Self { block, _owns: PhantomData }
    }
}

impl<T> Deref for Last<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this owns the block, whose value is there until the drop.
        unsafe { &self.block.as_ref().value }
    }
}

impl<T> Drop for Last<T> {
    fn drop(&mut self) {
        // SAFETY: this owns the block, and nothing points to it.
        unsafe { self.block.drop_in_place() };
        // SAFETY: allocated in `Reserved::try_new` with this layout.
        unsafe { dealloc(self.block.as_ptr().cast(), Layout::new::<Block<T>>()) };
    }
}

/// [`Last`] of a type that is not known where it is kept.
#[repr(transparent)]
pub struct ErasedLast<V: ?Sized + 'static> {
    head: NonNull<Head>,
    _view: PhantomData<V>,
}

// SAFETY: made from a `Last<T>` with `T: View`, which is `Send`.
unsafe impl<V: ?Sized> Send for ErasedLast<V> {}

impl<V: ?Sized> ErasedLast<V> {
    /// To put it on a list. Its link is free: a list that has it would own a pointer.
    pub fn link(self) -> Linked<Self> {
        Linked::of_owned(self)
    }
}

impl<T: View> From<Last<T>> for ErasedLast<T::As> {
    fn from(last: Last<T>) -> Self {
        let head = last.block.cast::<Head>();
        core::mem::forget(last);
        // SAFETY: the block is owned.
        set_table::<T>(unsafe { head.as_ref() });
        Self { head, _view: PhantomData }
    }
}

impl<V: ?Sized> Drop for ErasedLast<V> {
    fn drop(&mut self) {
        // SAFETY: the block is owned.
        let head = unsafe { self.head.as_ref() };
        // SAFETY: this was made from a `Last<T>` only, by code that has stored the table of `T`, whose view is `V`.
        let table = unsafe { table::<V>(head) };
        // SAFETY: the table is that of the block's type, and this gives the block up.
        unsafe { (table.free)(self.head) };
    }
}

// SAFETY: the head is the block's own, and only a pointer of this type is taken back, so its table is known.
unsafe impl<V: ?Sized> Counted for ErasedLast<V> {
    fn into_head(self) -> Raw {
        let head = self.head;
        core::mem::forget(self);
        Raw(head)
    }

    unsafe fn from_head(raw: Raw) -> Self {
        Self { head: raw.0, _view: PhantomData }
    }

    fn as_head(&self) -> Raw {
        Raw(self.head)
    }
}

#[cfg(test)]
mod plain {
    //! What the tests of the cells point to.

    use super::Dispose;
    use crate::sync::{AtomicBool, AtomicUsize};
    use crate::{DoubleBuffer, SlotTable};

    impl Dispose for i32 {}
    impl Dispose for AtomicBool {}
    impl Dispose for AtomicUsize {}
    impl<A, B> Dispose for (A, B) {}
    impl<T> Dispose for SlotTable<T> {}
    impl<T> Dispose for DoubleBuffer<T> {}
    #[cfg(loom)]
    impl<T> Dispose for loom::sync::Mutex<T> {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::{Cell, RefCell};
    use std::vec::Vec;

    use super::{Dispose, ErasedLast, Last};
    use crate::{Erased, List, Shared, View};

    std::thread_local! {
        /// Where the links of a chain go, while the test wants them kept.
        static KEPT: RefCell<Option<List<ErasedLast<dyn Named>>>> = const { RefCell::new(None) };
        static DROPPED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
        /// Links being dropped now, and the most there were at a time.
        static NESTED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    trait Named {
        fn name(&self) -> u32;
    }

    /// Owns the next one.
    struct Link {
        name: u32,
        _next: Option<Erased<dyn Named>>,
        _in: Entered,
    }

    /// The last field of a link: its drop ends that of the link.
    struct Entered;

    impl Drop for Link {
        fn drop(&mut self) {
            DROPPED.with_borrow_mut(|dropped| dropped.push(self.name));
            let (now, most) = NESTED.get();
            NESTED.set((now + 1, most.max(now + 1)));
        }
    }

    impl Drop for Entered {
        fn drop(&mut self) {
            let (now, most) = NESTED.get();
            NESTED.set((now - 1, most));
        }
    }

    impl Dispose for Link {
        fn dispose(last: Last<Self>) {
            assert!(last.name > 0, "the value is there");
            KEPT.with_borrow_mut(|kept| match kept {
                Some(kept) => drop(kept.push(ErasedLast::from(last).link())),
                None => drop(last),
            });
        }
    }

    impl Named for Shared<Link> {
        fn name(&self) -> u32 {
            self.name
        }
    }

    impl View for Link {
        type As = dyn Named;

        fn view(object: &Shared<Self>) -> &Self::As {
            object
        }
    }

    /// A chain of links; the first has the highest number.
    fn chain(length: u32) -> Shared<Link> {
        let link = |name, next| Shared::try_new(Link { name, _next: next, _in: Entered }).unwrap();
        (2..=length).fold(link(1, None), |next, name| link(name, Some(next.into())))
    }

    fn dispose_one() -> bool {
        let last = KEPT.with_borrow_mut(|kept| kept.as_mut().unwrap().pop());
        last.is_some()
    }

    #[test]
    fn a_chain_is_dropped_one_link_at_a_time_however_its_links_are_pointed_to() {
        KEPT.set(Some(List::new()));
        let first = chain(4);
        let (second, erased) = (first.clone(), Erased::of(&first));
        assert_eq!(erased.name(), 4);
        drop((first, erased));
        assert!(!dispose_one(), "a pointer is left");
        drop(second);
        for left in (0..4).rev() {
            assert!(dispose_one());
            assert_eq!(DROPPED.with_borrow(Vec::len), 4 - left);
        }
        assert!(!dispose_one());
        assert_eq!((DROPPED.take(), NESTED.get()), (Vec::from([4, 3, 2, 1]), (0, 1)));
    }

    #[test]
    fn a_dropped_list_frees_what_is_on_it() {
        KEPT.set(Some(List::new()));
        drop(chain(1));
        assert!(DROPPED.with_borrow(Vec::is_empty));
        drop(KEPT.take());
        assert_eq!(DROPPED.take(), [1]);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::{Dispose, ErasedLast, Last};
    use crate::sync::UnsafeCell;
    use crate::{Erased, List, Shared, View};

    trait Content {
        fn read(&self);
    }

    /// What the last owner leaves and how often it was dropped.
    struct Pass {
        left: Mutex<List<ErasedLast<dyn Content>>>,
        dropped: Mutex<u32>,
    }

    /// Read by every owner, written by the pass that drops it.
    struct Object {
        pass: Arc<Pass>,
        content: UnsafeCell<u32>,
        _inner: Option<Shared<Object>>,
    }

    // SAFETY: the model checks exactly this: that the reads are over when the pass writes.
    unsafe impl Sync for Object {}
    // SAFETY: as above.
    unsafe impl Send for Object {}

    impl Drop for Object {
        fn drop(&mut self) {
            // SAFETY: as above.
            self.content.with_mut(|content| unsafe { *content = 0 });
            *self.pass.dropped.lock().unwrap() += 1;
        }
    }

    impl Dispose for Object {
        fn dispose(last: Last<Self>) {
            let pass = last.pass.clone();
            pass.left.lock().unwrap().push(ErasedLast::from(last).link());
        }
    }

    impl Content for Shared<Object> {
        fn read(&self) {
            // SAFETY: as above.
            self.content.with(|content| unsafe { assert_eq!(*content, 7) });
        }
    }

    impl View for Object {
        type As = dyn Content;

        fn view(object: &Shared<Self>) -> &Self::As {
            object
        }
    }

    fn dispose_all(pass: &Pass) {
        loop {
            let last = pass.left.lock().unwrap().pop();
            if last.is_none() {
                return;
            }
        }
    }

    /// Two owners go at once, by either kind of pointer; a pass runs meanwhile, and one after.
    #[test]
    fn what_the_last_of_two_owners_leaves_is_dropped_once_after_their_last_use() {
        loom::model(|| {
            let pass = Arc::new(Pass { left: Mutex::new(List::new()), dropped: Mutex::new(0) });
            let object = |inner| Object { pass: pass.clone(), content: UnsafeCell::new(7), _inner: inner };
            let inner = Shared::try_new(object(None)).unwrap();
            let first = Shared::try_new(object(Some(inner))).unwrap();
            let second = Erased::of(&first);
            let other = thread::spawn(move || second.read());
            first.read();
            drop(first);
            dispose_all(&pass);
            other.join().unwrap();
            dispose_all(&pass);
            assert_eq!(*pass.dropped.lock().unwrap(), 2);
        });
    }
}
