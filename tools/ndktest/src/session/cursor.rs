//! A walk through a region in strides, round and round: the strides of `softndk-ioctl`, without a division each.

use softndk_ioctl::Stride;

#[derive(Clone, Copy)]
pub struct Cursor {
    region_length: u64,
    request_length: u32,
    offset: u64,
}

impl Cursor {
    pub fn new(region_length: u64, request_length: u32) -> Self {
        Self { region_length, request_length, offset: 0 }
    }

    /// The next stride. The last one of the region may be shorter.
    pub fn next(&mut self) -> Stride {
        // The offset never passes the region's end.
        let rest = self.region_length.saturating_sub(self.offset);
        let length = rest.min(u64::from(self.request_length)) as u32;
        let stride = Stride { offset: self.offset, length };
        self.offset += u64::from(length);
        if self.offset >= self.region_length {
            self.offset = 0;
        }
        stride
    }
}
