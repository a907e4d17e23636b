//! Memory windows: tokens, order, edges to regions and queue pairs, and that binding allocates nothing (`allocation.rs`).

use softndk_engine::{
    Close, Deregistered, MemoryRegion, MemoryToken, MemoryWindow, Operation, Outcome, PostError, RegionError,
    RequestFlags, Rights, limits,
};
use softndk_engine_kit::{self as kit, A, B, Buffer, CLOSE, Event, Pair, meanwhile, outcomes, sge};

const NONE: RequestFlags = RequestFlags::empty();
const BASE: u64 = 0x7000;
const LENGTH: u64 = 4096;

/// A connection whose B side lends memory to A.
struct Scene {
    pair: Pair,
    buffer: Buffer,
    sink: MemoryRegion<kit::Harness>,
    region: MemoryRegion<kit::Harness>,
    window: MemoryWindow<kit::Harness>,
}

impl Scene {
    fn new() -> Self {
        let pair = Pair::new();
        let buffer = Buffer::new(LENGTH as usize, 7);
        let sink = pair.a.register(&pair.world, &Buffer::new(LENGTH as usize, 0), 0, Rights::LOCAL_WRITE);
        let region = pair.b.register(&pair.world, &buffer, BASE, Rights::LOCAL_WRITE);
        let window = pair.b.domain.create_memory_window(pair.world.consumer_object(B + 60)).unwrap();
        Self { pair, buffer, sink, region, window }
    }

    fn post_bind(&self, flags: RequestFlags) -> Result<(), PostError> {
        self.pair.b.pair.bind(1, flags, &self.region, &self.window, BASE, LENGTH, Rights::REMOTE_READ)
    }

    fn bind(&self) -> MemoryToken {
        self.post_bind(RequestFlags::SILENT_SUCCESS).unwrap();
        self.window.remote_token()
    }

    fn invalidate(&self) -> Vec<(u64, Outcome)> {
        self.pair.b.pair.invalidate_window(2, NONE, &self.window).unwrap();
        outcomes(&self.pair.b.initiator)
    }

    fn read(&self, token: MemoryToken) -> Outcome {
        let list = [sge(0, 64, self.sink.local_token())];
        self.pair.a.pair.read(3, NONE, list.into_iter(), BASE, token).unwrap();
        outcomes(&self.pair.a.initiator)[0].1
    }

    /// A Read or Write of a stretch of the region's labels, through the window.
    fn access(&self, operation: Operation, address: u64, length: u32) -> Outcome {
        let (list, token) = ([sge(0, length, self.sink.local_token())].into_iter(), self.window.remote_token());
        match operation {
            Operation::Read => self.pair.a.pair.read(3, NONE, list, address, token),
            _ => self.pair.a.pair.write(3, NONE, list, address, token),
        }
        .unwrap();
        outcomes(&self.pair.a.initiator)[0].1
    }

    fn close(self) {
        drop(self.window.close(B + 60));
        drop(self.region.close(B + 61));
        drop(self.sink.close(A + 61));
        self.pair.close();
    }
}

#[test]
fn every_bind_has_a_token_of_its_own_through_all_generations() {
    let scene = Scene::new();
    let mut last = scene.window.remote_token();
    for _ in 0..5000 {
        let token = scene.bind();
        assert_ne!(token, last);
        assert_ne!(token, MemoryToken::NONE);
        assert_eq!(token.0 & 0xF_FFFF, last.0 & 0xF_FFFF, "one slot of the table");
        assert_eq!(scene.invalidate(), [(2, Outcome::Success)]);
        last = token;
    }
    let token = scene.bind();
    assert_eq!(scene.read(token), Outcome::Success);
    assert_eq!(scene.read(last), Outcome::RemoteError);
    scene.close();
}

