//! What clients pass to methods, as types that safe code may use.
//!
//! [`entry!`] makes the function for a table from a safe method whose parameters are of these types. The contract, for every
//! argument: a pointer is null, or as good as the interface says for as long as it says; a client that breaks this breaks its own
//! process. Memory is read and written by address: the client's other threads may change it meanwhile.

use core::{ffi::c_void, ptr::NonNull};

use softnd_interfaces::{Status, structures::Overlapped};

use crate::com::{self, ClientReference, Face, Held};

/// A parameter: how it comes, and what it is made into.
pub trait Argument {
    type Raw;

    /// # Safety
    /// `raw` is what the contract of the module says.
    unsafe fn of(raw: Self::Raw) -> Self;
}

/// A result of a method: what goes back.
pub trait Answer {
    type Raw;

    fn raw(self) -> Self::Raw;
}

impl Answer for Result<(), Status> {
    type Raw = Status;

    fn raw(self) -> Status {
        self.err().unwrap_or(Status::SUCCESS)
    }
}

/// Numbers go as they are, in and out.
macro_rules! plain {
    ($($Type:ty),*) => { $(
        impl Argument for $Type {
            type Raw = Self;

            unsafe fn of(raw: Self) -> Self {
                raw
            }
        }

        impl Answer for $Type {
            type Raw = Self;

            fn raw(self) -> Self {
                self
            }
        }
    )* };
}
plain!(u16, u32, u64, usize, i32, (), Status, *mut c_void);

/// Where a value goes, or comes from and goes to. May be null.
pub struct Place<T>(*mut T);

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T> Argument for Place<T> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Self {
        Self(raw)
    }
}

impl<T: Copy> Place<T> {
    /// A place that is none.
    pub const NONE: Self = Self(core::ptr::null_mut());

    /// A place of the test's own.
    #[cfg(test)]
    pub fn local(value: &mut T) -> Self {
        Self(value)
    }

    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// The same place for another type.
    #[cfg(test)]
    pub fn cast<U>(self) -> Place<U> {
        Place(self.0.cast())
    }

