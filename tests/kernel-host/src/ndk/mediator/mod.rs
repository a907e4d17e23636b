//! The layer between a kernel consumer that comes through WSK and a provider, as tcpip.sys has one: it owns `Dispatch` and
//! `NdkReserved` of every object, so the consumer calls the layer's tables and the provider sees the layer's callbacks and
//! contexts.
//!
//! It changes nothing in the calls between the two. On the way it checks whether the provider keeps the rules of NDKPI: words
//! that no longer belong to it untouched, a completion exactly once and only after `STATUS_PENDING`, no failing close, no
//! callback after the close, one notification of a queue at a time; and whether the consumer calls at the right level and with
//! objects that are open.

mod callbacks;
mod object;
mod refusals;
mod tables;
pub(crate) mod trace;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use ndkpi_sys::ndkpi::{NDK_ADAPTER, NDK_OBJECT_HEADER};

use super::NdkAdapter;
use super::object_check::NdkObjectKind;
use crate::host_lock::HostLock;
use crate::ndis::rule::{Group, broken};
use object::{Family, NdkObject};

/// An adapter and what belongs to it; no family where the consumer has the provider's own objects.
struct Open {
    adapter: NdkAdapter,
    family: Option<Arc<Family>>,
}

/// Whether adapters that are opened from now on get the layer.
static ON: AtomicBool = AtomicBool::new(true);

pub(crate) fn configure(on: bool) {
    ON.store(on, Ordering::SeqCst);
}

/// Open adapters, by the provider's object.
static ADAPTERS: HostLock<Option<HashMap<usize, Open>>> = HostLock::new(None);

fn adapters() -> MutexGuard<'static, Option<HashMap<usize, Open>>> {
    ADAPTERS.lock()
}

/// Puts the layer in front of an adapter that was opened, unless the kernel was booted without it, and returns what the
/// consumer gets.
pub fn adopt_adapter(adapter: NdkAdapter) -> *mut NDK_ADAPTER {
    let pointer = adapter.as_pointer();
    if !ON.load(Ordering::SeqCst) {
        adapters().get_or_insert_default().insert(pointer as usize, Open { adapter, family: None });
        return pointer;
    }
    let family = Arc::new(Family::new(adapter.version()));
    object::adopt(NdkObjectKind::Adapter, pointer.cast::<NDK_OBJECT_HEADER>(), &family, "WskOpenNdkAdapter");
    adapters().get_or_insert_default().insert(pointer as usize, Open { adapter, family: Some(family) });
    trace_adapter("WskOpenNdkAdapter", pointer as usize);
    pointer
}

/// The line of an open, and of a close that begins.
fn trace_adapter(function: &str, address: usize) {
    if trace::is_on() {
        let name = object::name_at(address).unwrap_or_default();
        trace::TraceLine::begin().text(format!("#{} {name} {function} at {address:#x}", trace::next_call())).end();
    }
}

/// Closes an adapter of [`adopt_adapter`]; blocks as the provider's close does.
pub fn close_adapter(pointer: *mut NDK_ADAPTER) {
    let Some(Open { adapter, family }) = adapters().get_or_insert_default().remove(&(pointer as usize)) else {
        broken(Group::Ndk, pointer as usize, "WskCloseNdkAdapter is given what is no open NDK adapter");
    };
    let Some(family) = family else { return adapter.close() };
    trace_adapter("WskCloseNdkAdapter", pointer as usize);
    if family.mappings_left() != 0 {
        let rule = format!("WskCloseNdkAdapter: {} logical address mappings are not released", family.mappings_left());
        broken(Group::Ndk, pointer as usize, rule);
    }
    let own = object::take(NdkObjectKind::Adapter, pointer as usize, "WskCloseNdkAdapter");
    adapter.close();
    own.set_closed();
    let left = family.objects();
    if left != 0 {
        let rule = format!("CloseNDKAdapterHandler returned with {left} objects that the consumer has not closed");
        broken(Group::Ndk, pointer as usize, rule);
    }
    if let Some(name) = callbacks::first_outstanding(&family) {
        let rule = format!("CloseNDKAdapterHandler returned before the completion of {name} came");
        broken(Group::Ndk, pointer as usize, rule);
    }
    callbacks::forget(&family);
}

/// How many adapters are open through WSK.
#[must_use]
pub fn open_adapters() -> usize {
    adapters().as_ref().map_or(0, HashMap::len)
}

/// The object at an address, or the end: the consumer used one that is closed or never was.
fn object_at(kind: NdkObjectKind, address: usize, function: &str) -> Arc<NdkObject> {
    object::find(kind, address, function)
}

/// What the memory at an address was: an NDK object that the consumer has closed.
pub(crate) fn describe_closed(address: usize) -> Option<String> {
    object::closed_at(address)
}

/// The callbacks that the current thread is inside of.
pub(crate) fn describe_callbacks() -> Vec<String> {
    callbacks::describe_running()
}

/// The last calls that the provider refused.
pub(crate) fn describe_refusals() -> Vec<String> {
    refusals::describe()
}

/// What is open and what is under way, for the report of a hang: the open objects, the requests whose completion is
/// outstanding, and for each close that has not completed what it waits for.
pub(crate) fn describe_pending(text: &mut String) {
    let (open, closing) = object::live();
    let requests = callbacks::outstanding();
    if !open.is_empty() {
        let _ = write!(text, "\n***   open NDK objects ({}):", open.len());
    }
    for object in &open {
        let _ = write!(text, "\n***     {}", object.origin());
    }
    for (object, function) in &requests {
        if !closing.iter().any(|closed| Arc::ptr_eq(closed, object)) {
            let _ = write!(text, "\n***   {function} of {} has not completed", object.name());
        }
    }
    for object in &closing {
        let _ = write!(
            text,
            "\n***   the close of {} has not completed; it was called{}",
            object.name(),
            object.place_of_close()
        );
        for cause in causes(object, &open, &closing, &requests) {
            let _ = write!(text, "\n***     waits for {cause}");
        }
    }
}

/// What the close of an object waits for, as far as the layer sees it.
fn causes(
    object: &Arc<NdkObject>,
    open: &[Arc<NdkObject>],
    closing: &[Arc<NdkObject>],
    requests: &[(Arc<NdkObject>, &'static str)],
) -> Vec<String> {
    let mut causes = Vec::new();
    let belongs = |other: &&Arc<NdkObject>| {
        let of_adapter = object.kind == NdkObjectKind::Adapter && Arc::ptr_eq(&other.family, &object.family);
        !Arc::ptr_eq(other, object) && (other.holds(object) || of_adapter)
    };
    for other in open.iter().filter(belongs) {
        causes.push(format!("the close of {}, which the consumer has not called", other.name()));
    }
    for other in closing.iter().filter(belongs) {
        causes.push(format!("the close of {}, which has not completed either", other.name()));
    }
    for (_, function) in
        requests.iter().filter(|(other, name)| Arc::ptr_eq(other, object) && !name.contains("NdkClose"))
    {
        causes.push(format!("the completion of {function}, which has not come"));
    }
    let running = object.telling.load(Ordering::SeqCst);
    if running != 0 {
        causes.push(format!("{running} callbacks of it that have not returned"));
    }
    if causes.is_empty() {
        causes.push("nothing of the consumer's that the layer knows of: the provider has it".to_owned());
    }
    causes
}
