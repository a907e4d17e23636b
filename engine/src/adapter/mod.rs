//! What every object belongs to: the adapter with its limits, addresses and counters, and a consumer's open of it.
//!
//! May use `object` and the ground.

#[expect(clippy::module_inception, reason = "the module has the name of its first object")]
pub(crate) mod adapter;
pub(crate) mod open;
pub(crate) mod timeouts;
