//! MPA frames: a length, a payload, padding to four bytes, a CRC.

use crc::{CRC_32_ISCSI, Crc};

const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The CRC as it travels: least significant byte first.
pub fn checksum(bytes: &[u8]) -> [u8; 4] {
    CASTAGNOLI.checksum(bytes).to_le_bytes()
}

/// Bytes of a frame with so long a payload.
pub const fn length(payload: usize) -> usize {
    (2 + payload).next_multiple_of(4) + 4
}

/// A frame around a payload.
pub fn build(payload: &[u8], with_crc: bool) -> Vec<u8> {
    let mut bytes = (payload.len() as u16).to_be_bytes().to_vec();
    bytes.extend(payload);
    bytes.resize((2 + payload.len()).next_multiple_of(4), 0);
    let sum = if with_crc { checksum(&bytes) } else { [0; 4] };
    bytes.extend(sum);
    bytes
}

/// The payload of a whole frame, whose padding and CRC must be right. Without a CRC its field is 0.
pub fn payload(frame: &[u8], with_crc: bool) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([frame[0], frame[1]]));
    let (covered, sum) = frame.split_at(frame.len() - 4);
    let expected = if with_crc { checksum(covered) } else { [0; 4] };
    assert_eq!(sum, expected, "the CRC of a frame of {length} bytes");
    assert!(covered[2 + length..].iter().all(|byte| *byte == 0), "the padding of {frame:02x?}");
    &covered[2..2 + length]
}
