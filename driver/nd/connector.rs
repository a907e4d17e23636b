//! Connectors: one end of a connection of a process.
//!
//! The engine's connector is made when the process connects, or comes with a request that a listener hands over; an attempt that is
//! cancelled takes it along, and the next one gets a new one. The peer's end is answered by the driver itself: the requests that wait
//! for it are told, and the engine's connector disconnects, so that the peer's Disconnect does not wait for the process.
//!
//! Each call to the engine that pends has an [`Attempt`] with a number of its own, so that the end of one that was given up is not taken
//! for the end of the next.

use core::{ffi::c_void, net::SocketAddr, ptr::NonNull};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ADDRESS_ALREADY_ASSOCIATED, STATUS_ADDRESS_NOT_ASSOCIATED, STATUS_BUFFER_OVERFLOW,
    STATUS_CANCELLED, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_DISCONNECTED, STATUS_CONNECTION_INVALID,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER,
    STATUS_PENDING, STATUS_SUCCESS,
};
use softndk_cells::Shared;
use softndk_engine::{
    Accept, Arrival, Connect, ConnectError, Connector as EngineConnector, ReadLimits, Requested, Source,
    limits::PRIVATE_DATA,
};
use softndk_ioctl::nd::{
    control::{self, Bind, Handle, Reject, SocketAddress},
    private::PrivateDataReply,
};
use softndk_kernel::{
    irp::{Buffer, Request},
    pool::PoolBox,
    spin_lock::SpinLock,
};
use zerocopy::IntoBytes;

use super::{
    account::Charge,
    adapter::OpenedAdapter,
    context::{AdapterLife, HandleReservation},
    endpoint::Endpoint,
    object::{self, Closable, handle_kind, kept},
    pending::{NOT_TAKEN, NotTaken, Pended, PendingList, PendingSlot, complete_pended},
    queue_pair::QueuePair,
    request::{Call, Cancellable, answer, input, named, room},
    socket,
    status::{Answered, STATUS_BAD_NETWORK_NAME, of_connect, of_error},
};
use crate::{
    runtime::platform::{
        Callback, CancelledRequest, DisconnectFunction, KernelPlatform, RequestCallback, UserModeObject,
        UserModeRequest,
    },
    tags,
};

pub struct Connector {
    adapter: Shared<OpenedAdapter>,
    state: SpinLock<ConnectorState>,
    /// What the process is charged for it.
    _charge: Option<Charge>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts of a connector's life")]
struct ConnectorState {
    closed: bool,
    engine: Option<EngineConnector<KernelPlatform>>,
    endpoint: Option<Shared<Endpoint>>,
    /// The queue pair of the attempt or connection.
    pair: Option<Shared<QueuePair>>,
    /// A request of a listener waits with it.
    reserved: bool,
    /// The attempt that is under way, or answered and not completed.
    attempt: Option<u64>,
    /// The number of the latest attempt, also when it is a connection.
    latest: u64,
    established: bool,
    /// The connection has ended, and not by this side.
    peer_gone: bool,
    /// The process has disconnected.
    disconnected: bool,
    /// The Connect or Accept that waits, of the kind of its attempt.
    connecting: PendingSlot,
    /// The Disconnect that waits; there is one in a connector's life.
    disconnecting: PendingSlot,
    /// The requests that wait for the end of the connection.
    notifies: PendingList,
    /// Numbers given to requests so far.
    numbers: u64,
}

impl ConnectorState {
    fn new() -> Self {
        Self {
            closed: false,
            engine: None,
            endpoint: None,
            pair: None,
            reserved: false,
            attempt: None,
            latest: 0,
            established: false,
            peer_gone: false,
            disconnected: false,
            connecting: PendingSlot::new(),
            disconnecting: PendingSlot::new(),
            notifies: PendingList::new(),
            numbers: 0,
        }
    }

    /// The number of the next request.
    fn next_number(&mut self) -> u64 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    /// An attempt or a connection is under way.
    fn is_active(&self) -> bool {
        self.attempt.is_some() || self.established
    }

    /// An attempt has come to nothing; the queue pair is for others, unless the attempt was given up before.
    fn end_attempt(&mut self, number: u64) -> Option<Shared<QueuePair>> {
        self.attempt.take_if(|attempt| *attempt == number)?;
        self.pair.take()
    }

