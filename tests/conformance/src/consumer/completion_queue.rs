//! A completion queue: taking results, arming, and a notification callback that counts, checks that it never runs twice
//! at a time nor after the queue's close completed, and runs what a trial gives it.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kernel_host::callback;
use kernel_host::irql::IrqlRange;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{GROUP_AFFINITY, NTSTATUS, PVOID};
use ndkpi_sys::windows_abi;

use super::Adapter;
use super::border::{distort, distorted_status};
use super::completion::{create, request, stub};
use super::object::{Object, function};
use super::refusals::{self, call_provider};
use super::signal::Signal;
use crate::peers;

type NotificationReaction = Box<dyn FnMut() + Send>;

/// What the notification callback finds; leaked, so that a late callback meets a counter.
struct CompletionNotifications {
    calls: AtomicU32,
    running: AtomicBool,
    closed: AtomicBool,
    status: AtomicI32,
    signal: Signal,
    reaction: Mutex<Option<NotificationReaction>>,
}

pub struct CompletionQueue {
    object: Object<NDK_CQ>,
    notifications: &'static CompletionNotifications,
}

windows_abi! {
    unsafe fn notified(context: PVOID, status: NTSTATUS) {
        callback::enter_consumer_callback("NDK_FN_CQ_NOTIFICATION_CALLBACK", IrqlRange::DISPATCH_ONLY);
        // SAFETY: the context is a leaked `CompletionNotifications`.
        let notifications = unsafe { &*context.cast::<CompletionNotifications>() };
        assert!(!notifications.running.swap(true, Ordering::AcqRel), "two notifications of one queue at a time");
        assert!(!notifications.closed.load(Ordering::Acquire), "a notification came after its queue was closed");
        notifications.calls.fetch_add(1, Ordering::AcqRel);
        let status = distorted_status("NDK_FN_CQ_NOTIFICATION_CALLBACK", status);
        notifications.status.store(status, Ordering::Release);
        let reaction = notifications.reaction.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut reaction) = reaction {
            reaction();
            let mut place = notifications.reaction.lock().unwrap_or_else(PoisonError::into_inner);
            place.get_or_insert(reaction);
        }
        notifications.running.store(false, Ordering::Release);
        notifications.signal.set();
    }
}

fn notification_callback() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, notified as *const c_void, 2)
}

impl CompletionQueue {
    pub fn new(adapter: &Adapter, depth: u32) -> Result<Self, NTSTATUS> {
        Self::with(adapter, depth, notification_callback(), None)
    }

    /// Without a notification function.
    pub fn silent(adapter: &Adapter, depth: u32) -> Result<Self, NTSTATUS> {
        Self::with(adapter, depth, ptr::null(), None)
    }

    /// With a preference for processors.
    pub fn near(adapter: &Adapter, depth: u32, affinity: GROUP_AFFINITY) -> Result<Self, NTSTATUS> {
        Self::with(adapter, depth, notification_callback(), Some(affinity))
    }

