//! Connectors: one end of a connection of a process.
//!
//! The engine's connector is made when the process connects, or comes with a request that a listener hands over; an attempt that is
//! cancelled takes it along, and the next one gets a new one. The peer's end is answered by the driver itself: the requests that wait
//! for it are told, and the engine's connector disconnects, so that the peer's Disconnect does not wait for the process.
//!
//! Each call to the engine that pends has an [`Attempt`] of its own, so that the end of one that was given up is not taken for the end of the next.

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
    adapter::OpenedAdapter,
    context::HandleReservation,
    endpoint::{self, Endpoint},
    object::{self, Closable, kept},
    pending::{NOT_TAKEN, Pended, PendingList, complete_pended},
    queue_pair::QueuePair,
    request::{Call, Cancellable, answer, input, named, room},
    socket,
    status::{Answered, STATUS_BAD_NETWORK_NAME, of_connect, of_create},
};
use crate::{
    platform::{Callback, DisconnectFunction, KernelPlatform, RequestCallback, UserModeObject, UserModeRequest},
    tags,
};

/// What a request that waits is, below the number of the attempt.
const CONNECT: u32 = 1;
const ACCEPT: u32 = 2;
const DISCONNECT: u32 = 3;
const NOTIFY: u32 = 4;
const KIND_BITS: u32 = 3;

const fn kind_of(word: u32) -> u32 {
    word & ((1 << KIND_BITS) - 1)
}

pub struct Connector {
    adapter: Shared<OpenedAdapter>,
    state: SpinLock<ConnectorState>,
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
    /// An attempt is under way, or answered and not completed.
    attempting: bool,
    established: bool,
    /// The connection has ended, and not by this side.
    peer_gone: bool,
    /// The process has disconnected.
    disconnected: bool,
    waiting: PendingList,
    /// Attempts so far.
    attempts: u32,
}

impl ConnectorState {
    const fn new() -> Self {
        Self {
            closed: false,
            engine: None,
            endpoint: None,
            pair: None,
            reserved: false,
            attempting: false,
            established: false,
            peer_gone: false,
            disconnected: false,
            waiting: PendingList::new(),
            attempts: 0,
        }
    }

    /// The word of the next request of a kind.
    fn next_word(&mut self, kind: u32) -> u32 {
        self.attempts = self.attempts.wrapping_add(1);
        self.attempts << KIND_BITS | kind
    }

    /// The attempt is given up: the engine's connector, to be closed.
    fn give_up(&mut self) -> Option<EngineConnector<KernelPlatform>> {
        self.attempting = false;
        self.pair = None;
        self.engine.take()
    }

    /// The requests that wait for the end of the connection.
    fn take_notifies(&mut self) -> PendingList {
        self.waiting.take_where(|pended| kind_of(pended.kind()) == NOTIFY)
    }
}

/// A call to the engine that pends, until its callback.
struct Attempt {
    connector: Shared<Connector>,
    word: u32,
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