    /// Gives the attempt up whose request `fits`: the request, and the engine's connector, to be closed before the request ends.
    fn give_up(&mut self, fits: impl FnOnce(&Pended) -> bool) -> Option<GivenUp> {
        let pended = self.connecting.take(fits)?;
        Some(GivenUp { pair: self.end_attempt(pended.kind()), engine: self.engine.take(), pended })
    }
}

/// An attempt that its process does not want any more.
struct GivenUp {
    pended: Pended,
    engine: Option<EngineConnector<KernelPlatform>>,
    pair: Option<Shared<QueuePair>>,
}

impl GivenUp {
    /// No lock held.
    fn finish(self, status: NTSTATUS) {
        // Before the request: its consumer may use the queue pair again.
        close_engine(self.engine);
        drop(self.pair);
        self.pended.finish(status);
    }
}

/// A call to the engine that pends, until its callback.
struct Attempt {
    connector: Shared<Connector>,
    number: u64,
}

impl Attempt {
    fn callback(self, function: UserModeRequest) -> Result<(RequestCallback, NonNull<Self>), NTSTATUS> {
        let place = PoolBox::try_new(tags::ND_REQUEST, self).map_err(object::no_memory)?.into_raw();
        // SAFETY: the functions take an attempt, and each is called once (`taken`).
        let callback = unsafe { Callback::new(function, place.as_ptr().cast()) };
        Ok((RequestCallback::UserMode(callback), place))
    }

    /// # Safety
    /// `place` came from [`Self::callback`], and this is its callback or the engine has not taken it.
    unsafe fn taken(place: NonNull<Self>) -> Self {
        // SAFETY: the caller's promise; the box had this tag.
        unsafe { PoolBox::from_raw(tags::ND_REQUEST, place) }.into_inner()
    }
}

/// The attempt of a callback.
///
/// # Safety
/// Called once, by a callback with its context.
unsafe fn attempt(context: *mut c_void) -> Option<Attempt> {
    // SAFETY: the engine calls back once what it has taken.
    NonNull::new(context.cast()).map(|place| unsafe { Attempt::taken(place) })
}

/// Connect has ended. `IRQL <= DISPATCH_LEVEL`.
unsafe fn connected(context: *mut c_void, result: Result<(), ConnectError>) {
    // SAFETY: a callback with its context.
    let Some(attempt) = (unsafe { attempt(context) }) else { return };
    if let Err(cause) = result {
        end(&attempt, of_connect(cause, STATUS_INVALID_DEVICE_STATE));
        return;
    }
    let pended = attempt.connector.state.lock().connecting.take(|pended| pended.kind() == attempt.number);
    if let Some(pended) = pended {
        pended.finish(STATUS_SUCCESS);
    }
}

/// An attempt has come to nothing, or the engine has not taken it: its request ends, if it waits still.
fn end(attempt: &Attempt, status: NTSTATUS) {
    let (pended, pair) = {
        let mut state = attempt.connector.state.lock();
        let pended = state.connecting.take(|pended| pended.kind() == attempt.number);
        (pended, state.end_attempt(attempt.number))
    };
    drop(pair);
    if let Some(pended) = pended {
        pended.finish(status);
    }
}

/// Accept has ended. `IRQL <= DISPATCH_LEVEL`.
unsafe fn accepted(context: *mut c_void, result: Result<(), ConnectError>) {
    // SAFETY: a callback with its context.
    let Some(attempt) = (unsafe { attempt(context) }) else { return };
    let (pended, pair) = {
        let mut state = attempt.connector.state.lock();
        let pended = state.connecting.take(|pended| pended.kind() == attempt.number);
        // One that was given up changes nothing of the next.
        let is_current = state.attempt.take_if(|number| *number == attempt.number).is_some();
        state.established |= is_current && result.is_ok();
        (pended, state.pair.clone().filter(|_| is_current))
    };
    if let Some(pair) = pair {
        pair.publish();
    }
    if let Some(pended) = pended {
        let status = result.map_or_else(|cause| of_connect(cause, STATUS_CONNECTION_INVALID), |()| STATUS_SUCCESS);
        pended.finish(status);
    }
}

/// Disconnect has ended: whatever the peer made of it, the connection is over. `IRQL <= DISPATCH_LEVEL`.
unsafe fn disconnect_ended(context: *mut c_void, _result: Result<(), ConnectError>) {
    // SAFETY: a callback with its context.
    let Some(attempt) = (unsafe { attempt(context) }) else { return };
    let pended = attempt.connector.state.lock().disconnecting.take(|_| true);
    if let Some(pended) = pended {
        pended.finish(STATUS_SUCCESS);
    }
}

/// For requests whose end nothing waits for.
unsafe fn ignored(_context: *mut c_void, _result: Result<(), ConnectError>) {}

fn no_request() -> RequestCallback {
    // SAFETY: the function takes anything.
    RequestCallback::UserMode(unsafe { Callback::<UserModeRequest>::new(ignored, core::ptr::null_mut()) })
}

/// Bits of a connector's address that are free for a number ([`disconnect_callback`]).
const NUMBER_BITS: usize = 7;
const _: () = assert!(align_of::<Connector>() > NUMBER_BITS);

/// The connection has ended, and not by this side. `IRQL <= DISPATCH_LEVEL`.
unsafe extern "C" fn peer_ended(context: *mut c_void) {
    let number = context.addr() & NUMBER_BITS;
    let place: *mut Connector = context.map_addr(|address| address & !NUMBER_BITS).cast();
    // SAFETY: the engine keeps the connector's block until its events have been reported.
    let Some(connector) = (unsafe { place.as_ref() }) else { return };
    let (told, engine, pair) = {
        let mut state = connector.state.lock();
        // The end of an attempt that was given up is not that of the next.
        if !state.is_active() || state.latest as usize & NUMBER_BITS != number {
            return;
        }
        state.peer_gone = true;
        (state.notifies.take_all(), state.engine.clone(), state.pair.clone())
    };
    told.finish(STATUS_SUCCESS);
    if let Some(engine) = engine {
        let _ending = engine.disconnect(no_request());
    }
    if let Some(pair) = pair {
        pair.publish();
    }
}

impl Connector {
    /// Reserves it for a request of a listener.
    pub fn reserve(&self) -> Result<(), NTSTATUS> {
        let mut state = self.state.lock();
        if state.closed || state.reserved || state.engine.is_some() || state.disconnected {
            return Err(STATUS_CONNECTION_ACTIVE);
        }
        state.reserved = true;
        Ok(())
    }

