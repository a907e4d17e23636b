//! Chooses the packages of the guest's kernel: image, headers, kbuild and source that belong together.
//!
//! An archive need not have them in one version. Debian's signed images appear after the source that they are made of, and its pool
//! keeps old images for longer than the kbuild that belongs to them. So the newest image is taken whose other packages are there; an
//! unsigned image is as good. Where no image has its own kbuild, the newest kbuild of the series serves: modules compile with it.

use std::collections::BTreeMap;

/// What apt offers: the versions of each package, newest first.
#[derive(Debug, Default)]
pub(super) struct PackageIndex(BTreeMap<String, Vec<String>>);

/// The packages of one kernel, each as `NAME=VERSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelSet {
    /// As `uname -r` says it.
    pub release: String,
    /// Image, headers, kbuild.
    pub unpacked: Vec<String>,
    pub source: String,
}

/// The series whose siw and ksmbd the cases are written for.
pub(super) const SERIES: &str = "6.1";
const FLAVOUR: &str = "-amd64";

/// The names of the packages that can belong to a set begin so.
pub(super) fn name_prefixes() -> [String; 4] {
    ["linux-image-", "linux-headers-", "linux-kbuild-", "linux-source-"].map(|kind| format!("{kind}{SERIES}"))
}

impl PackageIndex {
    /// Reads lines like ` linux-kbuild-6.1 | 6.1.192-3 | http://… Packages` of `apt-cache madison`.
    pub(super) fn of_madison(text: &str) -> Self {
        let mut index = Self::default();
        for line in text.lines() {
            let mut fields = line.split('|').map(str::trim);
            if let (Some(name), Some(version), Some(_)) = (fields.next(), fields.next(), fields.next()) {
                let versions = index.0.entry(name.to_owned()).or_default();
                if !versions.iter().any(|known| known == version) {
                    versions.push(version.to_owned());
                }
            }
        }
        index
    }

    fn versions(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    fn has(&self, name: &str, version: &str) -> bool {
        self.versions(name).iter().any(|known| known == version)
    }

    /// The newest set; none where no image has all that it needs.
    pub(super) fn newest_set(&self) -> Option<KernelSet> {
        let kernels: Vec<_> = self.kernels();
        kernels.iter().find_map(Kernel::exact_set).or_else(|| kernels.iter().find_map(Kernel::near_set))
    }

    /// Images with the headers of the same version, newest first.
    fn kernels(&self) -> Vec<Kernel<'_>> {
        let mut abis: Vec<_> = self.0.keys().filter_map(|name| Abi::of_headers(name)).collect();
        abis.sort_by_key(|abi| std::cmp::Reverse(abi.number));
        let of = |abi: Abi| {
            let versions = self.versions(&abi.headers());
            versions.iter().filter_map(move |version| Kernel::find(self, &abi, version)).collect::<Vec<_>>()
        };
        abis.into_iter().flat_map(of).collect()
    }
}

/// One binary interface of kernel and modules: 57 of `6.1.0-57-amd64`.
struct Abi {
    number: u32,
    /// `6.1.0-57`.
    name: String,
}

impl Abi {
    fn of_headers(package: &str) -> Option<Self> {
        let name = package.strip_prefix("linux-headers-")?.strip_suffix(FLAVOUR)?;
        // Other flavours have another word between number and architecture.
        let number = name.strip_prefix(SERIES)?.rsplit_once('-')?.1.parse().ok()?;
        Some(Self { number, name: name.to_owned() })
    }

    fn headers(&self) -> String {
        format!("linux-headers-{}{FLAVOUR}", self.name)
    }

    fn common_headers(&self) -> String {
        format!("linux-headers-{}-common", self.name)
    }

    fn release(&self) -> String {
        format!("{}{FLAVOUR}", self.name)
    }
}

/// An image with its headers.
struct Kernel<'a> {
    index: &'a PackageIndex,
    release: String,
    version: &'a str,
    packages: Vec<String>,
}

impl<'a> Kernel<'a> {
    fn find(index: &'a PackageIndex, abi: &Abi, version: &'a str) -> Option<Self> {
        let release = abi.release();
        let images = ["", "-unsigned"].map(|kind| format!("linux-image-{release}{kind}"));
        let image = images.into_iter().find(|name| index.has(name, version))?;
        let names = [image, abi.headers(), abi.common_headers()];
        let is_whole = names.iter().all(|name| index.has(name, version));
        let packages = names.iter().map(|name| exactly(name, version)).collect();
        is_whole.then_some(Self { index, release, version, packages })
    }

    /// With kbuild and source of the image's version.
    fn exact_set(&self) -> Option<KernelSet> {
        let is_there = [kbuild(), source()].iter().all(|name| self.index.has(name, self.version));
        is_there.then(|| self.set(self.version, self.version))
    }

    /// With the newest kbuild, and the source of the same release of Linux.
    fn near_set(&self) -> Option<KernelSet> {
        let kbuild = self.index.versions(&kbuild()).first()?;
        let sources = self.index.versions(&source());
        let own = sources.iter().find(|version| *version == self.version);
        let source = own.or_else(|| sources.iter().find(|version| upstream(version) == upstream(self.version)))?;
        Some(self.set(kbuild, source))
    }

    fn set(&self, kbuild_version: &str, source_version: &str) -> KernelSet {
        let mut unpacked = self.packages.clone();
        unpacked.push(exactly(&kbuild(), kbuild_version));
        KernelSet { release: self.release.clone(), unpacked, source: exactly(&source(), source_version) }
    }
}

fn kbuild() -> String {
    format!("linux-kbuild-{SERIES}")
}

fn source() -> String {
    format!("linux-source-{SERIES}")
}

