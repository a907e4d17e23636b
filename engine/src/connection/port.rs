//! Listening sockets: one for each address that a listener listens at, where peers are reached by streams.
//!
//! A port is no object of the consumer's. Its listener keeps it until it stops; the socket keeps it until it is closed. One context at
//! a time has the socket. No more than [`HALF_OPEN`] connections wait for their Request: for another one the oldest goes, so that peers
//! that say nothing keep none out that speaks.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrayvec::ArrayVec;

use softndk_cells::{Dispose, Serialized, Shared, View};

use crate::adapter::open::OpenObject;
use crate::connection::network::Network;
use crate::connection::stream;
use crate::error::ConnectError;
use crate::limits::{HALF_OPEN, PORT_RETRY, STEP_ACCEPTS, STEP_REQUESTS};
use crate::object::event::ServicePass;
use crate::object::header::{AnyObject, Core, Object};
use crate::object::run_queue::Lane;
use crate::object::scheduler::Scheduler;
use crate::object::timer::Timer;
use crate::object::waker::Waker;
use crate::platform::socket::{ListenState, ListeningSocket};
use crate::platform::{Lock, Platform};
use crate::stream::{StreamObject, Wishes};

/// See the module.
pub(crate) struct PortObject<P: Platform> {
    scheduler: Scheduler<P>,
    network: Shared<Network<P>>,
    open: Shared<OpenObject<P>>,
    pub(super) address: SocketAddr,
    socket: Serialized<P::ListeningSocket>,
    /// Set while the socket is stalled.
    timer: Timer<P>,
    /// When it is to resume. Of the context that has the socket.
    resumes_at: AtomicU64,
    state: P::Lock<PortState<P>>,
    /// The listener has given the port up.
    is_stopped: AtomicBool,
}

struct PortState<P: Platform> {
    listen: ListenState,
    /// Linked on each change.
    listener: Option<Object<P>>,
    /// Connections that wait for their Request, the oldest first.
    half_open: ArrayVec<Shared<StreamObject<P>>, HALF_OPEN>,
}

impl<P: Platform> PortObject<P> {
    /// Begins to listen. Each change of the state links the listener.
    pub(super) fn begin(
        network: &Shared<Network<P>>,
        open: &Shared<OpenObject<P>>,
        address: SocketAddr,
        listener: Object<P>,
    ) -> Result<Shared<Self>, ConnectError> {
        let scheduler = open.adapter.scheduler.clone();
        let socket = scheduler.platform().listen(address)?;
        let timer = Timer::try_new(&scheduler, scheduler.next_object() as u32)?;
        let port = Shared::try_new(Self {
            scheduler,
            network: network.clone(),
            open: open.clone(),
            address,
            socket: Serialized::new(socket),
            timer,
            resumes_at: AtomicU64::new(0),
            state: P::Lock::new(PortState {
                listen: ListenState::Starting,
                listener: Some(listener),
                half_open: ArrayVec::new(),
            }),
            is_stopped: AtomicBool::new(false),
        })?;
        let waker = Waker::new(&port.scheduler, Object::of(&port));
        port.scheduler.platform().raised(|_| {
            // No other context has it yet.
            if let Some(mut socket) = port.socket.raise() {
                socket.attach(waker);
            }
        });
        Self::drive(&port);
        Ok(port)
    }

    pub(super) fn state(&self) -> ListenState {
        self.state.with(|state| state.listen)
    }

