//! Mapping and unmapping of large memory, and the creation of large objects, on a thread of its own at PASSIVE_LEVEL.
//!
//! Mapping costs a page table entry a page, unmapping the flushing of every processor's translations: too much for a caller at
//! DISPATCH_LEVEL once it is megabytes. Jobs are allocated when the request is made (or, for unmapping, when the memory was
//! mapped), so that releasing memory never needs memory. They are done in the order in which they come. What a pass at DISPATCH_LEVEL
//! leaves of the requests that it ends together is done here, too.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use softndk_engine::{CloseCompletion, Retired};
use softndk_kernel::{
    pool::{NoMemory, PoolSpace},
    work::{Job, Once, Queue, Worker},
};
use wdk_sys::NTSTATUS;

use crate::{
    runtime::{completion, memory::Mapping, platform::KernelPlatform},
    tags,
};

/// Memory that is given back.
pub enum Release {
    /// Nothing copies it any more.
    Unmap(Retired<KernelPlatform>),
    /// Of a closed region, where it was still registered.
    Close(CloseCompletion<KernelPlatform>),
    /// Rings of a process, and with them the request that brought their memory.
    Rings(Mapping),
}

impl Once for Release {
    fn run(self) {
        match self {
            Self::Unmap(retired) => completion::finish_retired(retired),
            Self::Close(completion) => completion::finish_closed(completion),
            Self::Rings(mapping) => drop(mapping),
        }
    }
}

pub struct Mapper {
    worker: Worker,
    /// Sized requests that the thread was given and has not done.
    sized: AtomicU32,
}

impl Mapper {
    pub fn try_new() -> Result<Self, NoMemory> {
        Ok(Self { worker: Worker::try_new(tags::WORK)?, sized: AtomicU32::new(0) })
    }

    /// PASSIVE_LEVEL.
    pub fn start(&'static self) -> Result<(), NTSTATUS> {
        self.worker.start()
    }

    /// PASSIVE_LEVEL, when no context adds jobs any more. What is queued is done first.
    pub fn stop(&self) {
        self.worker.stop();
    }

    /// Leaves a request to the thread. `IRQL <= DISPATCH_LEVEL`.
    pub fn request(&self, request: impl FnOnce() + Send) -> Result<(), NoMemory> {
        Job::try_new(tags::MAPPING, request).map(|job| self.worker.job(job))
    }

    /// Leaves memory to the thread; `space` came with the memory. `IRQL <= DISPATCH_LEVEL`.
    pub fn release(&self, space: PoolSpace<Job<Release>>, release: Release) {
        self.worker.job(space.fill(Job::in_block(tags::MAPPING, release)));
    }

    /// Leaves a job that lies in other memory to the thread. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    /// As for [`Queue::job_in_place`].
    pub unsafe fn job_in_place<T: Once>(&self, job: NonNull<Job<T>>) {
        // SAFETY: the caller's promise.
        unsafe { self.worker.job_in_place(job) };
    }

    /// Whether the thread has sized requests.
    pub fn has_sized(&self) -> bool {
        self.sized.load(Ordering::SeqCst) != 0
    }

    /// Counts one more sized request until the result is dropped.
    pub fn count_sized(&'static self) -> SizedRequest {
        self.sized.fetch_add(1, Ordering::SeqCst);
        SizedRequest(&self.sized)
    }
}

/// One sized request for the thread, until it is done or given up.
pub struct SizedRequest(&'static AtomicU32);

impl Drop for SizedRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
