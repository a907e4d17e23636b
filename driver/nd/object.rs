//! What all objects behind handles have in common: how they are kept, named, closed.
//!
//! An object is made in three steps: a handle is reserved, the object's block is made, the engine makes its own object, which keeps the
//! block. A failure in between undoes what there is. Its close ends every request that pends on it and closes the engine's object,
//! which gives the block back when nothing of it is under way any more.

use core::{any::Any, cell::UnsafeCell, ffi::c_void, marker::PhantomData, ptr};

use ndkpi_sys::nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_INTERNAL_ERROR};
use softndk_cells::{Dispose, Erased, NoMemory, Shared, View};
use softndk_engine::{Close, CloseCompletion};
use softndk_kernel::spin_lock::SpinLock;

use super::{
    account::Charge,
    context::{AdapterLife, HandleReservation},
    endpoint::Endpoint,
    pending::Owner,
};
use crate::runtime::{
    completion,
    platform::{CloseCallback, ConsumerObject, KernelPlatform, UserModeObject},
};

/// The engine's object in a block of this front end: there once the object is made.
pub struct EngineHandle<T> {
    engine: UnsafeCell<Option<T>>,
    /// What the process is charged for both.
    charge: SpinLock<Option<Charge>>,
}

// SAFETY: written once, before the object is known to another context (`set`).
unsafe impl<T: Send + Sync> Sync for EngineHandle<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for EngineHandle<T> {}

impl<T> EngineHandle<T> {
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
    fn adapter(&self) -> &AdapterLife;

    /// The local address that it is bound to, and whether it listens there.
    fn bound_to(&self) -> Option<(Shared<Endpoint>, bool)> {
        None
    }
}

/// Declares the order in which the objects of a process end.
macro_rules! end_order {
    ($($Kind:ident,)+) => {
        /// A kind of objects, and when those of an ending process are closed.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum EndOrder {
            $($Kind,)+
        }

        impl EndOrder {
            pub const ALL: &[Self] = &[$(Self::$Kind,)+];
        }
    };
}

end_order! {
    Connector, Listener, MemoryWindow, QueuePair, SharedReceiveQueue, MemoryRegion, Domain, CompletionQueue, OpenedAdapter,
}

/// A kind of objects behind handles.
pub trait HandleKind: View<As = dyn UserModeObject> {
    const ORDER: EndOrder;

    fn closable(object: &Shared<Self>) -> &dyn Closable;
}

/// Makes the type of a file a kind of objects behind handles; its [`EndOrder`] has the same name.
macro_rules! handle_kind {
    ($Kind:ident) => {
        impl softndk_cells::Dispose for $Kind {}

        impl softndk_cells::View for $Kind {
            type As = dyn $crate::runtime::platform::UserModeObject;

            fn view(object: &softndk_cells::Shared<Self>) -> &Self::As {
                object
            }
        }

        impl $crate::nd::object::HandleKind for $Kind {
            const ORDER: $crate::nd::object::EndOrder = $crate::nd::object::EndOrder::$Kind;

            fn closable(object: &softndk_cells::Shared<Self>) -> &dyn $crate::nd::object::Closable {
                object
            }
        }
    };
}
pub(crate) use handle_kind;

/// What a handle names. Only the file of its kind knows its type.
#[derive(Clone)]
pub struct HandleObject {
    object: Erased<dyn UserModeObject>,
    kind: &'static KindTable,
}

struct KindTable {
    order: EndOrder,
    closable: fn(&HandleObject) -> Option<&dyn Closable>,
}

/// Places a table in a static of its own for each kind.
struct TableOf<T>(PhantomData<T>);

impl<T: HandleKind> TableOf<T> {
    const TABLE: &'static KindTable =
        &KindTable { order: T::ORDER, closable: |object| object.get::<T>().map(T::closable) };
}

impl<T: HandleKind> From<Shared<T>> for HandleObject {
    fn from(object: Shared<T>) -> Self {
        Self { object: object.into(), kind: TableOf::<T>::TABLE }
    }
}

impl HandleObject {
    /// The object, if it is of this kind.
    pub fn get<T: HandleKind>(&self) -> Option<&Shared<T>> {
        let object: &dyn Any = &*self.object;
        object.downcast_ref()
    }

    pub fn order(&self) -> EndOrder {
        self.kind.order
    }

    /// The object as one of any kind; always there.
    pub fn any(&self) -> Option<&dyn Closable> {
        (self.kind.closable)(self)
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
pub fn consumer_object<T: View<As = dyn UserModeObject>>(object: &Shared<T>) -> ConsumerObject {
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
        completion::closed(CloseCompletion { callback: no_callback(), object });
    }
}
