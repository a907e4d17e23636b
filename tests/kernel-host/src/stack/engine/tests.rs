//! Two engines on a wire of the tests' own.

use std::net::IpAddr;

use super::*;

const PORT: u16 = 7;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Two engines on a wire, in a time of their own.
struct EngineLink {
    engines: [Engine; 2],
    now: Time,
    /// Frames from the second engine that are lost from now on.
    loses: usize,
}

impl EngineLink {
    fn new() -> Self {
        let engine = |number: u8| {
            let mut engine = Engine::new([2, 0, 0, 0, 0, number], 1500, number.into(), 0);
            engine.set_addresses(&[InterfaceAddress { address: address(number), prefix_length: 24 }]);
            engine
        };
        Self { engines: [1, 2].map(engine), now: 0, loses: 0 }
    }

    /// Processes what is on its way, until nothing is.
    fn rest(&mut self) {
        loop {
            let [first, second] = [0, 1].map(|index: usize| self.engines[index].poll(self.now).0);
            if first.is_empty() && second.is_empty() {
                return;
            }
            for frame in first {
                self.engines[1].push_received(frame);
            }
            for frame in second {
                if self.loses == 0 {
                    self.engines[0].push_received(frame);
                } else {
                    self.loses -= 1;
                }
            }
        }
    }

    /// Goes from deadline to deadline for so many seconds.
    fn pass(&mut self, seconds: u64) {
        let until = self.now + seconds * UNITS_PER_SECOND;
        self.rest();
        loop {
            let due = [0, 1].map(|index: usize| self.engines[index].next_due(self.now));
            match due.into_iter().flatten().min() {
                Some(due) if due < until => self.now = due,
                _ => break,
            }
            self.rest();
        }
        self.now = until;
        self.rest();
    }

    /// The two ends of a connection from the first engine to the second.
    fn connect(&mut self) -> [SocketHandle; 2] {
        let to = SocketAddr::new(address(2), PORT);
        let listener = self.engines[1].listen(to).expect("a free port");
        assert_eq!(self.engines[1].listen(to), None, "it is taken");
        let near = self.engines[0].connect(SocketAddr::new(address(1), 1000), to).expect("addresses");
        assert_eq!(self.engines[0].handshake(near), Handshake::Begun);
        self.pass(3);
        assert_eq!(self.engines[0].handshake(near), Handshake::Done);
        let far = self.engines[1].accept(listener).expect("a connection");
        self.engines[1].stop_listening(listener, self.now);
        [near, far]
    }

    fn drain(&mut self, handle: SocketHandle) -> usize {
        let (mut buffer, mut taken) = (vec![0; 4096], 0);
        while let ReadOutcome::Bytes(count) = self.engines[1].read(handle, &mut buffer) {
            taken += count;
        }
        taken
    }
}

#[test]
fn a_window_opens_although_its_update_is_lost() {
    let mut wire = EngineLink::new();
    let [near, far] = wire.connect();
    let (bytes, mut sent, mut received) = (vec![1; BUFFER], 0, 0);
    for _ in 0..3 {
        sent += wire.engines[0].write(near, &bytes).expect("it is open");
        wire.pass(5);
    }
    assert!(sent > BUFFER, "the window is closed, with bytes behind it");
    wire.loses = 3;
    received += wire.drain(far);
    wire.pass(20);
    received += wire.drain(far);
    assert_eq!((received, wire.engines[0].unacknowledged(near)), (sent, 0));
}

#[test]
fn an_idle_connection_lasts_and_one_without_a_peer_ends() {
    let mut wire = EngineLink::new();
    let [near, far] = wire.connect();
    assert_eq!(wire.engines[0].write(near, &[1; 10]), Some(10));
    wire.pass(2);
    assert_eq!(wire.drain(far), 10);
    wire.pass(3600);
    assert_eq!(wire.engines[0].write(near, &[1; 20]), Some(20));
    wire.pass(2);
    assert_eq!(wire.drain(far), 20);
    wire.loses = usize::MAX;
    assert_eq!(wire.engines[0].write(near, &[1; 30]), Some(30));
    wire.pass(15);
    assert_eq!(wire.engines[0].handshake(near), Handshake::Done);
    wire.pass(15);
    assert_eq!(wire.engines[0].read(near, &mut [0; 10]), ReadOutcome::Broken);
    assert_eq!(wire.engines[0].write(near, &[1; 30]), None);
}

#[test]
fn released_connections_are_removed() {
    let mut wire = EngineLink::new();
    let [near, far] = wire.connect();
    wire.engines[0].finish(near);
    wire.engines[0].release(near, wire.now);
    wire.pass(1);
    assert_eq!(wire.engines[1].read(far, &mut [0; 10]), ReadOutcome::End);
    wire.engines[1].finish(far);
    wire.engines[1].release(far, wire.now);
    wire.pass(30);
    assert!(wire.engines.iter().all(|engine| engine.sockets.iter().next().is_none() && engine.released.is_empty()));
    // One whose peer is silent has its limit.
    let [near, _] = wire.connect();
    wire.loses = usize::MAX;
    wire.engines[0].finish(near);
    wire.engines[0].release(near, wire.now);
    wire.pass(30);
    assert_eq!(wire.engines[0].released.len(), 1);
    wire.pass(60);
    assert!(wire.engines[0].released.is_empty());
    assert_eq!(wire.engines[0].next_due(wire.now), None);
}

#[test]
fn connections_that_come_together_are_all_taken() {
    let mut wire = EngineLink::new();
    let to = SocketAddr::new(address(2), PORT);
    let listener = wire.engines[1].listen(to).expect("a free port");
    let handles: Vec<_> = (1000..1040)
        .map(|port| wire.engines[0].connect(SocketAddr::new(address(1), port), to).expect("addresses"))
        .collect();
    wire.pass(5);
    assert!(handles.iter().all(|handle| wire.engines[0].handshake(*handle) == Handshake::Done));
    let accepted = std::iter::from_fn(|| wire.engines[1].accept(listener)).count();
    assert_eq!(accepted, handles.len());
    wire.engines[1].stop_listening(listener, wire.now);
    let refused = wire.engines[0].connect(SocketAddr::new(address(1), 2000), to).expect("addresses");
    wire.pass(1);
    assert_eq!(wire.engines[0].handshake(refused), Handshake::Refused);
}
