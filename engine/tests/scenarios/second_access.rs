//! The access checks once more, after a legal access by the same queue pair: what is kept from the first matters from the second on.
//!
//! One table: every kind of memory, in every role that it can have, on every way that a request can go, after a legal access to memory
//! of every kind on every way, apart from it or in one chain with it. Then the second access is spoilt in one respect, and is refused
//! with nothing moved; or it is legal, and moves the bytes that it names.

use softndk_engine::{
    Deregistered, FastRegistration, LogicalAddress, MemoryRegion, MemoryToken, MemoryWindow, Outcome, ProtectionDomain,
    Registration, RequestFlags, Rights, Sge,
};
use softndk_engine_kit::{self as kit, Buffer, EVERYTHING, Pair, Side, outcomes, sge};

const NONE: RequestFlags = RequestFlags::empty();
const PAGE: u64 = 4096;
/// Pages of the memory that is tried.
const PAGES: u64 = 8;
/// No multiple of a page, nor is what is left of the last page.
const LENGTH: u64 = 2 * PAGE + 100;
/// Where fast registrations and windows begin in their first page.
const FIRST_BYTE: u64 = 16;
/// Labels are not what the memory is at.
const BASE: u64 = 0x7_0000 + FIRST_BYTE;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Registered,
    /// Fast-registered, the pages adjoin: there is more of their mapping on both sides.
    Run,
    /// Fast-registered, no two pages adjoin.
    Scattered,
    /// Logical addresses of a mapping, under the privileged token.
    Privileged,
    Window,
}

const LOCAL: [Kind; 4] = [Kind::Registered, Kind::Run, Kind::Scattered, Kind::Privileged];
const REMOTE: [Kind; 4] = [Kind::Registered, Kind::Run, Kind::Scattered, Kind::Window];

/// What an access is to the memory that is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    SourceOfWrite,
    SourceOfSend,
    SinkOfRead,
    Receive,
    ReadByPeer,
    WrittenByPeer,
}

const ROLES: [Role; 6] =
    [Role::SourceOfWrite, Role::SourceOfSend, Role::SinkOfRead, Role::Receive, Role::ReadByPeer, Role::WrittenByPeer];

impl Role {
    fn kinds(self) -> [Kind; 4] {
        if self.is_remote() { REMOTE } else { LOCAL }
    }

    fn is_remote(self) -> bool {
        matches!(self, Self::ReadByPeer | Self::WrittenByPeer)
    }

    /// The memory is B's; else it is that of A, which posts every request.
    fn is_of_b(self) -> bool {
        self.is_remote() || self == Self::Receive
    }

    /// The memory is written; else read.
    fn is_sink(self) -> bool {
        matches!(self, Self::SinkOfRead | Self::Receive | Self::WrittenByPeer)
    }

    /// The right without which the access is refused.
    fn needs(self) -> Rights {
        match self {
            Self::SourceOfWrite | Self::SourceOfSend => Rights::empty(),
            Self::SinkOfRead | Self::Receive => Rights::LOCAL_WRITE,
            Self::ReadByPeer => Rights::REMOTE_READ,
            Self::WrittenByPeer => Rights::REMOTE_WRITE,
        }
    }

    fn refused(self) -> Outcome {
        if self.is_of_b() { Outcome::RemoteError } else { Outcome::LocalAccess }
    }
}

/// Which way a request goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Posted by itself.
    Alone,
    /// Deferred, so that it is one of a chain.
    Chain,
    /// Of two scatter/gather elements.
    Long,
}

const WAYS: [Way; 3] = [Way::Alone, Way::Chain, Way::Long];

/// What a case makes and closes when it is over: until then it stays as it is, because whatever is taken back ends what is kept.
#[derive(Default)]
struct Made(Vec<Box<dyn FnOnce()>>);

impl Made {
    fn closing(&mut self, close: impl FnOnce() + 'static) {
        self.0.push(Box::new(close));
    }

    fn close(self) {
        self.0.into_iter().rev().for_each(|close| close());
    }
}

