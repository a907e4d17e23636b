//! A shared receive queue: posting, changing, and a notification callback that counts.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use kernel_host::callback;
use kernel_host::irql::IrqlRange;
use kernel_host::thread::Thread;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{GROUP_AFFINITY, NTSTATUS, PVOID};
use ndkpi_sys::windows_abi;

use super::ProtectionDomain;
use super::border::distorted_status;
use super::completion::{create, request, stub};
use super::object::{Object, function};
use super::queue_pair::{Passing, context};
use super::refusals::call_provider;

/// What a shared receive queue is created with.
#[derive(Clone, Copy, Debug)]
pub struct SharedShape {
    pub depth: u32,
    pub sges: u32,
    pub threshold: u32,
    /// Without a notification function.
    pub silent: bool,
}

impl Default for SharedShape {
    fn default() -> Self {
        Self { depth: 32, sges: 4, threshold: 0, silent: false }
    }
}

/// What the notification callback finds; leaked, so that a late callback meets a counter.
struct ReceiveNotifications {
    calls: AtomicU32,
    running: AtomicBool,
    status: AtomicI32,
    /// Of the last one.
    processor: AtomicUsize,
}

pub struct SharedReceiveQueue {
    object: Object<NDK_SRQ>,
    notifications: &'static ReceiveNotifications,
}

windows_abi! {
    unsafe fn notified(context: PVOID, status: NTSTATUS) {
        callback::enter_consumer_callback("NDK_FN_SRQ_NOTIFICATION_CALLBACK", IrqlRange::DISPATCH_ONLY);
        // SAFETY: the context is a leaked `ReceiveNotifications`.
        let notifications = unsafe { &*context.cast::<ReceiveNotifications>() };
        assert!(!notifications.running.swap(true, Ordering::AcqRel), "two notifications of one queue at a time");
        notifications.calls.fetch_add(1, Ordering::AcqRel);
        let status = distorted_status("NDK_FN_SRQ_NOTIFICATION_CALLBACK", status);
        notifications.status.store(status, Ordering::Release);
        notifications.processor.store(Thread::current().processor(), Ordering::Release);
        notifications.running.store(false, Ordering::Release);
    }
}

fn notification_callback() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, notified as *const c_void, 2)
}

impl SharedReceiveQueue {
    pub fn new(domain: &ProtectionDomain, shape: SharedShape) -> Result<Self, NTSTATUS> {
        Self::with(domain, shape, None)
    }

    /// With a preference for processors.
    pub fn near(domain: &ProtectionDomain, shape: SharedShape, affinity: GROUP_AFFINITY) -> Result<Self, NTSTATUS> {
        Self::with(domain, shape, Some(affinity))
    }

    fn with(
        domain: &ProtectionDomain,
        shape: SharedShape,
        mut affinity: Option<GROUP_AFFINITY>,
    ) -> Result<Self, NTSTATUS> {
        let affinity = affinity.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let notifications = &*Box::leak(Box::new(ReceiveNotifications {
            calls: AtomicU32::new(0),
            running: AtomicBool::new(false),
            status: AtomicI32::new(0),
            processor: AtomicUsize::new(usize::MAX),
        }));
        let notification = if shape.silent { ptr::null() } else { notification_callback() };
        let object = create("NDK_FN_CREATE_SRQ", |callback, completion, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_SRQ.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_SRQ"), domain.object().table().NdkCreateSrq => NTSTATUS;
                    domain.object().pointer(), shape.depth, shape.sges, shape.threshold, notification,
                    ptr::from_ref(notifications), affinity, callback, completion, out)
            }
        })?;
        Ok(Self { object: Object::adopt(object, domain.object().version()), notifications })
    }

    pub fn object(&self) -> &Object<NDK_SRQ> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    pub fn receive(&self, request: u64, sges: &[NDK_SGE]) -> NTSTATUS {
        let list = Passing::new(sges);
        // SAFETY: the arguments are those of NDK_FN_SRQ_RECEIVE.
        unsafe {
            call_provider!(function("NDK_FN_SRQ_RECEIVE"), self.object.table().NdkSrqReceive => NTSTATUS;
                self.object.pointer(), context(request), list.pointer(), list.count())
        }
    }

    /// Depth and threshold; 0 keeps what there is.
    pub fn modify(&self, depth: u32, threshold: u32) -> NTSTATUS {
        request("NDK_FN_MODIFY_SRQ", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_MODIFY_SRQ.
            unsafe {
                call_provider!(function("NDK_FN_MODIFY_SRQ"), self.object.table().NdkModifySrq => NTSTATUS;
                    self.object.pointer(), depth, threshold, callback, context)
            }
        })
    }

    /// How often the callback has run.
    pub fn notification_count(&self) -> u32 {
        self.notifications.calls.load(Ordering::Acquire)
    }

    /// The processor of the last notification.
    pub fn notification_processor(&self) -> usize {
        self.notifications.processor.load(Ordering::Acquire)
    }

    /// The status of the last notification.
    pub fn notification_status(&self) -> NTSTATUS {
        self.notifications.status.load(Ordering::Acquire)
    }
}
