//! Bytes that cross while sockets cut and stall and one call in a hundred fails, in both machines: connections break all the time, and
//! the first machine makes another one. Whatever has succeeded is compared.

use std::cell::RefCell;
use std::env;
use std::ops::Range;
use std::thread::JoinHandle;

use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, Connector, End, Listener, Offer, Remote, Window, WindowKind,
};
use conformance::machine::wait_until;
use conformance::two_machines::{receive_line, send_line};
use kernel_host::{dispatcher, fault, wsk};
use ndkpi_sys::ndkpi::NDK_RESULT_EX;

use super::trials::{
    MESSAGE, NONE, any_port, destination, end, listen, message, on_machine, pack, say_port_of, unpack,
};

/// How the line begins that says what came of it.
pub const MOVED: &str = "moved: ";
/// How many bytes are moved, if not a test's worth.
const BYTES: &str = "SOFTNDK_BYTES";
const A_FEW: usize = 20_000_000;
/// Of each of the regions of the second machine: one is read, the other is written and read back.
const REGION: usize = (512 << 10) + 4097;
const LONGEST: usize = 150_000;
const SEED: u64 = 0x44;
/// Of so many calls that may lack something one fails.
const FAILS_ONE_IN: u64 = 100;

/// Calls fail until it is dropped.
struct Failing;

impl Failing {
    fn begin(random: &mut fastrand::Rng) -> Self {
        fault::fail_randomly(FAILS_ONE_IN, random.u64(1..));
        Self
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        fault::stop();
    }
}

/// What is next for a queue: so many results, or fewer and the end of its connection.
fn results(queue: &CompletionQueue, connector: &Connector, count: usize) -> Vec<NDK_RESULT_EX> {
    let results = RefCell::new(Vec::new());
    wait_until("results or the end", || {
        let has_ended = connector.disconnect_events() != 0;
        let mut results = results.borrow_mut();
        let missing = count - results.len();
        results.extend(queue.take(missing));
        results.len() == count || has_ended
    });
    results.into_inner()
}

/// A part of a region of the peer's.
struct Piece {
    range: Range<usize>,
    /// It is written before it is read.
    is_written: bool,
}

fn some_pieces(random: &mut fastrand::Rng) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = random.usize(0..REGION / 2);
    while start < REGION {
        let end = REGION.min(start + random.usize(1..LONGEST));
        pieces.push(Piece { range: start..end, is_written: random.bool() });
        start = end + random.usize(0..1000);
    }
    pieces
}

/// The first machine's side of one connection. The fields are in the order in which they are closed.
struct Mover<'a> {
    /// What is written.
    outgoing: Window<'a>,
    /// What is read.
    incoming: Window<'a>,
    /// What the peer has in the region that is read.
    source: Vec<u8>,
    /// Where it says where the peer's regions are.
    places: Window<'a>,
    end: End<'a>,
}

impl<'a> Mover<'a> {
    fn new(adapter: &'a Adapter) -> Self {
        let end = end(adapter);
        let window = || Window::open(&end, Buffer::scattered(REGION), WindowKind::Registered);
        let (outgoing, incoming, places) = (window(), window(), message(&end));
        outgoing.buffer.fill_with_seed(SEED);
        let source = outgoing.buffer.to_vec();
        assert_eq!(end.queue_pair.receive(1, &places.in_sges(1)), 0);
        Self { outgoing, incoming, source, places, end }
    }

    fn connect(&self, port: &str) -> Option<Connector> {
        let connector = Connector::new(self.end.adapter).ok()?;
        let pair = &self.end.queue_pair;
        let connected = connector.begin_connect(pair, any_port(1), destination(port), &Offer::default()).wait() == 0;
        (connected && connector.begin_complete_connect().wait() == 0).then_some(connector)
    }

    /// Moves bytes until the connection breaks or enough have come; how many have.
    fn move_bytes(&self, connector: &Connector, random: &mut fastrand::Rng, wanted: usize) -> usize {
        let mut moved = 0;
        if results(&self.end.receive, connector, 1).iter().any(|result| result.Status == 0) {
            let regions = unpack(&self.places.buffer.to_vec());
            while moved < wanted {
                match self.exchange(connector, regions, &some_pieces(random), random.u64(..)) {
                    Some(bytes) => moved += bytes,
                    None => break,
                }
            }
        }
        moved
    }

