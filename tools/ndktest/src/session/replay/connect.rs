//! Steps on listeners, connectors and shared endpoints.

use core::net::SocketAddr;

use ndkpi_sys::nt::STATUS_SUCCESS;
use softndk_ioctl::{ScriptCode, ScriptEvent, ScriptName, Status};

use super::{
    resource::{Resource, Stop},
    session::{Answer, Arguments, Session},
};
use crate::{session::object::ConnectParameters, socket::wire_form};

impl Session<'_> {
    /// So many bytes of private data.
    fn data(&self, length: u64) -> Result<&[u8], Stop> {
        usize::try_from(length).ok().and_then(|length| self.private_data.get(..length)).ok_or(Stop::Broken)
    }

    /// What a connector brings: the queue pair of argument 0, and from argument `index` on read limits and private data.
    fn parameters(&self, step: &Arguments<'_>, index: usize) -> Result<ConnectParameters<'_>, Stop> {
        Ok(ConnectParameters {
            queue_pair: self.slots.queue_pair(step.name(0)?)?.0,
            inbound_read_limit: step.short(index)?,
            outbound_read_limit: step.short(index + 1)?,
            private_data: self.data(step.number(index + 2))?,
        })
    }

    /// The address a listener listens on, or a host and a port.
    fn destination(&self, to: ScriptName, host: ScriptName, port: u16) -> Result<SocketAddr, Stop> {
        if to == ScriptName::NONE {
            return self.socket(host, port);
        }
        // It does not listen: there is no such destination.
        self.slots.listener(to)?.0.address().map_err(|_| Stop::Broken)
    }

    pub fn listen(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (listener, home) = self.slots.listener(step.object())?;
        let address = wire_form(&SocketAddr::new(home, step.port(0)?));
        self.request(|done| listener.listen(&address, done))
    }

    pub fn pause(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        self.slots.listener(step.object())?.0.pause(step.number(0) != 0);
        Ok(Answer::NOTHING)
    }

    pub fn connect(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let (connector, home) = self.slots.connector(name)?;
        let with = self.parameters(step, 5)?;
        let to = wire_form(&self.destination(step.name(1)?, step.name(2)?, step.port(3)?)?);
        let from = wire_form(&SocketAddr::new(home, step.port(4)?));
        let status = connector.connect(&from, &to, &with, self.slots.cell(name)?.connected());
        Ok(self.event(status, ScriptEvent::Connect, name))
    }

    pub fn connect_shared(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let (connector, _) = self.slots.connector(name)?;
        let Resource::Endpoint { object: endpoint } = *self.slots.get(step.name(1)?)? else { return Err(Stop::Broken) };
        let with = self.parameters(step, 5)?;
        let to = wire_form(&self.destination(step.name(2)?, step.name(3)?, step.port(4)?)?);
        let status = connector.connect_shared(endpoint, &to, &with, self.slots.cell(name)?.connected());
        Ok(self.event(status, ScriptEvent::Connect, name))
    }

    /// Takes a connector that arrived.
    pub fn arrive(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        self.slots.check_vacant(step.object())?;
        let at = step.name(0)?;
        let (_, home) = self.slots.listener(at)?;
        let wanted = step.has_status() && step.0.step.status == STATUS_SUCCESS;
        self.rest_until(|session| Ok(!wanted || session.log.has_arrival(at)))?;
        let Some(object) = self.log.take_arrival(at) else { return Ok(Answer::of(Status::NOT_FOUND.0)) };
        self.slots.put(step.object(), self.slots.open_of(at)?, Resource::Connector { object, home })?;
        Ok(Answer::of(STATUS_SUCCESS))
    }

    pub fn accept(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let (connector, _) = self.slots.connector(name)?;
        let with = self.parameters(step, 1)?;
        let cell = self.slots.cell(name)?;
        let status = connector.accept(&with, &cell.gone(), cell.accepted());
        Ok(self.event(status, ScriptEvent::Accept, name))
    }

    pub fn reject(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (connector, _) = self.slots.connector(step.object())?;
        Ok(Answer::of(connector.reject(self.data(step.number(0))?)))
    }

    /// Completes a connect, or disconnects.
    pub fn connection_step(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let name = step.object();
        let (connector, _) = self.slots.connector(name)?;
        let cell = self.slots.cell(name)?;
        if step.0.code == ScriptCode::Complete {
            let status = connector.complete_connect(&cell.gone(), cell.completed());
            Ok(self.event(status, ScriptEvent::Complete, name))
        } else {
            Ok(self.event(connector.disconnect(cell.disconnected()), ScriptEvent::Disconnect, name))
        }
    }

    /// NdkGetConnectionData's read limits.
    pub fn limits(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (connector, _) = self.slots.connector(step.object())?;
        let (status, values, agrees) = match connector.read_limits() {
            Ok(limits) => {
                let values = limits.map(u64::from);
                (STATUS_SUCCESS, values, values == [step.number(0), step.number(1)])
            }
            Err(status) => (status.0, [0; 2], true),
        };
        Ok(Answer { status, agrees, values, seen: 0 })
    }
}
