//! What the input of each code looks like: how long it is, and where it has handles of which kind.

use fastrand::Rng;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::*;
use std::mem::offset_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Adapter,
    Domain,
    Queue,
    Region,
    Window,
    Shared,
    Connector,
    Listener,
    Pair,
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub code: u32,
    pub length: usize,
    pub handles: &'static [(usize, Kind)],
    /// Where an address stands.
    pub address: Option<usize>,
    /// What a success is the handle of.
    pub makes: Option<Kind>,
    /// It brings memory.
    pub direct: bool,
}

const PLAIN: Shape =
    Shape { code: 0, length: size_of::<Handle>(), handles: &[], address: None, makes: None, direct: false };

const AT: usize = offset_of!(Handle, handle);

macro_rules! of_kind {
    ($($code:ident: $kind:ident $(=> $makes:ident)?;)*) => {
        [$(Shape { code: $code, handles: &[(AT, Kind::$kind)], makes: [$(Some(Kind::$makes),)? None][0], ..PLAIN }),*]
    };
}

/// Codes that take one handle.
const BY_HANDLE: [Shape; 37] = of_kind! {
    ADAPTER_CLOSE: Adapter;
    ADAPTER_QUERY: Adapter;
    ADAPTER_QUERY_ADDRESS_LIST: Adapter;
    QUERY_ADDRESSES: Adapter;
    PD_CREATE: Adapter => Domain;
    PD_FREE: Domain;
    CQ_FREE: Queue;
    CQ_CANCEL_IO: Queue;
    CQ_GET_AFFINITY: Queue;
    CQ_NOTIFY: Queue;
    MR_CREATE: Domain => Region;
    MR_FREE: Region;
    MR_CANCEL_IO: Region;
    MR_DEREGISTER: Region;
    MW_CREATE: Domain => Window;
    MW_FREE: Window;
    SRQ_FREE: Shared;
    SRQ_CANCEL_IO: Shared;
    SRQ_GET_AFFINITY: Shared;
    SRQ_NOTIFY: Shared;
    CONNECTOR_CREATE: Adapter => Connector;
    CONNECTOR_FREE: Connector;
    CONNECTOR_CANCEL_IO: Connector;
    CONNECTOR_COMPLETE_CONNECT: Connector;
    CONNECTOR_GET_READ_LIMITS: Connector;
    CONNECTOR_GET_PRIVATE_DATA: Connector;
    GET_PRIVATE_DATA: Connector;
    CONNECTOR_GET_PEER_ADDRESS: Connector;
    CONNECTOR_GET_ADDRESS: Connector;
    CONNECTOR_NOTIFY_DISCONNECT: Connector;
    CONNECTOR_DISCONNECT: Connector;
    LISTENER_CREATE: Adapter => Listener;
    LISTENER_FREE: Listener;
    LISTENER_CANCEL_IO: Listener;
    LISTENER_GET_ADDRESS: Listener;
    QP_FREE: Pair;
    QP_FLUSH: Pair;
};

