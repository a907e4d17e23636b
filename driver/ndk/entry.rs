//! What a consumer passes to a dispatch function, as types that safe code may use.
//!
//! A dispatch function is a safe function of these arguments. [`entry!`] makes the `extern "C"` function for the table from it,
//! with the parameters of the prototype in `ndkpi-sys`; parameters that belong together, such as a list and its count, are one
//! argument. What is null is found out by the `get` of each argument, so that the function refuses it with its own name.
//!
//! The contract, for every argument. NDKPI: a consumer passes what the prototype says. An object is null, or one of this
//! provider, of the prototype's kind, that is not closed while the call runs. Memory is null, or as large as its count or length
//! says and valid until the call returns; where it answers STATUS_PENDING, lists of pages (MDLs) and the place of a logical
//! mapping until the completion. The consumer may write it meanwhile: it is read and written by address, an entry of a list
//! once. Private data alone is lent as bytes, which the prototype has the consumer leave alone.

use core::{ffi::c_void, marker::PhantomData, ptr::NonNull, slice};

use ndkpi_sys::{
    ndkpi::{NDK_FN_CREATE_COMPLETION, NDK_LOGICAL_ADDRESS, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_SGE},
    nt::{GROUP_AFFINITY, MDL, PVOID, SIZE_T, ULONG},
};
use softndk_engine::{ConnectError, Pages, ReadLimits, limits::PRIVATE_DATA};
use softndk_kernel::{copy, irql};

use super::{consumer_object::Object, kind::Kind};
use crate::runtime::{errors::MappingError, memory::Chain, platform::Callback, refusal::Refusal};

/// The function of a dispatch table for a safe function of this module. The parameters are those of the prototype; those in
/// brackets are one argument: `entry!(send(*mut NDK_QP, PVOID, [*const NDK_SGE, ULONG], NDK_OP_FLAGS) -> NTSTATUS)`.
macro_rules! entry {
    ($function:ident($($parameters:tt)*) $(-> $Result:ty)?) => {
        entry!(@take $function, ($($Result)?), [], []; $($parameters)*)
    };
    (@take $function:ident, $result:tt, $names:tt, $arguments:tt; [$A:ty, $B:ty] $(, $($rest:tt)*)?) => {
        entry!(@named $function, $result, $names, $arguments, [(a: $A) (b: $B)], ((a, b)); $($($rest)*)?)
    };
    (@take $function:ident, $result:tt, $names:tt, $arguments:tt; [$A:ty, $B:ty, $C:ty] $(, $($rest:tt)*)?) => {
        entry!(@named $function, $result, $names, $arguments, [(a: $A) (b: $B) (c: $C)], ((a, b, c)); $($($rest)*)?)
    };
    (
        @take $function:ident, $result:tt, $names:tt, $arguments:tt;
        [$A:ty, $B:ty, $C:ty, $D:ty] $(, $($rest:tt)*)?
    ) => {
        entry!(
            @named $function, $result, $names, $arguments,
            [(a: $A) (b: $B) (c: $C) (d: $D)], ((a, b, c, d)); $($($rest)*)?
        )
    };
    (
        @take $function:ident, $result:tt, $names:tt, $arguments:tt;
        [$A:ty, $B:ty, $C:ty, $D:ty, $E:ty, $F:ty] $(, $($rest:tt)*)?
    ) => {
        entry!(
            @named $function, $result, $names, $arguments,
            [(a: $A) (b: $B) (c: $C) (d: $D) (e: $E) (f: $F)], ((a, b, c, d, e, f)); $($($rest)*)?
        )
    };
    (@take $function:ident, $result:tt, $names:tt, $arguments:tt; $A:ty $(, $($rest:tt)*)?) => {
        entry!(@named $function, $result, $names, $arguments, [(a: $A)], (a); $($($rest)*)?)
    };
    (
        @named $function:ident, $result:tt, [$($names:tt)*], [$($arguments:tt)*],
        [$($name:tt)*], $argument:tt; $($rest:tt)*
    ) => {
        entry!(@take $function, $result, [$($names)* $($name)*], [$($arguments)* $argument]; $($rest)*)
    };
    (@take $function:ident, ($($Result:ty)?), [$(($name:ident: $Raw:ty))*], [$($argument:tt)*];) => {{
        unsafe extern "C" fn $function($($name: $Raw),*) $(-> $Result)? {
            self::$function($({
                // SAFETY: what the consumer passes for these parameters, taken for the length of the call.
                unsafe { $crate::ndk::entry::Argument::take $argument }
            }),*)
        }
        $function
    }};
}
pub(super) use entry;

