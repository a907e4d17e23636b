//! What the two ends of a pull say to each other by Send.

use crate::nd::proposal::MESSAGE_LENGTH;

/// Bytes of a SHA-256.
pub const HASH: usize = 32;

/// A message in its bytes.
pub type Bytes = [u8; MESSAGE_LENGTH as usize];

/// One message. A server answers each request by one of its own; after the end, or a change, it answers no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The client: the next of the two windows may be filled.
    Request,
    /// The server: the next window has so many bytes of a file of so many.
    Filled { length: u32, total: u64 },
    /// The server: that was all of a file of so many bytes.
    End { total: u64, sha256: [u8; HASH] },
    /// The server: the file cannot be read to its end.
    Broken(Broken),
    /// The client: it has all bytes, and ends the connection.
    Done,
}

/// Why a file cannot be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Shorter,
    Longer,
    Unreadable,
}

const REQUEST: u8 = 1;
const FILLED: u8 = 2;
const END: u8 = 3;
const BROKEN: u8 = 4;
const DONE: u8 = 5;

/// Where the fields are, in bytes.
const REASON_AT: usize = 1;
const LENGTH_AT: usize = 4;
const TOTAL_AT: usize = 8;
const HASH_AT: usize = 16;

impl Message {
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut bytes = [0; MESSAGE_LENGTH as usize];
        match self {
            Self::Request => bytes[0] = REQUEST,
            Self::Filled { length, total } => {
                bytes[0] = FILLED;
                bytes[LENGTH_AT..TOTAL_AT].copy_from_slice(&length.to_le_bytes());
                bytes[TOTAL_AT..HASH_AT].copy_from_slice(&total.to_le_bytes());
            }
            Self::End { total, sha256 } => {
                bytes[0] = END;
                bytes[TOTAL_AT..HASH_AT].copy_from_slice(&total.to_le_bytes());
                bytes[HASH_AT..].copy_from_slice(&sha256);
            }
            Self::Broken(broken) => {
                bytes[0] = BROKEN;
                bytes[REASON_AT] = broken as u8;
            }
            Self::Done => bytes[0] = DONE,
        }
        bytes
    }

    /// `None` for what no ndkctl of this version says.
    #[must_use]
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let total = u64::from_le_bytes(*bytes.get(TOTAL_AT..)?.first_chunk()?);
        Some(match bytes[0] {
            REQUEST => Self::Request,
            DONE => Self::Done,
            FILLED => Self::Filled { length: u32::from_le_bytes(*bytes.get(LENGTH_AT..)?.first_chunk()?), total },
            END => Self::End { total, sha256: *bytes.get(HASH_AT..)?.first_chunk()? },
            BROKEN => {
                let all = [Broken::Shorter, Broken::Longer, Broken::Unreadable];
                Self::Broken(all.into_iter().find(|broken| *broken as u8 == bytes[REASON_AT])?)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Broken, Message};

    #[test]
    fn messages_are_understood() {
        let mut sha256 = [0; 32];
        (1..).zip(&mut sha256).for_each(|(number, byte)| *byte = number);
        for message in [
            Message::Request,
            Message::Filled { length: 0x0102_0304, total: 0x1112_1314_1516_1718 },
            Message::End { total: 0x2122_2324_2526_2728, sha256 },
            Message::Broken(Broken::Shorter),
            Message::Broken(Broken::Longer),
            Message::Broken(Broken::Unreadable),
            Message::Done,
        ] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        let mut bytes = Message::Broken(Broken::Shorter).encode();
        bytes[1] = 3;
        assert_eq!(Message::decode(&bytes), None);
        for kind in [0, 6, 255] {
            bytes[0] = kind;
            assert_eq!(Message::decode(&bytes), None, "{kind}");
        }
    }
}
