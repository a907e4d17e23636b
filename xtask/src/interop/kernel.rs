//! Debian's kernel for the guest: its image and modules, and what Debian leaves out, compiled from the source of the same version.

use super::packages::{self, Packages, download, unpack};
use crate::command;
use anyhow::{Context, Result};
use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Where siw is in the kernel's source.
const SIW: &str = "drivers/infiniband/sw/siw";

/// The kernel of the guest, unpacked.
pub(super) struct GuestKernel<'a> {
    packages: &'a Packages,
    folder: PathBuf,
    /// As `uname -r` says it.
    pub(super) release: String,
}

impl<'a> GuestKernel<'a> {
    pub(super) fn prepare(folder: &Path, packages: &'a Packages) -> Result<Self> {
        let (folder, fetched) = (folder.to_owned(), folder.join("release"));
        let kernel = if let Ok(release) = fs::read_to_string(&fetched) {
            Self { packages, folder, release }
        } else {
            let kernel = Self { packages, folder, release: newest_release()? };
            eprintln!("interop: downloading and unpacking the kernel {}, its headers and its source", kernel.release);
            kernel.fetch()?;
            fs::write(fetched, &kernel.release)?;
            kernel
        };
        if !kernel.has_siw() {
            eprintln!("interop: compiling siw");
            kernel.build_siw()?;
        }
        Ok(kernel)
    }

    /// Whether siw is in the list of modules, which is written last.
    fn has_siw(&self) -> bool {
        fs::read_to_string(self.modules().join("modules.dep")).is_ok_and(|list| list.contains("/siw.ko"))
    }

    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    fn headers(&self) -> PathBuf {
        self.folder.join("usr/src").join(format!("linux-headers-{}", self.release))
    }

    fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }

    fn fetch(&self) -> Result<()> {
        let (image, headers) = (format!("linux-image-{}", self.release), format!("linux-headers-{}", self.release));
        let version = packages::version(&image)?;
        let source = source_package()?;
        let mut all = vec![image, headers.clone(), source.clone()];
        let belong = |name: &String| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-");
        all.extend(packages::needs(&headers)?.into_iter().filter(belong));
        for name in &mut all {
            *name = format!("{name}={version}");
        }
        let downloads = self.folder.join("downloads");
        for file in download(&downloads, &all)? {
            if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&source)) {
                self.extract_source(&file, &source)?;
            } else {
                unpack(&file, &self.folder)?;
            }
        }
        fs::remove_dir_all(&downloads)?;
        self.relocate_headers()
    }

    /// Unpacks the one folder that is used of a source of more than a gigabyte.
    fn extract_source(&self, file: &Path, source: &str) -> Result<()> {
        let unpacked = self.folder.join("downloads/source");
        unpack(file, &unpacked)?;
        let archive = unpacked.join("usr/src").join(source).with_added_extension("tar.xz");
        fs::create_dir_all(self.source())?;
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(self.source());
        tar.args(["--strip-components=1", &format!("{source}/{SIW}")]);
        command::output(&mut tar).map(drop)
    }

    /// The makefile of the headers includes that of another package by its place on the machine.
    fn relocate_headers(&self) -> Result<()> {
        let makefile = self.headers().join("Makefile");
        let text = fs::read_to_string(&makefile).with_context(|| format!("cannot read {}", makefile.display()))?;
        let here = format!("include {}/usr/src/", self.folder.display());
        Ok(fs::write(makefile, text.replace("include /usr/src/", &here))?)
    }

    fn build_siw(&self) -> Result<()> {
        let folder = self.source().join(SIW);
        let mut make = Command::new("make");
        make.arg("-C").arg(self.headers()).arg(format!("M={}", folder.display()));
        make.args(["CONFIG_RDMA_SIW=m", "modules"]);
        command::output(&mut make).context(
            "siw does not compile; it needs make and the compiler of the kernel: `sudo apt-get install make gcc-12`",
        )?;
        let extra = self.modules().join("extra");
        fs::create_dir_all(&extra)?;
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg(folder.join("siw.ko")).arg("-o").arg(extra.join("siw.ko"));
        command::output(&mut strip)?;
        command::output(self.kmod("depmod")?.arg("-b").arg(&self.folder).arg(&self.release)).map(drop)
    }

    /// The program that handles modules, by one of its names.
    fn kmod(&self, name: &str) -> Result<Command> {
        let mut command = self.packages.command("bin/kmod")?;
        command.arg0(name);
        Ok(command)
    }

    /// The files of modules in the order in which they are loaded, those that they need first.
    pub(super) fn module_files(&self, modules: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for module in modules {
            let mut modprobe = self.kmod("modprobe")?;
            modprobe.args(["--show-depends", "-S", &self.release, "-d"]).arg(&self.folder).arg(module);
            for line in command::output(&mut modprobe)?.lines() {
                let file = line.strip_prefix("insmod ").map(|words| PathBuf::from(words.trim()));
                files.extend(file.filter(|file| !files.contains(file)));
            }
        }
        Ok(files)
    }
}

/// The kernel that Debian's stable release has at present.
fn newest_release() -> Result<String> {
    let needs = packages::needs("linux-image-amd64")?;
    let release = needs.iter().find_map(|name| name.strip_prefix("linux-image-"));
    Ok(release.context("the package linux-image-amd64 names no kernel; this needs Debian 12")?.to_owned())
}

fn source_package() -> Result<String> {
    let needs = packages::needs("linux-source")?;
    needs.into_iter().next().context("the package linux-source names no source")
}