#[test]
fn a_token_that_was_never_good_is_not_the_next_tenants() {
    let scene = Scene::new();
    let mut promised = vec![scene.window.remote_token()];
    let slot = promised[0].0 & 0xF_FFFF;
    for _ in 0..3 {
        scene.post_bind(RequestFlags::DEFER).unwrap();
        promised.push(scene.window.remote_token());
    }
    scene.pair.b.pair.flush();
    drop(scene.window.close(B + 60));
    // The next window in the slot has a token that was not given to a peer before.
    let regions: Vec<_> =
        (0..300).map(|_| scene.pair.b.register(&scene.pair.world, &scene.buffer, BASE, Rights::all())).collect();
    let tenant =
        regions.iter().find(|region| region.remote_token().0 & 0xF_FFFF == slot).expect("the slot is used again");
    assert!(!promised.contains(&tenant.remote_token()), "{:?} after {promised:?}", tenant.remote_token());
    for region in &regions {
        drop(region.close(1));
    }
    scene.close();
}

#[test]
fn a_token_promised_by_a_held_bind_opens_nothing_yet() {
    let scene = Scene::new();
    scene.post_bind(RequestFlags::DEFER).unwrap();
    assert_eq!(scene.read(scene.window.remote_token()), Outcome::RemoteError);
    scene.close();
}

#[test]
fn a_region_is_busy_and_its_close_pends_while_a_window_is_bound() {
    let mut scene = Scene::new();
    let token = scene.bind();
    assert!(matches!(scene.region.deregister(9), Err(RegionError::WindowsBound)));
    assert!(matches!(scene.region.close(B + 61), Close::Pending));
    assert_eq!(scene.pair.world.run(), []);
    assert_eq!(scene.read(token), Outcome::Success, "an early close changes nothing for the window");
    assert_eq!(scene.invalidate(), [(2, Outcome::Success)]);
    assert_eq!(scene.pair.world.run(), [Event::Closed(B + 61, 50)]);
    scene.close();
}

#[test]
fn a_bind_to_a_region_whose_close_has_begun_fails_and_holds_nothing() {
    let mut scene = Scene::new();
    let other = scene.pair.b.domain.create_memory_window(scene.pair.world.consumer_object(B + 62)).unwrap();
    scene.bind();
    // Held until the region is being closed, which the first window keeps from completing.
    scene.pair.b.pair.bind(4, RequestFlags::DEFER, &scene.region, &other, BASE, 1, Rights::REMOTE_READ).unwrap();
    assert!(matches!(scene.region.close(B + 61), Close::Pending));
    scene.pair.b.pair.schedule_held();
    assert_eq!(outcomes(&scene.pair.b.initiator), [(4, Outcome::InvalidRequest)]);
    drop(scene.window.close(B + 60));
    assert_eq!(scene.pair.world.run().iter().filter(|event| **event == Event::Closed(B + 61, 50)).count(), 1);
    drop(other.close(B + 62));
    scene.close();
}

#[test]
fn each_way_of_unbinding_lets_the_region_close() {
    for way in 0..4 {
        let mut scene = Scene::new();
        let token = scene.bind();
        assert!(matches!(scene.region.close(B + 61), Close::Pending));
        let closed = |events: Vec<Event>| events.contains(&Event::Closed(B + 61, 50));
        assert!(!closed(scene.pair.world.run()));
        match way {
            0 => assert_eq!(scene.invalidate(), [(2, Outcome::Success)]),
            1 => {
                scene.pair.b.pair.receive(5, std::iter::empty()).unwrap();
                scene.pair.a.pair.send_and_invalidate(6, NONE, std::iter::empty(), token).unwrap();
                assert_eq!(outcomes(&scene.pair.b.receiver), [(5, Outcome::Success)]);
            }
            2 => drop(scene.window.close(B + 60)),
            _ => drop(scene.pair.b.pair.close(B + CLOSE)),
        }
        assert!(closed(scene.pair.world.run()), "way {way}");
        scene.close();
    }
}

