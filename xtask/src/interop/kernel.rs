//! Debian's kernel for the guest: its image and modules, and what Debian leaves out, compiled from the source of the same version.

use super::{
    kernel_set::{self, KernelSet, PackageIndex, SERIES},
    packages::{self, Packages, download, unpack},
};
use crate::{command, skipped::Skipped};
use anyhow::{Context, Result};
use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    slice,
};

/// Modules that Debian leaves out of its kernel, or compiles without what the cases use.
const COMPILED: [CompiledModule; 2] = [
    CompiledModule {
        name: "siw",
        folder: "drivers/infiniband/sw/siw",
        settings: &["CONFIG_RDMA_SIW=m"],
        grammars: &[],
    },
    CompiledModule {
        name: "ksmbd",
        folder: "fs/smb/server",
        // The headers of Debian's configuration do not have the last one.
        settings: &["CONFIG_SMB_SERVER=m", "CONFIG_SMB_SERVER_SMBDIRECT=y", "KCFLAGS=-DCONFIG_SMB_SERVER_SMBDIRECT=1"],
        grammars: &["ksmbd_spnego_negtokeninit", "ksmbd_spnego_negtokentarg"],
    },
];

/// What the modules are compiled from, and the compiler of their grammars.
const SOURCES: [&str; 6] = [
    "drivers/infiniband/sw/siw",
    "fs/internal.h",
    "fs/smb",
    "include/linux",
    "scripts/asn1_compiler.c",
    "tools/include",
];

/// A module that is compiled from the kernel's source.
struct CompiledModule {
    name: &'static str,
    /// Where it is in the source.
    folder: &'static str,
    /// For its makefile.
    settings: &'static [&'static str],
    /// Files of ASN.1, without their extension.
    grammars: &'static [&'static str],
}

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
        let has_sources = SOURCES.iter().all(|part| folder.join("source").join(part).exists());
        let kernel = if let Some(release) = fs::read_to_string(&fetched).ok().filter(|_| has_sources) {
            Self { packages, folder, release }
        } else {
            let set = newest_set().map_err(Skipped::because)?;
            let kernel = Self { packages, folder, release: set.release.clone() };
            eprintln!("interop: downloading and unpacking {}, {}", set.unpacked.join(", "), set.source);
            kernel.fetch(&set).map_err(Skipped::because)?;
            fs::write(fetched, &kernel.release)?;
            kernel
        };
        if !kernel.has_modules() {
            // The archive may have a source by now for which the settings below are wrong.
            COMPILED.iter().try_for_each(|module| kernel.compile(module)).map_err(Skipped::because)?;
            kernel.list_modules()?;
        }
        Ok(kernel)
    }

    /// Whether all are in the list of modules, which is written last.
    fn has_modules(&self) -> bool {
        let list = fs::read_to_string(self.modules().join("modules.dep")).unwrap_or_default();
        COMPILED.iter().all(|module| list.contains(&format!("updates/{}.ko:", module.name)))
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

    /// A file of the source.
    pub(super) fn source_text(&self, path: &str) -> Result<String> {
        let file = self.source().join(path);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }

    fn fetch(&self, set: &KernelSet) -> Result<()> {
        let downloads = self.folder.join("downloads");
        let all = [set.unpacked.as_slice(), slice::from_ref(&set.source)].concat();
        let source = set.source.split('=').next().unwrap_or_default();
        for file in download(&downloads, &all)? {
            if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(source)) {
                self.extract_source(&file, source)?;
            } else {
                unpack(&file, &self.folder)?;
            }
        }
        fs::remove_dir_all(&downloads)?;
        self.relocate_headers()
    }

    /// Unpacks the few folders that are used of a source of more than a gigabyte.
    fn extract_source(&self, file: &Path, source: &str) -> Result<()> {
        let unpacked = self.folder.join("downloads/source");
        unpack(file, &unpacked)?;
        let archive = unpacked.join("usr/src").join(source).with_added_extension("tar.xz");
        fs::create_dir_all(self.source())?;
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(self.source());
        tar.arg("--strip-components=1").args(SOURCES.map(|part| format!("{source}/{part}")));
        command::output(&mut tar).map(drop)
    }

    /// The makefile of the headers includes that of another package by its place on the machine.
    fn relocate_headers(&self) -> Result<()> {
        let makefile = self.headers().join("Makefile");
        let text = fs::read_to_string(&makefile).with_context(|| format!("cannot read {}", makefile.display()))?;
        let here = format!("include {}/usr/src/", self.folder.display());
        Ok(fs::write(makefile, text.replace("include /usr/src/", &here))?)
    }

    fn compile(&self, module: &CompiledModule) -> Result<()> {
        let CompiledModule { name, settings, grammars, .. } = module;
        eprintln!("interop: compiling {name}");
        let folder = self.source().join(module.folder);
        grammars.iter().try_for_each(|grammar| self.compile_grammar(&folder, grammar))?;
        let mut make = Command::new("make");
        make.arg("-C").arg(self.headers()).arg(format!("M={}", folder.display())).args(*settings).arg("modules");
        command::output(&mut make).with_context(|| {
            format!("{name} does not compile; it needs make and the compiler of the kernel: `sudo apt-get install make gcc-12`")
        })?;
        // The folder whose modules come before the kernel's own.
        let updates = self.modules().join("updates");
        fs::create_dir_all(&updates)?;
        let file = format!("{name}.ko");
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg(folder.join(&file)).arg("-o").arg(updates.join(&file));
        command::output(&mut strip).map(drop)
    }

    /// Compiles a file of ASN.1 to C.
    fn compile_grammar(&self, folder: &Path, grammar: &str) -> Result<()> {
        let source = self.source();
        let compiler = source.join("asn1_compiler");
        let mut cc = Command::new("gcc-12");
        for headers in ["include", "tools/include"] {
            cc.arg("-I").arg(source.join(headers));
        }
        cc.arg("-o").arg(&compiler).arg(source.join("scripts/asn1_compiler.c"));
        command::output(&mut cc)?;
        let file = |extension: &str| format!("{grammar}.{extension}");
        let mut compile = Command::new(compiler);
        compile.current_dir(folder).args(["asn1", "asn1.c", "asn1.h"].map(file));
        command::output(&mut compile).map(drop)
    }

    fn list_modules(&self) -> Result<()> {
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

/// The newest kernel that apt offers with all that its modules are compiled from.
fn newest_set() -> Result<KernelSet> {
    let names = packages::names(&kernel_set::name_prefixes())?;
    let index = PackageIndex::of_madison(&packages::madison(&names)?);
    index.newest_set().with_context(|| {
        format!("apt offers no kernel of {SERIES} with its headers, kbuild and source; this needs Debian 12 on x86-64")
    })
}
