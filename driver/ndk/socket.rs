//! Socket addresses of consumers: in from SOCKADDR with a length, out to a buffer with the length protocol.

use core::{
    marker::PhantomData,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
};

use ndkpi_sys::nt::{AF_INET, AF_INET6, IN_ADDR, IN6_ADDR, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET, ULONG};

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
            AF_INET => {
                let address = self.read::<SOCKADDR_IN>()?;
                let ip = Ipv4Addr::from(address.sin_addr.S_addr.to_ne_bytes());
                Ok(SocketAddr::new(IpAddr::V4(ip), u16::from_be(address.sin_port)))
            }
            AF_INET6 => {
                let address = self.read::<SOCKADDR_IN6>()?;
                let ip = Ipv6Addr::from(address.sin6_addr.Byte);
                let port = u16::from_be(address.sin6_port);
                Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id)))
            }
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
    space.fill(&inet(&address), size(&address))
}

fn size(address: &SocketAddr) -> usize {
    if address.is_ipv4() { size_of::<SOCKADDR_IN>() } else { size_of::<SOCKADDR_IN6>() }
}

/// The address as Windows writes it; bytes that mean nothing are zero.
pub fn inet(address: &SocketAddr) -> SOCKADDR_INET {
    let mut form = SOCKADDR_INET::zeroed();
    match address {
        SocketAddr::V4(address) => {
            form.Ipv4 = SOCKADDR_IN {
                sin_family: AF_INET,
                sin_port: address.port().to_be(),
                sin_addr: IN_ADDR { S_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
        }
        SocketAddr::V6(address) => {
            form.Ipv6 = SOCKADDR_IN6 {
                sin6_family: AF_INET6,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: IN6_ADDR { Byte: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
        }
    }
    form
}
