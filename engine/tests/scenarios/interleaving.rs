//! Two processors in every order of their steps: one call is made while another is under way.
//!
//! A step ends where a thread releases its last lock; the second call is made whole after the first, the second, … step of the
//! first call, until that has no more. The second call itself is never interrupted.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use softndk_engine::{
    Accept, Adapter, AdapterSettings, Budget, Connect, ConnectError, Connector, Fabric, Pass, QueuePair, ReadLimits,
    Requested, Semantics, Timeouts,
};
use softndk_engine_kit::MESSAGE_DELAY;
use softndk_engine_kit::meanwhile::at_every_step;
use softndk_engine_kit::{
    A, ACCEPT, B, CONNECT, DISCONNECT, Depths, Event, Events, FIRST, GONE, Harness, Pair, SECOND, World, meanwhile,
};

fn unconnected() -> Pair {
    Pair::unconnected(World::new(), Semantics::NDK, Depths::default())
}

/// What makes an address or adapter go.
const GOING: [fn(&Adapter<Harness>); 2] = [|adapter| adapter.set_addresses(&[]).unwrap(), Adapter::shut_down];

/// The service passes of another processor, and what came out of them.
#[derive(Clone)]
struct Other {
    fabric: Fabric<Harness>,
    events: Rc<RefCell<Events>>,
}

impl Other {
    fn of(pair: &Pair) -> Self {
        let events = Rc::new(RefCell::new(Events::new(pair.world.counters.clone())));
        Self { fabric: pair.world.fabric.clone(), events }
    }

    fn service_pass(&self) {
        let budget = Budget { bytes: 1 << 20, items: 64 };
        while self.fabric.service_pass(0, budget, &mut *self.events.borrow_mut()) == Pass::More {}
    }

    /// All events so far; arrived connectors that were not taken are closed.
    fn finish(self, pair: &mut Pair) -> Vec<Event> {
        let late = pair.world.run();
        let mut events = self.events.borrow_mut();
        events.seen.extend(late);
        for arrived in events.arrived.drain(..).chain(pair.world.events.arrived.drain(..)) {
            drop(arrived.close(B));
        }
        std::mem::take(&mut events.seen)
    }
}

fn connect(
    from: &Connector<Harness>,
    queue_pair: &QueuePair<Harness>,
    source: SocketAddr,
    port: u16,
) -> Result<(), ConnectError> {
    let request = Connect {
        queue_pair,
        source: softndk_engine::Source::Address(source),
        destination: SocketAddr::new(SECOND, port),
        limits: ReadLimits::default(),
        private_data: &[],
        callback: A + CONNECT,
    };
    from.connect(request).map(drop)
}

#[test]
fn a_connect_that_meets_the_end_of_an_address_completes_once_or_fails_and_leaves_nothing() {
    for (side, going) in [(0, GOING[0]), (0, GOING[1]), (1, GOING[0]), (1, GOING[1])] {
        at_every_step(|place| {
            let mut pair = unconnected();
            let adapter = if side == 0 { pair.world.first.clone() } else { pair.world.second.clone() };
            let other = Other::of(&pair);
            let mut requested = None;
            let doing = other.clone();
            let done = meanwhile::at_step(
                place,
                || requested = Some(pair.connect_request()),
                move || {
                    going(&adapter);
                    doing.service_pass();
                },
            );
            let events = other.finish(&mut pair);
            let completions = events.iter().filter(|event| matches!(event, Event::Completed(..))).count();
            let expected = usize::from(done && matches!(requested, Some(Ok(_))));
            assert_eq!(completions, expected, "step {place}: {requested:?}, then {events:?}");
            pair.close();
            done
        });
    }
}

#[test]
fn a_connection_that_ends_while_it_is_completed_is_over_for_the_accepting_side_too() {
    for going in GOING {
        at_every_step(|place| {
            let mut pair = unconnected();
            pair.connect_request().unwrap();
            pair.world.run();
            pair.take_arrived();
            pair.accept().unwrap();
            pair.world.run();
            let other = Other::of(&pair);
            let (doing, adapter) = (other.clone(), pair.world.first.clone());
            let mut completed = None;
            let done = meanwhile::at_step(
                place,
                || completed = Some(pair.a.connector.complete_connect(Some(A + GONE), 0)),
                move || {
                    going(&adapter);
                    doing.service_pass();
                },
            );
            assert!(completed.unwrap().is_ok(), "the end came after the first step");
            let events = other.finish(&mut pair);
            let on_message = |event| events.iter().filter(|other| **other == event).count();
            let accepted = on_message(Event::Completed(B + ACCEPT, Ok(())));
            let refused = on_message(Event::Completed(B + ACCEPT, Err(ConnectError::Aborted)));
            assert_eq!(
                (accepted + refused, on_message(Event::Disconnected(A + GONE))),
                (1, usize::from(done)),
                "{events:?}"
            );
            assert_eq!(
                on_message(Event::Disconnected(B + GONE)),
                if done { accepted } else { 0 },
                "step {place}: {events:?}"
            );
            pair.close();
            done
        });
    }
}