    pub fn read(self) -> Option<T> {
        // SAFETY: the contract of the module; clients need not align.
        (!self.is_none()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// INVALID_PARAMETER when there is no place.
    #[must_use = "a place may be none"]
    pub fn write(self, value: T) -> Result<(), Status> {
        if self.is_none() {
            return Err(Status::INVALID_PARAMETER);
        }
        // SAFETY: the contract of the module.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes a value if there is a place for it.
    pub fn offer(self, value: T) {
        let _ = self.write(value);
    }

    /// The place `index` values further, of a list of places.
    pub fn at(self, index: usize) -> Self {
        Self(if self.is_none() { self.0 } else { self.0.wrapping_add(index) })
    }

    /// The address as a number, by which a request is known.
    pub fn number(self) -> u64 {
        self.0 as u64
    }

    /// The place with this number, see [`Place::number`].
    ///
    /// # Safety
    /// As of an argument: the client keeps the place until it has the request back.
    pub unsafe fn with_number(number: u64) -> Self {
        Self(number as *mut T)
    }
}

/// One value, or several, that the client gives. May be null.
pub struct Given<T>(*const T);

impl<T> Clone for Given<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Given<T> {}

impl<T> Argument for Given<T> {
    type Raw = *const T;

    unsafe fn of(raw: *const T) -> Self {
        Self(raw)
    }
}

impl<T: Copy> Given<T> {
    /// No value.
    pub const NONE: Self = Self(core::ptr::null());

    pub fn get(self) -> Option<T> {
        // SAFETY: the contract of the module; clients need not align.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The first `count` values of a list, each read when the iterator comes to it; none when there is no list.
    pub fn list(self, count: usize) -> impl Iterator<Item = T> + Clone {
        let count = if self.0.is_null() { 0 } else { count };
        // SAFETY: the contract of the module: a list is as long as its count says.
        (0..count).map(move |index| unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// A list of the crate's own. It has to outlive the value.
    pub fn of_slice(slice: &[T]) -> Self {
        Self(slice.as_ptr())
    }
}

/// Memory of the client's: an address that is passed on, or bytes to read. May be null.
#[derive(Clone, Copy)]
pub struct Bytes(*const c_void);

impl Argument for Bytes {
    type Raw = *const c_void;

    unsafe fn of(raw: *const c_void) -> Self {
        Self(raw)
    }
}

impl Bytes {
    /// The client's memory of an SGE whose bytes are copied during the call.
    ///
    /// # Safety
    /// As of an argument.
    pub unsafe fn at(address: *const c_void) -> Self {
        Self(address)
    }

    pub fn address(self) -> u64 {
        self.0 as u64
    }

    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// Copies the first bytes; false, with nothing written, when there is no memory and there should be.
    pub fn copy_to(self, target: &mut [u8]) -> bool {
        if target.is_empty() {
            return true;
        }
        if self.is_none() {
            return false;
        }
        // SAFETY: the contract of the module: as long as the client has said; the target is the crate's own.
        unsafe { target.as_mut_ptr().copy_from_nonoverlapping(self.0.cast(), target.len()) };
        true
    }
}

/// Memory that the client gives for an answer of some bytes. May be null.
#[derive(Clone, Copy)]
pub struct Target(*mut c_void);

impl Argument for Target {
    type Raw = *mut c_void;

    unsafe fn of(raw: *mut c_void) -> Self {
        Self(raw)
    }
}

impl Target {
    /// The memory that begins with a structure, whatever follows it.
    pub fn of_place<T>(place: Place<T>) -> Self {
        Self(place.0.cast())
    }

    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    pub fn address(self) -> *mut c_void {
        self.0
    }

    /// Writes bytes to its beginning, when there is memory. The caller has compared with the client's length.
    pub fn write(self, bytes: &[u8]) {
        self.write_at(0, bytes);
    }

    /// As [`Target::write`], from an offset on.
    pub fn write_at(self, offset: usize, bytes: &[u8]) {
        if self.is_none() {
            return;
        }
        // SAFETY: the contract of the module: the offset lies within the client's memory.
        let start = unsafe { self.0.cast::<u8>().add(offset) };
        // SAFETY: as above, and so does the end.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

/// The client's OVERLAPPED. May be null.
#[derive(Clone, Copy)]
pub struct Overlap(*mut Overlapped);

impl Argument for Overlap {
    type Raw = *mut Overlapped;

    unsafe fn of(raw: *mut Overlapped) -> Self {
        Self(raw)
    }
}

impl Overlap {
    pub fn pointer(self) -> Option<NonNull<Overlapped>> {
        NonNull::new(self.0)
    }
}

/// Another object, as the client passes it. May be null, or an object of another class or provider.
#[derive(Clone, Copy)]
pub struct Unknown(*mut c_void);

impl Argument for Unknown {
    type Raw = *mut c_void;

    unsafe fn of(raw: *mut c_void) -> Self {
        Self(raw)
    }
}

impl Unknown {
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// The object, if it is of this class of this provider.
    pub fn recover<F: Face>(self) -> Option<Held<F>> {
        // SAFETY: the contract of the module: an interface or null.
        unsafe { com::recover(self.0) }
    }
}

/// A number of the client's that is only given back.
#[derive(Clone, Copy)]
pub struct Context(*mut c_void);

impl Argument for Context {
    type Raw = *mut c_void;

    unsafe fn of(raw: *mut c_void) -> Self {
        Self(raw)
    }
}

impl Context {
    pub fn number(self) -> u64 {
        self.0 as u64
    }
}

/// The object that a method is called through, for methods whose result holds a reference of it.
pub struct Own<F: Face>(*mut c_void, core::marker::PhantomData<F>);

impl<F: Face> Own<F> {
    /// # Safety
    /// As of an argument: the interface that the client calls through.
    pub unsafe fn of(this: *mut c_void) -> Self {
        Self(this, core::marker::PhantomData)
    }

    /// A client's reference of it.
    pub fn reference(&self) -> Result<ClientReference<F>, Status> {
        // SAFETY: the contract of the module: the client holds what it calls through.
        unsafe { ClientReference::of(self.0) }.ok_or(Status::INTERNAL_ERROR)
    }
}

/// The function of a table for a safe method: `entry!(V2QueuePair, send(context: Context, flags: u32) -> Result<(), Status>)`. A method
/// that makes an object which holds a reference of its own gets that first: `entry!(V2Provider, Own, open_adapter(…) -> …)`.
macro_rules! entry {
    ($Face:ty, Own, $method:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty) => {{
        softnd_interfaces::define! {
            fn entry(
                this: *mut core::ffi::c_void,
                $($argument: <$Type as $crate::argument::Argument>::Raw),*
            ) -> <$Result as $crate::argument::Answer>::Raw {
                // SAFETY: the client calls through the table of an object of this class, which is alive.
                let face = unsafe { $crate::com::face::<$Face>(this) };
                // SAFETY: as above.
                let own = unsafe { $crate::argument::Own::<$Face>::of(this) };
                $(
                    // SAFETY: the client's promise, see the module of arguments.
                    let $argument = unsafe { <$Type as $crate::argument::Argument>::of($argument) };
                )*
                let result: $Result = face.$method(&own, $($argument),*);
                $crate::argument::Answer::raw(result)
            }
        }
        entry
    }};
    ($Face:ty, $method:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty) => {{
        softnd_interfaces::define! {
            fn entry(
                this: *mut core::ffi::c_void,
                $($argument: <$Type as $crate::argument::Argument>::Raw),*
            ) -> <$Result as $crate::argument::Answer>::Raw {
                // SAFETY: the client calls through the table of an object of this class, which is alive.
                let face = unsafe { $crate::com::face::<$Face>(this) };
                $(
                    // SAFETY: the client's promise, see the module of arguments.
                    let $argument = unsafe { <$Type as $crate::argument::Argument>::of($argument) };
                )*
                let result: $Result = face.$method($($argument),*);
                $crate::argument::Answer::raw(result)
            }
        }
        entry
    }};
}
pub(crate) use entry;
