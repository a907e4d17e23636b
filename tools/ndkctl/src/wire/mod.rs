//! `ndkctl wire`: which machines the adapters of a wire reach, by VXLAN.
//!
//! What an adapter does is in keywords of its driver key, which it reads when it starts. So joining and leaving write the keywords of all
//! adapters of the wire and restart these; `change` does that, the same on every system, and only `registry` calls Windows.

pub mod arguments;
#[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "only Windows has a registry"))]
mod change;
mod list;
#[cfg(windows)]
mod registry;

pub use change::network_of;
pub use list::{UplinkPeerReport, UplinkReport};

use crate::client::Client;
use crate::failure::Failure;
#[cfg(not(windows))]
use crate::failure::Kind;
use crate::output::Printed;
use crate::run::printed;
use crate::transport::{Machine, SystemDevice};
use arguments::WireCommand;

/// Runs a command; leaving a wire needs no driver.
pub(crate) fn on_machine(machine: &Machine, command: &WireCommand) -> Result<Printed, Failure> {
    match command {
        WireCommand::List(_) => printed(list::collect(&provider(machine)?)?),
        #[cfg(windows)]
        WireCommand::Join(join) => {
            let networks = change::networks(&provider(machine)?.adapters()?);
            let values = change::values(join, &networks)?;
            changed(change::apply(&registry::WireRegistry, join.number, &values)?)
        }
        #[cfg(windows)]
        WireCommand::Leave(leave) => {
            changed(change::apply(&registry::WireRegistry, leave.number, &change::UplinkValues::default())?)
        }
        #[cfg(not(windows))]
        WireCommand::Join(_) | WireCommand::Leave(_) => Err(Failure::new(
            Kind::Unreachable,
            format!("cannot run \"ndkctl {}\"", command.name()),
            "the registry is a part of Windows",
            "run ndkctl.exe on Windows; here --keyword UplinkPeers=ADDRESS gives the adapters peers",
        )),
    }
}

fn provider(machine: &Machine) -> Result<Client<SystemDevice>, Failure> {
    Ok(Client::connect(machine.open_provider()?)?.0)
}

/// The report, with the exit code of a restart.
#[cfg(windows)]
fn changed(report: change::WireChangeReport) -> Result<Printed, Failure> {
    let restart_needed = report.restart_needed;
    let printed = printed(report)?;
    Ok(if restart_needed { printed.with_exit_code(crate::output::RESTART_NEEDED) } else { printed })
}
