//! Connections over streams: the start-up frames of iWARP carry the messages of connectors.
//!
//! | message | on the stream |
//! |---|---|
//! | the request | connection of TCP, MPA Request |
//! | Accepted | MPA Reply |
//! | Rejected | MPA Reply that rejects, then the end |
//! | Refused | the end before a Reply |
//! | Ready | the first frame |
//! | Abandoned | a reset before the first frame |
//! | Notice | the end behind everything that has been sent |
//! | Abort, of a queue pair that has failed | Terminate, then the end |
//! | Abort, for any other reason | reset |

use core::net::SocketAddr;

use softndk_cells::{Dispose, NoMemory, Shared, View};
use softndk_iwarp::negotiation::ReadLimits as WireLimits;

use crate::adapter::adapter::{AdapterObject, Transport};
use crate::connection::connector::{self, ConnectAttempt, ConnectorObject};
use crate::connection::endpoint::EndpointKey;
use crate::connection::loopback::LoopbackRoute;
use crate::connection::message::{ConnectionRequest, Message, ReadLimits};
use crate::connection::peer::PeerConnector;
use crate::connection::port::PortObject;
use crate::error::{ConnectError, DisconnectReason};
use crate::object::event::ServicePass;
use crate::object::header::{AnyObject, Core, Object};
use crate::platform::Platform;
use crate::queue_pair::pair::QueuePairObject;
use crate::stream::{News, StartData, StreamObject, Wishes};

/// Where a stream goes.
pub(crate) struct StreamRoute {
    destination: SocketAddr,
    pub(crate) remote: EndpointKey,
}

fn to_wire(limits: ReadLimits) -> WireLimits {
    let number = |limit: u32| u16::try_from(limit).unwrap_or(u16::MAX);
    WireLimits { inbound: number(limits.inbound), outbound: number(limits.outbound) }
}

fn from_wire(limits: WireLimits) -> ReadLimits {
    ReadLimits { inbound: limits.inbound.into(), outbound: limits.outbound.into() }
}

impl StreamRoute {
    /// The way from a connector to a destination that is not reached by the memory of this machine. An adapter of this machine on
    /// another wire is not reached at all.
    pub(crate) fn find<P: Platform>(from: &ConnectorObject<P>, destination: SocketAddr) -> Option<Self> {
        let adapter = from.adapter();
        if adapter.transport == Transport::Loopback {
            return None;
        }
        let has_it = |other: &AdapterObject<P>| other.has_address(destination.ip());
        let network = from.network();
        let there = network.find_adapter(|other| other.wire == adapter.wire && has_it(other));
        let goes_by_memory = adapter.transport == Transport::Auto && there.is_some();
        if goes_by_memory || there.is_none() && network.find_adapter(has_it).is_some() {
            return None;
        }
        let remote = EndpointKey::new(there.map_or(u32::MAX, |there| there.number), destination);
        Some(Self { destination, remote })
    }

    // On a frame of its own, which is gone when the outcome is handled.
    #[inline(never)]
    pub(crate) fn request<P: Platform>(self, attempt: ConnectAttempt<'_, P>) -> Result<(), ConnectError> {
        let (connector, pair, request) = (attempt.connector, attempt.pair().clone(), attempt.request());
        let adapter = connector.adapter();
        let socket = adapter.scheduler.platform().connect(request.source, self.destination)?;
        let start = StartData { limits: to_wire(request.limits), private_data: request.data };
        let stream = StreamObject::connect(adapter, socket, &start)?.ok_or(ConnectError::PrivateDataTooLong)?;
        stream.set_connector(Object::of(connector));
        stream.set_queue_pair(Object::of(&pair));
        let begun = attempt.begin(PeerConnector::Stream(stream.clone()), || Ok(()));
        if begun.is_err() {
            StreamObject::wish(&stream, Wishes::ABORT);
            return begun;
        }
        StreamObject::attach(&stream);
        Ok(())
    }
}

/// A stream that has come, until its Request has made a connector.
struct IncomingStream<P: Platform> {
    stream: Shared<StreamObject<P>>,
    port: Shared<PortObject<P>>,
    source: SocketAddr,
}

/// Takes a connection of TCP that has come to a listening socket.
pub(super) fn take<P: Platform>(
    port: &Shared<PortObject<P>>,
    socket: P::Socket,
    source: SocketAddr,
) -> Result<(), NoMemory> {
    let stream = StreamObject::listen(&port.open().adapter, socket)?;
    let incoming = IncomingStream { stream: stream.clone(), port: port.clone(), source };
    stream.set_connector(Object::of(&Shared::try_new(incoming)?));
    port.add_half_open(&stream);
    StreamObject::attach(&stream);
    Ok(())
}