/// The end comes from either side, with or without grace; the queue pair stays open.
#[test]
fn the_end_of_the_queue_pair_unbinds_its_windows() {
    for way in 0..4 {
        let mut scene = Scene::new();
        scene.pair.speak();
        let token = scene.bind();
        assert!(matches!(scene.region.close(B + 61), Close::Pending));
        let (owner, peer) = (&scene.pair.b.connector, &scene.pair.a.connector);
        match way {
            0 => {
                owner.disconnect(B + 22).unwrap();
            }
            1 => drop(peer.close(A + CLOSE)),
            2 => scene.pair.b.pair.flush(),
            // A request that fails.
            _ => scene.pair.b.pair.read(1, NONE, [sge(0, 1, token)].into_iter(), 0, token).unwrap(),
        }
        let mut events = scene.pair.world.run();
        if way == 0 {
            assert!(!events.contains(&Event::Closed(B + 61, 50)), "the peer has not answered");
            peer.disconnect(A + 22).unwrap();
            events = scene.pair.world.run();
        }
        assert!(events.contains(&Event::Closed(B + 61, 50)), "way {way}: {events:?}");
        scene.close();
    }
}

/// A message that invalidates a window waits for a receive, and the window is unbound by a flush of its queue pair. Nothing says when
/// the message fails for that: here it looks at the token again when its queue pair runs next. It completes once.
// Rule: NDK-QP-8, NDK-QP-30, BUG-4
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_message_whose_window_is_unbound_while_it_waits_completes_once() {
    for (posts, outcome) in [(false, Outcome::Cancelled), (true, Outcome::RemoteError)] {
        let mut scene = Scene::new();
        let token = scene.bind();
        scene.pair.a.pair.send_and_invalidate(6, RequestFlags::SILENT_SUCCESS, std::iter::empty(), token).unwrap();
        scene.pair.b.pair.flush();
        scene.pair.world.run();
        assert_eq!(outcomes(&scene.pair.a.initiator), [], "it goes on waiting");
        let mut expected = vec![(6, outcome)];
        if posts {
            scene.pair.a.pair.send(7, NONE, std::iter::empty()).unwrap();
            expected.push((7, Outcome::Cancelled));
        } else {
            drop(scene.pair.b.connector.close(CLOSE));
        }
        scene.pair.world.run();
        assert_eq!(outcomes(&scene.pair.a.initiator), expected);
        scene.close();
    }
}

#[test]
fn a_bind_that_meets_the_close_of_its_window_leaves_the_region_free() {
    for closing_first in [true, false] {
        meanwhile::at_every_step(|place| {
            let mut scene = Scene::new();
            let (queue_pair, region, window) = (scene.pair.b.pair.clone(), scene.region.clone(), scene.window.clone());
            let close = {
                let window = window.clone();
                move || drop(window.close(B + 60))
            };
            let bind = move || _ = queue_pair.bind(1, NONE, &region, &window, BASE, LENGTH, Rights::REMOTE_READ);
            let done = if closing_first {
                meanwhile::at_step(place, close, bind)
            } else {
                meanwhile::at_step(place, bind, close)
            };
            if !done && !closing_first {
                drop(scene.window.close(B + 60));
            }
            let closed = match scene.region.close(B + 61) {
                Close::Done(_) => true,
                Close::Pending => scene.pair.world.run().contains(&Event::Closed(B + 61, 50)),
            };
            assert!(closed, "step {place}, the close first: {closing_first}");
            scene.close();
            done
        });
    }
}

/// A region whose close waits for a window is closed after the window that is closed under it.
#[test]
#[cfg_attr(feature = "streams", ignore = "no Send across a stream waits for its receive")]
fn a_bound_window_is_closed_before_the_region_below_it() {
    let mut scene = Scene::new();
    scene.bind();
    assert!(matches!(scene.region.close(B + 61), Close::Pending));
    // A context is still inside, so both closes have to wait for it.
    let window = scene.window.clone();
    let mut copies = 0;
    *scene.pair.world.harness().before_copy.lock().unwrap() = Some(Box::new(move || {
        copies += 1;
        if copies == 1 {
            assert!(matches!(window.close(B + 60), Close::Pending));
        }
    }));
    scene.pair.world.harness().watch_copies.store(true, std::sync::atomic::Ordering::SeqCst);
    let token = scene.window.remote_token();
    let list = [sge(0, 64, scene.sink.local_token())];
    scene.pair.a.pair.read(3, NONE, list.into_iter(), BASE, token).unwrap();
    let events = scene.pair.world.run();
    assert_eq!(events, [Event::Closed(B + 60, B + 60), Event::Closed(B + 61, 50)]);
    *scene.pair.world.harness().before_copy.lock().unwrap() = None;
    scene.close();
}

