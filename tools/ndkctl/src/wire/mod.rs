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

pub use change::{has_streams, network_of, set_transport, unusable_peers};
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
        WireCommand::List(_) => printed(list::collect(&provider(machine)?, peers_of_keywords(machine))?),
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

/// Each adapter by a name, and its keyword UplinkPeers.
#[cfg(not(windows))]
fn peers_of_keywords(machine: &Machine) -> Vec<(String, String)> {
    let name = |index| crate::transport::interface_alias(0, index).unwrap_or_else(|| format!("interface {index}"));
    let keys = machine.driver_keys().iter();
    let peers = |(index, values): &(u32, std::collections::BTreeMap<String, String>)| {
        let (_, peers) = values.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case("UplinkPeers"))?;
        Some((name(*index), peers.clone()))
    };
    keys.filter_map(peers).collect()
}

/// Each adapter by its instance id, and its keyword UplinkPeers; none without the right to read them.
#[cfg(windows)]
fn peers_of_keywords(_machine: &Machine) -> Vec<(String, String)> {
    use change::WireKeys;
    let adapters = registry::WireRegistry.adapters().unwrap_or_default().into_iter();
    adapters.filter_map(|adapter| Some((adapter.instance, adapter.values.peers?))).collect()
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
