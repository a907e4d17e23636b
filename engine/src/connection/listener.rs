//! Listeners: the objects behind NDK_LISTENER. Where peers are reached by streams, a listener has a port for each of its addresses.
//!
//! An arriving request is a connector that a service pass hands out; the listener itself queues nothing.
//!
//! Rules (NDKPI: NDK_FN_LISTEN, NDK_FN_CLOSE_OBJECT): from the call of its close a listener refuses; the close is complete when
//! every connector it produced is closed; a paused listener behaves as if none were there; one at the unspecified address
//! listens at each address of its adapter, and what arrives has the specific one.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use softndk_cells::{Serialized, Shared};

use crate::adapter::adapter::Transport;
use crate::adapter::open::OpenObject;
use crate::capacity::{push_within_capacity, remove_at};
use crate::connection::endpoint::{EndpointError, EndpointKey, EndpointUse};
use crate::connection::network::Network;
use crate::connection::port::PortObject;
use crate::connection::shared_endpoint::SharedEndpoint;
use crate::error::{ConnectError, CreateError, Requested};
use crate::limits::{PORT_RETRY, PORT_TRIES, PORTS};
use crate::object::event::{Close, RequestCompletion, ServicePass};
use crate::object::header::{Antecedents, AnyObject, Core, Hold, Object, object};
use crate::object::snapshot::{EndpointEntry, ObjectKind, ObjectState};
use crate::object::timer::Timer;
use crate::platform::socket::ListenState;
use crate::platform::{Lock, Platform};

pub(crate) struct ListenerObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) open: Shared<OpenObject<P>>,
    pub(super) network: Shared<Network<P>>,
    pub(crate) connect: P::ConnectCallback,
    paused: AtomicBool,
    state: P::Lock<Listening<P>>,
    /// Held by the context that matches the ports with the addresses: another one would find the ports of this one in use.
    matching: Serialized<()>,
    /// Where there are ports: set while one could not be made, which is tried again then.
    retry: Option<Timer<P>>,
}

struct Listening<P: Platform> {
    endpoint: Option<(EndpointKey, SocketAddr)>,
    /// The endpoint is lost or given up; there is no second one.
    over: bool,
    /// Where peers are reached by streams.
    ports: Vec<Shared<PortObject<P>>>,
    /// When ports that lacked memory are tried again.
    retry_at: Option<u64>,
    /// The Listen that waits for its ports.
    waiting: Option<(P::RequestCallback, Hold<P>)>,
    /// How many other ports may take the place of one that a program has: none where the consumer has named it.
    tries: u16,
}

impl<P: Platform> Listening<P> {
    /// How far its ports are: the first failure, else whether all listen.
    fn progress(&self) -> ListenState {
        let mut all = ListenState::Listening;
        for port in &self.ports {
            match port.state() {
                ListenState::Listening => {}
                ListenState::Starting => all = ListenState::Starting,
                failed @ ListenState::Failed(_) => return failed,
            }
        }
        all
    }
}

/// A listener.
pub struct Listener<P: Platform>(pub(crate) Shared<ListenerObject<P>>);

impl<P: Platform> Clone for Listener<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl From<EndpointError> for ConnectError {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::InUse => Self::AddressInUse,
            EndpointError::TupleInUse => Self::TupleInUse,
            EndpointError::PortsInUse { .. } => Self::NoPorts,
            EndpointError::NoMemory => Self::NoResources,
        }
    }
}

impl<P: Platform> Listener<P> {
    pub(crate) fn create(
        network: &Shared<Network<P>>,
        open: &Shared<OpenObject<P>>,
        connect: P::ConnectCallback,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &open.adapter;
        adapter.ready()?;
        let has_ports = adapter.transport != Transport::Loopback;
        let timer = || Timer::try_new(&adapter.scheduler, adapter.scheduler.next_object() as u32);
        let listener = Shared::try_new(ListenerObject {
            core: adapter.core(ObjectKind::Listener, Some(consumer_object), Antecedents::none().with(Object::of(open))),
            open: open.clone(),
            network: network.clone(),
            connect,
            paused: AtomicBool::new(false),
            state: P::Lock::new(Listening {
                endpoint: None,
                over: false,
                ports: Vec::new(),
                retry_at: None,
                waiting: None,
                tries: 0,
            }),
            matching: Serialized::new(()),
            retry: has_ports.then(timer).transpose()?,
        })?;
        adapter.register(&Object::of(&listener))?;
        Ok(Self(listener))
    }

