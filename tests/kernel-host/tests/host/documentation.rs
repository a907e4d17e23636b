//! Checks that `xtask/lists/exports.md` lists the exports that the code declares. `KERNEL_HOST_BLESS=1 cargo test -p kernel-host --test documentation`
//! rewrites the list.

use std::path::Path;

use kernel_host::documentation;

/// What stands above the list.
const HEAD: &str = "# Exports of the kernel host\n\n\
    What driver images can import, by the declarations in `tests/kernel-host/src`: level, what is modelled, what is checked beside the\n\
    level, source. `KERNEL_HOST_BLESS=1 cargo test -p kernel-host --test documentation` writes this list.\n\n";

#[test]
fn list_has_the_exports_that_are_declared() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/lists/exports.md");
    let list = format!("{HEAD}{}\n", documentation::table().trim());
    if std::env::var_os("KERNEL_HOST_BLESS").is_some() {
        std::fs::write(&path, list).expect("the list is writable");
        return;
    }
    let written = std::fs::read_to_string(&path).expect("the list is readable");
    assert!(written == list, "xtask/lists/exports.md is out of date; run this test with KERNEL_HOST_BLESS=1");
}

/// `cargo xtask own-driver` links drivers with these: whatever the host exports, and no more.
#[test]
fn own_drivers_are_linked_with_every_export() {
    for module in ["ntoskrnl.exe", "ndis.sys", "netio.sys", "cng.sys"] {
        let stem = module.split('.').next().expect("a name");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tools/images/exports/{stem}.def"));
        let definition = documentation::definition(module);
        if std::env::var_os("KERNEL_HOST_BLESS").is_some() {
            std::fs::write(&path, definition).expect("the definition is writable");
        } else {
            let written = std::fs::read_to_string(&path).expect("the definition is readable");
            assert!(written == definition, "{stem}.def is out of date; run this test with KERNEL_HOST_BLESS=1");
        }
    }
}

#[test]
fn every_export_names_its_source() {
    assert_eq!(documentation::without_source(), Vec::<&str>::new());
}

#[test]
fn no_export_is_declared_twice() {
    assert_eq!(documentation::declared_twice(), Vec::<&str>::new());
}
