//! Checks that `docs/kernel-host.md` lists the exports that the code declares. `KERNEL_HOST_BLESS=1 cargo test -p kernel-host --test documentation`
//! rewrites the list.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;

use kernel_host::documentation;

const BEGIN: &str = "<!-- exports: begin, made from the declarations -->\n";
const END: &str = "<!-- exports: end -->\n";

#[test]
fn page_lists_the_exports_that_are_declared() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kernel-host.md");
    let page = std::fs::read_to_string(&path).expect("docs/kernel-host.md is readable");
    let begin = page.find(BEGIN).expect("the page has the mark of the list's begin") + BEGIN.len();
    let end = page.find(END).expect("the page has the mark of the list's end");
    let table = documentation::table();
    if std::env::var_os("KERNEL_HOST_BLESS").is_some() {
        let written = format!("{}\n{table}{}", &page[..begin], &page[end..]);
        std::fs::write(&path, written).expect("docs/kernel-host.md is writable");
        return;
    }
    assert!(
        page[begin..end].trim() == table.trim(),
        "docs/kernel-host.md is out of date; run this test with KERNEL_HOST_BLESS=1"
    );
}

/// `cargo xtask own-driver` links drivers with these: whatever the host exports, and no more.
#[test]
fn own_drivers_are_linked_with_every_export() {
    for module in ["ntoskrnl.exe", "ndis.sys", "netio.sys"] {
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
