//! DDP segments with their RDMAP headers: what a frame carries.

/// Operations of RDMAP.
pub mod opcode {
    pub const WRITE: u8 = 0;
    pub const READ_REQUEST: u8 = 1;
    pub const READ_RESPONSE: u8 = 2;
    pub const SEND: u8 = 3;
    pub const SEND_INVALIDATE: u8 = 4;
    pub const SEND_SOLICITED: u8 = 5;
    pub const SEND_SOLICITED_INVALIDATE: u8 = 6;
    pub const TERMINATE: u8 = 7;
}

/// Queues of untagged messages.
pub mod queue {
    pub const SEND: u32 = 0;
    pub const READ: u32 = 1;
    pub const TERMINATE: u32 = 2;
}

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_DDP: u8 = 0x01;
const VERSION_RDMAP: u8 = 0x40;

/// Bytes of the headers.
pub const TAGGED_HEADER: usize = 14;
pub const UNTAGGED_HEADER: usize = 18;
pub const READ_REQUEST: usize = 28;

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Tagged { opcode: u8, is_last: bool, stag: u32, offset: u64, data: Vec<u8> },
    Untagged { opcode: u8, is_last: bool, stag: u32, queue: u32, number: u32, offset: u32, data: Vec<u8> },
}

/// The fields of a Read Request behind its untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub sink_stag: u32,
    pub sink_offset: u64,
    pub length: u32,
    pub source_stag: u32,
    pub source_offset: u64,
}

impl Segment {
    pub fn write(stag: u32, offset: u64, data: &[u8]) -> Self {
        Self::Tagged { opcode: opcode::WRITE, is_last: true, stag, offset, data: data.to_vec() }
    }

    /// The empty Write by which an initiator says that it is ready.
    pub fn ready_write() -> Self {
        Self::write(1, 0, &[])
    }

    /// The empty Read by which one does, as the first of its queue.
    pub fn ready_read() -> Self {
        let request = ReadRequest { sink_stag: 1, sink_offset: 0, length: 0, source_stag: 1, source_offset: 0 };
        Self::read_request(1, &request)
    }

    pub fn send(number: u32, data: &[u8]) -> Self {
        Self::send_of(opcode::SEND, 0, number, data)
    }

    /// A Send of any kind.
    pub fn send_of(opcode: u8, stag: u32, number: u32, data: &[u8]) -> Self {
        Self::Untagged { opcode, is_last: true, stag, queue: queue::SEND, number, offset: 0, data: data.to_vec() }
    }

    pub fn read_request(number: u32, request: &ReadRequest) -> Self {
        let mut data = request.sink_stag.to_be_bytes().to_vec();
        data.extend(request.sink_offset.to_be_bytes());
        data.extend(request.length.to_be_bytes());
        data.extend(request.source_stag.to_be_bytes());
        data.extend(request.source_offset.to_be_bytes());
        let opcode = opcode::READ_REQUEST;
        Self::Untagged { opcode, is_last: true, stag: 0, queue: queue::READ, number, offset: 0, data }
    }

    pub fn read_response(stag: u32, offset: u64, data: &[u8]) -> Self {
        Self::Tagged { opcode: opcode::READ_RESPONSE, is_last: true, stag, offset, data: data.to_vec() }
    }

    pub fn terminate(words: &[u8]) -> Self {
        let opcode = opcode::TERMINATE;
        let data = words.to_vec();
        Self::Untagged { opcode, is_last: true, stag: 0, queue: queue::TERMINATE, number: 1, offset: 0, data }
    }

    /// The same segment, with others behind it in its message.
    #[must_use]
    pub fn not_last(mut self) -> Self {
        let (Self::Tagged { is_last, .. } | Self::Untagged { is_last, .. }) = &mut self;
        *is_last = false;
        self
    }

    /// The same segment so far into its message.
    #[must_use]
    pub fn at(mut self, place: u32) -> Self {
        match &mut self {
            Self::Tagged { offset, .. } => *offset += u64::from(place),
            Self::Untagged { offset, .. } => *offset = place,
        }
        self
    }

    pub fn data(&self) -> &[u8] {
        let (Self::Tagged { data, .. } | Self::Untagged { data, .. }) = self;
        data
    }

    pub const fn is_last(&self) -> bool {
        let (Self::Tagged { is_last, .. } | Self::Untagged { is_last, .. }) = self;
        *is_last
    }

    pub const fn opcode(&self) -> u8 {
        let (Self::Tagged { opcode, .. } | Self::Untagged { opcode, .. }) = self;
        *opcode
    }

    /// The number of its message, if it is untagged.
    pub const fn number(&self) -> Option<u32> {
        match self {
            Self::Tagged { .. } => None,
            Self::Untagged { number, .. } => Some(*number),
        }
    }

    /// The payload of its frame.
    pub fn payload(&self) -> Vec<u8> {
        let last = |is_last: bool| if is_last { LAST } else { 0 };
        match self {
            Self::Tagged { opcode, is_last, stag, offset, data } => {
                let mut bytes = vec![TAGGED | last(*is_last) | VERSION_DDP, VERSION_RDMAP | opcode];
                bytes.extend(stag.to_be_bytes());
                bytes.extend(offset.to_be_bytes());
                bytes.extend(data);
                bytes
            }
            Self::Untagged { opcode, is_last, stag, queue, number, offset, data } => {
                let mut bytes = vec![last(*is_last) | VERSION_DDP, VERSION_RDMAP | opcode];
                for word in [stag, queue, number, offset] {
                    bytes.extend(word.to_be_bytes());
                }
                bytes.extend(data);
                bytes
            }
        }
    }

    /// Reads the payload of a frame.
    pub fn parse(payload: &[u8]) -> Self {
        let [ddp, rdmap] = [payload[0], payload[1]];
        assert_eq!(ddp & !(TAGGED | LAST), VERSION_DDP, "the first control byte of {payload:02x?}");
        assert_eq!(rdmap & 0xF0, VERSION_RDMAP, "the second control byte of {payload:02x?}");
        let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
        let (opcode, is_last, stag) = (rdmap & 0x0F, ddp & LAST != 0, word(2));
        if ddp & TAGGED != 0 {
            let offset = u64::from_be_bytes(payload[6..TAGGED_HEADER].try_into().expect("eight bytes"));
            return Self::Tagged { opcode, is_last, stag, offset, data: payload[TAGGED_HEADER..].to_vec() };
        }
        let [queue, number, offset] = [6, 10, 14].map(word);
        Self::Untagged { opcode, is_last, stag, queue, number, offset, data: payload[UNTAGGED_HEADER..].to_vec() }
    }
}

impl ReadRequest {
    /// Reads the data of a segment.
    pub fn parse(segment: &Segment) -> Self {
        let Segment::Untagged { opcode: opcode::READ_REQUEST, is_last: true, queue: queue::READ, data, .. } = segment
        else {
            panic!("no Read Request: {segment:02x?}")
        };
        assert_eq!(data.len(), READ_REQUEST);
        let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().expect("eight bytes"));
        Self {
            sink_stag: word(0),
            sink_offset: long(4),
            length: word(12),
            source_stag: word(16),
            source_offset: long(20),
        }
    }
}
