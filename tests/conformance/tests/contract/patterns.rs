//! Whole runs of common consumers: one without a context in any call, and one that connects, moves data and closes as the
//! consumer sample of the driver kit does. Their loops while data moves are in `drain`.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use conformance::case;
use conformance::consumer::completion::stub;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, End, Listener, Mapping, NdkObject, Object, Offer, Pair, ProtectionDomain,
    QueuePair, QueuePairShape, Window, WindowKind, establish, register_fast, sge,
};
use conformance::machine::{Machine, Setup, wait_until, with_machine};
use conformance::trial::Case;
use kernel_host::call_image;
use kernel_host::callback;
use kernel_host::callout::{Context, ContextKind};
use kernel_host::irql::IrqlRange;
use ndkpi_sys::ndkinfo::*;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{NTSTATUS, PVOID, STATUS_CANCELLED, STATUS_PENDING};
use ndkpi_sys::windows_abi;

pub const CASES: &[Case] = &[
    case!(no_context_anywhere: "NDK-ASY-1", "NDK-CM-12"),
    case!(no_context_anywhere_and_everything_pends: "NDK-ASY-1", "NDK-ASY-7"),
    case!(sample_consumer_of_version_1_0: "NDK-OPEN-1", "NDK-QP-8", "NDK-LAM-3"),
    case!(parents_closed_first_with_requests_outstanding: "NDK-CLOSE-2", "BUG-8"),
    case!(parents_closed_last_one_after_the_other: "NDK-CLOSE-16", "BUG-8"),
];

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();
const NOTHING: *const c_void = ptr::null();

/// What the callbacks have seen; they get no context, so it is kept in statics.
static NOTIFICATIONS: AtomicU32 = AtomicU32::new(0);
static ARRIVED: AtomicPtr<NDK_CONNECTOR> = AtomicPtr::new(ptr::null_mut());
static DISCONNECTS: AtomicU32 = AtomicU32::new(0);
static CREATED: AtomicU32 = AtomicU32::new(0);
static OBJECT: AtomicPtr<NDK_OBJECT_HEADER> = AtomicPtr::new(ptr::null_mut());
static REQUESTED: AtomicU32 = AtomicU32::new(0);
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// Requests that have pended.
static PENDED: AtomicU32 = AtomicU32::new(0);

fn enter(name: &str, context: PVOID) {
    callback::enter_consumer_callback(name, IrqlRange::DISPATCH_ONLY);
    assert!(context.is_null(), "{name} brings a context that was not given");
}

windows_abi! {
    unsafe fn notified(context: PVOID, status: NTSTATUS) {
        enter("NDK_FN_CQ_NOTIFICATION_CALLBACK", context);
        assert_eq!(status, 0, "a notification");
        NOTIFICATIONS.fetch_add(1, Ordering::AcqRel);
    }

    unsafe fn arrived(context: PVOID, connector: *mut NDK_CONNECTOR) {
        enter("NDK_FN_CONNECT_EVENT_CALLBACK", context);
        ARRIVED.store(connector, Ordering::Release);
    }

    unsafe fn disconnected(context: PVOID) {
        enter("NDK_FN_DISCONNECT_EVENT_CALLBACK", context);
        DISCONNECTS.fetch_add(1, Ordering::AcqRel);
    }

    unsafe fn created(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        enter("NDK_FN_CREATE_COMPLETION", context);
        assert_eq!(status, 0, "a create");
        OBJECT.store(object, Ordering::Release);
        CREATED.fetch_add(1, Ordering::AcqRel);
    }

    unsafe fn requested(context: PVOID, status: NTSTATUS) {
        enter("NDK_FN_REQUEST_COMPLETION", context);
        assert_eq!(status, 0, "a request");
        REQUESTED.fetch_add(1, Ordering::AcqRel);
    }

    unsafe fn closed(context: PVOID) {
        enter("NDK_FN_CLOSE_COMPLETION", context);
        CLOSED.fetch_add(1, Ordering::AcqRel);
    }
}

/// A function that image code may call.
macro_rules! callback {
    ($function:ident, $arguments:literal) => {{
        static SLOT: OnceLock<usize> = OnceLock::new();
        stub(&SLOT, $function as *const c_void, $arguments)
    }};
}

/// Calls a slot of an object's table with the object first.
macro_rules! call {
    ($object:expr, $slot:ident => $result:ty $(; $($argument:expr),+)?) => {{
        let name = Context::new(ContextKind::DispatchFunction, stringify!($slot));
        // SAFETY: the arguments are those of the slot's function.
        unsafe { call_image!(name, $object.table().$slot => $result; $object.pointer() $(, $($argument),+)?) }
    }};
}

