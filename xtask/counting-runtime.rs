//! What a driver image that counts for `cargo xtask coverage` has instead of LLVM's run-time, which needs a C library: two
//! symbols. The counters are read from outside (`tests/kernel-host/src/image/coverage.rs`).

#![no_std]

/// Compiled code refers to it, to have the run-time linked.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static __llvm_profile_runtime: i32 = 0;

/// The section of names begins with a byte that is none in every linked image: LLVM's tools skip it.
#[used]
#[unsafe(link_section = ".lprfn$A")]
static BEFORE_NAMES: u8 = 0;
