//! Terminate messages: why one side ends a stream.
//!
//! A Terminate is a hint. It may be lost, and Linux siw fills it in differently (`CONTROL_SIW`), so no status of a consumer may depend
//! on more than its code. What it echoes is matched by order, never by trust.

use crate::bytes::{Reader, Writer};

/// Why a stream ends: the layer that found the fault, the type of the error, its code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Code {
    pub layer: u8,
    pub kind: u8,
    pub code: u8,
}

impl Code {
    /// As it begins the control field.
    #[must_use]
    pub const fn word(self) -> u16 {
        u16::from_be_bytes([self.layer << 4 | self.kind & 0x0F, self.code])
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = ($layer:literal, $kind:literal, $code:literal), $text:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self { layer: $layer, kind: $kind, code: $code };)*

            /// What it says; `None` for a code that no RFC has.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match (self.layer, self.kind, self.code) {
                    $(($layer, $kind, $code) => Some($text),)*
                    _ => None,
                }
            }
        }

        #[cfg(test)]
        const ALL: &[Code] = &[$(Code::$name),*];
    };
}

codes! {
    LOCAL_CATASTROPHIC = (0, 0, 0x00), "local catastrophic error";
    REMOTE_INVALID_STAG = (0, 1, 0x00), "invalid STag";
    REMOTE_BOUNDS = (0, 1, 0x01), "base or bounds";
    REMOTE_ACCESS = (0, 1, 0x02), "access rights";
    REMOTE_DOMAIN = (0, 1, 0x03), "STag of another stream";
    REMOTE_WRAP = (0, 1, 0x04), "tagged offset wraps";
    PROTECTION_NOT_INVALIDATED = (0, 1, 0x09), "STag of another domain cannot be invalidated";
    PROTECTION_UNSPECIFIED = (0, 1, 0xFF), "unspecified protection error";
    RDMAP_VERSION = (0, 2, 0x05), "RDMAP version";
    UNEXPECTED_OPCODE = (0, 2, 0x06), "unexpected opcode";
    STREAM_CATASTROPHIC = (0, 2, 0x07), "catastrophic error of the stream";
    GLOBAL_CATASTROPHIC = (0, 2, 0x08), "catastrophic error";
    NOT_INVALIDATED = (0, 2, 0x09), "STag cannot be invalidated";
    OPERATION_UNSPECIFIED = (0, 2, 0xFF), "unspecified operation error";
    DDP_CATASTROPHIC = (1, 0, 0x00), "local catastrophic DDP error";
    TAGGED_INVALID_STAG = (1, 1, 0x00), "tagged buffer: invalid STag";
    TAGGED_BOUNDS = (1, 1, 0x01), "tagged buffer: base or bounds";
    TAGGED_DOMAIN = (1, 1, 0x02), "tagged buffer: STag of another stream";
    TAGGED_WRAP = (1, 1, 0x03), "tagged buffer: offset wraps";
    TAGGED_VERSION = (1, 1, 0x04), "tagged buffer: DDP version";
    QUEUE_NUMBER = (1, 2, 0x01), "untagged buffer: queue number";
    NO_BUFFER = (1, 2, 0x02), "untagged buffer: none is available";
    MSN_RANGE = (1, 2, 0x03), "untagged buffer: message sequence number";
    MESSAGE_OFFSET = (1, 2, 0x04), "untagged buffer: message offset";
    MESSAGE_TOO_LONG = (1, 2, 0x05), "untagged buffer: message too long";
    UNTAGGED_VERSION = (1, 2, 0x06), "untagged buffer: DDP version";
    STREAM_LOST = (2, 0, 0x01), "stream lost";
    CRC = (2, 0, 0x02), "CRC";
    FRAME_LENGTH = (2, 0, 0x03), "marker or frame length";
    START_FRAME = (2, 0, 0x04), "MPA Request or Reply";
    MPA_CATASTROPHIC = (2, 0, 0x05), "local catastrophic MPA error";
    INSUFFICIENT_IRD = (2, 0, 0x06), "insufficient IRD";
    NO_MATCHING_RTR = (2, 0, 0x07), "no matching ready-to-receive";
}

