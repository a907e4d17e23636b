//! More Reads at a time than the guest takes.

use super::connection::{Connection, MESSAGE, NONE, listen, with_adapter};
use super::{guest, rping};

const SIZE: usize = 64_000;
const PIECE: usize = 2000;
/// What rping takes.
const AGREED: u32 = 1;

/// All pieces of one text are read by requests posted at once; siw ends the connection when one more than agreed is under way.
pub fn all_at_once() {
    with_adapter(|adapter| {
        let (listener, port) = listen(adapter);
        guest::begin("rping", &format!("rping -c -a 10.0.2.2 -p {port} -v -V -C 1 -S {SIZE}"));
        let connection = Connection::accept(adapter, &listener);
        let data = connection.connector.data();
        assert_eq!((data.inbound_reads, data.outbound_reads), (AGREED, AGREED));
        let (source, _) = rping::offered(connection.message());
        let text = connection.open(SIZE);
        let starts = || (0..SIZE).step_by(PIECE);
        for start in starts() {
            let mut from = source;
            from.address += start as u64;
            let piece = [text.sge(start..SIZE.min(start + PIECE))];
            assert_eq!(connection.end.queue_pair.read(4, &piece, from, NONE), 0);
        }
        connection.finish(starts().count());
        assert!(text.buffer.to_vec() == rping::text(0, SIZE), "what was read differs");
        connection.expect_message();
        connection.send(&[0; MESSAGE]);
        let (sink, _) = rping::offered(connection.message());
        assert_eq!(connection.end.queue_pair.write(5, &text.in_sges(4), sink, NONE), 0);
        connection.finish(1);
        connection.send(&[0; MESSAGE]);
        connection.follow_disconnect();
        assert_eq!(guest::ended("rping").0, 0);
        println!("counted: {} Reads posted at once, {AGREED} agreed; {SIZE} bytes equal", starts().count());
    });
}