    pub fn unreserve(&self) {
        self.state.lock().reserved = false;
    }

    fn engine(&self) -> Result<EngineConnector<KernelPlatform>, NTSTATUS> {
        self.state.lock().engine.clone().ok_or(STATUS_CONNECTION_INVALID)
    }

    /// The requests of a file, or all.
    fn take_waiting(&self, file: Option<u64>) -> WaitingRequests {
        let fits = |pended: &Pended| file.is_none_or(|file| pended.file() == file);
        let mut state = self.state.lock();
        let notifies = match file {
            Some(file) => state.notifies.take_of_file(file),
            None => state.notifies.take_all(),
        };
        WaitingRequests { given_up: state.give_up(fits), notifies, disconnecting: state.disconnecting.take(fits) }
    }
}

/// Requests that were taken off a connector.
struct WaitingRequests {
    given_up: Option<GivenUp>,
    notifies: PendingList,
    disconnecting: Option<Pended>,
}

impl WaitingRequests {
    /// Ends them in the order of arrival: a Disconnect comes behind every NotifyDisconnect. No lock held.
    fn finish(mut self, status: NTSTATUS) {
        if let Some(given_up) = self.given_up {
            let number = given_up.pended.kind();
            while self.notifies.first_kind().is_some_and(|other| other < number)
                && let Some(before) = self.notifies.pop()
            {
                before.finish(status);
            }
            given_up.finish(status);
        }
        self.notifies.finish(status);
        if let Some(pended) = self.disconnecting {
            pended.finish(status);
        }
    }
}

fn close_engine(engine: Option<EngineConnector<KernelPlatform>>) {
    if let Some(engine) = engine {
        object::finish(engine.close(object::no_callback()));
    }
}

/// Hands an arrived connection to a connector that waits for one; it comes back where that does not any more.
/// `IRQL <= DISPATCH_LEVEL`.
pub fn take_arrival(
    connector: &Shared<Connector>,
    arrival: Arrival<KernelPlatform>,
) -> Result<(), Arrival<KernelPlatform>> {
    {
        let state = connector.state.lock();
        if state.closed || !state.reserved || state.engine.is_some() {
            return Err(arrival);
        }
    }
    let engine = arrival.adopt(kept(connector));
    let left = {
        let mut state = connector.state.lock();
        // Not before: meanwhile it is reserved for no other request.
        state.reserved = false;
        if state.closed {
            Some(engine)
        } else {
            state.engine = Some(engine);
            None
        }
    };
    close_engine(left);
    Ok(())
}

handle_kind!(Connector);

impl UserModeObject for Shared<Connector> {
    fn cancelled(&self, request: CancelledRequest) {
        let (given_up, pended) = {
            let mut state = self.state.lock();
            let given_up = state.give_up(|pended| pended.is(request));
            let pended = state.disconnecting.take(|pended| pended.is(request));
            (given_up, pended.or_else(|| state.notifies.take_cancelled(request)))
        };
        if let Some(given_up) = given_up {
            given_up.finish(STATUS_CANCELLED);
        }
        if let Some(pended) = pended {
            pended.finish(STATUS_CANCELLED);
        }
    }
}

impl Cancellable for Connector {
    fn cancel_all(&self) {
        self.take_waiting(None).finish(STATUS_CANCELLED);
    }
}

impl Closable for Shared<Connector> {
    fn close(&self, status: NTSTATUS) {
        // The requests first: the close of the engine's connector would end them as aborted.
        let (pair, endpoint) = {
            let mut state = self.state.lock();
            state.closed = true;
            (state.pair.take(), state.endpoint.take())
        };
        let waiting = self.take_waiting(None);
        // That of an attempt goes with its request.
        let engine = self.state.lock().engine.take();
        close_engine(engine);
        waiting.finish(status);
        drop((pair, endpoint));
    }

