//! DDP segments with their RDMAP headers: what one frame carries.
//!
//! Decoding checks all that one segment shows by itself: versions, the opcode, whether it is tagged as its opcode demands, its queue,
//! its length. Numbers and continuity are checked in `inbound.rs`.

use bitflags::bitflags;

use crate::bytes::{Reader, Writer};
use crate::terminate::Code;

bitflags! {
    /// The first control byte, of DDP.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    struct Control: u8 {
        const TAGGED = 0x80;
        const LAST = 0x40;
        const VERSION = 0x03;
    }
}

const DDP_VERSION: u8 = 1;
/// In the second control byte, of RDMAP, above the opcode.
const RDMAP_VERSION: u8 = 1 << 6;
const RDMAP_VERSION_MASK: u8 = 0xC0;
const OPCODE_MASK: u8 = 0x0F;

mod opcode {
    pub(super) const WRITE: u8 = 0;
    pub(super) const READ_REQUEST: u8 = 1;
    pub(super) const READ_RESPONSE: u8 = 2;
    pub(super) const SEND: u8 = 3;
    pub(super) const SEND_INVALIDATE: u8 = 4;
    pub(super) const SEND_SOLICITED: u8 = 5;
    pub(super) const SEND_SOLICITED_INVALIDATE: u8 = 6;
    pub(super) const TERMINATE: u8 = 7;
}

/// Queue numbers of untagged messages.
pub mod queue {
    pub const SEND: u32 = 0;
    pub const READ: u32 = 1;
    pub const TERMINATE: u32 = 2;
}

/// Bytes of the header of a tagged segment, of an untagged one, and of what a Read Request adds.
pub const TAGGED_HEADER: usize = 14;
pub const UNTAGGED_HEADER: usize = 18;
pub const READ_REQUEST: usize = 28;

/// A segment as it travels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment<'a> {
    pub header: Header,
    pub data: &'a [u8],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Header {
    Write(Tagged),
    ReadResponse(Tagged),
    Send(Send),
    ReadRequest(ReadRequest),
    /// Its payload is read by [`Terminate::decode`](crate::Terminate::decode).
    Terminate {
        msn: u32,
    },
}

/// Where the bytes of a tagged segment go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tagged {
    pub stag: u32,
    /// The tagged offset of the first byte.
    pub offset: u64,
    pub is_last: bool,
}

/// A segment of a Send of any of the four kinds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Send {
    pub kind: SendKind,
    pub msn: u32,
    /// The offset of its first byte in the message.
    pub offset: u32,
    pub is_last: bool,
}

/// What a Send asks for beside its bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendKind {
    pub is_solicited: bool,
    /// The STag that it invalidates.
    pub invalidates: Option<u32>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadRequest {
    pub msn: u32,
    pub sink_stag: u32,
    pub sink_offset: u64,
    pub length: u32,
    pub source_stag: u32,
    pub source_offset: u64,
}

impl Header {
    /// Bytes in front of the data, in a payload.
    #[must_use]
    pub const fn length(&self) -> usize {
        match self {
            Self::Write(_) | Self::ReadResponse(_) => TAGGED_HEADER,
            Self::Send(_) | Self::Terminate { .. } => UNTAGGED_HEADER,
            Self::ReadRequest(_) => UNTAGGED_HEADER + READ_REQUEST,
        }
    }

    const fn opcode(&self) -> u8 {
        match self {
            Self::Write(_) => opcode::WRITE,
            Self::ReadRequest(_) => opcode::READ_REQUEST,
            Self::ReadResponse(_) => opcode::READ_RESPONSE,
            Self::Terminate { .. } => opcode::TERMINATE,
            Self::Send(Send { kind: SendKind { is_solicited, invalidates }, .. }) => {
                match (is_solicited, invalidates) {
                    (false, None) => opcode::SEND,
                    (false, Some(_)) => opcode::SEND_INVALIDATE,
                    (true, None) => opcode::SEND_SOLICITED,
                    (true, Some(_)) => opcode::SEND_SOLICITED_INVALIDATE,
                }
            }
        }
    }

