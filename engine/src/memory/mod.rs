//! Memory that requests may touch: protection domains, regions, windows, logical mappings, access checks, copying.
//!
//! May use `adapter`, `object` and the ground. [`Tables`](tables::Tables) holds what tokens and logical addresses name; every
//! domain has them, so no module below knows of them.

pub(crate) mod access;
pub(crate) mod cached;
pub(crate) mod mapping;
pub(crate) mod memory_region;
pub(crate) mod memory_window;
pub(crate) mod protection_domain;
pub(crate) mod tables;
pub(crate) mod transfer;