/// What of the offending segment a Terminate repeats.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Echo<'a> {
    Nothing,
    /// The headers of a segment, the length first: 16 bytes of a tagged one, 20 of an untagged one, 48 of a Read Request.
    Headers(&'a [u8]),
}

/// The payload of a Terminate behind its untagged header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terminate<'a> {
    pub code: Code,
    pub echo: Echo<'a>,
}

/// The length of the segment is there, its DDP header, its RDMAP header.
const LENGTH_VALID: u16 = 0x8000;
const DDP_HEADER: u16 = 0x4000;
const RDMAP_HEADER: u16 = 0x2000;

/// The same three in the way of siw, in the low bits of their byte.
const CONTROL_SIW: u16 = 0x0700;

/// Bytes of the longest payload.
pub const MOST: usize = 4 + READ_REQUEST;

const TAGGED: usize = 16;
const UNTAGGED: usize = 20;
const READ_REQUEST: usize = 48;

impl<'a> Terminate<'a> {
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code, echo: Echo::Nothing }
    }

    /// Writes the payload; its length, or `None` where it does not fit.
    pub fn encode(&self, into: &mut [u8]) -> Option<usize> {
        let (control, echo) = match self.echo {
            Echo::Nothing => (0, &[][..]),
            Echo::Headers(headers) => {
                let control = LENGTH_VALID | DDP_HEADER | if headers.len() == READ_REQUEST { RDMAP_HEADER } else { 0 };
                (control, headers)
            }
        };
        Writer::new(into).u16(self.code.word()).u16(control).put(echo).finish()
    }

    /// Reads a payload. The echo is what remains of it, whatever its control bits say: siw's and cards' differ.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let (first, code, control) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let of = |layer, kind| Code { layer, kind, code };
        let (given, swapped) = (of(first >> 4, first & 0xF), of(first & 0xF, first >> 4));
        // siw on x86 has the nibbles in the other order, and its control bits elsewhere.
        let is_swapped = control & CONTROL_SIW != 0 || given.name().is_none() && swapped.name().is_some();
        let whole = match reader.0.len() {
            TAGGED | UNTAGGED | READ_REQUEST => Echo::Headers(reader.0),
            _ => Echo::Nothing,
        };
        Some(Self { code: if is_swapped { swapped } else { given }, echo: whole })
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Code, Echo, MOST, READ_REQUEST, TAGGED, Terminate, UNTAGGED};

    #[test]
    fn every_code_has_a_name_of_its_own() {
        for (at, code) in ALL.iter().enumerate() {
            assert!(code.name().is_some());
            assert!(!ALL[at + 1..].contains(code), "{code:?}");
        }
        assert_eq!(Code { layer: 3, kind: 0, code: 0 }.name(), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let headers = [0x5A; READ_REQUEST];
        for code in ALL {
            for length in [0, TAGGED, UNTAGGED, READ_REQUEST] {
                let echo = if length == 0 { Echo::Nothing } else { Echo::Headers(&headers[..length]) };
                let sent = Terminate { code: *code, echo };
                let mut bytes = [0; MOST];
                let written = sent.encode(&mut bytes).unwrap();
                assert_eq!(written, 4 + length);
                assert_eq!(Terminate::decode(&bytes[..written]), Some(sent));
                assert_eq!(sent.encode(&mut bytes[..written - 1]), None);
            }
        }
    }

    #[test]
    fn form_of_siw_is_recognised_by_its_control_bits() {
        let read = Terminate::decode(&[0x11, 0x01, 0x03, 0x00]).unwrap();
        assert_eq!((read.code, read.echo), (Code::TAGGED_BOUNDS, Echo::Nothing));
        let read = Terminate::decode(&[0x21, 0x02, 0x03, 0x00]).unwrap();
        assert_eq!(read.code, Code::NO_BUFFER);
        // Without an echo, by the name.
        assert_eq!(Terminate::decode(&[0x02, 0x03, 0, 0]).unwrap().code, Code::FRAME_LENGTH);
        assert_eq!(Terminate::decode(&[0x21, 0x02, 0x03]), None);
    }
}
