//! `ndkctl adapter`: makes and removes adapters, so that neither devgen nor devcon of the WDK is needed.
//!
//! An adapter of softndk is a root-enumerated device with the hardware id of the INF. What has to be done is in `manage`, the same on
//! every system; only `setup_api` calls Windows.

pub mod arguments;
mod devices;
#[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "only Windows has devices"))]
mod manage;
#[cfg(windows)]
pub mod registry;
#[cfg(windows)]
mod setup_api;

pub use devices::{AdapterDevice, Devices, HARDWARE_ID};
#[cfg(windows)]
pub use setup_api::SetupApi;

use crate::failure::Failure;
#[cfg(not(windows))]
use crate::failure::Kind;
use crate::output::Printed;
#[cfg(windows)]
use crate::{output::RESTART_NEEDED, run::printed};
use arguments::AdapterCommand;

/// Runs a command on this computer's devices.
#[cfg(windows)]
pub(crate) fn run(command: &AdapterCommand) -> Result<Printed, Failure> {
    let devices = SetupApi;
    match command {
        AdapterCommand::Add(arguments) => {
            let inf = setup_api::inf(arguments.inf.as_deref())?;
            let report = manage::add(&devices, arguments.count as usize, inf.as_deref())?;
            Ok(with_restart(report.restart_needed, printed(report)?))
        }
        AdapterCommand::Remove(arguments) => {
            let report = manage::remove(&devices, arguments.instance.as_deref())?;
            Ok(with_restart(report.restart_needed, printed(report)?))
        }
        AdapterCommand::List(_) => printed(manage::list(&devices)?),
    }
}

#[cfg(windows)]
fn with_restart(needed: bool, report: Printed) -> Printed {
    if needed { report.with_exit_code(RESTART_NEEDED) } else { report }
}

#[cfg(not(windows))]
pub(crate) fn run(command: &AdapterCommand) -> Result<Printed, Failure> {
    Err(Failure::new(
        Kind::Unreachable,
        format!("cannot run \"ndkctl {}\"", command.name()),
        "the devices of a computer are a part of Windows",
        "run ndkctl.exe on Windows; here --adapters gives the kernel host's driver as many as are wanted",
    ))
}
