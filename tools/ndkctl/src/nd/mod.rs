//! `ndkctl nd`: user-mode NetworkDirect as a client of a provider DLL, and the entries by which Windows finds it.
//!
//! The client stands on the interfaces of `softnd-interfaces` alone and is the same code on both systems. On Windows it is a part of
//! this program. Elsewhere it runs as code of a process of the kernel host, on a user stack, and calls the real DLL that this process
//! has loaded; two ends are two processes. [`system::System`] has the few functions of kernel32.dll that it needs.
//!
//! Unsafe code is in `system`, `memory`, `interface` and `provider`: calls through pointers of the DLL and memory that requests use.

pub mod address;
pub mod allow;
pub mod arguments;
pub mod catalog;
pub mod connection;
pub mod end;
pub mod ends;
pub mod info;
pub mod interface;
pub mod memory;
pub mod nvme;
pub mod peer;
pub mod perf;
pub mod ping;
pub mod proposal;
pub mod provider;
pub mod pull;
pub mod request;
pub mod stop;
pub mod system;
mod tcp;

use crate::failure::Failure;
use crate::output::Printed;
use crate::progress::Progress;
use crate::run::printed;
use crate::transport::Machine;
use arguments::NdCommand;

/// Whether a command needs no adapters, but the system's catalogue of providers or its registry.
#[must_use]
pub const fn is_of_catalog(command: &NdCommand) -> bool {
    matches!(command, NdCommand::Install(_) | NdCommand::Remove(_) | NdCommand::List(_) | NdCommand::Allow(_))
}

/// Runs a command on the machine's adapters.
pub(crate) fn run(machine: &Machine, command: &NdCommand, progress: Progress) -> Result<Printed, Failure> {
    match command {
        NdCommand::Info(arguments) => printed(machine.in_process(arguments.provider.dll.as_deref(), info::run)??),
        NdCommand::Ping(arguments) => printed(ping::run(machine, arguments)?),
        NdCommand::Perf(arguments) => printed(perf::run(machine, arguments)?),
        NdCommand::Nvme(arguments) => printed(nvme::run(machine, arguments)?),
        NdCommand::Pull(arguments) => printed(pull::run(machine, arguments, progress)?),
        NdCommand::Install(_) | NdCommand::Remove(_) | NdCommand::List(_) | NdCommand::Allow(_) => on_catalog(command),
    }
}

/// Runs a command on the catalogue or the registry.
pub(crate) fn on_catalog(command: &NdCommand) -> Result<Printed, Failure> {
    match command {
        NdCommand::Install(arguments) => printed(catalog::install::install(arguments)?),
        NdCommand::Remove(_) => printed(catalog::install::remove()?),
        NdCommand::Allow(arguments) => printed(allow::run(arguments)?),
        _ => printed(catalog::list::list()?),
    }
}
