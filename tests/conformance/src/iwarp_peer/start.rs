//! MPA Request and Reply: the frames that begin a stream.

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

/// Bytes in front of what the length counts.
pub const HEADER: usize = 20;

/// Bits of the flags.
pub mod flag {
    pub const MARKERS: u8 = 0x80;
    pub const CRC: u8 = 0x40;
    pub const REJECT: u8 = 0x20;
    pub const ENHANCED: u8 = 0x10;
}

/// The two words in front of the private data, as they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// A, B, and the Reads that the sender serves at once.
    pub inbound: u16,
    /// C, D, and the Reads that the sender asks to have outstanding.
    pub outbound: u16,
}

impl Enhanced {
    /// A: the initiator sends a ready-to-receive frame.
    pub const PEER_TO_PEER: u16 = 0x8000;
    /// B, with the inbound Reads: by a frame without payload.
    pub const EMPTY_FRAME: u16 = 0x4000;
    /// C, with the outbound Reads: by an empty Write.
    pub const WRITE: u16 = 0x8000;
    /// D, with the outbound Reads: by an empty Read.
    pub const READ: u16 = 0x4000;
    /// The bits of the number of Reads.
    pub const LIMIT: u16 = 0x3FFF;

    /// Both numbers, without a ready-to-receive frame.
    pub const fn limits(inbound: u16, outbound: u16) -> Self {
        Self { inbound, outbound }
    }

    /// Both numbers, with a ready-to-receive frame of these kinds.
    pub const fn with_ready(inbound: u16, outbound: u16, kinds: u16) -> Self {
        Self { inbound: Self::PEER_TO_PEER | inbound, outbound: kinds | outbound }
    }
}

/// A Request or a Reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFrame {
    pub is_reply: bool,
    pub flags: u8,
    pub revision: u8,
    pub enhanced: Option<Enhanced>,
    pub private_data: Vec<u8>,
}

impl StartFrame {
    /// A Request of revision 2 with CRC.
    pub fn request(enhanced: Enhanced, private_data: &[u8]) -> Self {
        let flags = flag::CRC | flag::ENHANCED;
        Self { is_reply: false, flags, revision: 2, enhanced: Some(enhanced), private_data: private_data.to_vec() }
    }

    /// A Reply that accepts with CRC.
    pub fn reply(enhanced: Enhanced, private_data: &[u8]) -> Self {
        Self { is_reply: true, ..Self::request(enhanced, private_data) }
    }

    /// A frame of revision 1 with CRC.
    pub fn of_revision_1(is_reply: bool, private_data: &[u8]) -> Self {
        Self { is_reply, flags: flag::CRC, revision: 1, enhanced: None, private_data: private_data.to_vec() }
    }

    /// The bytes. The length is what is there, whatever the flags say.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut data = Vec::new();
        if let Some(enhanced) = self.enhanced {
            data.extend(enhanced.inbound.to_be_bytes());
            data.extend(enhanced.outbound.to_be_bytes());
        }
        data.extend(&self.private_data);
        let mut bytes = if self.is_reply { REPLY_KEY } else { REQUEST_KEY }.to_vec();
        bytes.extend([self.flags, self.revision]);
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    /// How many bytes the frame has, once its header is there.
    pub fn length(header: &[u8; HEADER]) -> usize {
        HEADER + usize::from(u16::from_be_bytes([header[18], header[19]]))
    }

    /// Reads a whole frame.
    pub fn parse(bytes: &[u8]) -> Self {
        let is_reply = match &bytes[..16] {
            key if key == REQUEST_KEY => false,
            key if key == REPLY_KEY => true,
            key => panic!("no key of a start-up frame: {key:02x?}"),
        };
        let (flags, revision, data) = (bytes[16], bytes[17], &bytes[HEADER..]);
        let has_enhanced = revision == 2 && flags & flag::ENHANCED != 0 && data.len() >= 4;
        let word = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        let enhanced = has_enhanced.then(|| Enhanced { inbound: word(0), outbound: word(2) });
        let private_data = data[if has_enhanced { 4 } else { 0 }..].to_vec();
        Self { is_reply, flags, revision, enhanced, private_data }
    }
}
