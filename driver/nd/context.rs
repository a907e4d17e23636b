//! A process as the driver knows it: its files, and the handles they have in common.
//!
//! The context ends with its last file: no handle is given out any more, those on their way are waited for, and every object is closed
//! in the order of [`EndOrder`]. The end of an adapter does the same for its objects only.

use core::sync::atomic::{AtomicBool, Ordering};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_DEVICE_BUSY, STATUS_DEVICE_REMOVED, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_HANDLE,
};
use softndk_cells::{Dispose, Shared};
use softndk_kernel::{pool::NoMemory, spin_lock::SpinLock, thread};

use super::{
    account::{Account, Amounts, Charge},
    handles::{HandleError, HandleTable, Taken},
    object::{Closable, EndOrder, HandleKind, HandleObject},
    request::Call,
};
use crate::{driver::ADAPTER_MAX, tags};

/// Which adapter an open is of, and whether that is going away: no object of it is made then.
pub struct AdapterLife {
    /// In the driver's table.
    pub index: usize,
    gone: AtomicBool,
}

impl AdapterLife {
    pub const fn new(index: usize) -> Self {
        Self { index, gone: AtomicBool::new(false) }
    }

    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

pub struct ProcessContext {
    /// Its own in the table of contexts, by which a second file is bound.
    pub handle: u64,
    /// The process that made it.
    pub process: u32,
    state: SpinLock<ContextState>,
    /// For the context itself.
    _charge: Charge,
}

impl Dispose for ProcessContext {}

struct ContextState {
    handles: HandleTable<HandleObject>,
    files: u32,
    /// Handles whose objects are being made, by adapter.
    reserved: [u32; ADAPTER_MAX],
    /// Opens of adapters that are being made. A halt has waited for them before: they have a reference on their adapter.
    opening: u32,
}

impl ContextState {
    /// The count of reservations for objects of an adapter, or for opens.
    fn reserved(&mut self, adapter: Option<usize>) -> &mut u32 {
        adapter.and_then(|index| self.reserved.get_mut(index)).unwrap_or(&mut self.opening)
    }

    /// Whether objects are being made of an adapter, or at all.
    fn is_reserved(&self, adapter: Option<usize>) -> bool {
        match adapter {
            Some(index) => self.reserved.get(index).is_some_and(|count| *count != 0),
            None => self.opening != 0 || self.reserved.iter().any(|count| *count != 0),
        }
    }
}

fn status_of(error: HandleError) -> NTSTATUS {
    match error {
        HandleError::Invalid => STATUS_INVALID_HANDLE,
        HandleError::Busy => STATUS_DEVICE_BUSY,
        HandleError::NoMemory => STATUS_INSUFFICIENT_RESOURCES,
    }
}

impl ProcessContext {
    /// A context with one file.
    pub fn try_new(handle: u64, process: u32, charge: Charge) -> Result<Shared<Self>, NoMemory> {
        let state = ContextState {
            handles: HandleTable::try_new(tags::ND_HANDLES)?,
            files: 1,
            reserved: [0; ADAPTER_MAX],
            opening: 0,
        };
        Shared::try_new(Self { handle, process, state: SpinLock::new(state), _charge: charge })
    }

    /// One more file; false when the last one is closed already.
    pub fn bind_file(&self) -> bool {
        let mut state = self.state.lock();
        let lives = state.files != 0;
        state.files = state.files.saturating_add(u32::from(lives));
        lives
    }

    /// The object behind a handle.
    pub fn object<T: HandleKind>(&self, handle: u64) -> Result<Shared<T>, NTSTATUS> {
        let state = self.state.lock();
        state.handles.get(handle).and_then(HandleObject::get).cloned().ok_or(STATUS_INVALID_HANDLE)
    }

    /// The object at a place of the table, for those who remember a place and mean no harm by another's object.
    pub fn object_at<T: HandleKind>(&self, place: u32) -> Option<Shared<T>> {
        self.state.lock().handles.at(place).and_then(HandleObject::get).cloned()
    }

    /// Takes an object out that no other is made from.
    pub fn remove<T: HandleKind>(&self, handle: u64) -> Result<Shared<T>, NTSTATUS> {
        let removed = self.state.lock().handles.remove(handle, |object| object.get::<T>().is_some());
        let object = removed.map_err(status_of)?;
        object.get().cloned().ok_or(STATUS_INVALID_HANDLE)
    }

