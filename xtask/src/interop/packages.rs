//! Debian packages, downloaded and unpacked below the target folder. Nothing is installed, and nothing that the machine has is changed.
//!
//! Apt says which packages are missing here, in which versions, and checks what it downloads. A program from a package is run with
//! the libraries of all of them before those of the machine.

use crate::command;
use anyhow::{Context, Result, bail, ensure};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where the libraries of a package are.
pub(super) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

const NEXT_STEP: &str =
    "see that apt reaches its mirror (`sudo apt-get update`), then try again; this needs Debian 12 on x86-64";

/// The folder in which packages are unpacked.
pub(super) struct Packages {
    root: PathBuf,
}

impl Packages {
    /// The packages of these names with those that they need and the machine lacks.
    pub(super) fn prepare(folder: &Path, names: &[&str]) -> Result<Self> {
        let (root, done) = (folder.join("root"), folder.join("packages"));
        let wanted = names.join("\n");
        if fs::read_to_string(&done).is_ok_and(|present| present == wanted) {
            return Ok(Self { root });
        }
        eprintln!("interop: downloading and unpacking {}", names.join(", "));
        let downloads = folder.join("downloads");
        let files = download_with_needs(&downloads, names)?;
        files.iter().try_for_each(|file| unpack(file, &root))?;
        fs::remove_dir_all(&downloads)?;
        fs::write(&done, wanted)?;
        Ok(Self { root })
    }

    /// A file of a package that is unpacked here or installed.
    pub(super) fn file(&self, path: &str) -> Result<PathBuf> {
        let places = [self.root.join(path), Path::new("/").join(path)];
        let found = places.into_iter().find(|place| place.exists());
        found.with_context(|| format!("no package has {path}; remove {} and try again", self.root.display()))
    }

    /// A program of a package, with the libraries and data that it looks for.
    pub(super) fn command(&self, path: &str) -> Result<Command> {
        let mut command = Command::new(self.file(path)?);
        command.env("LD_LIBRARY_PATH", self.library_path());
        command.env("WIRESHARK_DATA_DIR", self.file("usr/share/wireshark").unwrap_or_default());
        Ok(command)
    }

    pub(super) fn library_path(&self) -> OsString {
        let folders = [LIBRARIES, "lib/x86_64-linux-gnu"].map(|folder| self.root.join(folder));
        env::join_paths(folders).unwrap_or_default()
    }
}

/// Unpacks a package file.
pub(super) fn unpack(file: &Path, to: &Path) -> Result<()> {
    command::output(Command::new("dpkg").arg("-x").arg(file).arg(to)).map(drop)
}

/// Downloads packages into a folder that has nothing else; their files.
pub(super) fn download(folder: &Path, packages: &[String]) -> Result<Vec<PathBuf>> {
    // Those of a run that was interrupted may be of other versions.
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    with_update(|| command::output(apt("apt-get").current_dir(folder).arg("download").args(packages)))?;
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    if files.len() < packages.len() {
        bail!("apt-get downloaded {} of {} packages; {NEXT_STEP}", files.len(), packages.len());
    }
    Ok(files)
}

fn download_with_needs(folder: &Path, names: &[&str]) -> Result<Vec<PathBuf>> {
    let words = ["install", "--yes", "--no-install-recommends", "--print-uris", "--quiet=2"];
    let said = with_update(|| command::output(apt("apt-get").args(words).args(names)))?;
    // Those that are installed are downloaded as well: the guest's programs and libraries are to be of one release.
    let mut packages = names.iter().map(|name| ((*name).to_owned(), None)).collect::<BTreeMap<_, _>>();
    packages.extend(said.lines().filter_map(offered).map(|(name, version)| (name, Some(version))));
    let exact = |(name, version): (String, Option<String>)| match version {
        Some(version) => format!("{name}={version}"),
        None => name,
    };
    download(folder, &packages.into_iter().map(exact).collect::<Vec<_>>())
}

/// Name and version in a line like `'http://…' name_1%3a2.0_amd64.deb 1234 SHA256:…`.
fn offered(line: &str) -> Option<(String, String)> {
    let mut parts = line.split(' ').nth(1)?.strip_suffix(".deb")?.split('_');
    Some((parts.next()?.to_owned(), parts.next()?.replace("%3a", ":")))
}

/// The names of all packages that begin with one of these.
pub(super) fn names(prefixes: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for prefix in prefixes {
        let said = with_update(|| {
            let said = command::output(apt("apt-cache").args(["pkgnames", prefix]))?;
            // Without lists apt knows no name, and that is no error to it.
            ensure!(!said.trim().is_empty(), "apt knows no package {prefix}...");
            Ok(said)
        })?;
        names.extend(said.lines().map(str::to_owned));
    }
    Ok(names)
}

/// The versions that apt offers of each, as `apt-cache madison` says them.
pub(super) fn madison(packages: &[String]) -> Result<String> {
    command::output(apt("apt-cache").arg("madison").args(packages))
}

fn apt(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C");
    command
}

/// Tries again after the package lists have been fetched, which only the system's administrator may do.
fn with_update(attempt: impl Fn() -> Result<String>) -> Result<String> {
    if let Ok(said) = attempt() {
        return Ok(said);
    }
    let update = ["apt-get", "update", "--quiet"];
    let updated = command::output(Command::new(update[0]).args(&update[1..]))
        .or_else(|_| command::output(Command::new("sudo").arg("--non-interactive").args(update)));
    attempt().with_context(|| match updated {
        Ok(_) => format!("apt does not supply the packages; {NEXT_STEP}"),
        Err(error) => {
            format!("apt does not supply the packages, and its lists cannot be fetched ({error:#}); {NEXT_STEP}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_apt_name_packages_and_versions() {
        let line = "'http://mirror/q_7.2%2bdfsg.deb' qemu-system-x86_1%3a7.2+dfsg-7_amd64.deb 123 SHA256:0";
        assert_eq!(offered(line), Some(("qemu-system-x86".to_owned(), "1:7.2+dfsg-7".to_owned())));
        assert_eq!(offered("Reading package lists..."), None);
        assert_eq!(offered(""), None);
    }
}
