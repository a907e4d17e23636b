//! The layer between a kernel consumer that comes through WSK and a provider, as tcpip.sys has one: it owns `Dispatch` and
//! `NdkReserved` of every object, so the consumer calls the layer's tables and the provider sees the layer's callbacks
//! and contexts.
//!
//! It adds nothing of its own to what the two say to each other. On the way it looks whether the provider keeps what
//! NDKPI asks of it: words that are no longer its own untouched, a completion exactly once and only after
//! `STATUS_PENDING`, no failing close, no callback after the close, one notification of a queue at a time; and whether
//! the consumer calls at the right level and with objects that are open.

mod callbacks;
mod object;
mod tables;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ndkpi_sys::ndkpi::{NDK_ADAPTER, NDK_OBJECT_HEADER};

use super::NdkAdapter;
use super::object_check::Kind;
use crate::ndis::rule::{Group, broken};
use object::{Family, Object};

/// An adapter and what belongs to it.
struct Open {
    adapter: NdkAdapter,
    family: Arc<Family>,
}

/// Open adapters, by the provider's object.
static ADAPTERS: Mutex<Option<HashMap<usize, Open>>> = Mutex::new(None);

fn adapters() -> MutexGuard<'static, Option<HashMap<usize, Open>>> {
    ADAPTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts the layer in front of an adapter that was opened, and returns what the consumer gets.
pub fn adopt_adapter(adapter: NdkAdapter) -> *mut NDK_ADAPTER {
    let pointer = adapter.as_pointer();
    let family = Arc::new(Family::new(adapter.version()));
    object::adopt(Kind::Adapter, pointer.cast::<NDK_OBJECT_HEADER>(), &family, "WskOpenNdkAdapter");
    adapters().get_or_insert_default().insert(pointer as usize, Open { adapter, family });
    pointer
}

/// Closes an adapter of [`adopt_adapter`]; blocks as the provider's close does.
pub fn close_adapter(pointer: *mut NDK_ADAPTER) {
    let Some(Open { adapter, family }) = adapters().get_or_insert_default().remove(&(pointer as usize)) else {
        broken(Group::Ndk, pointer as usize, "WskCloseNdkAdapter is given what is no open NDK adapter");
    };
    if family.mappings_left() != 0 {
        let rule = format!("WskCloseNdkAdapter: {} logical address mappings are not released", family.mappings_left());
        broken(Group::Ndk, pointer as usize, rule);
    }
    let own = object::take(Kind::Adapter, pointer as usize, "WskCloseNdkAdapter");
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

/// How many adapters are open through the layer.
#[must_use]
pub fn open_adapters() -> usize {
    adapters().as_ref().map_or(0, HashMap::len)
}

/// The object at an address, or the end: the consumer used one that is closed or never was.
fn object_at(kind: Kind, address: usize, function: &str) -> Arc<Object> {
    object::find(kind, address, function)
}
