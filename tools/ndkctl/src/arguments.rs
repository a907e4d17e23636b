//! The command line.

use crate::adapter::arguments::AdapterArguments;
use crate::connect::Case;
use crate::nd::arguments::NdArguments;
use crate::units::{at_least, parse_duration, parse_size, parse_size_32};
use crate::wire::arguments::WireArguments;
use clap::{Args, Parser, Subcommand, ValueEnum};
use softndk_ioctl::{
    AddressFamily, MEASURED_CONNECTIONS_MAX, MEASURED_DEPTH_MAX, MEASURED_PROCESSORS_MAX, MeasuredOperation, Operation,
    RegionKind,
};
use std::path::PathBuf;
use std::time::Duration;

/// Lists softndk's adapters and moves bytes through them by RDMA.
///
/// Exit codes: 0 done; 1 the driver refused, or a transfer failed; 2 wrong arguments; 3 the driver could not be reached;
/// 4 data arrived that were not sent, or a replayed script differs; 5 objects were left behind at unload; 6 a file could not be read or written;
/// 8 doctor has warnings; 9 doctor has errors; 130 interrupted; 3010 done, but Windows must be restarted.
#[derive(Parser, Debug)]
#[command(name = "ndkctl", version = crate::identity::version_line(), arg_required_else_help = true, subcommand_required = true)]
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

/// Where the driver runs. On Windows it is the installed one and there are no options.
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
    /// Which NDK calls answer inline and which pend: the adapters' registry keyword CompletionMode.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_enum, default_value_t)]
    pub completion_mode: CompletionMode,
    /// Which numbers the adapters report and keep: their registry keyword LimitsProfile.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_enum, default_value_t)]
    pub limits: LimitsProfile,
    /// A value of the adapters' driver keys; may be repeated. docs/registry.md has the keywords.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_name = "NAME=VALUE", value_parser = parse_keyword)]
    pub keyword: Vec<(String, String)>,
    /// Who opens the drivers' devices.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_enum, default_value_t)]
    pub caller: CallerName,
    /// A line for each NDK call and callback, on standard error.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_enum, value_name = "WHAT")]
    pub trace: Option<Trace>,
    /// Be one of nine kernel hosts whose "nd" commands reach each other by TCP: its adapters have the addresses 10.77.NUMBER.1 and on, and
    /// fd00:736f:6674:6e64::NUMBER:1 and on. In fast mode, and with the keyword Transport=1 unless --keyword has another.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=i64::from(MACHINES)))]
    pub machine: Option<u8>,
    /// Write what adapters and sockets carry to this file, as pcapng for Wireshark.
    #[cfg(not(windows))]
    #[arg(long, global = true, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Machines reach those of the same network number, 0 to 16383 [default: 0].
    #[cfg(not(windows))]
    #[arg(long, global = true, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(..i64::from(NETWORKS)))]
    pub network: Option<u16>,
}

/// How many kernel hosts one network has, and how many networks there are.
#[cfg(not(windows))]
pub const MACHINES: u8 = 9;
#[cfg(not(windows))]
pub const NETWORKS: u16 = 1 << 14;

/// Who opens a device.
#[cfg(not(windows))]
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallerName {
    #[default]
    Administrator,
    /// An interactive user without an administrator's rights.
    User,
}

/// A value of a driver key, as NAME=VALUE.
#[cfg(not(windows))]
fn parse_keyword(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("\"{text}\" is not NAME=VALUE, such as CompletionMode=1")),
    }
}

/// What a trace shows.
#[cfg(not(windows))]
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// NDK calls and callbacks.
    Ndk,
}

/// The values of the registry keyword CompletionMode.
#[cfg(not(windows))]
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompletionMode {
    /// Each call answers as soon as it can.
    #[default]
    Auto = 0,
    /// Whatever may pend does.
    ForceAsync = 1,
    /// Whatever may answer inline does.
    ForceInline = 2,
}

/// The values of the registry keyword LimitsProfile.
#[cfg(not(windows))]
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitsProfile {
    /// Those of a common card.
    #[default]
    ConnectxLike = 0,
    /// As much as the driver can.
    Generous = 1,
    /// The least that the contract allows.
    Tiny = 2,
}

