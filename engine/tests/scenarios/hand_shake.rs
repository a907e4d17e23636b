//! Hand-shakes between two contexts of one connection: a call is met by another at each of its points, those without a lock too, and
//! nothing is posted afterwards.
//!
//! A point is before each access to an atomic, inside of locks too. What two calls leave to one another must be done
//! when both have returned and the processors have served what they were scheduled for: a wake-up that is lost is not healed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use softndk_engine::limits::IN_PLACE_DISPATCH;
use softndk_engine::{
    Budget, CompletionQueue, Connector, Fabric, MemoryToken, Outcome, Pass, PostError, QueuePair, RequestFlags,
    Semantics,
};
use softndk_engine_kit::{
    A, B, Buffer, DISCONNECT, Depths, EVERYTHING, Event, Events, Harness, HarnessCounters, Pair, meanwhile, outcomes,
    sge,
};

/// Requests of each queue: few, so that it can be full.
const DEPTH: u32 = 4;

/// As many bytes as a post at DISPATCH_LEVEL processes in place.
const LONG: u32 = IN_PLACE_DISPATCH as u32;

/// What a context does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Write,
    /// At DISPATCH_LEVEL, of a list: it ends with the bound of what a post does in place.
    WriteLong,
    Read,
    Send,
    /// Of two scatter/gather elements.
    SendList,
    Receive,
    ReceiveList,
    Defer,
    /// Takes results of both ends, and posts as many requests as it took.
    Exchange,
    ServicePass,
    FlushA,
    FlushB,
    Disconnect,
}

use Act::{
    Defer, Disconnect, Exchange, FlushA, FlushB, Read, Receive, ReceiveList, Send, SendList, ServicePass, Write,
    WriteLong,
};

const ACTS: [Act; 13] = [
    Write,
    WriteLong,
    Read,
    Send,
    SendList,
    Receive,
    ReceiveList,
    Defer,
    Exchange,
    ServicePass,
    FlushA,
    FlushB,
    Disconnect,
];

impl Act {
    fn is_send(self) -> bool {
        matches!(self, Send | SendList)
    }

    fn is_receive(self) -> bool {
        matches!(self, Receive | ReceiveList)
    }

    /// Has what was deferred processed.
    fn kicks(self) -> bool {
        matches!(self, Write | WriteLong | Read | Send | SendList)
    }

    fn ends(self) -> bool {
        matches!(self, FlushA | FlushB | Disconnect)
    }
}

/// What was posted before.
const BEFORE: [&[Act]; 6] = [
    &[],
    &[Receive, ReceiveList],
    &[Defer],
    &[Send],
    &[Defer, Defer, Defer],
    &[Receive, Receive, Receive, ReceiveList],
];

/// Both ends for whichever context acts, and what came of it.
struct Ends {
    a: QueuePair<Harness>,
    b: QueuePair<Harness>,
    queues: [CompletionQueue<Harness>; 2],
    connectors: [Connector<Harness>; 2],
    fabric: Fabric<Harness>,
    counters: HarnessCounters,
    events: Mutex<Vec<Event>>,
    tokens: [MemoryToken; 3],
    /// The contexts of A's requests and of B's receives, in their order.
    posted: Mutex<[Vec<u64>; 2]>,
    completed: Mutex<[Vec<(u64, Outcome)>; 2]>,
    /// To be posted once more: two contexts that post to one queue at a time may be refused.
    again: Mutex<Vec<Act>>,
    last_context: AtomicU64,
}

impl Ends {
    fn take(&self) -> [usize; 2] {
        let taken = [0, 1].map(|of| outcomes(&self.queues[of]));
        let mut completed = self.completed.lock().unwrap();
        let counts = [taken[0].len(), taken[1].len()];
        for (all, taken) in completed.iter_mut().zip(taken) {
            all.extend(taken);
        }
        counts
    }

    fn post(&self, act: Act) {
        let of = usize::from(act.is_receive());
        let context = self.last_context.fetch_add(1, Ordering::SeqCst) + 1;
        let [near, far, remote] = self.tokens;
        let (one, none) = (sge(0, 64, near), RequestFlags::empty());
        let halves = |token| [sge(64, 32, token), sge(0, 32, token)].into_iter();
        let result = match act {
            Write => self.a.write(context, none, [one].into_iter(), 0, remote),
            WriteLong => {
                let list = [sge(0, 64, near), sge(64, LONG - 64, near)];
                self.a.write(context, none, list.into_iter(), 0, remote)
            }
            Defer => self.a.write(context, RequestFlags::DEFER, [one].into_iter(), 0, remote),
            Read => self.a.read(context, none, [one].into_iter(), 0, remote),
            Send => self.a.send(context, none, [one].into_iter()),
            SendList => self.a.send(context, none, halves(near)),
            Receive => self.b.receive(context, [sge(0, 64, far)].into_iter()),
            _ => self.b.receive(context, halves(far)),
        };
        match result {
            Ok(()) => self.posted.lock().unwrap()[of].push(context),
            Err(PostError::Concurrent) => self.again.lock().unwrap().push(act),
            Err(refused) => panic!("{act:?}: {refused:?}"),
        }
    }

