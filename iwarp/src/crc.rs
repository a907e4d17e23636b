//! CRC32c (Castagnoli), as the last four bytes of a frame have it: by the processor's instruction, or by tables.
//!
//! The instruction works on general registers, so the kernel saves nothing for it.

use crc::{CRC_32_ISCSI, Crc, Table};

/// Sixteen tables of 1 KiB: sixteen bytes a step.
static CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Bytes of the CRC.
pub const LENGTH: usize = 4;

/// The CRC of bytes as they stand on the wire: the least significant byte first, unlike every other number there.
#[must_use]
pub fn of(bytes: &[u8]) -> [u8; LENGTH] {
    #[cfg(target_arch = "x86_64")]
    if let Some(checksum) = instruction::checksum(bytes) {
        return checksum.to_le_bytes();
    }
    CASTAGNOLI.checksum(bytes).to_le_bytes()
}

/// `CRC32` of SSE4.2. Processors without it are older than 2009, or emulated.
#[cfg(target_arch = "x86_64")]
mod instruction {
    use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

    cpufeatures::new!(has_crc32, "sse4.2");

    /// The CRC, where the processor has the instruction.
    #[expect(unsafe_code, reason = "a function with an instruction that not every processor has")]
    pub(super) fn checksum(bytes: &[u8]) -> Option<u32> {
        // SAFETY: the processor has the instruction.
        has_crc32::get().then(|| unsafe { by_instruction(bytes) })
    }

    #[target_feature(enable = "sse4.2")]
    fn by_instruction(bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let start = u64::from(u32::MAX);
        let crc = words.iter().fold(start, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
        !rest.iter().fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
    }
}

#[cfg(test)]
mod tests {
    use super::{CASTAGNOLI, of};
    use alloc::vec::Vec;

    #[test]
    fn check_values_of_iscsi() {
        assert_eq!(of(b"123456789"), 0xE306_9283_u32.to_le_bytes());
        assert_eq!(of(&[0; 32]), [0xAA, 0x36, 0x91, 0x8A]);
        assert_eq!(of(&[0xFF; 32]), [0x43, 0xAB, 0xA8, 0x62]);
        assert_eq!(of(&[]), [0; 4]);
    }

    /// The next test compares the tables with themselves where the instruction is not used.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn instruction_is_used_where_the_processor_has_it() {
        extern crate std;
        assert_eq!(super::instruction::checksum(b"").is_some(), std::is_x86_feature_detected!("sse4.2"));
    }

    #[test]
    fn instruction_and_tables_agree() {
        let bytes: Vec<u8> = (0..600_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for start in 0..9 {
            for end in start..bytes.len() {
                let part = &bytes[start..end];
                assert_eq!(of(part), CASTAGNOLI.checksum(part).to_le_bytes(), "{start}..{end}");
            }
        }
    }
}
