//! The interfaces of version 1, each as a [`Face`](crate::com::Face) over the same resources as version 2's.
//!
//! What differs: all overlapped requests of an adapter go through one file, whose port gets a packet for each that does not fail;
//! registrations are handles of the adapter; a request is known by the address of its ND_RESULT; remote memory is named by
//! descriptors in network byte order; three statuses are other numbers ([`own_status`]).

mod adapter;
mod completion_queue;
mod connector;
mod endpoint;
mod listen;
mod memory_window;
mod provider;
mod regions;
mod windows;

pub use provider::V1Provider;

use core::ffi::c_void;

use softnd_interfaces::{Guid, Status, structures::Overlapped};

use crate::{
    argument::{Argument, Overlap, Place},
    overlapped,
};

/// The private identifiers of the classes; they mean something within this DLL only.
const fn class(number: u128) -> Guid {
    Guid::new(0x8C1D_6E0A_52B7_4F36_9A70_0E5D_1C3B_0100 | number)
}

/// The number that a status of an overlapped request has in version 1.
fn own_status(status: Status) -> Status {
    match status {
        Status::INVALID_BUFFER_SIZE => Status::BUFFER_OVERFLOW,
        Status::IO_TIMEOUT => Status::TIMEOUT,
        Status::CONNECTION_DISCONNECTED => Status::CANCELED,
        other => other,
    }
}

/// A count of 64 bits as the driver takes it: what does not fit is more than any limit.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

softnd_interfaces::define! {
    /// GetOverlappedResult of every class: it is about the request, whichever object the client asks.
    fn get_overlapped_result(
        _this: *mut c_void,
        overlapped: *mut Overlapped,
        bytes: *mut usize,
        wait: i32,
    ) -> Status {
        // SAFETY: the client's promise, see the module of arguments.
        let overlapped = unsafe { Overlap::of(overlapped) };
        // SAFETY: as above.
        let bytes = unsafe { Place::of(bytes) };
        own_status(overlapped::result(overlapped, bytes, wait))
    }
}

/// The table of INDOverlapped for a class that has `cancel`.
macro_rules! overlapped_table {
    ($Face:ty) => {
        softnd_interfaces::v1::OverlappedTable1 {
            base: $crate::com::unknown_table::<$Face>(),
            cancel_overlapped_requests: $crate::argument::entry!(
                $Face,
                cancel() -> Result<(), softnd_interfaces::Status>
            ),
            get_overlapped_result: $crate::v1::get_overlapped_result,
        }
    };
}
use overlapped_table;
