//! What one processor measures on: both ends' adapters, domains, completion queues and memory, and connections between them. Nothing of
//! it is shared with another processor.

use core::net::{IpAddr, SocketAddr};

use ndkpi_sys::ndkpi::{NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_QP};
use softndk_ioctl::{MeasureFlags, MeasureRequest, MeasuredOperation, RegionKind, Status};
use softndk_kernel::pool::{NoMemory, PoolArray, PoolBox};

use super::{
    connection::{Connection, Route},
    interruption::{Interruption, Signals},
    slots::RequestSlots,
};
use crate::{
    control::adapter_list,
    driver::Driver,
    session::{
        consumer::{OpenedAdapter, PairListener},
        memory::{MappedPart, Part, Purpose, Registered, UserBuffer},
        object::{Callback, Handle, QueuePairShape},
        pair::Side,
        request::RequestWait,
    },
    socket::wire_form,
    tags,
};

/// Requests of the server's own (registrations), and receives that no context ever uses.
const SERVER_INITIATOR_DEPTH: u32 = 4;
const UNUSED_DEPTH: u32 = 1;
/// Of a fast registration, an invalidation and the write that follows.
const REGISTERING_DEPTH: u32 = 4;

/// What is asked for, and where.
pub struct LanePlan<'a> {
    pub driver: &'static Driver,
    pub asked: &'a MeasureRequest,
    pub addresses: [IpAddr; 2],
    pub signals: &'a Signals,
}

/// The memory lists of one processor's part.
pub struct LaneParts {
    pub source: Option<Part>,
    pub destination: Option<Part>,
}

impl LaneParts {
    pub fn try_new(
        buffer: &UserBuffer,
        asked: &MeasureRequest,
        (source, destination): (u64, u64),
        processor: u32,
    ) -> Result<Self, Status> {
        let (begin, length) = (asked.part(processor), asked.region_length);
        // Within the layout that `check_fields` made.
        Ok(Self {
            source: buffer.part(source + begin, length)?,
            destination: buffer.part(destination + begin, length)?,
        })
    }
}

/// Where requests of one connection are posted.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub client: Handle<'a, NDK_QP>,
    pub server: Handle<'a, NDK_QP>,
}

/// Dropped in this order; connections and queue pairs are closed before.
pub struct Lane<'a> {
    pub connections: PoolArray<Connection>,
    pub slots: RequestSlots,
    pub client_memory: Registered,
    pub server_memory: Registered,
    inline: Option<MappedPart<'a>>,
    listener: PairListener,
    pub client: PoolBox<Side>,
    pub server: PoolBox<Side>,
    shapes: [QueuePairShape; 2],
    ways: [SocketAddr; 2],
    read_limit: u32,
}

impl Drop for Lane<'_> {
    /// What was posted is over before the memory goes.
    fn drop(&mut self) {
        self.connections.iter_mut().for_each(Connection::close);
        for side in [&self.client, &self.server] {
            // SAFETY: the loops are over, and nothing is posted any more.
            unsafe { side.queue_pair.close_early() };
        }
    }
}

impl<'a> Lane<'a> {
    /// Opens, connects and registers. PASSIVE_LEVEL. Each step has a frame of its own: here all of them would be one.
    pub fn try_new(
        plan: &LanePlan<'_>,
        parts: &'a LaneParts,
        home: Option<u32>,
        request_wait: &RequestWait<'_>,
    ) -> Result<PoolBox<Self>, Status> {
        let mut lane = Self::unconnected(plan, home)?;
        lane.connect(&Interruption { signals: plan.signals, request_wait: Some(request_wait) })?;
        lane.register(plan.asked, parts, request_wait)?;
        Ok(lane)
    }

    /// Everything that connections and registrations are made on.
    #[inline(never)]
    fn unconnected(plan: &LanePlan<'_>, home: Option<u32>) -> Result<PoolBox<Self>, Status> {
        let asked = plan.asked;
        let client = adapter_list::open(plan.driver, asked.client_adapter)?;
        let server = adapter_list::open(plan.driver, asked.server_adapter)?;
        let (shapes, read_limit) = shapes(asked, &client, &server)?;
        let room = asked.connection_count;
        let server = Side::try_new(server, shapes[1], false, (room, None))?;
        let client = Side::try_new(client, shapes[0], false, (room, home))?;
        let listener = server.adapter.create_listener()?;
        let [client_ip, server_ip] = plan.addresses;
        listener.listen(SocketAddr::new(server_ip, 0))?;
        let ways = [SocketAddr::new(client_ip, 0), listener.handle().address()?];
        let count = if asked.operation == MeasuredOperation::CONNECT { 0 } else { room as usize };
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let connections =
            PoolArray::try_from_fn(tags::SESSION, count, |number| Ok::<_, NoMemory>(Connection::new(number == 0)));
        let lane = Self {
            connections: connections.map_err(none)?,
            slots: RequestSlots::none()?,
            client_memory: Registered::NOTHING,
            server_memory: Registered::NOTHING,
            inline: None,
            listener,
            client,
            server,
            shapes,
            ways,
            read_limit,
        };
        PoolBox::try_new(tags::SESSION, lane).map_err(none)
    }

