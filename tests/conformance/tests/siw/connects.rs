//! Many connections one after the other, each with its first message directly behind the start.

use super::connection::{Connection, with_adapter};
use super::{guest, rping};

const CONNECTIONS: usize = 200;
const SIZE: usize = 64;

/// siw may leave the first frames lying (`Connection::first_message`); how often that happened is counted, not judged.
pub fn one_after_the_other() {
    with_adapter(|adapter| {
        guest::begin("rping", "rping -s -P");
        guest::expect(&format!("listening {}", rping::PORT));
        let (mut stalled, mut empty_writes) = (0, 0);
        for ping in 0..CONNECTIONS {
            let connection = Connection::connect(adapter, rping::PORT).expect("a connection");
            let (source, sink) = (connection.open(SIZE), connection.open(SIZE));
            let text = rping::text(ping, SIZE);
            rping::fill(&source, &text);
            let written = rping::ping(&connection, &source, &sink, true);
            assert!(sink.buffer.to_vec() == text, "what came back of connection {ping} differs");
            stalled += usize::from(written > 0);
            empty_writes += written;
            connection.disconnect();
        }
        println!(
            "counted: {CONNECTIONS} connections, {stalled} stalled at first, {empty_writes} empty Writes went on with them"
        );
    });
}
