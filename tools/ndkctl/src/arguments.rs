//! The command line.

use crate::units::{parse_size, parse_size_32};
use clap::{Args, Parser, Subcommand, ValueEnum};
use softndk_ioctl::{AddressFamily, Operation, RegionKind};
use std::path::PathBuf;
use std::time::Duration;

/// Looks at softndk's adapters and moves bytes through them by RDMA.
///
/// Exit codes: 0 done; 1 the driver refused, or a transfer failed; 2 wrong arguments; 3 the driver could not be reached;
/// 4 data arrived that were not sent; 5 objects were left behind at unload; 6 a file could not be read or written.
#[derive(Parser, Debug)]
#[command(name = "ndkctl", version, arg_required_else_help = true, subcommand_required = true)]
pub struct Arguments {
    #[command(flatten)]
    pub global: GlobalArguments,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Debug, Clone)]
pub struct GlobalArguments {
    /// Print one JSON document instead of text, also on failure.
    #[arg(long, global = true)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(flatten)]
    pub machine: MachineArguments,
}

/// Where the driver runs. On Windows it is the installed one and there is nothing to say.
#[derive(Args, Debug, Clone, Default)]
pub struct MachineArguments {
    /// Driver image that the kernel host loads [default: target/driver/x64/release/softndk.sys, then debug].
    #[cfg(not(windows))]
    #[arg(long, global = true, value_name = "PATH", env = "SOFTNDK_IMAGE")]
    pub image: Option<PathBuf>,
    /// Adapters to give the driver.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub adapters: u32,
    /// How the kernel host runs.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_enum, default_value_t)]
    pub mode: HostMode,
}

/// How the kernel host runs the driver.
#[cfg(not(windows))]
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostMode {
    /// Real time, few checks: for speed.
    #[default]
    Fast,
    /// Virtual time, guard pages, every rule checked.
    Verify,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show the driver and its adapters.
    Info(InfoArguments),
    /// Measure round trips of small RDMA requests.
    Ping(PingArguments),
    /// Copy a file through the adapters by RDMA Read, and compare SHA-256 of both.
    Copy(CopyArguments),
    /// Measure transfers beside memcpy of the same size.
    Bench(BenchArguments),
    /// Everything once, in one boot of the kernel host: info, pings, a copied file, benchmarks, unload without leftovers.
    #[cfg(not(windows))]
    Demo(DemoArguments),
}

