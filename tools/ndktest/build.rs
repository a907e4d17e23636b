fn main() -> Result<(), wdk_build::ConfigError> {
    // A checksum in the header is what the loader of Windows checks first.
    println!("cargo::rustc-cdylib-link-arg=/RELEASE");
    wdk_build::configure_wdk_binary_build()
}
