//! `cargo xtask package`: the zip for a test machine.
//!
//! The images are built by the commands that build them otherwise, with the commit in their environment; [`image`] gives each a version
//! resource and the commit's time, [`build`] knows version and commit, [`archive`] writes the zip. All times are the commit's, so
//! that one commit gives one zip: on one machine, with one toolchain, in one folder (the images have paths of their sources).

pub mod archive;
pub mod build;
pub mod image;
mod sign;
mod symbols;

use crate::{
    arch::Arch,
    command, image_check,
    inf::{self, InfExpectation},
    workspace::Workspace,
};
use anyhow::{Context, Result, bail, ensure};
use archive::{Files, sha256};
use build::Build;
use image::{ImageKind, Resource};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Make the zip for a Windows test machine: drivers, tools, INF, setup.ps1, symbols.
///
/// It appears as target/package/softndk-VERSION-COMMIT-ARCH.zip. The same commit gives the same bytes.
#[derive(clap::Args)]
pub struct PackageArguments {
    /// The architecture it is for: x64 or arm64
    #[arg(long, default_value = "x64")]
    arch: Arch,

    /// The folder of the zip
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    out: PathBuf,

    /// Sign the images with this certificate and key (PKCS #12), by osslsigncode
    #[arg(long, value_name = "PFX")]
    sign: Option<PathBuf>,

    /// A file with the pass phrase of the key
    #[arg(long, value_name = "FILE", requires = "sign")]
    pass_file: Option<PathBuf>,

    /// Take a work tree that has changes; the commit is then called COMMIT-modified
    #[arg(long)]
    allow_modified: bool,
}

pub fn run(arguments: &PackageArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let build = Build::of(&workspace, arguments.allow_modified)?;
    build_images(arguments.arch, &build)?;
    let stage = workspace.path("target/package/files").join(arguments.arch.name());
    let mut files = images(&workspace, arguments.arch, &build, &stage)?;
    if let Some(pfx) = &arguments.sign {
        sign::images(&mut files, pfx, arguments.pass_file.as_deref(), &stage)?;
    }
    files.extend(texts(&workspace, arguments.arch, &build)?);
    let out = if arguments.out.is_absolute() { arguments.out.clone() } else { workspace.path(&arguments.out) };
    let zip = out.join(format!("softndk-{}-{}-{}.zip", build.version, build.commit, arguments.arch.name()));
    let bytes = archive::write(archive::with_sums(files), build.time)?;
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    fs::write(&zip, &bytes).with_context(|| format!("cannot write {}", zip.display()))?;
    println!("{}", workspace.show(&zip));
    println!("sha256 {}", sha256(&bytes));
    Ok(())
}

/// By the commands for it, which end with the rules of the finished image. The commit is in their environment only, so that an ordinary
/// build does not change from commit to commit.
fn build_images(arch: Arch, build: &Build) -> Result<()> {
    let xtask = env::current_exe().context("this program has no path")?;
    let mut commands: Vec<&[&str]> = vec![&["tools", "--windows"]];
    let driver = ["driver", "--release", "--arch", arch.name()];
    commands.push(&driver);
    if arch == Arch::X64 {
        commands.push(&["softnd", "--release"]);
    }
    for words in commands {
        command::output(Command::new(&xtask).args(words).env(build::VARIABLE, &build.commit))?;
    }
    Ok(())
}

/// An image of the package: its name, where it is built, and what its version resource says.
struct PackagedImage {
    name: &'static str,
    made: PathBuf,
    symbols: bool,
    kind: ImageKind,
    description: &'static str,
}

fn parts(workspace: &Workspace, arch: Arch) -> Vec<PackagedImage> {
    let driver = |name: &str| workspace.driver_target().join(arch.name()).join("release").join(name);
    let part = |name, made, kind, description| PackagedImage { name, made, symbols: true, kind, description };
    let mut parts = vec![
        part("softndk.sys", driver("softndk.sys"), ImageKind::NetworkDriver, "softndk software RDMA adapter"),
        part("ndktest.sys", driver("ndktest.sys"), ImageKind::NetworkDriver, "softndk NDK test consumer"),
    ];
    // The tool is for x64 on either architecture; its symbols are in the file format of another debugger, and are left out.
    let ndkctl = workspace.path("target/tools/x64/ndkctl.exe");
    parts.push(PackagedImage {
        symbols: false,
        ..part("ndkctl.exe", ndkctl, ImageKind::Program, "softndk command-line tool")
    });
    if arch == Arch::X64 {
        let softnd = workspace.path("target/softnd/x64/release/softnd.dll");
        parts.push(part("softnd.dll", softnd, ImageKind::Library, "softndk NetworkDirect provider"));
    }
    parts
}

