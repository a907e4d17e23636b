//! Connections that do not come about, and all ways in which they end without an error.

use conformance::consumer::Adapter;
use ndkpi_sys::nt::{STATUS_CANCELLED, STATUS_CONNECTION_REFUSED};

use super::connection::{Connection, listen, with_adapter};
use super::{guest, ping, rping};

/// A port of the guest at which nothing listens.
const CLOSED: u16 = 7175;
const SIZE: usize = 100;

/// Reject: the program learns it at once, and another connection works after it.
pub fn reject() {
    with_adapter(|adapter| {
        let (listener, port) = listen(adapter);
        let call = format!("rping -c -a 10.0.2.2 -p {port} -v -V -C 1 -S {SIZE}");
        guest::begin("rejected", &call);
        assert_eq!(listener.next().reject(b"not now"), 0);
        let (status, said) = guest::ended("rejected");
        assert!(status != 0 && said.contains("RDMA_CM_EVENT_REJECTED"), "the guest said:\n{said}");
        guest::begin("accepted", &call);
        let connection = Connection::accept(adapter, &listener);
        ping::serve(&connection, &connection.open(SIZE), 0);
        connection.follow_disconnect();
        assert_eq!(guest::ended("accepted").0, 0);
        println!("counted: 1 Reject seen by the guest, 1 connection after it");
    });
}

/// QEMU accepts before it finds no listener: the stream ends before a Reply.
pub fn nothing_listens() {
    with_adapter(|adapter| {
        assert_eq!(Connection::connect(adapter, CLOSED).err(), Some(STATUS_CONNECTION_REFUSED));
        println!("counted: 1 Connect refused");
    });
}

/// Connects to rping, which has answered once.
fn with_one_ping(adapter: &Adapter) -> Connection<'_> {
    guest::begin("rping", &format!("rping -s -v -S {SIZE}"));
    guest::expect(&format!("listening {}", rping::PORT));
    let connection = Connection::connect(adapter, rping::PORT).expect("a connection");
    let (source, sink) = (connection.open(SIZE), connection.open(SIZE));
    rping::fill(&source, &rping::text(0, SIZE));
    rping::ping(&connection, &source, &sink);
    connection
}

/// Disconnect by this side: the program gets its event, this side none.
pub fn disconnect() {
    with_adapter(|adapter| {
        let connection = with_one_ping(adapter);
        connection.disconnect();
        let (_, said) = guest::ended("rping");
        assert!(said.contains("DISCONNECT EVENT"), "the guest said:\n{said}");
        assert_eq!(connection.connector.disconnect_events(), 0);
        assert_eq!(connection.end.receive.wait_for_one().Status, STATUS_CANCELLED);
        println!("counted: 1 event in the guest, 0 here");
    });
}

/// Disconnect by the guest: an event here, and a receive that stays until it is answered.
pub fn guest_disconnects() {
    with_adapter(|adapter| {
        let (listener, port) = listen(adapter);
        guest::begin("rping", &format!("rping -c -a 10.0.2.2 -p {port} -v -V -C 1 -S {SIZE}"));
        let connection = Connection::accept(adapter, &listener);
        ping::serve(&connection, &connection.open(SIZE), 0);
        connection.expect_message();
        assert_eq!(connection.reason_of_end(), 1);
        assert!(connection.end.receive.take(1).is_empty());
        connection.disconnect();
        assert_eq!(connection.end.receive.wait_for_one().Status, STATUS_CANCELLED);
        assert_eq!(guest::ended("rping").0, 0);
        println!("counted: 1 event here, 1 receive cancelled by the answer");
    });
}

/// The program is killed while connected: its kernel ends the stream, and this side has an event.
pub fn guest_is_killed() {
    with_adapter(|adapter| {
        let connection = with_one_ping(adapter);
        guest::expect("killall -9 rping");
        connection.follow_disconnect();
        assert_eq!(connection.end.receive.wait_for_one().Status, STATUS_CANCELLED);
        println!("counted: 1 event here, 1 receive cancelled by the answer");
    });
}
