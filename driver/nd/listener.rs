//! Listeners: connections that arrive, and the requests of the process that wait for one.
//!
//! An arrived connection goes to the oldest request, into the connector that the request names, or waits in the backlog. What the
//! backlog cannot hold, and what is left at the end, is refused.

use core::{ffi::c_void, ptr};

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_ADDRESS_ALREADY_ASSOCIATED, STATUS_ADDRESS_NOT_ASSOCIATED, STATUS_CANCELLED,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_PENDING,
    STATUS_SUCCESS,
};
use softndk_cells::Shared;
use softndk_engine::{Arrival, ConnectError, Listener as EngineListener, Requested};
use softndk_ioctl::nd::control::{Bind, GetConnectionRequest, Handle, Listen, SocketAddress};
use softndk_kernel::{
    event::Event,
    irp::{Buffer, Request},
    pool::{NoMemory, PoolBox},
    spin_lock::SpinLock,
};

use super::{
    adapter::OpenedAdapter,
    connector::{self, Connector},
    context::{AdapterLife, HandleReservation, ProcessContext},
    endpoint::Endpoint,
    limits::BACKLOG,
    object::{self, Closable, EngineHandle, consumer_object, handle_kind},
    pending::{NOT_TAKEN, NotTaken, Pended, PendingList},
    request::{Call, Cancellable, answer, check_output, input, named},
    socket,
    status::{Answered, of_connect, of_error},
};
use crate::{
    runtime::platform::{
        Callback, CancelledRequest, ConnectCallback, KernelPlatform, RequestCallback, UserModeConnect, UserModeObject,
        UserModeRequest,
    },
    tags,
};

pub struct Listener {
    engine: EngineHandle<EngineListener<KernelPlatform>>,
    adapter: Shared<OpenedAdapter>,
    context: Shared<ProcessContext>,
    state: SpinLock<ListenerState>,
}

struct ListenerState {
    closed: bool,
    endpoint: Option<Shared<Endpoint>>,
    listening: bool,
    /// Connections that may wait.
    most: u32,
    backlog: Backlog,
    /// Each of the kind of its connector's handle.
    waiting: PendingList,
}

/// Connections that wait, first come, first served: those that come are stacked, and turned over when they are needed.
struct Backlog {
    oldest: Option<PoolBox<WaitingArrival>>,
    newest: Option<PoolBox<WaitingArrival>>,
    count: u32,
}

struct WaitingArrival {
    arrival: Option<Arrival<KernelPlatform>>,
    next: Option<PoolBox<WaitingArrival>>,
}

impl Backlog {
    const fn new() -> Self {
        Self { oldest: None, newest: None, count: 0 }
    }

    fn push(&mut self, mut waiting: PoolBox<WaitingArrival>) {
        waiting.next = self.newest.take();
        self.newest = Some(waiting);
        self.count = self.count.saturating_add(1);
    }

    fn pop(&mut self) -> Option<PoolBox<WaitingArrival>> {
        if self.oldest.is_none() {
            while let Some(mut waiting) = self.newest.take() {
                self.newest = waiting.next.take();
                waiting.next = self.oldest.take();
                self.oldest = Some(waiting);
            }
        }
        let mut first = self.oldest.take()?;
        self.oldest = first.next.take();
        self.count = self.count.saturating_sub(1);
        Some(first)
    }
}

/// What becomes of an arrival.
enum Step {
    Kept,
    Refused(PoolBox<WaitingArrival>),
    For(Pended, PoolBox<WaitingArrival>),
}

impl Listener {
    fn endpoint(&self) -> Option<Shared<Endpoint>> {
        self.state.lock().endpoint.clone()
    }

    /// A connection has arrived. `IRQL <= DISPATCH_LEVEL`, no lock held.
    fn arrived(&self, arrival: Arrival<KernelPlatform>) {
        // Without memory the arrival is dropped, which refuses it.
        let Ok(waiting) = PoolBox::try_new(tags::ND_ARRIVAL, WaitingArrival { arrival: Some(arrival), next: None })
        else {
            return;
        };
        self.offer(waiting);
    }

    /// Gives a connection to the oldest request whose connector waits for one, or keeps it, or refuses it.
    fn offer(&self, waiting: PoolBox<WaitingArrival>) {
        // Requests whose connectors do not wait any more: many, perhaps.
        let mut given_up = PendingList::new();
        let mut left = Some(waiting);
        while let Some(waiting) = left.take() {
            let step = {
                let mut state = self.state.lock();
                if state.closed {
                    Step::Refused(waiting)
                } else if let Some(pended) = state.waiting.pop() {
                    Step::For(pended, waiting)
                } else if state.backlog.count >= state.most {
                    Step::Refused(waiting)
                } else {
                    state.backlog.push(waiting);
                    Step::Kept
                }
            };
            match step {
                Step::Kept => {}
                Step::Refused(waiting) => drop(waiting),
                Step::For(pended, waiting) => {
                    if let Err((not_taken, waiting)) = self.hand_over(pended, waiting) {
                        given_up.add(not_taken.pended);
                        left = Some(waiting);
                    }
                }
            }
        }
        given_up.finish(STATUS_CANCELLED);
    }

