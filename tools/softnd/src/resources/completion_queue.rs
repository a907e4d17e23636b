//! A completion queue: the rings that its results come through, its notifications, and the queues that wait to be told of.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use softnd_interfaces::{Status, constants::notify};
use softndk_ioctl::nd::{
    VERSION,
    control::{
        CQ_CANCEL_IO, CQ_CREATE, CQ_FREE, CQ_GET_AFFINITY, CQ_MODIFY, CQ_NOTIFY, CreateCompletionQueue, GroupAffinity,
        Handle, ModifyCompletionQueue, Notify,
    },
    rings::{CompletionFlags, ResultEntry},
};
use zerocopy::IntoBytes;

use super::{Resource, adapter::Adapter, request_queue::RequestQueue};
use crate::{
    argument::{Overlap, Place},
    heap::{put_all, try_list},
    imports::RawHandle,
    overlapped::RequestFile,
    ring::CompletionRing,
    shared::Shared,
    spin_lock::SpinLock,
};

pub struct CompletionQueue {
    resource: Resource,
    file: RequestFile,
    rings: SpinLock<Rings>,
    /// Whether a notification may be outstanding.
    armed: AtomicBool,
    links: SpinLock<Links>,
    /// Whether `links` has any: looked at by every poll.
    has_links: AtomicBool,
    resizing: AtomicBool,
}

/// The ring that results are taken from, and those that follow it since the queue was resized.
struct Rings {
    current: CompletionRing,
    next: Vec<CompletionRing>,
    /// Results that were ever taken.
    taken: u32,
    /// What `taken` has to pass before the last Notify is known to have been answered.
    armed_at: u32,
}

/// Takes the first of a list, and moves the others forward.
fn take_first<T>(list: &mut Vec<T>) -> Option<T> {
    let mut first = list.pop()?;
    for place in list.iter_mut().rev() {
        core::mem::swap(place, &mut first);
    }
    Some(first)
}

/// Queues with requests that the driver was not told of.
struct Links {
    /// Each with its place for this completion queue.
    queues: Vec<(Shared<RequestQueue>, usize)>,
    /// Queues that may be linked; there is room for as many.
    expected: usize,
}

impl CompletionQueue {
    /// INVALID_PARAMETER_3 for a depth of 0 or beyond the adapter's.
    pub fn new(
        adapter: &Shared<Adapter>,
        file: RawHandle,
        depth: u32,
        affinity: GroupAffinity,
    ) -> Result<Shared<Self>, Status> {
        if depth == 0 || depth > adapter.info().max_completion_queue_depth {
            return Err(Status::INVALID_PARAMETER_3);
        }
        let file = RequestFile::of(file)?;
        let input = CreateCompletionQueue {
            version: VERSION,
            queue_depth: depth,
            adapter: adapter.handle(),
            affinity,
            ..CreateCompletionQueue::default()
        };
        let resource = Resource::queue(adapter, CQ_CREATE, CQ_FREE, &input)?;
        let ring = CompletionRing::new(depth)?;
        ring.attach(resource.device(), resource.handle())?;
        Shared::new(Self {
            resource,
            file,
            rings: SpinLock::new(Rings { current: ring, next: Vec::new(), taken: 0, armed_at: 0 }),
            armed: AtomicBool::new(false),
            links: SpinLock::new(Links { queues: Vec::new(), expected: 0 }),
            has_links: AtomicBool::new(false),
            resizing: AtomicBool::new(false),
        })
    }

    pub fn handle(&self) -> u64 {
        self.resource.handle()
    }

    /// See [`Resource::shares_handles`].
    pub fn shares_handles(&self, adapter: &Adapter) -> bool {
        self.resource.shares_handles(adapter)
    }

    pub fn affinity(&self) -> Result<GroupAffinity, Status> {
        let input = Handle { version: VERSION, reserved: 0, handle: self.handle() };
        self.resource.device().ask(CQ_GET_AFFINITY, &input)
    }

