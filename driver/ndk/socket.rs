//! Socket addresses of consumers: in from SOCKADDR with a length, out to a buffer with the length protocol.

use core::{marker::PhantomData, net::SocketAddr};

use ndkpi_sys::nt::{AF_INET, AF_INET6, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6, ULONG};
use softndk_kernel::address;

use super::entry::{Argument, Buffer};
use crate::runtime::refusal::Refusal;

/// An address of the consumer, and its length.
#[derive(Clone, Copy)]
pub struct ConsumerAddress<'call> {
    place: *const SOCKADDR,
    length: usize,
    call: PhantomData<&'call SOCKADDR>,
}

impl Argument<(*const SOCKADDR, ULONG)> for ConsumerAddress<'_> {
    unsafe fn take((place, length): (*const SOCKADDR, ULONG)) -> Self {
        Self { place, length: length as usize, call: PhantomData }
    }
}

impl ConsumerAddress<'_> {
    pub fn get(self) -> Result<SocketAddr, Refusal> {
        match self.read::<u16>()? {
            AF_INET => Ok(address::v4(&self.read::<SOCKADDR_IN>()?)),
            AF_INET6 => Ok(address::v6(&self.read::<SOCKADDR_IN6>()?)),
            _ => Err(Refusal::UNKNOWN_FAMILY),
        }
    }

    /// The address as one form of it, whose members are numbers.
    fn read<T: Copy>(self) -> Result<T, Refusal> {
        if self.place.is_null() || self.length < size_of::<T>() {
            return Err(Refusal::BAD_ADDRESS);
        }
        // SAFETY: as many readable bytes as the length says (`take`).
        Ok(unsafe { self.place.cast::<T>().read_unaligned() })
    }
}

/// Writes an address into a consumer's buffer: its length is its size, then the bytes written or needed.
pub fn write(address: Option<SocketAddr>, buffer: Buffer<'_>) -> Result<(), Refusal> {
    let space = buffer.get()?;
    let address = address.ok_or(Refusal::NO_ADDRESS_YET)?;
    space.fill(&address::inet(&address), address::size(&address))
}