/// Memory of one kind: what an access names, and where that is in the buffer.
struct Memory {
    kind: Kind,
    token: MemoryToken,
    base: u64,
    length: u64,
    region: Option<MemoryRegion<kit::Harness>>,
    window: Option<MemoryWindow<kit::Harness>>,
    mapping: Option<LogicalAddress>,
}

/// The pages of the buffer that are fast-registered.
fn pages(kind: Kind) -> [u64; 3] {
    if kind == Kind::Run { [1, 2, 3] } else { [5, 2, 6] }
}

impl Memory {
    fn new(scene: &Scene, role: Role, kind: Kind, rights: Rights, made: &mut Made) -> Self {
        let (side, buffer) = (scene.side(role), &scene.tried);
        let (token, base, length) = (side.privileged(), BASE, LENGTH);
        let mut memory = Self { kind, token, base, length, region: None, window: None, mapping: None };
        if kind != Kind::Registered && kind != Kind::Window {
            let (open, mapping) = (side.open.clone(), side.build(&scene.pair.world, buffer));
            made.closing(move || _ = open.release_mapping(mapping));
            memory.mapping = Some(mapping);
            (memory.base, memory.length) = (mapping.0, PAGES * PAGE);
        }
        if kind == Kind::Privileged {
            return memory;
        }
        (memory.base, memory.length) = (BASE, LENGTH);
        let region = if let Some(mapping) = memory.mapping {
            let region = side.fast_region(&scene.pair.world);
            fast_register(side, &region, mapping, (pages(kind), LENGTH), rights);
            region
        } else {
            let rights = if kind == Kind::Window { EVERYTHING } else { rights };
            register(scene, &side.domain, rights)
        };
        memory.token = if role.is_remote() { region.remote_token() } else { region.local_token() };
        let closed = region.clone();
        made.closing(move || drop(closed.close(1)));
        if kind == Kind::Window {
            let window = side.domain.create_memory_window(scene.pair.world.consumer_object(70)).unwrap();
            (memory.base, memory.length) = (BASE + PAGE, PAGE);
            let (silent, lent) = (RequestFlags::SILENT_SUCCESS, rights.difference(Rights::LOCAL_WRITE));
            side.pair.bind(60, silent, &region, &window, memory.base, memory.length, lent).unwrap();
            memory.token = window.remote_token();
            let closed = window.clone();
            made.closing(move || drop(closed.close(1)));
            memory.window = Some(window);
        }
        memory.region = Some(region);
        memory
    }

    /// Where the byte at an address is in the buffer.
    fn place(&self, address: u64) -> usize {
        let at = address - self.base;
        let place = match self.kind {
            Kind::Registered | Kind::Privileged => at,
            Kind::Window => PAGE + at,
            Kind::Run | Kind::Scattered => {
                let at = FIRST_BYTE + at;
                pages(self.kind)[(at / PAGE) as usize] * PAGE + at % PAGE
            }
        };
        place as usize
    }

    fn take_back(&self, side: &Side) {
        let silent = RequestFlags::SILENT_SUCCESS;
        match (&self.window, &self.region, self.mapping) {
            (Some(window), ..) => side.pair.invalidate_window(61, silent, window).unwrap(),
            (_, Some(region), Some(_)) => side.pair.invalidate(61, silent, region).unwrap(),
            (_, Some(region), _) => assert!(matches!(region.deregister(1), Ok(Deregistered::Done(_)))),
            (.., mapping) => assert!(mapping.is_some_and(|mapping| side.open.release_mapping(mapping))),
        }
    }

    /// Legal accesses: in the middle, all of it, its ends, over the end of a page.
    fn legal(&self) -> [Sge; 5] {
        [
            good(self),
            sge(self.base, self.length as u32, self.token),
            sge(self.base, 1, self.token),
            sge(self.base + self.length - 1, 1, self.token),
            sge((self.base + 100).next_multiple_of(PAGE) - 3, 10, self.token),
        ]
    }
}

