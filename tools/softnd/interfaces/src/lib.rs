//! The interfaces of user-mode NetworkDirect, version 2 ([`v2`]) and version 1 ([`v1`]): identifiers, function tables,
//! structures, constants and statuses, as `ndspi.h` and `nddef.h` have them.
//!
//! It is for both sides: `softnd.dll` fills the tables, clients and tests call through them. It needs no Windows; function
//! pointers have the Windows calling convention on every host, so that a test on Linux can call a provider that it has loaded.
//!
//! Rules kept: every structure has its size asserted; a table begins with its base's table; names of interfaces are Microsoft's,
//! so that its documentation can be searched with them.
#![no_std]

mod abi;
pub mod constants;
pub mod guid;
pub mod status;
pub mod structures;
pub mod unknown;
pub mod v1;
pub mod v2;

pub use guid::Guid;
pub use status::Status;

/// An interface by its names: for tables of what there is.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    pub name: &'static str,
    pub iid: Guid,
    /// Its own methods and their slots; those of its base come before.
    pub methods: &'static [(&'static str, usize)],
}

#[cfg(test)]
mod tests;
