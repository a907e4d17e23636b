//! One connection of a measurement: two queue pairs and two connectors, made and closed with as little as that takes.

use core::ptr;

use ndkpi_sys::ndkpi::{NDK_CONNECTOR, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_QP};
use softndk_ioctl::Status;

use super::{
    call_status::{CallStatus, spin},
    interruption::Interruption,
};
use crate::{
    session::{
        consumer::{Arrivals, check, check_begun},
        object::{Callback, Completion, ConnectParameters, Handle, PendingCall, QueuePairShape, Reporting},
        pair::Side,
    },
    socket::WireAddress,
};

/// How connections of one lane are made.
pub struct Route<'a> {
    pub client: &'a Side,
    pub server: &'a Side,
    pub client_shape: QueuePairShape,
    pub server_shape: QueuePairShape,
    /// What comes to the server's listener.
    pub arrivals: &'a Arrivals,
    /// From where, and to the listener.
    pub source: WireAddress,
    pub destination: WireAddress,
    pub read_limit: u32,
    /// What hears of the connection's end.
    pub disconnected: Callback<'a, NDK_FN_DISCONNECT_EVENT_CALLBACK>,
}

impl Route<'_> {
    fn parameters<'a>(&self, queue_pair: Handle<'a, NDK_QP>) -> ConnectParameters<'a> {
        let limit = self.read_limit;
        ConnectParameters { queue_pair, inbound_read_limit: limit, outbound_read_limit: limit, private_data: &[] }
    }
}

/// A connection, or what there is of it. It stays where it is from the first call of `connect` on.
pub struct Connection {
    /// The sides' own queue pairs are connected, which the sides close.
    borrowed: bool,
    client: Option<Handle<'static, NDK_QP>>,
    server: Option<Handle<'static, NDK_QP>>,
    client_connector: Option<Handle<'static, NDK_CONNECTOR>>,
    server_connector: Option<Handle<'static, NDK_CONNECTOR>>,
    connecting: CallStatus,
    accepting: CallStatus,
    /// Of every other call.
    answer: CallStatus,
}

impl Connection {
    /// Of the sides' own queue pairs, or of new ones.
    pub const fn new(borrowed: bool) -> Self {
        Self {
            borrowed,
            client: None,
            server: None,
            client_connector: None,
            server_connector: None,
            connecting: CallStatus::new(),
            accepting: CallStatus::new(),
            answer: CallStatus::new(),
        }
    }

    /// The queue pairs of client and server, as long as the connection is not closed.
    pub fn queue_pairs<'a>(&'a self, client: &'a Side, server: &'a Side) -> Option<[Handle<'a, NDK_QP>; 2]> {
        if self.borrowed {
            return Some([client.queue_pair.handle(), server.queue_pair.handle()]);
        }
        Some([self.client?, self.server?])
    }

    /// Makes queue pairs where there are none, and connects them. What fails leaves a part, for `close`. PASSIVE_LEVEL.
    pub fn connect(&mut self, route: &Route<'_>, interruption: &Interruption<'_>) -> Result<(), Status> {
        if !self.borrowed {
            self.client = Some(self.create_queue_pair(route.client, route.client_shape)?);
            self.server = Some(self.create_queue_pair(route.server, route.server_shape)?);
        }
        let connector = self.answer.create(|done| route.client.adapter.handle().create_connector(done))?;
        self.client_connector = Some(connector);
        let [client, server] = self.queue_pairs(route.client, route.server).ok_or(Status::INVALID_PARAMETER)?;
        let (client, server) = (route.parameters(client), route.parameters(server));
        let connecting =
            connector.connect(&route.source, &route.destination, &client, Self::completion(&self.connecting));
        let arrived = self.arrival(route, connecting, interruption)?;
        let accepting = arrived.accept(&server, &route.disconnected, Self::completion(&self.accepting));
        self.server_connector = Some(arrived);
        // The client hears nothing of one that was refused.
        check_begun(accepting)?;
        self.connecting.wait_unless(connecting, interruption)?;
        let completing = connector.complete_connect(&route.disconnected, Self::completion(&self.answer));
        self.answer.wait_unless(completing, interruption)?;
        self.accepting.wait_unless(accepting, interruption)
    }

    /// For a call of one of this connection's connectors.
    fn completion(answer: &CallStatus) -> Completion<'_> {
        // SAFETY: the answers outlive the connectors, which `close` closes.
        unsafe { answer.completion() }
    }

    fn create_queue_pair(&self, side: &Side, shape: QueuePairShape) -> Result<Handle<'static, NDK_QP>, Status> {
        let queue = side.queue.handle();
        let to = Reporting { receive: queue, initiator: queue, context: ptr::null_mut() };
        self.answer.create(|done| side.domain.handle().create_queue_pair(to, shape, done))
    }

    /// Waits for the connection to come to the listener. Its port is the system's choice and one connection is made at a time, so that
    /// what comes is ours; if it is an unrelated one, ours gets no answer and the measurement fails.
    fn arrival(
        &self,
        route: &Route<'_>,
        connecting: i32,
        interruption: &Interruption<'_>,
    ) -> Result<Handle<'static, NDK_CONNECTOR>, Status> {
        check_begun(connecting)?;
        let mut spins = 0;
        loop {
            if let Some(connector) = route.arrivals.take_unowned() {
                return Ok(connector);
            }
            if self.connecting.is_there() {
                check(self.connecting.wait(connecting))?;
                return Err(Status::CONNECTION_ABORTED);
            }
            if spin(&mut spins) {
                interruption.check()?;
            }
        }
    }

    /// Ends an established connection in agreement: each end's disconnect waits for the other's.
    pub fn disconnect(&self, interruption: &Interruption<'_>) -> Result<(), Status> {
        let (Some(client), Some(server)) = (self.client_connector, self.server_connector) else { return Ok(()) };
        let client = client.disconnect(Self::completion(&self.connecting));
        let server = server.disconnect(Self::completion(&self.accepting));
        self.connecting.wait_unless(client, interruption)?;
        self.accepting.wait_unless(server, interruption)
    }

    /// Closes what there is, and waits: then nothing posted is outstanding, borrowed queue pairs excepted. PASSIVE_LEVEL.
    pub fn close(&mut self) {
        // A queue pair's close waits for its connector's.
        for connector in [self.client_connector.take(), self.server_connector.take()].into_iter().flatten() {
            // SAFETY: made here and used by nothing else any more; the close is waited for.
            self.answer.wait(unsafe { self.answer.close(connector) });
        }
        for queue_pair in [self.client.take(), self.server.take()].into_iter().flatten() {
            // SAFETY: as above.
            self.answer.wait(unsafe { self.answer.close(queue_pair) });
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
