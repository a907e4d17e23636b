//! The cross build: what makes `softndk.sys` come out of a Linux machine that has never seen the driver kit.
//!
//! The published crates (wdk, wdk-sys, wdk-alloc, wdk-panic, wdk-build) are used as they are, with one exception:
//! wdk-build refuses hosts other than Windows, so a patched copy stands in for it ([`wdk_build`]). The copy enters the
//! build through a mirror of the work tree ([`mirror`]), so that neither the tree nor `Cargo.lock` ever changes. Headers
//! and import libraries, which the driver kit supplies on Windows, are our own ([`kit`]).
//!
//! On a Windows host none of this is used: `cargo build -p softndk` is the ordinary build there.

pub mod kit;
pub mod mirror;
pub mod toolchain;
pub mod wdk_build;
