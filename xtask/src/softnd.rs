//! `cargo xtask softnd`: the provider DLL of user-mode NetworkDirect, its symbols, and the rules of the finished image.
//!
//! Built here as on Windows, by the toolchain's own linker: the crate names its imports itself and links no library.

use crate::{
    arch::Arch,
    command,
    cross::toolchain::{self, Use},
    driver::{Profile, publish},
    image_check::{self, Image, ImageRule, Lists, Machine, Strictness},
    import_list::ImportList,
    setup::{self, Need},
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use std::{
    fs,
    io::{IsTerminal, stderr},
    path::{Path, PathBuf},
    process::Command,
};

/// Build softnd.dll, with its symbols.
///
/// It appears as target/softnd/x64/debug/softnd.dll or target/softnd/x64/release/softnd.dll.
#[derive(clap::Args)]
pub struct SoftndArguments {
    /// Optimised, as it is shipped
    #[arg(long)]
    release: bool,
}

const CRATE: &str = "softnd";

/// What the DLL exports, and nothing else.
const EXPORTS: [&str; 4] = ["DllCanUnloadNow", "DllGetClassObject", "SOFTND_BUILD", "WSPStartup"];

/// The names that it may import, a module and a function a line.
const IMPORTS: &str = "tools/softnd/imports.txt";

pub fn run(arguments: &SoftndArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let image = build(&workspace, Profile::of(arguments.release))?;
    println!("{}", workspace.show(&image));
    Ok(())
}

/// Builds the DLL, checks it, puts it and its symbols in their place and returns its path.
pub fn build(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    let mut cargo = cargo(workspace, "build")?;
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    command::run(&mut cargo).context("softnd.dll does not build")?;

    let made = made(workspace, profile);
    check(workspace, &made, profile)?;
    let image = workspace.path("target/softnd").join(Arch::X64.name()).join(profile.name()).join("softnd.dll");
    publish(&made, &image)?;
    publish(&made.with_extension("pdb"), &image.with_extension("pdb"))?;
    Ok(image)
}

/// The DLL as cargo leaves it, with its symbols beside it.
pub fn made(workspace: &Workspace, profile: Profile) -> PathBuf {
    target(workspace).join(Arch::X64.triple()).join(profile.name()).join(CRATE).with_extension("dll")
}

/// A cargo command on the package, for Windows.
pub fn cargo(workspace: &Workspace, subcommand: &str) -> Result<Command> {
    setup::ensure(&[Need::DriverLibraries(Arch::X64)])?;
    let triple = Arch::X64.triple();
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root()).args([subcommand, "--locked", "--package", CRATE, "--target", triple]);
    cargo.arg("--target-dir").arg(target(workspace));
    if !stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    // Without optimisation some frames pass one page and call __chkstk, which is the C run-time's.
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    // The dev profile has line tables only, which is for test binaries.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "full");
    #[cfg(unix)]
    cargo.env(Arch::X64.linker_variable(), toolchain::linker()?);
    toolchain::require(triple)?.apply(&mut cargo, Use::Driver);
    Ok(cargo)
}

fn target(workspace: &Workspace) -> PathBuf {
    workspace.path("target/softnd/build")
}

/// An error that names every broken rule.
fn check(workspace: &Workspace, path: &Path, profile: Profile) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let image = Image::parse(bytes)?;
    let mut broken = violations(&image, &ImportList::read(workspace, IMPORTS)?);
    if profile == Profile::Release {
        broken.extend(code_violations(path)?);
    }
    if broken.is_empty() { Ok(()) } else { bail!("softnd.dll breaks rules:\n  {}", broken.join("\n  ")) }
}

/// The rules of a driver's functions that hold for the DLL as well. Its lists are empty: there is no panic with a reason.
fn code_violations(path: &Path) -> Result<Vec<String>> {
    const RULES: [ImageRule; 4] =
        [ImageRule::UnguardedCall, ImageRule::StackProbe, ImageRule::InfallibleAllocation, ImageRule::Panic];
    let no_lists = Lists::read(&path.with_extension("lists"))?;
    let strictness = Strictness { optimised: true, same_compiler: true };
    let findings = image_check::check(path, &no_lists, strictness)?;
    let of_functions = findings.violations.iter().filter(|violation| RULES.contains(&violation.rule));
    Ok(of_functions.map(ToString::to_string).collect())
}

fn violations(image: &Image, list: &ImportList) -> Vec<String> {
    /// IMAGE_DLLCHARACTERISTICS: high entropy, dynamic base, no execution of data, control flow guard.
    const CHARACTERISTICS: u16 = 0x20 | 0x40 | 0x100 | 0x4000;
    let mut broken = Vec::new();
    let mut rule = |kept: bool, what: String| {
        if !kept {
            broken.push(what);
        }
    };
    rule(image.machine == Machine::X64, "it is not for x64".to_owned());
    rule(image.entry != 0, "it has no entry point".to_owned());
    rule(image.checksum != 0, "it has no checksum".to_owned());
    let missing = CHARACTERISTICS & !image.characteristics;
    rule(missing == 0, format!("its characteristics {:#x} lack {missing:#x}", image.characteristics));
    let targets = image.guard.as_ref().map_or(0, |guard| guard.targets.len());
    rule(targets > 0, "it has no table of control flow guard".to_owned());
    for section in &image.sections {
        rule(!(section.writable && section.executable), format!("{} is writable and executable", section.name));
    }
    let mut exports = image.exports.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    exports.sort_unstable();
    rule(exports == EXPORTS, format!("it exports {exports:?}, expected {EXPORTS:?}"));
    broken.extend(list.differences(image, IMPORTS));
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_check::Import;

    fn image() -> Image {
        let import = |module: &str, name: &str| Import { module: module.to_owned(), name: name.to_owned() };
        let guard = image_check::Guard { flags: 0, check_slot: 1, dispatch_slot: 1, targets: vec![1] };
        Image {
            bytes: Vec::new(),
            machine: Machine::X64,
            image_base: 0x1_8000_0000,
            entry: 1,
            subsystem: 2,
            characteristics: 0x4160,
            checksum: 1,
            checksum_offset: 0,
            sections: Vec::new(),
            imports: vec![import("a.dll", "One"), import("b.dll", "Two")],
            exports: EXPORTS.iter().map(|name| ((*name).to_owned(), 1)).collect(),
            pointers: Vec::new(),
            runtime_functions: Vec::new(),
            guard: Some(guard),
        }
    }

    #[test]
    fn good_image_keeps_every_rule() {
        assert_eq!(violations(&image(), &ImportList::parse("# list\na.dll One\nb.dll Two\n")), Vec::<String>::new());
    }

    #[test]
    fn each_broken_rule_is_named() {
        let broken = violations(&image(), &ImportList::parse("a.dll One\nc.dll Three"));
        assert_eq!(broken.len(), 2);
        assert!(broken[0].contains("b.dll Two") && broken[1].contains("c.dll Three"), "{broken:?}");
        let list = ImportList::parse("a.dll One\nb.dll Two");
        let changed = |change: fn(&mut Image)| {
            let mut image = image();
            change(&mut image);
            violations(&image, &list)
        };
        for change in [
            |image: &mut Image| image.entry = 0,
            |image: &mut Image| image.checksum = 0,
            |image: &mut Image| image.characteristics = 0x160,
            |image: &mut Image| image.guard = None,
            |image: &mut Image| image.exports.push(("memcpy".to_owned(), 1)),
            |image: &mut Image| image.machine = Machine::Arm64,
        ] {
            assert_eq!(changed(change).len(), 1);
        }
    }
}