    /// The request of the attempt, if it waits still.
    fn request(&self) -> Option<Pended> {
        self.connector.state.lock().waiting.take(|pended| pended.kind() == self.word)
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
    let Some(pended) = attempt.request() else { return };
    if result.is_err() {
        let mut state = attempt.connector.state.lock();
        state.attempting = false;
        let pair = state.pair.take();
        drop(state);
        drop(pair);
    }
    pended.finish(result.map_or_else(|cause| of_connect(cause, STATUS_INVALID_DEVICE_STATE), |()| STATUS_SUCCESS));
}

/// Accept has ended. `IRQL <= DISPATCH_LEVEL`.
unsafe fn accepted(context: *mut c_void, result: Result<(), ConnectError>) {
    // SAFETY: a callback with its context.
    let Some(attempt) = (unsafe { attempt(context) }) else { return };
    let pair = {
        let mut state = attempt.connector.state.lock();
        state.attempting = false;
        state.established |= result.is_ok();
        state.pair.clone()
    };
    if let Some(pair) = pair {
        pair.publish();
    }
    if let Some(pended) = attempt.request() {
        let status = result.map_or_else(|cause| of_connect(cause, STATUS_CONNECTION_INVALID), |()| STATUS_SUCCESS);
        pended.finish(status);
    }
}

/// Disconnect has ended: whatever the peer made of it, the connection is over. `IRQL <= DISPATCH_LEVEL`.
unsafe fn disconnect_ended(context: *mut c_void, _result: Result<(), ConnectError>) {
    // SAFETY: a callback with its context.
    let Some(attempt) = (unsafe { attempt(context) }) else { return };
    if let Some(pended) = attempt.request() {
        pended.finish(STATUS_SUCCESS);
    }
}

/// For requests whose end nothing waits for.
unsafe fn ignored(_context: *mut c_void, _result: Result<(), ConnectError>) {}

fn no_request() -> RequestCallback {
    // SAFETY: the function takes anything.
    RequestCallback::UserMode(unsafe { Callback::<UserModeRequest>::new(ignored, core::ptr::null_mut()) })
}

/// The connection has ended, and not by this side. `IRQL <= DISPATCH_LEVEL`.
unsafe extern "C" fn peer_ended(context: *mut c_void) {
    // SAFETY: the engine keeps the connector's block until its events have been reported.
    let Some(connector) = (unsafe { context.cast::<Connector>().as_ref() }) else { return };
    let (told, engine, pair) = {
        let mut state = connector.state.lock();
        state.peer_gone = true;
        (state.take_notifies(), state.engine.clone(), state.pair.clone())
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
    pub fn endpoint(&self) -> Option<Shared<Endpoint>> {
        self.state.lock().endpoint.clone()
    }

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

    /// Ends a request that was taken off the list; an attempt ends with it.
    fn end_request(&self, pended: Pended, status: NTSTATUS) {
        let attempt = matches!(kind_of(pended.kind()), CONNECT | ACCEPT);
        let engine = if attempt { self.state.lock().give_up() } else { None };
        // Before the request: its consumer may use the queue pair again.
        close_engine(engine);
        pended.finish(status);
    }

    fn end_requests(&self, status: NTSTATUS, fits: impl Fn(&Pended) -> bool) {
        loop {
            let pended = self.state.lock().waiting.take(&fits);
            let Some(pended) = pended else { return };
            self.end_request(pended, status);
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
        let mut state = connector.state.lock();
        if state.closed || !state.reserved || state.engine.is_some() {
            return Err(arrival);
        }
        state.reserved = false;
    }
    let engine = arrival.adopt(kept(connector));
    let left = {
        let mut state = connector.state.lock();
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

impl UserModeObject for Shared<Connector> {
    fn cancelled(&self, request: usize) {
        let pended = self.state.lock().waiting.take(|pended| pended.id() == request);
        if let Some(pended) = pended {
            self.end_request(pended, STATUS_CANCELLED);
        }
    }
}

impl Cancellable for Connector {
    fn cancel_all(&self) {
        self.end_requests(STATUS_CANCELLED, |_| true);
    }
}

impl Closable for Shared<Connector> {
    fn close(&self, status: NTSTATUS) {
        // The requests first: the close of the engine's connector would end them as aborted.
        let (engine, pair, endpoint, waiting) = {
            let mut state = self.state.lock();
            state.closed = true;
            (state.engine.take(), state.pair.take(), state.endpoint.take(), state.waiting.take_all())
        };
        close_engine(engine);
        waiting.finish(status);
        drop((pair, endpoint));
    }

    fn end_file(&self, file: u64) {
        self.end_requests(STATUS_CANCELLED, |pended| pended.file() == file);
    }

    fn adapter(&self) -> &Shared<OpenedAdapter> {
        &self.adapter
    }
}

/// CONNECTOR_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    room::<u64>(buffer)?;
    let adapter = call.context.object::<OpenedAdapter>(asked.handle)?;
    let reservation = HandleReservation::try_new(&call.context, &[asked.handle], Some(&adapter))?;
    let connector = object::block(Connector { adapter, state: SpinLock::new(ConnectorState::new()) })?;
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
    let endpoint = endpoint::bind(call, &connector.adapter, address, false)?;
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
fn begin(
    call: &Call,
    request: Request,
    asked: &Asked,
    kind: u32,
) -> Result<Result<Attempt, NTSTATUS>, (Request, NTSTATUS)> {
    let connector = &asked.connector;
    let word = connector.state.lock().next_word(kind);
    let pended = match Pended::begin(request, call.file.number, object::owner(connector), word) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    let refused = {
        let mut state = connector.state.lock();
        if state.closed {
            Some((pended, NOT_TAKEN))
        } else if state.attempting || state.established {
            Some((pended, STATUS_CONNECTION_ACTIVE))
        } else {
            match state.waiting.push(pended) {
                Ok(()) => {
                    state.attempting = true;
                    state.pair = Some(asked.pair.clone());
                    None
                }
                Err(pended) => Some((pended, NOT_TAKEN)),
            }
        }
    };
    match refused {
        Some((pended, status)) => {
            pended.finish(status);
            Ok(Err(STATUS_PENDING))
        }
        None => Ok(Ok(Attempt { connector: connector.clone(), word })),
    }
}

/// The engine has not taken an attempt: its request ends.
fn refuse(attempt: &Attempt, status: NTSTATUS) {
    let pair = {
        let mut state = attempt.connector.state.lock();
        state.attempting = false;
        state.pair.take()
    };
    drop(pair);
    if let Some(pended) = attempt.request() {
        pended.finish(status);
    }
}

/// CONNECTOR_CONNECT.
pub fn connect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let prepared = prepare_connect(call, &Buffer::of(&request));
    let (asked, endpoint, destination) = match prepared {
        Ok(prepared) => prepared,
        Err(status) => return Err((request, status)),
    };
    let Ok(attempt) = begin(call, request, &asked, CONNECT)? else { return Ok(STATUS_PENDING) };
    if let Err((attempt, status)) = connect_now(attempt, &asked, &endpoint, destination) {
        refuse(&attempt, status);
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
        if state.attempting || state.established || state.reserved || arrived {
            return Err(STATUS_CONNECTION_ACTIVE);
        }
        state.endpoint.clone().ok_or(STATUS_ADDRESS_NOT_ASSOCIATED)?
    };
    if destination.ip().is_loopback() {
        destination.set_ip(endpoint.address.ip());
    }
    Ok((Asked { connector, pair, limits: limits_of(asked.read_limits), data }, endpoint, destination))
}

/// The engine's connector of a process that connects, made when there is none.
fn engine_of(connector: &Shared<Connector>) -> Result<EngineConnector<KernelPlatform>, NTSTATUS> {
    if let Ok(engine) = connector.engine() {
        return Ok(engine);
    }
    let engine = connector.adapter.open()?.create_connector(kept(connector)).map_err(of_create)?;
    let refused = {
        let mut state = connector.state.lock();
        if state.closed {
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
    let (engine, pair) = match (engine_of(&asked.connector), asked.pair.engine()) {
        (Ok(engine), Ok(pair)) => (engine, pair),
        (Err(status), _) | (_, Err(status)) => return Err((attempt, status)),
    };
    let word = attempt.word;
    let (callback, place) = match attempt.callback(connected) {
        Ok(made) => made,
        Err(status) => return Err((Attempt { connector: asked.connector.clone(), word }, status)),
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

fn disconnect_callback(connector: &Shared<Connector>) -> Callback<DisconnectFunction> {
    // SAFETY: `peer_ended` takes the connector, which the engine keeps until its events have been reported.
    unsafe { Callback::new(DisconnectFunction::Plain(peer_ended), object::context(connector)) }
}

fn complete_now(call: &Call, buffer: &Buffer) -> Result<(), NTSTATUS> {
    let connector = named::<Connector>(call, buffer)?;
    let engine = connector.engine()?;
    // Before the event of its end, which may come at once.
    let pair = {
        let mut state = connector.state.lock();
        if state.established {
            return Err(STATUS_CONNECTION_INVALID);
        }
        state.established = true;
        state.pair.clone()
    };
    let completed = engine.complete_connect(Some(disconnect_callback(&connector)), no_request());
    if let Err(cause) = completed {
        let mut state = connector.state.lock();
        state.established = false;
        return Err(of_connect(cause, STATUS_CONNECTION_INVALID));
    }
    connector.state.lock().attempting = false;
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
    let Ok(attempt) = begin(call, request, &asked, ACCEPT)? else { return Ok(STATUS_PENDING) };
    if let Err((attempt, status)) = accept_now(attempt, &asked, &engine) {
        refuse(&attempt, status);
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
    let word = attempt.word;
    let (callback, place) = match attempt.callback(accepted) {
        Ok(made) => made,
        Err(status) => return Err((Attempt { connector: asked.connector.clone(), word }, status)),
    };
    let answer = engine.accept(Accept {
        queue_pair: pair,
        limits: asked.limits,
        private_data: asked.data.get(),
        disconnect: Some(disconnect_callback(&asked.connector)),
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
    let rejected = connector.engine()?.reject(data.get());
    rejected.map_err(|cause| of_connect(cause, STATUS_INVALID_DEVICE_STATE))?;
    let pair = {
        let mut state = connector.state.lock();
        state.attempting = false;
        state.pair.take()
    };
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
    let (over, word) = {
        let mut state = connector.state.lock();
        let over = if state.disconnected {
            Some(STATUS_CONNECTION_DISCONNECTED)
        } else if state.peer_gone {
            Some(STATUS_SUCCESS)
        } else if state.established || state.attempting {
            None
        } else {
            drop(state);
            return Err((request, STATUS_CONNECTION_INVALID));
        };
        (over, state.next_word(NOTIFY))
    };
    if let Some(status) = over {
        return Ok(complete_pended(request, status, 0));
    }
    let pended = match Pended::begin(request, call.file.number, object::owner(&connector), word) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    let over = {
        let mut state = connector.state.lock();
        if state.closed {
            Some((pended, NOT_TAKEN))
        } else if state.disconnected {
            Some((pended, STATUS_CONNECTION_DISCONNECTED))
        } else if state.peer_gone {
            Some((pended, STATUS_SUCCESS))
        } else {
            state.waiting.push(pended).err().map(|pended| (pended, NOT_TAKEN))
        }
    };
    if let Some((pended, status)) = over {
        pended.finish(status);
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
    let Disconnecting { engine, told, word } = match begun {
        Ok(Some(disconnecting)) => disconnecting,
        // The peer has ended the connection, and the driver has answered that.
        Ok(None) => return Ok(complete_pended(request, STATUS_SUCCESS, 0)),
        Err(status) => return Err((request, status)),
    };
    told.finish(STATUS_CONNECTION_DISCONNECTED);
    let pended = match Pended::begin(request, call.file.number, object::owner(&connector), word) {
        Ok(pended) => pended,
        Err(refused) => {
            let _ending = engine.disconnect(no_request());
            return Ok(complete_pended(refused.request, STATUS_SUCCESS, 0));
        }
    };
    let refused = {
        let mut state = connector.state.lock();
        if state.closed { Some(pended) } else { state.waiting.push(pended).err() }
    };
    if let Some(pended) = refused {
        pended.finish(NOT_TAKEN);
    }
    disconnect_now(&connector, &engine, word);
    Ok(STATUS_PENDING)
}

/// What a Disconnect begins with.
struct Disconnecting {
    engine: EngineConnector<KernelPlatform>,
    told: PendingList,
    word: u32,
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
    let told = state.take_notifies();
    let word = state.next_word(DISCONNECT);
    Ok(Some(Disconnecting { engine, told, word }))
}

fn disconnect_now(connector: &Shared<Connector>, engine: &EngineConnector<KernelPlatform>, word: u32) {
    let attempt = Attempt { connector: connector.clone(), word };
    let ended = match attempt.callback(disconnect_ended) {
        Ok((callback, place)) => requested(engine.disconnect(callback), place, STATUS_SUCCESS),
        Err(status) => {
            let _ending = engine.disconnect(no_request());
            debug_assert!(status == STATUS_INSUFFICIENT_RESOURCES);
            Err((Attempt { connector: connector.clone(), word }, STATUS_SUCCESS))
        }
    };
    if let Err((attempt, _)) = ended
        && let Some(pended) = attempt.request()
    {
        // It has ended by itself in between.
        pended.finish(STATUS_SUCCESS);
    }
    let pair = connector.state.lock().pair.clone();
    if let Some(pair) = pair {
        pair.publish();
    }
}