    fn end_file(&self, file: u64) {
        self.take_waiting(Some(file)).finish(STATUS_CANCELLED);
    }

    /// An attempt is given up; a connection ends as if the peer had ended it.
    fn end_connection(&self) {
        let (given_up, told, ended) = {
            let mut state = self.state.lock();
            let given_up = state.give_up(|_| true);
            if !state.established || state.disconnected || state.peer_gone {
                (given_up, PendingList::new(), None)
            } else {
                state.peer_gone = true;
                (given_up, state.notifies.take_all(), state.engine.clone())
            }
        };
        if let Some(engine) = ended {
            let _ending = engine.disconnect(no_request());
        }
        if let Some(given_up) = given_up {
            given_up.finish(STATUS_CANCELLED);
        }
        told.finish(STATUS_SUCCESS);
    }

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }

    fn bound_to(&self) -> Option<(Shared<Endpoint>, bool)> {
        self.state.lock().endpoint.clone().map(|endpoint| (endpoint, false))
    }
}

/// CONNECTOR_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    room::<u64>(buffer)?;
    let adapter = call.context.object::<OpenedAdapter>(asked.handle)?;
    let mut reservation = HandleReservation::try_new(call, &[asked.handle], Some(&adapter.life))?;
    let charge = reservation.charge();
    let state = SpinLock::new(ConnectorState::new());
    let connector = object::block(Connector { adapter, state, _charge: charge })?;
    answer(buffer, &reservation.fill(connector))
}

/// CONNECTOR_BIND.
pub fn bind(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Bind = input(buffer)?;
    let connector = call.context.object::<Connector>(asked.handle)?;
    let address = socket::read(&asked.address)?;
    let is_free = |state: &ConnectorState| state.endpoint.is_none() && state.engine.is_none() && !state.reserved;
    if !is_free(&connector.state.lock()) {
        return Err(STATUS_ADDRESS_ALREADY_ASSOCIATED);
    }
    let endpoint = OpenedAdapter::bind(&connector.adapter, call, address, false)?;
    let mut state = connector.state.lock();
    if state.closed || !is_free(&state) {
        drop(state);
        drop(endpoint);
        return Err(STATUS_ADDRESS_ALREADY_ASSOCIATED);
    }
    state.endpoint = Some(endpoint);
    Ok(0)
}

/// Private data behind a request's structure, copied. In a block of its own: the engine goes deep below its owner's frame.
struct GivenData {
    bytes: PoolBox<[u8; PRIVATE_DATA]>,
    length: usize,
}

