//! Socket addresses as the dispatch tables take and give them.

use core::{
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
};

use ndkpi_sys::nt::{AF_INET, AF_INET6, IN_ADDR, IN6_ADDR, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET};

/// An address in the form of its family.
pub struct WireAddress {
    form: SOCKADDR_INET,
    /// Of the family's form.
    length: u32,
}

impl WireAddress {
    pub fn as_ptr(&self) -> *const SOCKADDR {
        (&raw const self.form).cast()
    }

    pub fn length(&self) -> u32 {
        self.length
    }
}

/// An address in the form of its family.
pub fn wire_form(address: &SocketAddr) -> WireAddress {
    let mut form = SOCKADDR_INET::zeroed();
    let length = match address {
        SocketAddr::V4(address) => {
            form.Ipv4 = SOCKADDR_IN {
                sin_family: AF_INET,
                sin_port: address.port().to_be(),
                sin_addr: IN_ADDR { S_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            size_of::<SOCKADDR_IN>()
        }
        SocketAddr::V6(address) => {
            form.Ipv6 = SOCKADDR_IN6 {
                sin6_family: AF_INET6,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: IN6_ADDR { Byte: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            size_of::<SOCKADDR_IN6>()
        }
    };
    WireAddress { form, length: length as u32 }
}

/// The IP address of a form, if it is of a family that NDK has.
pub fn ip_address(form: &SOCKADDR_INET) -> Option<IpAddr> {
    socket_address(form).map(|address| address.ip())
}

/// The address of a form, if it is of a family that NDK has.
pub fn socket_address(form: &SOCKADDR_INET) -> Option<SocketAddr> {
    let family = form.family();
    if family == AF_INET {
        // SAFETY: the family says that this is the IPv4 form, whose bytes are all plain data.
        let form = unsafe { form.Ipv4 };
        let ip = Ipv4Addr::from(form.sin_addr.S_addr.to_ne_bytes());
        Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(form.sin_port)))
    } else if family == AF_INET6 {
        // SAFETY: the family says that this is the IPv6 form, whose bytes are all plain data.
        let form = unsafe { form.Ipv6 };
        let ip = Ipv6Addr::from(form.sin6_addr.Byte);
        Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(form.sin6_port), 0, form.sin6_scope_id)))
    } else {
        None
    }
}