/// An argument of a dispatch function, made of the parameters `Raw` of its prototype.
pub trait Argument<Raw>: Sized {
    /// # Safety
    /// `raw` is what a consumer passes in a call (see the module) that lasts as long as the lifetime of `Self`.
    unsafe fn take(raw: Raw) -> Self;
}

/// Numbers, flags and words that are given back as they came.
impl<T> Argument<T> for T {
    unsafe fn take(raw: T) -> T {
        raw
    }
}

impl Argument<(ULONG, ULONG)> for ReadLimits {
    unsafe fn take((inbound, outbound): (ULONG, ULONG)) -> Self {
        Self { inbound, outbound }
    }
}

/// A function of the consumer and the context for it; `None` without the function.
impl<F: Copy> Argument<(Option<F>, PVOID)> for Option<Callback<F>> {
    unsafe fn take((function, context): (Option<F>, PVOID)) -> Self {
        // SAFETY: the consumer gives the context with the function.
        function.map(|function| unsafe { Callback::new(function, context) })
    }
}

/// A block of this provider that starts with what consumers see of it.
///
/// # Safety
/// The type is `repr(C)`, and its first member is an `UnsafeCell` of `Visible`.
pub unsafe trait Block {
    /// Such as NDK_CQ.
    type Visible;
    /// The engine's object.
    type Handle;

    fn handle(&self) -> Option<&Self::Handle>;
}

/// An object of this provider, or null.
#[repr(transparent)]
pub struct ConsumerRef<'call, B: Block> {
    visible: *mut B::Visible,
    call: PhantomData<&'call B>,
}

impl<B: Block> Clone for ConsumerRef<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Block> Copy for ConsumerRef<'_, B> {}

impl<B: Block> Argument<*mut B::Visible> for ConsumerRef<'_, B> {
    unsafe fn take(visible: *mut B::Visible) -> Self {
        Self { visible, call: PhantomData }
    }
}

impl<'call, B: Block> ConsumerRef<'call, B> {
    /// The block; `None` for null.
    pub fn block(self) -> Option<&'call B> {
        // SAFETY: null or an object that is not closed yet (`take`), whose block starts with the visible part (`Block`). What
        // others write of the block lies in cells.
        unsafe { self.visible.cast::<B>().as_ref() }
    }

    /// The engine's object.
    pub fn get(self) -> Option<&'call B::Handle> {
        self.block()?.handle()
    }

    /// Block and engine's object.
    pub fn both(self) -> Option<(&'call B, &'call B::Handle)> {
        let block = self.block()?;
        Some((block, block.handle()?))
    }
}

/// An object of any kind, or null.
#[derive(Clone, Copy)]
pub struct HeaderRef<'call> {
    header: *mut NDK_OBJECT_HEADER,
    call: PhantomData<&'call NDK_OBJECT_HEADER>,
}

impl Argument<*mut NDK_OBJECT_HEADER> for HeaderRef<'_> {
    unsafe fn take(header: *mut NDK_OBJECT_HEADER) -> Self {
        Self { header, call: PhantomData }
    }
}

impl<'call> HeaderRef<'call> {
    pub fn is_null(self) -> bool {
        self.header.is_null()
    }

    /// What kind of object the header says it heads; `None` without one. Read by its address: the layers above write other
    /// words of the header at any time.
    pub fn kind(self) -> Option<NDK_OBJECT_TYPE> {
        if self.header.is_null() || !self.header.is_aligned() {
            return None;
        }
        // SAFETY: an object that is not closed yet (`take`); only the address of the field is computed.
        let place = unsafe { &raw const (*self.header).ObjectType };
        // SAFETY: as above.
        Some(unsafe { place.read_volatile() })
    }

    /// The engine's object, if it is of kind `K`.
    pub fn get<K: Kind + 'call>(self) -> Option<&'call K::Handle> {
        let visible = (self.kind()? == K::TYPE).then_some(self.header.cast())?;
        ConsumerRef::<Object<K>> { visible, call: PhantomData }.get()
    }
}

/// Entries of the consumer, with their count.
#[derive(Clone, Copy)]
pub struct List<'call, T> {
    first: *const T,
    count: ULONG,
    call: PhantomData<&'call T>,
}

/// The scatter/gather list of a request.
pub type Sgl<'call> = List<'call, NDK_SGE>;
/// The pages of a fast registration.
pub type PageList<'call> = List<'call, NDK_LOGICAL_ADDRESS>;

impl<T> Argument<(*const T, ULONG)> for List<'_, T> {
    unsafe fn take((first, count): (*const T, ULONG)) -> Self {
        Self { first, count, call: PhantomData }
    }
}

impl<T> Argument<(ULONG, *const T)> for List<'_, T> {
    unsafe fn take((count, first): (ULONG, *const T)) -> Self {
        Self { first, count, call: PhantomData }
    }
}