/// Registers the first bytes of the buffer, which goes on behind them.
fn register(scene: &Scene, domain: &ProtectionDomain<kit::Harness>, rights: Rights) -> MemoryRegion<kit::Harness> {
    let region = domain.create_memory_region(false, scene.pair.world.consumer_object(71)).unwrap();
    let memory = scene.pair.world.map(&scene.tried);
    let registration = Registration { memory, base: BASE, length: LENGTH, rights };
    region.register(registration).map_err(|(error, _)| error).unwrap();
    region
}

fn fast_register(
    side: &Side,
    region: &MemoryRegion<kit::Harness>,
    mapping: LogicalAddress,
    (pages, length): ([u64; 3], u64),
    rights: Rights,
) {
    let first_byte_offset = FIRST_BYTE as u32;
    let registration = FastRegistration { first_byte_offset, length, base: BASE, rights };
    let list = pages.into_iter().map(move |page| LogicalAddress(mapping.0 + page * PAGE));
    side.pair.fast_register(60, RequestFlags::SILENT_SUCCESS, region, registration, list).unwrap();
}

/// Two ends, the memory that is tried, and the memory at the other end of each request, which is good.
struct Scene {
    pair: Pair,
    tried: Buffer,
    partner: Buffer,
    partners: [MemoryRegion<kit::Harness>; 2],
}

impl Scene {
    fn new() -> Self {
        let pair = Pair::new();
        let (tried, partner) = (Buffer::new((PAGES * PAGE) as usize, 1), Buffer::new(((PAGES + 1) * PAGE) as usize, 2));
        let partners = [&pair.a, &pair.b].map(|side| side.register(&pair.world, &partner, 0, EVERYTHING));
        Self { pair, tried, partner, partners }
    }

    /// The end whose memory is tried in this role.
    fn side(&self, role: Role) -> &Side {
        if role.is_of_b() { &self.pair.b } else { &self.pair.a }
    }

    /// Posts an access to memory that is tried, from or to the beginning of the other end's.
    fn post(&self, role: Role, way: Way, context: u64, accessed: Sge) {
        let (a, b) = (&self.pair.a.pair, &self.pair.b.pair);
        let flags = if way == Way::Chain { RequestFlags::DEFER } else { NONE };
        let [near, far] = [0, 1].map(|end| self.partners[end].local_token());
        let other = |token| sge(0, accessed.length, token);
        let list = |entry: Sge| elements(way, entry).into_iter();
        match role {
            Role::SourceOfWrite => a.write(context, flags, list(accessed), 0, self.partners[1].remote_token()),
            Role::SinkOfRead => a.read(context, flags, list(accessed), 0, self.partners[1].remote_token()),
            Role::ReadByPeer => a.read(context, flags, list(other(near)), accessed.address, accessed.token),
            Role::WrittenByPeer => a.write(context, flags, list(other(near)), accessed.address, accessed.token),
            Role::SourceOfSend => {
                b.receive(context, list(other(far))).unwrap();
                a.send(context, flags, list(accessed))
            }
            Role::Receive => {
                b.receive(context, list(accessed)).unwrap();
                a.send(context, flags, list(other(near)))
            }
        }
        .unwrap();
    }

    /// Has what was deferred processed.
    fn kick(&self) {
        let silent = RequestFlags::SILENT_SUCCESS;
        self.pair.a.pair.write(0, silent, std::iter::empty(), 0, MemoryToken::NONE).unwrap();
    }

    /// Fills the two buffers with bytes that differ.
    fn fill(&self) -> [Vec<u8>; 2] {
        let bytes: Vec<u8> = (0..(PAGES + 1) * PAGE).map(|place| (place % 127) as u8).collect();
        let others: Vec<u8> = bytes.iter().map(|byte| byte | 0x80).collect();
        let tried = bytes[..(PAGES * PAGE) as usize].to_vec();
        self.tried.write(0, &tried);
        self.partner.write(0, &others);
        [tried, others]
    }

    fn bytes(&self) -> [Vec<u8>; 2] {
        [&self.tried, &self.partner].map(|buffer| buffer.read(0, buffer.length() as usize))
    }

