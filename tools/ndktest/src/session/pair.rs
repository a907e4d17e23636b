//! A pair: two connected queue pairs on one or two adapters, with everything they stand on.

use core::{
    net::{IpAddr, SocketAddr},
    ptr,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
};

use ndkpi_sys::{
    ndkpi::{NDK_CONNECTOR, NDK_PD, NDK_QP, NDK_RESULT_EX, NDK_SGE, NDK_SRQ},
    nt::{NTSTATUS, SOCKADDR},
};
use softndk_ioctl::{AddressFamily, PairCreateRequest, PairFlags, PairLimits, Status};
use softndk_kernel::{
    event::{Event, Mutex},
    pool::PoolBox,
    rundown::Rundown,
    spin_lock::SpinLock,
};

use super::{
    consumer::{
        self, Arrivals, CompletionQueue, OpenedAdapter, Owned, PairListener, QueuePairShape, QueueSignal, Waiter,
        check, completion, read_address,
    },
    request::Patience,
};
use crate::{driver::Driver, interface::Addresses, socket::wire_form, tags};

/// How long connecting may take, in nanoseconds.
const CONNECT_LIMIT: u64 = 10_000_000_000;
/// How long each end's graceful end may take, in nanoseconds.
const DISCONNECT_LIMIT: u64 = 1_000_000_000;
/// How long a connect that unrelated peers have crowded out waits before it tries again, in nanoseconds.
const RETRY: u64 = 10_000_000;
/// Requests of the server's own (registrations and invalidations, one at a time).
const SERVER_INITIATOR_DEPTH: u32 = 4;
/// Receives of the client's own: none is ever used.
const CLIENT_RECEIVE_DEPTH: u32 = 1;
/// Empty polls before a thread without notifications lets others run, and for how long, in nanoseconds.
pub const SPINS: u32 = 2_000;
pub const REST: u64 = 1_000_000;

/// One pair, as the table keeps it.
pub struct Pair {
    pub id: u32,
    /// Identity of the file it belongs to.
    pub file: usize,
    /// Indices of both interfaces.
    pub interfaces: [u32; 2],
    pub limits: PairLimits,
    /// Requests that use it now.
    pub users: Rundown,
    /// Why it has ended, as a status; 0 while it lives.
    pub ending: AtomicI32,
    /// A transfer is running.
    transferring: AtomicBool,
    /// The connection has ended. Set before the pair is closed: by a disconnect event, or by a transfer that broke it.
    disconnected: AtomicBool,
    /// What it is connected over, once it is.
    pub addresses: SpinLock<[Option<IpAddr>; 2]>,
    pub ends: Mutex<Option<Ends>>,
}

impl Pair {
    pub fn try_new(id: u32, file: usize, interfaces: [u32; 2], limits: PairLimits) -> Result<PoolBox<Self>, Status> {
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let pair = Self {
            id,
            file,
            interfaces,
            limits,
            users: Rundown::try_open(tags::RUNDOWN).map_err(none)?,
            ending: AtomicI32::new(0),
            transferring: AtomicBool::new(false),
            disconnected: AtomicBool::new(false),
            addresses: SpinLock::new([None; 2]),
            ends: Mutex::try_new(tags::EVENT, None).map_err(none)?,
        };
        PoolBox::try_new(tags::SESSION, pair).map_err(none)
    }

    /// Keeps other transfers away until [`Pair::finish_transfer`], if none is running.
    pub fn begin_transfer(&self) -> Result<(), Status> {
        if self.transferring.swap(true, Ordering::AcqRel) { Err(Status::DEVICE_BUSY) } else { Ok(()) }
    }

    pub fn finish_transfer(&self) {
        self.transferring.store(false, Ordering::Release);
    }

    /// Why the pair has ended, if it has.
    pub fn ended(&self) -> Option<Status> {
        let status = self.ending.load(Ordering::Acquire);
        (status != 0).then_some(Status(status))
    }

