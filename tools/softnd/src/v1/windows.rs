//! Windows whose invalidation by the peer is told: by the ND_RESULT that the client gave when it made the window.
//!
//! The driver names the window with the receive that the peer's Send went into. The window's result comes behind the receive's, from the
//! same completion queue, in this GetResults or the next.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use softnd_interfaces::Status;

use crate::{
    heap::{put_all, try_list},
    shared::Shared,
    spin_lock::SpinLock,
};

/// What is told of one window.
pub struct WindowResult {
    /// The address of the client's ND_RESULT.
    result: u64,
    /// Of the last Bind, 0 before the first.
    token: AtomicU32,
    /// The completion queue that is going to tell, or 0.
    queue: AtomicUsize,
}

impl WindowResult {
    pub fn bound(&self, token: u32) {
        self.token.store(token, Ordering::Release);
    }
}

/// Those of an adapter.
pub struct WindowResults {
    list: SpinLock<Vec<Shared<WindowResult>>>,
    /// How many a completion queue is going to tell.
    due: AtomicU32,
}

impl WindowResults {
    pub fn new() -> Result<Shared<Self>, Status> {
        Shared::new(Self { list: SpinLock::new(Vec::new()), due: AtomicU32::new(0) })
    }

    pub fn add(&self, result: u64) -> Result<Shared<WindowResult>, Status> {
        let added = Shared::new(WindowResult { result, token: AtomicU32::new(0), queue: AtomicUsize::new(0) })?;
        loop {
            let known = self.list.lock().len();
            let mut longer = try_list(known.saturating_add(1))?;
            let mut list = self.list.lock();
            if list.len() <= known {
                put_all(&mut longer, list.drain(..));
                put_all(&mut longer, [added.clone()]);
                core::mem::swap(&mut *list, &mut longer);
                drop(list);
                return Ok(added);
            }
            drop(list);
        }
    }

    pub fn remove(&self, removed: &Shared<WindowResult>) {
        self.take_from(removed);
        let mut list = self.list.lock();
        let Some(mut end) = list.pop() else { return };
        if !end.is(removed)
            && let Some(place) = list.iter_mut().find(|window| window.is(removed))
        {
            core::mem::swap(place, &mut end);
        }
        drop(list);
        drop(end);
    }

    /// The peer has invalidated the window with this token, as a receive of this queue says.
    pub fn invalidated(&self, token: u32, queue: usize) {
        let list = self.list.lock();
        let found = list.iter().find(|window| window.token.load(Ordering::Acquire) == token);
        if found.is_some_and(|window| window.queue.swap(queue, Ordering::AcqRel) == 0) {
            self.due.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A result that this queue is to tell.
    pub fn take_due(&self, queue: usize) -> Option<u64> {
        if self.due.load(Ordering::Acquire) == 0 {
            return None;
        }
        let found = {
            let list = self.list.lock();
            list.iter().find(|window| window.queue.load(Ordering::Acquire) == queue).cloned()
        };
        found.filter(|window| self.take_from(window)).map(|window| window.result)
    }

    fn take_from(&self, window: &WindowResult) -> bool {
        let taken = window.queue.swap(0, Ordering::AcqRel) != 0;
        if taken {
            self.due.fetch_sub(1, Ordering::AcqRel);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidated_window_is_told_once_by_its_queue() {
        let windows = WindowResults::new().unwrap();
        let [first, second] = [0x1000, 0x2000].map(|result| windows.add(result).unwrap());
        first.bound(7);
        second.bound(8);
        assert_eq!(windows.take_due(1), None);
        windows.invalidated(9, 1);
        windows.invalidated(8, 1);
        assert_eq!([windows.take_due(2), windows.take_due(1), windows.take_due(1)], [None, Some(0x2000), None]);
        windows.invalidated(7, 1);
        windows.remove(&first);
        assert_eq!((windows.take_due(1), windows.due.load(Ordering::Relaxed)), (None, 0));
        windows.invalidated(8, 3);
        assert_eq!(windows.take_due(3), Some(0x2000));
        windows.remove(&second);
    }
}