impl Command {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Info(_) => "info",
            Self::Ping(_) => "ping",
            Self::Copy(_) => "copy",
            Self::Bench(_) => "bench",
            #[cfg(not(windows))]
            Self::Demo(_) => "demo",
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct InfoArguments {
    /// Also the counters of each adapter and the driver's live objects.
    #[arg(long)]
    pub counters: bool,
}

/// The two ends of a connection.
#[derive(Args, Debug, Clone)]
pub struct PairArguments {
    /// Index of the adapter that connects and posts the requests.
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    pub client: u32,
    /// Index of the adapter that listens.
    #[arg(long, value_name = "INDEX", default_value_t = 1)]
    pub server: u32,
    /// Addresses to connect over.
    #[arg(long, value_enum, default_value_t)]
    pub family: Family,
    /// Wait for completions with completion queue notifications instead of polling.
    #[arg(long)]
    pub notify: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// IPv4 if both adapters have an address of it, else IPv6.
    #[default]
    Any,
    Ipv4,
    Ipv6,
}

impl From<Family> for AddressFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::Any => Self::UNSPECIFIED,
            Family::Ipv4 => Self::IPV4,
            Family::Ipv6 => Self::IPV6,
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationName {
    /// The client pulls.
    Read,
    /// The client pushes.
    Write,
    /// The client sends, the server has receives posted.
    Send,
}

impl From<OperationName> for Operation {
    fn from(name: OperationName) -> Self {
        match name {
            OperationName::Read => Self::READ,
            OperationName::Write => Self::WRITE,
            OperationName::Send => Self::SEND,
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Registration {
    /// NdkRegisterMr.
    Registered,
    /// NdkFastRegister, page by page.
    Fast,
    /// NdkBuildLAM and the privileged token.
    Logical,
}

impl From<Registration> for RegionKind {
    fn from(registration: Registration) -> Self {
        match registration {
            Registration::Registered => Self::REGISTERED,
            Registration::Fast => Self::FAST_REGISTERED,
            Registration::Logical => Self::LOGICAL,
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct PingArguments {
    /// Requests to make.
    #[arg(long, short = 'n', default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Bytes of one request: a number, or with K, M, G.
    #[arg(long, short, default_value = "64", value_parser = parse_size_32)]
    pub size: u32,
    /// Milliseconds between requests; 0: one right after the other.
    #[arg(long, short, default_value_t = 0)]
    pub interval: u32,
    /// What each request does.
    #[arg(long, value_enum, default_value = "read")]
    pub operation: OperationName,
    /// How the memory is registered.
    #[arg(long, value_enum, default_value = "registered")]
    pub registration: Registration,
    #[command(flatten)]
    pub pair: PairArguments,
}

#[derive(Args, Debug, Clone)]
pub struct CopyArguments {
    /// File to read.
    pub source: PathBuf,
    /// File to write; it appears under this name only when all its bytes are there and compared.
    pub dest: PathBuf,
    /// Bytes of one RDMA Read.
    #[arg(long, default_value = "64K", value_parser = parse_size_32)]
    pub request_size: u32,
    /// Reads posted in one deferred chain.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub chain: u32,
    /// Bytes registered at a time, at most what one fast-register region holds [default: all of it].
    #[arg(long, value_parser = parse_size)]
    pub window: Option<u64>,
    #[command(flatten)]
    pub pair: PairArguments,
}

#[derive(Args, Debug, Clone)]
pub struct BenchArguments {
    /// Milliseconds to measure each row, and again its memcpy.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=600_000))]
    pub time: u32,
    /// Measure this operation instead of the standard rows.
    #[arg(long, value_enum)]
    pub operation: Option<OperationName>,
    /// Bytes of one request.
    #[arg(long, default_value = "4K", value_parser = parse_size_32, requires = "operation")]
    pub size: u32,
    /// Requests posted in one deferred chain.
    #[arg(long, default_value_t = 1, requires = "operation", value_parser = clap::value_parser!(u32).range(1..))]
    pub chain: u32,
    /// Requests outstanding [default: one chain].
    #[arg(long, requires = "operation", value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: Option<u32>,
    /// Scatter/gather elements of one request.
    #[arg(long, default_value_t = 1, requires = "operation", value_parser = clap::value_parser!(u32).range(1..))]
    pub sge: u32,
    /// How the memory is registered.
    #[arg(long, value_enum, default_value = "registered", requires = "operation")]
    pub registration: Registration,
    #[command(flatten)]
    pub pair: PairArguments,
}

impl BenchArguments {
    /// Time for one row.
    pub fn time(&self) -> Duration {
        Duration::from_millis(u64::from(self.time))
    }
}

/// Options of the demonstration.
#[cfg(not(windows))]
#[derive(Args, Debug, Clone)]
pub struct DemoArguments {
    /// Bytes of the generated file.
    #[arg(long, default_value = "64M", value_parser = parse_size)]
    pub size: u64,
    /// Pings.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub pings: u64,
    /// Milliseconds for each benchmark row.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=600_000))]
    pub time: u32,
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Command, Family, OperationName, Registration};
    use clap::{CommandFactory, Parser};

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("ndkctl").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn ping_takes_count_size_and_interval() {
        let arguments =
            parse("ping -n 10000 -s 4K -i 5 --operation send --registration fast --family ipv6 --notify").unwrap();
        let Command::Ping(ping) = arguments.command else { panic!("not a ping") };
        assert_eq!((ping.count, ping.size, ping.interval), (10_000, 4096, 5));
        assert_eq!((ping.operation, ping.registration), (OperationName::Send, Registration::Fast));
        assert_eq!((ping.pair.family, ping.pair.notify), (Family::Ipv6, true));
    }

    #[test]
    fn copy_needs_both_names() {
        assert!(parse("copy only-one").is_err());
        let Command::Copy(copy) = parse("copy a b").unwrap().command else { panic!("not a copy") };
        assert_eq!((copy.request_size, copy.chain, copy.window), (65_536, 16, None));
    }

    #[test]
    fn json_is_understood_before_and_after_the_command() {
        assert!(parse("--json info").unwrap().global.json);
        assert!(parse("info --json").unwrap().global.json);
        assert!(!parse("info").unwrap().global.json);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "fly",
            "ping -n 0",
            "ping -s 5G",
            "ping -s many",
            "bench --size 8",
            "bench --operation read --chain 0",
            "bench --time 0",
            "copy a b --chain 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[cfg(not(windows))]
    #[test]
    fn the_machine_has_between_one_and_sixteen_adapters() {
        assert_eq!(parse("info").unwrap().global.machine.adapters, 2);
        assert_eq!(parse("info --adapters 16").unwrap().global.machine.adapters, 16);
        assert!(parse("info --adapters 0").is_err());
        assert!(parse("info --adapters 17").is_err());
    }
}
