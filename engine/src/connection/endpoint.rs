//! Endpoints: the local addresses and ports in use, their holders and their listeners.
//!
//! One sorted directory serves all adapters. An endpoint is counted: a listener and each connector that arrived over it, the
//! one connector that connects from it, or a shared endpoint and each connector that connects over it. Adapters have their own
//! address tables.
//!
//! Rules (NDKPI: endpoint reference counting): while an endpoint is counted, no other object listens, connects or shares at its
//! address; a listener on every address of an adapter uses its port at all of them; port 0 picks a free port between 49152 and
//! 65535; over a shared endpoint each remote is used once.

use core::net::{IpAddr, SocketAddr};

use softndk_cells::NoMemory;

use crate::blocks::{Place, SortedBlocks};
use crate::limits::{EPHEMERAL_FIRST, EPHEMERAL_LAST, PORT_STEP};

/// An address of one adapter, in numbers that are compared fast. The order makes neighbours of all addresses that use one port; scope
/// identifiers do not count, because an adapter has each address once.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct EndpointKey {
    /// The adapter's number, the family, the port.
    port: u64,
    /// 0 is every address.
    ip: [u64; 2],
}

impl EndpointKey {
    pub(crate) fn new(adapter: u32, address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let family = u64::from(address.is_ipv6()) << u16::BITS;
        Self {
            port: u64::from(adapter) << u32::BITS | family | u64::from(address.port()),
            ip: [(ip >> u64::BITS) as u64, ip as u64],
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port as u16
    }

    fn with_port(self, port: u16) -> Self {
        Self { port: self.port & !u64::from(u16::MAX) | u64::from(port), ..self }
    }

    /// The key of the listener at every address of this family and port; the first of its neighbours.
    fn everywhere(self) -> Self {
        Self { ip: [0; 2], ..self }
    }

    /// Whether only one of the two can be in use.
    fn clashes(&self, other: &Self) -> bool {
        self.shares_port(other) && (self.ip == other.ip || self.ip == [0; 2] || other.ip == [0; 2])
    }

    fn shares_port(&self, other: &Self) -> bool {
        self.port == other.port
    }
}

/// A count on an endpoint, and for a connector over a shared one the remote it meets there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndpointUse {
    pub(crate) key: EndpointKey,
    pub(crate) remote: Option<EndpointKey>,
}

impl EndpointUse {
    /// A count without a remote of its own.
    pub(crate) fn at(key: EndpointKey) -> Self {
        Self { key, remote: None }
    }
}

struct Endpoint<L> {
    key: EndpointKey,
    count: u32,
    listener: Option<L>,
}

/// Why an endpoint could not be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EndpointError {
    InUse,
    /// There is a connection between these two ends.
    TupleInUse,
    /// The ports before this one are: those that were looked at.
    PortsInUse {
        next: u16,
    },
    NoMemory,
}

impl From<NoMemory> for EndpointError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// All endpoints in use, sorted, with the listeners there.
pub(crate) struct Directory<L> {
    endpoints: SortedBlocks<Endpoint<L>>,
    /// Shared endpoints and the remotes that their connectors meet.
    met: SortedBlocks<(EndpointKey, EndpointKey)>,
    next_port: u16,
}

impl<L: Clone> Directory<L> {
    pub(crate) const fn new() -> Self {
        Self { endpoints: SortedBlocks::new(), met: SortedBlocks::new(), next_port: EPHEMERAL_FIRST }
    }

    fn search(&self, key: &EndpointKey) -> Result<Place, Place> {
        self.endpoints.search(|endpoint| endpoint.key.cmp(key))
    }

    fn find(&mut self, key: &EndpointKey) -> Option<&mut Endpoint<L>> {
        let place = self.search(key).ok()?;
        self.endpoints.get_mut(place)
    }

    /// Where an endpoint that clashes with none in use would stand.
    fn place_for(&self, key: &EndpointKey) -> Option<Place> {
        let place = self.search(key).err()?;
        let everywhere = key.everywhere();
        let clash = if *key == everywhere {
            self.endpoints.from(place).next().is_some_and(|next| next.key.shares_port(key))
        } else {
            self.search(&everywhere).is_ok()
        };
        (!clash).then_some(place)
    }