    pub fn is_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }

    /// `IRQL <= DISPATCH_LEVEL`.
    pub fn set_disconnected(&self) {
        self.disconnected.store(true, Ordering::Release);
    }

    /// What a request on a pair without connection is answered.
    pub fn end_status(&self) -> Status {
        self.ended().unwrap_or(Status::CONNECTION_DISCONNECTED)
    }

    /// Why the connection has ended: an adapter went, or something else. PASSIVE_LEVEL.
    pub fn disconnect_status(&self, driver: &'static Driver) -> Status {
        self.ended().unwrap_or_else(|| {
            let serve = self.interfaces.iter().all(|&interface| serves(driver, interface));
            if serve && self.addresses_are_there() { Status::CONNECTION_DISCONNECTED } else { Status::DEVICE_REMOVED }
        })
    }

    /// Why a registration or an invalidation failed: the connection whose end cancelled it may have ended with its adapter.
    /// PASSIVE_LEVEL.
    pub fn cause(&self, driver: &'static Driver, status: Status) -> Status {
        let cancelled = status == Status::CANCELLED;
        if cancelled && self.disconnect_status(driver) == Status::DEVICE_REMOVED {
            Status::DEVICE_REMOVED
        } else {
            status
        }
    }

    /// Whether the addresses that the pair is connected over are still there. PASSIVE_LEVEL.
    pub fn addresses_are_there(&self) -> bool {
        let addresses = *self.addresses.lock();
        are_there(addresses.into_iter().flatten().zip(self.interfaces))
    }

    /// From now on requests on the pair give up. The first reason stays. Those that wait have to be called
    /// ([`Workers::call_off`](super::worker::Workers::call_off)).
    pub fn condemn(&self, reason: Status) {
        let _kept = self.ending.compare_exchange(0, reason.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Ends a pair that was condemned: waits for its requests, then closes its objects. PASSIVE_LEVEL.
    pub fn end(&self) {
        self.users.shut();
        self.close_ends();
    }

    /// Closes its objects, when the transfer that runs on it is over. PASSIVE_LEVEL.
    pub fn close_ends(&self) {
        let ends = self.ends.lock().take();
        drop(ends);
    }
}

/// Whether interfaces still have these addresses. PASSIVE_LEVEL.
pub fn are_there(mut addresses: impl Iterator<Item = (IpAddr, u32)>) -> bool {
    let Ok(table) = Addresses::read() else { return true };
    addresses.all(|(ip, interface)| table.of(interface).any(|address| address.ip == ip))
}

/// Whether the NDK adapter of an interface can be opened: not while NDK is off or the adapter goes. PASSIVE_LEVEL.
pub fn serves(driver: &'static Driver, interface: u32) -> bool {
    !matches!(
        OpenedAdapter::open(driver, interface),
        Err(Status::DEVICE_NOT_READY | Status::DEVICE_DOES_NOT_EXIST | Status::DEVICE_REMOVED)
    )
}

/// NDK_FN_DISCONNECT_EVENT_CALLBACK of both connectors.
unsafe extern "C" fn disconnected(context: *mut core::ffi::c_void) {
    // SAFETY: a pair outlives its connectors.
    if let Some(pair) = unsafe { context.cast::<Pair>().as_ref() } {
        pair.set_disconnected();
    }
    if let Some(driver) = Driver::get() {
        driver.closer.wake();
    }
}

/// Waiters of the connection's requests; they outlive the connectors.
struct Steps {
    connect: Waiter,
    complete: Waiter,
    accept: Waiter,
    client_disconnect: Waiter,
    server_disconnect: Waiter,
}

impl Steps {
    fn try_new() -> Result<PoolBox<Self>, Status> {
        let steps = Self {
            connect: Waiter::try_new()?,
            complete: Waiter::try_new()?,
            accept: Waiter::try_new()?,
            client_disconnect: Waiter::try_new()?,
            server_disconnect: Waiter::try_new()?,
        };
        PoolBox::try_new(tags::SESSION, steps).map_err(|_| Status::INSUFFICIENT_RESOURCES)
    }
}

/// Both connected ends. Dropped in this order: what depends on something goes before it.
pub struct Ends {
    client_connector: Owned<NDK_CONNECTOR>,
    server_connector: Owned<NDK_CONNECTOR>,
    _listener: PairListener,
    pub client: PoolBox<Side>,
    pub server: PoolBox<Side>,
    steps: PoolBox<Steps>,
    pub addresses: [SocketAddr; 2],
    pub read_limit: u32,
    pub notify: bool,
    /// [`Ends::abandon`] has run.
    abandoned: AtomicBool,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Acquire) {
            self.disconnect();
        }
    }
}

/// One end: queue pair, shared receive queue, completion queue, protection domain, open adapter, in the order they are closed.
pub struct Side {
    pub queue_pair: Owned<NDK_QP>,
    /// Where the receives are posted instead of on the queue pair.
    shared: Option<Owned<NDK_SRQ>>,
    pub queue: CompletionQueue,
    pub domain: Owned<NDK_PD>,
    pub signal: PoolBox<QueueSignal>,
    pub adapter: OpenedAdapter,
}