    /// Contexts and outcomes of the tried end's requests, or of the receives.
    fn completed(&self, role: Role) -> Vec<(u64, Outcome)> {
        let requests = outcomes(&self.pair.a.initiator);
        if role == Role::Receive { outcomes(&self.pair.b.receiver) } else { requests }
    }

    fn close(mut self, made: Made) {
        self.pair.world.run();
        made.close();
        for partner in self.partners {
            drop(partner.close(1));
        }
        self.pair.close();
    }
}

/// What legal accesses make of the bytes of the two buffers.
fn moved([tried, partner]: &mut [Vec<u8>; 2], role: Role, memory: &Memory, access: Sge) {
    for at in 0..u64::from(access.length) {
        let place = memory.place(access.address + at);
        if role.is_sink() {
            tried[place] = partner[at as usize];
        } else {
            partner[at as usize] = tried[place];
        }
    }
}

/// One element, or two that are the same bytes.
fn elements(way: Way, whole: Sge) -> Vec<Sge> {
    if way != Way::Long {
        return vec![whole];
    }
    let rest = Sge { address: whole.address.wrapping_add(1), length: whole.length - 1, ..whole };
    vec![Sge { length: 1, ..whole }, rest]
}

/// What is wrong with the second access.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spoilt {
    PastTheEnd,
    BehindTheEnd,
    BeforeTheStart,
    OneByteTooLong,
    FromWhereTheFirstWas,
    PastItsLastPage,
    AroundTheAddressSpace,
    Generation,
    Rights,
    OtherDomain,
    PeersDomain,
    PrivilegedOfOtherDomain,
    PrivilegedForThePeer,
    TakenBack,
}

const SPOILT: [Spoilt; 14] = [
    Spoilt::PastTheEnd,
    Spoilt::BehindTheEnd,
    Spoilt::BeforeTheStart,
    Spoilt::OneByteTooLong,
    Spoilt::FromWhereTheFirstWas,
    Spoilt::PastItsLastPage,
    Spoilt::AroundTheAddressSpace,
    Spoilt::Generation,
    Spoilt::Rights,
    Spoilt::OtherDomain,
    Spoilt::PeersDomain,
    Spoilt::PrivilegedOfOtherDomain,
    Spoilt::PrivilegedForThePeer,
    Spoilt::TakenBack,
];

impl Spoilt {
    /// Whether memory of this kind can be named wrongly so, in this role.
    fn means_something(self, role: Role, kind: Kind) -> bool {
        match self {
            Self::Rights => kind != Kind::Privileged && role.needs() != Rights::empty(),
            Self::OtherDomain | Self::PeersDomain => kind == Kind::Registered,
            Self::PrivilegedOfOtherDomain => kind == Kind::Privileged,
            Self::PrivilegedForThePeer => kind == Kind::Registered && role.is_remote(),
            // Behind a mapping there is nothing.
            Self::PastItsLastPage => kind != Kind::Privileged,
            _ => true,
        }
    }
}

/// The middle of some memory.
fn good(memory: &Memory) -> Sge {
    sge(memory.base + 40, 64, memory.token)
}