    /// Moves the pieces and compares them; nothing when the connection breaks.
    fn exchange(
        &self,
        connector: &Connector,
        [source, target]: [Remote; 2],
        pieces: &[Piece],
        seed: u64,
    ) -> Option<usize> {
        self.outgoing.buffer.fill_with_seed(seed);
        self.incoming.buffer.fill(|_| 0);
        let pair = &self.end.queue_pair;
        let mut posted = 0;
        for Piece { range, is_written } in pieces {
            let region = if *is_written { target } else { source };
            let remote = Remote { address: region.address + range.start as u64, ..region };
            if *is_written {
                posted += 1;
                assert_eq!(pair.write(1, &[self.outgoing.sge(range.clone())], remote, NONE), 0);
            }
            posted += 1;
            assert_eq!(pair.read(2, &[self.incoming.sge(range.clone())], remote, NONE), 0);
        }
        let results = results(&self.end.initiator, connector, posted);
        if results.len() < posted || results.iter().any(|result| result.Status != 0) {
            return None;
        }
        let [read, written] = [&self.incoming, &self.outgoing].map(|window| window.buffer.to_vec());
        for Piece { range, is_written } in pieces {
            let expected = if *is_written { &written } else { &self.source };
            let wrong = range.clone().find(|place| read[*place] != expected[*place]);
            assert_eq!(wrong, None, "a byte of {range:?} is wrong; written: {is_written}");
        }
        Some(pieces.iter().map(|piece| piece.range.len()).sum())
    }
}

pub fn moves_bytes() {
    let wanted = env::var(BYTES).map_or(A_FEW, |bytes| bytes.parse().expect("a number of bytes"));
    let mut random = fastrand::Rng::with_seed(1);
    wsk::set_stream_faults(true);
    on_machine(1, |adapter| {
        let port = receive_line();
        let (mut moved, mut broken) = (0, 0);
        while moved < wanted {
            let side = Mover::new(adapter);
            let failing = Failing::begin(&mut random);
            let connector = side.connect(&port);
            if let Some(connector) = &connector {
                moved += side.move_bytes(connector, &mut random, wanted - moved);
            }
            drop(failing);
            broken += usize::from(moved < wanted);
            // Where it is broken the answer says so.
            let _ = connector.map(|connector| connector.begin_disconnect().wait());
        }
        println!("{MOVED}{moved} bytes, each compared; {broken} connections broke, {} calls failed", fault::failures());
        assert!(broken != 0, "no call has failed that a connection needs");
        send_line("over");
    });
}

pub fn has_bytes_moved() {
    let mut random = fastrand::Rng::with_seed(2);
    wsk::set_stream_faults(true);
    on_machine(2, |adapter| {
        let listener = listen(adapter);
        say_port_of(&listener);
        let over = std::thread::spawn(receive_line);
        while !over.is_finished() {
            serve(adapter, &listener, &mut random, &over);
        }
        assert_eq!(over.join().expect("a line"), "over");
        println!("{} calls failed", fault::failures());
    });
}

/// The second machine's side of one connection, unless all is over.
fn serve(adapter: &Adapter, listener: &Listener, random: &mut fastrand::Rng, over: &JoinHandle<String>) {
    let end = end(adapter);
    let window = || Window::open(&end, Buffer::scattered(REGION), WindowKind::Registered);
    let (source, target, outgoing) = (window(), window(), message(&end));
    source.buffer.fill_with_seed(SEED);
    let places: [u8; MESSAGE] = pack(&source, &target);
    outgoing.buffer.fill(|position| places[position]);
    while listener.waiting() == 0 {
        if over.is_finished() {
            return;
        }
        dispatcher::delay(-10_000);
    }
    let connector = listener.next();
    let failing = Failing::begin(random);
    if connector.begin_accept(&end.queue_pair, &Offer::default()).wait() == 0 {
        assert_eq!(end.queue_pair.send(1, &outgoing.in_sges(1), NONE), 0);
        wait_until("the connection's end", || connector.disconnect_events() != 0);
    }
    drop(failing);
    connector.begin_disconnect().wait();
}
