//! NDIS I/O work items: allocated by a miniport or a driver, queued at any level up to DISPATCH, run by a system worker thread.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::rule::{Group, broken, live};
use super::{is_owner, ndis};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::worker;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;

/// A work item.
pub struct NdisWorkItem {
    pub handle: usize,
    pub owner: usize,
    state: AtomicU8,
}

fn work_item(handle: *mut c_void, function: &str) -> Arc<NdisWorkItem> {
    live(ndis().work_items.get(handle), function, "work item", handle)
}

crate::exports! {
    module "ndis.sys";

    /// Allocates a work item.
    /// Checks: a live miniport or driver handle.
    /// Source: NDIS: NdisAllocateIoWorkItem
    [UP_TO_DISPATCH] fn NdisAllocateIoWorkItem(owner: *mut c_void) -> *mut c_void {
        if !is_owner(owner) {
            broken(Group::WorkItem, owner as usize, "NdisAllocateIoWorkItem: the handle is no live miniport or driver");
        }
        if crate::fault::should_fail("NdisAllocateIoWorkItem") {
            return std::ptr::null_mut();
        }
        let item = ndis().work_items.insert_with(|handle| NdisWorkItem { handle, owner: owner as usize, state: AtomicU8::new(IDLE) });
        item.handle as *mut c_void
    }

    /// Queues a work item for a system worker thread.
    /// Checks: a live work item that is not queued already, a routine in an image.
    /// Source: NDIS: NdisQueueIoWorkItem
    [UP_TO_DISPATCH] fn NdisQueueIoWorkItem(handle: *mut c_void, routine: *mut c_void, context: *mut c_void) {
        let item = work_item(handle, "NdisQueueIoWorkItem");
        if item.state.swap(QUEUED, Ordering::SeqCst) == QUEUED {
            broken(Group::WorkItem, item.handle, "NdisQueueIoWorkItem: the work item is queued already");
        }
        if routine.is_null() {
            broken(Group::WorkItem, item.handle, "NdisQueueIoWorkItem: the routine is NULL");
        }
        let (routine, context) = (routine as usize, context as usize);
        worker::queue(move || {
            // From here on the routine may free or queue the item again.
            item.state.store(IDLE, Ordering::SeqCst);
            let name = Context::new(ContextKind::WorkItem, "NDIS work item");
            // SAFETY: the routine that was queued, with the arguments of NDIS_IO_WORKITEM_FUNCTION.
            unsafe { call_image!(name, routine => (); context, item.handle) };
        });
    }

    /// Frees a work item.
    /// Checks: a live work item that is not queued.
    /// Source: NDIS: NdisFreeIoWorkItem
    [UP_TO_DISPATCH] fn NdisFreeIoWorkItem(handle: *mut c_void) {
        let item = work_item(handle, "NdisFreeIoWorkItem");
        if item.state.load(Ordering::SeqCst) == QUEUED {
            broken(Group::WorkItem, item.handle, "NdisFreeIoWorkItem: the work item is still queued");
        }
        let _ = ndis().work_items.remove(handle);
    }

    /// Lets the caller sleep, in microseconds.
    /// Source: NDIS: NdisMSleep
    [PASSIVE_ONLY] fn NdisMSleep(microseconds: u32) {
        crate::dispatcher::delay(-10 * i64::from(microseconds));
    }
}
