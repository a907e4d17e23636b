//! Counted pointers to objects of several types, seen through one trait.
//!
//! [`Erased<V>`] points to a block of any type that names `V`, a trait object type, as its [`View`]: a list or a table of them
//! holds objects of all these types, and each use goes through a static table of the type. The block keeps the address of that
//! table, so the pointer is one word, as [`Shared`] is.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::last::{Dispose, Last};
use crate::shared::{Counted, Head, Raw, Shared};
use crate::sync::Ordering;

/// How an object is seen where its type is not known. One view a type: the block holds one table.
pub trait View: Dispose + Send + Sync + 'static {
    /// A trait object type.
    type As: ?Sized + 'static;

    fn view(object: &Shared<Self>) -> &Self::As;
}

/// What is known of a type whose view is `V`.
pub(crate) struct Table<V: ?Sized + 'static> {
    /// Safety: the pointer is to a block of the table's type.
    view: unsafe fn(&Erased<V>) -> &V,
    /// The last pointer has gone. Safety: the caller owns the block, which is of the table's type, and gives it up.
    dispose: unsafe fn(NonNull<Head>),
    /// Drops the value and frees the block. Safety: as for `dispose`.
    pub(crate) free: unsafe fn(NonNull<Head>),
}

struct TableOf<T>(PhantomData<T>);

impl<T: View> TableOf<T> {
    const TABLE: &'static Table<T::As> = &Table { view: view::<T>, dispose: dispose::<T>, free: free::<T> };
}

/// Stores the table of the block's type.
pub(crate) fn set_table<T: View>(head: &Head) {
    let table = core::ptr::from_ref(TableOf::<T>::TABLE).cast_mut().cast();
    head.table.store(table, Ordering::Release);
}

/// # Safety
/// `head` is that of a block of a type whose view is `V`, and [`set_table`] has been called for it.
pub(crate) unsafe fn table<V: ?Sized>(head: &Head) -> &'static Table<V> {
    let table = head.table.load(Ordering::Acquire);
    // SAFETY: as the caller says.
    unsafe { &*table.cast::<Table<V>>() }
}

/// # Safety
/// `object` points to a block of a `T`.
unsafe fn view<T: View>(object: &Erased<T::As>) -> &T::As {
    // SAFETY: both pointers are one word, the address of the same block, and own one count of it.
    let object = unsafe { &*core::ptr::from_ref(object).cast::<Shared<T>>() };
    T::view(object)
}

/// # Safety
/// `head` is that of a block of a `T` without pointers, which the caller gives up.
unsafe fn dispose<T: View>(head: NonNull<Head>) {
    // SAFETY: as the caller says.
    T::dispose(unsafe { Last::own(head.cast()) });
}

/// # Safety
/// As for [`dispose`].
unsafe fn free<T: View>(head: NonNull<Head>) {
    // SAFETY: as the caller says.
    drop(unsafe { Last::<T>::own(head.cast()) });
}

/// A counted pointer to an object that is seen as a `V`.
#[repr(transparent)]
pub struct Erased<V: ?Sized + 'static> {
    head: NonNull<Head>,
    _view: PhantomData<V>,
}

// SAFETY: made from a `Shared<T>` with `T: View`, which is `Send` and `Sync`.
unsafe impl<V: ?Sized> Send for Erased<V> {}
// SAFETY: as above.
unsafe impl<V: ?Sized> Sync for Erased<V> {}

impl<V: ?Sized> Erased<V> {
    /// A further pointer to an object.
    pub fn of<T: View<As = V>>(object: &Shared<T>) -> Self {
        object.clone().into()
    }

    fn table(&self) -> &'static Table<V> {
        // SAFETY: the count of this pointer keeps the block alive.
        let head = unsafe { self.head.as_ref() };
        // SAFETY: an `Erased<V>` is made from a `Shared<T>` only, by code that has stored the table of `T`, whose view is `V`.
        unsafe { table(head) }
    }

    /// Whether both point to the same object.
    pub fn is(&self, other: &Self) -> bool {
        self.head == other.head
    }

    /// A number that differs from that of every other living object.
    pub fn address(&self) -> usize {
        self.head.as_ptr() as usize
    }
}

impl<T: View> From<Shared<T>> for Erased<T::As> {
    fn from(object: Shared<T>) -> Self {
        let Raw(head) = object.into_head();
        // SAFETY: the count that was taken over keeps the block alive.
        set_table::<T>(unsafe { head.as_ref() });
        Self { head, _view: PhantomData }
    }
}

impl<V: ?Sized> Deref for Erased<V> {
    type Target = V;