    #[inline(never)]
    fn connect(&mut self, interruption: &Interruption<'_>) -> Result<(), Status> {
        let mut connections = core::mem::replace(&mut self.connections, empty()?);
        let route = self.route(interruption.signals.disconnected());
        let mut made = Ok(());
        for connection in connections.iter_mut() {
            made = interruption.check().and_then(|()| connection.connect(&route, interruption));
            if made.is_err() {
                break;
            }
        }
        self.connections = connections;
        made
    }

    /// How more connections are made.
    pub fn route<'b>(&'b self, disconnected: Callback<'b, NDK_FN_DISCONNECT_EVENT_CALLBACK>) -> Route<'b> {
        Route {
            client: &self.client,
            server: &self.server,
            client_shape: self.shapes[0],
            server_shape: self.shapes[1],
            arrivals: &self.listener.arrivals,
            source: wire_form(&self.ways[0]),
            destination: wire_form(&self.ways[1]),
            read_limit: self.read_limit,
            disconnected,
        }
    }

    #[inline(never)]
    fn register(
        &mut self,
        asked: &MeasureRequest,
        parts: &'a LaneParts,
        request_wait: &RequestWait<'_>,
    ) -> Result<(), Status> {
        let (Some(source), Some(destination)) = (&parts.source, &parts.destination) else {
            self.slots = RequestSlots::empty_requests()?;
            return Ok(());
        };
        let operation = asked.operation;
        let pulls = matches!(operation, MeasuredOperation::READ | MeasuredOperation::NOTIFY);
        let (client_part, server_part) = if pulls { (destination, source) } else { (source, destination) };
        let remote = operation != MeasuredOperation::SEND;
        let server_purpose = Purpose { written: !pulls, remote };
        self.server_memory =
            Registered::try_new(&self.server, server_part, asked.region_kind, server_purpose, request_wait)?;
        if operation == MeasuredOperation::FAST_REGISTER {
            // Its source is registered by what is measured.
            return Ok(());
        }
        let client_purpose = Purpose { written: pulls, remote: false };
        self.client_memory =
            Registered::try_new(&self.client, client_part, asked.region_kind, client_purpose, request_wait)?;
        let inline = asked.flags.contains(MeasureFlags::INLINE);
        self.inline = if inline { Some(client_part.map()?) } else { None };
        let addresses = (&self.client_memory, self.inline.as_ref(), &self.server_memory);
        self.slots = RequestSlots::try_new(asked, addresses)?;
        Ok(())
    }

    /// Where each connection is posted to.
    pub fn target(&self, number: usize) -> Option<Target<'_>> {
        let [client, server] = self.connections.get(number)?.queue_pairs(&self.client, &self.server)?;
        Some(Target { client, server })
    }
}

fn empty<T>() -> Result<PoolArray<T>, Status> {
    PoolArray::try_from_fn(tags::SESSION, 0, |_| Err(NoMemory)).map_err(|_: NoMemory| Status::INSUFFICIENT_RESOURCES)
}

/// What the queue pairs of client and server are made with, and Reads outstanding. The adapters' descriptions are not part of the
/// caller's frame.
#[inline(never)]
fn shapes(
    asked: &MeasureRequest,
    client: &OpenedAdapter,
    server: &OpenedAdapter,
) -> Result<([QueuePairShape; 2], u32), Status> {
    let (client, server) = (client.handle().information()?, server.handle().information()?);
    let (depth, sges) = (asked.depth, asked.sge_count);
    let both = matches!(asked.operation, MeasuredOperation::CONNECT | MeasuredOperation::IDLE);
    let receives = both || asked.operation == MeasuredOperation::SEND;
    let inline = asked.flags.contains(MeasureFlags::INLINE);
    let fast = asked.operation == MeasuredOperation::FAST_REGISTER || asked.region_kind != RegionKind::REGISTERED;
    let client_shape = QueuePairShape {
        receive_depth: if both { depth } else { UNUSED_DEPTH },
        initiator_depth: if fast { depth.max(REGISTERING_DEPTH) } else { depth },
        receive_sges: sges,
        initiator_sges: sges,
        inline_data: if inline { client.MaxInlineDataSize } else { 0 },
    };
    let server_shape = QueuePairShape {
        receive_depth: if receives { depth } else { UNUSED_DEPTH },
        initiator_depth: if both { depth } else { SERVER_INITIATOR_DEPTH },
        receive_sges: sges,
        initiator_sges: sges,
        inline_data: 0,
    };
    Ok(([client_shape, server_shape], client.MaxOutboundReadLimit.min(server.MaxInboundReadLimit)))
}
