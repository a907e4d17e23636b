//! `cargo xtask coverage`: which lines, functions and branches of what is in the driver image the tests run through.
//!
//! Two builds count. The driver is built with counters ([`crate::driver::build_counting`]); the kernel host writes them
//! to a file when the image is unloaded, and the trials of the contract and the cases of the control device load it. The
//! libraries are built for this machine as well, with their own tests. A line counts as run when any of them ran it.
//! Percentages below those of `xtask/lists/coverage.txt` by more than a point fail the command. LLVM's own tools read the
//! counters; docs/coverage.md says what the numbers leave out.

mod ratchet;
mod report;
mod run;

use crate::{
    arch::Arch,
    command,
    cross::toolchain,
    driver,
    setup::{self, Need},
    workspace::Workspace,
};
use anyhow::{Context, Result, bail, ensure};
use report::Report;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Measure which lines, functions and branches of driver and engine the tests run through.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct CoverageArguments {
    /// Every file instead of the ten with the most lines that nothing ran
    #[arg(long)]
    files: bool,

    /// One line of JSON for a program, with the lines of each file that nothing ran
    #[arg(long)]
    json: bool,

    /// Also the source with its counts, as target/coverage/html/index.html
    #[arg(long)]
    html: bool,

    /// Take these numbers as the lower bounds of the next run
    #[arg(long)]
    bless: bool,

    /// Measure nothing: say which commit xtask/lists/coverage.txt is of, and fail when what it is about has changed since
    #[arg(long, conflicts_with_all = ["files", "json", "html", "bless"])]
    record: bool,
}

/// What makes a compiler count: everything, branches too, without the run-time that a kernel image cannot have.
///
/// Branches are not a stable option yet; `RUSTC_BOOTSTRAP` lets the stable compiler take it.
pub(crate) const COUNTING: &str = "-Cinstrument-coverage -Zcoverage-options=branch";

pub fn run(arguments: &CoverageArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    if arguments.record {
        return ratchet::show(&workspace);
    }
    setup::ensure(&setup::driver_needs(Arch::X64))?;
    setup::ensure(&[Need::LlvmTools])?;
    let folder = workspace.path("target/coverage");
    let profiles = folder.join("profiles");
    fresh(&profiles)?;

    let image = driver::build_counting(&workspace)?;
    let mut programs = vec![image.clone()];
    programs.extend(run::libraries(&workspace, &profiles)?);
    run::trials(&workspace, &image, &profiles)?;

    let profile = merge(&folder, &profiles)?;
    let listing = llvm_cov("export", &profile, &programs)?;
    let text = command::output(Command::new(listing.get_program()).args(listing.get_args()).arg("--format=lcov"))?;
    let report = Report::read(&workspace, &text)?;
    if arguments.html {
        write_html(&workspace, &folder, &profile, &programs)?;
    }
    if arguments.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table(arguments.files));
    }
    if arguments.bless { ratchet::bless(&workspace, &report) } else { ratchet::check(&workspace, &report) }
}

fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// All raw profiles in one.
fn merge(folder: &Path, profiles: &Path) -> Result<PathBuf> {
    let mut list = String::new();
    let mut of_image = 0;
    for entry in fs::read_dir(profiles)? {
        let path = entry?.path();
        of_image += usize::from(path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("softndk.sys")));
        writeln!(list, "{}", path.display())?;
    }
    ensure!(of_image > 0, "no run of the image left its counters: is it unloaded at the end of each?");
    let (names, merged) = (folder.join("profiles.txt"), folder.join("softndk.profdata"));
    fs::write(&names, list)?;
    let mut tool = Command::new(toolchain::llvm_tool("llvm-profdata")?);
    tool.args(["merge", "--sparse", "--failure-mode=any", "--input-files"]).arg(names).arg("--output").arg(&merged);
    command::output(&mut tool)?;
    Ok(merged)
}

/// A command of llvm-cov on what was counted.
fn llvm_cov(what: &str, profile: &Path, programs: &[PathBuf]) -> Result<Command> {
    let Some((first, others)) = programs.split_first() else { bail!("nothing that counts") };
    let mut tool = Command::new(toolchain::llvm_tool("llvm-cov")?);
    tool.arg(what).arg("--instr-profile").arg(profile);
    tool.arg(first);
    for other in others {
        tool.arg("--object").arg(other);
    }
    Ok(tool)
}

fn write_html(workspace: &Workspace, folder: &Path, profile: &Path, programs: &[PathBuf]) -> Result<()> {
    let html = folder.join("html");
    let mut tool = llvm_cov("show", profile, programs)?;
    tool.args(["--format=html", "--show-branches=count", "--show-instantiations=false", "--output-dir"]).arg(&html);
    tool.args(report::CRATES.iter().flat_map(|(_, folders)| *folders).map(|folder| workspace.path(folder)));
    command::output(&mut tool)?;
    eprintln!("{}", workspace.show(&html.join("index.html")));
    Ok(())
}