    /// Gives a connection to the connector of a request; both come back where that does not wait for one any more.
    fn hand_over(
        &self,
        pended: Pended,
        mut waiting: PoolBox<WaitingArrival>,
    ) -> Result<(), (NotTaken, PoolBox<WaitingArrival>)> {
        let connector = self.context.object::<Connector>(pended.kind());
        let Some(arrival) = waiting.arrival.take() else {
            return Err((NotTaken::new(pended, STATUS_CANCELLED), waiting));
        };
        let taken = match &connector {
            Ok(connector) => connector::take_arrival(connector, arrival),
            Err(_) => Err(arrival),
        };
        match taken {
            Ok(()) => {
                pended.finish(STATUS_SUCCESS);
                Ok(())
            }
            Err(arrival) => {
                waiting.arrival = Some(arrival);
                Err((NotTaken::new(pended, STATUS_CANCELLED), waiting))
            }
        }
    }

    /// Ends a request that was taken off the list.
    fn end_request(&self, pended: Pended, status: NTSTATUS) {
        if let Ok(connector) = self.context.object::<Connector>(pended.kind()) {
            connector.unreserve();
        }
        pended.finish(status);
    }

    /// Ends requests that were taken off the list.
    fn end_requests(&self, mut requests: PendingList, status: NTSTATUS) {
        while let Some(pended) = requests.pop() {
            self.end_request(pended, status);
        }
    }
}

/// The engine's event. `IRQL <= DISPATCH_LEVEL`.
unsafe fn arrived(context: *mut c_void, arrival: Arrival<KernelPlatform>) {
    // SAFETY: the engine keeps the listener's block until its close is complete.
    if let Some(listener) = unsafe { context.cast::<Listener>().as_ref() } {
        listener.arrived(arrival);
    }
}

handle_kind!(Listener);

impl UserModeObject for Shared<Listener> {
    fn cancelled(&self, request: CancelledRequest) {
        let pended = self.state.lock().waiting.take_cancelled(request);
        if let Some(pended) = pended {
            self.end_request(pended, STATUS_CANCELLED);
        }
    }
}

impl Cancellable for Listener {
    fn cancel_all(&self) {
        let waiting = self.state.lock().waiting.take_all();
        self.end_requests(waiting, STATUS_CANCELLED);
    }
}

impl Closable for Shared<Listener> {
    fn close(&self, status: NTSTATUS) {
        let (endpoint, waiting) = {
            let mut state = self.state.lock();
            state.closed = true;
            (state.endpoint.take(), state.waiting.take_all())
        };
        self.end_requests(waiting, status);
        loop {
            let waiting = self.state.lock().backlog.pop();
            if waiting.is_none() {
                break;
            }
        }
        if let Ok(engine) = self.engine.get() {
            object::finish(engine.close(object::no_callback()));
        }
        drop(endpoint);
    }

    fn end_file(&self, file: u64) {
        let waiting = self.state.lock().waiting.take_of_file(file);
        self.end_requests(waiting, STATUS_CANCELLED);
    }

    fn adapter(&self) -> &AdapterLife {
        &self.adapter.life
    }

    fn bound_to(&self) -> Option<(Shared<Endpoint>, bool)> {
        self.endpoint().map(|endpoint| (endpoint, true))
    }
}

/// LISTENER_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    check_output::<u64>(buffer)?;
    let adapter = call.context.object::<OpenedAdapter>(asked.handle)?;
    let mut reservation = HandleReservation::try_new(call, &[asked.handle], Some(&adapter.life))?;
    let state = ListenerState {
        closed: false,
        endpoint: None,
        listening: false,
        most: 0,
        backlog: Backlog::new(),
        waiting: PendingList::new(),
    };
    let listener = object::block(Listener {
        engine: EngineHandle::none(&mut reservation),
        adapter: adapter.clone(),
        context: call.context.clone(),
        state: SpinLock::new(state),
    })?;
    // SAFETY: `arrived` takes the listener, which the engine keeps until its close is complete.
    let callback = unsafe { Callback::<UserModeConnect>::new(arrived, object::context(&listener)) };
    let created = adapter.open()?.create_listener(ConnectCallback::UserMode(callback), consumer_object(&listener));
    // SAFETY: no other context has the object yet.
    unsafe { listener.engine.set(created.map_err(of_error)?) };
    answer(buffer, &reservation.fill(listener))
}

/// LISTENER_BIND.
pub fn bind(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Bind = input(buffer)?;
    let listener = call.context.object::<Listener>(asked.handle)?;
    let address = socket::read(&asked.address)?;
    if listener.state.lock().endpoint.is_some() {
        return Err(STATUS_ADDRESS_ALREADY_ASSOCIATED);
    }
    let endpoint = OpenedAdapter::bind(&listener.adapter, call, address, true)?;
    let mut state = listener.state.lock();
    if state.closed || state.endpoint.is_some() {
        drop(state);
        drop(endpoint);
        return Err(STATUS_ADDRESS_ALREADY_ASSOCIATED);
    }
    state.endpoint = Some(endpoint);
    Ok(0)
}

