fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Elsewhere the driver kit's library for this is an empty one (xtask/src/cross/kit.rs).
    println!("cargo::rustc-check-cfg=cfg(own_guard_support)");
    if cfg!(not(windows)) {
        println!("cargo::rustc-cfg=own_guard_support");
    }
}
