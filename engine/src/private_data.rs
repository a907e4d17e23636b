//! Private data: the bytes that a consumer sends with a request or its answer.

use softndk_cells::{Dispose, Shared};

use crate::error::ConnectError;
use crate::limits::PRIVATE_DATA;

/// Private data on its way: a pointer, because messages are moved through many frames of a small stack.
#[derive(Clone)]
pub(crate) struct PrivateData(Option<Shared<PrivateBytes>>);

struct PrivateBytes {
    bytes: [u8; PRIVATE_DATA],
    length: usize,
}

impl Dispose for PrivateBytes {}

static NO_BYTES: PrivateBytes = PrivateBytes { bytes: [0; PRIVATE_DATA], length: 0 };

impl PrivateData {
    pub(crate) const fn empty() -> Self {
        Self(None)
    }

    /// Copies data that is at most `most` bytes long. No data needs no memory.
    #[inline(never)]
    pub(crate) fn new(data: &[u8], most: u32) -> Result<Self, ConnectError> {
        if data.is_empty() {
            return Ok(Self::empty());
        }
        let mut copy = PrivateBytes { bytes: [0; PRIVATE_DATA], length: data.len() };
        let place = copy.bytes.get_mut(..data.len()).filter(|_| data.len() <= most as usize);
        place.ok_or(ConnectError::PrivateDataTooLong)?.copy_from_slice(data);
        Ok(Self(Some(Shared::try_new(copy)?)))
    }

    fn bytes(&self) -> &PrivateBytes {
        self.0.as_deref().unwrap_or(&NO_BYTES)
    }

    /// The data alone.
    pub(crate) fn data(&self) -> &[u8] {
        let PrivateBytes { bytes, length } = self.bytes();
        bytes.get(..*length).unwrap_or_default()
    }

    pub(crate) fn length(&self) -> usize {
        self.bytes().length
    }

    /// The data and the zeros behind it.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.bytes().bytes
    }
}
