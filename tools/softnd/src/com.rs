//! Objects that clients hold: a function table, two counts, and a [`Face`], the Rust value behind the methods.
//!
//! Two counts, because `IND2Connector::Release` must return exactly 0 when the client drops its only reference: `clients` is what
//! AddRef and Release count and return; `references` is what keeps the object, one for all clients together and one for each use of
//! it as another method's argument. What objects need of one another they share as [`crate::resources`], not as objects.
//!
//! A face is found again in an interface pointer by QueryInterface with its private identifier: a foreign object does not know it.

use core::{
    ffi::c_void,
    marker::PhantomData,
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence},
};

use alloc::boxed::Box;
use softnd_interfaces::{
    Guid, Status, define,
    unknown::{IUnknown, UnknownTable},
};

use crate::{
    argument::{Given, Place},
    heap::try_box,
};

/// What a class of objects is: its function table, its identifiers.
pub trait Face: Sized + Send + Sync + 'static {
    type Table: 'static;

    const TABLE: &'static Self::Table;

    /// The private identifier.
    const CLASS: Guid;

    /// The interfaces that clients may ask for, beside IUnknown. One table serves all: each extends the one before.
    const INTERFACES: &'static [Guid];
}

#[repr(C)]
struct Object<F: Face> {
    table: *const F::Table,
    clients: AtomicU32,
    references: AtomicU32,
    face: F,
}

/// Objects and locks that keep the DLL loaded.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Whether nothing of the DLL is in use.
pub fn can_unload() -> bool {
    LIVE.load(Ordering::Acquire) == 0
}

/// Keeps the DLL loaded, or not any more, as `IClassFactory::LockServer` asks.
pub fn lock_module(lock: bool) {
    if lock {
        LIVE.fetch_add(1, Ordering::Relaxed);
    } else {
        // One too many of a client must not unload the DLL from under objects.
        let _ = LIVE.fetch_update(Ordering::Release, Ordering::Relaxed, |live| live.checked_sub(1));
    }
}

/// The slots of IUnknown in the table of a class.
pub const fn unknown_table<F: Face>() -> UnknownTable {
    UnknownTable { query_interface: query_interface::<F>, add_ref: add_ref::<F>, release: release::<F> }
}

/// Where a new interface goes, looked at before the object is made.
pub struct NewInterface<F> {
    iid: Guid,
    out: Place<*mut c_void>,
    face: PhantomData<F>,
}

impl<F: Face> NewInterface<F> {
    /// INVALID_PARAMETER where there is no place for the pointer or no identifier; COM_NO_INTERFACE.
    pub fn new(iid: Given<Guid>, out: Place<*mut c_void>) -> Result<Self, Status> {
        out.write(ptr::null_mut())?;
        let iid = iid.get().ok_or(Status::INVALID_PARAMETER)?;
        if iid != IUnknown::IID && !F::INTERFACES.contains(&iid) {
            return Err(Status::COM_NO_INTERFACE);
        }
        Ok(Self { iid, out, face: PhantomData })
    }

    /// For a method that names the interface in its type. INVALID_PARAMETER where there is no place for the pointer.
    pub fn fixed(out: Place<*mut c_void>) -> Result<Self, Status> {
        out.write(ptr::null_mut())?;
        Ok(Self { iid: IUnknown::IID, out, face: PhantomData })
    }

    /// Makes the object and gives the client its only reference. NO_MEMORY.
    pub fn give(self, face: F) -> Result<(), Status> {
        let object = Object { table: F::TABLE, clients: AtomicU32::new(1), references: AtomicU32::new(1), face };
        let object = Box::into_raw(try_box(object)?);
        LIVE.fetch_add(1, Ordering::Relaxed);
        debug_assert!(self.iid == IUnknown::IID || F::INTERFACES.contains(&self.iid));
        self.out.write(object.cast())
    }
}

/// An object in use as an argument.
pub struct Held<F: Face>(NonNull<Object<F>>);

impl<F: Face> Deref for Held<F> {
    type Target = F;

    fn deref(&self) -> &F {
        // SAFETY: the reference that this value has keeps the object.
        unsafe { &self.0.as_ref().face }
    }
}

impl<F: Face> Drop for Held<F> {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's, and it ends.
        unsafe { drop_reference(self.0.as_ptr()) };
    }
}

