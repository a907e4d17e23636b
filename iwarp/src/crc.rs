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
///
/// The instruction takes three cycles and can begin in each: three parts of the bytes are summed side by side.
#[cfg(target_arch = "x86_64")]
mod instruction {
    use super::zeroes::behind_part;
    use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

    cpufeatures::new!(has_crc32, "sse4.2");

    type Words = [[u8; 8]];

    /// The CRC, where the processor has the instruction.
    #[expect(unsafe_code, reason = "a function with an instruction that not every processor has")]
    pub(super) fn checksum(bytes: &[u8]) -> Option<u32> {
        // SAFETY: the processor has the instruction.
        has_crc32::get().then(|| unsafe { by_instruction(bytes) })
    }

    #[target_feature(enable = "sse4.2")]
    fn by_instruction(bytes: &[u8]) -> u32 {
        const WORDS: usize = super::zeroes::PART / 8;
        let (words, rest) = bytes.as_chunks::<8>();
        let (threes, words) = words.as_chunks::<{ 3 * WORDS }>();
        let crc = threes.iter().fold(u32::MAX, |crc, three| {
            let (first, others) = three.split_at(WORDS);
            let (second, third) = others.split_at(WORDS);
            side_by_side(crc, first, second, third)
        });
        let crc = words.iter().fold(u64::from(crc), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
        !rest.iter().fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
    }

    /// The CRC of three parts, one behind the other: those of the first two are moved on by what follows them.
    #[target_feature(enable = "sse4.2")]
    fn side_by_side(crc: u32, first: &Words, second: &Words, third: &Words) -> u32 {
        let mut sums = [u64::from(crc), 0, 0];
        for ((first, second), third) in first.iter().zip(second).zip(third) {
            sums[0] = _mm_crc32_u64(sums[0], u64::from_le_bytes(*first));
            sums[1] = _mm_crc32_u64(sums[1], u64::from_le_bytes(*second));
            sums[2] = _mm_crc32_u64(sums[2], u64::from_le_bytes(*third));
        }
        let [first, second, third] = sums.map(|sum| sum as u32);
        behind_part(behind_part(first) ^ second) ^ third
    }
}

/// What a run of zeroes makes of a CRC: a linear map of its bits, in tables that the compiler computes.
#[cfg(target_arch = "x86_64")]
mod zeroes {
    /// Bytes of the run.
    pub(super) const PART: usize = 1 << DOUBLINGS >> 3;
    /// How often the map of one bit is doubled.
    const DOUBLINGS: u32 = 11;
    /// The polynomial, its least significant bit first.
    const POLYNOMIAL: u32 = 0x82F6_3B78;

    /// What each bit of a CRC becomes.
    type Map = [u32; 32];

    static TABLES: [[u32; 256]; 4] = tables();

    /// The CRC after [`PART`] zeroes.
    pub(super) fn behind_part(crc: u32) -> u32 {
        let [first, second, third, fourth] = crc.to_le_bytes().map(usize::from);
        TABLES[0][first] ^ TABLES[1][second] ^ TABLES[2][third] ^ TABLES[3][fourth]
    }

    const fn apply(map: &Map, mut crc: u32) -> u32 {
        let (mut sum, mut bit) = (0, 0);
        while crc != 0 {
            if crc & 1 != 0 {
                sum ^= map[bit];
            }
            crc >>= 1;
            bit += 1;
        }
        sum
    }

    const fn tables() -> [[u32; 256]; 4] {
        // One zero bit: all move down, and the lowest becomes the polynomial.
        let mut map: Map = [POLYNOMIAL; 32];
        let mut bit = 1;
        while bit < 32 {
            map[bit] = 1 << (bit - 1);
            bit += 1;
        }
        let mut doubled = 0;
        while doubled < DOUBLINGS {
            let before = map;
            bit = 0;
            while bit < 32 {
                map[bit] = apply(&before, before[bit]);
                bit += 1;
            }
            doubled += 1;
        }
        let mut tables = [[0; 256]; 4];
        let mut byte = 0;
        while byte < 256 {
            let mut place = 0;
            while place < 4 {
                tables[place][byte] = apply(&map, (byte as u32) << (8 * place));
                place += 1;
            }
            byte += 1;
        }
        tables
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

    /// From three parts side by side on: each border between one, two and three of them, and what is left.
    #[test]
    fn long_runs_agree_with_the_tables() {
        let bytes: Vec<u8> = (0..9300_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
        for start in [0, 1, 7] {
            for length in (760..780).chain(1530..1545).chain([3072, 3073, 9215, 9216, 9290]) {
                let part = &bytes[start..start + length];
                assert_eq!(of(part), CASTAGNOLI.checksum(part).to_le_bytes(), "{length} bytes from {start} on");
            }
        }
    }
}
