//! The interfaces of version 2, each as a [`Face`](crate::com::Face) over a resource.
//!
//! A method makes typed arguments of the client's, finds the other objects, and calls the resource. Statuses are the resource's.

mod adapter;
mod completion_queue;
mod connector;
mod listener;
mod memory_region;
mod memory_window;
mod provider;
mod queue_pair;
mod shared_receive_queue;

pub use provider::V2Provider;
#[cfg(all(test, not(windows)))]
pub use queue_pair::V2QueuePair;

use core::ffi::c_void;

use softnd_interfaces::{Guid, Status, structures::Overlapped};

use crate::{
    argument::{Argument, Overlap, Place},
    overlapped,
};

/// The private identifiers of the classes; they mean something within this DLL only.
const fn class(number: u128) -> Guid {
    Guid::new(0x8C1D_6E0A_52B7_4F36_9A70_0E5D_1C3B_0200 | number)
}

softnd_interfaces::define! {
    /// GetOverlappedResult of every class: it is about the request, whichever object the client asks.
    fn get_overlapped_result(_this: *mut c_void, overlapped: *mut Overlapped, wait: i32) -> Status {
        // SAFETY: the client's promise, see the module of arguments.
        let overlapped = unsafe { Overlap::of(overlapped) };
        overlapped::result(overlapped, Place::NONE, wait)
    }
}

/// The table of IND2Overlapped for a class that has `cancel`.
macro_rules! overlapped_table {
    ($Face:ty) => {
        softnd_interfaces::v2::OverlappedTable2 {
            base: $crate::com::unknown_table::<$Face>(),
            cancel_overlapped_requests: $crate::argument::entry!(
                $Face,
                cancel() -> Result<(), softnd_interfaces::Status>
            ),
            get_overlapped_result: $crate::v2::get_overlapped_result,
        }
    };
}
use overlapped_table;