impl GivenData {
    fn read(input: &[u8], offset: u32, length: u32, most: u32) -> Result<Self, NTSTATUS> {
        if length > most {
            return Err(STATUS_INVALID_BUFFER_SIZE);
        }
        let mut bytes = [0; PRIVATE_DATA];
        if length != 0 {
            let given = input.get(offset as usize..).and_then(|rest| rest.get(..length as usize));
            let place = bytes.get_mut(..length as usize).ok_or(STATUS_INVALID_BUFFER_SIZE)?;
            place.copy_from_slice(given.ok_or(STATUS_INVALID_PARAMETER)?);
        }
        let bytes = PoolBox::try_new(tags::ND_REQUEST, bytes).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        Ok(Self { bytes, length: length as usize })
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn limits_of(limits: control::ReadLimits) -> ReadLimits {
    ReadLimits { inbound: limits.inbound, outbound: limits.outbound }
}

/// What Connect and Accept are called with, copied out of the request.
struct Asked {
    connector: Shared<Connector>,
    pair: Shared<QueuePair>,
    limits: ReadLimits,
    data: GivenData,
}

/// A request of this connector begins to wait, and with it the attempt; what is left is to call the engine. `Err`: it is over.
fn begin(call: &Call, request: Request, asked: &Asked) -> Result<Result<Attempt, NTSTATUS>, (Request, NTSTATUS)> {
    let connector = &asked.connector;
    let number = connector.state.lock().next_number();
    let pended = match Pended::begin(request, call, object::owner(connector), number) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    let begun = {
        let mut state = connector.state.lock();
        if state.closed {
            Err(NotTaken::new(pended, NOT_TAKEN))
        } else if state.is_active() || state.reserved {
            Err(NotTaken::new(pended, STATUS_CONNECTION_ACTIVE))
        } else {
            state.connecting.put(pended).map(|()| {
                state.attempt = Some(number);
                state.latest = number;
                state.pair = Some(asked.pair.clone());
            })
        }
    };
    match begun {
        Ok(()) => Ok(Ok(Attempt { connector: connector.clone(), number })),
        Err(not_taken) => {
            not_taken.finish();
            Ok(Err(STATUS_PENDING))
        }
    }
}

/// CONNECTOR_CONNECT.
pub fn connect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let prepared = prepare_connect(call, &Buffer::of(&request));
    let (asked, endpoint, destination) = match prepared {
        Ok(prepared) => prepared,
        Err(status) => return Err((request, status)),
    };
    let Ok(attempt) = begin(call, request, &asked)? else { return Ok(STATUS_PENDING) };
    if let Err((attempt, status)) = connect_now(attempt, &asked, &endpoint, destination) {
        end(&attempt, status);
    }
    Ok(STATUS_PENDING)
}

// Its frame is gone before the engine is called.
#[inline(never)]
fn prepare_connect(call: &Call, buffer: &Buffer) -> Result<(Asked, Shared<Endpoint>, SocketAddr), NTSTATUS> {
    let asked: control::Connect = input(buffer)?;
    let connector = call.context.object::<Connector>(asked.connector)?;
    let pair = call.context.object::<QueuePair>(asked.queue_pair)?;
    let most = connector.adapter.limits()?.caller_data;
    let data = GivenData::read(buffer.input(), asked.private_data_offset, asked.private_data_length, most)?;
    let mut destination = socket::read(&asked.destination)?;
    if destination.ip().is_unspecified() {
        return Err(STATUS_BAD_NETWORK_NAME);
    }
    let endpoint = {
        let state = connector.state.lock();
        if state.disconnected {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        let arrived = state.engine.is_some() && state.endpoint.is_none();
        if state.is_active() || state.reserved || arrived {
            return Err(STATUS_CONNECTION_ACTIVE);
        }
        state.endpoint.clone().ok_or(STATUS_ADDRESS_NOT_ASSOCIATED)?
    };
    if destination.ip().is_loopback() {
        destination.set_ip(endpoint.address.ip());
    }
    Ok((Asked { connector, pair, limits: limits_of(asked.read_limits), data }, endpoint, destination))
}

/// The engine's connector of an attempt to connect, made when there is none. CANCELLED where the attempt was given up meanwhile.
fn engine_of(connector: &Shared<Connector>, number: u64) -> Result<EngineConnector<KernelPlatform>, NTSTATUS> {
    {
        let state = connector.state.lock();
        if state.attempt != Some(number) {
            return Err(STATUS_CANCELLED);
        }
        if let Some(engine) = &state.engine {
            return Ok(engine.clone());
        }
    }
    let engine = connector.adapter.open()?.create_connector(kept(connector)).map_err(of_error)?;
    let refused = {
        let mut state = connector.state.lock();
        if state.closed || state.attempt != Some(number) {
            true
        } else {
            state.engine = Some(engine.clone());
            false
        }
    };
    if refused {
        close_engine(Some(engine));
        return Err(STATUS_CANCELLED);
    }
    Ok(engine)
}

// On a frame of its own: the engine goes deep below it.
#[inline(never)]
fn connect_now(
    attempt: Attempt,
    asked: &Asked,
    endpoint: &Endpoint,
    destination: SocketAddr,
) -> Result<(), (Attempt, NTSTATUS)> {
    let number = attempt.number;
    let (engine, pair) = match (engine_of(&asked.connector, number), asked.pair.engine()) {
        (Ok(engine), Ok(pair)) => (engine, pair),
        (Err(status), _) | (_, Err(status)) => return Err((attempt, status)),
    };
    let (callback, place) = match attempt.callback(connected) {
        Ok(made) => made,
        Err(status) => return Err((Attempt { connector: asked.connector.clone(), number }, status)),
    };
    let connected = engine.connect(Connect {
        queue_pair: pair,
        source: Source::Shared(&endpoint.engine),
        destination,
        limits: asked.limits,
        private_data: asked.data.get(),
        callback,
    });
    requested(connected, place, STATUS_INVALID_DEVICE_STATE)
}

/// What the engine made of a call. A refused attempt comes back.
fn requested(
    answer: Result<Requested, ConnectError>,
    place: NonNull<Attempt>,
    state: NTSTATUS,
) -> Result<(), (Attempt, NTSTATUS)> {
    let status = match answer {
        Ok(Requested::Pending) => return Ok(()),
        Ok(Requested::Done) => STATUS_SUCCESS,
        Err(cause) => of_connect(cause, state),
    };
    // SAFETY: the engine has not taken the callback.
    Err((unsafe { Attempt::taken(place) }, status))
}

/// CONNECTOR_COMPLETE_CONNECT. Done at once, and completed as a request that pended.
pub fn complete_connect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    match complete_now(call, &Buffer::of(&request)) {
        Ok(()) => Ok(complete_pended(request, STATUS_SUCCESS, 0)),
        Err(status) => Err((request, status)),
    }
}

/// The callback of an attempt's connection. Its context is the address of the connector, with the last bits of the number: the engine
/// may never call it, so it cannot own anything.
fn disconnect_callback(connector: &Shared<Connector>, number: u64) -> Callback<DisconnectFunction> {
    let context = object::context(connector).wrapping_byte_add(number as usize & NUMBER_BITS);
    // SAFETY: `peer_ended` takes the connector, which the engine keeps until its events have been reported.
    unsafe { Callback::new(DisconnectFunction::Plain(peer_ended), context) }
}

fn complete_now(call: &Call, buffer: &Buffer) -> Result<(), NTSTATUS> {
    let connector = named::<Connector>(call, buffer)?;
    let engine = connector.engine()?;
    // Before the event of its end, which may come at once.
    let (pair, number) = {
        let mut state = connector.state.lock();
        if state.established {
            return Err(STATUS_CONNECTION_INVALID);
        }
        state.established = true;
        (state.pair.clone(), state.latest)
    };
    let completed = engine.complete_connect(Some(disconnect_callback(&connector, number)), no_request());
    if let Err(cause) = completed {
        let mut state = connector.state.lock();
        state.established = false;
        return Err(of_connect(cause, STATUS_CONNECTION_INVALID));
    }
    connector.state.lock().attempt = None;
    if let Some(pair) = pair {
        pair.publish();
    }
    Ok(())
}

/// CONNECTOR_ACCEPT.
pub fn accept(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let prepared = prepare_accept(call, &Buffer::of(&request));
    let (asked, engine) = match prepared {
        Ok(prepared) => prepared,
        Err(status) => return Err((request, status)),
    };
    let Ok(attempt) = begin(call, request, &asked)? else { return Ok(STATUS_PENDING) };
    if let Err((attempt, status)) = accept_now(attempt, &asked, &engine) {
        end(&attempt, status);
    }
    Ok(STATUS_PENDING)
}

fn prepare_accept(call: &Call, buffer: &Buffer) -> Result<(Asked, EngineConnector<KernelPlatform>), NTSTATUS> {
    let asked: control::Accept = input(buffer)?;
    let connector = call.context.object::<Connector>(asked.connector)?;
    let pair = call.context.object::<QueuePair>(asked.queue_pair)?;
    let most = connector.adapter.limits()?.callee_data;
    let data = GivenData::read(buffer.input(), asked.private_data_offset, asked.private_data_length, most)?;
    let engine = connector.engine()?;
    Ok((Asked { connector, pair, limits: limits_of(asked.read_limits), data }, engine))
}

// On a frame of its own: the engine goes deep below it.
#[inline(never)]
fn accept_now(
    attempt: Attempt,
    asked: &Asked,
    engine: &EngineConnector<KernelPlatform>,
) -> Result<(), (Attempt, NTSTATUS)> {
    let pair = match asked.pair.engine() {
        Ok(pair) => pair,
        Err(status) => return Err((attempt, status)),
    };
    let number = attempt.number;
    let (callback, place) = match attempt.callback(accepted) {
        Ok(made) => made,
        Err(status) => return Err((Attempt { connector: asked.connector.clone(), number }, status)),
    };
    let answer = engine.accept(Accept {
        queue_pair: pair,
        limits: asked.limits,
        private_data: asked.data.get(),
        disconnect: Some(disconnect_callback(&asked.connector, number)),
        callback,
    });
    requested(answer, place, STATUS_CONNECTION_ACTIVE)
}

/// CONNECTOR_REJECT.
pub fn reject(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Reject = input(buffer)?;
    let connector = call.context.object::<Connector>(asked.connector)?;
    let most = connector.adapter.limits()?.callee_data;
    let data = GivenData::read(buffer.input(), asked.private_data_offset, asked.private_data_length, most)?;
    let attempt = connector.state.lock().attempt;
    let rejected = connector.engine()?.reject(data.get());
    rejected.map_err(|cause| of_connect(cause, STATUS_INVALID_DEVICE_STATE))?;
    let pair = attempt.and_then(|number| connector.state.lock().end_attempt(number));
    drop(pair);
    Ok(0)
}

/// CONNECTOR_GET_READ_LIMITS.
pub fn read_limits(call: &Call, buffer: &mut Buffer) -> Answered {
    let connector = named::<Connector>(call, buffer)?;
    let data = connector.engine()?.connection_data(&mut []).map_err(|_| STATUS_CONNECTION_INVALID)?;
    answer(buffer, &control::ReadLimits { inbound: data.limits.inbound, outbound: data.limits.outbound })
}

/// The private data of a connector: how many bytes there are, and all of them.
fn received(call: &Call, buffer: &Buffer, data: &mut [u8; PRIVATE_DATA]) -> Result<usize, NTSTATUS> {
    let connector = named::<Connector>(call, buffer)?;
    let found = connector.engine()?.connection_data(data).map_err(|_| STATUS_CONNECTION_INVALID)?;
    Ok((found.required as usize).min(PRIVATE_DATA))
}

/// Copies as much as fits; how much that is.
fn copy(data: &[u8; PRIVATE_DATA], length: usize, output: &mut [u8]) -> usize {
    let bytes = data.get(..length.min(output.len())).unwrap_or_default();
    if let Some(place) = output.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    bytes.len()
}

/// CONNECTOR_GET_PRIVATE_DATA: BUFFER_OVERFLOW with as much as fits where not all does.
pub fn plain_private_data(call: &Call, buffer: &mut Buffer) -> (NTSTATUS, usize) {
    let mut data = [0; PRIVATE_DATA];
    let length = match received(call, buffer, &mut data) {
        Ok(length) => length,
        Err(status) => return (status, 0),
    };
    let copied = copy(&data, length, buffer.output());
    (if copied == length { STATUS_SUCCESS } else { STATUS_BUFFER_OVERFLOW }, copied)
}

/// GET_PRIVATE_DATA.
pub fn private_data(call: &Call, buffer: &mut Buffer) -> Answered {
    room::<PrivateDataReply>(buffer)?;
    let mut data = [0; PRIVATE_DATA];
    let length = received(call, buffer, &mut data)?;
    let Some((head, rest)) = buffer.output().split_at_mut_checked(size_of::<PrivateDataReply>()) else { return Ok(0) };
    let returned = copy(&data, length, rest);
    head.copy_from_slice(PrivateDataReply { length: length as u32, returned: returned as u32 }.as_bytes());
    Ok(size_of::<PrivateDataReply>().saturating_add(returned))
}

/// CONNECTOR_GET_ADDRESS: from Bind or the arrival on.
pub fn local_address(call: &Call, buffer: &mut Buffer) -> Answered {
    let connector = named::<Connector>(call, buffer)?;
    let address = {
        let state = connector.state.lock();
        let engine = state.engine.as_ref().and_then(EngineConnector::local_address);
        engine.or(state.endpoint.as_ref().map(|endpoint| endpoint.address))
    };
    answer::<SocketAddress>(buffer, &socket::write(&address.ok_or(STATUS_CONNECTION_INVALID)?))
}

/// CONNECTOR_GET_PEER_ADDRESS.
pub fn peer_address(call: &Call, buffer: &mut Buffer) -> Answered {
    let connector = named::<Connector>(call, buffer)?;
    let address = connector.engine()?.peer_address().ok_or(STATUS_CONNECTION_INVALID)?;
    answer::<SocketAddress>(buffer, &socket::write(&address))
}

/// CONNECTOR_NOTIFY_DISCONNECT: from the beginning of an attempt on.
pub fn notify_disconnect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let connector = match named::<Connector>(call, &Buffer::of(&request)) {
        Ok(connector) => connector,
        Err(status) => return Err((request, status)),
    };
    let (over, number) = {
        let mut state = connector.state.lock();
        let over = if state.disconnected {
            Some(STATUS_CONNECTION_DISCONNECTED)
        } else if state.peer_gone {
            Some(STATUS_SUCCESS)
        } else if state.is_active() {
            None
        } else {
            drop(state);
            return Err((request, STATUS_CONNECTION_INVALID));
        };
        (over, state.next_number())
    };
    if let Some(status) = over {
        return Ok(complete_pended(request, status, 0));
    }
    let pended = match Pended::begin(request, call, object::owner(&connector), number) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    let waits = {
        let mut state = connector.state.lock();
        if state.closed {
            Err(NotTaken::new(pended, NOT_TAKEN))
        } else if state.disconnected {
            Err(NotTaken::new(pended, STATUS_CONNECTION_DISCONNECTED))
        } else if state.peer_gone {
            Err(NotTaken::new(pended, STATUS_SUCCESS))
        } else {
            state.notifies.push(pended)
        }
    };
    if let Err(not_taken) = waits {
        not_taken.finish();
    }
    Ok(STATUS_PENDING)
}

