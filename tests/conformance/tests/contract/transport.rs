//! The keyword `Transport`: who is reached by memory and who by TCP, and the ports that a listener has there.

use conformance::case;
use conformance::consumer::{Adapter, Buffer, Listener, Pair, Remote, Window, WindowKind};
use conformance::machine::{Setup, with_machine};
use conformance::trial::Case;
use kernel_host::wsk;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{STATUS_REMOTE_RESOURCES, STATUS_SHARING_VIOLATION, STATUS_SUCCESS};

pub const CASES: &[Case] = &[
    case!(peers_of_this_machine_are_reached_by_memory_unless_all_are_to_be_by_streams: "NDK-CM-51"; not in stream),
    case!(a_port_that_another_program_has_is_refused_where_peers_come_by_tcp: "NDK-CM-2"; not in stream),
];

/// Two adapters with this transport.
fn with_transport(value: &'static str, trial: impl FnOnce(&Adapter, &Adapter)) {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.retain(|(name, _)| *name != "Transport");
        adapter.keywords.push(("Transport", value));
    }
    with_machine(&setup, |machine| trial(&machine.open(0), &machine.open(1)));
}

/// A peer at hand says that it refuses a Write; one across a stream cannot.
fn peers_of_this_machine_are_reached_by_memory_unless_all_are_to_be_by_streams() {
    for (transport, expected) in [("0", STATUS_REMOTE_RESOURCES), ("1", STATUS_REMOTE_RESOURCES), ("2", STATUS_SUCCESS)]
    {
        with_transport(transport, |first, second| {
            let pair = Pair::connect(first, second);
            let near = Window::open(&pair.active, Buffer::scattered(4096), WindowKind::Registered);
            let nowhere = Remote { address: 0, token: 0x55AA };
            let element = near.sge(0..64);
            assert_eq!(pair.active.queue_pair.write(1, &[element], nowhere, NDK_OP_FLAGS::empty()), 0);
            assert_eq!(pair.active.initiator.wait_for_one().Status, expected, "Transport={transport}");
        });
    }
}

fn a_port_that_another_program_has_is_refused_where_peers_come_by_tcp() {
    for (transport, expected) in [("0", STATUS_SUCCESS), ("1", STATUS_SHARING_VIOLATION)] {
        with_transport(transport, |first, _| {
            let mut at = first.address();
            at.set_port(5000);
            let occupied = wsk::occupy(at).expect("the port is free");
            let listener = Listener::new(first).expect("a listener");
            assert_eq!(listener.listen(at), expected, "Transport={transport}");
            drop(occupied);
            if expected != STATUS_SUCCESS {
                assert_eq!(listener.listen(at), STATUS_SUCCESS, "another Listen may come");
            }
        });
    }
}
