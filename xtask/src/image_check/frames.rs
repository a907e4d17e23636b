//! Stack frames of an x64 image, from its unwind codes.
//!
//! A kernel stack is 24 KiB and shared with callers and callees; a frame of a page or more also needs a
//! stack probe, which no driver image of ours may call.

use super::image::{Image, read_u32};
use std::collections::BTreeMap;

const PUSH_NONVOLATILE: u8 = 0;
const ALLOC_LARGE: u8 = 1;
const ALLOC_SMALL: u8 = 2;
const SAVE_NONVOLATILE: u8 = 4;
const SAVE_NONVOLATILE_FAR: u8 = 5;
const EPILOG: u8 = 6;
const SAVE_XMM128: u8 = 8;
const SAVE_XMM128_FAR: u8 = 9;
const PUSH_MACHINE_FRAME: u8 = 10;
const CHAINED: u8 = 0x4;

/// The bytes of stack each function takes, by the address of its first part.
pub fn sizes(image: &Image) -> BTreeMap<u32, u32> {
    let mut sizes = BTreeMap::new();
    for function in &image.runtime_functions {
        if let Some((owner, size)) = frame(image, function.start, function.unwind_info) {
            *sizes.entry(owner).or_default() += size;
        }
    }
    sizes
}

/// Start of the function that a part belongs to, and the bytes that this part adds to what its owner takes.
fn frame(image: &Image, start: u32, unwind_info: u32) -> Option<(u32, u32)> {
    let header = image.at(unwind_info, 4)?;
    let (flags, count) = (header.first()? >> 3, u32::from(*header.get(2)?));
    let size = codes_size(image.at(unwind_info + 4, count * 2)?)?;
    if flags & CHAINED == 0 {
        return Some((start, size));
    }
    let chained = image.at(unwind_info + 4 + count.next_multiple_of(2) * 2, 12)?;
    let (owner, _) = frame(image, read_u32(chained, 0)?, read_u32(chained, 8)?)?;
    Some((owner, size))
}

fn codes_size(codes: &[u8]) -> Option<u32> {
    let slots = codes.as_chunks::<2>().0;
    let slot = |index: usize| slots.get(index).map(|slot| u32::from(u16::from_le_bytes(*slot)));
    let (mut size, mut index) = (0, 0);
    while let Some([_, code]) = slots.get(index) {
        let (operation, information) = (code & 0xF, u32::from(code >> 4));
        index += match operation {
            PUSH_NONVOLATILE => {
                size += 8;
                1
            }
            ALLOC_LARGE if information == 0 => {
                size += slot(index + 1)? * 8;
                2
            }
            ALLOC_LARGE => {
                size += slot(index + 1)? | slot(index + 2)? << 16;
                3
            }
            ALLOC_SMALL => {
                size += information * 8 + 8;
                1
            }
            PUSH_MACHINE_FRAME => {
                size += 40;
                1
            }
            SAVE_NONVOLATILE | SAVE_XMM128 | EPILOG => 2,
            SAVE_NONVOLATILE_FAR | SAVE_XMM128_FAR => 3,
            _ => 1,
        };
    }
    Some(size)
}

#[cfg(test)]
mod tests {
    use super::codes_size;

    fn size(codes: &[[u8; 2]]) -> Option<u32> {
        codes_size(codes.as_flattened())
    }

    #[test]
    fn pushes_and_small_allocations_add_up() {
        assert_eq!(size(&[[8, 0x42], [4, 0x30], [2, 0x50]]), Some(40 + 8 + 8));
    }

    #[test]
    fn large_allocations_come_in_two_forms() {
        assert_eq!(size(&[[7, 0x01], [0x00, 0x02]]), Some(4096));
        assert_eq!(size(&[[7, 0x11], [0x08, 0x00], [0x01, 0x00]]), Some(0x1_0008));
    }

    #[test]
    fn saved_registers_take_their_slots_and_no_stack() {
        assert_eq!(size(&[[9, 0x64], [0x05, 0x00], [4, 0x02]]), Some(8));
    }

    #[test]
    fn cut_off_codes_give_nothing() {
        assert_eq!(size(&[[7, 0x01]]), None);
    }
}
