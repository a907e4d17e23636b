//! Terminate messages, in the layout of RFC 5040 and in the one that Linux siw on x86 sends.

use super::frame;
use super::segment::{READ_REQUEST, Segment, TAGGED_HEADER, UNTAGGED_HEADER, opcode, queue};

/// Layer, type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8, pub u8, pub u8);

/// How the first word is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Rfc,
    /// Both halves of the first byte, and the three bits of the third, are mirrored.
    Siw,
}

/// The DDP header is repeated, and the length of its segment; the bits in the RFC's layout.
const SEGMENT: u8 = 0x80 | 0x40;
/// So is that of a Read Request.
const READ: u8 = 0x20;

/// A Terminate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    pub code: Code,
    /// The length and the headers of the segment that was refused; empty where none is repeated.
    pub echo: Vec<u8>,
}

impl Terminate {
    pub const fn new(code: Code) -> Self {
        Self { code, echo: Vec::new() }
    }

    /// With the headers of a segment.
    pub fn of(code: Code, refused: &Segment) -> Self {
        Self { code, echo: echo_of(refused) }
    }

    fn control(&self) -> u8 {
        match self.echo.len() {
            0 => 0,
            length if length == 2 + UNTAGGED_HEADER + READ_REQUEST => SEGMENT | READ,
            _ => SEGMENT,
        }
    }

    /// The segment that carries it.
    pub fn segment(&self, layout: Layout) -> Segment {
        let Code(layer, kind, code) = self.code;
        let (first, control) = match layout {
            Layout::Rfc => (layer << 4 | kind, self.control()),
            Layout::Siw => (kind << 4 | layer, self.control().reverse_bits()),
        };
        let words = [&[first, code, control, 0][..], &self.echo].concat();
        Segment::terminate(&words)
    }

    /// Reads one in the RFC's layout, whose bits must fit what is repeated.
    pub fn parse(segment: &Segment) -> Self {
        let Segment::Untagged { opcode, is_last: true, stag: 0, queue: queue::TERMINATE, number: 1, offset: 0, data } =
            segment
        else {
            panic!("no Terminate: {segment:02x?}")
        };
        assert_eq!(*opcode, opcode::TERMINATE, "{segment:02x?}");
        let terminate = Self { code: Code(data[0] >> 4, data[0] & 0xF, data[1]), echo: data[4..].to_vec() };
        assert_eq!(data[2..4], [terminate.control(), 0], "the control bits of {data:02x?}");
        terminate
    }
}

/// The length of a segment and its headers.
pub fn echo_of(segment: &Segment) -> Vec<u8> {
    let headers = match segment {
        Segment::Tagged { .. } => TAGGED_HEADER,
        Segment::Untagged { opcode: opcode::READ_REQUEST, .. } => UNTAGGED_HEADER + READ_REQUEST,
        Segment::Untagged { .. } => UNTAGGED_HEADER,
    };
    frame::build(&segment.payload(), false)[..2 + headers].to_vec()
}