    /// Takes an endpoint; returns its key with the port filled in. A free port is looked for from `first` on, in as many as may be
    /// under one lock.
    pub(crate) fn take(
        &mut self,
        key: EndpointKey,
        first: Option<u16>,
        listener: Option<&L>,
    ) -> Result<EndpointKey, EndpointError> {
        let (key, place) = if key.port() == 0 {
            self.free_port(key.with_port(first.unwrap_or(self.next_port)))?
        } else {
            (key, self.place_for(&key).ok_or(EndpointError::InUse)?)
        };
        let endpoint = Endpoint { key, count: 1, listener: listener.cloned() };
        self.endpoints.insert(place, endpoint)?;
        Ok(key)
    }

    /// The key with a free port, its own or one behind it, and where its endpoint would stand.
    fn free_port(&mut self, mut key: EndpointKey) -> Result<(EndpointKey, Place), EndpointError> {
        let mut users = self.endpoints.from(self.first_of_port(&key)).peekable();
        for _ in 0..PORT_STEP {
            // The users of one port stand together, and those of the next port behind them.
            let mut clash = false;
            while let Some(user) = users.next_if(|user| user.key.shares_port(&key)) {
                clash |= key.clashes(&user.key);
            }
            let is_last = key.port() == EPHEMERAL_LAST;
            let next = if is_last { EPHEMERAL_FIRST } else { key.port().saturating_add(1) };
            if !clash {
                self.next_port = next;
                let place = self.search(&key).err().ok_or(EndpointError::InUse)?;
                return Ok((key, place));
            }
            key = key.with_port(next);
            if is_last {
                users = self.endpoints.from(self.first_of_port(&key)).peekable();
            }
        }
        Err(EndpointError::PortsInUse { next: key.port() })
    }

    /// Where the endpoints that use the port of a key begin, or would.
    fn first_of_port(&self, key: &EndpointKey) -> Place {
        self.search(&key.everywhere()).unwrap_or_else(|place| place)
    }

    /// The listener for connections to an address, at it or everywhere; with the key of the listener's endpoint.
    pub(crate) fn listener(&self, key: &EndpointKey) -> Option<(EndpointKey, &L)> {
        let place = self.search(key).or_else(|_| self.search(&key.everywhere())).ok()?;
        let endpoint = self.endpoints.from(place).next()?;
        Some((endpoint.key, endpoint.listener.as_ref()?))
    }

    /// Counts a connector that arrived over an endpoint.
    pub(crate) fn count(&mut self, key: &EndpointKey) -> EndpointUse {
        if let Some(endpoint) = self.find(key) {
            endpoint.count += 1;
        }
        EndpointUse::at(*key)
    }

    /// Counts a connector that connects over a shared endpoint to a remote.
    pub(crate) fn meet(&mut self, key: EndpointKey, remote: EndpointKey) -> Result<EndpointUse, EndpointError> {
        // A shared endpoint that connects is not closed, so its endpoint is there.
        let endpoint = self.search(&key).map_err(|_| EndpointError::InUse)?;
        let pair = (key, remote);
        let place = self.met.search(|other| other.cmp(&pair)).err().ok_or(EndpointError::TupleInUse)?;
        self.met.insert(place, pair)?;
        if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
            endpoint.count += 1;
        }
        Ok(EndpointUse { key, remote: Some(remote) })
    }

    /// Lets a listener listen at an endpoint in use that has none, and counts it.
    pub(crate) fn attend(&mut self, key: &EndpointKey, listener: &L) -> Result<(), EndpointError> {
        let endpoint = self.find(key).filter(|endpoint| endpoint.listener.is_none()).ok_or(EndpointError::InUse)?;
        endpoint.listener = Some(listener.clone());
        endpoint.count += 1;
        Ok(())
    }

    /// Removes the listener; connectors may still be counted. The listener is dropped by the caller.
    pub(crate) fn deafen(&mut self, key: &EndpointKey) -> Option<L> {
        self.find(key)?.listener.take()
    }

    /// Releases one count, and the endpoint with the last.
    pub(crate) fn release(&mut self, bound: &EndpointUse) {
        let pair = bound.remote.map(|remote| (bound.key, remote));
        if let Some(met) = pair.and_then(|pair| self.met.search(|other| other.cmp(&pair)).ok()) {
            let _met = self.met.remove(met);
        }
        let Ok(place) = self.search(&bound.key) else { return };
        let Some(endpoint) = self.endpoints.get_mut(place) else { return };
        endpoint.count -= 1;
        if endpoint.count == 0 {
            let _gone = self.endpoints.remove(place);
        }
    }
}
