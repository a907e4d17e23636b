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
mod pending;
pub mod refusals;
mod results;
mod tables;
pub(crate) mod trace;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use ndkpi_sys::ndkpi::{NDK_ADAPTER, NDK_OBJECT_HEADER};

use super::NdkAdapter;
use super::object_check::NdkObjectKind;
use crate::host_lock::HostLock;
use crate::ndis::rule::{Group, broken};
use object::{Family, NdkObject};
pub(crate) use pending::Pending;

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
    let header = pointer.cast::<NDK_OBJECT_HEADER>();
    object::adopt(NdkObjectKind::Adapter, header, &family, ("WskOpenNdkAdapter", object::call_site()));
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
    if let Some(left) = family.describe_mappings_left() {
        broken(Group::Ndk, pointer as usize, format!("WskCloseNdkAdapter: {left}"));
    }
    let own = object::take(NdkObjectKind::Adapter, pointer as usize, "WskCloseNdkAdapter");
    adapter.close();
    own.set_closed();
    let left = family.objects();
    if left != 0 {
        let (open, _) = object::live();
        let of_adapter = open.iter().filter(|object| Arc::ptr_eq(&object.family, &family));
        let places = pending::origins(of_adapter, "   ");
        let rule =
            format!("CloseNDKAdapterHandler returned with {left} objects that the consumer has not closed{places}");
        broken(Group::Ndk, pointer as usize, rule);
    }
    if let Some(name) = callbacks::first_outstanding(&family) {
        let rule = format!("CloseNDKAdapterHandler returned before the completion of {name} came");
        broken(Group::Ndk, pointer as usize, rule);
    }
    callbacks::forget(&family);
}

/// The open adapter at an address, with the place in the consumer where it was opened; nothing without the layer.
pub(crate) fn describe_adapter(address: usize) -> String {
    object::open_at(address).map_or_else(String::new, |adapter| pending::origins([&adapter], "   "))
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

/// The last calls that the provider refused, a line each, the last one last.
#[must_use]
pub fn describe_refusals() -> Vec<String> {
    refusals::describe()
}