    /// Gives the queue another depth without losing a result: those in the old ring are taken before those in the new one.
    ///
    /// INVALID_PARAMETER for a depth of 0 or beyond the adapter's, DEVICE_BUSY while another thread resizes it.
    pub fn resize(&self, depth: u32) -> Result<(), Status> {
        if depth == 0 || depth > self.resource.adapter().info().max_completion_queue_depth {
            return Err(Status::INVALID_PARAMETER);
        }
        if self.resizing.swap(true, Ordering::Acquire) {
            return Err(Status::DEVICE_BUSY);
        }
        let resized = self.resize_alone(depth);
        self.resizing.store(false, Ordering::Release);
        resized
    }

    fn resize_alone(&self, depth: u32) -> Result<(), Status> {
        let ring = CompletionRing::new(depth)?;
        // Room for it before the driver has it: then nothing can fail. The list is exchanged so that nothing is allocated
        // under the lock.
        let known = self.rings.lock().next.len();
        let mut next = try_list(known.saturating_add(1))?;
        let device = self.resource.device();
        let input = ModifyCompletionQueue {
            version: VERSION,
            queue_depth: depth,
            handle: self.handle(),
            ..ModifyCompletionQueue::default()
        };
        device.tell(CQ_MODIFY, &input)?;
        ring.attach(device, self.handle())?;
        let mut rings = self.rings.lock();
        put_all(&mut next, rings.next.drain(..));
        put_all(&mut next, [ring]);
        let old = core::mem::replace(&mut rings.next, next);
        drop(rings);
        drop(old);
        Ok(())
    }

    /// Takes up to `count` results. What waits is told to the driver first.
    pub fn results(&self, count: u32, mut each: impl FnMut(&ResultEntry)) -> u32 {
        self.submit_linked();
        let mut taken = 0_u32;
        loop {
            let (more, old) = self.take(count.saturating_sub(taken), &mut each, &mut taken);
            drop(old);
            if !more || taken >= count {
                return taken;
            }
            // The ring was full, and has room now.
            let before = taken;
            self.resource.device().ring(self.handle());
            let (_, old) = self.take(count.saturating_sub(taken), &mut each, &mut taken);
            drop(old);
            if taken == before {
                return taken;
            }
        }
    }

    /// Takes what is there; whether the driver has more than was in the ring, and the rings that are done with.
    fn take(&self, count: u32, each: &mut impl FnMut(&ResultEntry), sum: &mut u32) -> (bool, Option<CompletionRing>) {
        let mut rings = self.rings.lock();
        let mut taken = rings.current.take(count, &mut *each);
        let mut flags = rings.current.flags();
        let mut old = None;
        if taken < count && flags.contains(CompletionFlags::MOVED) {
            // The flag is set after the last result: what has come since the first look is still here.
            taken = taken.wrapping_add(rings.current.take(count.saturating_sub(taken), &mut *each));
            if rings.current.available() == 0
                && let Some(next) = take_first(&mut rings.next)
            {
                old = Some(core::mem::replace(&mut rings.current, next));
                taken = taken.wrapping_add(rings.current.take(count.saturating_sub(taken), &mut *each));
                flags = rings.current.flags();
            }
        }
        rings.taken = rings.taken.wrapping_add(taken);
        if taken > 0 && rings.taken.wrapping_sub(rings.armed_at).cast_signed() > 0 {
            self.armed.store(false, Ordering::SeqCst);
        }
        *sum = sum.wrapping_add(taken);
        let again = old.is_some() && flags.contains(CompletionFlags::MOVED);
        (again || flags.contains(CompletionFlags::MORE), old)
    }

