//! Blocks of non-paged pool: fallible, tagged by object type, never moved while they live.
//!
//! Everything that can be asked for by a consumer, a user or the network stack is allocated here, so a shortage is a
//! status and never a bugcheck. [`CountedAllocator`] over `wdk-alloc` is the global allocator of a driver that has one.

use core::{
    alloc::{GlobalAlloc, Layout},
    ffi::c_void,
    mem::{align_of, size_of},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

pub use softndk_cells::NoMemory;
use wdk_alloc::WdkAllocator;
use wdk_sys::{
    POOL_FLAG_CACHE_ALIGNED, POOL_FLAG_NON_PAGED, POOL_FLAG_UNINITIALIZED, POOL_FLAGS, SIZE_T, ULONG,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag},
};

/// The four characters under which pool tools list a block, in reading order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(ULONG);

impl Tag {
    pub const fn new(characters: [u8; 4]) -> Self {
        Self(u32::from_le_bytes(characters))
    }

    pub const fn value(self) -> ULONG {
        self.0
    }
}

/// Declares a driver's tags, one per kind of object, so that a leak report names what leaked. Two kinds with one tag do not
/// compile.
#[macro_export]
macro_rules! pool_tags {
    ($($(#[$attribute:meta])* $name:ident = $characters:literal,)+) => {
        $($(#[$attribute])* pub const $name: $crate::pool::Tag = $crate::pool::Tag::new(*$characters);)+
        const _: () = assert!($crate::pool::distinct(&[$($name),+]), "two kinds of objects have one tag");
    };
}

/// Whether no two tags of a list are the same.
pub const fn distinct(tags: &[Tag]) -> bool {
    let mut rest = tags;
    while let [first, others @ ..] = rest {
        let mut index = 0;
        while index < others.len() {
            if others[index].value() == first.value() {
                return false;
            }
            index += 1;
        }
        rest = others;
    }
    true
}

/// Alignment that `ExAllocatePool2` promises for every block.
const POOL_ALIGNMENT: usize = 16;
/// Alignment with `POOL_FLAG_CACHE_ALIGNED`: at least the line size of every processor Windows 10 runs on.
const CACHE_ALIGNMENT: usize = 64;

/// Zeroed non-paged memory of `size` bytes, or nothing. `IRQL <= DISPATCH_LEVEL`.
fn allocate(size: usize, align: usize, tag: Tag) -> Option<NonNull<c_void>> {
    allocate_with(0, size, align, tag)
}

/// As [`allocate`], with further flags: memory that is not zeroed, for example.
#[inline(never)]
fn allocate_with(more: POOL_FLAGS, size: usize, align: usize, tag: Tag) -> Option<NonNull<c_void>> {
    let flags = more
        | if align <= POOL_ALIGNMENT {
            POOL_FLAG_NON_PAGED
        } else if align <= CACHE_ALIGNMENT {
            POOL_FLAG_NON_PAGED | POOL_FLAG_CACHE_ALIGNED
        } else {
            return None;
        };
    // SAFETY: ExAllocatePool2 may be called at IRQL <= DISPATCH_LEVEL for non-paged memory, which is where drivers
    // run; it returns null instead of raising because POOL_FLAG_RAISE_ON_FAILURE is not given.
    let block = unsafe { ExAllocatePool2(flags, size.max(1) as SIZE_T, tag.value()) };
    let block = NonNull::new(block)?;
    count_in(size);
    Some(block)
}

/// Gives a block back. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
/// `block` came from [`allocate`] with this size and tag, and is not used any more.
#[inline(never)]
unsafe fn release(block: NonNull<c_void>, size: usize, tag: Tag) {
    count_out(size);
    // SAFETY: the caller's promise.
    unsafe { ExFreePoolWithTag(block.as_ptr(), tag.value()) };
}

/// Blocks and bytes that this image holds, for the tools.
static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

fn count_in(size: usize) {
    BLOCKS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(size as u64, Ordering::Relaxed);
}

fn count_out(size: usize) {
    BLOCKS.fetch_sub(1, Ordering::Relaxed);
    BYTES.fetch_sub(size as u64, Ordering::Relaxed);
}

/// Blocks and bytes held now.
pub fn held() -> (u64, u64) {
    (BLOCKS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

/// From this size on a block of the global allocator is not zeroed. It is memory that is filled before it is read, as Rust sees to,
/// and a deep queue has up to hundreds of MiB of it: a caller at DISPATCH_LEVEL would wait while nothing but zeroes is written.
const CAPACITY: usize = 16 << 10;

/// The global allocator of a driver: counted, with the alignment that `wdk-alloc` does not honour, and without its zeroes where
/// there would be many. What is allocated through it is allocated fallibly.
pub struct CountedAllocator {
    below: WdkAllocator,
    /// Of the blocks that are not left to `wdk-alloc`.
    tag: Tag,
}

impl CountedAllocator {
    pub const fn new(tag: Tag) -> Self {
        Self { below: WdkAllocator, tag }
    }

    /// Whether a block is our own pool, and not left to the allocator below.
    const fn is_own(layout: Layout) -> bool {
        layout.align() > POOL_ALIGNMENT || layout.size() >= CAPACITY
    }
}

// Not inlined: both ways would be at every place that allocates.
// SAFETY: hands every call to an allocator; counting changes nothing about its blocks.
unsafe impl GlobalAlloc for CountedAllocator {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::is_own(layout) {
            let block = allocate_with(POOL_FLAG_UNINITIALIZED, layout.size(), layout.align(), self.tag);
            return block.map_or(core::ptr::null_mut(), |block| block.as_ptr().cast());
        }
        // SAFETY: the caller's promise.
        let block = unsafe { self.below.alloc(layout) };
        if !block.is_null() {
            count_in(layout.size());
        }
        block
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if Self::is_own(layout) {
            if let Some(block) = NonNull::new(block) {
                // SAFETY: allocated above with this size and tag.
                unsafe { release(block.cast(), layout.size(), self.tag) };
            }
            return;
        }
        count_out(layout.size());
        // SAFETY: the caller's promise.
        unsafe { self.below.dealloc(block, layout) };
    }
}

/// An owned value in non-paged pool. Its address never changes.
pub struct PoolBox<T> {
    block: NonNull<T>,
    tag: Tag,
}

// SAFETY: the box owns its value alone, exactly as a `Box` does; non-paged pool is reachable from every processor.
unsafe impl<T: Send> Send for PoolBox<T> {}
// SAFETY: a shared box only gives shared references to the value.
unsafe impl<T: Sync> Sync for PoolBox<T> {}

impl<T> PoolBox<T> {
    /// Moves `value` into a block of its own. `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new(tag: Tag, value: T) -> Result<Self, NoMemory> {
        const { assert!(align_of::<T>() <= CACHE_ALIGNMENT, "pool blocks are at most cache-line aligned") };
        let block = allocate(size_of::<T>(), align_of::<T>(), tag).ok_or(NoMemory)?.cast::<T>();
        // SAFETY: the block is fresh, large enough and aligned for T, and nothing else points to it.
        unsafe { block.write(value) };
        Ok(Self { block, tag })
    }

    /// Gives the ownership up; `from_raw` with the same tag takes it back.
    pub fn into_raw(self) -> NonNull<T> {
        let block = self.block;
        core::mem::forget(self);
        block
    }

    /// Takes ownership back.
    ///
    /// # Safety
    /// `block` came from [`PoolBox::into_raw`] of a box with this `tag`, and is not used any more.
    pub unsafe fn from_raw(tag: Tag, block: NonNull<T>) -> Self {
        Self { block, tag }
    }

    pub fn as_ptr(&self) -> *mut T {
        self.block.as_ptr()
    }

    /// Moves the value out and frees the block.
    pub fn into_inner(self) -> T {
        let (block, tag) = (self.block, self.tag);
        core::mem::forget(self);
        // SAFETY: the block holds an initialised T, which is read once and not dropped in place.
        let value = unsafe { block.read() };
        // SAFETY: the block came from `allocate` with this size and tag and is not used any more.
        unsafe { release(block.cast(), size_of::<T>(), tag) };
        value
    }
}

impl<T> Deref for PoolBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the block holds an initialised T as long as the box lives.
        unsafe { self.block.as_ref() }
    }
}

impl<T> DerefMut for PoolBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the block holds an initialised T and `&mut self` makes this the only reference.
        unsafe { self.block.as_mut() }
    }
}

