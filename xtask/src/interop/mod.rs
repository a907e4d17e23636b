//! `cargo xtask interop`: the driver against Linux. The kernel of a guest in QEMU has siw, which speaks iWARP over TCP as the driver does.
//!
//! Debian's packages supply QEMU, the kernel and its programs; siw and ksmbd are compiled from Debian's source of the same kernel. Nothing is
//! installed: all is below `target/interop`, once. The cases are trials of the conformance package; what passed the guest's network card
//! is judged by Wireshark.

mod capture;
mod cases;
mod guest;
mod initrd;
mod judge;
mod kernel;
mod kernel_set;
mod packages;
mod report;
mod smb_server;

use crate::{
    arch::Arch,
    driver::{self, Profile},
    host_cargo,
    skipped::Skipped,
    softnd,
    test_binary::TestBinary,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use cases::{Outcomes, Trials};
use guest::{Acceleration, BootPlan};
use kernel::GuestKernel;
use packages::Packages;
use report::{InteropReport, SkippedCase};
use std::{fs, path::PathBuf};

/// What the guest and the judge need; apt adds what these depend on.
const PACKAGES: [&str; 10] = [
    "busybox-static",
    "ibverbs-providers",
    "iproute2",
    "kmod",
    "ksmbd-tools",
    "perftest",
    "qemu-system-x86",
    "qperf",
    "rdmacm-utils",
    "tshark",
];

/// Run the driver against Linux: siw in a guest of QEMU.
#[derive(clap::Args)]
pub struct InteropArguments {
    /// Only cases with one of these words in their names
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,

    /// Leave the guest running, and say how it is reached
    #[arg(long)]
    keep: bool,

    /// The folder for captures and logs
    #[arg(long, value_name = "DIR", default_value = "target/interop/out")]
    out: PathBuf,

    /// Emulate the guest's processors although KVM is there
    #[arg(long)]
    without_kvm: bool,

    /// Print a JSON document instead of the table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &InteropArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let (folder, out) = (workspace.path("target/interop"), workspace.path(&arguments.out));
    for place in [&folder, &out] {
        fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    }
    let packages = Packages::prepare(&folder.join("packages"), &PACKAGES).map_err(Skipped::because)?;
    let kernel = GuestKernel::prepare(&folder.join("kernel"), &packages)?;
    let initrd = initrd::build(&folder, &packages, &kernel)?;
    let image = driver::build(&workspace, Arch::X64, Profile::Debug)?;
    let dll = softnd::build(&workspace, Profile::Release)?;
    let ndkctl = host_cargo::program(&workspace, "ndkctl")?;
    let trials = Trials { program: TestBinary::build(&workspace, "siw")?, image, ndkctl, dll };
    let mut names = trials.names(&arguments.only)?;
    let skipped = without_obstacles(&mut names, &kernel, &packages)?;

    let acceleration = Acceleration::find(arguments.without_kvm);
    let tunnel_port = guest::tunnel_port()?;
    let plan = BootPlan { packages: &packages, kernel: &kernel, initrd, acceleration, tunnel_port, folder: out };
    let mut outcomes = trials.run(&plan, &names)?;
    if let Some(guest) = outcomes.guest.take_if(|_| arguments.keep) {
        let address = guest.address;
        eprintln!("interop: the guest's shell is port 2323 of {address}; end it with `kill {}`", guest.keep());
    }
    let Outcomes { cases, guests, .. } = outcomes;
    let report = InteropReport { cases, skipped, guests, kernel: kernel.release.clone(), acceleration };
    if arguments.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    report.verdict()
}

/// The case of the SMB server.
const SMB: &str = "smb_direct_server_takes_and_gives_files";

/// Takes the case out of `names` that cannot run with these packages.
fn without_obstacles(
    names: &mut Vec<String>,
    kernel: &GuestKernel<'_>,
    packages: &Packages,
) -> Result<Option<SkippedCase>> {
    let Some(place) = names.iter().position(|name| name == SMB) else { return Ok(None) };
    let obstacle = smb_server::obstacle(kernel, packages)?;
    Ok(obstacle.map(|why| SkippedCase { name: names.remove(place), why }))
}
