//! User-mode NetworkDirect: what crosses `\\.\SoftNd` between `softnd.dll` and the driver.
//!
//! The control plane is the public `ndioctl.h`, version 1: its codes and structures ([`control`]). What that header leaves open is
//! here, with codes above 0x800 ([`private`]), and the queues that a process shares with the driver ([`rings`]).
//!
//! Rules: every input begins with [`VERSION`]; a handle is a number that means something for the files of one context only, and 0 is none;
//! of shared memory the driver believes only what it has copied, and no index that it did not compute.

pub mod control;
pub mod private;
pub mod rings;

use crate::refusal::NdkCall;

/// How a control request is called on the list of refusals.
#[must_use]
pub const fn call_of_code(code: u32) -> NdkCall {
    NdkCall(0x1_0000 | ((code >> 2) & 0xFFF))
}

/// The device object, as the driver names it.
pub const DEVICE_NAME: &str = r"\Device\SoftNd";

/// The symbolic link to it, as the driver names it.
pub const SYMBOLIC_LINK_NAME: &str = r"\DosDevices\Global\SoftNd";

/// What the provider opens.
pub const WIN32_DEVICE_NAME: &str = r"\\.\SoftNd";

/// ND_IOCTL_VERSION: the first four bytes of every input. Any other value is answered with STATUS_INVALID_DEVICE_REQUEST.
pub const VERSION: u32 = 1;

/// ND_VERSION_2, the `InfoVersion` that the public headers have.
pub const INFO_VERSION: u32 = 0x2_0000;

#[cfg(test)]
mod tests {
    use super::{call_of_code, control, private};
    use crate::refusal::NdkCall;

    #[test]
    fn requests_are_called_by_their_names() {
        assert_eq!(call_of_code(control::PROVIDER_INIT), NdkCall::ND_PROVIDER_INIT);
        assert_eq!(call_of_code(control::QP_FLUSH), NdkCall::ND_QP_FLUSH);
        assert_eq!(call_of_code(control::CONNECTOR_NOTIFY_DISCONNECT), NdkCall::ND_CONNECTOR_NOTIFY_DISCONNECT);
        assert_eq!(call_of_code(private::QUERY_ADDRESSES), NdkCall::ND_QUERY_ADDRESSES);
        assert_eq!(call_of_code(0x0012_FFFC).name(), None);
    }
}