impl<'call, T: Copy> List<'call, T> {
    /// `None` without a list for a count that is not zero.
    pub fn get(self) -> Option<Entries<'call, T>> {
        let is_there = !self.first.is_null() && self.first.is_aligned();
        let entries = Entries { next: self.first, left: self.count as usize, call: PhantomData };
        (self.count == 0 || is_there).then_some(entries)
    }
}

/// Reads the entries of a list, each once.
#[derive(Clone)]
pub struct Entries<'call, T> {
    next: *const T,
    left: usize,
    call: PhantomData<&'call T>,
}

impl<T: Copy> Iterator for Entries<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.next;
        self.next = entry.wrapping_add(1);
        // SAFETY: as many entries as the count says lie behind the first (`take`), and `get` found it aligned. Volatile: what the
        // consumer writes meanwhile is seen once.
        Some(unsafe { entry.read_volatile() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T: Copy> ExactSizeIterator for Entries<'_, T> {}

/// The pages of a fast registration.
pub struct PageEntries<'call>(pub Entries<'call, NDK_LOGICAL_ADDRESS>);

impl Pages for PageEntries<'_> {
    fn count(&self) -> usize {
        self.0.left
    }

    fn read(self, into: &mut [u64]) {
        let pages = into.len().min(self.0.left);
        // SAFETY: as many entries as the count says lie behind the first (`take`), of eight bytes each, and `into` has as many places.
        // What the consumer writes meanwhile is seen once.
        unsafe { copy::bytes(into.as_mut_ptr().cast(), self.0.next.cast(), pages.saturating_mul(size_of::<u64>())) };
    }
}

const _: () = assert!(size_of::<NDK_LOGICAL_ADDRESS>() == size_of::<u64>());

/// Places for results, with their count.
#[derive(Clone, Copy)]
pub struct Results<'call, T> {
    first: *mut T,
    count: ULONG,
    call: PhantomData<&'call T>,
}

impl<T> Argument<(*mut T, ULONG)> for Results<'_, T> {
    unsafe fn take((first, count): (*mut T, ULONG)) -> Self {
        Self { first, count, call: PhantomData }
    }
}

impl<T> Results<'_, T> {
    pub fn is_null(&self) -> bool {
        self.first.is_null()
    }

    pub fn count(&self) -> ULONG {
        self.count
    }

    /// Makes a result in its place: one that is copied soon after it was put together elsewhere waits for the processor to write it
    /// first.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a call, and its copy, costs 10 of 200 ns of a small Read")]
    pub fn write(&self, index: u32, make: impl FnOnce() -> T) {
        if index < self.count && !self.is_null() {
            // SAFETY: `index` is below the count of the places that the consumer gave (`take`).
            unsafe { self.first.wrapping_add(index as usize).write(make()) };
        }
    }
}

/// A structure of the consumer that is only read.
#[derive(Clone, Copy)]
pub struct Input<'call, T> {
    place: *const T,
    call: PhantomData<&'call T>,
}

impl<T> Argument<*mut T> for Input<'_, T> {
    unsafe fn take(place: *mut T) -> Self {
        Self { place, call: PhantomData }
    }
}

impl<T: Copy> Input<'_, T> {
    /// A copy; `None` for null.
    pub fn get(self) -> Option<T> {
        // SAFETY: a structure of the consumer that is valid in the call (`take`).
        (!self.place.is_null()).then(|| unsafe { self.place.read() })
    }
}

/// A place for a result.
#[derive(Clone, Copy)]
pub struct Out<'call, T> {
    place: *mut T,
    call: PhantomData<&'call T>,
}

impl<T> Argument<*mut T> for Out<'_, T> {
    unsafe fn take(place: *mut T) -> Self {
        Self { place, call: PhantomData }
    }
}

impl<T: Copy> Out<'_, T> {
    pub fn is_null(&self) -> bool {
        self.place.is_null()
    }

    /// Nothing where the consumer gave no place.
    pub fn write(&self, result: T) {
        if !self.is_null() {
            // SAFETY: the consumer's place, valid in the call (`take`).
            unsafe { self.place.write(result) };
        }
    }

    /// What the consumer has there; `None` without a place.
    fn read(&self) -> Option<T> {
        // SAFETY: as above, and a place for results that is read (a length) has been written by the consumer.
        (!self.is_null()).then(|| unsafe { self.place.read() })
    }
}

/// How a create is answered: by the place for the object, or by a completion.
pub struct CreateAnswer<'call, V> {
    pub completion: Option<Callback<NDK_FN_CREATE_COMPLETION>>,
    /// Never written after STATUS_PENDING.
    pub result: Out<'call, *mut V>,
}

