//! Requests that leave a connector as it is, and those before any attempt: create, bind, addresses, read limits, private data.

use ndkpi_sys::nt::{NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_CONNECTION_INVALID, STATUS_SUCCESS};
use softndk_engine::{Connector as EngineConnector, limits::PRIVATE_DATA};
use softndk_ioctl::nd::{
    control::{Bind, Handle, ReadLimits, SocketAddress},
    private::PrivateDataReply,
};
use softndk_kernel::irp::Buffer;
use zerocopy::IntoBytes;

use super::{
    super::{
        account::Amounts,
        adapter::OpenedAdapter,
        context::HandleReservation,
        object,
        request::{Call, answer, check_output, input, named},
        socket,
        status::Answered,
    },
    Connector,
    machine::{ConnectorEvent, ConnectorMachine},
};

/// CONNECTOR_CREATE.
pub fn create(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    check_output::<u64>(buffer)?;
    let adapter = call.context.object::<OpenedAdapter>(asked.handle)?;
    let may_use_streams = adapter.open()?.adapter().may_use_streams();
    let mut reservation = HandleReservation::try_new(call, &[asked.handle], Some(&adapter.life))?;
    let mut charge = reservation.charge();
    if let Some(charge) = charge.as_mut().filter(|_| may_use_streams) {
        charge.add(Amounts::STREAM)?;
    }
    let connector = object::block(Connector::new(adapter, charge))?;
    answer(buffer, &reservation.fill(connector))
}

/// CONNECTOR_BIND.
pub fn bind(call: &Call, buffer: &mut Buffer) -> Answered {
    let asked: Bind = input(buffer)?;
    let connector = call.context.object::<Connector>(asked.handle)?;
    let address = socket::read(&asked.address)?;
    connector.with_machine(ConnectorMachine::may_bind)?;
    let endpoint = OpenedAdapter::bind(&connector.adapter, call, address, false)?;
    connector.process(ConnectorEvent::Bind { endpoint }).map(|_bound| 0)
}

/// CONNECTOR_GET_READ_LIMITS.
pub fn read_limits(call: &Call, buffer: &mut Buffer) -> Answered {
    let connector = named::<Connector>(call, buffer)?;
    let data = connector.engine()?.connection_data(&mut []).map_err(|_| STATUS_CONNECTION_INVALID)?;
    answer(buffer, &ReadLimits { inbound: data.limits.inbound, outbound: data.limits.outbound })
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
    check_output::<PrivateDataReply>(buffer)?;
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
    let address = connector.with_machine(|machine| {
        let engine = machine.state().engine().and_then(EngineConnector::local_address);
        engine.or(machine.endpoint().map(|endpoint| endpoint.address))
    });
    answer::<SocketAddress>(buffer, &socket::write(&address.ok_or(STATUS_CONNECTION_INVALID)?))
}

/// CONNECTOR_GET_PEER_ADDRESS.
pub fn peer_address(call: &Call, buffer: &mut Buffer) -> Answered {
    let connector = named::<Connector>(call, buffer)?;
    let address = connector.engine()?.peer_address().ok_or(STATUS_CONNECTION_INVALID)?;
    answer::<SocketAddress>(buffer, &socket::write(&address))
}