impl<T> Drop for PoolBox<T> {
    // On its own frame: blocks are dropped deep below entry points.
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: the value is initialised and dropped only here.
        unsafe { self.block.drop_in_place() };
        // SAFETY: the block came from `allocate` with this size and tag and is not used any more.
        unsafe { release(self.block.cast(), size_of::<T>(), self.tag) };
    }
}

/// A type whose blocks all have one tag.
pub trait Tagged {
    const TAG: Tag;
}

/// A [`PoolBox`] whose keeper does not know the type of the value: it can only be dropped.
pub struct AnyPoolBox {
    block: NonNull<c_void>,
    /// # Safety
    /// The block is that of this box, which is given up.
    free: unsafe fn(NonNull<c_void>),
}

// SAFETY: made of values that may be sent, and nothing of the value is reachable through it.
unsafe impl Send for AnyPoolBox {}
// SAFETY: as above.
unsafe impl Sync for AnyPoolBox {}

impl AnyPoolBox {
    /// Moves `value` into a block of its own. `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new<T: Tagged + Send>(value: T) -> Result<Self, NoMemory> {
        /// # Safety
        /// `block` came from `into_raw` below for this type, and is not used any more.
        unsafe fn free<T: Tagged>(block: NonNull<c_void>) {
            // SAFETY: the caller's promise.
            drop(unsafe { PoolBox::<T>::from_raw(T::TAG, block.cast()) });
        }
        let whole = PoolBox::try_new(T::TAG, value)?;
        Ok(Self { block: whole.into_raw().cast(), free: free::<T> })
    }

    /// The address of the value.
    pub fn as_ptr(&self) -> *mut c_void {
        self.block.as_ptr()
    }
}

