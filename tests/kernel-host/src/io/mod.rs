//! The I/O manager: named devices, open files, I/O request packets, buffered and direct transfers, cancellation.
//!
//! It is strict where Driver Verifier's I/O verification is: completion exactly once, pending marked consistently, nothing
//! returned that was not written, nothing left at cleanup.

pub mod cancel;
pub mod control_code;
pub mod device;
pub(crate) mod device_handles;
pub mod file;
pub mod irp;
pub mod links;
pub mod object;
pub mod own_packet;
pub mod security;
pub mod token;
pub mod wdm;

pub use file::{File, Opener, PendingIrp};
pub use irp::IoResult;
pub use security::{GENERIC_READ, GENERIC_WRITE};
pub use token::Caller;