fn exactly(name: &str, version: &str) -> String {
    format!("{name}={version}")
}

/// A version without Debian's revision: 6.1.192 of 6.1.192-3.
fn upstream(version: &str) -> &str {
    version.rsplit_once('-').map_or(version, |(upstream, _)| upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index as `apt-cache madison` prints it, newest versions first.
    fn index(packages: &[(&str, &[&str])]) -> PackageIndex {
        let line =
            |(name, version): (&str, &str)| format!(" {name} | {version} | http://mirror bookworm/main Packages\n");
        let lines = packages.iter().flat_map(|(name, versions)| versions.iter().map(|version| line((*name, *version))));
        PackageIndex::of_madison(&lines.collect::<String>())
    }

    fn words(set: &KernelSet) -> (Vec<&str>, &str) {
        (set.unpacked.iter().map(String::as_str).collect(), &set.source)
    }

    /// Signed image and headers lag behind, and the pool has dropped their kbuild and source.
    #[test]
    fn older_image_takes_the_newest_kbuild_and_the_source_of_its_release() {
        let index = index(&[
            ("linux-image-6.1.0-8-amd64", &["6.1.99-2"]),
            ("linux-headers-6.1.0-8-amd64", &["6.1.99-2"]),
            ("linux-headers-6.1.0-8-common", &["6.1.99-2"]),
            ("linux-kbuild-6.1", &["6.1.99-3", "6.1.50-1"]),
            ("linux-source-6.1", &["6.1.100-1", "6.1.99-3", "6.1.50-1"]),
        ]);
        let set = index.newest_set().unwrap();
        assert_eq!(set.release, "6.1.0-8-amd64");
        let unpacked = [
            "linux-image-6.1.0-8-amd64=6.1.99-2",
            "linux-headers-6.1.0-8-amd64=6.1.99-2",
            "linux-headers-6.1.0-8-common=6.1.99-2",
            "linux-kbuild-6.1=6.1.99-3",
        ];
        assert_eq!(words(&set), (unpacked.to_vec(), "linux-source-6.1=6.1.99-3"));
    }

    /// 10 is newer than 9, whose image is signed; 11 has no headers, 12 no image, the cloud's is another kernel.
    #[test]
    fn newest_whole_set_is_taken_though_its_image_is_unsigned() {
        let index = index(&[
            ("linux-image-6.1.0-11-amd64", &["6.1.12-1"]),
            ("linux-headers-6.1.0-12-amd64", &["6.1.13-1"]),
            ("linux-headers-6.1.0-12-common", &["6.1.13-1"]),
            ("linux-image-6.1.0-10-amd64-unsigned", &["6.1.11-2"]),
            ("linux-headers-6.1.0-10-amd64", &["6.1.11-2"]),
            ("linux-headers-6.1.0-10-common", &["6.1.11-2"]),
            ("linux-image-6.1.0-9-amd64", &["6.1.11-1"]),
            ("linux-headers-6.1.0-9-amd64", &["6.1.11-1"]),
            ("linux-headers-6.1.0-9-common", &["6.1.11-1"]),
            ("linux-headers-6.1.0-13-cloud-amd64", &["6.1.14-1"]),
            ("linux-kbuild-6.1", &["6.1.14-1", "6.1.11-2", "6.1.11-1"]),
            ("linux-source-6.1", &["6.1.14-1", "6.1.11-2", "6.1.11-1"]),
        ]);
        let set = index.newest_set().unwrap();
        assert_eq!((&*set.release, &*set.source), ("6.1.0-10-amd64", "linux-source-6.1=6.1.11-2"));
        assert!(set.unpacked.contains(&"linux-kbuild-6.1=6.1.11-2".to_owned()));
        assert!(set.unpacked[0].starts_with("linux-image-6.1.0-10-amd64-unsigned="));
    }

    /// An older image with everything in one version is before a newer one with another's kbuild.
    #[test]
    fn whole_set_is_before_a_newer_image_without_its_kbuild() {
        let index = index(&[
            ("linux-image-6.1.0-5-amd64", &["6.1.7-1", "6.1.6-1"]),
            ("linux-headers-6.1.0-5-amd64", &["6.1.7-1", "6.1.6-1"]),
            ("linux-headers-6.1.0-5-common", &["6.1.7-1", "6.1.6-1"]),
            ("linux-kbuild-6.1", &["6.1.6-1"]),
            ("linux-source-6.1", &["6.1.7-1", "6.1.6-1"]),
        ]);
        let set = index.newest_set().unwrap();
        assert_eq!(set.source, "linux-source-6.1=6.1.6-1");
        assert!(set.unpacked.iter().all(|package| package.ends_with("=6.1.6-1")));
    }

    #[test]
    fn nothing_fits_without_kbuild_or_with_the_source_of_another_release() {
        let image = [
            ("linux-image-6.1.0-5-amd64", &["6.1.7-1"][..]),
            ("linux-headers-6.1.0-5-amd64", &["6.1.7-1"]),
            ("linux-headers-6.1.0-5-common", &["6.1.7-1"]),
        ];
        let with = |kbuild, source| {
            index(&[&image[..], &[("linux-kbuild-6.1", kbuild), ("linux-source-6.1", source)]].concat())
        };
        assert_eq!(with(&[], &["6.1.7-1"]).newest_set(), None);
        assert_eq!(with(&["6.1.7-1"], &["6.1.8-1"]).newest_set(), None);
        assert!(with(&["6.1.8-1"], &["6.1.7-1"]).newest_set().is_some());
        assert_eq!(PackageIndex::of_madison("E: nothing\n").newest_set(), None);
    }
}
