//! How the DLL is linked: its own entry point, no C run-time, no library that the crate does not name.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of_target = |name: &str| env::var(name).unwrap_or_default();
    let target = ["OS", "ENV", "ARCH"].map(|part| of_target(&format!("CARGO_CFG_TARGET_{part}")));
    if target == ["windows", "msvc", "x86_64"] {
        for argument in ["/ENTRY:softnd_entry", "/NODEFAULTLIB", "/NXCOMPAT", "/DYNAMICBASE", "/RELEASE"] {
            println!("cargo::rustc-cdylib-link-arg={argument}");
        }
    }
}