    /// A pass of the processor that the other context is on.
    fn service_pass(&self) {
        let (budget, mut events) = (Budget { bytes: 1 << 20, items: 64 }, Events::new(self.counters.clone()));
        while self.fabric.service_pass(1, budget, &mut events) == Pass::More {}
        self.events.lock().unwrap().append(&mut events.seen);
    }

    fn act(&self, act: Act) {
        match act {
            Exchange => {
                let [sent, received] = self.take();
                (0..sent).for_each(|_| self.post(Write));
                (0..received).for_each(|_| self.post(Receive));
            }
            ServicePass => self.service_pass(),
            FlushA => {
                self.a.flush();
                self.service_pass();
            }
            FlushB => {
                self.b.flush();
                self.service_pass();
            }
            Disconnect => {
                self.connectors[0].disconnect(A + DISCONNECT).unwrap();
                // The other end may have ended already.
                let _answered = self.connectors[1].disconnect(B + DISCONNECT);
                self.service_pass();
            }
            post => self.post(post),
        }
    }
}

/// Whether a case says what becomes of everything in the end.
fn is_decided(before: &[Act], acts: [Act; 2]) -> bool {
    let all = || before.iter().copied().chain(acts);
    let count = |which: fn(Act) -> bool| all().filter(|act| which(*act)).count();
    let posted = all().filter(|act| act.kicks() || *act == Defer).count();
    let fits = posted <= DEPTH as usize && count(Act::is_receive) <= DEPTH as usize;
    if acts.iter().any(|act| act.ends()) {
        return fits && acts != [Disconnect, Disconnect];
    }
    let held = before.contains(&Defer) && !acts.iter().any(|act| act.kicks());
    fits && !held && !acts.contains(&Defer) && count(Act::is_send) <= count(Act::is_receive)
}

/// One meeting; whether there was such a point.
fn meet(before: &[Act], [act, doing]: [Act; 2], place: u32) -> bool {
    let depths = Depths { completions: 64, initiator: DEPTH, receive: DEPTH, sges: 2, inline: 0 };
    let mut pair = Pair::with(Semantics::NDK, depths);
    let length = if [act, doing].contains(&WriteLong) { LONG as usize } else { 128 };
    let buffers = [Buffer::new(length, 1), Buffer::new(length, 2)];
    let near = pair.a.register(&pair.world, &buffers[0], 0, EVERYTHING);
    let far = pair.b.register(&pair.world, &buffers[1], 0, EVERYTHING);
    let ends = Arc::new(Ends {
        a: pair.a.pair.clone(),
        b: pair.b.pair.clone(),
        queues: [pair.a.initiator.clone(), pair.b.receiver.clone()],
        connectors: [pair.a.connector.clone(), pair.b.connector.clone()],
        fabric: pair.world.fabric.clone(),
        counters: pair.world.counters.clone(),
        events: Mutex::default(),
        tokens: [near.local_token(), far.local_token(), far.remote_token()],
        posted: Mutex::default(),
        completed: Mutex::default(),
        again: Mutex::default(),
        last_context: AtomicU64::new(0),
    });
    pair.world.harness().scheduled.store(false, Ordering::SeqCst);
    for act in before {
        ends.act(*act);
    }
    let first = ends.posted.lock().unwrap()[0].clone();
    pair.world.harness().dispatch.store([act, doing].contains(&WriteLong), Ordering::SeqCst);
    let other = ends.clone();
    let done = meanwhile::at_point(place, || ends.act(act), move || other.act(doing));
    pair.world.harness().dispatch.store(false, Ordering::SeqCst);
    let case = format!("{act:?} met by {doing:?} at point {place} after {before:?}");
    if done {
        for again in std::mem::take(&mut *ends.again.lock().unwrap()) {
            ends.post(again);
        }
        let mut events = pair.world.run_what_is_scheduled();
        events.extend(pair.world.advance(1_000_000_000).into_iter().map(|(_, event)| event));
        events.extend(pair.world.run_what_is_scheduled());
        events.append(&mut ends.events.lock().unwrap());
        ends.take();
        check(&ends, [act, doing], &first, &events, &case);
    }
    drop(ends);
    drop((near.close(1), far.close(1)));
    pair.close();
    done
}