/// Makes an object with a completion that has no context; one is made at a time.
fn create<T: NdkObject>(adapter: &Adapter, call: impl FnOnce(*const c_void, *mut *mut T) -> NTSTATUS) -> Object<T> {
    let before = CREATED.load(Ordering::Acquire);
    // Leaked: a create that pends may not touch it, however late.
    let out = Box::into_raw(Box::new(ptr::null_mut()));
    let status = call(callback!(created, 3), out);
    let object = if status == STATUS_PENDING {
        wait_until("a create completes", || CREATED.load(Ordering::Acquire) > before);
        OBJECT.load(Ordering::Acquire).cast()
    } else {
        assert_eq!(status, 0, "a create");
        // SAFETY: our own memory, which the call has written.
        unsafe { out.read() }
    };
    Object::adopt(object, adapter.version())
}

/// Starts a request whose completion has no context.
fn begin(call: impl FnOnce(*const c_void) -> NTSTATUS) {
    match call(callback!(requested, 2)) {
        STATUS_PENDING => drop(PENDED.fetch_add(1, Ordering::AcqRel)),
        status => assert_eq!(status, 0, "a request"),
    }
}

/// Waits until all requests but some are complete.
fn all_but(open: u32) {
    let is_so = || REQUESTED.load(Ordering::Acquire) + open >= PENDED.load(Ordering::Acquire);
    wait_until("requests complete", is_so);
}

macro_rules! close {
    ($object:expr, $slot:ident) => {{
        let before = CLOSED.load(Ordering::Acquire);
        match call!($object, $slot => NTSTATUS; callback!(closed, 1), NOTHING) {
            STATUS_PENDING => wait_until("a close completes", || CLOSED.load(Ordering::Acquire) > before),
            status => assert_eq!(status, 0, "a close"),
        }
        // It is closed, and the wrapper would close it with a context.
        std::mem::forget($object);
    }};
}

/// An IPv4 address as the interface takes it.
fn address(last: u8, port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = 2;
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[10, 0, 0, last]);
    bytes
}

/// What hangs on one adapter.
struct Bare {
    domain: Object<NDK_PD>,
    queue: Object<NDK_CQ>,
    pair: Object<NDK_QP>,
}

impl Bare {
    fn new(adapter: &Adapter) -> Self {
        let queue = create(adapter, |completion, out| {
            call!(adapter, NdkCreateCq => NTSTATUS;
                16_u32, callback!(notified, 2), NOTHING, NOTHING, completion, NOTHING, out)
        });
        let domain: Object<NDK_PD> =
            create(adapter, |completion, out| call!(adapter, NdkCreatePd => NTSTATUS; completion, NOTHING, out));
        let pair = create(adapter, |completion, out| {
            call!(domain, NdkCreateQp => NTSTATUS; queue.pointer(), queue.pointer(), NOTHING,
                4_u32, 4_u32, 1_u32, 1_u32, 0_u32, completion, NOTHING, out)
        });
        Self { domain, queue, pair }
    }

    /// The one result that is there or comes, which has no context either.
    fn result(&self) -> NDK_RESULT_EX {
        let mut result = NDK_RESULT_EX::zeroed();
        let place = &raw mut result;
        wait_until("a result", || call!(self.queue, NdkGetCqResultsEx => u32; place, 1_u32) == 1);
        // SAFETY: our own result, written by the call.
        let result = unsafe { place.read() };
        assert!(result.RequestContext.is_null() && result.QPContext.is_null(), "contexts that were not given");
        result
    }

    fn close(self) {
        let Self { domain, queue, pair } = self;
        close!(pair, NdkCloseQp);
        close!(queue, NdkCloseCq);
        close!(domain, NdkClosePd);
    }
}

