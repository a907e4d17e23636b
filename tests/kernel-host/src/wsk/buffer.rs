//! `WSK_BUF`: bytes in a chain of memory descriptors, which the provider reads or fills until the completion of the request.

use ndkpi_sys::wsk::WSK_BUF;

use crate::memory::mdl::{
    self, MDL_MAPPED_TO_SYSTEM_VA, MDL_MAPPING_NO_EXECUTE, MDL_PAGES_LOCKED, MDL_SOURCE_IS_NONPAGED_POOL,
};
use crate::ndis::rule::{Group, broken};
use crate::nt::MDL;

/// `NormalPagePriority`.
const NORMAL_PRIORITY: u32 = 16;

/// How many places the system takes at once.
const VECTORS: usize = 1024;

/// A row of bytes of one descriptor.
struct Piece {
    address: usize,
    length: usize,
}

/// A checked buffer of a driver's. The structure itself is read in the call only.
pub(super) struct Buffer {
    pieces: Vec<Piece>,
    length: usize,
}

fn wrong(buffer: *const WSK_BUF, rule: String) -> ! {
    broken(Group::Netio, buffer as usize, rule)
}

/// Where the bytes of a descriptor are. One that is not mapped is mapped, as a transport does, until its pages are unlocked.
///
/// # Safety
///
/// `list` is an MDL.
unsafe fn mapped(list: *mut MDL, function: &str) -> Option<usize> {
    // SAFETY: the caller's contract.
    let flags = unsafe { (*list).MdlFlags };
    if flags & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL) == 0 {
        let rule = format!("{function} is given an MDL whose memory is neither locked nor non-paged pool");
        broken(Group::Netio, list as usize, rule);
    }
    if flags & (MDL_MAPPED_TO_SYSTEM_VA | MDL_SOURCE_IS_NONPAGED_POOL) != 0 {
        // SAFETY: as above.
        return Some(unsafe { (*list).MappedSystemVa as usize });
    }
    // SAFETY: locked pages, as its flags say.
    unsafe { mdl::map(list, NORMAL_PRIORITY | MDL_MAPPING_NO_EXECUTE) }
}

impl Buffer {
    /// Reads and checks a buffer; `None` when its pages cannot be mapped.
    ///
    /// # Safety
    ///
    /// `buffer` is a `WSK_BUF` of the driver's, or NULL.
    pub(super) unsafe fn read(buffer: *const WSK_BUF, function: &str) -> Option<Self> {
        if buffer.is_null() {
            wrong(buffer, format!("{function} is called without a WSK_BUF"));
        }
        // SAFETY: not null; the caller's contract.
        let given = unsafe { buffer.read() };
        let mut list = given.Mdl.cast::<MDL>();
        let (mut offset, mut left) = (given.Offset as usize, given.Length);
        let mut pieces = Vec::new();
        while left != 0 {
            if list.is_null() {
                wrong(buffer, format!("{function} is given a WSK_BUF that goes {left} bytes beyond its MDLs"));
            }
            // SAFETY: a descriptor of the driver's chain.
            let (count, next) = unsafe { ((*list).ByteCount as usize, (*list).Next) };
            if offset > count {
                wrong(buffer, format!("{function} is given a WSK_BUF whose offset {offset} is beyond its first MDL"));
            }
            // SAFETY: as above.
            let address = unsafe { mapped(list, function) }? + offset;
            let length = left.min(count - offset);
            pieces.push(Piece { address, length });
            left -= length;
            offset = 0;
            list = next;
        }
        Some(Self { pieces, length: given.Length })
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The addresses of a part, in order.
    fn part(&self, from: usize, count: usize) -> impl Iterator<Item = (*mut u8, usize)> {
        let mut before = 0;
        self.pieces.iter().filter_map(move |piece| {
            let start = from.max(before);
            let end = (from + count).min(before + piece.length);
            let address = piece.address + start.saturating_sub(before);
            before += piece.length;
            (start < end).then_some((address as *mut u8, end.saturating_sub(start)))
        })
    }

    /// Where some of its bytes are, for the system's functions; perhaps fewer than asked for.
    pub(super) fn vectors(&self, from: usize, count: usize) -> Vec<libc::iovec> {
        let vector = |(address, length): (*mut u8, usize)| libc::iovec { iov_base: address.cast(), iov_len: length };
        self.part(from, count).take(VECTORS).map(vector).collect()
    }

    /// A copy of some of its bytes.
    ///
    /// # Safety
    ///
    /// The request that it came with is not completed.
    pub(super) unsafe fn copy_out(&self, from: usize, count: usize) -> Vec<u8> {
        let mut bytes = Vec::<u8>::with_capacity(count);
        for (address, length) in self.part(from, count) {
            bytes.reserve(length);
            // SAFETY: the driver's memory until the completion; a wrong one faults and is reported. There is space for so many more.
            unsafe {
                bytes.as_mut_ptr().add(bytes.len()).copy_from_nonoverlapping(address, length);
                bytes.set_len(bytes.len() + length);
            }
        }
        bytes
    }

    /// Fills its first bytes.
    ///
    /// # Safety
    ///
    /// As [`Self::copy_out`]; there are not more than its length.
    pub(super) unsafe fn fill(&self, bytes: &[u8]) {
        let mut done = 0;
        for (address, length) in self.part(0, bytes.len()) {
            // SAFETY: as above.
            unsafe { address.copy_from_nonoverlapping(bytes[done..].as_ptr(), length) };
            done += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cross_pieces() {
        let (mut one, mut two) = ([1_u8, 2, 3], [4_u8, 5, 6, 7]);
        let pieces = vec![
            Piece { address: one.as_mut_ptr() as usize, length: 3 },
            Piece { address: two.as_mut_ptr() as usize, length: 4 },
        ];
        let buffer = Buffer { pieces, length: 7 };
        // SAFETY: both arrays are borrowed for the call.
        unsafe {
            assert_eq!(buffer.copy_out(0, 7), [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(buffer.copy_out(2, 3), [3, 4, 5]);
            assert_eq!(buffer.copy_out(3, 1), [4]);
            buffer.fill(&[9, 8, 7, 6]);
        }
        assert_eq!((one, two), ([9, 8, 7], [6, 5, 6, 7]));
    }
}
