//! Socket addresses in the forms of Windows.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use ndkpi_sys::nt::{ADDRESS_FAMILY, AF_INET, AF_INET6, IN_ADDR, IN6_ADDR, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET};

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

/// Bytes of [`inet`] that belong to the form of the address's family.
pub fn size(address: &SocketAddr) -> usize {
    if address.is_ipv4() { size_of::<SOCKADDR_IN>() } else { size_of::<SOCKADDR_IN6>() }
}

/// The family of an address.
pub fn family(address: &SocketAddr) -> ADDRESS_FAMILY {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// The address of a form, if it is of a family that is known here.
pub fn socket_address(form: &SOCKADDR_INET) -> Option<SocketAddr> {
    match form.family() {
        AF_INET => {
            // SAFETY: the family says that this is the IPv4 form, whose bytes are all plain data.
            let form = unsafe { form.Ipv4 };
            Some(v4(&form))
        }
        AF_INET6 => {
            // SAFETY: the family says that this is the IPv6 form, whose bytes are all plain data.
            let form = unsafe { form.Ipv6 };
            Some(v6(&form))
        }
        _ => None,
    }
}

/// The address of the IPv4 form.
pub fn v4(form: &SOCKADDR_IN) -> SocketAddr {
    let ip = Ipv4Addr::from(form.sin_addr.S_addr.to_ne_bytes());
    SocketAddr::new(IpAddr::V4(ip), u16::from_be(form.sin_port))
}

/// The address of the IPv6 form.
pub fn v6(form: &SOCKADDR_IN6) -> SocketAddr {
    let ip = Ipv6Addr::from(form.sin6_addr.Byte);
    SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(form.sin6_port), 0, form.sin6_scope_id))
}
