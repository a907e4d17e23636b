//! The command line of `ndkctl nd`.

use crate::arguments::{Family, OperationName};
use crate::units::{at_least, parse_size, parse_size_32};
use clap::{Args, Subcommand};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where servers listen unless they are told otherwise.
pub const DEFAULT_PORT: u16 = 18_515;

/// Where targets of NVMe over RDMA listen.
const NVME_PORT: u16 = 4420;

#[derive(Args, Debug, Clone)]
pub struct NdArguments {
    #[command(subcommand)]
    pub command: NdCommand,
}

#[derive(Subcommand, Debug, Clone)]
pub enum NdCommand {
    /// Show the adapters that a provider of NetworkDirect has, with their limits.
    Info(NdInfoArguments),
    /// Send messages that are answered one by one, and compare all their bytes.
    Ping(NdPingArguments),
    /// Measure Reads, Writes and Sends: rate and latency over sizes and queue depths.
    Perf(NdPerfArguments),
    /// Pull a file from the server to the client by RDMA Read, and compare SHA-256 of both.
    Pull(NdPullArguments),
    /// Connect to a target of NVMe over RDMA, show what it has, and read from it.
    Nvme(NdNvmeArguments),
    /// Enter softnd.dll into the Winsock catalogue (Windows, as administrator). Twice is once.
    Install(InstallArguments),
    /// Take softnd.dll out of the Winsock catalogue (Windows, as administrator).
    Remove(RemoveArguments),
    /// List the providers of NetworkDirect in the Winsock catalogue (Windows).
    List(ListArguments),
    /// Let interactive users use user-mode NetworkDirect: writes NetworkDirectSddl of all adapters (Windows, as administrator).
    Allow(AllowArguments),
}

impl NdCommand {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Info(_) => "nd info",
            Self::Ping(_) => "nd ping",
            Self::Perf(_) => "nd perf",
            Self::Pull(_) => "nd pull",
            Self::Nvme(_) => "nd nvme",
            Self::Install(_) => "nd install",
            Self::Remove(_) => "nd remove",
            Self::List(_) => "nd list",
            Self::Allow(_) => "nd allow",
        }
    }
}

/// Which provider.
#[derive(Args, Debug, Clone, Default)]
pub struct ProviderArguments {
    /// The provider [default: on Windows that of the Winsock catalogue, elsewhere target/softnd/x64/release/softnd.dll, then debug].
    #[arg(long, value_name = "PATH", env = "SOFTNDK_DLL")]
    pub dll: Option<PathBuf>,
}

#[derive(Args, Debug, Clone)]
pub struct NdInfoArguments {
    #[command(flatten)]
    pub provider: ProviderArguments,
}

/// The two ends, or one of them.
#[derive(Args, Debug, Clone, Default)]
pub struct EndsArguments {
    /// Be only the server, at this address of an adapter, with or without a port; prints where it listens on standard error
    /// (Windows, or with --machine).
    #[arg(long, short = 'S', value_name = "ADDRESS[:PORT]", value_parser = parse_address, conflicts_with_all = ["client", "from", "to"])]
    pub server: Option<SocketAddr>,
    /// Be only the client of the server at this address (Windows, or with --machine).
    #[arg(long, short = 'C', value_name = "ADDRESS[:PORT]", value_parser = parse_address, conflicts_with = "to")]
    pub client: Option<SocketAddr>,
    /// The client's own address [default: the provider's first].
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// The server's address, where both ends are here [default: the first one of another adapter, or else the client's].
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<IpAddr>,
    /// Addresses to take by default.
    #[arg(long, value_enum, default_value_t)]
    pub family: Family,
    /// Wait for results with Notify instead of polling.
    #[arg(long, short = 'e', visible_alias = "events")]
    pub notify: bool,
}

#[derive(Args, Debug, Clone)]
pub struct NdPingArguments {
    /// Messages to send.
    #[arg(long, short = 'n', default_value_t = 1000, value_parser = at_least(1_u32))]
    pub count: u32,
    /// Bytes of one message.
    #[arg(long, short, default_value = "64", value_parser = parse_size_32)]
    pub size: u32,
    #[command(flatten)]
    pub ends: EndsArguments,
    #[command(flatten)]
    pub provider: ProviderArguments,
}