/// The second access, made of a legal one.
fn spoil(scene: &Scene, role: Role, spoilt: Spoilt, memory: &Memory, made: &mut Made) -> Sge {
    let end = memory.base + memory.length;
    let legal = good(memory);
    let (side, world) = (scene.side(role), &scene.pair.world);
    match spoilt {
        Spoilt::PastTheEnd => sge(end - 1, 2, memory.token),
        Spoilt::BehindTheEnd => sge(end, 1, memory.token),
        Spoilt::BeforeTheStart => sge(memory.base - 1, 2, memory.token),
        Spoilt::OneByteTooLong => sge(memory.base, memory.length as u32 + 1, memory.token),
        Spoilt::FromWhereTheFirstWas => sge(legal.address, (end - legal.address) as u32 + 1, memory.token),
        Spoilt::PastItsLastPage => sge(end.next_multiple_of(PAGE) - 4, 8, memory.token),
        Spoilt::AroundTheAddressSpace => sge(u64::MAX - 3, 64, memory.token),
        Spoilt::Generation => Sge { token: MemoryToken(memory.token.0 ^ 1 << MemoryToken::SLOT_BITS), ..legal },
        Spoilt::Rights => {
            // Remote write comes with local write only.
            let missing = if role.is_remote() { role.needs() } else { Rights::LOCAL_WRITE | Rights::REMOTE_WRITE };
            good(&Memory::new(scene, role, memory.kind, EVERYTHING.difference(missing), made))
        }
        Spoilt::OtherDomain => {
            let domain = side.open.create_protection_domain(world.consumer_object(72)).unwrap();
            let region = register(scene, &domain, EVERYTHING);
            let token = if role.is_remote() { region.remote_token() } else { region.local_token() };
            made.closing(move || drop((region.close(1), domain.close(1))));
            Sge { token, ..legal }
        }
        Spoilt::PeersDomain => sge(40, 64, scene.partners[usize::from(!role.is_of_b())].local_token()),
        Spoilt::PrivilegedOfOtherDomain => {
            let domain = side.open.create_protection_domain(world.consumer_object(72)).unwrap();
            let token = domain.privileged_token();
            made.closing(move || drop(domain.close(1)));
            Sge { token, ..legal }
        }
        Spoilt::PrivilegedForThePeer => {
            let mapping = Memory::new(scene, role, Kind::Privileged, EVERYTHING, made);
            sge(mapping.base, 64, side.privileged())
        }
        Spoilt::TakenBack => legal,
    }
}

/// The first access: to memory of which kind, which way, and whether the second one is in a chain with it.
#[derive(Clone, Copy, Debug)]
struct First {
    kind: Kind,
    way: Way,
    together: bool,
    /// To its last bytes, which are in a page that is not registered as a whole; else to some in the middle.
    at_end: bool,
}

impl First {
    fn of(self, memory: &Memory) -> Sge {
        if self.at_end { sge(memory.base + memory.length - 64, 64, memory.token) } else { good(memory) }
    }
}

/// Every first access before a second one to memory of this kind in this role.
fn firsts(role: Role, second: Kind) -> impl Iterator<Item = First> {
    let ways = [(Way::Alone, false), (Way::Chain, false), (Way::Chain, true), (Way::Long, false)];
    let kinds = role.kinds().into_iter().map(|kind| (kind, false)).chain([(second, true)]);
    kinds.flat_map(move |(kind, at_end)| {
        ways.into_iter().map(move |(way, together)| First { kind, way, together, at_end })
    })
}

/// Memory for both accesses: the same, where they are to memory of one kind.
fn two_memories(scene: &Scene, role: Role, (first, kind): (Kind, Kind), made: &mut Made) -> [Memory; 2] {
    let second = Memory::new(scene, role, kind, EVERYTHING, made);
    let Memory { token, base, length, ref region, ref window, mapping, .. } = second;
    let (region, window) = (region.clone(), window.clone());
    let same = Memory { kind, token, base, length, region, window, mapping };
    [if first == kind { same } else { Memory::new(scene, role, first, EVERYTHING, made) }, second]
}

fn first_access(scene: &Scene, role: Role, first: First, accessed: Sge) {
    scene.post(role, first.way, 1, accessed);
    if first.way == Way::Chain && !first.together {
        scene.kick();
    }
    if !first.together {
        assert_eq!(scene.completed(role), [(1, Outcome::Success)], "the first access, {first:?}");
    }
}

/// Both contexts and outcomes.
fn second_access(scene: &mut Scene, role: Role, (first, way): (First, Way), accessed: Sge) -> Vec<(u64, Outcome)> {
    scene.post(role, way, 2, accessed);
    if way == Way::Chain {
        scene.kick();
    }
    scene.pair.world.run();
    let before = if first.together { None } else { Some((1, Outcome::Success)) };
    before.into_iter().chain(scene.completed(role)).take(2).collect()
}

