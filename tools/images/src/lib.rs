//! Images for Windows, built on this machine, and what has to be installed for them.
//!
//! [`toolchain`] and [`kit`] stand in for the compiler, the linker and the import libraries of the driver kit; [`c_image`] builds
//! drivers in C, [`c_consumer`] and [`bad_drivers`] the two that tests of the kernel host load, [`own_driver`] those of users. `softndk.sys` itself, with its
//! checks, is `cargo xtask driver`. What else the commands of xtask share with those tests is here, too: [`workspace`],
//! [`command`], [`setup`].

pub mod arch;
pub mod bad_drivers;
#[cfg(unix)]
pub mod c_consumer;
#[cfg(unix)]
pub mod c_image;
pub mod command;
pub mod driver_run;
#[cfg(unix)]
pub mod kit;
pub mod nd_program;
#[cfg(unix)]
pub mod own_driver;
pub mod setup;
pub mod toolchain;
pub mod user_program;
pub mod workspace;