/// How the kernel host runs the driver.
#[cfg(not(windows))]
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostMode {
    /// Real time, few checks: for speed.
    #[default]
    Fast,
    /// As fast, without the host's checks between driver and consumer, and with Windows' charges for changes of the IRQL and system calls.
    Measure,
    /// As measure, with every import of the drivers counted and every change of the IRQL timed: slower.
    Count,
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
    /// Measure requests in loops of the driver, beside memcpy of the same size.
    Perf(PerfArguments),
    /// Send messages into receives: every option of NdkSend.
    Send(SendArguments),
    /// Read the server's memory: every option of NdkRead.
    Read(ReadArguments),
    /// Write the server's memory: every option of NdkWrite.
    Write(WriteArguments),
    /// Make connections in every way, show what happens step by step, and count how many can be made in a second.
    Connect(ConnectArguments),
    /// List every live NDK object: state, owner, age, and what holds it.
    ///
    /// An object that its consumer has closed stays "closing" until the last of its holders is gone: other objects made from it,
    /// requests under way, callbacks that have not returned. This list names them.
    Objects(ObjectsArguments),
    /// List the NDK calls that the driver refused last: on which object, with which status, and why.
    ///
    /// The driver keeps the last 256: calls that failed, requests that completed with a failure, and failed results of completion
    /// queues. Objects have the numbers that "objects" shows.
    Refusals(RefusalsArguments),
    /// What happened in the driver last: adapters, connections and why they ended, refusals; with --follow also what happens now.
    ///
    /// The driver keeps the last 512. The same events go to Event Tracing for Windows as provider SoftNdk (softndk.wprp).
    Events(EventsArguments),
    /// Run a script of NDK operations, each with the answer it must give, and say where it differs.
    ///
    /// ndktest.sys runs the script through the provider's dispatch tables and stops at the first difference (exit
    /// code 4). One operation a line; docs/ndkctl.md has the vocabulary.
    Replay(ReplayArguments),
    /// Many consumers with many connections doing random legal operations at once; on Linux also adapters that go off and on, other
    /// profiles and short memory. Ends with a success rate for each kind of operation and a tally that must balance.
    Stress(StressArguments),
    /// Look for what keeps softndk from working: driver, signing, devices, NDK, provider; cause and next step of each finding.
    ///
    /// Exit codes: 0 nothing, or notes only; 8 warnings; 9 errors. On Linux it looks at the kernel host's machine.
    Doctor(DoctorArguments),
    /// Make, remove and list adapters (Windows).
    Adapter(AdapterArguments),
    /// User-mode NetworkDirect through softnd.dll: adapters, messages, rates; and the DLL's entries in the Winsock catalogue.
    Nd(NdArguments),
    /// Join wires with those of other machines by VXLAN, and list who is reached.
    Wire(WireArguments),
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
            Self::Perf(_) => "perf",
            Self::Send(_) => "send",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Connect(_) => "connect",
            Self::Objects(_) => "objects",
            Self::Refusals(_) => "refusals",
            Self::Events(_) => "events",
            Self::Replay(_) => "replay",
            Self::Stress(_) => "stress",
            Self::Doctor(_) => "doctor",
            Self::Adapter(adapter) => adapter.command.name(),
            Self::Nd(nd) => nd.command.name(),
            Self::Wire(wire) => wire.command.name(),
            #[cfg(not(windows))]
            Self::Demo(_) => "demo",
        }
    }
}

#[derive(Args, Debug, Clone, Default)]
pub struct DoctorArguments {}

#[derive(Args, Debug, Clone)]
pub struct InfoArguments {
    /// Also the counters of each adapter and the driver's live objects.
    #[arg(long)]
    pub counters: bool,
}