#[derive(Args, Debug, Clone)]
pub struct NdPerfArguments {
    /// What the client does, with commas.
    #[arg(long, visible_alias = "operation", value_enum, value_delimiter = ',', default_value = "read,write,send")]
    pub op: Vec<OperationName>,
    /// Bytes of one request, with commas.
    #[arg(long, short, default_value = "8,4K,64K", value_delimiter = ',', value_parser = parse_size_32)]
    pub size: Vec<u32>,
    /// Requests outstanding, with commas.
    #[arg(long, short = 't', visible_alias = "tx-depth", default_value = "1,16", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(super::proposal::MOST_DEPTH)))]
    pub depth: Vec<u32>,
    /// Move the bytes of Reads and Writes by the system's TCP, too, and compare the rates.
    #[arg(long)]
    pub beside_tcp: bool,
    /// Requests of each row.
    #[arg(long, short = 'n', visible_alias = "iters", default_value_t = 1000, value_parser = at_least(1_u32))]
    pub count: u32,
    #[command(flatten)]
    pub ends: EndsArguments,
    #[command(flatten)]
    pub provider: ProviderArguments,
}

#[derive(Args, Debug, Clone)]
pub struct NdPullArguments {
    /// File that the server offers, to one client.
    #[arg(long, value_name = "PATH", required_unless_present = "client", conflicts_with = "client")]
    pub source: Option<PathBuf>,
    /// File that the client writes; it appears under this name only when all its bytes are there and compared.
    #[arg(long, value_name = "PATH", required_unless_present = "server", conflicts_with = "server")]
    pub dest: Option<PathBuf>,
    /// Bytes of one RDMA Read.
    #[arg(long, default_value = "64K", value_parser = parse_pulled)]
    pub request_size: u32,
    /// Reads outstanding.
    #[arg(long, short = 't', visible_alias = "tx-depth", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(super::proposal::MOST_DEPTH)))]
    pub depth: u32,
    #[command(flatten)]
    pub ends: EndsArguments,
    #[command(flatten)]
    pub provider: ProviderArguments,
}

#[derive(Args, Debug, Clone)]
pub struct NdNvmeArguments {
    /// Where the target listens; the port is 4420 unless another is given (Windows, or with --machine).
    #[arg(value_name = "ADDRESS[:PORT]", value_parser = parse_target)]
    pub target: SocketAddr,
    /// The subsystem, as the target names it.
    #[arg(long, value_name = "NQN")]
    pub subsystem: String,
    /// The name under which this host asks.
    #[arg(
        long,
        value_name = "NQN",
        default_value = "nqn.2014-08.org.nvmexpress:uuid:5f0a4f0e-8d2c-4a51-9c6e-1d9b7a3c2e10"
    )]
    pub host: String,
    /// The number of the namespace.
    #[arg(long, default_value_t = 1, value_parser = at_least(1_u32))]
    pub namespace: u32,
    /// Bytes to read.
    #[arg(long, default_value = "1M", value_parser = parse_size)]
    pub bytes: u64,
    /// Where in the namespace to begin.
    #[arg(long, default_value = "0", value_parser = parse_size)]
    pub offset: u64,
    /// Bytes of one command.
    #[arg(long, short, default_value = "64K", value_parser = parse_size_32)]
    pub size: u32,
    /// Commands under way.
    #[arg(long, short = 't', default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub depth: u16,
    /// Write a pattern there first, and compare what is read. What the namespace had there is lost.
    #[arg(long)]
    pub overwrite: bool,
    /// The client's own address [default: the provider's first].
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// Wait for results with Notify instead of polling.
    #[arg(long, short = 'e', visible_alias = "events")]
    pub notify: bool,
    #[command(flatten)]
    pub provider: ProviderArguments,
}

impl NdNvmeArguments {
    /// Only the client is here.
    #[must_use]
    pub fn ends(&self) -> EndsArguments {
        EndsArguments { client: Some(self.target), from: self.from, notify: self.notify, ..EndsArguments::default() }
    }
}

