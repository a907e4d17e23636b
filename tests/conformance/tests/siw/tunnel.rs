//! VXLAN of Linux as the other end of the adapter's uplink: the adapter and the guest's VXLAN interface are on one network, with TCP/IP on
//! both. The guest has siw on that interface as well.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use conformance::consumer::Adapter;
use conformance::machine::{AdapterSetup, Machine, Setup, with_machine};
use kernel_host::inf::InterfaceAddress;
use kernel_host::netio::card;
use kernel_host::wsk::MachineAddress;
use kernel_host::{HaltAction, KernelConfig, Mode};

use super::connection::{GUEST_ADDRESS, OWN_ADDRESS};
use super::guest;

/// Names the UDP port of both ends.
const VARIABLE: &str = "SOFTNDK_SIW_TUNNEL";
/// As in the script `vxlan`.
const NETWORK: &str = "7";
/// The real network cards, as far as the driver knows.
const OWN_CARD: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const GUEST_CARD: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));

/// Bytes of echo requests: the last ones fill the MTU of 1450.
const ECHOES: [usize; 6] = [1, 56, 57, 1000, 1421, 1422];
const ECHO_PORT: u16 = 7175;
const STREAM: usize = 300_001;
const LIMIT: Duration = Duration::from_mins(1);

/// The machine has TCP/IP on its adapter. QEMU's user networking sends from 127.0.0.1 to 127.0.0.1 for the guest, so that is this machine's
/// card, and the guest's as well when it sends.
fn setup(port: &str) -> Setup {
    let row = |address, stand_in| MachineAddress { address, stand_in };
    let there = guest::address().expect("a guest");
    let machines =
        vec![row(OWN_CARD, Ipv4Addr::LOCALHOST), row(GUEST_CARD, there), row(GUEST_CARD, Ipv4Addr::LOCALHOST)];
    let kernel = KernelConfig { mode: Mode::Fast, schedule: None, machines, stacks: true, ..Setup::default().kernel };
    // As long as the process, whose only machine it is.
    let text = |text: String| -> &'static str { text.leak() };
    let keywords = vec![
        ("Transport", "1"),
        ("WireNumber", NETWORK),
        ("UplinkPeers", text(GUEST_CARD.to_string())),
        ("UplinkPort", text(port.to_owned())),
    ];
    Setup { kernel, adapters: vec![AdapterSetup { addresses: vec![OWN_ADDRESS], keywords }] }
}

fn with_tunnel(trial: impl FnOnce(&Machine)) {
    let port = env::var(VARIABLE).expect("the port of the tunnel");
    with_machine(&setup(&port), |machine| {
        guest::run("killall -9 rping; dmesg -c");
        guest::expect(&format!("vxlan {port}"));
        assert!(card::add_address(InterfaceAddress { address: OWN_CARD, prefix_length: 24 }), "a card");
        // The socket of its uplink is bound to what there is.
        let adapter = &machine.adapters[0];
        adapter.halt(HaltAction::DeviceDisabled).expect("a halt");
        adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
        trial(machine);
    });
}

/// Runs a trial with the adapter open and nothing of an earlier one in the guest.
pub fn with_adapter(trial: impl FnOnce(&Adapter)) {
    with_tunnel(|machine| trial(&machine.open(0)));
}

/// Echo both ways, and a stream that the guest sends back.
pub fn pings_and_streams() {
    with_tunnel(|machine| {
        let stack = machine.adapters[0].stack().expect("TCP/IP on the adapter");
        for size in ECHOES {
            let data = bytes(size, size);
            assert!(stack.ping(GUEST_ADDRESS, &data, LIMIT) == Some(data), "the echo of {size} bytes");
            let said = guest::expect(&format!("ping -c 1 -W 60 -s {size} {OWN_ADDRESS}"));
            assert!(said.contains(" 0% packet loss"), "the guest said:\n{said}");
        }
        guest::begin("echo", &format!("nc -l -p {ECHO_PORT} -e cat"));
        guest::expect(&format!("listening {ECHO_PORT}"));
        let stream = stack.tcp_connect(SocketAddr::new(GUEST_ADDRESS, ECHO_PORT), LIMIT).expect("a connection");
        let data = bytes(STREAM, 3);
        for piece in data.chunks(10_007) {
            stream.send(piece, LIMIT).expect("space");
            assert!(stream.receive_exact(piece.len(), LIMIT).expect("the bytes again") == piece, "bytes of the stream");
        }
        drop(stream);
        println!("counted: {} echoes each way, {STREAM} bytes of TCP there and back, equal", ECHOES.len());
    });
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|position| (position * 5 + position / 253 + seed) as u8).collect()
}