/// What `send`, `read` and `write` have in common. The short options are perftest's.
#[derive(Args, Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option of the command line")]
pub struct StreamArguments {
    /// Bytes of one request; several sizes, one after the other, with commas.
    #[arg(long, short, default_value = "64K", value_delimiter = ',', value_parser = parse_size_32)]
    pub size: Vec<u32>,
    /// All sizes from 2 bytes to 8 MiB, by powers of two.
    #[arg(long, short, conflicts_with = "size")]
    pub all: bool,
    /// Requests of each size.
    #[arg(long, short = 'n', visible_alias = "iters", default_value_t = 1000, value_parser = at_least(1_u64))]
    pub count: u64,
    /// Seconds for each size, instead of a count.
    #[arg(long, short = 'D', conflicts_with = "count", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub duration: Option<u32>,
    /// Requests outstanding.
    #[arg(long, short = 't', visible_alias = "tx-depth", default_value_t = 64, value_parser = at_least(1_u32))]
    pub depth: u32,
    /// Scatter/gather elements of one request.
    #[arg(long, visible_alias = "sge", default_value_t = 1, value_parser = at_least(1_u32))]
    pub sges: u32,
    /// How the memory is made known to the adapters.
    #[arg(long, visible_alias = "registration", value_enum, default_value = "registered")]
    pub memory: Registration,
    /// Requests posted in one chain: all but its last carry NDK_OP_FLAG_DEFER.
    #[arg(long, short = 'l', visible_alias = "post-list", value_name = "N", default_value_t = 1, value_parser = at_least(1_u32))]
    pub deferred: u32,
    /// Signal every Nth request only; the others carry NDK_OP_FLAG_SILENT_SUCCESS.
    #[arg(long, short = 'Q', visible_alias = "cq-mod", value_name = "N", value_parser = at_least(1_u32))]
    pub silent: Option<u32>,
    /// Requests carry NDK_OP_FLAG_READ_FENCE: each waits for the reads before it.
    #[arg(long)]
    pub fence: bool,
    /// Compare every byte that arrived with what was sent (exit code 4).
    #[arg(long)]
    pub verify: bool,
    /// Interrupt moderation of both completion queues: microseconds and completions. Shows with --notify.
    #[arg(long, value_name = "US,COUNT", value_delimiter = ',', num_args = 1)]
    pub moderation: Vec<u32>,
    /// The server invalidates nothing itself: the client does it with NdkSendAndInvalidate (a send by its last message). Not for
    /// registered memory.
    #[arg(long)]
    pub invalidate: bool,
    #[command(flatten)]
    pub pair: PairArguments,
}

#[derive(Args, Debug, Clone)]
pub struct SendArguments {
    #[command(flatten)]
    pub stream: StreamArguments,
    /// Data are taken from the request itself (NDK_OP_FLAG_INLINE).
    #[arg(long, short = 'I')]
    pub inline: bool,
    /// Messages carry NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT; the server's queue is armed for them.
    #[arg(long)]
    pub solicited: bool,
    /// The server's receives are posted to a shared receive queue (NdkCreateSrq).
    #[arg(long, visible_alias = "use-srq")]
    pub srq: bool,
}

#[derive(Args, Debug, Clone)]
pub struct ReadArguments {
    #[command(flatten)]
    pub stream: StreamArguments,
    /// The last read invalidates the client's own memory (NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE). With --memory fast.
    #[arg(long)]
    pub local_invalidate: bool,
}

#[derive(Args, Debug, Clone)]
pub struct WriteArguments {
    #[command(flatten)]
    pub stream: StreamArguments,
    /// Data are taken from the request itself (NDK_OP_FLAG_INLINE).
    #[arg(long, short = 'I')]
    pub inline: bool,
}

#[derive(Args, Debug, Clone)]
pub struct ConnectArguments {
    /// Cases to run, with commas [default: all of them].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub case: Vec<Case>,
    /// Connections to make and take down for the rate; 0: none. Over the family of --family, where the cases take the first address.
    #[arg(long, short = 'n', default_value_t = 100)]
    pub count: u32,
    #[command(flatten)]
    pub pair: PairArguments,
}

#[derive(Args, Debug, Clone)]
pub struct ReplayArguments {
    /// The script; - reads standard input.
    pub file: PathBuf,
}

