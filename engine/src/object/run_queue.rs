//! The run queue of a processor: the objects that have something to do.
//!
//! Intrusive lists behind one short lock a processor. Linking never allocates and never fails; an object is linked at most once,
//! and what it has to do is written in the object. Objects that process requests have a lane of their own, because a poll at
//! DISPATCH_LEVEL takes one from there; both lanes are served alternately, so that neither starves the other.

use core::iter;

use arrayvec::ArrayVec;
use softndk_cells::{Linked, List};

use crate::limits::DISPOSALS;
use crate::object::header::{LastObject, Object};
use crate::platform::Platform;

/// Which of the lists an object waits on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    /// Objects that process requests.
    Requests,
    /// All other objects.
    Objects,
    /// Objects that are served when everything else has been.
    Last,
}

/// The objects that wait for a service pass of one processor, or for contexts to leave the epoch.
pub(crate) struct RunQueue<P: Platform> {
    requests: List<Object<P>>,
    objects: List<Object<P>>,
    last: List<Object<P>>,
    /// Objects without pointers, to be dropped.
    disposals: List<LastObject<P>>,
    /// The lane that is served next.
    requests_next: bool,
}

/// What is looked at after the objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) objects: bool,
    pub(crate) disposals: bool,
}

impl<P: Platform> RunQueue<P> {
    pub(crate) const fn new() -> Self {
        Self {
            requests: List::new(),
            objects: List::new(),
            last: List::new(),
            disposals: List::new(),
            requests_next: true,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.objects.is_empty() && self.last.is_empty() && self.disposals.is_empty()
    }

    pub(crate) fn push(&mut self, lane: Lane, link: Linked<Object<P>>) {
        match lane {
            Lane::Requests => self.requests.push(link),
            Lane::Objects => self.objects.push(link),
            Lane::Last => self.last.push(link),
        };
    }

    pub(crate) fn push_disposal(&mut self, object: LastObject<P>) {
        self.disposals.push(object.link());
    }

    /// The next objects to be dropped, no more than `most` and than are taken under one lock.
    pub(crate) fn pop_disposals(&mut self, most: usize) -> ArrayVec<LastObject<P>, DISPOSALS> {
        iter::from_fn(|| self.disposals.pop()).take(DISPOSALS.min(most)).collect()
    }

    /// The next object.
    pub(crate) fn pop(&mut self) -> Option<Object<P>> {
        self.requests_next = !self.requests_next;
        if self.requests_next {
            self.requests.pop().or_else(|| self.objects.pop())
        } else {
            self.objects.pop().or_else(|| self.requests.pop())
        }
    }

    /// What there is that is looked at after the objects.
    pub(crate) fn rest(&self) -> Rest {
        Rest { objects: !self.last.is_empty(), disposals: !self.disposals.is_empty() }
    }

    /// The next object that processes requests.
    pub(crate) fn pop_requests(&mut self) -> Option<Object<P>> {
        self.requests.pop()
    }

    /// The next of those that are served when everything else has been.
    pub(crate) fn pop_last(&mut self) -> Option<Object<P>> {
        self.last.pop()
    }

    /// Moves everything to another run queue; the links stay claimed.
    pub(crate) fn move_to(&mut self, other: &mut Self) {
        move_list(&mut self.requests, &mut other.requests);
        move_list(&mut self.objects, &mut other.objects);
        move_list(&mut self.last, &mut other.last);
    }
}

fn move_list<P: Platform>(from: &mut List<Object<P>>, to: &mut List<Object<P>>) {
    while let Some(link) = from.pop_linked() {
        to.push(link);
    }
}