    /// Starts a notification. INVALID_PARAMETER for an unknown kind.
    pub fn notify(&self, kind: u32, overlapped: Overlap) -> Status {
        if kind > notify::SOLICITED {
            return Status::INVALID_PARAMETER;
        }
        // A notification of errors does not wait for what is posted.
        if kind != notify::ERRORS {
            let mut rings = self.rings.lock();
            let available =
                rings.next.iter().fold(rings.current.available(), |sum, ring| sum.wrapping_add(ring.available()));
            rings.armed_at = rings.taken.wrapping_add(available);
            drop(rings);
            self.armed.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
        self.submit_linked();
        let input = Notify { version: VERSION, kind, handle: self.handle() };
        let status = self.file.start(overlapped, CQ_NOTIFY, input.as_bytes(), (core::ptr::null_mut(), 0));
        if status != Status::PENDING && kind != notify::ERRORS {
            self.armed.store(false, Ordering::SeqCst);
        }
        status
    }

    /// Whether a notification may be outstanding that a request could bring about.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    pub fn cancel(&self) -> Result<(), Status> {
        self.armed.store(false, Ordering::SeqCst);
        self.resource.call(CQ_CANCEL_IO)
    }

    pub fn overlapped_result(&self, overlapped: Overlap, bytes: Place<usize>, wait: i32) -> Status {
        self.file.result(overlapped, bytes, wait)
    }

    /// Makes room for one more queue that may be linked. NO_MEMORY.
    pub fn expect_link(&self) -> Result<(), Status> {
        let wanted = {
            let mut links = self.links.lock();
            links.expected = links.expected.saturating_add(1);
            links.expected
        };
        // Doubled, so that many queues do not copy the list each time.
        let mut larger =
            try_list(wanted.checked_next_power_of_two().unwrap_or(wanted)).inspect_err(|_| self.expect_no_link())?;
        let mut links = self.links.lock();
        if links.queues.capacity() < larger.capacity() {
            put_all(&mut larger, links.queues.drain(..));
            core::mem::swap(&mut links.queues, &mut larger);
        }
        drop(links);
        Ok(())
    }

    fn expect_no_link(&self) {
        let mut links = self.links.lock();
        links.expected = links.expected.saturating_sub(1);
    }

    /// Links a queue that has something to tell. False when there is no room to remember it.
    pub fn link(&self, queue: &Shared<RequestQueue>, place: usize) -> bool {
        let mut links = self.links.lock();
        if links.queues.len() == links.queues.capacity() {
            return false;
        }
        if queue.set_linked(place, true) {
            put_all(&mut links.queues, [(queue.clone(), place)]);
            self.has_links.store(true, Ordering::SeqCst);
        }
        true
    }

    /// Forgets a queue that is closed.
    pub fn unlink(&self, queue: &RequestQueue) {
        let mut links = self.links.lock();
        links.expected = links.expected.saturating_sub(1);
        let place = links.queues.iter().position(|(linked, _)| core::ptr::eq(&raw const **linked, queue));
        let unlinked = place.map(|place| links.queues.swap_remove(place));
        drop(links);
        drop(unlinked);
    }

    /// Tells the driver of all that waits in linked queues.
    pub fn submit_linked(&self) {
        if !self.has_links.load(Ordering::SeqCst) {
            return;
        }
        // Not more than there are now: posts of other threads link again.
        let mut left = self.links.lock().queues.len();
        while left > 0 {
            let queue = {
                let mut links = self.links.lock();
                let queue = links.queues.pop();
                self.has_links.store(!links.queues.is_empty(), Ordering::SeqCst);
                if let Some((queue, place)) = &queue {
                    queue.set_linked(*place, false);
                }
                queue
            };
            let Some((queue, _)) = queue else { return };
            queue.submit();
            left = left.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::take_first;

    #[test]
    fn first_of_a_list_is_taken_and_the_others_keep_their_order() {
        let mut list = std::vec![1, 2, 3];
        assert_eq!((take_first(&mut list), list.as_slice()), (Some(1), &[2, 3][..]));
        assert_eq!((take_first(&mut list), take_first(&mut list)), (Some(2), Some(3)));
        assert_eq!(take_first(&mut list), None);
    }
}