impl Connector {
    /// What its queue pair's process has posted before comes first: a polled ring is taken by the poller, later.
    fn take_posts(&self) {
        let pair = self.state.lock().pair.clone();
        if let Some(pair) = pair {
            let _taken = pair.doorbell();
        }
    }
}

/// CONNECTOR_DISCONNECT.
pub fn disconnect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let connector = match named::<Connector>(call, &Buffer::of(&request)) {
        Ok(connector) => connector,
        Err(status) => return Err((request, status)),
    };
    connector.take_posts();
    let begun = begin_disconnect(&connector);
    let Disconnecting { engine, told, number } = match begun {
        Ok(Some(disconnecting)) => disconnecting,
        // The peer has ended the connection, and the driver has answered that.
        Ok(None) => return Ok(complete_pended(request, STATUS_SUCCESS, 0)),
        Err(status) => return Err((request, status)),
    };
    told.finish(STATUS_CONNECTION_DISCONNECTED);
    let pended = match Pended::begin(request, call, object::owner(&connector), number) {
        Ok(pended) => pended,
        Err(refused) => {
            let _ending = engine.disconnect(no_request());
            return Ok(complete_pended(refused.request, STATUS_SUCCESS, 0));
        }
    };
    let waits = {
        let mut state = connector.state.lock();
        if state.closed { Err(NotTaken::new(pended, NOT_TAKEN)) } else { state.disconnecting.put(pended) }
    };
    if let Err(not_taken) = waits {
        not_taken.finish();
    }
    disconnect_now(&connector, &engine, number);
    Ok(STATUS_PENDING)
}

