//! Deferred procedure calls: one queued object per piece of work that must leave its caller's stack.
//!
//! A KDPC must not move and must not be freed while queued or running; [`Dpc::stop`] and [`flush`] are what an owner calls
//! before it lets go. Arguments of a queueing are lost when the DPC is queued already, so none are used.

use core::{cell::UnsafeCell, ffi::c_void, ptr};

use wdk_sys::{
    _KDPC_IMPORTANCE, KDPC, PROCESSOR_NUMBER,
    ntddk::{
        KeFlushQueuedDpcs, KeGetProcessorNumberFromIndex, KeInitializeDpc, KeInsertQueueDpc, KeRemoveQueueDpc,
        KeSetImportanceDpc, KeSetTargetProcessorDpcEx,
    },
};

use crate::pool::{NoMemory, PoolBox, Tag};

/// What runs at DISPATCH_LEVEL with the context given at creation.
pub type DpcRoutine = unsafe extern "C" fn(*mut KDPC, *mut c_void, *mut c_void, *mut c_void);

pub struct Dpc {
    dpc: PoolBox<UnsafeCell<KDPC>>,
}

// SAFETY: the kernel serialises the operations on a KDPC.
unsafe impl Send for Dpc {}
// SAFETY: as above.
unsafe impl Sync for Dpc {}

impl Dpc {
    /// A DPC that calls `routine(context)`.
    ///
    /// # Safety
    /// `routine` must be sound for `context` whenever it runs, until the owner stopped the DPC and flushed.
    pub unsafe fn try_new(tag: Tag, routine: DpcRoutine, context: *mut c_void) -> Result<Self, NoMemory> {
        let dpc = PoolBox::try_new(tag, UnsafeCell::new(KDPC::default()))?;
        // SAFETY: the block is non-paged and not in use; routine and context are the caller's promise.
        unsafe { KeInitializeDpc(dpc.get(), Some(routine), context) };
        Ok(Self { dpc })
    }

    /// Binds the DPC to one processor. Before the first queueing only.
    pub fn target(&self, processor: u32) {
        let mut number = PROCESSOR_NUMBER::default();
        // SAFETY: `number` is a valid place for the answer.
        let status = unsafe { KeGetProcessorNumberFromIndex(processor, &raw mut number) };
        if status >= 0 {
            // SAFETY: initialised and not queued; the number comes from the system. On failure the DPC runs on the
            // processor that queues it, which is slower and still right.
            let _status = unsafe { KeSetTargetProcessorDpcEx(self.dpc.get(), &raw mut number) };
            // WDM: Organization of DPC Queues. Another processor looks at a DPC of medium importance when its queue has grown
            // or at its next clock tick; from this importance on it is notified at once.
            // SAFETY: initialised and not queued.
            unsafe { KeSetImportanceDpc(self.dpc.get(), _KDPC_IMPORTANCE::MediumHighImportance) };
        }
    }

    /// Queues the DPC; false when it was queued already. Any IRQL.
    pub fn queue(&self) -> bool {
        // SAFETY: initialised by `try_new`.
        unsafe { KeInsertQueueDpc(self.dpc.get(), ptr::null_mut(), ptr::null_mut()) != 0 }
    }

    /// For a timer that queues it.
    pub fn as_ptr(&self) -> *mut KDPC {
        self.dpc.get()
    }

    /// Takes the DPC from the queue and waits until no run of it is in progress. PASSIVE_LEVEL; no caller queues it any more.
    pub fn stop(&self) {
        // SAFETY: initialised by `try_new`.
        let _removed = unsafe { KeRemoveQueueDpc(self.dpc.get()) };
        flush();
    }
}

/// Waits until every DPC queued so far has returned. PASSIVE_LEVEL.
pub fn flush() {
    // SAFETY: the callers run at PASSIVE_LEVEL.
    unsafe { KeFlushQueuedDpcs() };
}
