//! CRC32c (Castagnoli), as the last four bytes of a frame have it.

use crc::{CRC_32_ISCSI, Crc, Table};

/// Sixteen tables of 1 KiB: sixteen bytes a step.
static CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Bytes of the CRC.
pub const LENGTH: usize = 4;

/// The CRC of bytes as they stand on the wire: the least significant byte first, unlike every other number there.
#[must_use]
pub fn of(bytes: &[u8]) -> [u8; LENGTH] {
    CASTAGNOLI.checksum(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn check_values_of_iscsi() {
        assert_eq!(of(b"123456789"), 0xE306_9283_u32.to_le_bytes());
        assert_eq!(of(&[0; 32]), [0xAA, 0x36, 0x91, 0x8A]);
        assert_eq!(of(&[0xFF; 32]), [0x43, 0xAB, 0xA8, 0x62]);
        assert_eq!(of(&[]), [0; 4]);
    }
}
