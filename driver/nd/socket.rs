//! Socket addresses in the ABI's form, SOCKADDR_INET.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use ndkpi_sys::nt::{AF_INET, AF_INET6, NTSTATUS, STATUS_INVALID_ADDRESS};
use softndk_ioctl::nd::control::SocketAddress;

/// Bytes of an IPv4 address, and where flow information, address and zone of an IPv6 one are.
const V4: usize = 4;
const V6_ADDRESS: usize = 4;
const V6_ZONE: usize = 20;

/// The address of a request.
pub fn read(from: &SocketAddress) -> Result<SocketAddr, NTSTATUS> {
    let port = u16::from_be_bytes(from.port);
    match from.family {
        AF_INET => {
            let octets = from.rest.first_chunk::<V4>().ok_or(STATUS_INVALID_ADDRESS)?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(*octets)), port))
        }
        AF_INET6 => {
            let octets = from.rest.get(V6_ADDRESS..).and_then(|rest| rest.first_chunk::<16>());
            let zone = from.rest.get(V6_ZONE..).and_then(|rest| rest.first_chunk::<4>());
            let (Some(octets), Some(zone)) = (octets, zone) else { return Err(STATUS_INVALID_ADDRESS) };
            let ip = Ipv6Addr::from(*octets);
            Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, u32::from_le_bytes(*zone))))
        }
        _ => Err(STATUS_INVALID_ADDRESS),
    }
}

/// The zone of an address; 0: any.
pub fn zone(address: SocketAddr) -> u32 {
    if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 }
}

/// Whether two zones can be the same.
pub fn zones_fit(one: u32, other: u32) -> bool {
    one == 0 || other == 0 || one == other
}

/// The address of an answer; bytes that mean nothing are zero.
pub fn write(address: &SocketAddr) -> SocketAddress {
    let mut form = SocketAddress { port: address.port().to_be_bytes(), ..SocketAddress::default() };
    let mut put = |place: usize, bytes: &[u8]| {
        if let Some(to) = form.rest.get_mut(place..).and_then(|rest| rest.get_mut(..bytes.len())) {
            to.copy_from_slice(bytes);
        }
    };
    match address {
        SocketAddr::V4(address) => put(0, &address.ip().octets()),
        SocketAddr::V6(address) => {
            put(V6_ADDRESS, &address.ip().octets());
            put(V6_ZONE, &address.scope_id().to_le_bytes());
        }
    }
    form.family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    form
}
