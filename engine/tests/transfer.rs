//! Bytes through a connected pair: Read, Write, Send over both kinds of regions and logical addresses.

mod pair;

use pair::{A, B, Buffer, EVERYTHING, Pair, element, outcomes, polled};
use softndk_engine::{MemoryToken, Operation, Outcome, RequestFlags, Rights};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

const NONE: RequestFlags = RequestFlags::empty();

#[test]
fn a_connected_pair_closes_without_anything_left() {
    Pair::new().close();
}

#[test]
fn read_brings_each_length_and_nothing_more() {
    for length in [0, 1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 65535, 65536, 65537, (1 << 20) + 3] {
        let mut pair = Pair::new();
        let (here, there) = (Buffer::new(length + 2, 0xee), Buffer::new(length + 1, 0));
        there.write(0, &pattern(length));
        let local = pair.a.register(&pair.world, &here, 0x1000, Rights::LOCAL_WRITE);
        let remote = pair.b.register(&pair.world, &there, 0x7000, Rights::REMOTE_READ);
        let list = [element(0x1001, length as u32, local.local_token())];
        pair.a.pair.read(1, NONE, list.into_iter(), 0x7000, remote.remote_token()).unwrap();
        pair.world.run();
        assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)], "length {length}");
        assert_eq!(here.read(1, length), pattern(length));
        assert_eq!((here.read(0, 1), here.read(length + 1, 1)), (vec![0xee], vec![0xee]));
        drop((local.close(1), remote.close(1)));
        pair.close();
    }
}

#[test]
fn write_moves_a_scattered_message_into_place() {
    let mut pair = Pair::new();
    let (here, there) = (Buffer::new(300, 0), Buffer::new(200, 0));
    here.write(0, &pattern(300));
    let local = pair.a.register(&pair.world, &here, 0, Rights::empty());
    let remote = pair.b.register(&pair.world, &there, 0, EVERYTHING);
    let token = local.local_token();
    let list =
        [element(200, 100, token), element(0, 0, MemoryToken::NONE), element(10, 1, token), element(50, 99, token)];
    pair.a.pair.write(9, NONE, list.into_iter(), 0, remote.remote_token()).unwrap();
    assert_eq!(outcomes(&pair.a.initiator), [(9, Outcome::Success)]);
    let expected = [&pattern(300)[200..300], &pattern(300)[10..11], &pattern(300)[50..149]].concat();
    assert_eq!(there.read(0, 200), expected);
    drop((local.close(1), remote.close(1)));
    pair.world.run();
    pair.close();
}

#[test]
fn send_fills_the_receive_and_completes_both_sides() {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(100, 0), Buffer::new(100, 0));
    here.write(0, &pattern(100));
    let local = pair.a.opening.build_mapping(pair.world.map(&here)).map_err(|(error, _)| error).unwrap();
    let remote = pair.b.opening.build_mapping(pair.world.map(&there)).map_err(|(error, _)| error).unwrap();
    let receive =
        [element(remote.first.0, 40, pair.b.privileged()), element(remote.first.0 + 60, 40, pair.b.privileged())];
    pair.b.pair.receive(77, receive.into_iter()).unwrap();
    let list = [element(local.first.0 + 1, 50, pair.a.privileged())];
    pair.a.pair.send(5, RequestFlags::SOLICIT, list.into_iter()).unwrap();
    let sent = polled(&pair.a.initiator);
    assert_eq!((sent[0].context, sent[0].queue_pair_context, sent[0].outcome), (5, A + 4, Outcome::Success));
    let received = polled(&pair.b.receiver);
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].context, received[0].queue_pair_context, received[0].bytes), (77, B + 4, 50));
    assert_eq!((received[0].operation, received[0].solicited), (Operation::Receive, true));
    assert_eq!(there.read(0, 40), pattern(100)[1..41]);
    assert_eq!(there.read(60, 11), [&pattern(100)[41..51], &[0]].concat());
    assert!(pair.a.opening.release_mapping(local.first));
    assert!(!pair.a.opening.release_mapping(local.first));
    assert!(pair.b.opening.release_mapping(remote.first));
    pair.close();
}
