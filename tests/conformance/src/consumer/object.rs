//! A provider's object as a consumer holds it. It does what the mediating layer of Windows does: it keeps the table, replaces
//! `Dispatch` by an address that must not be called, and uses the reserved fields. A provider that reads the one or writes the
//! others fails the trial.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use kernel_host::callout::{Context, ContextKind};
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{GUID, NTSTATUS};

use super::completion::{Started, begin_close};
use super::refusals::call_provider;

/// The value of `Dispatch` while the consumer has the object: not canonical, so that following it is a fault.
const FOREIGN_TABLE: usize = 0xDEAD_0000_7AB1_E000;
/// The value of the reserved fields.
const FOREIGN_WORD: usize = 0x5A5A_0000_0BAD_F00D;

/// The kinds of object, with their tables.
pub trait NdkObject {
    type Table;
    const KIND: NDK_OBJECT_TYPE;
    const NAME: &'static str;
}

macro_rules! objects {
    ($($Object:ident, $Table:ident, $Kind:ident;)*) => {$(
        impl NdkObject for $Object {
            type Table = $Table;
            const KIND: NDK_OBJECT_TYPE = $Kind;
            const NAME: &'static str = stringify!($Object);
        }
    )*};
}

objects! {
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NdkObjectTypeAdapter;
    NDK_CQ, NDK_CQ_DISPATCH, NdkObjectTypeCq;
    NDK_PD, NDK_PD_DISPATCH, NdkObjectTypePd;
    NDK_MR, NDK_MR_DISPATCH, NdkObjectTypeMr;
    NDK_MW, NDK_MW_DISPATCH, NdkObjectTypeMw;
    NDK_SRQ, NDK_SRQ_DISPATCH, NdkObjectTypeSrq;
    NDK_QP, NDK_QP_DISPATCH, NdkObjectTypeQp;
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NdkObjectTypeConnector;
    NDK_LISTENER, NDK_LISTENER_DISPATCH, NdkObjectTypeListener;
    NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NdkObjectTypeSharedEndpoint;
}

/// An object handed out by the provider and not yet closed.
pub struct Object<T: NdkObject> {
    pointer: *mut T,
    table: *const T::Table,
    version: NDK_VERSION,
    open: Cell<bool>,
}

// SAFETY: NDK objects may be used from any thread; what the contract serialises, the tests serialise.
unsafe impl<T: NdkObject> Send for Object<T> {}
// SAFETY: as above; `open` is only touched by the thread that closes.
unsafe impl<T: NdkObject> Sync for Object<T> {}

impl<T: NdkObject> Object<T> {
    /// Takes an object over from the provider: checks it as the system would, then puts the system's marks in.
    pub fn adopt(pointer: *mut T, version: NDK_VERSION) -> Self {
        let header = pointer.cast::<NDK_OBJECT_HEADER>();
        // SAFETY: every NDK object begins with the header.
        let seen = unsafe { *header };
        assert_eq!(seen.ObjectType, T::KIND, "{} carries the wrong type", T::NAME);
        assert_eq!(seen.Version, version, "{} carries the wrong version", T::NAME);
        assert!(seen.NdkReserved.rf.iter().all(|word| word.is_null()), "{}: reserved block not zero", T::NAME);
        // SAFETY: behind the header of every object stands its dispatch pointer.
        let slot = unsafe { header.add(1) }.cast::<*const T::Table>();
        // SAFETY: as above.
        let table = unsafe { slot.read() };
        assert!(!table.is_null(), "{} has no dispatch table", T::NAME);
        let object = Self { pointer, table, version, open: Cell::new(true) };
        for index in 0..size_of::<T::Table>() / size_of::<usize>() {
            assert!(object.slot(index) != 0, "{}: slot {index} of its table is empty", T::NAME);
        }
        // SAFETY: the consumer's side owns `Dispatch` and the reserved block from now on.
        unsafe { slot.write(FOREIGN_TABLE as *const T::Table) };
        // SAFETY: as above.
        unsafe { (*header).NdkReserved.rf = [FOREIGN_WORD as *mut c_void; 4] };
        object
    }

    pub fn pointer(&self) -> *mut T {
        assert!(self.open.get(), "{} is used after it was closed", T::NAME);
        self.pointer
    }

    pub fn version(&self) -> NDK_VERSION {
        self.version
    }

    /// The table, for calls.
    pub fn table(&self) -> &T::Table {
        // SAFETY: tables are constant data of the image and every slot was checked.
        unsafe { &*self.table }
    }

    fn slot(&self, index: usize) -> usize {
        // SAFETY: the index is inside the table.
        unsafe { self.table.cast::<usize>().add(index).read() }
    }

    /// Asks for an extension that no provider has; slot 1 in every table but the adapter's, where it is slot 0.
    pub fn query_unknown_extension(&self) -> NTSTATUS {
        let index = usize::from(T::KIND != NdkObjectTypeAdapter);
        let mut identifier = GUID::from_u128(0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF);
        let mut interface = NDK_EXTENSION_INTERFACE::zeroed();
        let context = Context::new(ContextKind::DispatchFunction, "NDK_FN_QUERY_EXTENSION_INTERFACE");
        // SAFETY: the slot holds a function of this type; a version is passed by value in four bytes.
        unsafe {
            call_provider!(context, self.slot(index) => NTSTATUS;
                self.pointer(), &raw mut identifier, 1_u32, &raw mut interface)
        }
    }

    /// Starts closing; slot 0 of every table but the adapter's. Nothing may be asked of the object afterwards.
    pub fn begin_close(&self) -> Started {
        let pointer = self.pointer();
        // SAFETY: the object is open.
        let reserved = unsafe { (*pointer.cast::<NDK_OBJECT_HEADER>()).NdkReserved };
        let untouched = reserved.rf.iter().all(|word| word.addr() == FOREIGN_WORD);
        assert!(untouched, "{}: the provider wrote the reserved block", T::NAME);
        // SAFETY: behind the header of every object stands its dispatch pointer.
        let dispatch = unsafe { pointer.cast::<NDK_OBJECT_HEADER>().add(1).cast::<usize>().read() };
        assert!(dispatch == FOREIGN_TABLE, "{}: the provider wrote Dispatch", T::NAME);
        self.open.set(false);
        begin_close(T::NAME, |callback, context| {
            let kind = Context::new(ContextKind::DispatchFunction, "NDK_FN_CLOSE_OBJECT");
            // SAFETY: the slot holds a function of this type.
            unsafe { call_provider!(kind, self.slot(0) => NTSTATUS; pointer, callback, context) }
        })
    }

    /// Closes and waits.
    pub fn close(&self) {
        self.begin_close().wait();
    }

    pub fn is_open(&self) -> bool {
        self.open.get()
    }
}

impl<T: NdkObject> Drop for Object<T> {
    fn drop(&mut self) {
        if self.open.get() && !std::thread::panicking() {
            self.close();
        }
    }
}

impl<T: NdkObject> std::fmt::Debug for Object<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} at {:p}", T::NAME, ptr::from_ref(&self.pointer))
    }
}

/// The context of one call of a dispatch-table function.
pub const fn function(name: &'static str) -> Context {
    Context::new(ContextKind::DispatchFunction, name)
}