/// The images and their symbols, as they are in the zip.
fn images(workspace: &Workspace, arch: Arch, build: &Build, stage: &Path) -> Result<Files> {
    fs::create_dir_all(stage).with_context(|| format!("cannot create {}", stage.display()))?;
    let mut files = Files::new();
    for part in parts(workspace, arch) {
        let resource = Resource {
            name: part.name,
            description: part.description,
            kind: part.kind,
            version: build.numbers(),
            product: build.to_string(),
            time: build.time,
        };
        let mut bytes = read(&part.made)?;
        if !part.symbols {
            bytes = image::without_symbols(&part.made, &stage.join(part.name))?;
        }
        if part.symbols {
            let mut symbols = read(&part.made.with_extension("pdb"))?;
            symbols::settle(&mut bytes, &mut symbols).with_context(|| part.name.to_owned())?;
            files.insert(Path::new(part.name).with_extension("pdb").display().to_string(), symbols);
        }
        let bytes = image::finish(bytes, &resource).with_context(|| part.name.to_owned())?;
        if part.kind == ImageKind::NetworkDriver {
            check_driver(workspace, &part, &bytes, stage)?;
        }
        files.insert(part.name.to_owned(), bytes);
    }
    Ok(files)
}

/// A driver keeps the rules of the image check with its resource, too.
fn check_driver(workspace: &Workspace, part: &PackagedImage, bytes: &[u8], stage: &Path) -> Result<()> {
    let staged = stage.join(part.name);
    fs::write(&staged, bytes).with_context(|| format!("cannot write {}", staged.display()))?;
    fs::copy(part.made.with_extension("pdb"), staged.with_extension("pdb"))?;
    image_check::require(workspace, &staged, true)
}

/// Everything that is no image.
fn texts(workspace: &Workspace, arch: Arch, build: &Build) -> Result<Files> {
    let mut files = Files::new();
    let mut add = |name: &str, text: String| files.insert(name.to_owned(), text.into_bytes());
    let text =
        |path: &str| String::from_utf8(read(&workspace.path(path))?).with_context(|| format!("{path} is not text"));
    add("softndk.inf", stamped(&text("inf/softndk.inx")?, arch, build)?);
    add("setup.ps1", with_windows_lines(&text("inf/setup.ps1")?));
    add("LICENSE-MIT.txt", with_windows_lines(&text("LICENSE-MIT")?));
    add("LICENSE-APACHE.txt", with_windows_lines(&text("LICENSE-APACHE")?));
    add("README-first.txt", with_windows_lines(&read_first(arch, build)));
    add("package.json", description(arch, build));
    for profile in build::tracked(workspace, "*.wprp")? {
        let name =
            Path::new(&profile).file_name().and_then(|name| name.to_str()).context("a profile without a name")?;
        add(name, text(&profile)?);
    }
    Ok(files)
}

/// The INF with date and version, which breaks none of its rules.
fn stamped(template: &str, arch: Arch, build: &Build) -> Result<String> {
    let text = inf::stamp(template, arch, build.date(), &build.driver_version())?;
    let architecture = inf::architecture(arch);
    let broken = inf::violations(
        &text,
        &InfExpectation { architecture, version: &build.driver_version(), today: build::today()? },
    );
    if broken.is_empty() { Ok(text) } else { bail!("softndk.inf breaks rules:\n  {}", broken.join("\n  ")) }
}

/// What setup.ps1 reads.
fn description(arch: Arch, build: &Build) -> String {
    let description = serde_json::json!({
        "version": build.version,
        "commit": build.commit,
        "driver_version": build.driver_version(),
        "architecture": arch.name(),
    });
    format!("{description:#}\n")
}

fn read_first(arch: Arch, build: &Build) -> String {
    let head = format!("softndk {build}, {}", arch.name());
    let line = "=".repeat(head.len());
    format!("{head}\n{line}\n\n{}", include_str!("README-first.txt"))
}

fn with_windows_lines(text: &str) -> String {
    text.lines().flat_map(|line| [line, "\r\n"]).collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(!bytes.is_empty(), "{} is empty", path.display());
    Ok(bytes)
}