fn without_contexts(machine: &Machine) {
    let (first, second) = (machine.open(0), machine.open(1));
    let (active, passive) = (Bare::new(&first), Bare::new(&second));
    let listener: Object<NDK_LISTENER> = create(
        &second,
        |completion, out| call!(second, NdkCreateListener => NTSTATUS; callback!(arrived, 2), NOTHING, completion, NOTHING, out),
    );
    let there = address(2, 5445);
    begin(|completion| call!(listener, NdkListen => NTSTATUS; there.as_ptr(), 16_u32, completion, NOTHING));
    all_but(0);
    let connector: Object<NDK_CONNECTOR> =
        create(&first, |completion, out| call!(first, NdkCreateConnector => NTSTATUS; completion, NOTHING, out));
    let here = address(1, 0);
    begin(|completion| {
        call!(connector, NdkConnect => NTSTATUS; active.pair.pointer(), here.as_ptr(), 16_u32, there.as_ptr(), 16_u32,
            1_u32, 1_u32, NOTHING, 0_u32, completion, NOTHING)
    });
    wait_until("a connection request", || !ARRIVED.load(Ordering::Acquire).is_null());
    let accepted = Object::adopt(ARRIVED.load(Ordering::Acquire), second.version());
    begin(|completion| {
        call!(accepted, NdkAccept => NTSTATUS; passive.pair.pointer(), 1_u32, 1_u32, NOTHING, 0_u32,
            callback!(disconnected, 1), NOTHING, completion, NOTHING)
    });
    // The accept waits for the other side's last step.
    all_but(1);
    begin(
        |completion| call!(connector, NdkCompleteConnect => NTSTATUS; callback!(disconnected, 1), NOTHING, completion, NOTHING),
    );
    all_but(0);

    let kind = NDK_CQ_NOTIFY_ANY;
    call!(passive.queue, NdkArmCq => (); kind);
    let posted = call!(active.pair, NdkSend => NTSTATUS; NOTHING, NOTHING, 0_u32, 0_u32);
    assert_eq!(posted, 0, "a send before there is a receive");
    assert_eq!(call!(passive.pair, NdkReceive => NTSTATUS; NOTHING, NOTHING, 0_u32), 0);
    wait_until("a notification", || NOTIFICATIONS.load(Ordering::Acquire) > 0);
    assert_eq!((passive.result().Status, active.result().Status), (0, 0));

    begin(|completion| call!(connector, NdkDisconnect => NTSTATUS; completion, NOTHING));
    wait_until("the disconnect event", || DISCONNECTS.load(Ordering::Acquire) > 0);
    begin(|completion| call!(accepted, NdkDisconnect => NTSTATUS; completion, NOTHING));
    all_but(0);
    close!(accepted, NdkCloseConnector);
    close!(connector, NdkCloseConnector);
    close!(listener, NdkCloseListener);
    active.close();
    passive.close();
    assert_eq!((NOTIFICATIONS.load(Ordering::Acquire), DISCONNECTS.load(Ordering::Acquire)), (1, 1));
    assert_eq!(REQUESTED.load(Ordering::Acquire), PENDED.load(Ordering::Acquire), "completions of requests");
}

fn no_context_anywhere() {
    with_machine(&Setup::default(), without_contexts);
}

fn no_context_anywhere_and_everything_pends() {
    let mut setup = Setup::default();
    setup.adapters.iter_mut().for_each(|adapter| adapter.keywords.push(("CompletionMode", "1")));
    with_machine(&setup, without_contexts);
    assert!(CREATED.load(Ordering::Acquire) >= 8 && CLOSED.load(Ordering::Acquire) >= 8, "creates and closes pend");
}

/// What the sample does on one adapter before it connects: queues as deep as the queue pair, moderated where that is offered.
fn sample_end(adapter: &Adapter) -> End<'_> {
    let info = adapter.info();
    assert!(info.AdapterFlags.contains(NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED), "the sample's condition");
    let shape = adapter.fit(QueuePairShape { receive_depth: 32, initiator_depth: 32, ..QueuePairShape::default() });
    let domain = ProtectionDomain::new(adapter).expect("a protection domain");
    let receive = CompletionQueue::new(adapter, shape.receive_depth).expect("a completion queue");
    let initiator = CompletionQueue::new(adapter, shape.initiator_depth).expect("a completion queue");
    if info.AdapterFlags.contains(NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED) {
        for queue in [&receive, &initiator] {
            assert_eq!(queue.moderate(20, u32::MAX), 0, "moderation by time alone");
        }
    }
    let queue_pair = QueuePair::new(&domain, &receive, &initiator, shape).expect("a queue pair");
    End { connector: None, queue_pair, initiator, receive, domain, adapter }
}