impl Side {
    /// In the pool: two of them are large for a stack. The completion queue has room for so many queue pairs of this shape, and
    /// prefers a processor for its notifications or none.
    #[inline(never)]
    pub fn try_new(
        adapter: OpenedAdapter,
        shape: QueuePairShape,
        share_receives: bool,
        (queue_pairs, home): (u32, Option<u32>),
    ) -> Result<PoolBox<Self>, Status> {
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let signal = PoolBox::try_new(tags::SESSION, QueueSignal::try_new(home)?).map_err(none)?;
        let depth = shape.receive_depth.saturating_add(shape.initiator_depth).saturating_mul(queue_pairs.max(1));
        let domain = adapter.create_protection_domain()?;
        let queue = adapter.create_completion_queue(depth, &signal)?;
        let shared = if share_receives { Some(consumer::create_shared_receive_queue(&domain, shape)?) } else { None };
        let queue_pair = consumer::create_queue_pair(&domain, &queue, shared.as_ref(), shape)?;
        PoolBox::try_new(tags::SESSION, Self { queue_pair, shared, queue, domain, signal, adapter }).map_err(none)
    }

    /// Posts a receive where this end's receives are posted.
    ///
    /// # Safety
    /// `sges` points to `count` elements; their memory stays until the completion.
    pub unsafe fn receive(&self, sges: *const NDK_SGE, count: u32) -> NTSTATUS {
        let context = ptr::null_mut();
        match &self.shared {
            // SAFETY: NDKPI: NDK_FN_RECEIVE; the caller's promise.
            None => unsafe { (self.queue_pair.table().NdkReceive)(self.queue_pair.as_ptr(), context, sges, count) },
            // SAFETY: NDKPI: NDK_FN_SRQ_RECEIVE; the caller's promise.
            Some(shared) => unsafe { (shared.table().NdkSrqReceive)(shared.as_ptr(), context, sges, count) },
        }
    }

    /// Waits for one completion of this end's own.
    pub fn wait_for_one(&self, patience: &Patience<'_>) -> Result<NDK_RESULT_EX, Status> {
        let mut results = [NDK_RESULT_EX::zeroed(); 1];
        let mut spins = 0;
        while self.queue.poll(&mut results) == 0 {
            if self.signal.failed() {
                return Err(Status::IO_DEVICE_ERROR);
            }
            spins += 1;
            if spins == SPINS {
                spins = 0;
                patience.check()?;
                patience.pause(&[&self.signal.arrived], Some(REST));
            }
        }
        Ok(results[0])
    }
}

/// What to connect.
pub struct Plan<'a> {
    pub asked: &'a PairCreateRequest,
    pub pair: &'a Pair,
    pub limits: &'a PairLimits,
    pub addresses: [IpAddr; 2],
}

/// The addresses to connect, by the family that was asked for. PASSIVE_LEVEL.
pub fn choose_addresses([client, server]: [u32; 2], family: AddressFamily) -> Result<[IpAddr; 2], Status> {
    let table = Addresses::read()?;
    let both = |ipv4| Some([table.first_of_family(client, ipv4)?, table.first_of_family(server, ipv4)?]);
    let found = match family {
        AddressFamily::IPV4 => both(true),
        AddressFamily::IPV6 => both(false),
        _ => both(true).or_else(|| both(false)),
    };
    found.ok_or(Status::INVALID_ADDRESS)
}