/// What a Disconnect begins with.
struct Disconnecting {
    engine: EngineConnector<KernelPlatform>,
    told: PendingList,
    number: u64,
}

fn begin_disconnect(connector: &Connector) -> Result<Option<Disconnecting>, NTSTATUS> {
    let mut state = connector.state.lock();
    if state.disconnected {
        return Err(STATUS_INVALID_DEVICE_STATE);
    }
    if !state.established {
        return Err(STATUS_CONNECTION_INVALID);
    }
    let engine = state.engine.clone().ok_or(STATUS_CONNECTION_INVALID)?;
    state.disconnected = true;
    if state.peer_gone {
        return Ok(None);
    }
    let told = state.notifies.take_all();
    let number = state.next_number();
    Ok(Some(Disconnecting { engine, told, number }))
}

fn disconnect_now(connector: &Shared<Connector>, engine: &EngineConnector<KernelPlatform>, number: u64) {
    let attempt = Attempt { connector: connector.clone(), number };
    let pends = match attempt.callback(disconnect_ended) {
        Ok((callback, place)) => requested(engine.disconnect(callback), place, STATUS_SUCCESS).is_ok(),
        Err(_no_memory) => {
            let _ending = engine.disconnect(no_request());
            false
        }
    };
    if !pends {
        // It has ended by itself in between.
        let pended = connector.state.lock().disconnecting.take(|_| true);
        if let Some(pended) = pended {
            pended.finish(STATUS_SUCCESS);
        }
    }
    let pair = connector.state.lock().pair.clone();
    if let Some(pair) = pair {
        pair.publish();
    }
}
