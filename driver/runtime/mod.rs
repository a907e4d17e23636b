//! What both front ends stand on: the engine and its platform, service passes, memory, callbacks, refusals and their statuses, events.
//!
//! It names nothing of `ndk` and `nd`. What they keep with an object of the engine is opaque here (`platform::ConsumerObject`), and what
//! they want done comes with a function. Most of it runs at `IRQL <= DISPATCH_LEVEL`.

pub mod callback;
pub mod completion;
pub mod deferred;
pub mod engine;
pub mod errors;
pub mod event;
pub mod mapper;
pub mod memory;
pub mod platform;
pub mod records;
pub mod refusal;
pub mod service;
pub mod sockets;
pub mod status;
