//! A copy of the locked wdk-build crate that runs on this host.
//!
//! wdk-build is a build-time library: nothing of it reaches the driver. Four parts of it tie it to Windows hosts; each
//! is edited by exact text, and a text that is not found exactly as often as expected stops the build with its name, so
//! that a new version of the crate cannot be half-patched in silence.

use crate::workspace::write_if_changed;
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// One edit: in `file`, `old` occurs exactly `count` times and becomes `new`.
struct Edit {
    why: &'static str,
    file: &'static str,
    old: &'static str,
    new: &'static str,
    count: usize,
}

const EDITS: &[Edit] = &[
    Edit {
        why: "the windows crate does not compile elsewhere",
        file: "Cargo.toml",
        old: "[dependencies.windows]",
        new: "[target.'cfg(windows)'.dependencies.windows]",
        count: 1,
    },
    Edit {
        why: "there is no registry to look the driver kit up in: the import",
        file: "src/utils.rs",
        old: "use windows::{\n    Win32::System::Registry::{",
        new: "#[cfg(windows)]\nuse windows::{\n    Win32::System::Registry::{",
        count: 1,
    },
    Edit {
        why: "there is no registry to look the driver kit up in: the two look-ups",
        file: "src/utils.rs",
        old: "    if let Some(path) = read_registry_key_string_value(\n",
        new: "    #[cfg(windows)]\n    if let Some(path) = read_registry_key_string_value(\n",
        count: 2,
    },
    Edit {
        why: "there is no registry to look the driver kit up in: the function",
        file: "src/utils.rs",
        old: "\nfn read_registry_key_string_value(",
        new: "\n#[cfg(windows)]\nfn read_registry_key_string_value(",
        count: 1,
    },
    Edit {
        why: "the refusal of other hosts (both functions serve cargo-make only, which we do not use)",
        file: "src/utils.rs",
        old: "    compile_error!(",
        new: "    unimplemented!(",
        count: 2,
    },
    Edit {
        why: "symbolic links of Windows",
        file: "src/cargo_make.rs",
        old: "std::os::windows::fs::symlink_file(",
        new: "std::os::unix::fs::symlink(",
        count: 2,
    },
    Edit {
        why: "a path dependency shows its warnings, and the edits leave an import unused",
        file: "src/lib.rs",
        old: "\nuse std::{\n    env,\n",
        new: "\n#![allow(warnings)]\n\nuse std::{\n    env,\n",
        count: 1,
    },
];

/// Writes the patched copy of `original` (the crate's folder in cargo's registry cache) to `copy`.
///
/// Files that already hold the right contents keep their time stamps.
pub fn write_copy(original: &Path, copy: &Path) -> Result<()> {
    for file in files_below(original, Path::new(""))? {
        let source = original.join(&file);
        let contents = fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
        let contents = apply_edits(&file, contents)?;
        write_if_changed(&copy.join(&file), &contents)?;
    }
    Ok(())
}

/// The files that make up the crate, relative to its folder; tests and examples are not needed.
fn files_below(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    const WANTED: &[&str] = &[
        "src",
        "build.rs",
        "Cargo.toml",
        "rust-driver-makefile.toml",
        "rust-driver-sample-makefile.toml",
        "README.md",
    ];
    let mut files = Vec::new();
    let path = root.join(folder);
    for entry in fs::read_dir(&path).with_context(|| format!("cannot read the folder {}", path.display()))? {
        let entry = entry?;
        let relative = folder.join(entry.file_name());
        if folder.as_os_str().is_empty() && !WANTED.iter().any(|wanted| relative == Path::new(wanted)) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            files.extend(files_below(root, &relative)?);
        } else {
            files.push(relative);
        }
    }
    Ok(files)
}

fn apply_edits(file: &Path, contents: Vec<u8>) -> Result<Vec<u8>> {
    let edits = EDITS.iter().filter(|edit| file == Path::new(edit.file)).collect::<Vec<_>>();
    if edits.is_empty() {
        return Ok(contents);
    }
    let text = String::from_utf8(contents).with_context(|| format!("{} is not text", file.display()))?;
    // The published crate has Windows line ends in some files.
    let mut text = text.replace("\r\n", "\n");
    for edit in edits {
        let found = text.matches(edit.old).count();
        ensure!(
            found == edit.count,
            "wdk-build cannot be patched ({}): {} holds {:?} {found} times, expected {}.\n\
             The crate changed; read its new {} and adapt EDITS in xtask/src/cross/wdk_build.rs",
            edit.why,
            edit.file,
            edit.old,
            edit.count,
            edit.file,
        );
        text = text.replace(edit.old, edit.new);
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_text_stops_the_patch_and_names_the_edit() {
        let error = apply_edits(Path::new("src/cargo_make.rs"), b"fn nothing() {}".to_vec()).unwrap_err().to_string();
        assert!(error.contains("symbolic links of Windows"), "{error}");
    }

    #[test]
    fn each_edit_is_applied_where_its_text_stands() {
        let text = "std::os::windows::fs::symlink_file(a)\nstd::os::windows::fs::symlink_file(b)";
        let patched = apply_edits(Path::new("src/cargo_make.rs"), text.into()).unwrap();
        assert_eq!(patched, b"std::os::unix::fs::symlink(a)\nstd::os::unix::fs::symlink(b)");
    }

    #[test]
    fn other_files_stay_as_they_are() {
        let untouched = vec![0xFF, 0xFE];
        assert_eq!(apply_edits(Path::new("README.md"), untouched.clone()).unwrap(), untouched);
    }
}
