//! The requests that lead to a connection: Connect, CompleteConnect, Accept and Reject.
//!
//! Connect and Accept are prepared, then pend, and then call the engine, each step on a frame of its own: the engine goes deep below
//! the last one.

use core::net::SocketAddr;

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS,
};
use softndk_cells::Shared;
use softndk_engine::{Accept, Connect, Connector as EngineConnector, ReadLimits, Source, limits::PRIVATE_DATA};
use softndk_ioctl::nd::control::{self, Reject};
use softndk_kernel::{
    irp::{Buffer, Request},
    pool::PoolBox,
};

use super::{
    super::{
        endpoint::Endpoint,
        object::{self, consumer_object},
        pending::{Pended, complete_pended},
        queue_pair::QueuePair,
        request::{Call, input, named},
        socket,
        status::{Answered, STATUS_BAD_NETWORK_NAME, of_connect, of_error},
    },
    Connector, KernelTypes,
    effects::Proceed,
    late_call::{self, LateCall},
    machine::{AttemptRequest, ConnectorEvent},
};
use crate::{runtime::platform::KernelPlatform, tags};

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

impl Asked {
    /// The request begins to wait, and with it the attempt: what is left is to call the engine. `None`: the request has completed.
    fn begin(
        &self,
        call: &Call,
        request: Request,
        event: fn(AttemptRequest<KernelTypes>) -> ConnectorEvent<KernelTypes>,
    ) -> Result<Option<Proceed<KernelTypes>>, (Request, NTSTATUS)> {
        let number = self.connector.next_number();
        let request = match Pended::begin(request, call, object::owner(&self.connector), number) {
            Ok(pended) => pended,
            Err(refused) => return Err((refused.request, refused.status)),
        };
        Ok(self.connector.process(event(AttemptRequest { number, pair: self.pair.clone(), request })).ok())
    }
}

/// CONNECTOR_CONNECT.
pub fn connect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let (asked, endpoint, destination) = match prepare_connect(call, &Buffer::of(&request)) {
        Ok(prepared) => prepared,
        Err(status) => return Err((request, status)),
    };
    let Some(Proceed { engine, number }) = asked.begin(call, request, ConnectorEvent::Connect)? else {
        return Ok(STATUS_PENDING);
    };
    if let Err(status) = connect_now(&asked, number, engine, &endpoint, destination) {
        asked.connector.request_ended(number, Err(status));
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
    let endpoint = connector.with_machine(|machine| machine.may_connect().cloned())?;
    if destination.ip().is_loopback() {
        destination.set_ip(endpoint.address.ip());
    }
    Ok((Asked { connector, pair, limits: limits_of(asked.read_limits), data }, endpoint, destination))
}

/// The engine's connector of an attempt to connect, made when there is none.
fn engine_for(
    connector: &Shared<Connector>,
    number: u64,
    engine: Option<EngineConnector<KernelPlatform>>,
) -> Result<EngineConnector<KernelPlatform>, NTSTATUS> {
    if let Some(engine) = engine {
        return Ok(engine);
    }
    let engine = connector.adapter.open()?.create_connector(consumer_object(connector)).map_err(of_error)?;
    connector.process(ConnectorEvent::EngineMade { number, engine: engine.clone() })?;
    Ok(engine)
}

/// Calls the engine. `Err`: it was not called, and the request is to end.
#[inline(never)]
fn connect_now(
    asked: &Asked,
    number: u64,
    engine: Option<EngineConnector<KernelPlatform>>,
    endpoint: &Endpoint,
    destination: SocketAddr,
) -> Result<(), NTSTATUS> {
    let engine = engine_for(&asked.connector, number, engine)?;
    let queue_pair = asked.pair.engine()?;
    let call = LateCall { connector: asked.connector.clone(), number, misfit: STATUS_INVALID_DEVICE_STATE };
    call.make(|callback| {
        engine.connect(Connect {
            queue_pair,
            source: Source::Shared(&endpoint.engine),
            destination,
            limits: asked.limits,
            private_data: asked.data.get(),
            callback,
        })
    })
}

