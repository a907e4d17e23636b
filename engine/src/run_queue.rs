//! Run queues: the objects that need service, one queue a processor.
//!
//! A run queue is a set of intrusive lists by kind behind one short lock. Linking never allocates and never fails; an object is
//! linked at most once, and the work it needs is recorded in the object. The kinds are served round robin.

use softndk_cells::{Linked, List, Shared};

use crate::completion_queue::CompletionQueueObject;
use crate::connector::ConnectorObject;
use crate::listener::ListenerObject;
use crate::mapping::MappingObject;
use crate::memory_region::RegionObject;
use crate::memory_window::WindowObject;
use crate::object::Object;
use crate::open::OpenObject;
use crate::platform::Platform;
use crate::protection_domain::DomainObject;
use crate::queue_pair::QueuePairObject;
use crate::shared_endpoint::SharedEndpointObject;
use crate::shared_receive_queue::SharedReceiveObject;

/// An object to service.
pub(crate) enum Item<P: Platform> {
    Object(Object<P>),
    Mapping(Shared<MappingObject<P>>),
}

/// Kinds that are served round robin.
const KINDS: u8 = 11;

/// The lists of one processor, or of the objects that wait for an epoch.
pub(crate) struct RunQueue<P: Platform> {
    next: u8,
    queue_pairs: List<QueuePairObject<P>>,
    completion_queues: List<CompletionQueueObject<P>>,
    /// Queues that notify at the end of a service pass.
    last: List<CompletionQueueObject<P>>,
    shared_receive_queues: List<SharedReceiveObject<P>>,
    connectors: List<ConnectorObject<P>>,
    regions: List<RegionObject<P>>,
    windows: List<WindowObject<P>>,
    mappings: List<MappingObject<P>>,
    listeners: List<ListenerObject<P>>,
    shared_endpoints: List<SharedEndpointObject<P>>,
    domains: List<DomainObject<P>>,
    opens: List<OpenObject<P>>,
}

/// A claimed link, by kind.
pub(crate) enum Link<P: Platform> {
    QueuePair(Linked<QueuePairObject<P>>),
    CompletionQueue(Linked<CompletionQueueObject<P>>),
    Last(Linked<CompletionQueueObject<P>>),
    SharedReceiveQueue(Linked<SharedReceiveObject<P>>),
    Connector(Linked<ConnectorObject<P>>),
    Region(Linked<RegionObject<P>>),
    Window(Linked<WindowObject<P>>),
    Mapping(Linked<MappingObject<P>>),
    Listener(Linked<ListenerObject<P>>),
    SharedEndpoint(Linked<SharedEndpointObject<P>>),
    Domain(Linked<DomainObject<P>>),
    Open(Linked<OpenObject<P>>),
}

impl<P: Platform> Link<P> {
    /// Claims the link of an object; `None` when it is linked already.
    pub(crate) fn claim(object: &Object<P>) -> Option<Self> {
        match object {
            Object::Open(object) => object.link().map(Self::Open),
            Object::CompletionQueue(object) => object.link().map(Self::CompletionQueue),
            Object::Domain(object) => object.link().map(Self::Domain),
            Object::Region(object) => object.link().map(Self::Region),
            Object::Window(object) => object.link().map(Self::Window),
            Object::QueuePair(object) => object.link().map(Self::QueuePair),
            Object::Listener(object) => object.link().map(Self::Listener),
            Object::SharedReceiveQueue(object) => object.link().map(Self::SharedReceiveQueue),
            Object::Connector(object) => object.link().map(Self::Connector),
            Object::SharedEndpoint(object) => object.link().map(Self::SharedEndpoint),
        }
    }
}