impl Drop for AnyPoolBox {
    fn drop(&mut self) {
        // SAFETY: the block is of the type that `free` was made for, and is given up here only.
        unsafe { (self.free)(self.block) };
    }
}

/// A block without a value yet, for objects whose address others must know before they are complete.
pub struct PoolSpace<T> {
    block: NonNull<T>,
    tag: Tag,
}

// SAFETY: a block without a value; nothing of T is reachable through it.
unsafe impl<T> Send for PoolSpace<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for PoolSpace<T> {}

impl<T> PoolSpace<T> {
    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn try_new(tag: Tag) -> Result<Self, NoMemory> {
        const { assert!(align_of::<T>() <= CACHE_ALIGNMENT, "pool blocks are at most cache-line aligned") };
        let block = allocate(size_of::<T>(), align_of::<T>(), tag).ok_or(NoMemory)?.cast::<T>();
        Ok(Self { block, tag })
    }

    /// Where the value will be.
    pub fn as_ptr(&self) -> *mut T {
        self.block.as_ptr()
    }

    /// Puts the value in its place.
    pub fn fill(self, value: T) -> PoolBox<T> {
        let (block, tag) = (self.block, self.tag);
        core::mem::forget(self);
        // SAFETY: the block is fresh, large enough and aligned for T, and holds no value yet.
        unsafe { block.write(value) };
        PoolBox { block, tag }
    }
}

impl<T> Drop for PoolSpace<T> {
    // On its own frame: blocks are dropped deep below entry points.
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: the block came from `allocate` with this size and tag and holds no value.
        unsafe { release(self.block.cast(), size_of::<T>(), self.tag) };
    }
}

/// A list in one pool block whose length is fixed when it is filled.
pub struct PoolSlice<T: Copy> {
    block: NonNull<T>,
    length: usize,
    tag: Tag,
}

