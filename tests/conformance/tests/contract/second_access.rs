//! The access checks once more after a legal access by the same queue pair, through the dispatch tables: each kind of memory in each
//! role, posted alone, in one chain with the legal access, and in two scatter/gather elements.
//!
//! The first access is to the last bytes of the memory, the second is spoilt in one respect: it is refused with its status, and no byte
//! moves. One boot a case, a connection for each second access.

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, End, FastRegistration, Mapping, MemoryRegion, MemoryWindow, Pair, ProtectionDomain, Remote, sge,
};
use conformance::machine::{wait_until_idle, with_two_adapters};
use conformance::peers;
use conformance::trial::Case;
use kernel_host::FrameOrder;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_REMOTE_RESOURCES, STATUS_SUCCESS};

pub const CASES: &[Case] = &[
    case!(source_of_a_write: "NDK-MR-5"; not in tiny),
    case!(source_of_a_send: "NDK-MR-5"; not in tiny),
    case!(sink_of_a_read: "NDK-MR-5"; not in tiny),
    case!(receive_of_the_peer: "NDK-MR-5"; not in tiny),
    case!(memory_that_the_peer_reads: "NDK-MR-6", "NDK-MW-6"; not in tiny),
    case!(memory_that_the_peer_writes: "NDK-MR-6", "NDK-MW-6"; not in tiny),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const PAGE: usize = 4096;
/// Bytes behind every kind of memory that are mapped with it.
const BUFFER: usize = 5 * PAGE;
/// No multiple of a page.
const LENGTH: usize = 2 * PAGE + 100;
const PREPARATION: u64 = 0x9E9A;
const FIRST: u64 = 1;
const SECOND: u64 = 2;
/// Bytes of the first access.
const SHORT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Registered,
    /// Fast-registered pages of a mapping as they are.
    Run,
    /// Fast-registered pages in another order.
    Scattered,
    Privileged,
    Window,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    SourceOfWrite,
    SourceOfSend,
    SinkOfRead,
    Receive,
    Read,
    Written,
}

impl Role {
    fn is_remote(self) -> bool {
        matches!(self, Self::Read | Self::Written)
    }

    fn is_of_the_peer(self) -> bool {
        self.is_remote() || self == Self::Receive
    }

    fn is_sink(self) -> bool {
        matches!(self, Self::SinkOfRead | Self::Receive | Self::Written)
    }