const LONGER: &[Shape] = &[
    Shape { code: PROVIDER_QUERY_ADDRESS_LIST, ..PLAIN },
    Shape { code: PROVIDER_INIT, ..PLAIN },
    Shape { code: PROVIDER_BIND_FILE, ..PLAIN },
    Shape {
        code: PROVIDER_RESOLVE_ADDRESS,
        length: size_of::<ResolveAddress>(),
        address: Some(offset_of!(ResolveAddress, address)),
        ..PLAIN
    },
    Shape { code: ADAPTER_OPEN, length: size_of::<OpenAdapter>(), makes: Some(Kind::Adapter), ..PLAIN },
    Shape {
        code: CQ_CREATE,
        length: size_of::<CreateCompletionQueue>(),
        handles: &[(offset_of!(CreateCompletionQueue, adapter), Kind::Adapter)],
        makes: Some(Kind::Queue),
        ..PLAIN
    },
    Shape {
        code: CQ_MODIFY,
        length: size_of::<ModifyCompletionQueue>(),
        handles: &[(offset_of!(ModifyCompletionQueue, handle), Kind::Queue)],
        ..PLAIN
    },
    Shape {
        code: SRQ_CREATE,
        length: size_of::<CreateSharedReceiveQueue>(),
        handles: &[(offset_of!(CreateSharedReceiveQueue, domain), Kind::Domain)],
        makes: Some(Kind::Shared),
        ..PLAIN
    },
    Shape {
        code: SRQ_MODIFY,
        length: size_of::<ModifySharedReceiveQueue>(),
        handles: &[(offset_of!(ModifySharedReceiveQueue, handle), Kind::Shared)],
        ..PLAIN
    },
    Shape {
        code: QP_CREATE,
        length: size_of::<CreateQueuePair>(),
        handles: &[
            (offset_of!(CreateQueuePair, receive_queue), Kind::Queue),
            (offset_of!(CreateQueuePair, initiator_queue), Kind::Queue),
            (offset_of!(CreateQueuePair, domain), Kind::Domain),
        ],
        makes: Some(Kind::Pair),
        ..PLAIN
    },
    Shape {
        code: QP_CREATE_WITH_SRQ,
        length: size_of::<CreateQueuePair>() + size_of::<QueuePairContext>(),
        handles: &[
            (offset_of!(CreateQueuePair, receive_queue), Kind::Queue),
            (offset_of!(CreateQueuePair, initiator_queue), Kind::Queue),
            (offset_of!(CreateQueuePair, domain), Kind::Domain),
            (offset_of!(CreateQueuePair, receive), Kind::Shared),
        ],
        makes: Some(Kind::Pair),
        ..PLAIN
    },
    Shape {
        code: MR_REGISTER,
        length: size_of::<Register>(),
        handles: &[(offset_of!(Register, handle), Kind::Region)],
        ..PLAIN
    },
    Shape {
        code: CONNECTOR_BIND,
        length: size_of::<Bind>(),
        handles: &[(offset_of!(Bind, handle), Kind::Connector)],
        address: Some(offset_of!(Bind, address)),
        ..PLAIN
    },
    Shape {
        code: LISTENER_BIND,
        length: size_of::<Bind>(),
        handles: &[(offset_of!(Bind, handle), Kind::Listener)],
        address: Some(offset_of!(Bind, address)),
        ..PLAIN
    },
    Shape {
        code: LISTENER_LISTEN,
        length: size_of::<Listen>(),
        handles: &[(offset_of!(Listen, listener), Kind::Listener)],
        ..PLAIN
    },
    Shape {
        code: LISTENER_GET_CONNECTION_REQUEST,
        length: size_of::<GetConnectionRequest>(),
        handles: &[
            (offset_of!(GetConnectionRequest, listener), Kind::Listener),
            (offset_of!(GetConnectionRequest, connector), Kind::Connector),
        ],
        ..PLAIN
    },
    Shape {
        code: CONNECTOR_CONNECT,
        length: size_of::<Connect>() + 32,
        handles: &[(offset_of!(Connect, connector), Kind::Connector), (offset_of!(Connect, queue_pair), Kind::Pair)],
        address: Some(offset_of!(Connect, destination)),
        ..PLAIN
    },
    Shape {
        code: CONNECTOR_ACCEPT,
        length: size_of::<Accept>() + 32,
        handles: &[(offset_of!(Accept, connector), Kind::Connector), (offset_of!(Accept, queue_pair), Kind::Pair)],
        ..PLAIN
    },
    Shape {
        code: CONNECTOR_REJECT,
        length: size_of::<Reject>() + 32,
        handles: &[(offset_of!(Reject, connector), Kind::Connector)],
        ..PLAIN
    },
    Shape {
        code: BIND_WINDOW,
        length: size_of::<BindWindow>(),
        handles: &[
            (offset_of!(BindWindow, queue_pair), Kind::Pair),
            (offset_of!(BindWindow, region), Kind::Region),
            (offset_of!(BindWindow, window), Kind::Window),
        ],
        ..PLAIN
    },
    Shape { code: DOORBELL, handles: &[(AT, Kind::Pair)], ..PLAIN },
    Shape { code: DOORBELL, handles: &[(AT, Kind::Queue)], ..PLAIN },
    Shape { code: DOORBELL, handles: &[(AT, Kind::Shared)], ..PLAIN },
    Shape { code: ATTACH, handles: &[(AT, Kind::Pair)], direct: true, ..PLAIN },
    Shape { code: ATTACH, handles: &[(AT, Kind::Queue)], direct: true, ..PLAIN },
    Shape { code: ATTACH, handles: &[(AT, Kind::Shared)], direct: true, ..PLAIN },
    Shape { code: LOCK_FOR_WRITING, handles: &[(AT, Kind::Region)], direct: true, ..PLAIN },
    Shape { code: LOCK_FOR_READING, handles: &[(AT, Kind::Region)], direct: true, ..PLAIN },
];

/// All of them, those that make objects or bring memory more often than those that free; now and then a code that does not exist.
pub fn choose(random: &mut Rng) -> Shape {
    let builds = random.u8(..5) < 2;
    loop {
        let index = random.usize(..=COUNT);
        let shape = BY_HANDLE.get(index).or_else(|| LONGER.get(index - BY_HANDLE.len()));
        match shape {
            Some(shape) if !builds || shape.makes.is_some() || shape.direct || shape.address.is_some() => {
                return *shape;
            }
            None if !builds => return Shape { code: 0x12_0000 | random.u32(..0x900) << 2, ..PLAIN },
            _ => {}
        }
    }
}

/// How many there are.
pub const COUNT: usize = BY_HANDLE.len() + LONGER.len();