impl<P: Platform> IncomingStream<P> {
    fn arrive(&self) -> Result<(), ConnectError> {
        let start = self.stream.start_data().ok_or(ConnectError::NoResources)?;
        let adapter = &self.port.open().adapter;
        let route = LoopbackRoute::find(self.port.network(), adapter, self.port.address)?;
        let capacity = adapter.limits.caller_data.max(start.private_data.length() as u32);
        let request = ConnectionRequest {
            source: self.source,
            limits: from_wire(start.limits),
            data: start.private_data,
            capacity,
        };
        let arrived = route.arrive(PeerConnector::Stream(self.stream.clone()), &request, |arrived| {
            arrived.adapter().register(&Object::of(arrived))?;
            self.stream.set_connector(Object::of(arrived));
            Ok(())
        })?;
        arrived.core.scheduler.link(&Object::of(&arrived));
        connector::abort_if_orphaned(&arrived);
        Ok(())
    }
}

impl<P: Platform> Dispose for IncomingStream<P> {}

impl<P: Platform> View for IncomingStream<P> {
    type As = dyn AnyObject<P>;

    fn view(object: &Shared<Self>) -> &Self::As {
        object
    }
}

impl<P: Platform> AnyObject<P> for Shared<IncomingStream<P>> {
    fn core(&self) -> Option<&Core<P>> {
        None
    }

    fn work(&self, _pass: &mut ServicePass<'_, P>) {
        match self.stream.take_first_news() {
            Some(News::Requested) => {
                self.port.release_half_open(&self.stream);
                if self.arrive().is_err() {
                    StreamObject::refuse(&self.stream);
                }
            }
            Some(_) => {
                self.port.release_half_open(&self.stream);
                StreamObject::wish(&self.stream, Wishes::ABORT);
            }
            None => {}
        }
    }
}

/// Says a connector's message on its stream.
pub(crate) fn send<P: Platform>(
    stream: &Shared<StreamObject<P>>,
    message: Message,
    pair: Option<Shared<QueuePairObject<P>>>,
) {
    if let Some(pair) = pair {
        stream.set_queue_pair(Object::of(&pair));
    }
    let nothing = WireLimits { inbound: 0, outbound: 0 };
    match message {
        Message::Accepted { limits, data } => {
            StreamObject::answer(stream, true, StartData { limits: to_wire(limits), private_data: data });
        }
        Message::Rejected { data } => {
            StreamObject::answer(stream, false, StartData { limits: nothing, private_data: data });
        }
        Message::Ready => StreamObject::wish(stream, Wishes::OPEN),
        Message::Notice => StreamObject::wish(stream, Wishes::FINISH),
        Message::Abort { reason: DisconnectReason::PeerFailed } => StreamObject::wish(stream, Wishes::TERMINATE),
        Message::Refused { .. } | Message::Abandoned | Message::Abort { .. } => {
            StreamObject::wish(stream, Wishes::ABORT);
        }
    }
}

/// What a service pass of a connector hears from its stream.
pub(crate) fn service<P: Platform>(connector: &Shared<ConnectorObject<P>>) {
    while let Some(stream) = connector.stream()
        && let Some(news) = stream.take_news()
    {
        let peer = PeerConnector::Stream(stream.clone());
        let message = match news {
            News::Accepted | News::Rejected => Some(answer(&stream, news == News::Accepted)),
            News::Refused(error) => Some(Message::Refused { error }),
            News::Abandoned => Some(Message::Abandoned),
            News::Ready => Some(Message::Ready),
            News::Notice => Some(Message::Notice),
            News::Ended(reason) => Some(Message::Abort { reason }),
            News::Requested => None,
        };
        if let Some(message) = message {
            connector::deliver(connector, peer, message);
        }
        // From here on the queue pair takes what comes.
        connector.core.scheduler.link(&Object::of(&stream));
    }
}

/// The Reply as a message.
fn answer<P: Platform>(stream: &Shared<StreamObject<P>>, is_accepted: bool) -> Message {
    let Some(StartData { limits, private_data: data }) = stream.start_data() else {
        // There was no memory for it.
        StreamObject::wish(stream, Wishes::ABORT);
        return Message::Refused { error: ConnectError::NoResources };
    };
    // As a message has them: from the side that sends it.
    let limits = ReadLimits { inbound: limits.outbound.into(), outbound: limits.inbound.into() };
    if is_accepted { Message::Accepted { limits, data } } else { Message::Rejected { data } }
}