fn refused(role: Role, kind: Kind, (first, way): (First, Way), spoilt: Spoilt) {
    let mut scene = Scene::new();
    let mut made = Made::default();
    let [before, memory] = two_memories(&scene, role, (first.kind, kind), &mut made);
    let bad = spoil(&scene, role, spoilt, &memory, &mut made);
    let mut expected = scene.fill();
    first_access(&scene, role, first, first.of(&before));
    moved(&mut expected, role, &before, first.of(&before));
    if spoilt == Spoilt::TakenBack {
        memory.take_back(scene.side(role));
    }
    let outcome = if role == Role::Receive { Outcome::LocalAccess } else { role.refused() };
    let case = || format!("{spoilt:?} {kind:?} as {role:?} {way:?} after {first:?}");
    let completed = second_access(&mut scene, role, (first, way), bad);
    assert_eq!(completed, [(1, Outcome::Success), (2, outcome)], "{}", case());
    assert!(scene.bytes() == expected, "a byte has moved: {}", case());
    scene.close(made);
}

fn every_spoilt_access_is_refused(role: Role) {
    let mut cases = 0;
    for kind in role.kinds() {
        for first in firsts(role, kind) {
            for way in WAYS {
                for spoilt in SPOILT.into_iter().filter(|spoilt| spoilt.means_something(role, kind)) {
                    if spoilt != Spoilt::TakenBack || !first.together {
                        refused(role, kind, (first, way), spoilt);
                        cases += 1;
                    }
                }
            }
        }
    }
    assert!(cases > 1000, "{cases} cases");
}

fn moves(role: Role, kind: Kind, (first, way): (First, Way), place: usize) {
    let mut scene = Scene::new();
    let mut made = Made::default();
    let [before, memory] = two_memories(&scene, role, (first.kind, kind), &mut made);
    let mut expected = scene.fill();
    first_access(&scene, role, first, first.of(&before));
    moved(&mut expected, role, &before, first.of(&before));
    let accessed = memory.legal()[place];
    let completed = second_access(&mut scene, role, (first, way), accessed);
    moved(&mut expected, role, &memory, accessed);
    let case = || format!("{accessed:x?} {kind:?} as {role:?} {way:?} after {first:?}");
    assert_eq!(completed, [(1, Outcome::Success), (2, Outcome::Success)], "{}", case());
    assert!(scene.bytes() == expected, "other bytes: {}", case());
    scene.close(made);
}

fn every_legal_access_moves_its_bytes(role: Role) {
    for kind in role.kinds() {
        for first in firsts(role, kind) {
            for way in WAYS {
                (0..5).for_each(|place| moves(role, kind, (first, way), place));
            }
        }
    }
}