fn check(ends: &Ends, acts: [Act; 2], first: &[u64], events: &[Event], case: &str) {
    let (posted, completed) = (ends.posted.lock().unwrap(), ends.completed.lock().unwrap());
    let contexts = [0, 1].map(|of| completed[of].iter().map(|(context, _)| *context).collect::<BTreeSet<u64>>());
    for of in [0, 1] {
        assert_eq!(contexts[of].len(), completed[of].len(), "{case}: one request has completed twice: {completed:?}");
    }
    let all = |of: usize| posted[of].iter().all(|context| contexts[of].contains(context));
    if acts.contains(&FlushA) || acts.contains(&Disconnect) {
        assert!(all(0), "{case}: posted {posted:?}, completed {completed:?}");
    }
    if acts.contains(&FlushB) {
        assert!(all(1), "{case}: posted {posted:?}, completed {completed:?}");
    }
    if acts.contains(&Disconnect) {
        let told = events.iter().filter(|event| matches!(event, Event::Completed(of, _) if *of == A + DISCONNECT));
        assert_eq!(told.count(), 1, "{case}: {events:?}");
    }
    if acts.iter().any(|act| act.ends()) {
        return;
    }
    assert!(all(0), "{case}: posted {posted:?}, completed {completed:?}");
    let failed = completed.iter().flatten().find(|(_, outcome)| *outcome != Outcome::Success);
    assert_eq!(failed, None, "{case}");
    let order: Vec<u64> = completed[0].iter().map(|(context, _)| *context).take(first.len()).collect();
    assert_eq!(order, first, "{case}: what was posted before is done before");
}

/// Every decided case in which the first context does this.
fn at_every_point_of(act: Act) {
    let mut meetings = 0;
    for before in BEFORE {
        for doing in ACTS.into_iter().filter(|doing| is_decided(before, [act, *doing])) {
            let points = (1..5000).take_while(|place| meet(before, [act, doing], *place)).count();
            assert!(points < 4900, "{act:?}, {doing:?}: {points} points");
            meetings += points;
        }
    }
    assert!(meetings > 30, "{act:?}: {meetings} meetings");
}

macro_rules! acts {
    ($($name:ident $act:expr;)*) => {$(
        // Rule: BUG-4, BUG-5, NDK-QP-23
        #[test]
        fn $name() {
            at_every_point_of($act);
        }
    )*};
}

acts! {
    a_write_is_met_at_every_point Write;
    a_write_of_all_that_may_be_done_in_place_is_met_at_every_point WriteLong;
    a_read_is_met_at_every_point Read;
    a_send_is_met_at_every_point Send;
    a_send_of_a_list_is_met_at_every_point SendList;
    a_receive_is_met_at_every_point Receive;
    a_receive_of_a_list_is_met_at_every_point ReceiveList;
    a_deferred_write_is_met_at_every_point Defer;
    an_exchange_of_results_for_requests_is_met_at_every_point Exchange;
    a_service_pass_is_met_at_every_point ServicePass;
    a_flush_of_the_sender_is_met_at_every_point FlushA;
    a_flush_of_the_receiver_is_met_at_every_point FlushB;
    a_disconnect_is_met_at_every_point Disconnect;
}

/// An invalidation waits for a context that is inside a copy, which leaves at each of its points.
// Rule: NDK-MR-7, BUG-5
#[test]
fn an_invalidation_is_met_at_every_point_by_the_last_reader_that_leaves() {
    let points = (1..5000).take_while(|place| invalidate_while_a_reader_leaves(*place)).count();
    assert!((10..4900).contains(&points), "{points} points");
}

fn invalidate_while_a_reader_leaves(place: u32) -> bool {
    let mut pair = Pair::new();
    let buffer = Buffer::new(4096, 1);
    let near = pair.a.register(&pair.world, &buffer, 0, EVERYTHING);
    let (mapping, region) = (pair.b.build(&pair.world, &buffer), pair.b.fast_region(&pair.world));
    pair.b.fast_register(&region, mapping, 1, 0).unwrap();
    let (inside, is_inside) = mpsc::channel();
    let harness = pair.world.harness();
    harness.watch_copies.store(true, Ordering::SeqCst);
    *harness.before_copy.lock().unwrap() = Some(Box::new(move || {
        // An error: this is not the first copy.
        let _known = inside.send(());
        meanwhile::meet();
    }));
    harness.scheduled.store(false, Ordering::SeqCst);
    let (writing, from, to) = (&pair.a.pair, near.local_token(), region.remote_token());
    let (invalidating, of) = (&pair.b.pair, &region);
    let done = meanwhile::at_point_beside(
        place,
        || {
            is_inside.recv().unwrap();
            invalidating.invalidate(9, RequestFlags::empty(), of).unwrap();
        },
        || writing.write(1, RequestFlags::empty(), [sge(0, 64, from)].into_iter(), 0, to).unwrap(),
    );
    harness.watch_copies.store(false, Ordering::SeqCst);
    pair.world.run_what_is_scheduled();
    assert_eq!(outcomes(&pair.b.initiator), [(9, Outcome::Success)], "point {place}");
    pair.b.open.release_mapping(mapping);
    drop((near.close(1), region.close(1)));
    pair.close();
    done
}
