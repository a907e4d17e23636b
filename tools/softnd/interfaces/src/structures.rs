//! Structures of the system that both versions use.

use core::ffi::c_void;

/// OVERLAPPED. The first two fields are an IO_STATUS_BLOCK: status and bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Overlapped {
    pub internal: usize,
    pub internal_high: usize,
    pub offset: u32,
    pub offset_high: u32,
    /// With its lowest bit set no packet is queued to the file's completion port.
    pub event: *mut c_void,
}

impl Overlapped {
    #[must_use]
    pub const fn new(event: *mut c_void) -> Self {
        Self { internal: 0, internal_high: 0, offset: 0, offset_high: 0, event }
    }
}

/// SOCKET_ADDRESS.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SocketAddressEntry {
    pub address: *mut c_void,
    pub length: i32,
}

/// SOCKET_ADDRESS_LIST: a count, then entries; the addresses stand behind them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SocketAddressList {
    pub count: i32,
    pub addresses: [SocketAddressEntry; 1],
}

const _: () = {
    assert!(size_of::<Overlapped>() == 32);
    assert!(size_of::<SocketAddressEntry>() == 16);
    assert!(size_of::<SocketAddressList>() == 24);
    assert!(core::mem::offset_of!(SocketAddressList, addresses) == 8);
};