#[test]
fn a_closed_queue_pair_leaves_nothing_bound() {
    let mut scene = Scene::new();
    scene.bind();
    drop(scene.pair.b.pair.close(B + CLOSE));
    scene.pair.world.run();
    let Ok(Deregistered::Done(_)) = scene.region.deregister(9) else { panic!("nothing is bound any more") };
    scene.close();
}

#[test]
fn many_windows_of_one_queue_pair_are_unbound_in_any_order() {
    let mut scene = Scene::new();
    let windows: Vec<_> = (0..7)
        .map(|number| {
            let window =
                scene.pair.b.domain.create_memory_window(scene.pair.world.consumer_object(B + 70 + number)).unwrap();
            let rights = Rights::REMOTE_READ;
            let flags = RequestFlags::SILENT_SUCCESS;
            scene.pair.b.pair.bind(1, flags, &scene.region, &window, BASE, LENGTH, rights).unwrap();
            window
        })
        .collect();
    for index in [3, 0, 6, 1] {
        scene.pair.b.pair.invalidate_window(2, NONE, &windows[index]).unwrap();
        assert_eq!(outcomes(&scene.pair.b.initiator), [(2, Outcome::Success)], "window {index}");
    }
    for index in [2, 4, 5] {
        assert_eq!(scene.read(windows[index].remote_token()), Outcome::Success);
    }
    drop(scene.pair.b.pair.close(B + CLOSE));
    scene.pair.world.run();
    assert!(matches!(scene.region.deregister(9), Ok(Deregistered::Done(_))));
    for window in windows {
        drop(window.close(1));
    }
    scene.close();
}

/// A Read in pieces meets the close of the window between two of them.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_piece_after_the_unbinding_is_refused() {
    const LONG: usize = 8 * limits::PIECE as usize;
    let mut pair = Pair::new();
    let buffer = Buffer::new(LONG, 7);
    let sink = Buffer::new(LONG, 0);
    let near = pair.a.register(&pair.world, &sink, 0, Rights::LOCAL_WRITE);
    let peer = pair.b.register(&pair.world, &buffer, 0, Rights::LOCAL_WRITE);
    let window = pair.b.domain.create_memory_window(pair.world.consumer_object(1)).unwrap();
    pair.b.pair.bind(1, NONE, &peer, &window, 0, LONG as u64, Rights::REMOTE_READ).unwrap();
    let closing = window.clone();
    let mut copies = 0;
    *pair.world.harness().before_copy.lock().unwrap() = Some(Box::new(move || {
        copies += 1;
        if copies == 3 {
            drop(closing.close(77));
        }
    }));
    pair.world.harness().watch_copies.store(true, std::sync::atomic::Ordering::SeqCst);
    let list = [sge(0, LONG as u32, near.local_token())];
    pair.a.pair.read(2, NONE, list.into_iter(), 0, window.remote_token()).unwrap();
    let events = pair.world.run();
    assert!(events.contains(&Event::Closed(77, 1)), "{events:?}");
    assert_eq!(outcomes(&pair.a.initiator), [(2, Outcome::RemoteError)]);
    assert_eq!(sink.read(LONG - 64, 64), [0; 64]);
    *pair.world.harness().before_copy.lock().unwrap() = None;
    drop(near.close(1));
    drop(peer.close(1));
    pair.close();
}

