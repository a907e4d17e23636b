//! What a refused access says was wrong, at each end; and mappings whose pages are scattered.

use softndk_engine::{
    AccessFault, AdapterSettings, LogicalAddress, LogicalPages, MemoryToken, Operation, Outcome, RequestFlags, Rights,
    Semantics,
};
use softndk_engine_kit::{self as kit, Buffer, EVERYTHING, Pair, World, outcomes, polled, sge};

const NONE: RequestFlags = RequestFlags::empty();
const LENGTH: u64 = 256;
const BASE: u64 = 0x4000;
const PAGE: u64 = 4096;

/// What a Write names at both ends.
struct Names {
    local: (u64, MemoryToken),
    remote: (u64, MemoryToken),
}

/// Makes a Write and says how it ended and why. The rights are those of the peer's region.
fn written(rights: Rights, spoil: impl Fn(&Pair, &mut Names)) -> (Outcome, Option<AccessFault>) {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(LENGTH as usize, 1), Buffer::new(LENGTH as usize, 2));
    let local = pair.a.register(&pair.world, &here, BASE, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, BASE, rights);
    let mut names = Names { local: (BASE, local.local_token()), remote: (BASE, remote.remote_token()) };
    spoil(&pair, &mut names);
    let list = [sge(names.local.0, LENGTH as u32, names.local.1)].into_iter();
    pair.a.pair.write(1, NONE, list, names.remote.0, names.remote.1).unwrap();
    let completed = polled(&pair.a.initiator);
    drop((local.close(1), remote.close(1)));
    pair.close();
    (completed[0].outcome, completed[0].fault)
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn access_says_why() {
    use AccessFault::{Bounds, Domain, NoMapping, NoToken, PrivilegedToken, Rights as NoRights, StaleToken};
    let (own, peers) = (Outcome::LocalAccess, Outcome::RemoteError);
    assert_eq!(written(EVERYTHING, |_, _| {}), (Outcome::Success, None));
    let never = MemoryToken(0xABC0_0077);
    assert_eq!(written(EVERYTHING, |_, names| names.remote.1 = never), (peers, Some(NoToken)));
    assert_eq!(written(EVERYTHING, |_, names| names.local.1 = never), (own, Some(NoToken)));
    assert_eq!(written(EVERYTHING, |_, names| names.remote.0 += 1), (peers, Some(Bounds)));
    assert_eq!(written(EVERYTHING, |_, names| names.local.0 -= 1), (own, Some(Bounds)));
    assert_eq!(written(EVERYTHING, |_, names| names.remote.1 = names.local.1), (peers, Some(Domain)));
    assert_eq!(written(EVERYTHING, |_, names| names.local.1 = names.remote.1), (own, Some(Domain)));
    let privileged = |pair: &Pair, names: &mut Names| names.remote.1 = pair.b.privileged();
    assert_eq!(written(EVERYTHING, privileged), (peers, Some(PrivilegedToken)));
    let of_peer = |pair: &Pair, names: &mut Names| names.local.1 = pair.b.privileged();
    assert_eq!(written(EVERYTHING, of_peer), (own, Some(Domain)));
    let no_mapping = |pair: &Pair, names: &mut Names| names.local.1 = pair.a.privileged();
    assert_eq!(written(EVERYTHING, no_mapping), (own, Some(NoMapping)));
    assert_eq!(written(Rights::REMOTE_READ, |_, _| {}), (peers, Some(NoRights)));
    let gone = |pair: &Pair, names: &mut Names| {
        let other = pair.b.register(&pair.world, &Buffer::new(64, 0), BASE, EVERYTHING);
        names.remote.1 = other.remote_token();
        drop(other.close(2));
    };
    assert_eq!(written(EVERYTHING, gone), (peers, Some(StaleToken)));
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_message_says_why_at_both_ends() {
    let pair = Pair::new();
    let (here, there) = (Buffer::new(64, 1), Buffer::new(64, 2));
    let local = pair.a.register(&pair.world, &here, BASE, EVERYTHING);
    let remote = pair.b.register(&pair.world, &there, BASE, EVERYTHING);
    pair.b.pair.receive(7, [sge(BASE, 63, remote.local_token())].into_iter()).unwrap();
    pair.a.pair.send(1, NONE, [sge(BASE, 64, local.local_token())].into_iter()).unwrap();
    let (sent, received) = (polled(&pair.a.initiator), polled(&pair.b.receiver));
    let short = Some(AccessFault::ReceiveTooSmall);
    assert_eq!((sent[0].outcome, sent[0].fault), (Outcome::RemoteError, short));
    assert_eq!((received[0].outcome, received[0].fault), (Outcome::ReceiveTooSmall, short));
    drop((local.close(1), remote.close(1)));
    pair.close();
}

#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_token_to_invalidate_that_nothing_has_says_so() {
    let pair = Pair::new();
    pair.b.pair.receive(7, std::iter::empty()).unwrap();
    pair.a.pair.send_and_invalidate(1, NONE, std::iter::empty(), MemoryToken(0xABC0_0077)).unwrap();
    let sent = polled(&pair.a.initiator);
    assert_eq!((sent[0].outcome, sent[0].fault), (Outcome::RemoteError, Some(AccessFault::NotInvalidated)));
    pair.close();
}

/// Each page by its own address; one that runs out of its page reaches nothing.
#[test]
fn a_scattered_mapping_gives_each_page_its_own_bytes() {
    let settings = AdapterSettings { logical_pages: LogicalPages::Scattered, ..AdapterSettings::default() };
    let mut pair = Pair::in_world(World::with_settings(settings), Semantics::NDK, kit::Depths::default());
    let (here, there) = (Buffer::new(3 * PAGE as usize, 0), Buffer::new(PAGE as usize, 0));
    for page in 0..3_u8 {
        here.write(usize::from(page) * PAGE as usize, &[page + 1; PAGE as usize]);
    }
    let mapping = pair.a.open.build_mapping(pair.world.map(&here)).map_err(|(error, _)| error).unwrap();
    let remote = pair.b.register(&pair.world, &there, BASE, EVERYTHING);
    let addresses = [0, 1, 2].map(|page| mapping.address_of(page));
    assert!(addresses.windows(2).all(|pages| pages[0].0 + PAGE != pages[1].0), "{addresses:x?}");
    let write = |pair: &Pair, LogicalAddress(address), length| {
        let list = [sge(address, length, pair.a.privileged())].into_iter();
        pair.a.pair.write(1, NONE, list, BASE, remote.remote_token()).unwrap();
    };
    for (page, address) in addresses.into_iter().enumerate() {
        // Twice: the second access may use what the first one kept.
        for offset in [0, 1] {
            write(&pair, LogicalAddress(address.0 + offset), PAGE as u32 - 1);
            assert_eq!(outcomes(&pair.a.initiator), [(1, Outcome::Success)]);
            assert_eq!(there.read(0, PAGE as usize - 1), vec![page as u8 + 1; PAGE as usize - 1]);
            there.fill(0);
        }
    }
    let inverted = addresses[2];
    assert_eq!(mapping.first, inverted, "the last page is the first of the addresses");
    write(&pair, LogicalAddress(addresses[1].0 + 1), PAGE as u32);
    let ended = polled(&pair.a.initiator);
    assert_eq!((ended[0].operation, ended[0].outcome), (Operation::Write, Outcome::LocalAccess));
    assert_eq!(ended[0].fault, Some(AccessFault::NoMapping));
    assert!(pair.a.open.release_mapping(mapping.first));
    pair.world.run();
    drop(remote.close(1));
    pair.close();
}
