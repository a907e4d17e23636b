//! Time-outs of connections, which the registry sets: 30 s by default, 0 is never.

use std::net::SocketAddr;
use std::time::Duration;

use conformance::case;
use conformance::consumer::{Adapter, Connector, End, Listener, Offer, QueuePairShape, Started};
use conformance::machine::{Setup, wait_until_idle, with_machine};
use conformance::peers;
use conformance::trial::Case;
use kernel_host::dispatcher;
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;
use ndkpi_sys::nt::{STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_IO_TIMEOUT};

pub const CASES: &[Case] = &[
    case!(connect_that_no_context_answers_times_out: "NDK-CM-47", "NDK-CM-36", "NDK-LIM-6"),
    case!(accept_whose_peer_never_completes_times_out: "NDK-CM-48"),
    case!(disconnect_that_is_never_answered_times_out: "NDK-CM-49", "NDK-CM-24"),
    case!(answers_in_time_are_no_time_outs: "NDK-CM-47", "NDK-CM-48", "NDK-CM-49"),
    case!(cards_time_outs_are_the_default: "NDK-LIM-7", "NDK-CM-47", "NDK-CM-48", "NDK-CM-49", "NDK-QP-8"),
    case!(consumer_of_a_silent_peer_closes_its_open: "NDK-CM-57", "NDK-OPEN-5"),
    case!(without_time_outs_requests_wait: "NDK-CM-31", "NDK-LIM-6"),
];

const KEYWORDS: [&str; 3] = ["ConnectTimeoutMs", "AcceptTimeoutMs", "DisconnectTimeoutMs"];
const HOUR: Duration = Duration::from_hours(1);

fn port_zero(adapter: &Adapter) -> SocketAddr {
    SocketAddr::new(adapter.address().ip(), 0)
}

/// Lets the machine's time pass.
fn pass(time: Duration) {
    dispatcher::delay(-i64::try_from(time.as_nanos() / 100).expect("a short time"));
}

/// A connection in the making.
struct Attempt<'a, 'b> {
    // In the order in which they may be closed.
    near: Connector,
    peer: Connector,
    active: End<'a>,
    passive: End<'b>,
    listener: Listener,
    connecting: Started,
}

impl<'a, 'b> Attempt<'a, 'b> {
    fn begin(first: &'a Adapter, second: &'b Adapter) -> Self {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(port_zero(second)), 0);
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let near = Connector::new(first).expect("a connector");
        let to = listener.local_address();
        let connecting = near.begin_connect(&active.queue_pair, port_zero(first), to, &Offer::default());
        let peer = listener.next();
        Self { near, peer, active, passive, listener, connecting }
    }

    fn accept(&self) -> Started {
        self.peer.begin_accept(&self.passive.queue_pair, &Offer::default())
    }

    fn establish(&self) {
        let accepting = self.accept();
        assert_eq!(self.connecting.wait(), 0);
        assert_eq!(self.near.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
    }
}

/// Runs a trial on adapters with one time-out of two seconds.
fn with_time_out(keyword: &'static str, trial: impl FnOnce(&Adapter, &Adapter)) {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.push((keyword, "2000"));
    }
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        trial(&first, &second);
    });
}

/// Nothing before the time-out, `STATUS_IO_TIMEOUT` after it.
fn times_out(started: Started) {
    pass(Duration::from_millis(1500));
    assert!(!started.is_done(), "a time-out before its time");
    pass(Duration::from_millis(600));
    assert!(started.is_done(), "no time-out at its time");
    assert_eq!(started.wait(), STATUS_IO_TIMEOUT);
}

fn connect_that_no_context_answers_times_out() {
    with_time_out("ConnectTimeoutMs", |first, second| {
        let attempt = Attempt::begin(first, second);
        times_out(attempt.connecting);
        assert_eq!(attempt.accept().wait(), STATUS_CONNECTION_ABORTED, "too late");
        // Connector and queue pairs are as they were.
        let to = attempt.listener.local_address();
        let again = attempt.near.begin_connect(&attempt.active.queue_pair, port_zero(first), to, &Offer::default());
        let peer = attempt.listener.next();
        let accepting = peer.begin_accept(&attempt.passive.queue_pair, &Offer::default());
        assert_eq!(again.wait(), 0);
        assert_eq!(attempt.near.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
    });
}

fn accept_whose_peer_never_completes_times_out() {
    with_time_out("AcceptTimeoutMs", |first, second| {
        let attempt = Attempt::begin(first, second);
        // The consumer may take its time before it accepts.
        pass(Duration::from_secs(10));
        let accepting = attempt.accept();
        assert_eq!(attempt.connecting.wait(), 0);
        times_out(accepting);
        // A stream that is broken says no reason.
        let ended = if peers::across_streams() { STATUS_CONNECTION_ABORTED } else { STATUS_IO_TIMEOUT };
        assert_eq!(attempt.near.begin_complete_connect().wait(), ended);
        wait_until_idle();
        assert_eq!((attempt.near.disconnect_events(), attempt.peer.disconnect_events()), (0, 0));
    });
}

fn disconnect_that_is_never_answered_times_out() {
    with_time_out("DisconnectTimeoutMs", |first, second| {
        let attempt = Attempt::begin(first, second);
        attempt.establish();
        assert_eq!(attempt.active.queue_pair.receive(1, &[]), 0);
        let leaving = attempt.near.begin_disconnect();
        assert!(attempt.peer.wait_for_disconnect());
        times_out(leaving);
        assert_eq!(attempt.active.receive.wait_for_one().Status, STATUS_CANCELLED);
        wait_until_idle();
        assert_eq!((attempt.near.disconnect_events(), attempt.peer.disconnect_events()), (0, 1));
        assert_eq!(attempt.peer.begin_disconnect().wait(), 0, "the late answer has no waiting request");
    });
}

fn answers_in_time_are_no_time_outs() {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.extend(KEYWORDS.map(|keyword| (keyword, "2000")));
    }
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let attempt = Attempt::begin(&first, &second);
        let almost = || pass(Duration::from_millis(1900));
        almost();
        let accepting = attempt.accept();
        assert_eq!(attempt.connecting.wait(), 0);
        almost();
        assert_eq!(attempt.near.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        pass(Duration::from_secs(10));
        assert_eq!((attempt.near.disconnect_events(), attempt.peer.disconnect_events()), (0, 0));
        let leaving = attempt.near.begin_disconnect();
        almost();
        assert_eq!(attempt.peer.begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
    });
}