    /// The right without which the access is refused.
    fn needs(self) -> NDK_OP_FLAGS {
        match self {
            Self::SourceOfWrite | Self::SourceOfSend => NONE,
            Self::SinkOfRead | Self::Receive => NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
            Self::Read => NDK_OP_FLAG_ALLOW_REMOTE_READ,
            Self::Written => NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Alone,
    Chain,
    Long,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spoilt {
    PastTheEnd,
    FromTheFirstOn,
    OneByteTooLong,
    Rights,
    PeersDomain,
    PrivilegedOfOtherDomain,
}

const SPOILT: [Spoilt; 6] = [
    Spoilt::PastTheEnd,
    Spoilt::FromTheFirstOn,
    Spoilt::OneByteTooLong,
    Spoilt::Rights,
    Spoilt::PeersDomain,
    Spoilt::PrivilegedOfOtherDomain,
];

impl Spoilt {
    fn means_something(self, role: Role, kind: Kind) -> bool {
        match self {
            Self::Rights => kind != Kind::Privileged && role.needs() != NONE,
            Self::PeersDomain => kind == Kind::Registered,
            Self::PrivilegedOfOtherDomain => kind == Kind::Privileged,
            _ => true,
        }
    }
}

/// What an access names. The rest is kept until the case is over, because what is taken back ends what a provider keeps.
struct Memory<'a> {
    kind: Kind,
    address: u64,
    /// Of the last bytes: the pages of a logical mapping need not adjoin.
    last: u64,
    token: u32,
    _window: Option<MemoryWindow>,
    _region: Option<MemoryRegion>,
    mapping: Option<Mapping<'a>>,
}

fn everything() -> NDK_OP_FLAGS {
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE | NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE
}

fn registration_flags(rights: NDK_OP_FLAGS) -> NDK_MR_FLAGS {
    let pairs = [
        (NDK_OP_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_LOCAL_WRITE),
        (NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_READ),
        (NDK_OP_FLAG_ALLOW_REMOTE_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_WRITE),
    ];
    pairs
        .into_iter()
        .filter(|(right, _)| rights.contains(*right))
        .fold(NDK_MR_FLAGS::empty(), |all, (_, flag)| all | flag)
}

/// Waits for a request that prepares memory.
fn prepared(end: &End<'_>, posted: NTSTATUS) {
    assert_eq!(posted, STATUS_SUCCESS);
    assert_eq!(end.initiator.wait_for_one().Status, STATUS_SUCCESS);
}

impl<'a> Memory<'a> {
    fn open(end: &End<'a>, role: Role, kind: Kind, buffer: &Buffer, rights: NDK_OP_FLAGS) -> Self {
        let label = buffer.label();
        let token = |region: &MemoryRegion| if role.is_remote() { region.remote_token() } else { region.local_token() };
        let last = label + (length_of(kind) - SHORT) as u64;
        let nothing = Self { kind, address: label, last, token: 0, _window: None, _region: None, mapping: None };
        match kind {
            Kind::Registered => {
                let region = end.domain.register(buffer, registration_flags(rights));
                Self { token: token(&region), _region: Some(region), ..nothing }
            }
            Kind::Privileged => {
                let mapping = Mapping::build(end.adapter, buffer).expect("a logical mapping");
                let last = mapping.address_of(length_of(kind) - SHORT);
                let (address, token) = (mapping.address_of(0), end.domain.privileged_token());
                Self { address, last, token, mapping: Some(mapping), ..nothing }
            }
            Kind::Run | Kind::Scattered => {
                let mapping = Mapping::build(end.adapter, buffer).expect("a logical mapping");
                let pages = order(kind).map(|page| mapping.pages()[page]);
                let region = end.domain.fast_region(3, true);
                let registration =
                    FastRegistration { pages: &pages, first_byte_offset: 0, length: LENGTH, base: label };
                prepared(end, end.queue_pair.fast_register(PREPARATION, region.object(), &registration, rights));
                let token = token(&region);
                Self { token, _region: Some(region), mapping: Some(mapping), ..nothing }
            }
            Kind::Window => {
                let region = end.domain.register(buffer, registration_flags(everything()));
                let window = MemoryWindow::new(&end.domain).expect("a memory window");
                let pair = &end.queue_pair;
                prepared(end, pair.bind(PREPARATION, region.object(), window.object(), (label, LENGTH), rights));
                let token = window.remote_token();
                Self { token, _window: Some(window), _region: Some(region), ..nothing }
            }
        }
    }

    /// The first access: the last bytes.
    fn last(&self) -> NDK_SGE {
        sge(self.last, SHORT, self.token)
    }

    /// The first address behind all of it, whatever order its pages have.
    fn end(&self) -> u64 {
        let highest = self.mapping.as_ref().filter(|_| self.kind == Kind::Privileged);
        let highest = highest.and_then(|mapping| mapping.pages().iter().max());
        highest.map_or(self.last + SHORT as u64, |page| page + PAGE as u64)
    }

    /// Where they are in the buffer.
    fn place(&self) -> usize {
        let at = length_of(self.kind) - SHORT;
        let page = if self.kind == Kind::Scattered { order(self.kind)[at / PAGE] } else { at / PAGE };
        page * PAGE + at % PAGE
    }
}

fn length_of(kind: Kind) -> usize {
    if matches!(kind, Kind::Registered | Kind::Privileged) { BUFFER } else { LENGTH }
}

/// The pages of the buffer that are fast-registered.
fn order(kind: Kind) -> [usize; 3] {
    if kind == Kind::Scattered { [3, 0, 2] } else { [0, 1, 2] }
}

struct Scene<'a> {
    /// The partner's memory for each end.
    regions: [MemoryRegion; 2],
    tried: Buffer,
    partner: Buffer,
    pair: Pair<'a>,
}

impl<'a> Scene<'a> {
    fn new(first: &'a Adapter, second: &'a Adapter) -> Self {
        let pair = Pair::connect(first, second);
        let (tried, partner) =
            (Buffer::new(BUFFER, 0, FrameOrder::Scattered), Buffer::new(BUFFER + PAGE, 0, FrameOrder::Scattered));
        tried.fill(|_| 0x11);
        partner.fill(|_| 0x22);
        let regions =
            [&pair.active, &pair.passive].map(|end| end.domain.register(&partner, registration_flags(everything())));
        Self { regions, tried, partner, pair }
    }