/// Each access has a connection of its own, because a refused one ends it.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_window_opens_its_range_with_its_rights_and_not_a_byte_more() {
    const FROM: u64 = BASE + 100;
    let (read, write) = (Rights::REMOTE_READ, Rights::REMOTE_WRITE);
    for (rights, operation, address, length, fits) in [
        (read, Operation::Read, FROM, 50, true),
        (read, Operation::Read, FROM + 49, 1, true),
        (read, Operation::Read, FROM, 51, false),
        (read, Operation::Read, FROM - 1, 1, false),
        (read, Operation::Read, FROM + 50, 1, false),
        (read, Operation::Write, FROM, 1, false),
        (write, Operation::Write, FROM, 50, true),
        (write, Operation::Write, FROM, 51, false),
        (write, Operation::Read, FROM, 1, false),
    ] {
        let scene = Scene::new();
        scene
            .pair
            .b
            .pair
            .bind(1, RequestFlags::SILENT_SUCCESS, &scene.region, &scene.window, FROM, 50, rights)
            .unwrap();
        let expected = if fits { Outcome::Success } else { Outcome::RemoteError };
        assert_eq!(
            scene.access(operation, address, length),
            expected,
            "{rights:?} {operation:?} {address:#x} {length}"
        );
        scene.close();
    }
}

/// The peer of another queue pair, of the same protection domain, has the token.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn only_the_peer_of_the_queue_pair_it_was_bound_through_uses_a_window() {
    for invalidates in [false, true] {
        let mut scene = Scene::new();
        let token = scene.bind();
        let (unrelated, host) = scene.pair.another_connection(&scene.pair.b.domain.clone());
        let there = Buffer::new(64, 0);
        let target = scene.pair.b.register(&scene.pair.world, &there, 0, Rights::LOCAL_WRITE);
        if invalidates {
            let source = unrelated.register(&scene.pair.world, &Buffer::new(64, 9), 0, Rights::empty());
            host.pair.receive(5, [sge(0, 64, target.local_token())].into_iter()).unwrap();
            let message = [sge(0, 64, source.local_token())].into_iter();
            unrelated.pair.send_and_invalidate(4, NONE, message, token).unwrap();
            drop(source.close(1));
        } else {
            let sink = unrelated.register(&scene.pair.world, &Buffer::new(64, 0), 0, Rights::LOCAL_WRITE);
            unrelated.pair.read(4, NONE, [sge(0, 64, sink.local_token())].into_iter(), BASE, token).unwrap();
            drop(sink.close(1));
        }
        assert_eq!(outcomes(&unrelated.initiator), [(4, Outcome::RemoteError)]);
        assert_eq!(there.read(0, 64), [0; 64], "refused before the first byte");
        drop(target.close(1));
        assert_eq!(scene.read(token), Outcome::Success, "nothing has changed for the rightful peer");
        scene.pair.close_other_connection(&unrelated, &host);
        scene.close();
    }
}

/// Refused at once; the window stays as it was.
#[test]
fn a_bind_takes_a_stretch_of_its_region_and_rights_the_region_has() {
    let pair = Pair::new();
    let window = pair.b.domain.create_memory_window(pair.world.consumer_object(1)).unwrap();
    let before = window.remote_token();
    let regions = [Rights::empty(), Rights::LOCAL_WRITE]
        .map(|rights| pair.b.register(&pair.world, &Buffer::new(LENGTH as usize, 0), BASE, rights));
    let (read, write) = (Rights::REMOTE_READ, Rights::REMOTE_WRITE);
    for (region, address, length, rights, answer) in [
        (0, BASE, LENGTH, write, Err(PostError::AccessDenied)),
        (0, BASE, LENGTH, read | write, Err(PostError::AccessDenied)),
        (1, BASE, 0, read, Err(PostError::BadParameter)),
        (1, BASE, LENGTH + 1, read, Err(PostError::BadParameter)),
        (1, BASE - 1, 1, read, Err(PostError::BadParameter)),
        (1, BASE + LENGTH, 1, read, Err(PostError::BadParameter)),
        (1, BASE, u64::MAX, read, Err(PostError::BadParameter)),
        (0, BASE, LENGTH, read, Ok(())),
        (1, BASE + LENGTH - 1, 1, read | write, Ok(())),
    ] {
        let posted =
            pair.b.pair.bind(1, RequestFlags::SILENT_SUCCESS, &regions[region], &window, address, length, rights);
        assert_eq!(posted, answer, "region {region}: {address:#x} {length:#x} {rights:?}");
        if posted.is_ok() {
            pair.b.pair.invalidate_window(2, RequestFlags::SILENT_SUCCESS, &window).unwrap();
        } else {
            assert_eq!(window.remote_token(), before);
        }
    }
    assert_eq!(outcomes(&pair.b.initiator), []);
    drop(window.close(1));
    drop(regions.map(|region| region.close(1)));
    pair.close();
}

