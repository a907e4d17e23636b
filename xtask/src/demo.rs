//! `cargo xtask demo`: builds what it shows, and runs a demonstration of the driver on this machine.
//!
//! Images and ndkctl are built as `own-driver`, `own-program` and the tests build them: unoptimised tools build in half of the time, and
//! the debug image has the driver's assertions and is fast enough to be shown. `ndkctl demo` decides what is shown; `two_machines` has the
//! demonstration of two kernel hosts.

mod two_machines;

use crate::{
    arch::Arch,
    command, commit,
    driver::{self, Profile},
    host_cargo, softnd,
    workspace::Workspace,
};
use anyhow::{Context, Result, anyhow};
use clap::Parser;
use std::{
    ffi::OsString,
    io::{IsTerminal, Write, stderr},
    path::PathBuf,
    process::Command,
    thread,
};

/// Build everything and run the demonstration.
#[derive(clap::Args)]
pub struct DemoArguments {
    /// Kernel hosts: one that shows everything, or two in two processes, of which one pulls a file from the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    machines: u8,

    /// Passed to `ndkctl demo`; with two machines only --size
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn run(arguments: &DemoArguments) -> Result<()> {
    let two = (arguments.machines == 2).then(|| {
        let parsed = two_machines::TwoMachinesArguments::try_parse_from(&arguments.words);
        parsed.unwrap_or_else(|error| error.exit())
    });
    let workspace = Workspace::find()?;
    announce(
        "building softndk.sys, ndktest.sys, and ndkctl with the kernel host: some minutes the first time",
        &mut stderr(),
    );
    let (ndkctl, image) = build(&workspace)?;
    if let Some(arguments) = two {
        let dll = softnd::build(&workspace, Profile::Release)?;
        let programs = two_machines::DemoPrograms { ndkctl, image, dll };
        return two_machines::run(&workspace, &programs, &arguments).context("the demonstration failed");
    }
    let mut demo = Command::new(ndkctl);
    demo.current_dir(workspace.root()).arg("--image").arg(image).arg("demo").args(&arguments.words);
    // An unpacked archive has none.
    demo.envs(commit::checked_out(&workspace).ok().map(|commit| (commit::BUILT_FROM, commit)));
    command::run(&mut demo).context("the demonstration failed")
}

/// The tool beside the images, which need what `setup` downloads first.
fn build(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    thread::scope(|scope| {
        let image = scope.spawn(|| driver::build_unchecked(workspace, Arch::X64, Profile::Debug));
        let ndkctl = host_cargo::program(workspace, "ndkctl");
        let image = image.join().map_err(|_| anyhow!("the build of the driver ended early"))?;
        Ok((ndkctl?, image?))
    })
}

/// Says what takes long. On a terminal cargo shows its own progress; elsewhere it is silent.
fn announce(what: &str, to: &mut (impl Write + IsTerminal)) {
    if !to.is_terminal() {
        // The demonstration goes on when nothing can be said.
        let _ = writeln!(to, "{what}");
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::announce;
    use std::{
        fs::File,
        io::{Read, pipe},
        os::fd::OwnedFd,
    };

    #[test]
    fn long_build_is_announced_where_there_is_no_terminal() {
        let (mut reader, writer) = pipe().unwrap();
        announce("building", &mut File::from(OwnedFd::from(writer)));
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "building\n");
    }
}