    fn end(&self, role: Role) -> &End<'a> {
        if role.is_of_the_peer() { &self.pair.passive } else { &self.pair.active }
    }

    /// Posts an access to the memory that is tried, from or to the beginning of the partner.
    fn post(&self, role: Role, request: u64, accessed: NDK_SGE, way: Way, flags: NDK_OP_FLAGS) {
        let (near, peer) = (&self.pair.active.queue_pair, &self.pair.passive.queue_pair);
        let length = accessed.Length as usize;
        let other = |end: usize| self.partner.sge(0..length, self.regions[end].local_token());
        let far = Remote { address: self.partner.label(), token: self.regions[1].remote_token() };
        let tried = Remote { address: address_of(&accessed), token: accessed.MemoryRegionToken };
        let status = match role {
            Role::SourceOfWrite => near.write(request, &elements(way, accessed), far, flags),
            Role::SinkOfRead => near.read(request, &elements(way, accessed), far, flags),
            Role::Read => near.read(request, &elements(way, other(0)), tried, flags),
            Role::Written => near.write(request, &elements(way, other(0)), tried, flags),
            Role::SourceOfSend => {
                assert_eq!(peer.receive(request, &[other(1)]), STATUS_SUCCESS);
                near.send(request, &elements(way, accessed), flags)
            }
            Role::Receive => {
                assert_eq!(peer.receive(request, &elements(way, accessed)), STATUS_SUCCESS);
                near.send(request, &[other(0)], flags)
            }
        };
        assert_eq!(status, STATUS_SUCCESS, "no access is a reason to refuse a post");
    }

    fn spoil(&self, role: Role, spoilt: Spoilt, memory: &Memory<'a>) -> (NDK_SGE, Kept<'a>) {
        let last = memory.last();
        let alone = |access| (access, Kept::default());
        match spoilt {
            Spoilt::PastTheEnd => alone(sge(memory.end() - 1, 2, memory.token)),
            Spoilt::FromTheFirstOn => alone(sge(address_of(&last), SHORT + 1, memory.token)),
            Spoilt::OneByteTooLong => alone(sge(memory.address, length_of(memory.kind) + 1, memory.token)),
            Spoilt::Rights => {
                // Remote write comes with local write only.
                let local = NDK_OP_FLAG_ALLOW_LOCAL_WRITE | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
                let rights = everything().difference(if role.is_remote() { role.needs() } else { local });
                let weak = Memory::open(self.end(role), role, memory.kind, &self.tried, rights);
                (weak.last(), Kept { _memory: Some(weak), ..Kept::default() })
            }
            Spoilt::PeersDomain => {
                let region = &self.regions[usize::from(!role.is_of_the_peer())];
                alone(self.partner.sge(0..SHORT, region.local_token()))
            }
            Spoilt::PrivilegedOfOtherDomain => {
                let domain = ProtectionDomain::new(self.end(role).adapter).expect("a protection domain");
                let access = sge(address_of(&last), SHORT, domain.privileged_token());
                (access, Kept { _domain: Some(domain), ..Kept::default() })
            }
        }
    }

