//! Steps on listeners, connectors and shared endpoints.

use core::{ffi::c_void, net::SocketAddr, ptr};

use ndkpi_sys::{
    ndkpi::{NDK_CONNECTOR, NDK_LISTENER, NDK_QP},
    nt::{FALSE, SOCKADDR, STATUS_SUCCESS, TRUE},
};
use softndk_ioctl::{ScriptCode, ScriptEvent, ScriptName, Status};

use super::{
    log,
    resource::{Resource, Stop},
    session::{Answer, Arguments, Session},
};
use crate::{
    session::consumer::{completion, read_address, table_of},
    socket::wire_form,
};

/// Private data of a request.
struct Data {
    bytes: *const c_void,
    length: u32,
}

impl Session<'_> {
    fn connector(&self, name: ScriptName) -> Result<*mut NDK_CONNECTOR, Stop> {
        match self.slots.get(name)? {
            Resource::Connector { object, .. } => Ok(*object),
            _ => Err(Stop::Broken),
        }
    }

    fn pair(&self, name: ScriptName) -> Result<*mut NDK_QP, Stop> {
        match self.slots.get(name)? {
            Resource::QueuePair { object, .. } => Ok(*object),
            _ => Err(Stop::Broken),
        }
    }

    /// So many bytes of private data; they live as long as the session.
    fn data(&self, length: u64) -> Result<Data, Stop> {
        let bytes = usize::try_from(length).ok().and_then(|length| self.private_data.get(..length));
        let bytes = bytes.ok_or(Stop::Broken)?;
        let start = if bytes.is_empty() { ptr::null() } else { bytes.as_ptr().cast() };
        Ok(Data { bytes: start, length: bytes.len() as u32 })
    }

    /// The address a listener listens on, or a host and a port.
    fn destination(&self, to: ScriptName, host: ScriptName, port: u16) -> Result<SocketAddr, Stop> {
        if to == ScriptName::NONE {
            return self.socket(host, port);
        }
        let Resource::Listener { object, .. } = *self.slots.get(to)? else { return Err(Stop::Broken) };
        // SAFETY: an open listener.
        let table = unsafe { table_of::<NDK_LISTENER>(object) };
        let address = read_address(|address, length| {
            // SAFETY: NDKPI: NDK_FN_GET_LISTENER_LOCAL_ADDRESS.
            unsafe { (table.NdkGetLocalAddress)(object, address, length) }
        });
        // It does not listen: there is no such destination.
        address.map_err(|_| Stop::Broken)
    }

    pub fn listen(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::Listener { object, home } = *self.slots.get(step.object())? else { return Err(Stop::Broken) };
        let (address, length) = wire_form(&SocketAddr::new(home, step.port(0)?));
        self.waiter.reset();
        let (done, context) = completion(&self.waiter);
        // SAFETY: an open listener.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_LISTEN with an address that lives for the call.
        let status =
            unsafe { (table.NdkListen)(object, (&raw const address).cast::<SOCKADDR>(), length, done, context) };
        self.finish(status)
    }

    pub fn pause(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::Listener { object, .. } = *self.slots.get(step.object())? else { return Err(Stop::Broken) };
        let pause = if step.number(0) == 0 { FALSE } else { TRUE };
        // SAFETY: an open listener.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_CONTROL_CONNECT_EVENTS.
        unsafe { (table.NdkControlConnectEvents)(object, pause) };
        Ok(Answer::NOTHING)
    }

    pub fn connect(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let Resource::Connector { object, home } = *self.slots.get(name)? else { return Err(Stop::Broken) };
        let pair = self.pair(step.name(0)?)?;
        let (to, to_length) = wire_form(&self.destination(step.name(1)?, step.name(2)?, step.port(3)?)?);
        let (from, from_length) = wire_form(&SocketAddr::new(home, step.port(4)?));
        let (inbound, outbound, data) = (step.short(5)?, step.short(6)?, self.data(step.number(7))?);
        let context = self.slots.context(name)?;
        // SAFETY: an open connector.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_CONNECT with addresses and data that live for the call; the cell outlives the connector.
        let status = unsafe {
            (table.NdkConnect)(
                object,
                pair,
                (&raw const from).cast::<SOCKADDR>(),
                from_length,
                (&raw const to).cast::<SOCKADDR>(),
                to_length,
                inbound,
                outbound,
                data.bytes,
                data.length,
                Some(log::connected),
                context,
            )
        };
        Ok(self.event(status, ScriptEvent::Connect, name))
    }

    pub fn connect_shared(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let (object, pair) = (self.connector(name)?, self.pair(step.name(0)?)?);
        let Resource::Endpoint { object: endpoint } = *self.slots.get(step.name(1)?)? else { return Err(Stop::Broken) };
        let (to, to_length) = wire_form(&self.destination(step.name(2)?, step.name(3)?, step.port(4)?)?);
        let (inbound, outbound, data) = (step.short(5)?, step.short(6)?, self.data(step.number(7))?);
        let context = self.slots.context(name)?;
        // SAFETY: an open connector.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT; as `connect`.
        let status = unsafe {
            (table.NdkConnectWithSharedEndpoint)(
                object,
                pair,
                endpoint,
                (&raw const to).cast::<SOCKADDR>(),
                to_length,
                inbound,
                outbound,
                data.bytes,
                data.length,
                Some(log::connected),
                context,
            )
        };
        Ok(self.event(status, ScriptEvent::Connect, name))
    }

    /// Takes a connector that arrived.
    pub fn arrive(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        self.slots.check_vacant(step.object())?;
        let at = step.name(0)?;
        let Resource::Listener { home, .. } = *self.slots.get(at)? else { return Err(Stop::Broken) };
        let wanted = step.has_status() && step.0.step.status == STATUS_SUCCESS;
        self.rest_until(|session| Ok(!wanted || session.log.has_arrival(at)))?;
        let Some(object) = self.log.take_arrival(at) else { return Ok(Answer::of(Status::NOT_FOUND.0)) };
        self.slots.put(step.object(), self.slots.open_of(at)?, Resource::Connector { object, home })?;
        Ok(Answer::of(STATUS_SUCCESS))
    }

    pub fn accept(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let (object, pair) = (self.connector(name)?, self.pair(step.name(0)?)?);
        let (inbound, outbound, data) = (step.short(1)?, step.short(2)?, self.data(step.number(3))?);
        let context = self.slots.context(name)?;
        // SAFETY: an open connector.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_ACCEPT with data that live for the call; the cell outlives the connector.
        let status = unsafe {
            (table.NdkAccept)(
                object,
                pair,
                inbound,
                outbound,
                data.bytes,
                data.length,
                Some(log::gone),
                context,
                Some(log::accepted),
                context,
            )
        };
        Ok(self.event(status, ScriptEvent::Accept, name))
    }

    pub fn reject(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let object = self.connector(step.object())?;
        let data = self.data(step.number(0))?;
        // SAFETY: an open connector.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_REJECT with data that live for the call.
        Ok(Answer::of(unsafe { (table.NdkReject)(object, data.bytes, data.length) }))
    }

    /// Completes a connect, or disconnects.
    pub fn connection_step(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let object = self.connector(name)?;
        let context = self.slots.context(name)?;
        // SAFETY: an open connector.
        let table = unsafe { table_of(object) };
        if step.0.code == ScriptCode::Complete {
            // SAFETY: NDKPI: NDK_FN_COMPLETE_CONNECT; the cell outlives the connector.
            let status =
                unsafe { (table.NdkCompleteConnect)(object, Some(log::gone), context, Some(log::completed), context) };
            Ok(self.event(status, ScriptEvent::Complete, name))
        } else {
            // SAFETY: NDKPI: NDK_FN_DISCONNECT; as above.
            let status = unsafe { (table.NdkDisconnect)(object, Some(log::disconnected), context) };
            Ok(self.event(status, ScriptEvent::Disconnect, name))
        }
    }

    /// NdkGetConnectionData's read limits.
    pub fn limits(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let object = self.connector(step.object())?;
        let (mut inbound, mut outbound, mut length) = (0, 0, 0);
        // SAFETY: an open connector.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_GET_CONNECTION_DATA without a buffer asks for sizes and limits.
        let status = unsafe {
            (table.NdkGetConnectionData)(object, &raw mut inbound, &raw mut outbound, ptr::null_mut(), &raw mut length)
        };
        let values = if status == STATUS_SUCCESS { [u64::from(inbound), u64::from(outbound)] } else { [0; 2] };
        let agrees = status != STATUS_SUCCESS || values == [step.number(0), step.number(1)];
        Ok(Answer { status, agrees, values, seen: 0 })
    }
}