impl Ends {
    /// Connects both ends, as long as there is patience.
    pub fn connect(
        plan: &Plan<'_>,
        client: OpenedAdapter,
        server: OpenedAdapter,
        patience: &Patience<'_>,
    ) -> Result<Self, Status> {
        let limits = plan.limits;
        let steps = Steps::try_new()?;
        let sges = limits.max_request_sge;
        let inline_data = limits.max_inline_data_size;
        let server = Side::try_new(
            server,
            QueuePairShape {
                receive_depth: limits.receive_queue_depth,
                initiator_depth: SERVER_INITIATOR_DEPTH,
                sges,
                inline_data: 0,
            },
            plan.asked.flags.contains(PairFlags::SHARED_RECEIVE),
            (1, None),
        )?;
        let client = Side::try_new(
            client,
            QueuePairShape {
                receive_depth: CLIENT_RECEIVE_DEPTH,
                initiator_depth: limits.initiator_queue_depth,
                sges,
                inline_data,
            },
            false,
            (1, None),
        )?;
        let [client_ip, server_ip] = plan.addresses;
        let listener = server.adapter.create_listener()?;
        listener.listen(SocketAddr::new(server_ip, plan.asked.port))?;
        let destination = listener.address()?;
        let client_connector = client.adapter.create_connector()?;
        let patience = patience.within(CONNECT_LIMIT);
        let attempt = Attempt { client: &client, server: &server, steps: &steps, pair: plan.pair, limits };
        let source = SocketAddr::new(client_ip, 0);
        let ways = (source, destination);
        let (server_connector, connecting) = attempt.meet(&listener.arrivals, &client_connector, ways, &patience)?;
        attempt.establish(&client_connector, &server_connector, connecting, &patience)?;
        // The pair has its one connection: unrelated peers meet no listener from now on.
        listener.pause();
        listener.arrivals.discard();
        let addresses = [connector_address(&client_connector)?, connector_address(&server_connector)?];
        let read_limit = outbound_limit(&client_connector)?;
        Ok(Self {
            client_connector,
            server_connector,
            _listener: listener,
            client,
            server,
            steps,
            addresses,
            read_limit,
            notify: plan.asked.flags.contains(PairFlags::NOTIFY),
            abandoned: AtomicBool::new(false),
        })
    }

    /// Closes the connection and both queue pairs, and waits: then nothing that was posted is outstanding, and its memory may
    /// go. For when completions do not tell. The pair is of no use afterwards, as it says itself. PASSIVE_LEVEL.
    ///
    /// # Safety
    /// The caller is the only one that uses the ends, and uses connectors, queue pairs and shared queue no more; later requests look at
    /// the pair first.
    pub unsafe fn abandon(&self, pair: &Pair) {
        pair.set_disconnected();
        self.abandoned.store(true, Ordering::Release);
        // A queue pair's close waits for its connector's.
        for connector in [&self.client_connector, &self.server_connector] {
            // SAFETY: nothing uses it any more: `disconnect`, which would, does not run for abandoned ends.
            unsafe { connector.close_early() };
        }
        for side in [&self.client, &self.server] {
            // SAFETY: the caller's promise.
            unsafe { side.queue_pair.close_early() };
            if let Some(shared) = &side.shared {
                // SAFETY: as above. What it still holds, no queue pair has taken.
                unsafe { shared.close_early() };
            }
        }
    }

    /// Ends the connection gracefully, within a limit; closing does the rest.
    fn disconnect(&self) {
        let (client, server) = (&self.client_connector, &self.server_connector);
        let (done, context) = completion(&self.steps.client_disconnect);
        // SAFETY: NDKPI: NDK_FN_DISCONNECT; the waiter outlives the connector.
        let first = unsafe { (client.table().NdkDisconnect)(client.as_ptr(), done, context) };
        let (done, context) = completion(&self.steps.server_disconnect);
        // SAFETY: as above.
        let second = unsafe { (server.table().NdkDisconnect)(server.as_ptr(), done, context) };
        self.steps.client_disconnect.finish_within(first, DISCONNECT_LIMIT);
        self.steps.server_disconnect.finish_within(second, DISCONNECT_LIMIT);
    }
}

/// A connection being made.
struct Attempt<'a> {
    client: &'a Side,
    server: &'a Side,
    steps: &'a Steps,
    pair: &'a Pair,
    limits: &'a PairLimits,
}

