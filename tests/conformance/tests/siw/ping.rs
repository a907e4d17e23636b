//! rping in both roles. Each side compares every byte: this one the texts that it reads and that come back, rping what it prints.

use conformance::consumer::Window;

use super::connection::{Connection, MESSAGE, NONE, listen, with_adapter};
use super::{guest, rping};

const PINGS: usize = 10;

/// The guest's rping serves: it reads each text from here and writes it back.
pub fn guest_serves<const SIZE: usize>() {
    with_adapter(|adapter| {
        guest::begin("rping", &format!("rping -s -v -S {SIZE}"));
        guest::expect(&format!("listening {}", rping::PORT));
        let connection = Connection::connect(adapter, rping::PORT).expect("a connection");
        let (source, sink) = (connection.open(SIZE), connection.open(SIZE));
        for ping in 0..PINGS {
            let text = rping::text(ping, SIZE);
            rping::fill(&source, &text);
            sink.buffer.fill(|_| 0xFF);
            rping::ping(&connection, &source, &sink);
            assert!(sink.buffer.to_vec() == text, "what came back of ping {ping} differs");
        }
        connection.disconnect();
        let (_, said) = guest::ended("rping");
        assert_printed(&said, "server ping data: ", SIZE);
        println!("counted: {PINGS} pings of {SIZE} bytes, equal on both sides");
    });
}

/// The guest's rping is the client: its text is read from there and written back.
pub fn guest_calls<const SIZE: usize>() {
    with_adapter(|adapter| {
        let (listener, port) = listen(adapter);
        guest::begin("rping", &format!("rping -c -a 10.0.2.2 -p {port} -v -V -C {PINGS} -S {SIZE}"));
        let connection = Connection::accept(adapter, &listener);
        let text = connection.open(SIZE);
        for ping in 0..PINGS {
            serve(&connection, &text, ping);
        }
        connection.follow_disconnect();
        let (status, said) = guest::ended("rping");
        assert_eq!(status, 0, "rping, which compares what came back, said:\n{said}");
        assert_printed(&said, "ping data: ", SIZE);
        println!("counted: {PINGS} pings of {SIZE} bytes, equal on both sides");
    });
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
