fn main() -> Result<(), wdk_build::ConfigError> {
    // A checksum in the header is what the loader of Windows checks first.
    println!("cargo::rustc-cdylib-link-arg=/RELEASE");
    // Elsewhere the driver kit's library for this is an empty one (xtask/src/cross/kit.rs).
    println!("cargo::rustc-check-cfg=cfg(own_guard_support)");
    if cfg!(not(windows)) {
        println!("cargo::rustc-cfg=own_guard_support");
    }
    wdk_build::configure_wdk_binary_build()
}