impl Attempt<'_> {
    fn connect(&self, connector: &Owned<NDK_CONNECTOR>, source: SocketAddr, destination: SocketAddr) -> i32 {
        let (source, source_length) = wire_form(&source);
        let (destination, destination_length) = wire_form(&destination);
        let (done, context) = completion(&self.steps.connect);
        // SAFETY: NDKPI: NDK_FN_CONNECT with addresses that live for the call and a waiter that outlives the connector.
        unsafe {
            (connector.table().NdkConnect)(
                connector.as_ptr(),
                self.client.queue_pair.as_ptr(),
                (&raw const source).cast::<SOCKADDR>(),
                source_length,
                (&raw const destination).cast::<SOCKADDR>(),
                destination_length,
                self.limits.read_limit,
                self.limits.read_limit,
                ptr::null(),
                0,
                done,
                context,
            )
        }
    }

    /// Connects until the client's connection arrives at the server. One that found every place taken by unrelated peers was refused;
    /// those have been sent away since.
    fn meet(
        &self,
        arrivals: &Arrivals,
        client: &Owned<NDK_CONNECTOR>,
        (source, destination): (SocketAddr, SocketAddr),
        patience: &Patience<'_>,
    ) -> Result<(Owned<NDK_CONNECTOR>, i32), Status> {
        loop {
            let connecting = self.connect(client, source, destination);
            match self.arrival(arrivals, client, connecting, patience) {
                Err(Status::CONNECTION_REFUSED) => {}
                arrived => return Ok((arrived?, connecting)),
            }
            self.steps.connect.reset();
            arrivals.discard();
            patience.check()?;
            patience.pause(&[&arrivals.arrived], Some(RETRY));
        }
    }

    /// Waits for the client's connection to arrive at the server; a connect that fails ends the wait. Who else arrives meets a
    /// closed door: dropping refuses.
    fn arrival(
        &self,
        arrivals: &Arrivals,
        client: &Owned<NDK_CONNECTOR>,
        connecting: i32,
        patience: &Patience<'_>,
    ) -> Result<Owned<NDK_CONNECTOR>, Status> {
        if connecting != ndkpi_sys::nt::STATUS_PENDING {
            check(connecting)?;
        }
        loop {
            while let Some(connector) = arrivals.take()? {
                // An unrelated peer that is gone has no address, nor has the client once it is refused: why, its connect tells.
                if let (Ok(from), Ok(own)) = (peer_address(&connector), connector_address(client))
                    && is_same(from, own)
                {
                    return Ok(connector);
                }
            }
            if self.steps.connect.is_done() {
                check(self.steps.connect.finish(connecting))?;
                return Err(Status::CONNECTION_ABORTED);
            }
            patience.wait(&[&arrivals.arrived, self.steps.connect.event()])?;
        }
    }

    /// Accept, connect completes, complete the connect, accept completes.
    fn establish(
        &self,
        client: &Owned<NDK_CONNECTOR>,
        server: &Owned<NDK_CONNECTOR>,
        connecting: i32,
        patience: &Patience<'_>,
    ) -> Result<(), Status> {
        let context: *mut core::ffi::c_void = ptr::from_ref(self.pair).cast_mut().cast();
        let (done, asked) = completion(&self.steps.accept);
        // SAFETY: NDKPI: NDK_FN_ACCEPT; pair and waiter outlive the connector.
        let accepting = unsafe {
            (server.table().NdkAccept)(
                server.as_ptr(),
                self.server.queue_pair.as_ptr(),
                self.limits.read_limit,
                self.limits.read_limit,
                ptr::null(),
                0,
                Some(disconnected),
                context,
                done,
                asked,
            )
        };
        let wait = |done: &Event| patience.wait(&[done]);
        check(self.steps.connect.finish_unless(connecting, wait)?)?;
        let (done, asked) = completion(&self.steps.complete);
        // SAFETY: NDKPI: NDK_FN_COMPLETE_CONNECT; pair and waiter outlive the connector.
        let completing =
            unsafe { (client.table().NdkCompleteConnect)(client.as_ptr(), Some(disconnected), context, done, asked) };
        check(self.steps.complete.finish_unless(completing, wait)?)?;
        check(self.steps.accept.finish_unless(accepting, wait)?)
    }
}

/// Whether both ends see one address. The zone of a link-local one is each end's own.
fn is_same(from: SocketAddr, own: SocketAddr) -> bool {
    (from.ip(), from.port()) == (own.ip(), own.port())
}

fn connector_address(connector: &Owned<NDK_CONNECTOR>) -> Result<SocketAddr, Status> {
    // SAFETY: NDKPI: NDK_FN_GET_LOCAL_ADDRESS.
    read_address(|address, length| unsafe {
        (connector.table().NdkGetLocalAddress)(connector.as_ptr(), address, length)
    })
}

fn peer_address(connector: &Owned<NDK_CONNECTOR>) -> Result<SocketAddr, Status> {
    // SAFETY: NDKPI: NDK_FN_GET_PEER_ADDRESS.
    read_address(|address, length| unsafe {
        (connector.table().NdkGetPeerAddress)(connector.as_ptr(), address, length)
    })
}

/// Reads the client may have outstanding, after negotiation.
fn outbound_limit(connector: &Owned<NDK_CONNECTOR>) -> Result<u32, Status> {
    let (mut inbound, mut outbound, mut length) = (0, 0, 0);
    // SAFETY: NDKPI: NDK_FN_GET_CONNECTION_DATA without a buffer asks for sizes and limits.
    let status = unsafe {
        (connector.table().NdkGetConnectionData)(
            connector.as_ptr(),
            &raw mut inbound,
            &raw mut outbound,
            ptr::null_mut(),
            &raw mut length,
        )
    };
    check(status)?;
    Ok(outbound)
}
