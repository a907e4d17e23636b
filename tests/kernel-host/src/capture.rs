//! What the adapters and the sockets of the host carry, as a pcapng file for Wireshark.
//!
//! Frames are those that an adapter is given to send and indicates. Streams and datagrams that end at sockets have no packets of their own
//! inside the host: they are written as packets of TCP and UDP, with addresses, sequence numbers and checksums that fit.
//! One file a process, from [`start`] until the kernel ends.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr};

use crate::timer;

/// Seconds from 1601 to 1970.
const TO_1970: u64 = 11_644_473_600;
/// The most bytes of one packet of TCP: its headers and these fit into a length of 16 bits.
const SEGMENT: usize = 32 * 1024;
/// The resolution of the times: 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

struct Capture {
    file: PcapNgWriter<BufWriter<File>>,
    /// The number of each interface of the file: that of all sockets, and one an adapter.
    interfaces: HashMap<Option<u32>, u32>,
    /// The next sequence number of each direction: from, to.
    next: HashMap<(SocketAddr, SocketAddr), u32>,
    /// Nothing more is written.
    failure: Option<io::Error>,
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static CAPTURE: Mutex<Option<Capture>> = Mutex::new(None);

fn capture() -> MutexGuard<'static, Option<Capture>> {
    CAPTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a new file from now on.
pub(crate) fn start(path: &Path) {
    let file = File::create(path).and_then(|file| PcapNgWriter::new(BufWriter::new(file)).map_err(io::Error::other));
    let file = file.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    *capture() = Some(Capture { file, interfaces: HashMap::new(), next: HashMap::new(), failure: None });
    IS_ON.store(true, Ordering::Release);
}

/// Ends the file.
pub(crate) fn stop() {
    IS_ON.store(false, Ordering::Release);
    let Some(Capture { file, failure, .. }) = capture().take() else { return };
    let flushed = file.into_inner().into_inner();
    if let Some(error) = failure.or(flushed.err().map(io::Error::from)) {
        eprintln!("the capture is not complete: {error}");
    }
}

fn with(write: impl FnOnce(&mut Capture)) {
    if IS_ON.load(Ordering::Acquire)
        && let Some(capture) = &mut *capture()
    {
        write(capture);
    }
}

/// A frame that an adapter, of this interface index, is given to send or indicates.
pub(crate) fn frame(adapter: u32, pieces: &[Vec<u8>]) {
    with(|capture| capture.write(Some(adapter), &pieces.concat()));
}

/// A connection of TCP is made: from the one that has connected.
pub(crate) fn opened(from: SocketAddr, to: SocketAddr) {
    with(|capture| {
        // A port may be used again.
        capture.next.remove(&(from, to));
        capture.next.remove(&(to, from));
        capture.segment(from, to, TcpControl::Syn, &[]);
        capture.segment(to, from, TcpControl::Syn, &[]);
        capture.segment(from, to, TcpControl::None, &[]);
    });
}

/// Bytes of a connection.
pub(crate) fn bytes(from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
    with(|capture| bytes.chunks(SEGMENT).for_each(|bytes| capture.segment(from, to, TcpControl::Psh, bytes)));
}

/// As [`bytes`], that lie in several places.
///
/// # Safety
///
/// So many bytes can be read there.
pub(crate) unsafe fn vectors(from: SocketAddr, to: SocketAddr, vectors: &[libc::iovec], count: usize) {
    if !IS_ON.load(Ordering::Acquire) {
        return;
    }
    let mut all = Vec::with_capacity(count);
    for vector in vectors {
        let length = vector.iov_len.min(count - all.len());
        // SAFETY: the caller's contract.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(vector.iov_base.cast_const().cast::<u8>(), length) });
    }
    bytes(from, to, &all);
}

/// One direction of a connection has ended.
pub(crate) fn ended(from: SocketAddr, to: SocketAddr) {
    with(|capture| capture.segment(from, to, TcpControl::Fin, &[]));
}

/// A connection is broken.
pub(crate) fn reset(from: SocketAddr, to: SocketAddr) {
    with(|capture| {
        if capture.next.contains_key(&(from, to)) {
            capture.segment(from, to, TcpControl::Rst, &[]);
            capture.next.remove(&(from, to));
            capture.next.remove(&(to, from));
        }
    });
}

/// A datagram of UDP.
pub(crate) fn datagram(from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
    with(|capture| {
        let (from_ip, to_ip) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()));
        let header = UdpRepr { src_port: from.port(), dst_port: to.port() };
        let length = header.header_len() + bytes.len();
        capture.packet(from.ip(), to.ip(), IpProtocol::Udp, length, |packet| {
            let mut packet = UdpPacket::new_unchecked(packet);
            let fill = |payload: &mut [u8]| payload.copy_from_slice(bytes);
            header.emit(&mut packet, &from_ip, &to_ip, bytes.len(), fill, &ChecksumCapabilities::default());
        });
    });
}

