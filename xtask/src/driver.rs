//! `cargo xtask driver`: the driver images and their symbols.

use crate::{arch::Arch, command, image_check, workspace::Workspace};
#[cfg(unix)]
use crate::{coverage::COUNTING, cross};
use anyhow::{Context, Result};
#[cfg(unix)]
use std::ffi::OsString;
use std::{
    fs,
    io::{IsTerminal, stderr},
    path::{Path, PathBuf},
    process::Command,
};

/// Build softndk.sys and ndktest.sys, with their symbols.
///
/// They appear as target/driver/ARCH/debug/ or target/driver/ARCH/release/.
#[derive(clap::Args)]
pub struct DriverArguments {
    /// Optimised, as it is shipped
    #[arg(long)]
    release: bool,

    /// The architecture it is to run on: x64 or arm64
    #[arg(long, default_value = "x64")]
    arch: Arch,
}

pub fn run(arguments: &DriverArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let image = build(&workspace, arguments.arch, Profile::of(arguments.release))?;
    println!("{}", workspace.show(&image));
    Ok(())
}

/// Optimised or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Debug,
    Release,
}

impl Profile {
    pub fn of(release: bool) -> Self {
        if release { Self::Release } else { Self::Debug }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

/// Our own NDK consumer, built with the driver and put beside it.
const CONSUMER: &str = "ndktest";

/// The images by their names.
fn images(folder: &Path) -> [PathBuf; 2] {
    ["softndk", CONSUMER].map(|name| folder.join(name).with_extension("sys"))
}

/// Builds both images and puts them and their symbols in their place, for a command that only runs them; the path of softndk.sys.
pub fn build_unchecked(workspace: &Workspace, arch: Arch, profile: Profile) -> Result<PathBuf> {
    let mut cargo = cargo(workspace, "build", arch)?;
    cargo.args(["--package", CONSUMER]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    command::run(&mut cargo).context("the driver does not build")?;

    let made = made(workspace, arch, profile);
    let folder = workspace.driver_target().join(arch.name()).join(profile.name());
    for image in images(&folder) {
        let name = image.file_stem().context("an image without a name")?;
        publish(&made.join(name).with_extension("dll"), &image)?;
        publish(&made.join(name).with_extension("pdb"), &image.with_extension("pdb"))?;
    }
    Ok(folder.join("softndk.sys"))
}

/// The same for a command that tests: the images keep the rules, and the test image is there.
pub fn build(workspace: &Workspace, arch: Arch, profile: Profile) -> Result<PathBuf> {
    let driver = build_unchecked(workspace, arch, profile)?;
    for image in images(driver.parent().context("an image without a folder")?) {
        image_check::require(workspace, &image, profile == Profile::Release)?;
    }
    #[cfg(unix)]
    if profile == Profile::Debug && arch == Arch::X64 {
        build_test_image(workspace)?;
    }
    Ok(driver)
}

/// A test image of the kernel package, which is no part of any package and only the kernel host loads.
#[cfg(unix)]
const TEST_IMAGE: &str = "datagrams";

#[cfg(unix)]
fn build_test_image(workspace: &Workspace) -> Result<()> {
    let mut cargo = cargo_of(workspace, "rustc", "softndk-kernel", Arch::X64, &target(workspace))?;
    cargo.args(["--example", TEST_IMAGE, "--"]);
    let libraries = format!("/LIBPATH:{}", cross::kit::library_folder(workspace, Arch::X64).display());
    let flags = ["/DRIVER", "/NODEFAULTLIB", "/SUBSYSTEM:NATIVE", "/ENTRY:DriverEntry", &libraries, "ntoskrnl.lib"];
    cargo.args(flags.map(|flag| format!("-Clink-arg={flag}")));
    command::run(&mut cargo).context("the test image does not build")?;
    let made = made(workspace, Arch::X64, Profile::Debug).join("examples").join(TEST_IMAGE);
    let image = workspace.driver_target().join(Arch::X64.name()).join(Profile::Debug.name()).join(TEST_IMAGE);
    publish(&made.with_extension("dll"), &image.with_extension("sys"))?;
    publish(&made.with_extension("pdb"), &image.with_extension("pdb"))
}

/// The folder in which cargo leaves the images, as DLLs.
pub fn made(workspace: &Workspace, arch: Arch, profile: Profile) -> PathBuf {
    target(workspace).join(arch.triple()).join(profile.name())
}

/// A debug image that counts what runs of it, for [`crate::coverage`], in a folder where nothing else looks for images.
///
/// The rules of the finished image are not asked of it: what counts has sections, frames and instructions of its own.
#[cfg(unix)]
pub fn build_counting(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.driver_target().join("mirror/target-coverage");
    let mut cargo = cargo_in(workspace, "rustc", Arch::X64, &target)?;
    cargo.env("RUSTC_BOOTSTRAP", "1");
    let mut flags: Vec<String> = COUNTING.split(' ').chain(["-Zno-profiler-runtime"]).map(str::to_owned).collect();
    // The sources under the names that they have in the tree: what the libraries' own tests count is put beside it.
    let (mirror, root) = (workspace.driver_target().join("mirror"), workspace.root());
    flags.push(format!("--remap-path-prefix={}={}", mirror.display(), root.display()));
    cargo.arg("--config").arg(format!("target.{}.rustflags={flags:?}", Arch::X64.triple()));
    let mut object = OsString::from("-Clink-arg=");
    object.push(cross::counting_object(workspace)?);
    // Functions that nothing calls are to be in the map of counters, as such.
    cargo.args(["--", "-Clink-arg=/OPT:NOREF"]).arg(object);
    command::run(&mut cargo).context("the driver does not build with counters")?;

    let made = target.join(Arch::X64.triple()).join(Profile::Debug.name());
    let folder = workspace.driver_target().join(Arch::X64.name()).join("coverage");
    let image = folder.join("softndk.sys");
    publish(&made.join("softndk.dll"), &image)?;
    publish(&made.join("softndk.pdb"), &folder.join("softndk.pdb"))?;
    Ok(image)
}

#[cfg(not(unix))]
pub fn build_counting(_: &Workspace) -> Result<PathBuf> {
    anyhow::bail!("images with counters are built on Linux only, where the kernel host reads them")
}

/// A cargo command on the driver package, ready for the build that this host makes.
pub fn cargo(workspace: &Workspace, subcommand: &str, arch: Arch) -> Result<Command> {
    cargo_in(workspace, subcommand, arch, &target(workspace))
}

fn cargo_in(workspace: &Workspace, subcommand: &str, arch: Arch, target: &Path) -> Result<Command> {
    cargo_of(workspace, subcommand, "softndk", arch, target)
}

fn cargo_of(workspace: &Workspace, subcommand: &str, package: &str, arch: Arch, target: &Path) -> Result<Command> {
    let mut cargo = Command::new("cargo");
    cargo.args([subcommand, "--locked", "--package", package, "--target", arch.triple()]);
    cargo.arg("--target-dir").arg(target);
    if !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    // With less optimisation some frames pass one page and call __chkstk, which only release images must be free of on
    // Windows; but level 2 lets debug images be loaded by the same rules. Their assertions and overflow checks stay.
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    // The dev profile has line tables only, which is for test binaries.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "full");
    #[cfg(unix)]
    cross::prepare(&mut cargo, workspace, arch)?;
    #[cfg(not(unix))]
    cargo.current_dir(workspace.root());
    Ok(cargo)
}

/// Where cargo builds the driver. wdk-build looks for `Cargo.lock` in the folders above.
fn target(workspace: &Workspace) -> PathBuf {
    workspace.driver_target().join(if cfg!(unix) { "mirror/target" } else { "target" })
}

/// Copies by way of a temporary name, so that a reader of the image gets the old or the new one but never half of it.
pub(crate) fn publish(made: &Path, place: &Path) -> Result<()> {
    let folder = place.parent().context("an image without a folder")?;
    fs::create_dir_all(folder)?;
    let temporary = place.with_extension(format!("new-{}", std::process::id()));
    fs::copy(made, &temporary).with_context(|| format!("cannot copy {}", made.display()))?;
    fs::rename(&temporary, place).with_context(|| format!("cannot write {}", place.display()))
}
