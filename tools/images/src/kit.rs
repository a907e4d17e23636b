//! The stand-in for the driver kit: a folder laid out as wdk-build expects one, with our own headers
//! (`xtask/wdk-headers`) and import libraries written from `.def` files beside them.
//!
//! The libraries name exactly the functions that the headers declare, so that a driver which calls anything else fails
//! to link with the name of the function. `BufferOverflowFastFailK`, `wmilib` and `arm64rt` are empty: the images use
//! nothing of them, and wdk-sys links them by name.

use crate::{
    arch::Arch,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result, ensure};
use ar_archive_writer::{COFFShortExport, write_import_library};
use std::{
    fs,
    io::Cursor,
    path::{Path, PathBuf},
};

/// The version whose names and layouts the headers give; the crates read it from `Version_Number`.
pub const VERSION: &str = "10.0.26100.0";

/// Import libraries: file name without extension, module it imports from.
const IMPORT_LIBRARIES: &[(&str, &str)] = &[("ntoskrnl", "ntoskrnl.exe"), ("hal", "hal.dll")];
const EMPTY_LIBRARIES: &[&str] = &["BufferOverflowFastFailK", "wmilib", "arm64rt"];
/// What tracelogging names in a function that no driver calls: the linker resolves it and drops it, and the image's import list would show
/// one that is kept.
const DROPPED: (&str, &str, &str) = ("rpcrt4", "rpcrt4.dll", "UuidCreate");
const EMPTY_ARCHIVE: &[u8] = b"!<arch>\n";

/// Brings the folder up to date for `arch` and returns its root (`WDKContentRoot`).
pub fn refresh(workspace: &Workspace, arch: Arch) -> Result<PathBuf> {
    let root = workspace.driver_target().join("kit");
    let headers = workspace.path("xtask/wdk-headers");
    for folder in ["km", "km/crt", "shared"] {
        copy_headers(&headers.join(folder), &root.join("Include").join(VERSION).join(folder))?;
    }
    let libraries = library_folder(workspace, arch);
    for (library, module) in IMPORT_LIBRARIES {
        let definition = headers.join(library).with_extension("def");
        let text = fs::read_to_string(&definition).with_context(|| format!("cannot read {}", definition.display()))?;
        let names = exported_names(&text, module).with_context(|| format!("{} is wrong", definition.display()))?;
        let contents = import_library(module, &names, arch)?;
        write_if_changed(&libraries.join(library).with_extension("lib"), &contents)?;
    }
    let (library, module, name) = DROPPED;
    write_if_changed(
        &libraries.join(library).with_extension("lib"),
        &import_library(module, &[name.to_owned()], arch)?,
    )?;
    for library in EMPTY_LIBRARIES {
        write_if_changed(&libraries.join(library).with_extension("lib"), EMPTY_ARCHIVE)?;
    }
    Ok(root)
}

/// Where the import libraries are.
#[must_use]
pub fn library_folder(workspace: &Workspace, arch: Arch) -> PathBuf {
    workspace.driver_target().join("kit/Lib").join(VERSION).join("km").join(arch.kit_folder())
}

fn copy_headers(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    if !from.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(from).with_context(|| format!("cannot read the folder {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            write_if_changed(&to.join(entry.file_name()), &fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// The names under `EXPORTS` of a module definition file for `module`.
pub(crate) fn exported_names(definition: &str, module: &str) -> Result<Vec<String>> {
    let mut lines = definition
        .lines()
        .map(|line| line.split(';').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty());
    let header = lines.next().unwrap_or_default();
    ensure!(header == format!("LIBRARY {module}"), "its first line is {header:?}, expected \"LIBRARY {module}\"");
    let section = lines.next().unwrap_or_default();
    ensure!(section == "EXPORTS", "its second line is {section:?}, expected \"EXPORTS\"");
    Ok(lines.map(str::to_owned).collect())
}

pub(crate) fn import_library(module: &str, names: &[String], arch: Arch) -> Result<Vec<u8>> {
    if names.is_empty() {
        return Ok(EMPTY_ARCHIVE.to_vec());
    }
    let exports = names
        .iter()
        .map(|name| {
            let (name, data) = name.strip_suffix(" DATA").map_or((name.as_str(), false), |name| (name, true));
            // `Name @5 NONAME`: imported by number.
            let (name, ordinal) =
                name.strip_suffix(" NONAME").and_then(|name| name.split_once(" @")).unwrap_or((name, ""));
            COFFShortExport {
                name: name.to_owned(),
                ext_name: None,
                symbol_name: None,
                import_name: None,
                export_as: None,
                ordinal: ordinal.parse().unwrap_or(0),
                noname: !ordinal.is_empty(),
                data,
                private: false,
                constant: false,
            }
        })
        .collect::<Vec<_>>();
    let mut library = Cursor::new(Vec::new());
    write_import_library(&mut library, module, &exports, arch.machine(), false, false, &[])
        .with_context(|| format!("cannot write an import library for {module}"))?;
    Ok(library.into_inner())
}

#[cfg(test)]
mod tests {
    use super::{IMPORT_LIBRARIES, exported_names};
    use std::{collections::BTreeSet, fs, path::Path};

    /// Names that compilers call by themselves; no header of ours declares them.
    const COMPILER_CALLS: &[&str] = &["memcmp", "memcpy", "memmove", "memset", "strlen"];

    #[test]
    fn definitions_give_their_names_without_comments() {
        let names = exported_names("; ours\nLIBRARY a.exe\nEXPORTS\nOne ; first\n\nTwo DATA\n", "a.exe").unwrap();
        assert_eq!(names, ["One", "Two DATA"]);
    }

    #[test]
    fn a_definition_for_another_module_is_refused() {
        assert!(exported_names("LIBRARY b.exe\nEXPORTS\n", "a.exe").is_err());
    }

    #[test]
    fn import_libraries_name_just_what_the_headers_declare() {
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/wdk-headers");
        let mut exported = BTreeSet::new();
        for (library, module) in IMPORT_LIBRARIES {
            let text = fs::read_to_string(headers.join(library).with_extension("def")).unwrap();
            exported.extend(exported_names(&text, module).unwrap());
        }
        let mut declared = COMPILER_CALLS.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        for header in fs::read_dir(headers.join("km")).unwrap() {
            let text = fs::read_to_string(header.unwrap().path()).unwrap();
            declared.extend(text.lines().filter_map(declared_function));
        }
        assert_eq!(exported, declared);
    }

    /// The name in a line that declares a function.
    fn declared_function(line: &str) -> Option<String> {
        let starts_like_one = line.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let before = line.strip_suffix(");")?.split_once('(')?.0;
        if !starts_like_one || line.starts_with("typedef") || line.starts_with("ASSERT_") {
            return None;
        }
        // `__declspec(noreturn) void KeBugCheckEx(` has a pair of parentheses in front.
        let before = line
            .strip_prefix("__declspec(noreturn) ")
            .and_then(|line| line.split_once('('))
            .map_or(before, |pair| pair.0);
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    }
}
