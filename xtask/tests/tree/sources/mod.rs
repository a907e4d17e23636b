//! The sources of the work tree, for the tests that read them.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every source below a folder of the work tree, with its path from there.
pub fn sources(folder: &str) -> Vec<(String, String)> {
    let folder = workspace().join(folder);
    let mut found = Vec::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&folder).unwrap().to_str().unwrap().replace('\\', "/");
                found.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