/// The whole scenario of a consumer that asks for version 1.0: the most reads that the adapter takes, no private data, receives
/// that are posted when the connection is established, local memory by the privileged token only, remote memory by fast registration,
/// the read limits asked for at the end, and no Disconnect: a flush, and the connector is closed.
fn sample_consumer_of_version_1_0() {
    const BYTES: usize = 4096;
    with_machine(&Setup::default(), |machine| {
        let open = |index| machine.try_open(index, NDK_VERSION { Major: 1, Minor: 0 }).expect("version 1.0 is served");
        let (first, second) = (open(0), open(1));
        let (active, passive) = (sample_end(&first), sample_end(&second));
        let listener = Listener::new(&second).expect("a listener");
        assert_eq!(listener.listen(second.address()), 0);
        let info = first.info();
        let (inbound_reads, outbound_reads) = (info.MaxInboundReadLimit, info.MaxOutboundReadLimit);
        let offer = Offer { inbound_reads, outbound_reads, private_data: &[] };
        let from = (&first, &active.queue_pair, first.address());
        let (connector, accepted) = establish(from, (&listener, &passive.queue_pair), &offer).expect("a connection");
        for end in [&active, &passive] {
            end.receive.arm(NDK_CQ_NOTIFY_ANY);
            end.initiator.arm(NDK_CQ_NOTIFY_ANY);
        }
        assert!(connector.data().outbound_reads > 0 && accepted.data().inbound_reads > 0, "limits, asked for late");

        // The first message waits for a receive of the other side.
        let message = Window::open(&active, Buffer::scattered(64), WindowKind::Privileged);
        message.buffer.fill_with_seed(7);
        assert_eq!(active.queue_pair.send(1, &[message.sge(0..64)], NONE), 0);
        let place = Window::open(&passive, Buffer::scattered(64), WindowKind::Privileged);
        for request in 0..4 {
            assert_eq!(passive.queue_pair.receive(request, &[place.sge(0..64)]), 0);
        }
        assert_eq!(passive.receive.wait_for_one().Status, 0);
        assert_eq!(active.initiator.wait_for_one().Status, 0);
        place.buffer.assert_seed(7, 0..64);

        let source = Buffer::scattered(BYTES);
        source.fill_with_seed(8);
        let mapping = Mapping::build(&first, &source).expect("a logical mapping");
        let region = active.domain.fast_region(info.FRMRPageCount, true);
        register_fast(&active, &region, &mapping, &source, NDK_OP_FLAG_ALLOW_REMOTE_READ);
        let sink = Buffer::scattered(BYTES);
        let sink_mapping = Mapping::build(&second, &sink).expect("a logical mapping");
        let token = passive.domain.privileged_token();
        // A page for each scatter/gather element: the sample does not merge adjacent pages.
        let first_bytes = 4096 - sink_mapping.first_byte_offset() as usize;
        let list = [
            sge(sink_mapping.address_of(0), first_bytes, token),
            sge(sink_mapping.address_of(first_bytes), BYTES - first_bytes, token),
        ];
        let remote = conformance::consumer::Remote { address: source.label(), token: region.remote_token() };
        assert_eq!(passive.queue_pair.read(2, &list, remote, NONE), 0);
        assert_eq!(passive.initiator.wait_for_one().Status, 0);
        sink.assert_seed(8, 0..BYTES);

        passive.queue_pair.flush();
        let rest = passive.receive.wait_for(3);
        assert!(rest.iter().all(|result| result.Status == STATUS_CANCELLED), "{rest:x?}");
        listener.pause_events(true);
        accepted.close();
        assert!(connector.wait_for_disconnect(), "the other side gets an event");
        connector.close();
    });
}

fn pair_with_requests_outstanding<'a>(first: &'a Adapter, second: &'a Adapter) -> Pair<'a> {
    let pair = Pair::connect(first, second);
    for request in 0..8 {
        assert_eq!(pair.active.queue_pair.receive(request, &[]), 0);
        assert_eq!(pair.passive.queue_pair.receive(request, &[]), 0);
        assert_eq!(pair.active.queue_pair.send(request, &[], NONE), 0);
    }
    pair
}

/// Everything at once, the domain before all that is in it.
fn parents_closed_first_with_requests_outstanding() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = pair_with_requests_outstanding(&first, &second);
        let listener = pair.listener.object().begin_close();
        let closing = pair.ends().map(|(end, _)| {
            [
                end.domain.object().begin_close(),
                end.receive.object().begin_close(),
                end.initiator.object().begin_close(),
                end.queue_pair.object().begin_close(),
                end.connector().object().begin_close(),
            ]
        });
        for started in closing.into_iter().flatten().chain([listener]) {
            started.wait();
        }
    });
}

fn parents_closed_last_one_after_the_other() {
    with_machine(&Setup::default(), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        let pair = pair_with_requests_outstanding(&first, &second);
        for (end, _) in pair.ends() {
            end.connector().close();
            end.queue_pair.close();
            end.receive.close();
            end.initiator.close();
            end.domain.close();
        }
        pair.listener.close();
    });
}
