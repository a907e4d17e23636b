//! rping in both roles. Each side compares every byte: this one the texts that it reads and that come back, rping what it prints.

use conformance::consumer::{Adapter, Window};

use super::connection::{Connection, MESSAGE, NONE, listen, with_adapter};
use super::{guest, rping, tunnel};

const PINGS: usize = 10;

/// The guest's rping serves: it reads each text from here and writes it back.
pub fn guest_serves<const SIZE: usize>() {
    with_adapter(|adapter| call(adapter, SIZE));
}

/// As [`guest_serves`], in VXLAN.
pub fn guest_serves_in_tunnel<const SIZE: usize>() {
    tunnel::with_adapter(|adapter| call(adapter, SIZE));
}

fn call(adapter: &Adapter, size: usize) {
    guest::begin("rping", &format!("rping -s -v -S {size}"));
    guest::expect(&format!("listening {}", rping::PORT));
    let connection = Connection::connect(adapter, rping::PORT).expect("a connection");
    let (source, sink) = (connection.open(size), connection.open(size));
    for ping in 0..PINGS {
        let text = rping::text(ping, size);
        rping::fill(&source, &text);
        sink.buffer.fill(|_| 0xFF);
        rping::ping(&connection, &source, &sink);
        assert!(sink.buffer.to_vec() == text, "what came back of ping {ping} differs");
    }
    connection.disconnect();
    let (_, said) = guest::ended("rping");
    assert_printed(&said, "server ping data: ", size);
    println!("counted: {PINGS} pings of {size} bytes, equal on both sides");
}

/// The guest's rping is the client: its text is read from there and written back.
pub fn guest_calls<const SIZE: usize>() {
    with_adapter(|adapter| answer(adapter, "10.0.2.2", SIZE));
}

/// As [`guest_calls`], in VXLAN.
pub fn guest_calls_in_tunnel<const SIZE: usize>() {
    tunnel::with_adapter(|adapter| answer(adapter, "10.77.0.1", SIZE));
}

/// The guest has the adapter at this address.
fn answer(adapter: &Adapter, address: &str, size: usize) {
    let (listener, port) = listen(adapter);
    guest::begin("rping", &format!("rping -c -a {address} -p {port} -v -V -C {PINGS} -S {size}"));
    let connection = Connection::accept(adapter, &listener);
    let text = connection.open(size);
    for ping in 0..PINGS {
        serve(&connection, &text, ping);
    }
    connection.follow_disconnect();
    let (status, said) = guest::ended("rping");
    assert_eq!(status, 0, "rping, which compares what came back, said:\n{said}");
    assert_printed(&said, "ping data: ", size);
    println!("counted: {PINGS} pings of {size} bytes, equal on both sides");
}

/// Reads one text from rping, compares it, and writes it back.
pub fn serve(connection: &Connection<'_>, text: &Window<'_>, ping: usize) {
    let size = text.buffer.length();
    let (source, length) = rping::offered(connection.message());
    assert_eq!(length, size);
    text.buffer.fill(|_| 0xFF);
    assert_eq!(connection.end.queue_pair.read(4, &text.in_sges(3), source, NONE), 0);
    connection.finish(1);
    assert!(text.buffer.to_vec() == rping::text(ping, size), "what was read of ping {ping} differs");
    connection.expect_message();
    connection.send(&[0; MESSAGE]);
    let (sink, length) = rping::offered(connection.message());
    assert_eq!(length, size);
    assert_eq!(connection.end.queue_pair.write(5, &text.in_sges(2), sink, NONE), 0);
    connection.finish(1);
    connection.expect_message();
    connection.send(&[0; MESSAGE]);
}

fn assert_printed(said: &str, prefix: &str, size: usize) {
    assert!(said.contains(&rping::printed(prefix, PINGS, size)), "rping printed other texts:\n{said}");
}
