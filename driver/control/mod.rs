//! The control device `\\.\SoftNdk`: the tools' way to the driver.
//!
//! Every length is checked, every buffer copied before it is checked, and nothing but numbers crosses the border. The ABI is
//! the `softndk-ioctl` crate, shared with the tools.

pub mod adapter_list;
pub mod device;
pub mod file;
pub mod object_list;
pub mod record_list;
pub mod request;
pub mod uplink;
