//! Wireshark's judgement of what passed the guest's network card: a dissector of iWARP that neither side of the connection is.
//!
//! Only what the driver sent is judged. siw's Terminates are not laid out as the RFC says.

use super::packages::Packages;
use crate::command;
use anyhow::Result;
use std::{ops::AddAssign, path::Path};

/// The machine that the driver runs on as the guest sees it, and the adapter in VXLAN.
const DRIVER: [&str; 2] = ["10.0.2.2", "10.77.0.1"];

/// Counts of what one side sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SideCount {
    /// MPA frames behind the start-up.
    pub frames: usize,
    pub good_crcs: usize,
    pub bad_crcs: usize,
    /// Frames of the start-up, and those of them that ask for CRCs.
    pub starts: usize,
    pub starts_with_crc: usize,
    /// Replies that reject.
    pub rejections: usize,
    /// Frames in VXLAN.
    pub tunnelled: usize,
    pub malformed: usize,
}

/// Of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    pub driver: SideCount,
    pub guest: SideCount,
}

/// Judges the capture of one case: the dissector takes a port that is used again for the connection before.
pub(super) fn judge(packages: &Packages, capture: &Path, tunnel_port: u16) -> Result<Judgement> {
    let mut tshark = packages.command("usr/bin/tshark")?;
    // Without the heuristics the ports of NVMe and SMB Direct go to other dissectors, and with those of what iWARP carries each Send does.
    tshark.args([
        "-o",
        "tcp.try_heuristic_first:TRUE",
        "--disable-protocol",
        "smb_direct",
        "--disable-protocol",
        "rpcordma",
    ]);
    tshark.arg("-d").arg(format!("udp.port=={tunnel_port},vxlan"));
    tshark.args(["-Y", "iwarp_mpa or vxlan", "-O", "ip,vxlan,iwarp_mpa", "-r"]).arg(capture);
    Ok(Judgement::of(&command::output(&mut tshark)?))
}

impl Judgement {
    /// Counts the lines of the dissector's text.
    fn of(text: &str) -> Self {
        let mut judgement = Self::default();
        let mut is_of_driver = false;
        for line in text.lines().map(str::trim) {
            if let Some(address) = line.strip_prefix("Source Address: ") {
                is_of_driver = DRIVER.contains(&address);
            }
            let side = if is_of_driver { &mut judgement.driver } else { &mut judgement.guest };
            side.count(line);
        }
        judgement
    }
}

impl SideCount {
    fn count(&mut self, line: &str) {
        let is_crc = line.starts_with("CRC check: ");
        let is_good = line.ends_with("(Good CRC32)");
        self.frames += usize::from(line.starts_with("ULPDU length: "));
        self.good_crcs += usize::from(is_crc && is_good);
        self.bad_crcs += usize::from(is_crc && !is_good);
        self.starts += usize::from(line.starts_with("ID Req frame: ") || line.starts_with("ID Rep frame: "));
        self.starts_with_crc += usize::from(line.ends_with("= CRC flag: True"));
        self.rejections += usize::from(line.ends_with("= Connection rejected flag: True"));
        self.tunnelled += usize::from(line.starts_with("VXLAN Network Identifier (VNI): "));
        self.malformed += usize::from(line.starts_with("[Malformed Packet: "));
    }
}

impl AddAssign for SideCount {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.good_crcs += other.good_crcs;
        self.bad_crcs += other.bad_crcs;
        self.starts += other.starts;
        self.starts_with_crc += other.starts_with_crc;
        self.rejections += other.rejections;
        self.tunnelled += other.tunnelled;
        self.malformed += other.malformed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_its_own_counts() {
        let text = "    Source Address: 10.0.2.2\n        ID Req frame: 4d50\n        .1.. .... = CRC flag: True\n\
                    \n    Source Address: 10.0.2.15\n        ID Rep frame: 4d50\n        .0.. .... = CRC flag: False\n\
                    ..1. .... = Connection rejected flag: True\n\
                    \n    Source Address: 10.0.2.2\n    VXLAN Network Identifier (VNI): 7\n    Source Address: 10.77.0.1\n\
                    ULPDU length: 14 bytes\n        CRC check: 0xeb (Good CRC32)\n\
                    ULPDU length: 34 bytes\n        CRC check: 0xec (Bad CRC32, should be 0xed)\n\
                    \n    Source Address: 10.0.2.15\n        ULPDU length: 3 bytes\n[Malformed Packet: IWARP_MPA]\n";
        let driver = SideCount {
            frames: 2,
            good_crcs: 1,
            bad_crcs: 1,
            starts: 1,
            starts_with_crc: 1,
            rejections: 0,
            tunnelled: 1,
            malformed: 0,
        };
        let guest = SideCount {
            frames: 1,
            good_crcs: 0,
            bad_crcs: 0,
            starts: 1,
            starts_with_crc: 0,
            rejections: 1,
            tunnelled: 0,
            malformed: 1,
        };
        assert_eq!(Judgement::of(text), Judgement { driver, guest });
    }
}
