//! Socket addresses as the dispatch tables take and give them.

use core::net::{IpAddr, SocketAddr};

use ndkpi_sys::nt::{SOCKADDR, SOCKADDR_INET};
pub use softndk_kernel::address::socket_address;
use softndk_kernel::address::{inet, size};

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
    WireAddress { form: inet(address), length: size(address) as u32 }
}

/// The IP address of a form, if it is of a family that NDK has.
pub fn ip_address(form: &SOCKADDR_INET) -> Option<IpAddr> {
    socket_address(form).map(|address| address.ip())
}