    /// The results of the first and of the second access, where the memory is.
    fn results(&self, role: Role) -> [(u64, NTSTATUS); 2] {
        let queue = if role == Role::Receive { &self.pair.passive.receive } else { &self.pair.active.initiator };
        [0, 1].map(|_| {
            let result = queue.wait_for_one();
            (result.RequestContext as u64, result.Status)
        })
    }
}

/// What a spoilt access needs until the end of its case.
#[derive(Default)]
struct Kept<'a> {
    _memory: Option<Memory<'a>>,
    _domain: Option<ProtectionDomain>,
}

fn address_of(element: &NDK_SGE) -> u64 {
    // SAFETY: every value of the union is a number.
    unsafe { element.Address.VirtualAddress.addr() as u64 }
}

/// One element, or two that are the same bytes.
fn elements(way: Way, whole: NDK_SGE) -> Vec<NDK_SGE> {
    let (address, length, token) = (address_of(&whole), whole.Length as usize, whole.MemoryRegionToken);
    if way == Way::Long { vec![sge(address, 1, token), sge(address + 1, length - 1, token)] } else { vec![whole] }
}

fn refused(adapters: [&Adapter; 2], role: Role, kind: Kind, (way, spoilt): (Way, Spoilt)) {
    let scene = Scene::new(adapters[0], adapters[1]);
    let memory = Memory::open(scene.end(role), role, kind, &scene.tried, everything());
    let (bad, kept) = scene.spoil(role, spoilt, &memory);
    let [mut tried, mut partner] = [scene.tried.to_vec(), scene.partner.to_vec()];
    let (from, place) = if role.is_sink() { (&partner[..SHORT], memory.place()) } else { (&tried[..SHORT], 0) };
    let moved = from.to_vec();
    let sink = if role.is_sink() { &mut tried } else { &mut partner };
    sink[place..place + SHORT].copy_from_slice(&moved);
    scene.post(role, FIRST, memory.last(), way, if way == Way::Chain { NDK_OP_FLAG_DEFER } else { NONE });
    scene.post(role, SECOND, bad, way, NONE);
    let status = match role {
        Role::Read => STATUS_REMOTE_RESOURCES,
        Role::Written => peers::late(STATUS_REMOTE_RESOURCES),
        _ => STATUS_ACCESS_VIOLATION,
    };
    let case = format!("{spoilt:?} of {kind:?} as {role:?}, {way:?}");
    assert_eq!(scene.results(role), [(FIRST, STATUS_SUCCESS), (SECOND, status)], "{case}");
    if peers::across_streams() {
        // The success of a Send or a Write is no arrival.
        wait_until_idle();
    }
    // Across a stream a Write comes in pieces, and those in front of the wrong one are good.
    let is_cut = peers::across_streams() && matches!((role, spoilt), (Role::Written, Spoilt::OneByteTooLong));
    let is_untouched = scene.tried.to_vec() == tried && scene.partner.to_vec() == partner;
    assert!(is_untouched || is_cut, "{case}: another byte has moved");
    drop((memory, kept));
}

fn every_spoilt_access_is_refused(role: Role) {
    let last = if role.is_remote() { Kind::Window } else { Kind::Privileged };
    with_two_adapters(|first, second| {
        for kind in [Kind::Registered, Kind::Run, Kind::Scattered, last] {
            for way in [Way::Alone, Way::Chain, Way::Long] {
                for spoilt in SPOILT.into_iter().filter(|spoilt| spoilt.means_something(role, kind)) {
                    refused([first, second], role, kind, (way, spoilt));
                }
            }
        }
    });
}

fn source_of_a_write() {
    every_spoilt_access_is_refused(Role::SourceOfWrite);
}

fn source_of_a_send() {
    every_spoilt_access_is_refused(Role::SourceOfSend);
}

fn sink_of_a_read() {
    every_spoilt_access_is_refused(Role::SinkOfRead);
}

fn receive_of_the_peer() {
    every_spoilt_access_is_refused(Role::Receive);
}

fn memory_that_the_peer_reads() {
    every_spoilt_access_is_refused(Role::Read);
}

fn memory_that_the_peer_writes() {
    every_spoilt_access_is_refused(Role::Written);
}