/// A refused consumer tries again from its callback with the same queue pair and port.
#[test]
fn a_refused_connect_finds_its_queue_pair_and_port_free() {
    let source = SocketAddr::new(FIRST, 2000);
    at_every_step(|place| {
        let mut pair = unconnected();
        connect(&pair.a.connector, &pair.a.pair, source, 445).unwrap();
        pair.world.deliver_messages();
        // The arrival is handed out; the connecting end needs no service.
        assert!(!pair.world.step(1));
        pair.take_arrived();
        let other = Other::of(&pair);
        let doing = other.clone();
        let (connector, queue_pair) = (pair.a.connector.clone(), pair.a.pair.clone());
        let done = meanwhile::at_step(
            place,
            || pair.b.connector.reject(&[]).unwrap(),
            move || {
                doing.service_pass();
                if doing.events.borrow().seen.contains(&Event::Completed(A + CONNECT, Err(ConnectError::Refused))) {
                    connect(&connector, &queue_pair, source, 445).unwrap();
                }
            },
        );
        other.finish(&mut pair);
        pair.close();
        done
    });
}

/// The accepting end is closed and the connecting end tries again elsewhere, both before the answer has been delivered.
#[test]
fn a_late_answer_is_not_taken_for_that_of_the_next_attempt() {
    at_every_step(|place| {
        let mut pair = unconnected();
        connect(&pair.a.connector, &pair.a.pair, SocketAddr::new(FIRST, 0), 445).unwrap();
        pair.world.run();
        pair.take_arrived();
        let other = Other::of(&pair);
        let (doing, there, open) = (other.clone(), pair.world.second.clone(), pair.b.open.clone());
        let (connector, queue_pair) = (pair.a.connector.clone(), pair.a.pair.clone());
        let consumer_object = pair.world.consumer_object(B + 7);
        let again = Rc::new(RefCell::new(None));
        let tried = again.clone();
        let mut accepted = None;
        let done = meanwhile::at_step(
            place,
            || accepted = Some(pair.accept()),
            move || {
                there.set_addresses(&[]).unwrap();
                doing.service_pass();
                there.set_addresses(&[SECOND]).unwrap();
                let listener = open.create_listener(B + 7, consumer_object).unwrap();
                // The first endpoint is counted until its connector is closed.
                listener.listen(SocketAddr::new(SECOND, 446), 0).unwrap();
                let refused =
                    doing.events.borrow().seen.contains(&Event::Completed(A + CONNECT, Err(ConnectError::Aborted)));
                if refused {
                    connect(&connector, &queue_pair, SocketAddr::new(FIRST, 0), 446).unwrap();
                }
                *tried.borrow_mut() = Some((listener, refused));
            },
        );
        let again = again.borrow_mut().take();
        let events = other.finish(&mut pair);
        if let Some((listener, refused)) = again {
            // The second attempt was not accepted; the arrival was closed.
            let answered = events.contains(&Event::Completed(A + CONNECT, Ok(())));
            assert!(!(refused && answered), "step {place}: {events:?}");
            drop(listener.close(B));
        }
        pair.close();
        done
    });
}