impl<P: Platform> RunQueue<P> {
    pub(crate) const fn new() -> Self {
        Self {
            next: 0,
            queue_pairs: List::new(),
            completion_queues: List::new(),
            last: List::new(),
            shared_receive_queues: List::new(),
            connectors: List::new(),
            regions: List::new(),
            windows: List::new(),
            mappings: List::new(),
            listeners: List::new(),
            shared_endpoints: List::new(),
            domains: List::new(),
            opens: List::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue_pairs.is_empty()
            && self.completion_queues.is_empty()
            && self.last.is_empty()
            && self.shared_receive_queues.is_empty()
            && self.connectors.is_empty()
            && self.regions.is_empty()
            && self.windows.is_empty()
            && self.mappings.is_empty()
            && self.listeners.is_empty()
            && self.shared_endpoints.is_empty()
            && self.domains.is_empty()
            && self.opens.is_empty()
    }

    pub(crate) fn push(&mut self, link: Link<P>) {
        match link {
            Link::QueuePair(link) => self.queue_pairs.push(link),
            Link::CompletionQueue(link) => self.completion_queues.push(link),
            Link::Last(link) => self.last.push(link),
            Link::SharedReceiveQueue(link) => self.shared_receive_queues.push(link),
            Link::Connector(link) => self.connectors.push(link),
            Link::Region(link) => self.regions.push(link),
            Link::Window(link) => self.windows.push(link),
            Link::Mapping(link) => self.mappings.push(link),
            Link::Listener(link) => self.listeners.push(link),
            Link::SharedEndpoint(link) => self.shared_endpoints.push(link),
            Link::Domain(link) => self.domains.push(link),
            Link::Open(link) => self.opens.push(link),
        };
    }

    /// The next object; kinds are served round robin so that none starves another.
    pub(crate) fn pop(&mut self) -> Option<Item<P>> {
        (0..KINDS).find_map(|_| {
            self.next = self.next.wrapping_add(1) % KINDS;
            match self.next {
                0 => self.queue_pairs.pop().map(|object| Item::Object(Object::QueuePair(object))),
                1 => self.completion_queues.pop().map(|object| Item::Object(Object::CompletionQueue(object))),
                2 => self.connectors.pop().map(|object| Item::Object(Object::Connector(object))),
                3 => self.regions.pop().map(|object| Item::Object(Object::Region(object))),
                4 => self.mappings.pop().map(Item::Mapping),
                5 => self.listeners.pop().map(|object| Item::Object(Object::Listener(object))),
                6 => self.shared_endpoints.pop().map(|object| Item::Object(Object::SharedEndpoint(object))),
                7 => self.windows.pop().map(|object| Item::Object(Object::Window(object))),
                8 => self.domains.pop().map(|object| Item::Object(Object::Domain(object))),
                9 => {
                    let object = self.shared_receive_queues.pop();
                    object.map(|object| Item::Object(Object::SharedReceiveQueue(object)))
                }
                _ => self.opens.pop().map(|object| Item::Object(Object::Open(object))),
            }
        })
    }

    /// The next queue pair.
    pub(crate) fn pop_queue_pair(&mut self) -> Option<Shared<QueuePairObject<P>>> {
        self.queue_pairs.pop()
    }

    /// The next queue of those that are serviced after everything else.
    pub(crate) fn pop_last(&mut self) -> Option<Item<P>> {
        self.last.pop().map(|object| Item::Object(Object::CompletionQueue(object)))
    }

    /// Moves everything to another set of lists; the links stay claimed.
    pub(crate) fn move_to(&mut self, other: &mut Self) {
        move_list(&mut self.queue_pairs, &mut other.queue_pairs);
        move_list(&mut self.completion_queues, &mut other.completion_queues);
        move_list(&mut self.last, &mut other.last);
        move_list(&mut self.shared_receive_queues, &mut other.shared_receive_queues);
        move_list(&mut self.connectors, &mut other.connectors);
        move_list(&mut self.regions, &mut other.regions);
        move_list(&mut self.windows, &mut other.windows);
        move_list(&mut self.mappings, &mut other.mappings);
        move_list(&mut self.listeners, &mut other.listeners);
        move_list(&mut self.shared_endpoints, &mut other.shared_endpoints);
        move_list(&mut self.domains, &mut other.domains);
        move_list(&mut self.opens, &mut other.opens);
    }
}

fn move_list<T>(from: &mut List<T>, to: &mut List<T>) {
    while let Some(link) = from.pop_linked() {
        to.push(link);
    }
}
