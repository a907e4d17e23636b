//! `cargo xtask driver`: the driver image and its symbols.

#[cfg(unix)]
use crate::cross;
use crate::{arch::Arch, command, image_check, workspace::Workspace};
use anyhow::{Context, Result};
use std::{
    fs,
    io::{IsTerminal, stderr},
    path::{Path, PathBuf},
    process::Command,
};

/// Build softndk.sys and softndk.pdb.
///
/// They appear as target/driver/ARCH/debug/ or target/driver/ARCH/release/.
#[derive(clap::Args)]
pub struct Arguments {
    /// Optimised, as it is shipped
    #[arg(long)]
    release: bool,

    /// The architecture it is to run on
    #[arg(long, value_enum, default_value = "x64")]
    arch: Arch,
}

pub fn run(arguments: &Arguments) -> Result<()> {
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

/// Builds the image, puts it and its symbols in their place and returns the image's path.
pub fn build(workspace: &Workspace, arch: Arch, profile: Profile) -> Result<PathBuf> {
    let mut cargo = cargo(workspace, "build", arch)?;
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    command::run(&mut cargo).context("the driver does not build")?;

    let made = target(workspace).join(arch.triple()).join(profile.name());
    let folder = workspace.driver_target().join(arch.name()).join(profile.name());
    let image = folder.join("softndk.sys");
    publish(&made.join("softndk.dll"), &image)?;
    publish(&made.join("softndk.pdb"), &folder.join("softndk.pdb"))?;
    image_check::require(workspace, &image, profile == Profile::Release)?;
    Ok(image)
}

/// A cargo command on the driver package, ready for the build that this host makes.
pub fn cargo(workspace: &Workspace, subcommand: &str, arch: Arch) -> Result<Command> {
    let mut cargo = Command::new("cargo");
    cargo.args([subcommand, "--locked", "--package", "softndk", "--target", arch.triple()]);
    cargo.arg("--target-dir").arg(target(workspace));
    if !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    // With less optimisation some frames pass one page and call __chkstk, which only release images must be free of on
    // Windows; but level 2 lets debug images be loaded by the same rules. Their assertions and overflow checks stay.
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
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

/// Copies by way of a temporary name, so that whoever opens the image meets an old or a new one but never half of it.
fn publish(made: &Path, place: &Path) -> Result<()> {
    let folder = place.parent().context("an image without a folder")?;
    fs::create_dir_all(folder)?;
    let temporary = place.with_extension(format!("new-{}", std::process::id()));
    fs::copy(made, &temporary).with_context(|| format!("cannot copy {}", made.display()))?;
    fs::rename(&temporary, place).with_context(|| format!("cannot write {}", place.display()))
}
