//! Socket addresses of consumers: in from SOCKADDR with a length, out to a buffer with the length protocol.

use core::{
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
};

use ndkpi_sys::nt::{AF_INET, AF_INET6, IN_ADDR, IN6_ADDR, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET, ULONG};

use crate::refusal::Refusal;

/// Reads a consumer's address.
///
/// # Safety
/// `address` is null or has `length` readable bytes.
pub unsafe fn read(address: *const SOCKADDR, length: ULONG) -> Result<SocketAddr, Refusal> {
    if address.is_null() || (length as usize) < size_of::<u16>() {
        return Err(Refusal::BAD_ADDRESS);
    }
    // SAFETY: two readable bytes.
    let family = unsafe { address.cast::<u16>().read_unaligned() };
    let needed = match family {
        AF_INET => size_of::<SOCKADDR_IN>(),
        AF_INET6 => size_of::<SOCKADDR_IN6>(),
        _ => return Err(Refusal::UNKNOWN_FAMILY),
    };
    if (length as usize) < needed {
        return Err(Refusal::BAD_ADDRESS);
    }
    if family == AF_INET {
        // SAFETY: as many readable bytes as the IPv4 form has.
        let address = unsafe { address.cast::<SOCKADDR_IN>().read_unaligned() };
        let ip = Ipv4Addr::from(address.sin_addr.S_addr.to_ne_bytes());
        Ok(SocketAddr::new(IpAddr::V4(ip), u16::from_be(address.sin_port)))
    } else {
        // SAFETY: as many readable bytes as the IPv6 form has.
        let address = unsafe { address.cast::<SOCKADDR_IN6>().read_unaligned() };
        let ip = Ipv6Addr::from(address.sin6_addr.Byte);
        let port = u16::from_be(address.sin6_port);
        Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id)))
    }
}

/// Writes an address into a consumer's buffer: `*length` is its size, then the bytes written or needed.
///
/// # Safety
/// `length` is null or valid; `place` is null or has `*length` writable bytes.
pub unsafe fn write(address: Option<SocketAddr>, place: *mut SOCKADDR, length: *mut ULONG) -> Result<(), Refusal> {
    // SAFETY: null or valid (the caller's promise).
    let Some(length) = (unsafe { length.as_mut() }) else { return Err(Refusal::NO_LENGTH) };
    let address = address.ok_or(Refusal::NO_ADDRESS_YET)?;
    let needed = size(&address) as ULONG;
    let capacity = core::mem::replace(length, needed);
    if place.is_null() || capacity < needed {
        return Err(Refusal::SMALL_BUFFER);
    }
    let form = inet(&address);
    let form: *const SOCKADDR_INET = &raw const form;
    // SAFETY: the buffer has `needed` bytes, which is the size of the form the address has.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(form.cast(), needed as usize) };
    Ok(())
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
