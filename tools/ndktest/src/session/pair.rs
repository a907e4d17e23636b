//! A pair: two connected queue pairs on one or two adapters, with everything they stand on.

use core::{
    net::{IpAddr, SocketAddr},
    ptr,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
};

use ndkpi_sys::{
    ndkpi::{NDK_CONNECTOR, NDK_CQ, NDK_PD, NDK_QP, NDK_RESULT_EX, NDK_SRQ},
    nt::NTSTATUS,
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
        Arrivals, OpenedAdapter, Owned, PairListener, QueueSignal, Waiter, check, check_begun, create_queue_pair,
    },
    object::{Callback, Completion, ConnectParameters, PendingCall, QueuePairShape, SgeList},
    request::RequestWait,
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

    /// For the request of one of the waiters.
    fn completion(&self, of: impl FnOnce(&Self) -> &Waiter) -> Completion<'_> {
        // SAFETY: they outlive the connectors.
        unsafe { of(self).completion() }
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
    pub queue: Owned<NDK_CQ>,
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
        let domain = Owned::create(|done| adapter.handle().create_protection_domain(done))?;
        let queue = adapter.create_completion_queue(depth, &signal)?;
        let create_shared = || {
            let (domain, depth, sges) = (domain.handle(), shape.receive_depth, shape.receive_sges);
            Owned::create(|done| domain.create_shared_receive_queue(depth, sges, 0, &Callback::NONE, done))
        };
        let shared = if share_receives { Some(create_shared()?) } else { None };
        let queue_pair = create_queue_pair(&domain, &queue, shared.as_ref(), shape)?;
        PoolBox::try_new(tags::SESSION, Self { queue_pair, shared, queue, domain, signal, adapter }).map_err(none)
    }

    /// Posts a receive where this end's receives are posted.
    pub fn receive(&self, sges: SgeList) -> NTSTATUS {
        match &self.shared {
            None => self.queue_pair.handle().receive(ptr::null_mut(), sges),
            Some(shared) => shared.handle().receive(ptr::null_mut(), sges),
        }
    }

    /// Waits for the completion of a request of this end.
    pub fn wait_for_one(&self, request_wait: &RequestWait<'_>) -> Result<NDK_RESULT_EX, Status> {
        self.wait(request_wait, || false)
    }

    /// Waits for a message. None comes when the connection has ended: an end that comes leaves receives where they are.
    pub fn wait_for_message(&self, request_wait: &RequestWait<'_>) -> Result<NDK_RESULT_EX, Status> {
        self.wait(request_wait, || request_wait.is_disconnected())
    }

    fn wait(&self, request_wait: &RequestWait<'_>, is_in_vain: impl Fn() -> bool) -> Result<NDK_RESULT_EX, Status> {
        let mut results = [NDK_RESULT_EX::zeroed(); 1];
        let mut spins = 0;
        loop {
            // Whatever has arrived was completed before the event that tells the end.
            let is_in_vain = is_in_vain();
            if self.queue.handle().poll(&mut results) != 0 {
                return Ok(results[0]);
            }
            if is_in_vain {
                return Err(Status::CANCELLED);
            }
            if self.signal.failed() {
                return Err(Status::IO_DEVICE_ERROR);
            }
            spins += 1;
            if spins == SPINS {
                spins = 0;
                request_wait.check()?;
                request_wait.pause(&[&self.signal.arrived], Some(REST));
            }
        }
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
    /// Connects both ends, unless the request ends before.
    pub fn connect(
        plan: &Plan<'_>,
        client: OpenedAdapter,
        server: OpenedAdapter,
        request_wait: &RequestWait<'_>,
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
                receive_sges: sges,
                initiator_sges: sges,
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
                receive_sges: sges,
                initiator_sges: sges,
                inline_data,
            },
            false,
            (1, None),
        )?;
        let [client_ip, server_ip] = plan.addresses;
        let listener = server.adapter.create_listener()?;
        listener.listen(SocketAddr::new(server_ip, plan.asked.port))?;
        let destination = listener.handle().address()?;
        let client_connector = Owned::create(|done| client.adapter.handle().create_connector(done))?;
        let request_wait = request_wait.within(CONNECT_LIMIT);
        let attempt = Attempt { client: &client, server: &server, steps: &steps, pair: plan.pair, limits };
        let source = SocketAddr::new(client_ip, 0);
        let ways = (source, destination);
        let (server_connector, connecting) =
            attempt.meet(&listener.arrivals, &client_connector, ways, &request_wait)?;
        attempt.establish(&client_connector, &server_connector, connecting, &request_wait)?;
        // The pair has its one connection: unrelated peers meet no listener from now on.
        listener.handle().pause(true);
        listener.arrivals.discard();
        let addresses = [client_connector.handle().address()?, server_connector.handle().address()?];
        let [_, read_limit] = client_connector.handle().read_limits()?;
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
        let (client, server) = (self.client_connector.handle(), self.server_connector.handle());
        let first = client.disconnect(self.steps.completion(|steps| &steps.client_disconnect));
        let second = server.disconnect(self.steps.completion(|steps| &steps.server_disconnect));
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
    /// What a side brings.
    fn parameters<'a>(&self, side: &'a Side) -> ConnectParameters<'a> {
        let limit = self.limits.read_limit;
        let queue_pair = side.queue_pair.handle();
        ConnectParameters { queue_pair, inbound_read_limit: limit, outbound_read_limit: limit, private_data: &[] }
    }

    fn connect(&self, connector: &Owned<NDK_CONNECTOR>, source: SocketAddr, destination: SocketAddr) -> NTSTATUS {
        let (source, destination) = (wire_form(&source), wire_form(&destination));
        let done = self.steps.completion(|steps| &steps.connect);
        connector.handle().connect(&source, &destination, &self.parameters(self.client), done)
    }

    /// Connects until the client's connection arrives at the server. One that found every place taken by unrelated peers was refused;
    /// those have been sent away since.
    fn meet(
        &self,
        arrivals: &Arrivals,
        client: &Owned<NDK_CONNECTOR>,
        (source, destination): (SocketAddr, SocketAddr),
        request_wait: &RequestWait<'_>,
    ) -> Result<(Owned<NDK_CONNECTOR>, i32), Status> {
        loop {
            let connecting = self.connect(client, source, destination);
            match self.arrival(arrivals, client, connecting, request_wait) {
                Err(Status::CONNECTION_REFUSED) => {}
                arrived => return Ok((arrived?, connecting)),
            }
            arrivals.discard();
            request_wait.check()?;
            request_wait.pause(&[&arrivals.arrived], Some(RETRY));
        }
    }

    /// Waits for the client's connection to arrive at the server; a connect that fails ends the wait. Who else arrives meets a
    /// closed door: dropping refuses.
    fn arrival(
        &self,
        arrivals: &Arrivals,
        client: &Owned<NDK_CONNECTOR>,
        connecting: i32,
        request_wait: &RequestWait<'_>,
    ) -> Result<Owned<NDK_CONNECTOR>, Status> {
        check_begun(connecting)?;
        loop {
            while let Some(connector) = arrivals.take()? {
                // An unrelated peer that is gone has no address, nor has the client once it is refused: why, its connect tells.
                if let (Ok(from), Ok(own)) = (connector.handle().peer_address(), client.handle().address())
                    && is_same(from, own)
                {
                    return Ok(connector);
                }
            }
            if self.steps.connect.is_done() {
                check(self.steps.connect.wait(connecting))?;
                return Err(Status::CONNECTION_ABORTED);
            }
            request_wait.wait(&[&arrivals.arrived, self.steps.connect.event()])?;
        }
    }

    /// Accept, connect completes, complete the connect, accept completes.
    fn establish(
        &self,
        client: &Owned<NDK_CONNECTOR>,
        server: &Owned<NDK_CONNECTOR>,
        connecting: i32,
        request_wait: &RequestWait<'_>,
    ) -> Result<(), Status> {
        // SAFETY: the pair outlives its connectors.
        let event = unsafe { Callback::new(disconnected as _, ptr::from_ref(self.pair).cast_mut().cast()) };
        let done = self.steps.completion(|steps| &steps.accept);
        let accepting = server.handle().accept(&self.parameters(self.server), &event, done);
        // The client hears nothing of one that was refused.
        check_begun(accepting)?;
        let wait = |done: &Event| request_wait.wait(&[done]);
        check(self.steps.connect.finish_unless(connecting, wait)?)?;
        let done = self.steps.completion(|steps| &steps.complete);
        let completing = client.handle().complete_connect(&event, done);
        check(self.steps.complete.finish_unless(completing, wait)?)?;
        check(self.steps.accept.finish_unless(accepting, wait)?)
    }
}

/// Whether both ends see one address. The zone of a link-local one is each end's own.
fn is_same(from: SocketAddr, own: SocketAddr) -> bool {
    (from.ip(), from.port()) == (own.ip(), own.port())
}
