//! Which build each part is of: the tool, both drivers and the provider DLL, and whether they are of one.
//!
//! Parts of one package have one version and one commit. An ordinary build does not name its commit. Who has just built all parts may name it
//! in the environment, as `cargo xtask` does; else only the versions of such parts can differ.

use serde::Serialize;
use softndk_ioctl::{BuildMark, COMMIT, COMMIT_UNKNOWN, VersionReply, text_of};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A version and the commit that it was built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Build {
    pub version: String,
    /// "unknown" where the build does not name it.
    pub commit: String,
}

impl Build {
    /// That of this program.
    #[must_use]
    pub fn of_tool() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), commit: named(COMMIT) }
    }

    /// That of a driver, by its own answer.
    #[must_use]
    pub fn of_driver(reply: &VersionReply) -> Self {
        let [major, minor, patch, _] = reply.driver_version;
        let commit = text_of(&reply.commit).unwrap_or(COMMIT_UNKNOWN);
        Self { version: format!("{major}.{minor}.{patch}"), commit: named(commit) }
    }

    /// That of an image, by the mark in its bytes.
    #[must_use]
    pub fn of_image(bytes: &[u8]) -> Option<Self> {
        let mark = BuildMark::find(bytes)?;
        let commit = text_of(&mark.commit).unwrap_or(COMMIT_UNKNOWN);
        Some(Self { version: text_of(&mark.version)?.to_owned(), commit: named(commit) })
    }

    fn names_its_commit(&self) -> bool {
        self.commit != COMMIT_UNKNOWN
    }
}

/// The commit that a build names, or who started this program.
fn named(commit: &str) -> String {
    let given = || std::env::var("SOFTNDK_BUILT_FROM").ok().filter(|given| !given.is_empty());
    let is_unknown = commit == COMMIT_UNKNOWN;
    is_unknown.then(given).flatten().unwrap_or_else(|| commit.to_owned())
}

impl fmt::Display for Build {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (commit {})", self.version, self.commit)
    }
}

/// What `--version` shows behind the name.
pub fn version_line() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| Build::of_tool().to_string());
    &LINE
}

/// The provider DLL that programs find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProviderDll {
    pub path: PathBuf,
    /// Null where the file has no mark: another provider's, or one of before 0.1.0.
    pub build: Option<Build>,
}

impl ProviderDll {
    /// `None` where it cannot be read.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        Some(Self { path: path.to_owned(), build: Build::of_image(&bytes) })
    }
}

/// A part of softndk and its build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    pub name: &'static str,
    #[serde(flatten)]
    pub build: Build,
}

/// Whether parts are of one build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OneBuild {
    Yes,
    No,
    /// The versions are equal, and no part names its commit.
    Unknown,
}

impl OneBuild {
    #[must_use]
    pub fn of(parts: &[Part]) -> Self {
        let Some((first, others)) = parts.split_first() else { return Self::Unknown };
        match others.iter().all(|part| part.build == first.build) {
            false => Self::No,
            true if first.build.names_its_commit() => Self::Yes,
            true => Self::Unknown,
        }
    }
}

/// "ndkctl 0.1.0 (commit …), softndk.sys …".
#[must_use]
pub fn list(parts: &[Part]) -> String {
    parts.iter().map(|part| format!("{} {}", part.name, part.build)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Build, OneBuild, Part, list, version_line};
    use softndk_ioctl::{BuildMark, COMMIT, VersionReply};
    use zerocopy::{FromZeros, IntoBytes};

    fn part(name: &'static str, version: &str, commit: &str) -> Part {
        Part { name, build: Build { version: version.to_owned(), commit: commit.to_owned() } }
    }

    #[test]
    fn parts_are_of_one_build_when_version_and_commit_are() {
        let of = |parts: &[(&str, &str)]| {
            OneBuild::of(&parts.iter().map(|(version, commit)| part("x", version, commit)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[("0.1.0", "abc"), ("0.1.0", "abc")]), OneBuild::Yes);
        assert_eq!(of(&[("0.1.0", "abc"), ("0.1.0", "abd")]), OneBuild::No);
        assert_eq!(of(&[("0.1.0", "abc"), ("0.1.0", "unknown")]), OneBuild::No, "a packaged part beside another");
        assert_eq!(of(&[("0.1.0", "unknown"), ("0.2.0", "unknown")]), OneBuild::No);
        assert_eq!(of(&[("0.1.0", "unknown"), ("0.1.0", "unknown")]), OneBuild::Unknown);
        assert_eq!(of(&[]), OneBuild::Unknown);
        assert_eq!(list(&[part("a.sys", "0.1.0", "abc")]), "a.sys 0.1.0 (commit abc)");
    }

    #[test]
    fn a_driver_without_a_commit_is_of_an_unknown_one() {
        let mut reply = VersionReply { driver_version: [4, 5, 6, 0], ..VersionReply::new_zeroed() };
        assert_eq!(Build::of_driver(&reply).to_string(), "4.5.6 (commit unknown)");
        reply.commit[..3].copy_from_slice(b"abc");
        assert_eq!(Build::of_driver(&reply).to_string(), "4.5.6 (commit abc)");
    }

    #[test]
    fn an_image_is_of_the_build_that_its_mark_names() {
        let image = [b"MZ", BuildMark::THIS.as_bytes()].concat();
        assert_eq!(Build::of_image(&image), Some(Build::of_tool()));
        assert_eq!(Build::of_image(b"MZ"), None);
    }

    #[test]
    fn the_version_line_has_both() {
        assert!(version_line().starts_with(env!("CARGO_PKG_VERSION")) && version_line().contains(COMMIT));
    }
}