    fn deref(&self) -> &V {
        // SAFETY: the table is that of the block's type.
        unsafe { (self.table().view)(self) }
    }
}

impl<V: ?Sized> Clone for Erased<V> {
    fn clone(&self) -> Self {
        // SAFETY: the count of this pointer keeps the block alive.
        unsafe { self.head.as_ref() }.retain();
        Self { head: self.head, _view: PhantomData }
    }
}

impl<V: ?Sized> Drop for Erased<V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the count of this pointer keeps the block alive.
        let head = unsafe { self.head.as_ref() };
        // Before the count goes, because another owner may free the block then.
        let table = self.table();
        if head.release() {
            // SAFETY: the table is that of the block's type, and the last count was this pointer's.
            unsafe { (table.dispose)(self.head) };
        }
    }
}

impl<V: ?Sized> fmt::Debug for Erased<V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:p}", self.head)
    }
}

// SAFETY: the head is the block's own, and only a pointer of this type is taken back, so its table is known.
unsafe impl<V: ?Sized> Counted for Erased<V> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::string::{String, ToString};
    use std::sync::Arc;

    use super::{Erased, View};
    use crate::{Dispose, List, Shared};

    trait Named {
        fn name(&self) -> String;
    }

    struct Number(u32);
    impl Dispose for Number {}

    struct Text(String, Arc<AtomicU32>);

    impl Dispose for Text {}

    impl Drop for Text {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Named for Shared<Number> {
        fn name(&self) -> String {
            self.0.to_string()
        }
    }

    impl Named for Shared<Text> {
        fn name(&self) -> String {
            self.0.clone()
        }
    }

    impl View for Number {
        type As = dyn Named;
        fn view(object: &Shared<Self>) -> &Self::As {
            object
        }
    }

    impl View for Text {
        type As = dyn Named;
        fn view(object: &Shared<Self>) -> &Self::As {
            object
        }
    }

    #[test]
    fn objects_of_two_types_are_on_one_list_and_each_answers_by_its_own_type() {
        let drops = Arc::new(AtomicU32::new(0));
        let (number, text) = (Shared::try_new(Number(7)).unwrap(), Text("seven".to_string(), drops.clone()));
        let text = Shared::try_new(text).unwrap();
        let mut list = List::<Erased<dyn Named>>::new();
        list.push(Erased::of(&number).link().unwrap());
        list.push(Erased::of(&text).link().unwrap());
        assert!(number.link().is_none() && Erased::of(&text).link().is_none(), "one link, however it is pointed to");
        let names: std::vec::Vec<_> = core::iter::from_fn(|| list.pop()).map(|object| object.name()).collect();
        assert_eq!(names, ["7", "seven"]);
        assert_eq!((number.count(), text.count()), (1, 1));
        drop(text);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_last_pointer_drops_the_value_whatever_its_kind() {
        let drops = Arc::new(AtomicU32::new(0));
        let text = Shared::try_new(Text("last".to_string(), drops.clone())).unwrap();
        let first = Erased::from(text);
        let second = first.clone();
        assert!(first.is(&second));
        assert_eq!(first.address(), second.address());
        drop(first);
        assert_eq!((second.name().as_str(), drops.load(Ordering::Relaxed)), ("last", 0));
        drop(second);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::{Erased, View};
    use crate::sync::UnsafeCell;
    use crate::{Dispose, Shared};

    trait Read {
        fn read(&self);
    }

    /// Read by every owner, written when the last one goes.
    struct Content(UnsafeCell<u32>);

    // SAFETY: the model checks exactly this: that the reads are over when the last owner writes.
    unsafe impl Sync for Content {}

    impl Read for Shared<Content> {
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

    impl Dispose for Content {}

    impl View for Content {
        type As = dyn Read;
        fn view(object: &Shared<Self>) -> &Self::As {
            object
        }
    }

    /// Both make their erased pointer themselves: the table is stored twice, and each finds it through its own.
    #[test]
    fn two_that_erase_at_once_find_the_table_and_free_it_once_after_their_last_use() {
        loom::model(|| {
            let first = Shared::try_new(Content(UnsafeCell::new(7))).unwrap();
            let second = first.clone();
            let other = thread::spawn(move || Erased::from(second).read());
            Erased::from(first).read();
            other.join().unwrap();
        });
    }

    /// A pointer that another thread made is used without knowing the type.
    #[test]
    fn an_erased_pointer_handed_to_another_thread_brings_its_table() {
        loom::model(|| {
            let first = Erased::from(Shared::try_new(Content(UnsafeCell::new(7))).unwrap());
            let second = first.clone();
            let other = thread::spawn(move || second.read());
            drop(first);
            other.join().unwrap();
        });
    }
}
