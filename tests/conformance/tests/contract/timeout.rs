//! Time-outs of connections, which the registry sets and which are never by default.

use std::net::SocketAddr;
use std::time::Duration;

use conformance::case;
use conformance::consumer::{Adapter, Connector, End, Listener, Offer, QueuePairShape, Started};
use conformance::machine::{Setup, settle, with_machine, with_two_adapters};
use conformance::trial::Case;
use kernel_host::dispatcher;
use ndkpi_sys::nt::{STATUS_CANCELLED, STATUS_CONNECTION_ABORTED, STATUS_IO_TIMEOUT};

pub const CASES: &[Case] = &[
    case!(connect_that_nobody_answers_times_out: "NDK-CM-47", "NDK-CM-36", "NDK-LIM-6"),
    case!(accept_whose_peer_never_completes_times_out: "NDK-CM-48"),
    case!(disconnect_that_is_never_answered_times_out: "NDK-CM-49", "NDK-CM-24"),
    case!(answers_in_time_are_no_time_outs: "NDK-CM-47", "NDK-CM-48", "NDK-CM-49"),
    case!(without_time_outs_everybody_waits: "NDK-CM-31", "NDK-LIM-6"),
];

fn port_zero(adapter: &Adapter) -> SocketAddr {
    SocketAddr::new(adapter.address().ip(), 0)
}

/// Lets the machine's time pass.
fn pass(time: Duration) {
    dispatcher::delay(-i64::try_from(time.as_nanos() / 100).expect("a short time"));
}

/// A connection in the making.
struct Attempt<'a> {
    // In the order in which they may be closed.
    near: Connector,
    far: Connector,
    active: End<'a>,
    passive: End<'a>,
    listener: Listener,
    connecting: Started,
}

impl<'a> Attempt<'a> {
    fn begin(first: &'a Adapter, second: &'a Adapter) -> Self {
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(port_zero(second)), 0);
        let (active, passive) =
            (End::new(first, QueuePairShape::default()), End::new(second, QueuePairShape::default()));
        let near = Connector::new(first).expect("a connector");
        let to = listener.local_address();
        let connecting = near.begin_connect(&active.queue_pair, port_zero(first), to, &Offer::default());
        let far = listener.next();
        Self { near, far, active, passive, listener, connecting }
    }

    fn accept(&self) -> Started {
        self.far.begin_accept(&self.passive.queue_pair, &Offer::default())
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

fn connect_that_nobody_answers_times_out() {
    with_time_out("ConnectTimeoutMs", |first, second| {
        let attempt = Attempt::begin(first, second);
        times_out(attempt.connecting);
        assert_eq!(attempt.accept().wait(), STATUS_CONNECTION_ABORTED, "too late");
        // Connector and queue pairs are as they were.
        let to = attempt.listener.local_address();
        let again = attempt.near.begin_connect(&attempt.active.queue_pair, port_zero(first), to, &Offer::default());
        let far = attempt.listener.next();
        let accepting = far.begin_accept(&attempt.passive.queue_pair, &Offer::default());
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
        assert_eq!(attempt.near.begin_complete_connect().wait(), STATUS_IO_TIMEOUT);
        settle();
        assert_eq!((attempt.near.disconnect_events(), attempt.far.disconnect_events()), (0, 0));
    });
}

fn disconnect_that_is_never_answered_times_out() {
    with_time_out("DisconnectTimeoutMs", |first, second| {
        let attempt = Attempt::begin(first, second);
        attempt.establish();
        assert_eq!(attempt.active.queue_pair.receive(1, &[]), 0);
        let leaving = attempt.near.begin_disconnect();
        assert!(attempt.far.wait_for_disconnect());
        times_out(leaving);
        assert_eq!(attempt.active.receive.wait_for_one().Status, STATUS_CANCELLED);
        settle();
        assert_eq!((attempt.near.disconnect_events(), attempt.far.disconnect_events()), (0, 1));
        assert_eq!(attempt.far.begin_disconnect().wait(), 0, "the late answer has nobody to wait for");
    });
}

fn answers_in_time_are_no_time_outs() {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter
            .keywords
            .extend(["ConnectTimeoutMs", "AcceptTimeoutMs", "DisconnectTimeoutMs"].map(|keyword| (keyword, "2000")));
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
        assert_eq!((attempt.near.disconnect_events(), attempt.far.disconnect_events()), (0, 0));
        let leaving = attempt.near.begin_disconnect();
        almost();
        assert_eq!(attempt.far.begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
    });
}

fn without_time_outs_everybody_waits() {
    const HOUR: Duration = Duration::from_hours(1);
    with_two_adapters(|first, second| {
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
        assert_eq!(attempt.far.begin_disconnect().wait(), 0);
        assert_eq!(leaving.wait(), 0);
    });
}
