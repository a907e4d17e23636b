//! `SOCKADDR_IN` and `SOCKADDR_IN6`, read from a driver and written for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const AF_INET: u16 = 2;
pub(super) const AF_INET6: u16 = 23;

const V6_ADDRESS: usize = 8;
const V4_SIZE: usize = 16;
const V6_SIZE: usize = 28;

/// An address of a driver's; `None` when it is of neither family.
///
/// # Safety
///
/// `address` is that of a `SOCKADDR` as long as its family says.
pub(super) unsafe fn read(address: usize) -> Option<SocketAddr> {
    // SAFETY: the caller's contract.
    let byte = |offset: usize| unsafe { ((address + offset) as *const u8).read_volatile() };
    let bytes = |at: usize, length: usize| -> Vec<u8> { (at..at + length).map(byte).collect() };
    let head = bytes(0, 8);
    let port = u16::from_be_bytes([head[2], head[3]]);
    let ip = match u16::from_le_bytes([head[0], head[1]]) {
        AF_INET => IpAddr::V4(Ipv4Addr::new(head[4], head[5], head[6], head[7])),
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes(V6_ADDRESS, 16)).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Writes an address where the driver asks for it.
///
/// # Safety
///
/// `to` has room for the family's structure.
pub(super) unsafe fn write(to: usize, address: SocketAddr) {
    let mut bytes = [0_u8; V6_SIZE];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let length = match address.ip() {
        IpAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
            bytes[4..8].copy_from_slice(&v4.octets());
            V4_SIZE
        }
        IpAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&AF_INET6.to_le_bytes());
            bytes[V6_ADDRESS..24].copy_from_slice(&v6.octets());
            V6_SIZE
        }
    };
    // SAFETY: the caller's contract.
    unsafe { (to as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), length) };
}
