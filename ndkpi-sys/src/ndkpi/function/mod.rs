//! Functions of the provider, called by the consumer: the types of the dispatch table slots.
//!
//! Callbacks are optional in these signatures even where the contract forbids NULL: the caller is foreign code, and a
//! NULL must be something a provider can see and refuse.
//!
//! The statuses are those that NDKPI's page of the function names (NDKPI: `NDK_FN_…`); a provider may return others as
//! failures. "Inline or completion" marks what can come either way.

mod adapter;
mod connection;
mod memory;
mod protection_domain;
mod queue;
mod work_request;

pub use adapter::*;
pub use connection::*;
pub use memory::*;
pub use protection_domain::*;
pub use queue::*;
pub use work_request::*;
