//! `ndkctl wire list`: the uplinks that the driver has, and how their peers do.

use super::change::unusable_peers;
use crate::client::Client;
use crate::failure::Failure;
use crate::transport::Device;
use crate::units;
use serde::{Serialize, Serializer};
use softndk_ioctl::{Status, UplinkDrops, UplinkEntry, UplinkPeer};
use std::fmt;
use std::net::IpAddr;
use tabled::builder::Builder;
use tabled::settings::Style;

/// What `wire list` found.
#[derive(Clone, Debug, Serialize)]
pub struct UplinkListReport {
    pub uplinks: Vec<UplinkReport>,
    /// Adapters whose peers the driver cannot read.
    pub invalid: Vec<InvalidPeers>,
}

/// An adapter that has no uplink because of its keyword.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvalidPeers {
    pub adapter: String,
    pub cause: String,
}

/// One adapter that reaches other machines.
#[derive(Clone, Debug, Serialize)]
pub struct UplinkReport {
    pub adapter: u32,
    pub net_luid: u64,
    /// Its wire, and the VXLAN network identifier.
    pub wire_number: u32,
    /// The UDP port here and at the peers.
    pub port: u16,
    /// Payload of a frame.
    pub mtu: u32,
    /// Datagrams can come.
    pub open: bool,
    /// The status of the socket, by name.
    pub status: String,
    pub code: u32,
    pub peers: Vec<UplinkPeerReport>,
    /// What did not go on, by reason.
    #[serde(serialize_with = "by_name")]
    pub dropped: UplinkDrops,
}

/// One other machine.
#[derive(Clone, Debug, Serialize)]
pub struct UplinkPeerReport {
    pub address: Option<IpAddr>,
    /// Adapters and other stations that were seen behind it in the last five minutes.
    pub stations: u32,
    /// Nanoseconds since the last frame; null if none has come.
    pub last_frame: Option<u64>,
    pub frames_sent: u64,
    pub frames_received: u64,
}

/// The driver's uplinks, and what is wrong with the keywords, which each adapter has under its name.
pub fn collect<D: Device>(client: &Client<D>, keywords: Vec<(String, String)>) -> Result<UplinkListReport, Failure> {
    let invalid = |(adapter, peers): (String, String)| Some(InvalidPeers { adapter, cause: unusable_peers(&peers)? });
    Ok(UplinkListReport {
        uplinks: client.uplinks()?.iter().map(UplinkReport::of).collect(),
        invalid: keywords.into_iter().filter_map(invalid).collect(),
    })
}

impl UplinkReport {
    #[must_use]
    pub fn of(entry: &UplinkEntry) -> Self {
        Self {
            adapter: entry.adapter,
            net_luid: entry.net_luid,
            wire_number: entry.wire_number,
            port: entry.port,
            mtu: entry.mtu,
            open: entry.status() == Status::SUCCESS,
            status: entry.status().to_string(),
            code: entry.status.cast_unsigned(),
            peers: entry.peers().iter().map(described_peer).collect(),
            dropped: entry.drops,
        }
    }
}

fn described_peer(peer: &UplinkPeer) -> UplinkPeerReport {
    UplinkPeerReport {
        address: peer.address.ip(),
        stations: peer.stations,
        last_frame: (peer.has_answered != 0).then_some(peer.age),
        frames_sent: peer.sent,
        frames_received: peer.received,
    }
}

/// Each reason by its name, how often it was one, and in words.
fn reasons(drops: &UplinkDrops) -> [(&'static str, u64, &'static str); 7] {
    [
        ("exhausted", drops.exhausted, "without a free datagram"),
        ("looped", drops.looped, "to a peer's own address"),
        ("oversized", drops.oversized, "longer than the MTU"),
        ("duplicates", drops.duplicates, "from this adapter's own station address"),
        ("unsent", drops.unsent, "not sent by Windows"),
        ("malformed", drops.malformed, "no VXLAN"),
        ("foreign", drops.foreign, "of unknown senders or other wires"),
    ]
}

fn by_name<S: Serializer>(drops: &UplinkDrops, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(reasons(drops).map(|(name, count, _)| (name, count)))
}

