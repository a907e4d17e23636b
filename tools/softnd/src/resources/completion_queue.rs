//! A completion queue: the rings that its results come through, and its notifications.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

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

use super::{Resource, adapter::Adapter};
use crate::{
    argument::Overlap,
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
    resizing: AtomicBool,
}

/// The ring that results are taken from, and those that follow it since the queue was resized.
struct Rings {
    current: CompletionRing,
    next: Vec<CompletionRing>,
}

/// Takes the first of a list, and moves the others forward.
fn take_first<T>(list: &mut Vec<T>) -> Option<T> {
    let mut first = list.pop()?;
    for place in list.iter_mut().rev() {
        core::mem::swap(place, &mut first);
    }
    Some(first)
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
        let file = RequestFile::of(adapter.device(), file)?;
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
            rings: SpinLock::new(Rings { current: ring, next: Vec::new() }),
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

    /// Takes up to `count` results.
    pub fn results(&self, count: u32, mut each: impl FnMut(&ResultEntry)) -> u32 {
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
        *sum = sum.wrapping_add(taken);
        let again = old.is_some() && flags.contains(CompletionFlags::MOVED);
        (again || flags.contains(CompletionFlags::MORE), old)
    }

    /// Starts a notification. INVALID_PARAMETER for an unknown kind.
    pub fn notify(&self, kind: u32, overlapped: Overlap) -> Status {
        if kind > notify::SOLICITED {
            return Status::INVALID_PARAMETER;
        }
        let input = Notify { version: VERSION, kind, handle: self.handle() };
        self.file.start(overlapped, CQ_NOTIFY, input.as_bytes(), (core::ptr::null_mut(), 0))
    }

    pub fn cancel(&self) -> Result<(), Status> {
        self.resource.call(CQ_CANCEL_IO)
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
