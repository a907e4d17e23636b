//! A first-in first-out list of shared objects, linked through the objects themselves.
//!
//! Run queues are made of such lists. An object is on at most one list, at most once; linking it needs no memory and cannot
//! fail, so work is never lost. The owner of a list puts it behind a lock.
//!
//! Rule: the link flag is cleared, with acquire and release, before [`List::pop`] returns. A context that changes an object and
//! then finds it linked may rely on the popper to see the change.

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use crate::erased::Erased;
use crate::last::Dispose;
use crate::shared::{Counted, Head, Raw, Shared};
use crate::sync::Ordering;

/// The right to put one object on a list; dropping it gives the right back.
pub struct Linked<S: Counted>(Option<S>);

impl<S: Counted> Linked<S> {
    /// The link of an object that only the caller reaches.
    pub(crate) fn of_owned(object: S) -> Self {
        head(&object).linked.store(true, Ordering::Relaxed);
        Self(Some(object))
    }
}

impl<T: Dispose> Shared<T> {
    /// Claims the object's link; `None` when it is on a list already.
    pub fn link(&self) -> Option<Linked<Self>> {
        claim(self)
    }

    /// Whether the object is on a list; for listings and tests, the result may be outdated when it arrives.
    pub fn is_linked(&self) -> bool {
        head(self).linked.load(Ordering::Relaxed)
    }
}

impl<V: ?Sized> Erased<V> {
    /// Claims the object's link; `None` when it is on a list already.
    pub fn link(&self) -> Option<Linked<Self>> {
        claim(self)
    }
}

fn claim<S: Counted + Clone>(object: &S) -> Option<Linked<S>> {
    if head(object).linked.swap(true, Ordering::AcqRel) { None } else { Some(Linked(Some(object.clone()))) }
}

fn head<S: Counted>(object: &S) -> &Head {
    let Raw(head) = object.as_head();
    // SAFETY: the count of the pointer keeps the block alive as long as it is borrowed.
    unsafe { head.as_ref() }
}

impl<S: Counted> Drop for Linked<S> {
    fn drop(&mut self) {
        if let Some(object) = &self.0 {
            head(object).linked.swap(false, Ordering::AcqRel);
        }
    }
}

/// A first-in first-out list; see the module.
pub struct List<S: Counted> {
    head: *mut Head,
    tail: *mut Head,
    _owns: PhantomData<S>,
}

// SAFETY: the list owns counted pointers and nothing else; it moves between threads as they do.
unsafe impl<S: Counted + Send> Send for List<S> {}

impl<S: Counted> List<S> {
    pub const fn new() -> Self {
        Self { head: ptr::null_mut(), tail: ptr::null_mut(), _owns: PhantomData }
    }

    pub const fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends an object and says whether the list was empty.
    pub fn push(&mut self, mut object: Linked<S>) -> bool {
        let Some(object) = object.0.take() else { return false };
        head(&object).next.store(ptr::null_mut(), Ordering::Relaxed);
        let Raw(raw) = object.into_head();
        let was_empty = self.head.is_null();
        match NonNull::new(self.tail) {
            None => self.head = raw.as_ptr(),
            Some(tail) => {
                // SAFETY: blocks on the list are kept alive by the count the list owns; `next` is ours while it is linked.
                unsafe { tail.as_ref() }.next.store(raw.as_ptr(), Ordering::Relaxed);
            }
        }
        self.tail = raw.as_ptr();
        was_empty
    }

    /// Takes the oldest object off the list and frees its link.
    pub fn pop(&mut self) -> Option<S> {
        let object = self.take()?;
        head(&object).linked.swap(false, Ordering::AcqRel);
        Some(object)
    }

    /// Takes the oldest object off the list and keeps its link claimed, to put it on another list.
    pub fn pop_linked(&mut self) -> Option<Linked<S>> {
        self.take().map(|object| Linked(Some(object)))
    }

    fn take(&mut self) -> Option<S> {
        let head = NonNull::new(self.head)?;
        // SAFETY: the list owns a count of its head.
        let next = unsafe { head.as_ref() }.next.load(Ordering::Relaxed);
        self.head = next;
        if next.is_null() {
            self.tail = ptr::null_mut();
        }
        // SAFETY: pushed with `into_head` by a pointer of this type, and taken off the list above, so taken back once.
        Some(unsafe { S::from_head(Raw(head)) })
    }
}

impl<S: Counted> Default for List<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Counted> Drop for List<S> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::List;
    use crate::Shared;

    #[test]
    fn objects_leave_in_the_order_they_came() {
        let mut list = List::new();
        let objects: std::vec::Vec<_> = (0..3).map(|n| Shared::try_new(n).unwrap()).collect();
        let empty: std::vec::Vec<_> = objects.iter().map(|object| list.push(object.link().unwrap())).collect();
        assert_eq!(empty, [true, false, false]);
        let out: std::vec::Vec<_> = core::iter::from_fn(|| list.pop()).map(|object| *object).collect();
        assert_eq!(out, [0, 1, 2]);
        assert!(list.push(objects[1].link().unwrap()));
    }

    #[test]
    fn an_object_moves_to_another_list_without_a_gap_in_between() {
        let (mut from, mut to) = (List::new(), List::new());
        assert!(from.is_empty() && from.pop_linked().is_none());
        let object = Shared::try_new(7).unwrap();
        from.push(object.link().unwrap());
        assert!(!from.is_empty());
        let moving = from.pop_linked().unwrap();
        assert!(from.is_empty() && object.link().is_none());
        to.push(moving);
        assert!(object.link().is_none());
        assert_eq!(*to.pop().unwrap(), 7);
        assert!(object.link().is_some());
    }

    #[test]
    fn a_linked_object_cannot_be_linked_again_until_popped() {
        let mut list = List::new();
        let object = Shared::try_new(7).unwrap();
        list.push(object.link().unwrap());
        assert!(object.link().is_none());
        assert!(object.is_linked());
        drop(list.pop());
        drop(object.link().unwrap());
        assert!(object.link().is_some());
    }

    #[test]
    fn a_dropped_list_lets_go_of_its_objects() {
        let mut list = List::new();
        let object = Shared::try_new(7).unwrap();
        list.push(object.link().unwrap());
        assert_eq!(object.count(), 2);
        drop(list);
        assert_eq!(object.count(), 1);
        assert!(!object.is_linked());
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Mutex;
    use loom::thread;

    use super::List;
    use crate::Shared;
    use crate::sync::{AtomicUsize, Ordering};

    /// A change made before a link attempt is seen by the popper, whether the attempt won or lost.
    #[test]
    fn a_signal_is_never_lost() {
        loom::model(|| {
            let list = Shared::try_new(Mutex::new(List::new())).unwrap();
            let object = Shared::try_new(AtomicUsize::new(0)).unwrap();
            let signal = {
                let (list, object) = (list.clone(), object.clone());
                thread::spawn(move || {
                    object.fetch_add(1, Ordering::Relaxed);
                    if let Some(linked) = object.link() {
                        list.lock().unwrap().push(linked);
                    }
                })
            };
            object.fetch_add(1, Ordering::Relaxed);
            if let Some(linked) = object.link() {
                list.lock().unwrap().push(linked);
            }
            let early = list.lock().unwrap().pop().map_or(0, |seen| seen.load(Ordering::Relaxed));
            signal.join().unwrap();
            let late = list.lock().unwrap().pop().map_or(0, |seen| seen.load(Ordering::Relaxed));
            assert_eq!(early.max(late), 2);
        });
    }
}
