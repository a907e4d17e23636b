//! What all objects behind handles have in common: how they are kept, named, closed.
//!
//! An object is made in three steps: a handle is reserved, the object's block is made, the engine makes its own object, which keeps the
//! block. A failure in between undoes what there is. Its close ends every request that pends on it and closes the engine's object,
//! which gives the block back when nothing of it is under way any more.

use core::{cell::UnsafeCell, ffi::c_void, ptr};

use ndkpi_sys::nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_INTERNAL_ERROR};
use softndk_cells::{Dispose, Erased, NoMemory, Shared, View};
use softndk_engine::{Close, CloseCompletion};
use softndk_kernel::spin_lock::SpinLock;

use super::{
    account::Charge,
    adapter::{Domain, OpenedAdapter},
    completion_queue::CompletionQueue,
    connector::Connector,
    context::HandleReservation,
    listener::Listener,
    memory_region::MemoryRegion,
    memory_window::MemoryWindow,
    pending::Owner,
    queue_pair::QueuePair,
    shared_receive_queue::SharedReceiveQueue,
};
use crate::{
    ndk::{
        consumer_object::{self, CloseCallback},
        kind::ConsumerObject,
    },
    platform::{KernelPlatform, UserModeObject},
};

/// The engine's object in a block of this front end: there once the object is made.
pub struct Made<T> {
    engine: UnsafeCell<Option<T>>,
    /// What the process is charged for both.
    charge: SpinLock<Option<Charge>>,
}

// SAFETY: written once, before the object is known to another context (`set`).
unsafe impl<T: Send + Sync> Sync for Made<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for Made<T> {}

impl<T> Made<T> {
    /// None yet, for a handle that is reserved.
    pub fn none(reservation: &mut HandleReservation) -> Self {
        Self { engine: UnsafeCell::new(None), charge: SpinLock::new(reservation.charge()) }
    }

    /// Charges the process for the queues of the object, so many bytes of pool, before they are made or made longer.
    pub fn charge_pool(&self, bytes: u64) -> Result<(), NTSTATUS> {
        self.charge.lock().as_mut().map_or(Ok(()), |charge| charge.add_pool_up_to(bytes))
    }

    /// # Safety
    /// No other context uses the object yet, and this is called once.
    pub unsafe fn set(&self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { *self.engine.get() = Some(value) };
    }

    pub fn get(&self) -> Result<&T, NTSTATUS> {
        // SAFETY: not written any more (`set`).
        unsafe { (*self.engine.get()).as_ref() }.ok_or(STATUS_INTERNAL_ERROR)
    }
}

/// What an object is asked for where its kind does not matter.
pub trait Closable: UserModeObject {
    /// Ends everything of it: its pended requests end with this status. PASSIVE_LEVEL, no lock held, once.
    fn close(&self, status: NTSTATUS);

    /// Ends what a file that is closed has brought. PASSIVE_LEVEL, no lock held.
    fn end_file(&self, file: u64);

    /// Whether peers may access memory that this file has brought.
    fn lends_memory_of(&self, _file: u64) -> bool {
        false
    }

    /// Ends a connection whose memory is about to go. PASSIVE_LEVEL, no lock held.
    fn end_connection(&self) {}

    /// The adapter it belongs to.
    fn adapter(&self) -> &Shared<OpenedAdapter>;
}

/// A kind of objects.
pub trait HandleKind: Dispose + Send + Sync {
    /// The object behind a handle, if it is of this kind.
    fn of(object: &HandleObject) -> Option<&Shared<Self>>;
}

macro_rules! kinds {
    ($($HandleKind:ident,)+) => {
        /// What a handle names. The order is that in which the objects of a process end.
        #[derive(Clone)]
        pub enum HandleObject {
            $($HandleKind(Shared<$HandleKind>),)+
        }

        impl HandleObject {
            fn any(&self) -> &dyn Closable {
                match self {
                    $(Self::$HandleKind(object) => object,)+
                }
            }
        }

        $(
            impl Dispose for $HandleKind {}

            impl View for $HandleKind {
                type As = dyn UserModeObject;

                fn view(object: &Shared<Self>) -> &Self::As {
                    object
                }
            }

            impl HandleKind for $HandleKind {
                fn of(object: &HandleObject) -> Option<&Shared<Self>> {
                    match object {
                        HandleObject::$HandleKind(object) => Some(object),
                        _ => None,
                    }
                }
            }

            impl From<Shared<$HandleKind>> for HandleObject {
                fn from(object: Shared<$HandleKind>) -> Self {
                    Self::$HandleKind(object)
                }
            }
        )+

        /// Whether an object is of the kind whose turn it is.
        pub const TURNS: &[fn(&HandleObject) -> bool] = &[$(|object| matches!(object, HandleObject::$HandleKind(_)),)+];
    };
}

kinds! {
    Connector, Listener, MemoryWindow, QueuePair, SharedReceiveQueue, MemoryRegion, Domain, CompletionQueue, OpenedAdapter,
}

impl HandleObject {
    pub fn close(&self, status: NTSTATUS) {
        self.any().close(status);
    }

    pub fn end_file(&self, file: u64) {
        self.any().end_file(file);
    }

    pub fn lends_memory_of(&self, file: u64) -> bool {
        self.any().lends_memory_of(file)
    }

    pub fn end_connection(&self) {
        self.any().end_connection();
    }

    pub fn adapter(&self) -> &Shared<OpenedAdapter> {
        self.any().adapter()
    }
}

/// A block for an object.
pub fn block<T: Dispose>(value: T) -> Result<Shared<T>, NTSTATUS> {
    Shared::try_new(value).map_err(no_memory)
}

pub fn no_memory(_: NoMemory) -> NTSTATUS {
    STATUS_INSUFFICIENT_RESOURCES
}

/// What the engine keeps while its object lives.
pub fn kept<T: View<As = dyn UserModeObject>>(object: &Shared<T>) -> ConsumerObject {
    ConsumerObject::UserMode(Erased::of(object))
}

/// The owner of a request that pends on an object.
pub fn owner<T: View<As = dyn UserModeObject>>(object: &Shared<T>) -> Owner {
    Erased::of(object)
}

/// The address by which a callback finds its object, which the engine keeps as long as it may call.
pub fn context<T: Dispose>(object: &Shared<T>) -> *mut c_void {
    let place: *const T = ptr::from_ref(&**object);
    place.cast_mut().cast()
}

/// For closes that nothing waits for.
pub fn no_callback() -> CloseCallback {
    // SAFETY: there is no function to call.
    unsafe { CloseCallback::new(None, ptr::null_mut()) }
}

/// What a close leaves to do: unmapping memory, dropping the block.
pub fn finish(close: Close<KernelPlatform>) {
    if let Close::Done(object) = close {
        consumer_object::closed(CloseCompletion { callback: no_callback(), object });
    }
}