#[derive(Args, Debug, Clone, Default)]
pub struct InstallArguments {
    /// The DLL; programs load it from there [default: %SystemRoot%\System32\softnd.dll].
    #[arg(long, value_name = "PATH")]
    pub dll: Option<String>,
    /// Show the entries and write nothing; on every system.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug, Clone, Default)]
pub struct RemoveArguments {}

#[derive(Args, Debug, Clone, Default)]
pub struct ListArguments {}

#[derive(Args, Debug, Clone, Default)]
pub struct AllowArguments {
    /// Take the value away: SYSTEM and administrators only.
    #[arg(long)]
    pub remove: bool,
    /// Show the value and write nothing; on every system.
    #[arg(long)]
    pub dry_run: bool,
}

/// The size of a Read of which a window has one or more.
fn parse_pulled(text: &str) -> Result<u32, String> {
    let size = parse_size_32(text)?;
    let fits = (1..=super::proposal::MOST_PULLED).contains(&size);
    if fits { Ok(size) } else { Err(format!("\"{text}\" is not between 1 byte and 1 MiB")) }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    address_or(text, DEFAULT_PORT)
}

fn parse_target(text: &str) -> Result<SocketAddr, String> {
    address_or(text, NVME_PORT)
}

/// An address with a port, or without.
fn address_or(text: &str, port: u16) -> Result<SocketAddr, String> {
    let with_port = text.parse::<SocketAddr>();
    with_port
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)))
        .map_err(|_| format!("\"{text}\" is no address such as 192.168.100.1, 192.168.100.1:7000 or [fd00::1]:7000"))
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_PORT, NdCommand, parse_address};
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<NdCommand, clap::Error> {
        let arguments = Arguments::try_parse_from(["ndkctl", "nd"].into_iter().chain(line.split_whitespace()))?;
        let Command::Nd(nd) = arguments.command else { panic!("another command") };
        Ok(nd.command)
    }

    #[test]
    fn addresses_may_have_ports() {
        let at = |text: &str| parse_address(text).map(|address| (address.ip().to_string(), address.port()));
        assert_eq!(at("10.0.0.1"), Ok(("10.0.0.1".to_owned(), DEFAULT_PORT)));
        assert_eq!(at("10.0.0.1:7"), Ok(("10.0.0.1".to_owned(), 7)));
        assert_eq!(at("fd00::1"), Ok(("fd00::1".to_owned(), DEFAULT_PORT)));
        assert_eq!(at("[fd00::1]:7"), Ok(("fd00::1".to_owned(), 7)));
        assert!(at("host").is_err_and(|error| error.contains("host")));
    }

    #[test]
    fn perf_takes_lists() {
        let NdCommand::Perf(perf) = parse("perf --op read,send --size 8,1M -t 4 --count 7").unwrap() else {
            panic!("no perf")
        };
        assert_eq!((perf.op.len(), perf.size, perf.depth, perf.count), (2, vec![8, 1 << 20], vec![4], 7));
        let NdCommand::Perf(perf) = parse("perf").unwrap() else { panic!("no perf") };
        assert_eq!((perf.op.len(), perf.size.len(), perf.depth.len()), (3, 3, 2));
    }

    #[test]
    fn pull_has_the_file_of_each_end_that_is_here() {
        for (line, source, dest) in [
            ("pull --source a --dest b", true, true),
            ("pull --server 10.77.1.1:0 --source a", true, false),
            ("pull --client 10.77.1.1 --dest b --request-size 1M -t 3", false, true),
        ] {
            let NdCommand::Pull(pull) = parse(line).unwrap() else { panic!("no pull") };
            assert_eq!((pull.source.is_some(), pull.dest.is_some()), (source, dest), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "fly",
            "ping -n 0",
            "ping --server here",
            "ping --server 10.0.0.1 --client 10.0.0.1",
            "ping --server 10.0.0.1 --from 10.0.0.2",
            "ping --client 10.0.0.1 --to 10.0.0.2",
            "perf --depth 0",
            "perf --depth 70000",
            "perf --op fly",
            "nvme",
            "nvme 10.0.0.1",
            "nvme --subsystem a",
            "nvme 10.0.0.1 --subsystem a --depth 0",
            "nvme 10.0.0.1 --subsystem a --namespace 0",
            "list --dry-run",
            "pull",
            "pull --source a",
            "pull --dest b",
            "pull --server 10.0.0.1 --source a --dest b",
            "pull --client 10.0.0.1 --source a --dest b",
            "pull --server 10.0.0.1",
            "pull --client 10.0.0.1",
            "pull --source a --dest b --request-size 0",
            "pull --source a --dest b --request-size 1048577",
            "pull --source a --dest b --depth 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