    /// Writes the header; its length, or `None` where it does not fit.
    pub fn encode(&self, into: &mut [u8]) -> Option<usize> {
        let control = |tagged: bool, last: bool| {
            let mut control = Control::from_bits_retain(DDP_VERSION);
            control.set(Control::TAGGED, tagged);
            control.set(Control::LAST, last);
            [control.bits(), RDMAP_VERSION | self.opcode()]
        };
        let writer = Writer::new(into);
        let untagged = |writer: Writer<'_>, last, stag: u32, queue: u32, msn: u32, offset: u32| {
            writer.put(&control(false, last)).u32(stag).u32(queue).u32(msn).u32(offset).finish()
        };
        match self {
            Self::Write(tagged) | Self::ReadResponse(tagged) => {
                writer.put(&control(true, tagged.is_last)).u32(tagged.stag).u64(tagged.offset).finish()
            }
            Self::Send(send) => {
                let stag = send.kind.invalidates.unwrap_or(0);
                untagged(writer, send.is_last, stag, queue::SEND, send.msn, send.offset)
            }
            Self::Terminate { msn } => untagged(writer, true, 0, queue::TERMINATE, *msn, 0),
            Self::ReadRequest(read) => writer
                .put(&control(false, true))
                .u32(0)
                .u32(queue::READ)
                .u32(read.msn)
                .u32(0)
                .u32(read.sink_stag)
                .u64(read.sink_offset)
                .u32(read.length)
                .u32(read.source_stag)
                .u64(read.source_offset)
                .finish(),
        }
    }
}

impl<'a> Segment<'a> {
    /// Reads the payload of a frame.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Code> {
        let mut reader = Reader(payload);
        let (Some(ddp), Some(rdmap)) = (reader.u8(), reader.u8()) else { return Err(Code::FRAME_LENGTH) };
        let control = Control::from_bits_retain(ddp);
        let is_tagged = control.contains(Control::TAGGED);
        if control.intersection(Control::VERSION).bits() != DDP_VERSION {
            return Err(if is_tagged { Code::TAGGED_VERSION } else { Code::UNTAGGED_VERSION });
        }
        if rdmap & RDMAP_VERSION_MASK != RDMAP_VERSION {
            return Err(Code::RDMAP_VERSION);
        }
        let (opcode, is_last) = (rdmap & OPCODE_MASK, control.contains(Control::LAST));
        let demands_tag = matches!(opcode, opcode::WRITE | opcode::READ_RESPONSE);
        if opcode > opcode::TERMINATE || is_tagged != demands_tag {
            return Err(Code::UNEXPECTED_OPCODE);
        }
        let header = if is_tagged {
            let (Some(stag), Some(offset)) = (reader.u32(), reader.u64()) else { return Err(Code::FRAME_LENGTH) };
            let tagged = Tagged { stag, offset, is_last };
            if opcode == opcode::WRITE { Header::Write(tagged) } else { Header::ReadResponse(tagged) }
        } else {
            untagged(&mut reader, opcode, is_last)?
        };
        Ok(Self { header, data: reader.0 })
    }
}

fn untagged(reader: &mut Reader<'_>, opcode: u8, is_last: bool) -> Result<Header, Code> {
    let mut next = || reader.u32().ok_or(Code::FRAME_LENGTH);
    let [stag, number, msn, offset] = [next()?, next()?, next()?, next()?];
    let expected = match opcode {
        opcode::READ_REQUEST => queue::READ,
        opcode::TERMINATE => queue::TERMINATE,
        _ => queue::SEND,
    };
    if number != expected {
        return Err(Code::QUEUE_NUMBER);
    }
    // One segment each.
    if expected != queue::SEND && (!is_last || offset != 0) {
        return Err(Code::MESSAGE_OFFSET);
    }
    match opcode {
        opcode::READ_REQUEST => read_request(reader, msn).ok_or(Code::FRAME_LENGTH),
        opcode::TERMINATE => Ok(Header::Terminate { msn }),
        _ => {
            let is_solicited = matches!(opcode, opcode::SEND_SOLICITED | opcode::SEND_SOLICITED_INVALIDATE);
            let invalidates = matches!(opcode, opcode::SEND_INVALIDATE | opcode::SEND_SOLICITED_INVALIDATE);
            let kind = SendKind { is_solicited, invalidates: invalidates.then_some(stag) };
            Ok(Header::Send(Send { kind, msn, offset, is_last }))
        }
    }
}

/// The rest of a Read Request, which ends there.
fn read_request(reader: &mut Reader<'_>, msn: u32) -> Option<Header> {
    let request = ReadRequest {
        msn,
        sink_stag: reader.u32()?,
        sink_offset: reader.u64()?,
        length: reader.u32()?,
        source_stag: reader.u32()?,
        source_offset: reader.u64()?,
    };
    reader.0.is_empty().then_some(Header::ReadRequest(request))
}