impl Capture {
    fn segment(&mut self, from: SocketAddr, to: SocketAddr, control: TcpControl, payload: &[u8]) {
        let sequence = *self.next.entry((from, to)).or_default();
        let acknowledged = self.next.get(&(to, from)).copied();
        let header = TcpRepr {
            src_port: from.port(),
            dst_port: to.port(),
            control,
            seq_number: TcpSeqNumber(sequence.cast_signed()),
            ack_number: acknowledged.map(|number| TcpSeqNumber(number.cast_signed())),
            window_len: u16::MAX,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload,
        };
        let counts = u32::from(matches!(control, TcpControl::Syn | TcpControl::Fin)) + payload.len() as u32;
        self.next.insert((from, to), sequence.wrapping_add(counts));
        let (from_ip, to_ip) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()));
        self.packet(from.ip(), to.ip(), IpProtocol::Tcp, header.buffer_len(), |packet| {
            let mut packet = TcpPacket::new_unchecked(packet);
            header.emit(&mut packet, &from_ip, &to_ip, &ChecksumCapabilities::default());
        });
    }

    /// A packet of IP with so many bytes behind its header.
    fn packet(&mut self, from: IpAddr, to: IpAddr, protocol: IpProtocol, length: usize, fill: impl FnOnce(&mut [u8])) {
        if from.is_ipv4() != to.is_ipv4() {
            return;
        }
        let header = IpRepr::new(from.into(), to.into(), protocol, length, 64);
        let mut packet = vec![0; header.buffer_len()];
        header.emit(&mut packet, &ChecksumCapabilities::default());
        fill(&mut packet[header.header_len()..]);
        self.write(None, &packet);
    }

    fn write(&mut self, adapter: Option<u32>, packet: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.try_write(adapter, packet).err();
        }
    }

    fn try_write(&mut self, adapter: Option<u32>, packet: &[u8]) -> io::Result<()> {
        let interface_id = self.interface(adapter)?;
        let timestamp = Duration::from_nanos(timer::system_time() * 100).saturating_sub(Duration::from_secs(TO_1970));
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp,
            original_len: packet.len() as u32,
            data: Cow::Borrowed(packet),
            options: Vec::new(),
        };
        self.file.write_pcapng_block(block).map_err(io::Error::other)?;
        Ok(())
    }

    /// The number of an adapter's interface, or of that of the sockets.
    fn interface(&mut self, adapter: Option<u32>) -> io::Result<u32> {
        if let Some(number) = self.interfaces.get(&adapter) {
            return Ok(*number);
        }
        let (linktype, name) = match adapter {
            None => (DataLink::RAW, "sockets".to_owned()),
            Some(number) => (DataLink::ETHERNET, format!("adapter {number}")),
        };
        let options =
            vec![InterfaceDescriptionOption::IfName(name.into()), InterfaceDescriptionOption::IfTsResol(NANOSECONDS)];
        let block = InterfaceDescriptionBlock { linktype, snaplen: 0, options };
        self.file.write_pcapng_block(block).map_err(io::Error::other)?;
        let number = self.interfaces.len() as u32;
        self.interfaces.insert(adapter, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use smoltcp::wire::{Ipv4Packet, Ipv6Packet};

    /// The packets of a file with the number of their interface, and the names of these.
    fn read(path: &Path) -> (Vec<(u32, Vec<u8>)>, Vec<String>) {
        let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
        let (mut packets, mut names) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::EnhancedPacket(packet) => packets.push((packet.interface_id, packet.data.to_vec())),
                Block::InterfaceDescription(interface) => {
                    names.extend(interface.options.iter().filter_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    }));
                }
                other => panic!("{other:?}"),
            }
        }
        (packets, names)
    }

    /// Protocol, source, destination, and what lies behind the header.
    fn unwrap_ip(packet: &[u8]) -> (IpProtocol, IpAddress, IpAddress, Vec<u8>) {
        if packet[0] >> 4 == 4 {
            let ip = Ipv4Packet::new_checked(packet).unwrap();
            assert!(ip.verify_checksum());
            (ip.next_header(), ip.src_addr().into(), ip.dst_addr().into(), ip.payload().to_vec())
        } else {
            let ip = Ipv6Packet::new_checked(packet).unwrap();
            (ip.next_header(), ip.src_addr().into(), ip.dst_addr().into(), ip.payload().to_vec())
        }
    }

    /// One test, because there is one capture at a time.
    #[test]
    fn file_has_streams_datagrams_and_frames() {
        let path = std::env::temp_dir().join(format!("kernel-host-capture-{}.pcapng", std::process::id()));
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let pairs = [(at("10.0.0.1:1000"), at("10.0.0.2:445")), (at("[fd00::1]:1000"), at("[fd00::2]:445"))];
        let long: Vec<u8> = (0..2 * SEGMENT + 5).map(|place| place as u8).collect();
        start(&path);
        for (here, there) in pairs {
            opened(here, there);
            bytes(here, there, b"request");
            bytes(there, here, &long);
            ended(here, there);
            reset(there, here);
            reset(here, there);
            datagram(here, there, b"datagram");
        }
        frame(7, &[b"fra".to_vec(), b"me".to_vec()]);
        stop();
        frame(7, &[b"late".to_vec()]);
        let (packets, names) = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(names, ["sockets", "adapter 7"]);
        assert_eq!(packets.last(), Some(&(1, b"frame".to_vec())));

        let mut packets = packets.iter().filter(|(interface, _)| *interface == 0);
        for (here, there) in pairs {
            let mut said = [Vec::new(), Vec::new()];
            // Of each side; a SYN and a FIN are one.
            let mut next = [0_i32; 2];
            for _ in 0..9 {
                let (protocol, from, to, bytes) = unwrap_ip(&packets.next().unwrap().1);
                assert_eq!(protocol, IpProtocol::Tcp);
                let segment = TcpPacket::new_checked(&bytes[..]).unwrap();
                assert!(segment.verify_checksum(&from, &to));
                let side = usize::from(segment.src_port() == there.port());
                assert_eq!(segment.seq_number(), TcpSeqNumber(next[side]));
                assert!(segment.syn() || segment.ack_number() == TcpSeqNumber(next[1 - side]));
                next[side] += segment.payload().len() as i32 + i32::from(segment.syn() || segment.fin());
                said[side].extend_from_slice(segment.payload());
            }
            assert!(said == [b"request".to_vec(), long.clone()], "{here}");
            let (protocol, from, to, bytes) = unwrap_ip(&packets.next().unwrap().1);
            let datagram = UdpPacket::new_checked(&bytes[..]).unwrap();
            assert!(protocol == IpProtocol::Udp && datagram.verify_checksum(&from, &to));
            assert_eq!(datagram.payload(), b"datagram");
        }
        assert_eq!(packets.next(), None);
    }
}