#[derive(Args, Debug, Clone, Default)]
pub struct ObjectsArguments {
    /// Show each object below those it keeps, instead of a table.
    #[arg(long)]
    pub tree: bool,
    /// Only objects of the adapter with this index.
    #[arg(long, value_name = "INDEX")]
    pub adapter: Option<u32>,
    /// Only objects whose close is held back.
    #[arg(long)]
    pub closing: bool,
    /// List while a connected pair of our own is there, so that there is something to see.
    #[arg(long)]
    pub example: bool,
}

#[derive(Args, Debug, Clone, Default)]
pub struct RefusalsArguments {
    /// Only the newest so many.
    #[arg(long, value_name = "COUNT", value_parser = at_least(1_usize))]
    pub last: Option<usize>,
    /// Run this script first (- reads standard input), and list what it was refused; whether its answers are those it expects
    /// is not reported here.
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

#[derive(Args, Debug, Clone, Default)]
pub struct EventsArguments {
    /// Only the newest so many.
    #[arg(long, value_name = "COUNT", value_parser = at_least(1_usize))]
    pub last: Option<usize>,
    /// Go on with each event as it happens, one a line (with --json one object a line), until interrupted.
    #[arg(long)]
    pub follow: bool,
    /// End after so many lines.
    #[arg(long, value_name = "COUNT", requires = "follow", value_parser = at_least(1_u64))]
    pub count: Option<u64>,
    /// Run this script first (- reads standard input); whether its answers are those it expects is not reported here.
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

/// The two ends of a connection.
#[derive(Args, Debug, Clone, Default)]
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
    #[arg(long, short = 'e', visible_alias = "events")]
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
    /// NdkRegisterMr, and a memory window through which the client reads or writes.
    Window,
}

impl From<Registration> for RegionKind {
    fn from(registration: Registration) -> Self {
        match registration {
            Registration::Registered => Self::REGISTERED,
            Registration::Fast => Self::FAST_REGISTERED,
            Registration::Logical => Self::LOGICAL,
            Registration::Window => Self::WINDOW,
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct PingArguments {
    /// Requests to make.
    #[arg(long, short = 'n', default_value_t = 10, value_parser = at_least(1_u64))]
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
    #[arg(long, default_value_t = 16, value_parser = at_least(1_u32))]
    pub chain: u32,
    /// Bytes registered at a time, at most what one fast-register region holds [default: all of it].
    #[arg(long, value_parser = parse_size)]
    pub window: Option<u64>,
    #[command(flatten)]
    pub pair: PairArguments,
}

/// Options of `perf`.
#[derive(Args, Debug, Clone)]
pub struct PerfArguments {
    /// Measure this instead of Read, Write and Send of 8 bytes one at a time and of 64 KiB.
    #[arg(long, value_enum)]
    pub operation: Option<PerfOperation>,
    /// One request at a time, or as many as --depth and --chain say [default: bandwidth for read, write and send].
    #[arg(long, value_enum, requires = "operation")]
    pub measure: Option<Measure>,
    /// Bytes of one request; several sizes, a row each, with commas [default: 8 for latency, 64K for bandwidth].
    #[arg(long, short, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size_32, requires = "operation")]
    pub size: Vec<u32>,
    /// All sizes from 8 bytes to 1 MiB, by powers of two.
    #[arg(long, conflicts_with = "size", requires = "operation")]
    pub sweep: bool,
    /// Requests posted in one deferred chain, and taken from the completion queue at a time.
    #[arg(long, value_name = "N", requires = "operation", value_parser = clap::value_parser!(u32).range(1..=i64::from(MEASURED_DEPTH_MAX)))]
    pub chain: Option<u32>,
    /// Requests outstanding [default: one chain, or 16].
    #[arg(long, value_name = "N", requires = "operation", value_parser = clap::value_parser!(u32).range(1..=i64::from(MEASURED_DEPTH_MAX)))]
    pub depth: Option<u32>,
    /// Connections of each processor, used in turn.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "operation", value_parser = clap::value_parser!(u32).range(1..=i64::from(MEASURED_CONNECTIONS_MAX)))]
    pub connections: u32,
    /// Processors that post at the same time, each on connections of its own.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "operation", value_parser = clap::value_parser!(u32).range(1..=MEASURED_PROCESSORS_MAX as i64))]
    pub processors: u32,
    /// The IRQL at which the driver posts and polls.
    #[arg(long, value_enum, default_value_t, requires = "operation")]
    pub at: Level,
    /// Data are taken from the request itself (NDK_OP_FLAG_INLINE). Write and Send.
    #[arg(long, short = 'I', requires = "operation")]
    pub inline: bool,
    /// How the memory is registered.
    #[arg(long, value_enum, default_value = "registered", requires = "operation")]
    pub registration: Registration,
    /// Scatter/gather elements of one request.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "operation", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub sge: u32,
    /// The pages of a fast registration in an order in which no page follows the one before it.
    #[arg(long, requires = "operation")]
    pub scattered: bool,
    /// Pages of a fast registration [default: 256].
    #[arg(long, value_name = "N", requires = "operation", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub pages: Option<u32>,
    /// Time to measure a row, all its rounds: milliseconds, or with ms, s.
    #[arg(long, value_name = "DURATION", default_value = "500", value_parser = parse_duration)]
    pub time: Duration,
    /// Rounds of a row; the median counts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Draw time and rate over the size of a request into this file, as SVG.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub pair: PairArguments,
}

/// What `perf` measures.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PerfOperation {
    /// The client pulls.
    Read,
    /// The client pushes.
    Write,
    /// The client sends, the server posts receives.
    Send,
    /// NdkFastRegister and NdkInvalidate, a pair of requests.
    FastRegister,
    /// A connection from its queue pairs' creation to their close.
    Connect,
    /// From a post to the notification that another processor makes.
    Notify,
}

impl From<PerfOperation> for MeasuredOperation {
    fn from(operation: PerfOperation) -> Self {
        match operation {
            PerfOperation::Read => Self::READ,
            PerfOperation::Write => Self::WRITE,
            PerfOperation::Send => Self::SEND,
            PerfOperation::FastRegister => Self::FAST_REGISTER,
            PerfOperation::Connect => Self::CONNECT,
            PerfOperation::Notify => Self::NOTIFY,
        }
    }
}

/// How requests follow each other.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// One at a time: post, poll.
    Latency,
    /// As many outstanding as there may be.
    Bandwidth,
}

/// The IRQL of a loop.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// PASSIVE_LEVEL.
    #[default]
    Passive,
    /// DISPATCH_LEVEL, a bounded number of requests at a time.
    Dispatch,
}

/// Options of the stress run.
#[derive(Args, Debug, Clone)]
pub struct StressArguments {
    /// Seconds of the whole run: half of it the steady phase, half of it the chaos phase.
    #[arg(long, default_value_t = 60, value_parser = at_least(2_u64))]
    pub seconds: u64,
    /// Chooses all random numbers. They determine what each thread does, but not when.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Handles of the control device open at once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub consumers: u32,
    /// Connections of each handle.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: u32,
    /// The steady phase only.
    #[arg(long)]
    pub steady: bool,
}

impl StressArguments {
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
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
    #[arg(long, default_value_t = 10_000, value_parser = at_least(1_u64))]
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
            "perf --size 8",
            "perf --operation read --chain 0",
            "perf --operation read --chain 32769",
            "perf --operation read --connections 10001",
            "perf --operation read --processors 65",
            "perf --operation read --size 8 --sweep",
            "perf --operation read --svg plot.svg",
            "perf --operation fast-register --pages 0",
            "perf --rounds 0",
            "perf --time 0",
            "perf --time 5h",
            "copy a b --chain 0",
            "refusals --last 0",
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

    #[cfg(not(windows))]
    #[test]
    fn machines_and_networks_have_numbers() {
        let machine = parse("nd info").unwrap().global.machine;
        assert_eq!((machine.machine, machine.network), (None, None));
        let machine = parse("--machine 9 nd info --network 16383").unwrap().global.machine;
        assert_eq!((machine.machine, machine.network), (Some(9), Some(16_383)));
        for line in ["info --machine 0", "info --machine 10", "info --machine 1 --network 16384"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