/// The peer ends the connection while the accepting side is about to learn that it is established.
#[test]
#[cfg_attr(feature = "streams", ignore = "a stream that is broken says no reason, and travels")]
fn a_disconnect_event_never_comes_before_the_accept_it_ends() {
    at_every_step(|place| {
        let mut pair = unconnected();
        pair.connect_request().unwrap();
        pair.world.run();
        pair.take_arrived();
        pair.accept().unwrap();
        pair.world.run();
        pair.a.connector.complete_connect(Some(A + GONE), 0).unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut other = Other::of(&pair);
        for events in [&mut pair.world.events, &mut *Rc::get_mut(&mut other.events).unwrap().borrow_mut()] {
            let log = log.clone();
            events.inside = Some(Box::new(move |event| log.lock().unwrap().push(event.clone())));
        }
        let (doing, peer) = (other.clone(), pair.a.connector.clone());
        let fabric = pair.world.fabric.clone();
        let budget = Budget { bytes: 1 << 20, items: 1 };
        let events = &mut pair.world.events;
        let done = meanwhile::at_step(
            place,
            || while fabric.service_pass(0, budget, events) == Pass::More {},
            move || {
                drop(peer.close(A));
                doing.service_pass();
            },
        );
        other.finish(&mut pair);
        let log = std::mem::take(&mut *log.lock().unwrap());
        let at = |wanted| log.iter().position(|event| *event == wanted);
        let (accepted, gone) = (at(Event::Completed(B + ACCEPT, Ok(()))), at(Event::Disconnected(B + GONE)));
        assert!(accepted.is_some() && (!done || gone > accepted), "step {place}: {log:?}");
        pair.close();
        done
    });
}

/// The same while the consumer is inside the completion of its Accept.
#[test]
fn a_disconnect_event_waits_for_the_callback_of_the_accept_to_return() {
    let mut pair = unconnected();
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair.accept().unwrap();
    pair.world.run();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (peer, fabric, counters) = (pair.a.connector.clone(), pair.world.fabric.clone(), pair.world.counters.clone());
    let meanwhile = seen.clone();
    pair.world.events.inside = Some(Box::new(move |event| {
        if *event == Event::Completed(B + ACCEPT, Ok(())) {
            drop(peer.close(A));
            let mut events = Events::new(counters.clone());
            while fabric.service_pass(0, Budget { bytes: 1 << 20, items: 64 }, &mut events) == Pass::More {}
            meanwhile.lock().unwrap().extend(events.seen);
        }
    }));
    pair.a.connector.complete_connect(Some(A + GONE), 0).unwrap();
    let events = pair.world.run();
    assert!(!seen.lock().unwrap().contains(&Event::Disconnected(B + GONE)), "{seen:?}");
    assert_eq!(events.last(), Some(&Event::Disconnected(B + GONE)), "{events:?}");
    pair.world.events.inside = None;
    pair.close();
}

#[test]
fn a_listener_whose_home_goes_while_it_begins_to_listen_has_no_endpoint() {
    for going in GOING {
        at_every_step(|place| {
            let pair = unconnected();
            let listener = pair.b.open.create_listener(B + 7, pair.world.consumer_object(B + 7)).unwrap();
            let adapter = pair.world.second.clone();
            let listen = || _ = listener.listen(SocketAddr::new(SECOND, 446), 0);
            let done = meanwhile::at_step(place, listen, move || going(&adapter));
            assert!(!done || listener.local_address().is_none(), "step {place}");
            drop(listener.close(B));
            pair.close();
            done
        });
    }
}

/// Longer than messages take.
const TIMEOUT: u64 = 1 + 10 * MESSAGE_DELAY;
const EACH: Timeouts = Timeouts { connect: TIMEOUT, accept: TIMEOUT, disconnect: TIMEOUT, receiver_not_ready: None };

/// An answer and the service pass that finds the time-out due, each made whole after a step of the other: whether both were
/// made, the answer's result, and all events.
fn met_by_its_time_out<T: 'static>(
    pair: &mut Pair,
    (place, swapped): (u32, bool),
    answer: impl FnOnce() -> T + 'static,
) -> (bool, Option<T>, Vec<Event>) {
    let (other, result) = (Other::of(pair), Rc::new(RefCell::new(None)));
    let (serving, answered) = (other.clone(), result.clone());
    pair.world.harness().timer_queue.fetch_add(10 * TIMEOUT, Ordering::SeqCst);
    let (service_pass, answer) = (move || serving.service_pass(), move || *answered.borrow_mut() = Some(answer()));
    let done = if swapped {
        meanwhile::at_step(place, answer, service_pass)
    } else {
        meanwhile::at_step(place, service_pass, answer)
    };
    let events = other.finish(pair);
    (done, result.take(), events)
}

/// Every place of both orders, until neither has one.
fn at_every_meeting(mut round: impl FnMut((u32, bool)) -> bool) {
    for swapped in [false, true] {
        at_every_step(|place| round((place, swapped)));
    }
}

fn count(events: &[Event], event: &Event) -> usize {
    events.iter().filter(|other| *other == event).count()
}

