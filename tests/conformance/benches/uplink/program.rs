//! How fast frames cross between two machines, beside plain datagrams, measured.
//!
//!     SOFTNDK_IMAGE=target/driver/x64/release/softndk.sys cargo bench -p conformance --bench uplink
//!
//! Two kernel hosts in two processes. The first one's adapter gets full frames of the uplink's MTU, and the second one counts those
//! that arrive; between the same processes plain UDP of as many bytes follows. A few bursts are under way at a time.

use conformance::machine::{wait_until, with_machine};
use conformance::outcome::Outcome;
use conformance::trial::become_child;
use conformance::two_machines::{open_uplink, own_number, play, receive_line, send_line, setup_with_uplink};
use std::cell::Cell;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Instant;

/// The MTU of the inner network behind an outer one of 1500, and its Ethernet header.
const FRAME: usize = 1450 + 14;
/// What VXLAN puts before a frame in a datagram.
const VXLAN_HEADER: usize = 8;
const BURST: u32 = 20;
const BURSTS: u32 = 3000;
/// A socket keeps forty-four such datagrams, as one of Windows does.
const BURSTS_UNDER_WAY: u32 = 2;

pub fn main() -> ExitCode {
    become_child(|name| (name == "measures").then_some(measures as fn()));
    match play(["measures"; 2]) {
        Ok(outcomes) => {
            for outcome in &outcomes {
                print!("{}", outcome.text());
            }
            let are_well = outcomes.iter().all(|outcome| Outcome::expect_success(outcome).is_ok());
            if are_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failed) => {
            eprintln!("{}", failed.message().unwrap_or("the machines did not end"));
            ExitCode::FAILURE
        }
    }
}

/// Both machines: the first one sends, the second one counts.
fn measures() {
    let own = own_number();
    with_machine(&setup_with_uplink(own), |machine| {
        let adapter = &machine.adapters[0];
        open_uplink(own, adapter);
        meet();
        if own == 1 {
            let frame: Vec<u8> = [&[0xFF; 6][..], &[2, 0, 0, 0, 0, own], &[0x88, 0xB5], &[0x5A; FRAME - 14]].concat();
            let frames = || (0..BURST).map(|_| frame.clone().into()).collect();
            say(
                "frames",
                rate_of(|| {
                    assert!(adapter.send(frames()).expect("a started adapter").wait().iter().all(|it| *it == 0));
                }),
            );
        } else {
            let come = Cell::new(0);
            confirm(|wanted| {
                wait_until("the frames have come", || {
                    come.update(|come| come + adapter.take_received().expect("a started adapter").len());
                    come.get() >= wanted
                });
            });
        }
        meet();
        plain(own);
        meet();
    });
}

/// The same between two sockets.
fn plain(own: u8) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    send_line(&socket.local_addr().expect("its address").to_string());
    socket.connect(receive_line()).expect("the peer's socket");
    let mut datagram = [0x5A; FRAME + VXLAN_HEADER];
    if own == 1 {
        say("plain UDP", rate_of(|| (0..BURST).for_each(|_| assert!(socket.send(&datagram).is_ok()))));
    } else {
        let mut come = 0;
        confirm(|wanted| {
            while come < wanted {
                socket.recv(&mut datagram).expect("a datagram");
                come += 1;
            }
        });
    }
}

/// Both have come here.
fn meet() {
    send_line("here");
    assert_eq!(receive_line(), "here");
}

/// Sends all bursts; frames a second.
fn rate_of(mut send_burst: impl FnMut()) -> f64 {
    let start = Instant::now();
    for burst in 0..BURSTS {
        send_burst();
        if burst + 1 >= BURSTS_UNDER_WAY {
            receive_line();
        }
    }
    (1..BURSTS_UNDER_WAY).for_each(|_| drop(receive_line()));
    f64::from(BURSTS * BURST) / start.elapsed().as_secs_f64()
}

/// Confirms each burst when so many frames have come.
fn confirm(mut have_come: impl FnMut(usize)) {
    for burst in 1..=BURSTS {
        have_come((burst * BURST) as usize);
        send_line("come");
    }
}

fn say(what: &str, rate: f64) {
    println!("{what:<10} {rate:>9.0} a second of {FRAME} bytes, {:>6.0} MB/s", rate * f64::from(FRAME as u32) / 1e6);
}