/// The tests of each role.
macro_rules! roles {
    ($($(#[$attribute:meta])* $name:ident $role:ident;)*) => {$(
        mod $name {
            use super::Role;

            $(#[$attribute])*
            // Rule: NDK-MR-5, NDK-MR-6, NDK-MR-7
            #[test]
            fn what_is_spoilt_is_refused_after_a_legal_access() {
                super::every_spoilt_access_is_refused(Role::$role);
            }

            #[test]
            fn what_is_legal_moves_its_bytes_after_another_access() {
                super::every_legal_access_moves_its_bytes(Role::$role);
            }
        }
    )*};
}

roles! {
    source_of_write SourceOfWrite;
    source_of_send SourceOfSend;
    sink_of_read SinkOfRead;
    receive Receive;
    read_by_peer ReadByPeer;
    #[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
    written_by_peer WrittenByPeer;
}

/// A fast-register region keeps its token: what it names from the second registration on is that of the second.
// Rule: NDK-FRMR-4
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_region_that_is_registered_again_is_where_it_is_now() {
    const SHORTER: u64 = PAGE + 1;
    for role in ROLES {
        let kinds = [Kind::Run, Kind::Scattered];
        for (kind, again) in kinds.into_iter().flat_map(|kind| kinds.map(|again| (kind, again))) {
            for (way, fits) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
                let mut scene = Scene::new();
                let mut made = Made::default();
                let mut memory = Memory::new(&scene, role, kind, EVERYTHING, &mut made);
                let first = First { kind, way: Way::Alone, together: false, at_end: false };
                let mut expected = scene.fill();
                first_access(&scene, role, first, good(&memory));
                moved(&mut expected, role, &memory, good(&memory));
                memory.take_back(scene.side(role));
                let (region, mapping) = (memory.region.as_ref().unwrap(), memory.mapping.unwrap());
                fast_register(scene.side(role), region, mapping, (pages(again), SHORTER), EVERYTHING);
                (memory.kind, memory.length) = (again, SHORTER);
                let last = sge(BASE + SHORTER - 5, if fits { 5 } else { 6 }, memory.token);
                let completed = second_access(&mut scene, role, (first, way), last);
                let refused = if role == Role::Receive { Outcome::LocalAccess } else { role.refused() };
                let outcome = if fits { Outcome::Success } else { refused };
                assert_eq!(completed[1], (2, outcome), "{kind:?}, then {again:?}, as {role:?} {way:?}");
                if fits {
                    moved(&mut expected, role, &memory, last);
                }
                assert!(scene.bytes() == expected, "other bytes: {kind:?}, then {again:?}, as {role:?} {way:?}");
                scene.close(made);
            }
        }
    }
}

/// The whole element of a receive has to be good, however short its message is.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn a_receive_that_reaches_too_far_takes_no_short_message_after_a_good_one() {
    let role = Role::Receive;
    for kind in LOCAL {
        for way in WAYS {
            let mut scene = Scene::new();
            let mut made = Made::default();
            let memory = Memory::new(&scene, role, kind, EVERYTHING, &mut made);
            let first = First { kind, way: Way::Alone, together: false, at_end: true };
            let mut expected = scene.fill();
            first_access(&scene, role, first, first.of(&memory));
            moved(&mut expected, role, &memory, first.of(&memory));
            let too_far = Sge { length: 65, ..first.of(&memory) };
            scene.pair.b.pair.receive(2, elements(way, too_far).into_iter()).unwrap();
            scene.pair.a.pair.send(2, NONE, [sge(0, 8, scene.partners[0].local_token())].into_iter()).unwrap();
            scene.pair.world.run();
            assert_eq!(outcomes(&scene.pair.a.initiator), [(2, Outcome::RemoteError)], "{kind:?} {way:?}");
            assert_eq!(outcomes(&scene.pair.b.receiver), [(2, Outcome::LocalAccess)], "{kind:?} {way:?}");
            assert!(scene.bytes() == expected, "a byte has moved: {kind:?} {way:?}");
            scene.close(made);
        }
    }
}

/// A page list may name what is behind the end of a mapping; it is out of reach.
#[test]
#[cfg_attr(feature = "streams", ignore = "what a peer across a stream refuses has succeeded before")]
fn pages_behind_the_end_of_their_mapping_are_refused_after_a_legal_access() {
    for role in ROLES {
        for way in WAYS {
            let mut scene = Scene::new();
            let mut made = Made::default();
            let memory = Memory::new(&scene, role, Kind::Run, EVERYTHING, &mut made);
            memory.take_back(scene.side(role));
            let (region, mapping) = (memory.region.as_ref().unwrap(), memory.mapping.unwrap());
            fast_register(scene.side(role), region, mapping, ([PAGES - 2, PAGES - 1, PAGES], LENGTH), EVERYTHING);
            let _filled = scene.fill();
            let first = First { kind: Kind::Run, way: Way::Alone, together: false, at_end: false };
            first_access(&scene, role, first, good(&memory));
            let behind = sge(BASE - FIRST_BYTE + 2 * PAGE - 1, 2, memory.token);
            let completed = second_access(&mut scene, role, (first, way), behind);
            let refused = if role == Role::Receive { Outcome::LocalAccess } else { role.refused() };
            assert_eq!(completed[1], (2, refused), "{role:?} {way:?}");
            scene.close(made);
        }
    }
}