/// A client's reference that an object holds on the one that it was made from, for as long as it lives. Clients see it in the counts,
/// and some give it up in the place of the object that holds it.
pub struct ClientReference<F: Face>(Held<F>);

// SAFETY: of the object only the counts are used, which are atomic, and its value is dropped, which a face allows on every thread.
unsafe impl<F: Face> Send for ClientReference<F> {}
// SAFETY: as above.
unsafe impl<F: Face> Sync for ClientReference<F> {}

impl<F: Face> ClientReference<F> {
    /// # Safety
    /// `this` is an interface of an object of class `F` that a client holds.
    pub unsafe fn of(this: *mut c_void) -> Option<Self> {
        let this = NonNull::new(this.cast::<Object<F>>())?;
        // SAFETY: the caller's promise.
        let object = unsafe { this.as_ref() };
        object.references.fetch_add(1, Ordering::Relaxed);
        object.clients.fetch_add(1, Ordering::Relaxed);
        Some(Self(Held(this)))
    }
}

impl<F: Face> Drop for ClientReference<F> {
    fn drop(&mut self) {
        // SAFETY: the reference of `self.0` keeps the object.
        let clients = unsafe { &self.0.0.as_ref().clients };
        // Nothing is left of it where the client has released more than it had.
        if clients.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| count.checked_sub(1)) == Ok(1) {
            // SAFETY: the reference of all clients together ends with the last client's.
            unsafe { drop_reference(self.0.0.as_ptr()) };
        }
    }
}

/// The object of class `F` behind an interface pointer.
///
/// # Safety
/// `interface` is null or a live interface of any object.
pub unsafe fn recover<F: Face>(interface: *mut c_void) -> Option<Held<F>> {
    if interface.is_null() {
        return None;
    }
    let mut found = ptr::null_mut();
    let class = F::CLASS;
    // SAFETY: the caller's promise; the identifier and the place are locals.
    let status = unsafe { IUnknown::query_interface(interface.cast(), &raw const class, &raw mut found) };
    // The identifier is private: only `query_interface` below says yes to it, and it has counted a reference.
    if status.is_success() { NonNull::new(found.cast()).map(Held) } else { None }
}

/// The face behind the interface that a method is called through.
///
/// # Safety
/// `this` is an interface of an object of class `F` that lives as long as the result is used.
pub unsafe fn face<'object, F: Face>(this: *mut c_void) -> &'object F {
    // SAFETY: the caller's promise.
    unsafe { &(*this.cast::<Object<F>>()).face }
}

/// # Safety
/// `this` is a live object.
unsafe fn object<'object, F: Face>(this: *mut c_void) -> &'object Object<F> {
    // SAFETY: the caller's promise.
    unsafe { &*this.cast::<Object<F>>() }
}

/// # Safety
/// The caller has a reference and gives it up.
unsafe fn drop_reference<F: Face>(object: *mut Object<F>) {
    // SAFETY: the caller's reference keeps the object.
    let last = unsafe { (*object).references.fetch_sub(1, Ordering::Release) } == 1;
    if last {
        fence(Ordering::Acquire);
        // SAFETY: the last reference is gone; the object was made by a box.
        drop(unsafe { Box::from_raw(object) });
        LIVE.fetch_sub(1, Ordering::Release);
    }
}

define! {
    fn query_interface<F: Face>(this: *mut c_void, iid: *const Guid, out: *mut *mut c_void) -> Status {
        if iid.is_null() || out.is_null() {
            return Status::COM_POINTER;
        }
        // SAFETY: the client's promise: an identifier.
        let iid = unsafe { iid.read_unaligned() };
        // SAFETY: the client calls through a live object of this class.
        let object = unsafe { object::<F>(this) };
        let found = if iid == F::CLASS {
            object.references.fetch_add(1, Ordering::Relaxed);
            this
        } else if iid == IUnknown::IID || F::INTERFACES.contains(&iid) {
            object.clients.fetch_add(1, Ordering::Relaxed);
            this
        } else {
            ptr::null_mut()
        };
        // SAFETY: the client's promise: a place for a pointer.
        unsafe { out.write_unaligned(found) };
        if found.is_null() { Status::COM_NO_INTERFACE } else { Status::SUCCESS }
    }
}