impl fmt::Display for UplinkReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { adapter, wire_number, port, mtu, .. } = self;
        let state = if self.open { "open".to_owned() } else { format!("not open: {}", self.status) };
        writeln!(formatter, "adapter {adapter}, wire {wire_number}, UDP port {port}, MTU {mtu}: {state}")?;
        let mut builder = Builder::default();
        builder.push_record(["peer", "stations", "last frame", "sent", "received"]);
        for peer in &self.peers {
            builder.push_record([
                peer.address.map_or_else(|| "?".to_owned(), |address| address.to_string()),
                peer.stations.to_string(),
                peer.last_frame
                    .map_or_else(|| "never".to_owned(), |age| format!("{} ago", units::duration(age as f64))),
                peer.frames_sent.to_string(),
                peer.frames_received.to_string(),
            ]);
        }
        write!(formatter, "{}", builder.build().with(Style::psql()))?;
        let dropped = reasons(&self.dropped).into_iter().filter(|(_, count, _)| *count != 0);
        let dropped = dropped.map(|(_, count, why)| format!("{count} {why}")).collect::<Vec<_>>();
        if dropped.is_empty() { Ok(()) } else { write!(formatter, "\ndropped: {}", dropped.join(", ")) }
    }
}

impl fmt::Display for UplinkListReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts = self.uplinks.iter().map(ToString::to_string).collect::<Vec<_>>();
        if texts.is_empty() {
            texts.push("no adapter reaches other machines".to_owned());
        }
        texts.extend(self.invalid.iter().map(|invalid| {
            format!("{}: {}\n  next: write it with \"ndkctl wire join\"", invalid.adapter, invalid.cause)
        }));
        write!(formatter, "{}", texts.join("\n\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::{UplinkListReport, UplinkReport};
    use softndk_ioctl::{AdapterAddress, Status, UPLINK_PEER_MAX, UplinkDrops, UplinkEntry, UplinkPeer};
    use std::net::Ipv4Addr;

    fn entry() -> UplinkEntry {
        let mut peers = [UplinkPeer::UNUSED; UPLINK_PEER_MAX];
        let address = |last| AdapterAddress::new(Ipv4Addr::new(192, 0, 2, last).into(), 0, 0);
        peers[0] =
            UplinkPeer { address: address(2), stations: 3, has_answered: 1, age: 2_000_000, sent: 40, received: 50 };
        peers[1] = UplinkPeer { address: address(3), sent: 60, ..UplinkPeer::UNUSED };
        UplinkEntry {
            net_luid: 0x10,
            adapter: 1,
            wire_number: 7,
            status: Status::SUCCESS.0,
            mtu: 1450,
            port: 4789,
            peer_count: 2,
            reserved: 0,
            drops: UplinkDrops {
                exhausted: 11,
                looped: 12,
                oversized: 13,
                duplicates: 14,
                unsent: 15,
                malformed: 16,
                foreign: 17,
            },
            peers,
        }
    }

    #[test]
    fn uplink_has_its_peers_and_what_was_dropped() {
        let report = UplinkListReport { uplinks: vec![UplinkReport::of(&entry())], invalid: Vec::new() };
        let text = report.to_string();
        for part in ["wire 7", "port 4789", "MTU 1450: open", "192.0.2.2", "2.00 ms ago", "never", "12 to a peer's own"]
        {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        let uplink = &json["uplinks"][0];
        assert_eq!(uplink["peers"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&uplink["peers"][0]["last_frame"], &uplink["peers"][1]["last_frame"]),
            (&2_000_000.into(), &().into())
        );
        let dropped = |name: &str| uplink["dropped"][name].as_u64();
        let found = ["exhausted", "looped", "oversized", "duplicates", "unsent", "malformed", "foreign"].map(dropped);
        assert_eq!(found, [11, 12, 13, 14, 15, 16, 17].map(Some));
    }

    #[test]
    fn socket_that_is_not_open_says_why() {
        let report = UplinkReport::of(&UplinkEntry { status: Status::ACCESS_DENIED.0, peer_count: 99, ..entry() });
        assert!(report.to_string().contains("not open: STATUS_ACCESS_DENIED"), "{report}");
        assert_eq!((report.open, report.peers.len()), (false, UPLINK_PEER_MAX));
        let none = UplinkListReport { uplinks: Vec::new(), invalid: Vec::new() };
        assert_eq!(none.to_string(), "no adapter reaches other machines");
    }
}
