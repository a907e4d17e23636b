//! The guest's file system: a few programs of the packages with their libraries, the modules, and the scripts beside this crate.

use super::{
    kernel::GuestKernel,
    packages::{LIBRARIES, Packages},
};
use crate::command;
use anyhow::{Context, Result};
use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Programs that are copied, by their places in packages.
const PROGRAMS: [&str; 7] = [
    "bin/ip",
    "usr/bin/ib_read_bw",
    "usr/bin/ib_write_bw",
    "usr/bin/qperf",
    "usr/bin/rping",
    "usr/bin/rdma",
    "usr/sbin/ksmbd.mountd",
];

/// What runs in the guest.
const SCRIPTS: [(&str, &str); 9] = [
    ("init", include_str!("../../interop/init.sh")),
    ("bin/begin", include_str!("../../interop/begin.sh")),
    ("bin/ended", include_str!("../../interop/ended.sh")),
    ("bin/load", include_str!("../../interop/load.sh")),
    ("bin/serve", include_str!("../../interop/serve.sh")),
    ("bin/nvmet", include_str!("../../interop/nvmet.sh")),
    ("bin/ksmbd", include_str!("../../interop/ksmbd.sh")),
    ("bin/vxlan", include_str!("../../interop/vxlan.sh")),
    ("bin/listening", include_str!("../../interop/listening.sh")),
];

/// Modules by the name with which the script `load` loads them.
const MODULES: [(&str, &[&str]); 4] = [
    ("base", &["virtio_pci", "virtio_net", "crc32c_generic", "siw", "rdma_ucm"]),
    ("nvmet", &["nvmet", "nvmet_rdma"]),
    ("ksmbd", &["ksmbd"]),
    ("vxlan", &["vxlan"]),
];

/// Has no path in another library: it is loaded when a thread ends.
const UNWINDER: &str = "lib/x86_64-linux-gnu/libgcc_s.so.1";

/// Builds the archive anew, which takes a second or two.
pub(super) fn build(folder: &Path, packages: &Packages, kernel: &GuestKernel<'_>) -> Result<PathBuf> {
    let tree = FileTree { root: folder.join("initrd"), packages };
    if tree.root.exists() {
        fs::remove_dir_all(&tree.root)?;
    }
    for name in ["bin", "dev", "etc/libibverbs.d", "lib64", "modules", "proc", "run", "sys", "tmp"] {
        fs::create_dir_all(tree.root.join(name))?;
    }
    tree.busybox()?;
    PROGRAMS.iter().try_for_each(|path| tree.program(path))?;
    tree.provider()?;
    tree.copy(&packages.file(UNWINDER)?, "lib64/libgcc_s.so.1")?;
    MODULES.iter().try_for_each(|(name, modules)| tree.modules(name, &kernel.module_files(modules)?))?;
    SCRIPTS.iter().try_for_each(|(path, text)| tree.script(path, text))?;
    tree.pack(&folder.join("initrd.cpio"))
}

struct FileTree<'a> {
    root: PathBuf,
    packages: &'a Packages,
}

impl FileTree<'_> {
    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.root.join(to);
        if !to.exists() {
            fs::copy(from, &to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        }
        Ok(())
    }

    fn busybox(&self) -> Result<()> {
        let busybox = self.packages.file("bin/busybox")?;
        self.copy(&busybox, "bin/busybox")?;
        for applet in command::output(Command::new(busybox).arg("--list"))?.lines().filter(|name| *name != "busybox") {
            symlink("busybox", self.root.join("bin").join(applet))?;
        }
        Ok(())
    }

    fn program(&self, path: &str) -> Result<()> {
        let file = self.packages.file(path)?;
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        let place = format!("bin/{name}");
        // Busybox has one of this name.
        let link = self.root.join(&place);
        if link.is_symlink() {
            fs::remove_file(link)?;
        }
        self.copy(&file, &place)?;
        self.libraries_of(&file)
    }

    /// What makes the queue pairs of siw usable in a program.
    fn provider(&self) -> Result<()> {
        let name = "libsiw-rdmav34.so";
        let file = self.packages.file(&format!("{LIBRARIES}/libibverbs/{name}"))?;
        self.copy(&file, &format!("lib64/{name}"))?;
        fs::write(self.root.join("etc/libibverbs.d/siw.driver"), "driver /lib64/libsiw\n")?;
        self.libraries_of(&file)
    }

    fn libraries_of(&self, file: &Path) -> Result<()> {
        let mut ldd = Command::new("ldd");
        ldd.arg(file).env("LD_LIBRARY_PATH", self.packages.library_path());
        let said = command::output(&mut ldd)?;
        for library in said.split_whitespace().map(Path::new).filter(|word| word.is_absolute()) {
            let name = library.file_name().unwrap_or_default().to_string_lossy();
            self.copy(library, &format!("lib64/{name}"))?;
        }
        Ok(())
    }

    /// The modules of one name, and the list that the script `load` reads.
    fn modules(&self, name: &str, files: &[PathBuf]) -> Result<()> {
        let mut list = Vec::new();
        for file in files {
            let module = file.file_name().unwrap_or_default().to_string_lossy();
            self.copy(file, &format!("modules/{module}"))?;
            list.push(format!("{module}\n"));
        }
        Ok(fs::write(self.root.join("modules").join(name), list.concat())?)
    }

    fn script(&self, path: &str, text: &str) -> Result<()> {
        let file = self.root.join(path);
        fs::write(&file, text)?;
        Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
    }

    fn pack(&self, archive: &Path) -> Result<PathBuf> {
        let names = command::output(Command::new("find").arg(".").current_dir(&self.root))?;
        let list = archive.with_extension("list");
        fs::write(&list, names)?;
        let mut cpio = Command::new(self.packages.file("bin/busybox")?);
        cpio.args(["cpio", "-o", "-H", "newc"]).current_dir(&self.root);
        cpio.stdin(File::open(&list)?).stdout(File::create(archive)?).stderr(Stdio::null());
        command::run(&mut cpio).context("the guest's file system cannot be packed")?;
        Ok(archive.to_owned())
    }
}