define! {
    fn add_ref<F: Face>(this: *mut c_void) -> u32 {
        // SAFETY: the client calls through a live object of this class.
        unsafe { object::<F>(this) }.clients.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

define! {
    fn release<F: Face>(this: *mut c_void) -> u32 {
        // SAFETY: the client calls through a live object of this class.
        let clients = unsafe { object::<F>(this) }.clients.fetch_sub(1, Ordering::AcqRel).wrapping_sub(1);
        if clients == 0 {
            // SAFETY: the reference of all clients together ends with the last client's.
            unsafe { drop_reference(this.cast::<Object<F>>()) };
        }
        clients
    }
}

// Two conditions: cargo-mutants knows `cfg(test)` only where it stands alone.
#[cfg(test)]
#[cfg(not(windows))]
#[allow(clippy::multiple_unsafe_ops_per_block, reason = "a test's calls through one interface have one reason")]
#[allow(clippy::unused_self, reason = "methods of an interface")]
mod tests {
    use super::*;
    use softnd_interfaces::v2::{IND2MemoryWindow, MemoryWindowTable2};
    use std::sync::{Arc, atomic::AtomicBool};

    use crate::argument::entry;

    /// A window that tells when it is gone.
    struct Watched(Arc<AtomicBool>);

    impl Drop for Watched {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    impl Watched {
        fn token(&self) -> u32 {
            u32::from(!self.0.load(Ordering::SeqCst)) * 7
        }
    }

    impl Face for Watched {
        type Table = MemoryWindowTable2;
        const TABLE: &'static Self::Table =
            &MemoryWindowTable2 { base: unknown_table::<Self>(), get_remote_token: entry!(Watched, token() -> u32) };
        const CLASS: Guid = Guid::new(1);
        const INTERFACES: &'static [Guid] = &[IND2MemoryWindow::IID];
    }

    /// Another class with the same public interface.
    struct Foreign;

    impl Foreign {
        fn token(&self) -> u32 {
            0
        }
    }

    impl Face for Foreign {
        type Table = MemoryWindowTable2;
        const TABLE: &'static Self::Table =
            &MemoryWindowTable2 { base: unknown_table::<Self>(), get_remote_token: entry!(Foreign, token() -> u32) };
        const CLASS: Guid = Guid::new(2);
        const INTERFACES: &'static [Guid] = &[IND2MemoryWindow::IID];
    }

    fn made<F: Face>(face: F) -> *mut c_void {
        let mut out = ptr::null_mut();
        NewInterface::<F>::fixed(Place::local(&mut out)).unwrap().give(face).unwrap();
        out
    }

    // Whether the DLL can be unloaded is looked at by other tests.
    use crate::tests::serial;

    #[test]
    fn release_of_the_only_client_returns_zero_while_an_argument_is_in_use() {
        let _serial = serial();
        let gone = Arc::new(AtomicBool::new(false));
        let window = made(Watched(gone.clone()));
        // SAFETY: the object was made above and is released once by each of its clients.
        unsafe {
            assert_eq!(IUnknown::add_ref(window.cast()), 2);
            assert_eq!(IUnknown::release(window.cast()), 1);
            let held = recover::<Watched>(window).unwrap();
            assert_eq!(IND2MemoryWindow::get_remote_token(window.cast()), 7);
            assert_eq!(IUnknown::release(window.cast()), 0);
            assert!(!gone.load(Ordering::SeqCst));
            assert_eq!(held.token(), 7);
        }
        assert!(gone.load(Ordering::SeqCst));
    }

    #[test]
    fn objects_of_other_classes_are_not_recovered() {
        let _serial = serial();
        let window = made(Foreign);
        // SAFETY: as above.
        unsafe {
            assert!(recover::<Watched>(window).is_none() && recover::<Watched>(ptr::null_mut()).is_none());
            let mut out = window;
            let unknown_interface = Guid::new(9);
            assert_eq!(
                IUnknown::query_interface(window.cast(), &raw const unknown_interface, &raw mut out),
                Status::COM_NO_INTERFACE
            );
            assert!(out.is_null());
            assert_eq!(IUnknown::release(window.cast()), 0);
        }
    }

    #[test]
    fn interfaces_are_looked_at_before_the_object_is_made() {
        let mut out = ptr::dangling_mut();
        let wrong = [Guid::new(9)];
        let made = NewInterface::<Foreign>::new(Given::of_slice(&wrong), Place::local(&mut out));
        assert_eq!(made.err(), Some(Status::COM_NO_INTERFACE));
        assert!(out.is_null());
    }
}
