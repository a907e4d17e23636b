//! Every seeded bug can be put into the tree as it is: one that cannot is noticed by the change that brings it about, and not in the long run
//! of all of them.

use std::{fs, path::Path, process::Command};

#[test]
fn every_seeded_bug_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut count = 0;
    let mut stale = Vec::new();
    for entry in fs::read_dir(root.join("tests/seeded-bugs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        count += 1;
        let checked = Command::new("git").current_dir(&root).args(["apply", "--check"]).arg(&path).output().unwrap();
        if !checked.status.success() {
            stale.push(format!("{}: {}", path.display(), String::from_utf8_lossy(&checked.stderr).trim()));
        }
    }
    assert!(count > 100, "seeded bugs were found: {count}");
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}
