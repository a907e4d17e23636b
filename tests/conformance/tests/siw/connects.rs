//! Many connections one after the other, each with its first message directly behind the start.

use super::connection::{Connection, with_adapter};
use super::{guest, rping};

const CONNECTIONS: usize = 200;
const SIZE: usize = 64;

/// siw may leave the first frames lying until more comes, which the driver sends unasked.
pub fn one_after_the_other() {
    with_adapter(|adapter| {
        guest::begin("rping", "rping -s -P");
        guest::expect(&format!("listening {}", rping::PORT));
        for ping in 0..CONNECTIONS {
            let connection = Connection::connect(adapter, rping::PORT).expect("a connection");
            let (source, sink) = (connection.open(SIZE), connection.open(SIZE));
            let text = rping::text(ping, SIZE);
            rping::fill(&source, &text);
            rping::ping(&connection, &source, &sink);
            assert!(sink.buffer.to_vec() == text, "what came back of connection {ping} differs");
            connection.disconnect();
        }
        println!("counted: {CONNECTIONS} connections");
    });
}
