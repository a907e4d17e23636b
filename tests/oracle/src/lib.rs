//! The oracle: a simple model of the NDK contract, and random sequences of operations on which a system is compared with it.
//!
//! Its parts: [`model`] (what must happen), [`generate`] (what is tried), [`engine`] (the engine as the system under test),
//! [`compare`] (both side by side) and [`shrink`] (a difference cut down to a script, through proptest). Everything
//! here happens in sequence; timing is not tested.

// Lines that do not apply are `None` everywhere in the model, statuses and answers included; verbs are matched in one table.
#![allow(clippy::unnecessary_wraps, clippy::option_option, clippy::too_many_lines, reason = "one shape for all verbs")]
#![allow(clippy::struct_excessive_bools, clippy::unused_self, reason = "a model says what it knows")]

pub mod account;
pub mod compare;
pub mod engine;
pub mod generate;
pub mod hostile;
#[cfg(not(windows))]
pub mod image;
pub mod model;
pub mod search;
pub mod shrink;
