//! ndktest.sys: an NDK consumer that does what its IOCTLs ask for: connection pairs, transfers, scripts, measurements.
//!
//! It opens adapters as every consumer of another vendor does, through Winsock Kernel and by the index of an interface, and knows
//! nothing of the provider behind them: it works with softndk.sys and with a network card alike.
#![no_std]

mod control;
mod device;
mod driver;
mod entry;
mod interface;
mod security;
mod session;
mod socket;
mod tags;
mod wsk;

extern crate wdk_panic;

use softndk_kernel::pool::CountedAllocator;

/// Linked libraries may ask for one; this driver allocates by `softndk_kernel::pool` only.
#[global_allocator]
static GLOBAL_ALLOCATOR: CountedAllocator = CountedAllocator::new(tags::LIBRARY);
