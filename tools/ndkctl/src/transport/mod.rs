//! How requests reach the driver.
//!
//! A [`Device`] is one open handle of a control device. On Windows that is a handle of `\\.\NdkTest` or `\\.\SoftNdk`; elsewhere the
//! kernel host loads both driver images into this process, gives it adapters, and plays the I/O manager.

#[cfg(not(windows))]
mod kernel_host;
#[cfg(windows)]
mod windows;

#[cfg(not(windows))]
pub use kernel_host::{
    HostDevice as SystemDevice, ImageFacts, Leftovers, Machine, in_parallel, interface_alias, open_device,
    open_provider,
};
#[cfg(windows)]
pub use windows::{Leftovers, Machine, SystemDevice, in_parallel, interface_alias, open_device, open_provider};

use crate::failure::Failure;
use softndk_ioctl::Status;

/// Something that a thread of its own does.
pub type Job<'scope> = Box<dyn FnOnce() + Send + 'scope>;

/// What happens to the adapters while others use them; and how often each event did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Disturbances {
    /// NDK switched off and on again.
    pub ndk_off: u64,
    /// Adapters halted and started again.
    pub halts: u64,
    /// Adapters started again with other profiles.
    pub profiles: u64,
    /// Pauses and changes of power.
    pub pauses: u64,
    /// Allocations that were made to fail.
    pub failed_allocations: u64,
}

impl Disturbances {
    /// Whether there was one at all.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// What a request came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: Status,
    /// Bytes of the output that are valid.
    pub information: usize,
}

/// One open handle of the control device.
pub trait Device {
    /// Memory that a direct request can lock: starts on a page boundary.
    type Buffer: DirectBuffer;

    /// A METHOD_BUFFERED request; waits for its end.
    fn buffered(&self, code: u32, input: &[u8], output: &mut [u8]) -> Answer;

    /// A METHOD_OUT_DIRECT request; waits for its end.
    fn direct(&self, code: u32, input: &[u8], buffer: &mut Self::Buffer) -> Answer;

    /// Memory for direct requests, zeroed.
    fn allocate(&self, length: usize) -> Result<Self::Buffer, Failure>;
}

/// Memory that a direct request can lock.
pub trait DirectBuffer {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}
