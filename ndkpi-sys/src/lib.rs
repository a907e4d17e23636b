//! The C interface of Windows kernel RDMA for Rust: `ndkpi.h` (NDKPI 2.1), `ndkinfo.h`, `ndisndk.h`, `ndkrss.h`,
//! `wskndk.h`, and the parts of `ndis.h` (6.60 contract), `ntddndis.h`, `netioapi.h` and `bcrypt.h` that a virtual miniport
//! with an NDK provider needs. One module a header.
//!
//! The crate has types with their exact layout, constants, function pointer types, the C inlines of those headers, and on
//! Windows targets the imports from `ndis.sys`, `netio.sys` and `cng.sys`; no safe wrappers, no logic, and no binding of
//! the whole WDK. It needs neither the WDK nor a build script, and also builds on Linux, where a test can load a driver
//! image and call it.
//!
//! Rules kept:
//! - every structure has its size, alignment and all offsets asserted at compile time;
//! - an enumeration is an open newtype and a flag set keeps unknown bits, so any number is a valid value;
//! - a callback given by foreign code is an `Option`, because foreign code can pass NULL; the slots of a dispatch
//!   table, which the contract requires to be filled, are plain function pointers;
//! - function pointers have the Windows calling convention on every host (see [`windows_abi!`]): `extern "C"` on
//!   Windows, `extern "win64"` on other x86_64 systems;
//! - 64-bit targets only: 32-bit layouts differ between NDKPI revisions.
#![no_std]
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "names are spelt as Microsoft's headers spell them, so that its documentation can be searched with them"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("ndkpi-sys describes the 64-bit layouts only");

mod abi;

// The example of the README is compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod bcrypt;
pub mod ndis;
pub mod ndisndk;
pub mod ndkinfo;
pub mod ndkpi;
pub mod ndkrss;
pub mod netioapi;
pub mod nt;
pub mod wsk;
pub mod wskndk;