    /// Begins to listen at an address and port that are reserved: the shared endpoint's. `AddressInUse` where another listens.
    /// Pends where its port has to be asked of the system; without a callback it never pends.
    pub fn listen_at(
        &self,
        endpoint: &SharedEndpoint<P>,
        callback: impl Into<Option<P::RequestCallback>>,
    ) -> Result<Requested, ConnectError> {
        let listener = &self.0;
        let (adapter, endpoint) = (&listener.open.adapter, &endpoint.0);
        if !endpoint.open.adapter.is(adapter) {
            return Err(ConnectError::Foreign);
        }
        if !adapter.is_running() {
            return Err(ConnectError::AdapterGone);
        }
        let address = endpoint.address;
        self.begin(address, callback.into(), || {
            listener.network.directory.with(|directory| directory.attend(&endpoint.key, listener))?;
            Ok(endpoint.key)
        })
    }

    /// Begins to listen; port 0 picks one. The unspecified address stands for every address that the adapter has, now or in the
    /// future. Pends where its ports have to be asked of the system.
    pub fn listen(
        &self,
        address: SocketAddr,
        callback: impl Into<Option<P::RequestCallback>>,
    ) -> Result<Requested, ConnectError> {
        let listener = &self.0;
        let adapter = &listener.open.adapter;
        if !adapter.is_running() {
            return Err(ConnectError::AdapterGone);
        }
        let everywhere = address.ip().is_unspecified();
        let own =
            if everywhere { Some(SocketAddr::new(address.ip(), address.port())) } else { adapter.own_address(address) };
        let address = own.ok_or(ConnectError::InvalidAddress)?;
        let key = EndpointKey::new(adapter.number, address);
        self.begin(address, callback.into(), || Ok(listener.network.take_endpoint(key, Some(listener))?))
    }

    /// Takes the endpoint, once.
    fn begin(
        &self,
        mut address: SocketAddr,
        callback: Option<P::RequestCallback>,
        take: impl FnOnce() -> Result<EndpointKey, ConnectError>,
    ) -> Result<Requested, ConnectError> {
        let listener = &self.0;
        let adapter = &listener.open.adapter;
        listener.state.with(|state| {
            if state.endpoint.is_some() || state.over {
                return Err(ConnectError::InvalidState);
            }
            state.tries = if address.port() == 0 { PORT_TRIES } else { 0 };
            let key = take()?;
            address.set_port(key.port());
            state.endpoint = Some((key, address));
            Ok(())
        })?;
        let everywhere = address.ip().is_unspecified();
        // An adapter or address that was removed meanwhile has not ended this listener.
        let running = adapter.is_running();
        listener.addresses_gone(&|address| !running || !everywhere && !adapter.has_address(address));
        if adapter.transport == Transport::Loopback { Ok(Requested::Done) } else { self.open_ports(callback) }
    }

    fn open_ports(&self, mut callback: Option<P::RequestCallback>) -> Result<Requested, ConnectError> {
        let listener = &self.0;
        loop {
            if let Err(error) = ListenerObject::match_ports(listener) {
                listener.give_up();
                return Err(error);
            }
            let begun = listener.state.with(|state| match listener.progress(state) {
                ListenState::Failed(error) => Err(error),
                ListenState::Listening => Ok(Requested::Done),
                ListenState::Starting => {
                    let Some(callback) = callback.take() else { return Ok(Requested::Done) };
                    state.waiting = Some((callback, Hold::new(Object::of(listener))));
                    Ok(Requested::Pending)
                }
            });
            match begun {
                Err(ConnectError::AddressInUse) if ListenerObject::take_next_port(listener) => continue,
                Err(_) => listener.give_up(),
                Ok(Requested::Done) => {}
                // What has changed before it waited.
                Ok(Requested::Pending) => listener.core.scheduler.link(&Object::of(listener)),
            }
            return begun;
        }
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.local_address()
    }

