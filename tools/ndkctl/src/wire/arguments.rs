//! The command line of `ndkctl wire`.

use clap::{Args, Subcommand};
use std::net::IpAddr;

#[derive(Args, Debug, Clone)]
pub struct WireArguments {
    #[command(subcommand)]
    pub command: WireCommand,
}

#[derive(Subcommand, Debug, Clone)]
pub enum WireCommand {
    /// Join a wire with that of other machines: their adapters with the same wire number are reached by VXLAN (as administrator).
    ///
    /// Writes the keywords UplinkPeers, UplinkPort and UplinkOuterMtu of all adapters with the wire number and restarts these. Each of the
    /// machines names the others. Datagrams have no protection: use a network that you trust, or a tunnel. Exit code 3010: done, but Windows
    /// must be restarted.
    Join(WireJoinArguments),
    /// Let a wire end at this machine again (as administrator).
    Leave(WireLeaveArguments),
    /// List the adapters that reach other machines: peers, port, MTU, when each peer was last seen, what was dropped.
    List(WireListArguments),
}

impl WireCommand {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Join(_) => "wire join",
            Self::Leave(_) => "wire leave",
            Self::List(_) => "wire list",
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct WireJoinArguments {
    /// The wire number of the adapters; it is the VXLAN network identifier, too.
    #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(..=65535))]
    pub number: u32,
    /// The address of another machine on the real network; once for each, or with commas, sixteen at most.
    #[arg(long = "peer", value_name = "ADDRESS", required = true, value_delimiter = ',')]
    pub peers: Vec<IpAddr>,
    /// The UDP port at this machine and at all peers.
    #[arg(long, value_name = "PORT", default_value_t = 4789, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Payload of the largest packet that the real network carries, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1350..=9216))]
    pub outer_mtu: u32,
}

#[derive(Args, Debug, Clone)]
pub struct WireLeaveArguments {
    /// The wire number of the adapters.
    #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(..=65535))]
    pub number: u32,
}

#[derive(Args, Debug, Clone, Default)]
pub struct WireListArguments {}

#[cfg(test)]
mod tests {
    use super::WireCommand;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<WireCommand, clap::Error> {
        let arguments = Arguments::try_parse_from(["ndkctl", "wire"].into_iter().chain(line.split_whitespace()))?;
        let Command::Wire(wire) = arguments.command else { panic!("another command") };
        Ok(wire.command)
    }

    #[test]
    fn join_takes_a_number_and_peers() {
        let Ok(WireCommand::Join(join)) = parse("join 7 --peer 192.0.2.2,::1 --peer 192.0.2.3") else {
            panic!("no join")
        };
        assert_eq!((join.number, join.peers.len(), join.port, join.outer_mtu), (7, 3, 4789, 1500));
        for line in ["join 7", "join --peer 192.0.2.2", "join 65536 --peer 192.0.2.2", "join 7 --peer host", "leave"] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["join 0 --peer ::1 --port 0", "join 0 --peer ::1 --outer-mtu 1349"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(matches!(parse("leave 0"), Ok(WireCommand::Leave(leave)) if leave.number == 0));
    }
}
