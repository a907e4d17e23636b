//! Little-endian fields of messages, one behind the other.

/// A message that grows.
#[derive(Default)]
pub struct Fields(pub Vec<u8>);

impl Fields {
    pub fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn fields(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Text as SMB has it.
    pub fn text(self, text: &str) -> Self {
        text.encode_utf16().fold(self, Self::u16)
    }
}

fn at<const LENGTH: usize>(bytes: &[u8], at: usize) -> [u8; LENGTH] {
    let field = bytes.get(at..at + LENGTH).and_then(|field| field.try_into().ok());
    field.unwrap_or_else(|| panic!("no {LENGTH} bytes at {at} of {bytes:02x?}"))
}

pub fn u16_at(bytes: &[u8], place: usize) -> u16 {
    u16::from_le_bytes(at(bytes, place))
}

pub fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_le_bytes(at(bytes, place))
}

pub fn u64_at(bytes: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(at(bytes, place))
}
