//! Requests that one side refuses: siw's Terminates as the consumer sees them, the driver's as Linux prints them.

use conformance::consumer::{Listener, Remote};
use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED, STATUS_REMOTE_RESOURCES};

use super::connection::{Connection, MESSAGE, NONE, listen, with_adapter};
use super::{guest, ping, rping};

const SIZE: usize = 3000;

/// Disconnect reasons of `docs/connections.md`.
const PEER_DISCONNECTED: u32 = 1;
const REQUEST_OF_PEER_FAILED: u32 = 3;
const REFUSED_BY_PEER: u32 = 9;

fn begin_client(port: u16) {
    guest::begin("rping", &format!("rping -c -a 10.0.2.2 -p {port} -v -V -C 1 -S {SIZE}"));
}

/// Token of no memory of the guest: siw counts in the low byte, and the rest is random.
fn unknown(remote: Remote) -> Remote {
    Remote { token: remote.token ^ 0x0055_AA00, ..remote }
}

fn accept_client<'a>(adapter: &'a conformance::consumer::Adapter, listener: &Listener, port: u16) -> Connection<'a> {
    begin_client(port);
    Connection::accept(adapter, listener)
}

/// What siw's Terminate is for the consumer: the result of the request and the reason of the event, 0 without one.
fn refused(request: impl FnOnce(&Connection<'_>, Remote) -> NTSTATUS) -> (NTSTATUS, u32) {
    let mut ended = (0, 0);
    with_adapter(|adapter| {
        let (listener, port) = listen(adapter);
        let connection = accept_client(adapter, &listener, port);
        let (remote, _) = rping::offered(connection.message());
        assert_eq!(request(&connection, remote), 0);
        let status = connection.end.initiator.wait_for_one().Status;
        // A request that has failed is the notice.
        ended =
            (status, if status == 0 { connection.reason_of_end() } else { connection.connector.disconnect_events() });
        guest::ended("rping");
        connection.disconnect();
    });
    ended
}

/// A Read with an unknown token fails with the status of a remote failure.
pub fn guest_refuses_read() {
    let ended = refused(|connection, remote| {
        let text = connection.open(64);
        connection.end.queue_pair.read(4, &text.in_sges(1), unknown(remote), NONE)
    });
    println!("counted: status {:#010x}, no event", ended.0);
    assert_eq!(ended, (STATUS_REMOTE_RESOURCES, 0));
}

/// A Write with an unknown token has succeeded; then the connection ends.
pub fn guest_refuses_write() {
    let ended = refused(|connection, remote| {
        let text = connection.open(64);
        connection.end.queue_pair.write(4, &text.in_sges(1), unknown(remote), NONE)
    });
    println!("counted: status {:#010x}, reason {}", ended.0, ended.1);
    // siw ends the connection without its Terminate at times.
    assert!(ended == (0, REFUSED_BY_PEER) || ended == (0, PEER_DISCONNECTED));
}

/// More Sends than rping has receives: siw ends the connection by a Terminate, unless rping gives up first because of the one it has taken.
pub fn guest_has_no_receive() {
    with_adapter(|adapter| {
        let (listener, port) = listen(adapter);
        let mut reasons = (0..ATTEMPTS).map(|_| send_too_much(&accept_client(adapter, &listener, port)));
        let attempts = reasons.position(|reason| reason == REFUSED_BY_PEER).expect("a Terminate of siw") + 1;
        println!("counted: {SENDS} Sends for 1 receive, reason {REFUSED_BY_PEER} at attempt {attempts}");
    });
}

/// Sends until the connection has ended; the reason.
fn send_too_much(connection: &Connection<'_>) -> u32 {
    connection.message();
    for request in 0..SENDS {
        let message = connection.outgoing.first_in_sges(MESSAGE, 1);
        assert_eq!(connection.end.queue_pair.send(request, &message, NONE), 0);
    }
    let reason = connection.reason_of_end();
    connection.disconnect();
    let results = connection.end.initiator.wait_for(SENDS as usize);
    assert!(results.iter().all(|result| matches!(result.Status, 0 | STATUS_CANCELLED)), "{results:?}");
    assert_eq!(results[0].Status, 0);
    // rping may wait for ever.
    guest::run("killall -9 rping");
    reason
}

const ATTEMPTS: usize = 20;
const SENDS: u64 = 16;

/// What the guest's kernel prints of the driver's Terminate, layer and type exchanged (it reads the RFC's half-bytes the other way round), when its Read or its Write has an unknown token.
fn terminated(is_write: bool) -> (u32, String) {
    let mut seen = (0, String::new());
    with_adapter(|adapter| {
        guest::begin("rping", &format!("rping -s -v -S {SIZE}"));
        guest::expect(&format!("listening {}", rping::PORT));
        let connection = Connection::connect(adapter, rping::PORT).expect("a connection");
        let memory = connection.open(SIZE);
        rping::fill(&memory, &rping::text(0, SIZE));
        let [good, bad] = [memory.remote(0), unknown(memory.remote(0))];
        connection.send(&rping::advert(if is_write { good } else { bad }, SIZE));
        if is_write {
            connection.message();
            connection.send(&rping::advert(bad, SIZE));
        }
        seen.0 = connection.reason_of_end();
        connection.disconnect();
        guest::ended("rping");
        let log = guest::kernel_log();
        let line = log.lines().find_map(|line| line.split_once("TERMINATE.").map(|(_, what)| what.trim().to_owned()));
        seen.1 = line.unwrap_or_else(|| panic!("no Terminate in the guest's log:\n{log}"));
    });
    seen
}

/// A Read of the guest with an unknown token.
pub fn refuses_read_of_guest() {
    let (reason, said) = terminated(false);
    println!("counted: Linux says \"{said}\", reason {reason}");
    assert_eq!((reason, &*said), (REQUEST_OF_PEER_FAILED, "layer 1, type 0, code 0"));
}

/// A Write of the guest with an unknown token.
pub fn refuses_write_of_guest() {
    let (reason, said) = terminated(true);
    println!("counted: Linux says \"{said}\", reason {reason}");
    assert_eq!((reason, &*said), (REQUEST_OF_PEER_FAILED, "layer 1, type 1, code 0"));
}

/// The guest sends before there is a receive: its message waits for one.
pub fn message_waits_for_receive() {
    with_adapter(|adapter| {
        let (listener, port) = listen(adapter);
        begin_client(port);
        let connection = Connection::accept_with(adapter, &listener, |_| {});
        guest::run("sleep 1");
        assert_eq!(connection.connector.disconnect_events(), 0);
        connection.expect_message();
        ping::serve(&connection, &connection.open(SIZE), 0);
        connection.follow_disconnect();
        assert_eq!(guest::ended("rping").0, 0);
        println!("counted: 1 message of {MESSAGE} bytes taken late, 1 ping after it");
    });
}