    fn with(
        adapter: &Adapter,
        depth: u32,
        callback_function: *const c_void,
        mut affinity: Option<GROUP_AFFINITY>,
    ) -> Result<Self, NTSTATUS> {
        let notifications = &*Box::leak(Box::new(CompletionNotifications {
            calls: AtomicU32::new(0),
            running: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            status: AtomicI32::new(0),
            signal: Signal::new(),
            reaction: Mutex::new(None),
        }));
        let object = create("NDK_FN_CREATE_CQ", |callback, context, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_CQ.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_CQ"), adapter.table().NdkCreateCq => NTSTATUS;
                    adapter.pointer(), depth, callback_function, ptr::from_ref(notifications),
                    affinity.as_mut().map_or(ptr::null_mut(), ptr::from_mut), callback, context, out)
            }
        })?;
        Ok(Self { object: Object::adopt(object, adapter.version()), notifications })
    }

    pub fn object(&self) -> &Object<NDK_CQ> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
        self.notifications.closed.store(true, Ordering::Release);
    }

    /// `NDK_CQ_NOTIFY_*`.
    pub fn arm(&self, kind: u32) {
        // SAFETY: the arguments are those of NDK_FN_ARM_CQ.
        unsafe {
            call_provider!(function("NDK_FN_ARM_CQ"), self.object.table().NdkArmCq => (); self.object.pointer(), kind);
        }
    }

    pub fn resize(&self, depth: u32) -> NTSTATUS {
        request("NDK_FN_RESIZE_CQ", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_RESIZE_CQ.
            unsafe {
                call_provider!(function("NDK_FN_RESIZE_CQ"), self.object.table().NdkResizeCq => NTSTATUS;
                    self.object.pointer(), depth, callback, context)
            }
        })
    }

    /// Interrupt moderation: an interval in microseconds and a count.
    pub fn moderate(&self, interval: u32, count: u32) -> NTSTATUS {
        // SAFETY: the arguments are those of NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION.
        unsafe {
            call_provider!(function("NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION"),
                self.object.table().NdkControlCqInterruptModeration => NTSTATUS;
                self.object.pointer(), interval, count)
        }
    }

    /// Takes up to `capacity` results with NDK_FN_GET_CQ_RESULTS_EX.
    pub fn take(&self, capacity: usize) -> Vec<NDK_RESULT_EX> {
        let mut results = vec![NDK_RESULT_EX::zeroed(); capacity];
        // SAFETY: the arguments are those of NDK_FN_GET_CQ_RESULTS_EX.
        let count = unsafe {
            call_provider!(function("NDK_FN_GET_CQ_RESULTS_EX"), self.object.table().NdkGetCqResultsEx => u32;
                self.object.pointer(), results.as_mut_ptr(), capacity as u32)
        };
        assert!(count as usize <= capacity, "{count} results in a buffer for {capacity}");
        results.truncate(count as usize);
        distort("NDK_RESULT_EX", &mut results);
        for result in &results {
            refusals::expect_result(result.Status);
        }
        results
    }

    /// As [`Self::take`] with the plain NDK_FN_GET_CQ_RESULTS.
    pub fn take_plain(&self, capacity: usize) -> Vec<NDK_RESULT> {
        let mut results = vec![NDK_RESULT::zeroed(); capacity];
        // SAFETY: the arguments are those of NDK_FN_GET_CQ_RESULTS.
        let count = unsafe {
            call_provider!(function("NDK_FN_GET_CQ_RESULTS"), self.object.table().NdkGetCqResults => u32;
                self.object.pointer(), results.as_mut_ptr(), capacity as u32)
        };
        assert!(count as usize <= capacity, "{count} results in a buffer for {capacity}");
        results.truncate(count as usize);
        distort("NDK_RESULT", &mut results);
        for result in &results {
            refusals::expect_result(result.Status);
        }
        results
    }

    /// Takes exactly `count` results, waiting for notifications.
    pub fn wait_for(&self, count: usize) -> Vec<NDK_RESULT_EX> {
        let mut results = self.take(count);
        while results.len() < count {
            self.notifications.signal.clear();
            self.arm(NDK_CQ_NOTIFY_ANY);
            results.extend(self.take(count - results.len()));
            if results.len() < count {
                let notified = self.notifications.signal.wait();
                results.extend(self.take(count - results.len()));
                assert!(
                    notified || results.len() == count,
                    "{} of {count} results came, then neither result nor notification: {results:#x?}",
                    results.len()
                );
            }
        }
        peers::settle(&results);
        results
    }

    /// Takes one result.
    pub fn wait_for_one(&self) -> NDK_RESULT_EX {
        self.wait_for(1)[0]
    }

    /// How often the callback has run.
    pub fn notification_count(&self) -> u32 {
        self.notifications.calls.load(Ordering::Acquire)
    }

    /// The status of the last notification.
    pub fn notification_status(&self) -> NTSTATUS {
        self.notifications.status.load(Ordering::Acquire)
    }

    /// Waits for a notification that comes after the last `clear_notification`.
    pub fn wait_for_notification(&self) -> bool {
        self.notifications.signal.wait()
    }

    pub fn clear_notification(&self) {
        self.notifications.signal.clear();
    }

    /// Runs inside every following notification.
    pub fn on_notification(&self, reaction: impl FnMut() + Send + 'static) {
        *self.notifications.reaction.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(reaction));
    }
}