/// CONNECTOR_COMPLETE_CONNECT. Done at once, and completed as a request that pended.
pub fn complete_connect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    match complete_now(call, &Buffer::of(&request)) {
        Ok(()) => Ok(complete_pended(request, STATUS_SUCCESS, 0)),
        Err(status) => Err((request, status)),
    }
}

fn complete_now(call: &Call, buffer: &Buffer) -> Result<(), NTSTATUS> {
    let connector = named::<Connector>(call, buffer)?;
    let Proceed { engine, number } = connector.process(ConnectorEvent::CompleteConnect)?;
    let engine = engine.ok_or(STATUS_CONNECTION_INVALID)?;
    let completed = engine.complete_connect(Some(late_call::peer_ended(&connector, number)), late_call::ignored());
    if let Err(cause) = completed {
        let _failed = connector.process(ConnectorEvent::CompleteConnectFailed { number });
        return Err(of_connect(cause, STATUS_CONNECTION_INVALID));
    }
    if let Some(pair) = connector.queue_pair() {
        pair.publish();
    }
    Ok(())
}

/// CONNECTOR_ACCEPT.
pub fn accept(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let asked = match prepare_accept(call, &Buffer::of(&request)) {
        Ok(asked) => asked,
        Err(status) => return Err((request, status)),
    };
    let Some(Proceed { engine, number }) = asked.begin(call, request, ConnectorEvent::Accept)? else {
        return Ok(STATUS_PENDING);
    };
    if let Err(status) = accept_now(&asked, number, engine) {
        asked.connector.request_ended(number, Err(status));
    }
    Ok(STATUS_PENDING)
}

// Its frame is gone before the engine is called.
#[inline(never)]
fn prepare_accept(call: &Call, buffer: &Buffer) -> Result<Asked, NTSTATUS> {
    let asked: control::Accept = input(buffer)?;
    let connector = call.context.object::<Connector>(asked.connector)?;
    let pair = call.context.object::<QueuePair>(asked.queue_pair)?;
    let most = connector.adapter.limits()?.callee_data;
    let data = GivenData::read(buffer.input(), asked.private_data_offset, asked.private_data_length, most)?;
    // Refused at once where there is nothing to accept.
    drop(connector.engine()?);
    Ok(Asked { connector, pair, limits: limits_of(asked.read_limits), data })
}

/// As [`connect_now`].
#[inline(never)]
fn accept_now(asked: &Asked, number: u64, engine: Option<EngineConnector<KernelPlatform>>) -> Result<(), NTSTATUS> {
    let engine = engine.ok_or(STATUS_CONNECTION_INVALID)?;
    let queue_pair = asked.pair.engine()?;
    let call = LateCall { connector: asked.connector.clone(), number, misfit: STATUS_CONNECTION_ACTIVE };
    call.make(|callback| {
        engine.accept(Accept {
            queue_pair,
            limits: asked.limits,
            private_data: asked.data.get(),
            disconnect: Some(late_call::peer_ended(&asked.connector, number)),
            callback,
        })
    })
}

/// CONNECTOR_REJECT.
pub fn reject(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Reject = input(buffer)?;
    let connector = call.context.object::<Connector>(asked.connector)?;
    let most = connector.adapter.limits()?.callee_data;
    let data = GivenData::read(buffer.input(), asked.private_data_offset, asked.private_data_length, most)?;
    let Proceed { engine, number } = connector.process(ConnectorEvent::Reject)?;
    let rejected = engine.ok_or(STATUS_CONNECTION_INVALID)?.reject(data.get());
    rejected.map_err(|cause| of_connect(cause, STATUS_INVALID_DEVICE_STATE))?;
    let _rejected = connector.process(ConnectorEvent::Rejected { number });
    Ok(0)
}
