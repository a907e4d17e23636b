//! `cargo xtask demo`: builds everything and runs a demonstration of the driver on this machine.
//!
//! Sets up what is missing, builds the release image and ndkctl, and lets ndkctl load the image in the kernel host and
//! show what it does. `ndkctl demo` decides what is shown; `two_machines` has the demonstration of two kernel hosts.

mod two_machines;

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    host_cargo, softnd, tools,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use clap::Parser;
use std::{
    ffi::OsString,
    io::{IsTerminal, Write, stderr},
    process::Command,
};

/// Build everything and run the demonstration.
#[derive(clap::Args)]
pub struct DemoArguments {
    /// Kernel hosts: one that shows everything, or two in two processes, of which one pulls a file from the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    machines: u8,

    /// With ndkctl as `cargo build` leaves it: there sooner, and slower
    #[arg(long)]
    debug: bool,

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
    announce("building softndk.sys and ndktest.sys: some minutes the first time", &mut stderr());
    let image = driver::build(&workspace, Arch::X64, Profile::Release)?;
    let dll = two.is_some().then(|| softnd::build(&workspace, Profile::Release)).transpose()?;
    announce("building ndkctl with the kernel host: a minute or two the first time", &mut stderr());
    let ndkctl = if arguments.debug { host_cargo::program(&workspace, "ndkctl")? } else { tools::build(&workspace)? };
    if let (Some(arguments), Some(dll)) = (two, dll) {
        let programs = two_machines::DemoPrograms { ndkctl, image, dll };
        return two_machines::run(&workspace, &programs, &arguments).context("the demonstration failed");
    }
    let mut demo = Command::new(ndkctl);
    demo.current_dir(workspace.root()).arg("--image").arg(image).arg("demo").args(&arguments.words);
    command::run(&mut demo).context("the demonstration failed")
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