/// With the INF's defaults on one adapter and, on the other, values out of range that stand for the driver's own.
fn cards_time_outs_are_the_default() {
    let mut setup = Setup::default();
    setup.adapters[1].keywords.extend(KEYWORDS.map(|keyword| (keyword, "86400001")));
    with_machine(&setup, |machine| {
        let adapters = [machine.open(0), machine.open(1)];
        for (first, second) in [(&adapters[0], &adapters[1]), (&adapters[1], &adapters[0])] {
            give_up_like_a_card(first, second);
        }
    });
}

fn give_up_like_a_card(first: &Adapter, second: &Adapter) {
    let times_out = |started: Started| {
        pass(Duration::from_millis(29_900));
        assert!(!started.is_done(), "a time-out before its time");
        pass(Duration::from_millis(200));
        assert!(started.is_done(), "no time-out at its time");
        assert_eq!(started.wait(), STATUS_IO_TIMEOUT);
    };
    times_out(Attempt::begin(first, second).connecting);
    let attempt = Attempt::begin(first, second);
    let accepting = attempt.accept();
    assert_eq!(attempt.connecting.wait(), 0);
    times_out(accepting);
    let attempt = Attempt::begin(first, second);
    attempt.establish();
    assert_eq!(attempt.active.queue_pair.send(1, &[], NDK_OP_FLAGS::empty()), 0);
    pass(HOUR);
    if !peers::across_streams() {
        assert!(attempt.active.initiator.take(1).is_empty(), "a Send waits for its receive without limit");
    }
    assert_eq!(attempt.passive.queue_pair.receive(2, &[]), 0);
    assert_eq!(attempt.active.initiator.wait_for_one().Status, 0);
    times_out(attempt.near.begin_disconnect());
}

/// A consumer waits for each of its requests before it closes, and its peer does nothing at all: everything still comes to its
/// end, its open as well.
fn consumer_of_a_silent_peer_closes_its_open() {
    type Step = fn(&Attempt<'_, '_>) -> Started;
    let steps: [(Step, bool); 3] = [
        (|attempt| attempt.connecting, true),
        (
            |attempt| {
                let accepting = attempt.accept();
                assert_eq!(attempt.connecting.wait(), 0);
                accepting
            },
            false,
        ),
        (
            |attempt| {
                attempt.establish();
                attempt.near.begin_disconnect()
            },
            true,
        ),
    ];
    with_machine(&Setup::default(), |machine| {
        for (step, active) in steps {
            let (first, second) = (machine.open(0), machine.open(1));
            let attempt = Attempt::begin(&first, &second);
            let request = step(&attempt);
            pass(Duration::from_secs(31));
            assert_eq!(request.wait(), STATUS_IO_TIMEOUT);
            // The other side has called nothing yet, and keeps all of its objects.
            let Attempt { near, peer, active: a, passive: p, listener, .. } = attempt;
            if active {
                drop((near, a));
                drop(first);
                assert_eq!(machine.adapters[0].ndk_opens(), 0);
                drop((peer, p, listener));
            } else {
                drop((peer, p, listener));
                drop(second);
                assert_eq!(machine.adapters[1].ndk_opens(), 0);
                drop((near, a));
            }
        }
    });
}

fn without_time_outs_requests_wait() {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.extend(KEYWORDS.map(|keyword| (keyword, "0")));
    }
    with_machine(&setup, |machine| {
        let (first, second) = (&machine.open(0), &machine.open(1));
        let attempt = Attempt::begin(first, second);
        pass(HOUR);
        assert!(!attempt.connecting.is_done());
        let accepting = attempt.accept();
        assert_eq!(attempt.connecting.wait(), 0);
        pass(HOUR);
        assert!(!accepting.is_done());
        assert_eq!(attempt.near.begin_complete_connect().wait(), 0);
        assert_eq!(accepting.wait(), 0);
        let leaving = attempt.near.begin_disconnect();
        pass(HOUR);
        assert!(!leaving.is_done());
        assert_eq!(attempt.peer.begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
    });
}
