//! Memory that the host lends to an image for the length of one call or one handle: a pool block of the host's own, so that the
//! guard page behind it and the quarantine after it catch an image that reads or writes beyond its end or after its time.

use std::alloc::Layout;

use crate::memory::pool;

/// Owner's mark of host blocks in a pool report.
const TAG: u32 = u32::from_le_bytes(*b"NDho");

/// A structure lent to an image.
pub struct Loan<T> {
    pointer: *mut T,
}

impl<T> Loan<T> {
    /// Puts `value` into memory that images can reach.
    pub fn new(value: T) -> Self {
        let pointer = block(Layout::new::<T>()).cast::<T>();
        // SAFETY: a fresh block of that size, aligned for any structure of the kernel.
        unsafe { pointer.write(value) };
        Self { pointer }
    }

    #[must_use]
    pub fn as_pointer(&self) -> *mut T {
        self.pointer
    }
}

impl<T: Copy> Loan<T> {
    /// What the image has left there.
    #[must_use]
    pub fn read(&self) -> T {
        // SAFETY: the block belongs to this value until drop.
        unsafe { self.pointer.read() }
    }
}

impl<T> Drop for Loan<T> {
    fn drop(&mut self) {
        pool::free_for_host(self.pointer.cast(), TAG);
    }
}

/// Bytes lent to an image; none at all have the NULL address.
pub struct LoanedBytes {
    pointer: *mut u8,
    length: usize,
}

impl LoanedBytes {
    #[must_use]
    pub fn filled(length: usize, value: u8) -> Self {
        if length == 0 {
            return Self { pointer: std::ptr::null_mut(), length };
        }
        let pointer = block(Layout::array::<u8>(length).unwrap_or(Layout::new::<u8>()));
        // SAFETY: a fresh block of that length.
        unsafe { pointer.write_bytes(value, length) };
        Self { pointer, length }
    }

    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let copy = Self::filled(bytes.len(), 0);
        if !bytes.is_empty() {
            // SAFETY: both have that length and the block is fresh.
            unsafe { copy.pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        copy
    }

    #[must_use]
    pub fn as_pointer(&self) -> *mut u8 {
        self.pointer
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Lets nothing write into the bytes until they are given back; when verifying, where a block has pages of its own.
    pub fn make_read_only(&self) {
        pool::make_read_only(self.pointer);
    }

    /// What the image has left there.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        // SAFETY: the block belongs to this value until drop; image code writes it only during calls, which are over or race by
        // design.
        (0..self.length).map(|index| unsafe { self.pointer.add(index).read_volatile() }).collect()
    }
}

impl Drop for LoanedBytes {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            pool::free_for_host(self.pointer.cast(), TAG);
        }
    }
}

// SAFETY: the block may be freed and read by any thread; the type only carries its address.
unsafe impl<T> Send for Loan<T> {}
// SAFETY: as above.
unsafe impl Send for LoanedBytes {}
// SAFETY: shared use only reads the address, or bytes that images change by design.
unsafe impl Sync for LoanedBytes {}

fn block(layout: Layout) -> *mut u8 {
    pool::allocate_for_host(layout.size().max(1), TAG)
        .unwrap_or_else(|| panic!("no memory for the host's own {layout:?}"))
}