    /// The end of a file: what it has brought, and with the last file everything; whether it was the last. PASSIVE_LEVEL.
    pub fn file_closed(&self, file: u64) -> bool {
        let last = {
            let mut state = self.state.lock();
            state.files = state.files.saturating_sub(1);
            state.files == 0
        };
        if last {
            self.end(STATUS_CANCELLED, None);
        } else {
            self.end_file(file);
        }
        last
    }

    /// The end of one file of several. A process that ends closes them in any order: where memory goes that peers may access, the
    /// connections end first, so that a peer hears of the end and not of a fault of its own.
    fn end_file(&self, file: u64) {
        let mut lends = false;
        self.each_object(&mut |object| lends |= object.lends_memory_of(file));
        if lends {
            self.each_object(&mut |object| object.end_connection());
        }
        self.each_object(&mut |object| object.end_file(file));
    }

    /// Calls `act` for every object that is there all the while. PASSIVE_LEVEL, no lock held meanwhile.
    pub fn each_object(&self, act: &mut dyn FnMut(&dyn Closable)) {
        let mut place = 0;
        loop {
            let object = {
                let state = self.state.lock();
                if place >= state.handles.length() {
                    return;
                }
                state.handles.at(place).cloned()
            };
            if let Some(object) = object.as_ref().and_then(HandleObject::any) {
                act(object);
            }
            place = place.saturating_add(1);
        }
    }

    /// An adapter is going away. PASSIVE_LEVEL.
    pub fn end_adapter(&self, index: usize) {
        // No object of the adapter is made from here on.
        self.each_object(&mut |object| {
            if object.adapter().index == index {
                object.adapter().mark_gone();
            }
        });
        self.end(STATUS_DEVICE_REMOVED, Some(index));
    }

    /// Closes the objects of an adapter, or all.
    fn end(&self, status: NTSTATUS, adapter: Option<usize>) {
        while self.state.lock().is_reserved(adapter) {
            thread::pause();
        }
        let is_of = |object: &HandleObject, index| object.any().is_some_and(|object| object.adapter().index == index);
        let fits = |object: &HandleObject| adapter.is_none_or(|index| is_of(object, index));
        for order in EndOrder::ALL {
            let mut from = 0;
            loop {
                let taken =
                    self.state.lock().handles.take(&mut from, |object| object.order() == *order && fits(object));
                match taken {
                    Taken::Object(object) => object.any().into_iter().for_each(|object| object.close(status)),
                    Taken::NotYet => {}
                    Taken::None => break,
                }
            }
        }
    }
}

/// A handle whose object is being made; given back unless it gets one.
pub struct HandleReservation {
    context: Shared<ProcessContext>,
    handle: u64,
    /// That the object is of; none for an open.
    adapter: Option<usize>,
    kept: bool,
    /// For the object.
    charge: Option<Charge>,
}

impl HandleReservation {
    /// A handle for an object made from others, of an adapter if there is one already.
    pub fn try_new(call: &Call, parents: &[u64], adapter: Option<&AdapterLife>) -> Result<Self, NTSTATUS> {
        let charge = Account::charge(call.file.account(), Amounts::OBJECT)?;
        let context = &call.context;
        let mut state = context.state.lock();
        if state.files == 0 || adapter.is_some_and(AdapterLife::is_gone) {
            return Err(STATUS_DEVICE_REMOVED);
        }
        let handle = state.handles.reserve(parents).map_err(status_of)?;
        let adapter = adapter.map(|adapter| adapter.index);
        let reserved = state.reserved(adapter);
        *reserved = reserved.saturating_add(1);
        drop(state);
        Ok(Self { context: context.clone(), handle, adapter, kept: false, charge: Some(charge) })
    }

    /// What the process is charged for the object, which keeps it.
    pub fn charge(&mut self) -> Option<Charge> {
        self.charge.take()
    }

    /// The place of the handle, see [`ProcessContext::object_at`].
    pub fn place(&self) -> u32 {
        HandleTable::<HandleObject>::place(self.handle)
    }

    /// Gives the handle its object.
    pub fn fill(mut self, object: impl Into<HandleObject>) -> u64 {
        self.kept = true;
        let mut state = self.context.state.lock();
        state.handles.fill(self.handle, object.into());
        let reserved = state.reserved(self.adapter);
        *reserved = reserved.saturating_sub(1);
        self.handle
    }
}

impl Drop for HandleReservation {
    fn drop(&mut self) {
        if !self.kept {
            let mut state = self.context.state.lock();
            let none = state.handles.clear(self.handle);
            let reserved = state.reserved(self.adapter);
            *reserved = reserved.saturating_sub(1);
            drop(state);
            drop(none);
        }
    }
}