fn late_pair() -> Pair {
    let settings = AdapterSettings { timeouts: EACH, ..AdapterSettings::default() };
    let mut pair = Pair::unconnected(World::with_settings(settings), Semantics::NDK, Depths::default());
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
    pair
}

#[test]
fn an_accept_that_meets_the_time_out_of_its_connect_is_heard_or_fails() {
    at_every_meeting(|meeting| {
        let mut pair = late_pair();
        let (connector, queue_pair) = (pair.b.connector.clone(), pair.b.pair.clone());
        let accept = move || {
            let limits = ReadLimits { inbound: 1, outbound: 1 };
            let queue_pair = &queue_pair;
            connector.accept(Accept { queue_pair, limits, private_data: &[], disconnect: None, callback: B + ACCEPT })
        };
        let (done, accepted, events) = met_by_its_time_out(&mut pair, meeting, accept);
        if done {
            let connected = count(&events, &Event::Completed(A + CONNECT, Ok(())));
            let timed_out = count(&events, &Event::Completed(A + CONNECT, Err(ConnectError::TimedOut)));
            assert_eq!(connected + timed_out, 1, "{meeting:?}: {accepted:?}, then {events:?}");
            if connected == 1 {
                assert_eq!(accepted, Some(Ok(Requested::Pending)));
                pair.a.connector.complete_connect(None, 0).unwrap();
                assert_eq!(pair.world.run(), [Event::Completed(B + ACCEPT, Ok(()))]);
            } else {
                let inline = usize::from(accepted == Some(Err(ConnectError::Aborted)));
                let completed = count(&events, &Event::Completed(B + ACCEPT, Err(ConnectError::Aborted)));
                assert_eq!(inline + completed, 1, "{meeting:?}: {accepted:?}, then {events:?}");
            }
        }
        pair.close();
        done
    });
}

#[test]
#[cfg_attr(feature = "streams", ignore = "a stream that is broken says no reason, and travels")]
fn a_complete_connect_that_meets_the_time_out_of_the_accept_ends_for_both_sides_alike() {
    at_every_meeting(|meeting| {
        let mut pair = late_pair();
        pair.accept().unwrap();
        pair.world.run();
        let connector = pair.a.connector.clone();
        let complete = move || connector.complete_connect(Some(A + GONE), 0);
        let (done, completed, events) = met_by_its_time_out(&mut pair, meeting, complete);
        if done {
            let accepted = count(&events, &Event::Completed(B + ACCEPT, Ok(())));
            let timed_out = count(&events, &Event::Completed(B + ACCEPT, Err(ConnectError::TimedOut)));
            assert_eq!(accepted + timed_out, 1, "{meeting:?}: {completed:?}, then {events:?}");
            let stood = completed == Some(Ok(Requested::Done));
            assert!(stood || completed == Some(Err(ConnectError::TimedOut)) && timed_out == 1, "{completed:?}");
            // A side that was connected hears of the end.
            let on_message = count(&events, &Event::Disconnected(A + GONE));
            assert_eq!(on_message, usize::from(stood && timed_out == 1), "{meeting:?}: {completed:?}, then {events:?}");
        }
        pair.close();
        done
    });
}

#[test]
fn a_disconnect_that_meets_the_time_out_of_the_peers_completes_once_on_both_sides() {
    at_every_meeting(|meeting| {
        let mut pair = late_pair();
        pair.accept().unwrap();
        pair.world.run();
        pair.a.connector.complete_connect(Some(A + GONE), 0).unwrap();
        pair.world.run();
        pair.a.pair.receive(7, std::iter::empty()).unwrap();
        pair.a.connector.disconnect(A + DISCONNECT).unwrap();
        pair.world.run();
        let connector = pair.b.connector.clone();
        let leave = move || connector.disconnect(B + DISCONNECT);
        let (done, answered, events) = met_by_its_time_out(&mut pair, meeting, leave);
        if done {
            assert_eq!(answered, Some(Ok(Requested::Pending)));
            for side in [A, B] {
                let ends =
                    events.iter().filter(|event| matches!(event, Event::Completed(of, _) if *of == side + DISCONNECT));
                assert_eq!(ends.count(), 1, "{meeting:?}: {events:?}");
            }
            assert_eq!(count(&events, &Event::Disconnected(A + GONE)), 0, "{meeting:?}: {events:?}");
        }
        pair.close();
        done
    });
}
