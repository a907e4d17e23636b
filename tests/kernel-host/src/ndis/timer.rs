//! NDIS timer objects: a kernel timer and its DPC, which calls the miniport's timer function at DISPATCH_LEVEL.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use ndkpi_sys::ndis::NDIS_TIMER_CHARACTERISTICS;

use super::attributes::{ExpectedHeader, check_header};
use super::loan::LoanedBytes;
use super::miniport::lock;
use super::rule::{Group, broken, live};
use super::{NdisStatus, is_owner, ndis, status};
use crate::call_image;
use crate::callback::host_function;
use crate::callout::{Context, ContextKind};
use crate::nt::{KDPC, KTIMER};
use crate::{dpc, irql, timer};

/// A timer object.
pub struct Timer {
    pub handle: usize,
    pub owner: usize,
    function: usize,
    context: Mutex<usize>,
    default_context: usize,
    memory: LoanedBytes,
}

impl Timer {
    fn timer(&self) -> *mut KTIMER {
        self.memory.as_pointer().cast()
    }

    fn deferred(&self) -> *mut KDPC {
        self.memory.as_pointer().wrapping_add(size_of::<KTIMER>()).cast()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: initialised at allocation; a timer that is still set must not fire into freed memory.
        unsafe { timer::cancel(self.timer()) };
    }
}

fn timer_object(handle: *mut c_void, function: &str) -> Arc<Timer> {
    live(ndis().timers.get(handle), function, "timer", handle)
}

/// The DPC of every NDIS timer: finds the object and calls its function.
unsafe extern "win64" fn expired(_dpc: *mut KDPC, handle: *mut c_void, _first: *mut c_void, _second: *mut c_void) {
    let Ok(object) = ndis().timers.get(handle) else { return };
    let context = *lock(&object.context);
    let name = Context::new(ContextKind::Timer, "NDIS timer function");
    // SAFETY: the function that was registered, with the arguments of NDIS_TIMER_FUNCTION.
    unsafe { call_image!(name, object.function => (); 0_usize, context, 0_usize, 0_usize) };
}

crate::exports! {
    module "ndis.sys";

    /// Makes a timer object.
    /// Checks: a live miniport or driver handle, object header, tag, function.
    /// Source: NDIS: NdisAllocateTimerObject, NDIS_TIMER_CHARACTERISTICS
    [UP_TO_DISPATCH] fn NdisAllocateTimerObject(
        owner: *mut c_void,
        characteristics: *const NDIS_TIMER_CHARACTERISTICS,
        made: *mut *mut c_void,
    ) -> NdisStatus {
        const NAME: &str = "NDIS_TIMER_CHARACTERISTICS";
        let rule = |text: &str| -> ! { broken(Group::Timer, owner as usize, format!("NdisAllocateTimerObject: {text}")) };
        if !is_owner(owner) {
            rule("the handle is no live miniport or driver");
        }
        if characteristics.is_null() || made.is_null() {
            rule("a required pointer is NULL");
        }
        // SAFETY: not null; the driver's structure by contract.
        let from = unsafe { characteristics.read_unaligned() };
        let expected = ExpectedHeader { structure: NAME, object_type: 0x97, revision: 1, size: 0x18, size_of: 0x18 };
        if let Err(text) = check_header(from.Header, expected) {
            rule(&text);
        }
        if from.AllocationTag == 0 {
            rule("AllocationTag is 0");
        }
        let Some(function) = from.TimerFunction else { rule("TimerFunction is NULL") };
        if crate::fault::should_fail("NdisAllocateTimerObject") {
            return status::RESOURCES;
        }
        let memory = LoanedBytes::filled(size_of::<KTIMER>() + size_of::<KDPC>(), 0);
        let object = ndis().timers.insert_with(|handle| Timer {
            handle,
            owner: owner as usize,
            function: function as usize,
            context: Mutex::new(from.FunctionContext as usize),
            default_context: from.FunctionContext as usize,
            memory,
        });
        let routine = host_function(expired as *const c_void, 4);
        // SAFETY: fresh memory of the object's own for both structures.
        unsafe {
            timer::initialise(object.timer(), false);
            dpc::initialise(object.deferred(), routine.cast_mut(), object.handle as *mut c_void, false);
            made.write(object.handle as *mut c_void);
        }
        status::SUCCESS
    }

    /// Sets a timer; TRUE when it was set before.
    /// Checks: a live timer.
    /// Source: NDIS: NdisSetTimerObject
    [UP_TO_DISPATCH] fn NdisSetTimerObject(handle: *mut c_void, due: i64, period: i32, context: *mut c_void) -> u8 {
        let object = timer_object(handle, "NdisSetTimerObject");
        *lock(&object.context) = if context.is_null() { object.default_context } else { context as usize };
        // SAFETY: both were initialised at allocation and live as long as the object.
        u8::from(unsafe { timer::set(object.timer(), due, period, object.deferred()) })
    }

    /// Cancels a timer; FALSE when it was not set, in which case its function may be running.
    /// Checks: a live timer; a periodic one at PASSIVE_LEVEL only
    /// Source: NDIS: NdisCancelTimerObject
    [UP_TO_DISPATCH] fn NdisCancelTimerObject(handle: *mut c_void) -> u8 {
        let object = timer_object(handle, "NdisCancelTimerObject");
        // SAFETY: initialised at allocation.
        let periodic = unsafe { (*object.timer()).Period } != 0;
        if periodic && irql::current() != irql::PASSIVE {
            broken(Group::Timer, object.handle, "NdisCancelTimerObject: a periodic timer is cancelled above PASSIVE_LEVEL");
        }
        // SAFETY: initialised at allocation.
        u8::from(unsafe { timer::cancel(object.timer()) })
    }

    /// Frees a timer.
    /// Checks: a live timer that is not set.
    /// Source: NDIS: NdisFreeTimerObject
    [UP_TO_DISPATCH] fn NdisFreeTimerObject(handle: *mut c_void) {
        let object = timer_object(handle, "NdisFreeTimerObject");
        // SAFETY: initialised at allocation.
        if unsafe { timer::cancel(object.timer()) } {
            broken(Group::Timer, object.handle, "NdisFreeTimerObject: the timer is still set");
        }
        let _ = ndis().timers.remove(handle);
    }
}