    /// Whether it does not listen, for a reason that may pass by itself: another program that has the port stays.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state(), ListenState::Failed(error) if error != ConnectError::AddressInUse)
    }

    /// No connection is taken any more.
    pub(super) fn stop(port: &Shared<Self>) {
        port.is_stopped.store(true, Ordering::Release);
        let listener = port.state.with(|state| state.listener.take());
        drop(listener);
        Self::drive(port);
    }

    /// A connection waits for its Request. The oldest of those that do makes room for it.
    pub(super) fn add_half_open(&self, stream: &Shared<StreamObject<P>>) {
        let oldest = self.state.with(|state| {
            let oldest = if state.half_open.is_full() { state.half_open.pop_at(0) } else { None };
            let _added = state.half_open.try_push(stream.clone());
            oldest
        });
        if let Some(oldest) = oldest {
            StreamObject::wish(&oldest, Wishes::MAKE_ROOM);
        }
    }

    /// It has had its Request, or has ended.
    pub(super) fn release_half_open(&self, stream: &Shared<StreamObject<P>>) {
        let released = self.state.with(|state| {
            let place = state.half_open.iter().position(|other| other.is(stream));
            place.and_then(|place| state.half_open.pop_at(place))
        });
        drop(released);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn drive(port: &Shared<Self>) {
        // Who has the socket must not be preempted.
        port.scheduler.platform().raised(|_| Self::drive_raised(port));
    }

    fn drive_raised(port: &Shared<Self>) {
        let Some(mut socket) = port.socket.raise() else { return };
        let mut accepts = STEP_ACCEPTS;
        for _ in 0..STEP_REQUESTS {
            if port.is_stopped() {
                port.timer.clear();
                socket.close();
            } else {
                Self::advance(port, &mut socket, &mut accepts);
            }
            // While this context has the socket: who has it next knows a newer state, over which this one must not be recorded.
            port.report(socket.state());
            match socket.finish() {
                Some(again) => socket = again,
                None => return,
            }
        }
        drop(socket);
        port.scheduler.link(&Object::of(port));
    }

    /// No more connections are taken than `accepts` says.
    fn advance(port: &Shared<Self>, socket: &mut P::ListeningSocket, accepts: &mut usize) {
        let now = port.scheduler.platform().now();
        let mut resumes_at = port.resumes_at.load(Ordering::Relaxed);
        if socket.is_stalled() && resumes_at <= now {
            socket.resume();
        } else {
            socket.advance();
        }
        Self::take_connections(port, socket, accepts);
        if socket.is_stalled() {
            // A connection that arrives while the socket is stalled does not put the retry off.
            if resumes_at <= now {
                resumes_at = now.saturating_add(PORT_RETRY);
                port.resumes_at.store(resumes_at, Ordering::Relaxed);
            }
            port.timer.set(&Object::of(port), resumes_at);
        }
    }

    fn take_connections(port: &Shared<Self>, socket: &mut P::ListeningSocket, accepts: &mut usize) {
        while let Some(left) = accepts.checked_sub(1) {
            *accepts = left;
            let Some((connection, source)) = socket.accept() else { return };
            // Without memory it is closed.
            let _taken = stream::take(port, connection, source);
        }
        // What they have to say is heard before more are accepted.
        port.scheduler.link(&Object::of(port));
    }

    /// Records the state, and links the listener when it has changed.
    fn report(&self, now: ListenState) {
        let listener = self.state.with(|state| {
            let is_new = core::mem::replace(&mut state.listen, now) != now;
            state.listener.clone().filter(|_| is_new)
        });
        if let Some(listener) = listener {
            self.scheduler.link(&listener);
        }
    }

    pub(super) const fn network(&self) -> &Shared<Network<P>> {
        &self.network
    }

    pub(super) const fn open(&self) -> &Shared<OpenObject<P>> {
        &self.open
    }
}

impl<P: Platform> Dispose for PortObject<P> {}

impl<P: Platform> View for PortObject<P> {
    type As = dyn AnyObject<P>;

    fn view(object: &Shared<Self>) -> &Self::As {
        object
    }
}

impl<P: Platform> AnyObject<P> for Shared<PortObject<P>> {
    fn core(&self) -> Option<&Core<P>> {
        None
    }

    fn lane(&self) -> Lane {
        Lane::Requests
    }

    fn service_requests(&self, _processor: u32, _bytes: &mut u64) {
        PortObject::drive(self);
    }

    fn work(&self, _pass: &mut ServicePass<'_, P>) {
        PortObject::drive(self);
    }
}