impl<V> Argument<(Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut V)> for CreateAnswer<'_, V> {
    unsafe fn take((function, context, result): (Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut V)) -> Self {
        // SAFETY: the caller's promise.
        let completion = unsafe { Argument::take((function, context)) };
        // SAFETY: the caller's promise.
        Self { completion, result: unsafe { Out::take(result) } }
    }
}

/// A buffer and the place of its length, which becomes the length of the answer.
#[derive(Clone, Copy)]
pub struct Buffer<'call> {
    place: *mut u8,
    length: Out<'call, ULONG>,
}

impl<T> Argument<(*mut T, *mut ULONG)> for Buffer<'_> {
    unsafe fn take((place, length): (*mut T, *mut ULONG)) -> Self {
        // SAFETY: the caller's promise.
        Self { place: place.cast(), length: unsafe { Out::take(length) } }
    }
}

impl<'call> Buffer<'call> {
    /// Reads the length, once.
    pub fn get(self) -> Result<Space<'call>, Refusal> {
        let Self { place, length } = self;
        length.read().map(|size| Space { place, size, length }).ok_or(Refusal::NO_LENGTH)
    }
}

/// A buffer with the length it has.
pub struct Space<'call> {
    place: *mut u8,
    /// Of the buffer, if there is one.
    pub size: ULONG,
    length: Out<'call, ULONG>,
}

impl Space<'_> {
    pub fn is_null(&self) -> bool {
        self.place.is_null()
    }

    /// Tells the consumer how long the answer is.
    pub fn set_length(&self, length: ULONG) {
        self.length.write(length);
    }

    /// The first `length` bytes of `answer`, with their length; refused where they have no place, but for the length.
    pub fn fill<T>(&self, answer: &T, length: usize) -> Result<(), Refusal> {
        self.set_length(length as ULONG);
        if self.is_null() || (self.size as usize) < length {
            return Err(Refusal::SMALL_BUFFER);
        }
        self.copy(answer, length);
        Ok(())
    }

    /// The first `length` bytes of `answer`, or as many as there is place for.
    pub fn copy<T>(&self, answer: &T, length: usize) {
        let length = length.min(size_of::<T>()).min(self.size as usize);
        if !self.is_null() {
            let answer: *const T = answer;
            // SAFETY: a buffer of the consumer with `size` bytes (`take`), and no more than the answer has.
            unsafe { self.place.copy_from_nonoverlapping(answer.cast(), length) };
        }
    }
}

/// Private data of a connection.
#[derive(Clone, Copy)]
pub struct PrivateData<'call> {
    first: *const u8,
    length: ULONG,
    call: PhantomData<&'call [u8]>,
}

impl Argument<(*const c_void, ULONG)> for PrivateData<'_> {
    unsafe fn take((first, length): (*const c_void, ULONG)) -> Self {
        Self { first: first.cast(), length, call: PhantomData }
    }
}

impl<'call> PrivateData<'call> {
    /// Data longer than the contract's limits allow are refused before they are read.
    pub fn get(self) -> Result<&'call [u8], Refusal> {
        if self.length == 0 {
            return Ok(&[]);
        }
        if self.length as usize > PRIVATE_DATA {
            return Err(ConnectError::PrivateDataTooLong.into());
        }
        let first = NonNull::new(self.first.cast_mut()).ok_or(Refusal::NO_PRIVATE_DATA)?;
        // SAFETY: as many bytes as the length says, which the consumer leaves alone in the call (`take`).
        Ok(unsafe { slice::from_raw_parts(first.as_ptr(), self.length as usize) })
    }
}

/// Pages of the consumer, and how many bytes of them. Left alone until the request has completed.
#[derive(Clone, Copy)]
pub struct MdlChain {
    first: *mut MDL,
    pub length: u64,
}

impl Argument<(*mut MDL, SIZE_T)> for MdlChain {
    unsafe fn take((first, length): (*mut MDL, SIZE_T)) -> Self {
        Self { first, length: length as u64 }
    }
}

impl MdlChain {
    /// The chain, if it is one of at most `longest` bytes.
    pub fn get(self, longest: u64) -> Result<Chain, MappingError> {
        // SAFETY: null, or a chain that the consumer leaves alone (`take`).
        unsafe { Chain::check(self.first, self.length, longest) }
    }
}

/// The first processor a consumer prefers, if there is one.
pub fn home(affinity: GROUP_AFFINITY) -> Option<u32> {
    let first = u8::try_from(affinity.Mask.trailing_zeros()).ok()?;
    if affinity.Mask == 0 { None } else { irql::processor_index(affinity.Group, first) }
}