/// A region, a window and a queue pair of three protection domains do not meet in a request.
#[test]
fn a_window_is_bound_and_invalidated_within_its_protection_domain() {
    let pair = Pair::new();
    let other = pair.b.open.create_protection_domain(pair.world.consumer_object(1)).unwrap();
    let windows =
        [&pair.b.domain, &other].map(|domain| domain.create_memory_window(pair.world.consumer_object(2)).unwrap());
    let regions = [&pair.b.domain, &other].map(|domain| {
        let region = domain.create_memory_region(false, pair.world.consumer_object(3)).unwrap();
        let memory = pair.world.map(&Buffer::new(64, 0));
        let registration = softndk_engine::Registration { memory, base: 0, length: 64, rights: Rights::LOCAL_WRITE };
        region.register(registration).map_err(|(error, _)| error).unwrap();
        region
    });
    for (region, window) in [(0, 1), (1, 0), (1, 1)] {
        let posted = pair.b.pair.bind(1, NONE, &regions[region], &windows[window], 0, 1, Rights::REMOTE_READ);
        assert_eq!(posted, Err(PostError::BadParameter), "{region} {window}");
    }
    assert_eq!(pair.b.pair.invalidate_window(1, NONE, &windows[1]), Err(PostError::BadParameter));
    drop(windows.map(|window| window.close(1)));
    drop(regions.map(|region| region.close(1)));
    drop(other.close(1));
    pair.close();
}

/// The close of the region waits for the last of its windows, and the access through it does not end before.
#[test]
fn a_region_with_two_windows_is_closed_after_the_second() {
    let mut scene = Scene::new();
    let second = scene.pair.b.domain.create_memory_window(scene.pair.world.consumer_object(B + 62)).unwrap();
    scene.bind();
    let flags = RequestFlags::SILENT_SUCCESS;
    scene.pair.b.pair.bind(1, flags, &scene.region, &second, BASE, LENGTH, Rights::REMOTE_READ).unwrap();
    assert!(matches!(scene.region.close(B + 61), Close::Pending));
    assert_eq!(scene.invalidate(), [(2, Outcome::Success)]);
    assert_eq!(scene.pair.world.run(), []);
    assert_eq!(scene.read(second.remote_token()), Outcome::Success);
    scene.pair.b.pair.invalidate_window(3, flags, &second).unwrap();
    assert_eq!(scene.pair.world.run(), [Event::Closed(B + 61, 50)]);
    drop(second.close(1));
    scene.close();
}

/// The memory comes back at once, though the window is bound; its end does not count for the next registration.
#[test]
fn a_revoked_registration_denies_its_windows_and_is_not_kept_by_them() {
    let scene = Scene::new();
    let token = scene.bind();
    assert!(matches!(scene.region.deregister(B + 62), Err(RegionError::WindowsBound)));
    let Ok(Deregistered::Done(retired)) = scene.region.revoke(B + 62) else { panic!("nothing copies") };
    drop(retired);
    let next = scene.pair.world.map(&scene.buffer);
    let registration = softndk_engine::Registration { memory: next, base: BASE, length: LENGTH, rights: Rights::all() };
    scene.region.register(registration).map_err(|(error, _)| error).unwrap();
    let other = scene.pair.b.domain.create_memory_window(scene.pair.world.consumer_object(B + 63)).unwrap();
    scene.pair.b.pair.bind(1, RequestFlags::SILENT_SUCCESS, &scene.region, &other, BASE, 1, Rights::empty()).unwrap();
    assert_eq!(scene.invalidate(), [(2, Outcome::Success)]);
    assert!(matches!(scene.region.deregister(B + 62), Err(RegionError::WindowsBound)), "by the other window");
    drop(other.close(B + 63));
    assert!(matches!(scene.region.deregister(B + 62), Ok(Deregistered::Done(_))));
    assert_eq!(scene.read(token), Outcome::RemoteError);
    scene.close();
}