// SAFETY: as for PoolBox: sole owner of plain values in memory reachable from every processor.
unsafe impl<T: Copy + Send> Send for PoolSlice<T> {}
// SAFETY: a shared slice only gives shared references.
unsafe impl<T: Copy + Sync> Sync for PoolSlice<T> {}

impl<T: Copy> PoolSlice<T> {
    /// A block of `length` copies of `value`.
    pub fn try_filled(tag: Tag, length: usize, value: T) -> Result<Self, NoMemory> {
        let size = size_of::<T>().checked_mul(length).ok_or(NoMemory)?;
        let block = allocate(size, align_of::<T>(), tag).ok_or(NoMemory)?.cast::<T>();
        for index in 0..length {
            // SAFETY: `index < length` and the block holds `length` elements.
            let sge = unsafe { block.add(index) };
            // SAFETY: the element lies inside the fresh block and is aligned for T.
            unsafe { sge.write(value) };
        }
        Ok(Self { block, length, tag })
    }

    /// The address of the first element, good for writing: elements that others write, too, are reached by pointers from here
    /// and never by a reference.
    pub fn first(&self) -> *mut T {
        self.block.as_ptr()
    }
}

impl<T: Copy> Deref for PoolSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `try_filled` initialised all `length` elements.
        unsafe { core::slice::from_raw_parts(self.block.as_ptr(), self.length) }
    }
}

impl<T: Copy> DerefMut for PoolSlice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: all elements are initialised and `&mut self` makes this the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.block.as_ptr(), self.length) }
    }
}

impl<T: Copy> Drop for PoolSlice<T> {
    // On its own frame: blocks are dropped deep below entry points.
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: the block came from `allocate` with this size and tag and T has no destructor.
        unsafe { release(self.block.cast(), size_of_val::<[T]>(self), self.tag) };
    }
}

/// Values in one pool block, built one after the other and never moved.
pub struct PoolArray<T> {
    block: NonNull<T>,
    length: usize,
    /// Values the block holds.
    capacity: usize,
    tag: Tag,
}

// SAFETY: sole owner of its values, as a boxed slice would be.
unsafe impl<T: Send> Send for PoolArray<T> {}
// SAFETY: a shared array only gives shared references.
unsafe impl<T: Sync> Sync for PoolArray<T> {}

impl<T> PoolArray<T> {
    /// `length` values made by `make`, which is given their indices. A failure drops those made before.
    pub fn try_from_fn<E: From<NoMemory>>(
        tag: Tag,
        length: usize,
        mut make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Self, E> {
        let size = size_of::<T>().checked_mul(length).ok_or(NoMemory)?;
        let block = allocate(size, align_of::<T>(), tag).ok_or(NoMemory)?.cast::<T>();
        let mut array = Self { block, length: 0, capacity: length, tag };
        for index in 0..length {
            let value = make(index)?;
            // SAFETY: `index < length` and the block holds `length` values.
            let place = unsafe { block.add(index) };
            // SAFETY: the place lies inside the block, is aligned for T and holds no value yet.
            unsafe { place.write(value) };
            array.length = index + 1;
        }
        Ok(array)
    }
}

impl<T> Deref for PoolArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `length` values are initialised.
        unsafe { core::slice::from_raw_parts(self.block.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for PoolArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the first `length` values are initialised and `&mut self` makes this the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.block.as_ptr(), self.length) }
    }
}

impl<T> Drop for PoolArray<T> {
    // On its own frame: blocks are dropped deep below entry points.
    #[inline(never)]
    fn drop(&mut self) {
        let values = core::ptr::slice_from_raw_parts_mut(self.block.as_ptr(), self.length);
        // SAFETY: the first `length` values are initialised and dropped only here.
        unsafe { values.drop_in_place() };
        // `try_from_fn` checked the product.
        // SAFETY: the block came from `allocate` with this size and tag and is not used any more.
        unsafe { release(self.block.cast(), size_of::<T>().wrapping_mul(self.capacity), self.tag) };
    }
}
