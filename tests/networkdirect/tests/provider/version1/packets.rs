//! Version 1's files: a packet for every overlapped call that does not fail, unless the event's lowest bit asks for none.

use super::super::client::*;
use super::super::ends::ALLOW_READ;
use super::ends::*;
use networkdirect::machine::{address, rest};
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    every_call_that_does_not_fail_leaves_a_packet,
    low_bits_of_events_keep_packets_away,
    notifications_tell_once
];

/// The packets that a file has left.
struct Port<'p> {
    program: &'p Program,
    handle: u64,
}

impl Port<'_> {
    fn next(&self) -> u64 {
        self.program.export("next_packet", &[self.handle, 0])
    }

    #[track_caller]
    fn brings(&self, overlapped: &Overlapped<'_>) {
        overlapped.wait();
        rest();
        assert_eq!(self.next(), overlapped.address);
        self.is_empty();
    }

    #[track_caller]
    fn is_empty(&self) {
        rest();
        assert_eq!(self.next(), 0, "a packet too many");
    }
}

impl Drop for Port<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.program.export("close_handle", &[self.handle]);
        }
    }
}

fn port_of<'p>(end: &End<'p>) -> Port<'p> {
    Port { program: end.program, handle: end.port() }
}

fn every_call_that_does_not_fail_leaves_a_packet() {
    between(false, |active, passive| {
        let program = active.program;
        let (here, there) = (port_of(active), port_of(passive));
        let one = || program.overlapped();
        // What fails leaves none.
        let (failed, place) = (one(), program.zeroed(8));
        active.adapter.expects(ADAPTER_REGISTER, &[active.buffer, 0, failed.address, place], INVALID_BUFFER_SIZE);
        active.adapter.expects(ADAPTER_DEREGISTER, &[0x1234, failed.address], INVALID_HANDLE);
        active.connector.expects(DISCONNECT, &[failed.address], CONNECTION_INVALID);
        assert_eq!(connect_to(active, address(2, 7330), &[0; 4000], &failed), BUFFER_OVERFLOW);
        here.is_empty();
        let registering = one();
        active.adapter.expects(ADAPTER_REGISTER, &[active.buffer, 4096, registering.address, place], PENDING);
        here.brings(&registering);
        let ending = one();
        active.adapter.expects(ADAPTER_DEREGISTER, &[program.u64_at(place), ending.address], PENDING);
        here.brings(&ending);
        let listener = listen(passive, 7330);
        let (arriving, connecting, accepting, completing) = (one(), one(), one(), one());
        listener.expects(CONNECTION_REQUEST, &[passive.connector.this, arriving.address], PENDING);
        there.is_empty();
        assert_eq!(connect_to(active, address(2, 7330), b"", &connecting), PENDING);
        there.brings(&arriving);
        assert_eq!(accept(passive, b"", &accepting), PENDING);
        here.brings(&connecting);
        active.connector.expects(COMPLETE, &[completing.address], PENDING);
        here.brings(&completing);
        there.brings(&accepting);
        // A region with a window is busy, which is no end of a request.
        let (window, descriptor, busy) = (passive.window(0), program.zeroed(20), one());
        assert_eq!(passive.bind(&window, 0, 64, ALLOW_READ, descriptor), SUCCESS);
        passive.succeeds();
        passive.adapter.expects(ADAPTER_DEREGISTER, &[passive.region, busy.address], DEVICE_BUSY);
        there.is_empty();
        let (told, notified, disconnecting) = (one(), one(), one());
        passive.connector.expects(NOTIFY_DISCONNECT, &[told.address], PENDING);
        passive.queue.expects(QUEUE_NOTIFY, &[1, notified.address], PENDING);
        assert_eq!(passive.receive(&[]), SUCCESS);
        there.is_empty();
        active.connector.expects(DISCONNECT, &[disconnecting.address], PENDING);
        here.brings(&disconnecting);
        rest();
        assert_eq!(there.next(), told.address, "the end first");
        assert_eq!(there.next(), notified.address, "then what is flushed");
        there.is_empty();
        let after = one();
        passive.connector.expects(DISCONNECT, &[after.address], PENDING);
        there.brings(&after);
        let early = one();
        passive.connector.expects(NOTIFY_DISCONNECT, &[early.address], PENDING);
        there.brings(&early);
    });
}

fn low_bits_of_events_keep_packets_away() {
    between(true, |active, passive| {
        let program = passive.program;
        let port = port_of(passive);
        let event = program.export("make_event", &[]);
        let quiet = || program.overlapped_with(event | 1);
        let signaled = || program.export("wait_event", &[event, 0]) == 0;
        assert!(!signaled());
        let (registering, place) = (quiet(), program.zeroed(8));
        let buffer = program.zeroed(4096);
        passive.adapter.expects(ADAPTER_REGISTER, &[buffer, 4096, registering.address, place], PENDING);
        assert_eq!(passive.adapter.finish1(PENDING, &registering), SUCCESS);
        assert!(signaled(), "the event tells");
        let ending = quiet();
        passive.adapter.expects(ADAPTER_DEREGISTER, &[program.u64_at(place), ending.address], PENDING);
        assert_eq!(passive.adapter.finish1(PENDING, &ending), SUCCESS);
        assert!(signaled());
        let notified = quiet();
        passive.queue.expects(QUEUE_NOTIFY, &[1, notified.address], PENDING);
        assert!(!signaled());
        assert_eq!(passive.receive(&[]), SUCCESS);
        assert_eq!(active.send(&[], 0), SUCCESS);
        active.succeeds();
        assert_eq!(passive.queue.finish1(PENDING, &notified), SUCCESS);
        assert!(signaled());
        passive.succeeds();
        port.is_empty();
        // Without the bit both tell.
        let both = program.overlapped_with(event);
        passive.connector.expects(NOTIFY_DISCONNECT, &[both.address], PENDING);
        disconnect(active);
        port.brings(&both);
        assert!(signaled());
        program.export("close_handle", &[event]);
    });
}

/// ANY, solicited ones, errors, and what was there before the queue was resized.
fn notifications_tell_once() {
    between(true, |active, passive| {
        let program = passive.program;
        let notify = |kind: u64| {
            let overlapped = program.overlapped();
            passive.queue.expects(QUEUE_NOTIFY, &[kind, overlapped.address], PENDING);
            rest();
            overlapped
        };
        for _ in 0..3 {
            assert_eq!(passive.receive(&[]), SUCCESS);
        }
        let (errors, solicited) = (notify(0), notify(2));
        assert_eq!(active.send(&[], 0), SUCCESS);
        active.succeeds();
        assert_eq!((errors.status(), solicited.status()), (PENDING, PENDING));
        passive.queue.expects(QUEUE_RESIZE, &[2 * DEPTH], SUCCESS);
        assert_eq!(active.send(&[], 4), SUCCESS);
        active.succeeds();
        assert_eq!(passive.queue.finish1(PENDING, &solicited), SUCCESS);
        let any = notify(1);
        assert_eq!(any.status(), PENDING, "what has told tells no more");
        assert_eq!(active.send(&[], 0), SUCCESS);
        active.succeeds();
        assert_eq!(passive.queue.finish1(PENDING, &any), SUCCESS);
        assert_eq!(passive.wait_for(3).len(), 3);
        disconnect(active);
    });
}
