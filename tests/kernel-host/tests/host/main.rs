//! The kernel host by images of its own, one module a question. One binary, because each is linked by itself; each trial is a process.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

// Before the modules that use its macro.
#[macro_use]
mod probe;

mod c_consumer;
mod child;
mod core;
mod datagrams;
mod devices;
mod documentation;
mod driver_image;
mod fast;
mod foreign;
mod link;
mod mediator;
mod reports;
mod schedule;
mod slow_miniport;
mod sockets;
mod softndk_adapter;
mod softndk_life_cycle;
mod softndk_races;
mod stack;
mod stack_sockets;
mod user_mode;
mod wsk_client;