/// LISTENER_LISTEN.
pub fn listen(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Listen = input(buffer)?;
    let listener = call.context.object::<Listener>(asked.listener)?;
    let endpoint = {
        let mut state = listener.state.lock();
        let endpoint = state.endpoint.clone().ok_or(STATUS_ADDRESS_NOT_ASSOCIATED)?;
        if state.listening {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        let most = if asked.backlog == 0 { BACKLOG } else { asked.backlog.min(BACKLOG) };
        (state.listening, state.most) = (true, most);
        endpoint
    };
    if let Err(cause) = listen_at(&listener, &endpoint)? {
        listener.state.lock().listening = false;
        return Err(of_connect(cause, STATUS_INVALID_DEVICE_STATE));
    }
    Ok(0)
}

/// Waits where the engine has to ask the system for the port.
fn listen_at(listener: &Listener, endpoint: &Endpoint) -> Result<Result<(), ConnectError>, NTSTATUS> {
    let answer = ListenAnswer::try_new().map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
    let context: *const ListenAnswer = &raw const *answer;
    // SAFETY: `listened` takes the answer, which stays until it has been called: below, or never if the call does not pend.
    let callback = unsafe { Callback::<UserModeRequest>::new(listened, context.cast_mut().cast()) };
    let asked = listener.engine.get()?.listen_at(&endpoint.engine, RequestCallback::UserMode(callback));
    Ok(match asked {
        Ok(Requested::Done) => Ok(()),
        Ok(Requested::Pending) => answer.wait(),
        Err(cause) => Err(cause),
    })
}

/// What a Listen that pends is answered with.
struct ListenAnswer {
    is_there: Event,
    result: SpinLock<Result<(), ConnectError>>,
}

impl ListenAnswer {
    fn try_new() -> Result<PoolBox<Self>, NoMemory> {
        let is_there = Event::try_notification(tags::EVENT)?;
        PoolBox::try_new(tags::ND_REQUEST, Self { is_there, result: SpinLock::new(Ok(())) })
    }

    /// PASSIVE_LEVEL: the port is asked of the system by service passes, which need nothing of this thread.
    fn wait(&self) -> Result<(), ConnectError> {
        self.is_there.wait();
        *self.result.lock()
    }
}

/// The engine's answer. `IRQL <= DISPATCH_LEVEL`.
unsafe fn listened(context: *mut c_void, result: Result<(), ConnectError>) {
    // SAFETY: the answer that waits.
    if let Some(answer) = unsafe { context.cast::<ListenAnswer>().as_ref() } {
        *answer.result.lock() = result;
        answer.is_there.set();
    }
}

/// LISTENER_GET_ADDRESS: from Bind on.
pub fn local_address(call: &Call, buffer: &mut Buffer) -> Answered {
    let listener = named::<Listener>(call, buffer)?;
    let endpoint = listener.endpoint().ok_or(STATUS_INVALID_DEVICE_STATE)?;
    answer::<SocketAddress>(buffer, &socket::write(&endpoint.address))
}

/// LISTENER_GET_CONNECTION_REQUEST.
pub fn get_connection_request(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let (listener, connector, handle) = match prepare(call, &Buffer::of(&request)) {
        Ok(prepared) => prepared,
        Err(status) => return Err((request, status)),
    };
    let pended = match Pended::begin(request, call, object::owner(&listener), handle) {
        Ok(pended) => pended,
        Err(refused) => {
            connector.unreserve();
            return Err((refused.request, refused.status));
        }
    };
    let next = {
        let mut state = listener.state.lock();
        if state.closed {
            Next::Over(NotTaken::new(pended, NOT_TAKEN))
        } else if let Some(waiting) = state.backlog.pop() {
            Next::For(pended, waiting)
        } else {
            state.waiting.push(pended).map_or_else(Next::Over, |()| Next::Waits)
        }
    };
    match next {
        Next::Waits => {}
        Next::Over(not_taken) => listener.end_request(not_taken.pended, not_taken.status),
        Next::For(pended, waiting) => {
            if let Err((not_taken, waiting)) = listener.hand_over(pended, waiting) {
                not_taken.finish();
                listener.offer(waiting);
            }
        }
    }
    Ok(STATUS_PENDING)
}

/// What becomes of a request.
enum Next {
    Waits,
    Over(NotTaken),
    /// A connection waits for it.
    For(Pended, PoolBox<WaitingArrival>),
}

/// Listener and connector of a request; the connector is reserved for it.
fn prepare(call: &Call, buffer: &Buffer) -> Result<(Shared<Listener>, Shared<Connector>, u64), NTSTATUS> {
    let asked: GetConnectionRequest = input(buffer)?;
    let listener = call.context.object::<Listener>(asked.listener)?;
    let connector = call.context.object::<Connector>(asked.connector)?;
    if !ptr::eq(connector.adapter(), listener.adapter()) {
        return Err(STATUS_INVALID_PARAMETER);
    }
    if !listener.state.lock().listening {
        return Err(STATUS_INVALID_DEVICE_STATE);
    }
    connector.reserve()?;
    Ok((listener, connector, asked.connector))
}
