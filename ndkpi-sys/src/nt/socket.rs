//! Socket addresses of `ws2def.h` and `ws2ipdef.h`. Ports and addresses are in network byte order, as on the wire.

use super::{CHAR, ULONG, USHORT};
use crate::abi::{layout, zeroed};

pub type ADDRESS_FAMILY = USHORT;

pub const AF_UNSPEC: ADDRESS_FAMILY = 0;
pub const AF_INET: ADDRESS_FAMILY = 2;
pub const AF_INET6: ADDRESS_FAMILY = 23;

/// A socket address of any family: read `sa_family`, then the type of that family.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SOCKADDR {
    pub sa_family: ADDRESS_FAMILY,
    pub sa_data: [CHAR; 14],
}
layout!(SOCKADDR, size 16, align 2, { sa_family: 0, sa_data: 2 });

pub type PSOCKADDR = *mut SOCKADDR;

/// An IPv4 address in network byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IN_ADDR {
    pub S_addr: ULONG,
}
layout!(IN_ADDR, size 4, align 4, { S_addr: 0 });

/// An IPv6 address in network byte order.
#[repr(C, align(2))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IN6_ADDR {
    pub Byte: [u8; 16],
}
layout!(IN6_ADDR, size 16, align 2, { Byte: 0 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SOCKADDR_IN {
    pub sin_family: ADDRESS_FAMILY,
    pub sin_port: USHORT,
    pub sin_addr: IN_ADDR,
    pub sin_zero: [CHAR; 8],
}
layout!(SOCKADDR_IN, size 16, align 4, { sin_family: 0, sin_port: 2, sin_addr: 4, sin_zero: 8 });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SOCKADDR_IN6 {
    pub sin6_family: ADDRESS_FAMILY,
    pub sin6_port: USHORT,
    pub sin6_flowinfo: ULONG,
    pub sin6_addr: IN6_ADDR,
    /// A union with `sin6_scope_struct` (zone and level) in C.
    pub sin6_scope_id: ULONG,
}
layout!(SOCKADDR_IN6, size 28, align 4, {
    sin6_family: 0, sin6_port: 2, sin6_flowinfo: 4, sin6_addr: 8, sin6_scope_id: 24,
});

/// An IPv4 or IPv6 socket address. All members begin with the family.
#[repr(C)]
#[derive(Clone, Copy)]
pub union SOCKADDR_INET {
    pub Ipv4: SOCKADDR_IN,
    pub Ipv6: SOCKADDR_IN6,
    pub si_family: ADDRESS_FAMILY,
}
layout!(union SOCKADDR_INET, size 28, align 4, { Ipv4: 0, Ipv6: 0, si_family: 0 });

impl SOCKADDR_INET {
    /// The address family, whichever member was written.
    #[must_use]
    pub const fn family(&self) -> ADDRESS_FAMILY {
        // SAFETY: every member starts with the family, and any two bytes are a valid number.
        unsafe { self.si_family }
    }
}

impl core::fmt::Debug for SOCKADDR_INET {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.family() {
            AF_INET => {
                // SAFETY: the family names this member, and any bytes are valid for it.
                let address = unsafe { &self.Ipv4 };
                address.fmt(formatter)
            }
            AF_INET6 => {
                // SAFETY: the family names this member, and any bytes are valid for it.
                let address = unsafe { &self.Ipv6 };
                address.fmt(formatter)
            }
            family => formatter.debug_struct("SOCKADDR_INET").field("si_family", &family).finish(),
        }
    }
}

/// IPv6 zone and level (`SCOPE_ID`): zone in bits 0..28, level in bits 28..32.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SCOPE_ID {
    pub Value: ULONG,
}
layout!(SCOPE_ID, size 4, align 4, { Value: 0 });

zeroed!(SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET);
