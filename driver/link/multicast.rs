//! The multicast addresses that the protocol set (OID_802_3_MULTICAST_LIST).

use super::handle::MacAddress;

/// OID_802_3_MAXIMUM_LIST_SIZE.
pub const MULTICAST_MAX: usize = 32;

/// The list given was longer than [`MULTICAST_MAX`].
pub struct TooMany;

#[derive(Clone, Copy)]
pub struct MulticastList {
    addresses: [MacAddress; MULTICAST_MAX],
    count: usize,
}

impl MulticastList {
    pub const fn new() -> Self {
        Self { addresses: [[0; 6]; MULTICAST_MAX], count: 0 }
    }

    /// A list with the given addresses, one after the other; a tail shorter than an address is ignored.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TooMany> {
        let mut list = Self::new();
        let (addresses, _tail) = bytes.as_chunks::<6>();
        list.addresses.get_mut(..addresses.len()).ok_or(TooMany)?.copy_from_slice(addresses);
        list.count = addresses.len();
        Ok(list)
    }

    pub fn contains(&self, address: MacAddress) -> bool {
        self.addresses.iter().take(self.count).any(|known| *known == address)
    }
}