    /// True: behave as if no listener were there.
    pub fn pause(&self, pause: bool) {
        self.0.paused.store(pause, Ordering::Release);
    }

    /// Keeps the close from completing while something of the front end's own is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        self.0.core.close(Some(callback), || self.0.stop())
    }
}

impl<P: Platform> ListenerObject<P> {
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.state.with(|state| state.endpoint.map(|(_, address)| address))
    }

    pub(crate) fn listed_state(&self) -> ObjectState {
        self.state.with(|state| match (state.endpoint, state.over) {
            (_, true) => ObjectState::Silent,
            (Some(_), false) => ObjectState::Listening,
            (None, false) => ObjectState::Idle,
        })
    }

    /// Whether a new connection is taken.
    pub(crate) fn is_open(&self) -> bool {
        !self.paused.load(Ordering::Acquire) && !self.core.is_closing()
    }

    /// Gives the endpoint up; connectors accepted over it keep it counted.
    fn stop(&self) {
        self.state.with(|state| state.over = true);
        self.give_up();
    }

    /// The same after a Listen that has failed: another may come.
    fn give_up(&self) {
        let (endpoint, ports) = self.state.with(|state| {
            state.retry_at = None;
            (state.endpoint.take(), core::mem::take(&mut state.ports))
        });
        self.retry.iter().for_each(Timer::clear);
        ports.iter().for_each(PortObject::stop);
        let Some((key, _)) = endpoint else { return };
        let this = self.network.directory.with(|directory| {
            let this = directory.deafen(&key);
            directory.release(&EndpointUse::at(key));
            this
        });
        if let Some(this) = this {
            // A pass completes a Listen that pends.
            this.core.scheduler.link(&Object::of(&this));
        }
    }

    /// Has a port at each address that it listens at, and at no other. Another context that does so goes round again.
    fn match_ports(listener: &Shared<Self>) -> Result<(), ConnectError> {
        let Some(mut held) = listener.matching.raise() else { return Ok(()) };
        loop {
            let matched = Self::match_once(listener);
            let Some(again) = held.finish() else {
                listener.core.scheduler.link(&Object::of(listener));
                return matched;
            };
            held = again;
        }
    }

    /// Has ports at the addresses that there are now. One that lacks memory is tried again after a while; an address whose port another
    /// program has is not listened at.
    fn follow_addresses(listener: &Shared<Self>) {
        if Self::match_ports(listener) == Err(ConnectError::NoResources) {
            Self::match_later(listener);
        }
    }

    /// Has ports that are lost, or could not be made, made anew after a while.
    fn match_later(listener: &Shared<Self>) {
        let Some(retry) = &listener.retry else { return };
        let again = listener.core.scheduler.platform().now().saturating_add(PORT_RETRY);
        listener.state.with(|state| state.retry_at = Some(again));
        retry.set(&Object::of(listener), again);
    }

    /// How far its ports are: the first failure, else whether all listen.
    fn progress(&self, state: &Listening<P>) -> ListenState {
        match state.progress() {
            ListenState::Listening if self.matching.is_held() => ListenState::Starting,
            progress => progress,
        }
    }

    fn match_once(listener: &Shared<Self>) -> Result<(), ConnectError> {
        let Some(address) = listener.local_address() else { return Ok(()) };
        let adapter = &listener.open.adapter;
        let mut wanted = ArrayVec::<SocketAddr, PORTS>::new();
        if address.ip().is_unspecified() {
            adapter.each_address(|own| {
                let is_like_it = own.ip.is_ipv4() == address.is_ipv4();
                !is_like_it || wanted.try_push(own.with_port(address.port())).is_ok()
            });
        } else {
            let _only = wanted.try_push(address);
        }
        let mut gone = ArrayVec::<_, PORTS>::new();
        listener.state.with(|state| {
            let mut index = 0;
            while let Some(port) = state.ports.get(index) {
                let place = wanted.iter().position(|address| *address == port.address);
                if let Some(place) = place.filter(|_| !port.is_lost()) {
                    wanted.swap_pop(place);
                    index = index.saturating_add(1);
                    continue;
                }
                let Some(port) = remove_at(&mut state.ports, index) else { return };
                if gone.try_push(port).is_err() {
                    return;
                }
            }
        });
        for port in &gone {
            PortObject::stop(port);
        }
        while let Some(address) = wanted.pop() {
            let port = PortObject::begin(&listener.network, &listener.open, address, Object::of(listener))?;
            let kept = listener.state.with(|state| {
                if state.endpoint.is_none() || state.ports.try_reserve(1).is_err() {
                    return false;
                }
                push_within_capacity(&mut state.ports, port.clone()).is_ok()
            });
            if !kept {
                PortObject::stop(&port);
                return Err(ConnectError::NoResources);
            }
        }
        Ok(())
    }

    /// Takes another port in place of one that a program has, if any will do for the consumer; whether it has.
    fn take_next_port(listener: &Shared<Self>) -> bool {
        let address = listener.state.with(|state| {
            let (_, address) = state.endpoint?;
            state.tries = state.tries.checked_sub(1)?;
            Some(address)
        });
        let Some(mut address) = address else { return false };
        listener.give_up();
        address.set_port(0);
        let wanted = EndpointKey::new(listener.open.adapter.number, address);
        listener.state.with(|state| {
            // A close may have come meanwhile, but no other Listen: this one has not been answered.
            let key = if state.over { None } else { listener.network.take_endpoint(wanted, Some(listener)).ok() };
            state.endpoint = key.map(|key| (key, SocketAddr::new(address.ip(), key.port())));
            key.is_some()
        })
    }

    /// Ends a Listen whose ports listen, or do not.
    fn answer_listen(listener: &Shared<Self>, pass: &mut ServicePass<'_, P>) {
        let answered = listener.state.with(|state| {
            let result = match listener.progress(state) {
                ListenState::Failed(error) => Err(error),
                _ if state.endpoint.is_none() => Err(ConnectError::Aborted),
                ListenState::Listening => Ok(()),
                ListenState::Starting => return None,
            };
            Some((state.waiting.take()?, result))
        });
        let Some((waiting, mut result)) = answered else { return };
        if result == Err(ConnectError::AddressInUse) && Self::take_next_port(listener) {
            result = Self::match_ports(listener);
            if result.is_ok() {
                listener.state.with(|state| state.waiting = Some(waiting));
                // What has changed before it waited.
                return listener.core.scheduler.link(&Object::of(listener));
            }
        }
        if result.is_err() {
            listener.give_up();
        }
        let (callback, hold) = waiting;
        pass.sink.request_completed(RequestCompletion { callback, result, hold });
    }
}

object!(ListenerObject {
    fn work(&self, pass: &mut ServicePass<'_, P>) {
        let now = || self.core.scheduler.platform().now();
        let is_due = self.state.with(|state| state.retry_at.take_if(|again| now() >= *again).is_some());
        if is_due {
            ListenerObject::follow_addresses(self);
        }
        ListenerObject::answer_listen(self, pass);
        let has_lost = |state: &mut Listening<P>| {
            state.retry_at.is_none() && state.ports.iter().any(|port| port.is_lost())
        };
        if self.state.with(has_lost) {
            ListenerObject::match_later(self);
        }
    }

    fn addresses_come(&self) {
        if self.retry.is_some() {
            ListenerObject::follow_addresses(self);
        }
    }

    fn is_limited(&self) -> bool {
        false
    }

    fn snapshot_state(&self) -> ObjectState {
        self.listed_state()
    }

    fn addresses_gone(&self, gone: &dyn Fn(IpAddr) -> bool) {
        if self.local_address().is_some_and(|address| gone(address.ip())) {
            self.stop();
        }
    }

    fn endpoint(&self) -> Option<EndpointEntry> {
        self.local_address().map(|local| EndpointEntry { local, listener: true })
    }
});
