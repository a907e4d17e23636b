//! How cargo builds and runs the commands of `cargo xtask`, and whether that takes long.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Every command builds the same libraries, once: a driver's profile aborts at a panic, and a test has to unwind. Not by the environment:
/// tests that build drivers would inherit it.
pub const UNWINDING: [&str; 2] = ["--config", r#"profile.dev.panic="unwind""#];

/// The program of the commands.
pub const PROGRAM: [&str; 2] = ["--bin", "xtask"];

/// Where the sources of that program are, below the root of the workspace.
const SOURCES: [&str; 4] = ["Cargo.lock", "xtask/Cargo.toml", "xtask/src", "tools/images"];

/// What there is to say before the program runs; nothing where it is built already.
pub fn announcement(root: &Path) -> Option<&'static str> {
    let built = modified(&root.join("target/debug/xtask"));
    let newest = SOURCES.iter().flat_map(|path| files(&root.join(path))).filter_map(|file| modified(&file)).max();
    match built {
        None => Some("building the commands first: about a minute and a half on two processors"),
        Some(built) if newest.is_some_and(|newest| newest > built) => {
            Some("building the commands again, which changed")
        }
        Some(_) => None,
    }
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|facts| facts.modified()).ok()
}

/// The file itself, or all below the folder.
fn files(place: &Path) -> Vec<PathBuf> {
    match fs::read_dir(place) {
        Ok(entries) => entries.flatten().flat_map(|entry| files(&entry.path())).collect(),
        Err(_) => vec![place.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::announcement;
    use std::{env, fs, process, time::Duration};

    #[test]
    fn what_is_missing_or_older_than_its_sources_is_announced() {
        let root = env::temp_dir().join(format!("softndk-start-{}", process::id()));
        let (program, source) = (root.join("target/debug/xtask"), root.join("xtask/src/deep/a.rs"));
        for file in [&program, &source] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        fs::write(&source, "").unwrap();
        assert!(announcement(&root).unwrap().contains("first"));
        fs::write(&program, "").unwrap();
        let now = fs::metadata(&source).unwrap().modified().unwrap();
        let set = |seconds| fs::File::open(&program).unwrap().set_modified(now + Duration::from_secs(seconds)).unwrap();
        set(5);
        assert_eq!(announcement(&root), None);
        set(0);
        fs::File::open(&source).unwrap().set_modified(now + Duration::from_secs(9)).unwrap();
        assert!(announcement(&root).unwrap().contains("again"));
        fs::remove_dir_all(root).unwrap();
    }
}
