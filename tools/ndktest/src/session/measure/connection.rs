//! One connection of a measurement: two queue pairs and two connectors, made and closed with as little as that takes.

use core::{ffi::c_void, net::SocketAddr, ptr};

use ndkpi_sys::{
    ndkpi::{NDK_CONNECTOR, NDK_FN_CLOSE_OBJECT, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_OBJECT_HEADER, NDK_QP},
    nt::{SOCKADDR, SOCKADDR_INET},
};
use softndk_ioctl::Status;

use super::{
    call_status::{CallStatus, close_done, create_done, request_done, spin},
    interruption::Interruption,
};
use crate::{
    session::{
        consumer::{Arrivals, QueuePairShape, Tabled, check, table_of},
        pair::Side,
    },
    socket::wire_form,
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
    pub source: (SOCKADDR_INET, u32),
    pub destination: (SOCKADDR_INET, u32),
    pub read_limit: u32,
    /// What hears of the connection's end, and its context.
    pub disconnected: (NDK_FN_DISCONNECT_EVENT_CALLBACK, *mut c_void),
}

impl Route<'_> {
    pub fn addresses(source: &SocketAddr, destination: &SocketAddr) -> [(SOCKADDR_INET, u32); 2] {
        [wire_form(source), wire_form(destination)]
    }
}

/// A connection, or what there is of it. It stays where it is from the first call of `connect` on.
pub struct Connection {
    pub client: *mut NDK_QP,
    pub server: *mut NDK_QP,
    client_connector: *mut NDK_CONNECTOR,
    server_connector: *mut NDK_CONNECTOR,
    /// The queue pairs belong to the sides, which close them.
    borrowed: bool,
    connecting: CallStatus,
    accepting: CallStatus,
    /// Of every other call.
    answer: CallStatus,
}

impl Connection {
    pub const fn new() -> Self {
        Self {
            client: ptr::null_mut(),
            server: ptr::null_mut(),
            client_connector: ptr::null_mut(),
            server_connector: ptr::null_mut(),
            borrowed: false,
            connecting: CallStatus::new(),
            accepting: CallStatus::new(),
            answer: CallStatus::new(),
        }
    }

    /// Has the sides' own queue pairs connected.
    pub fn borrow_queue_pairs(&mut self, route: &Route<'_>) {
        self.borrowed = true;
        self.client = route.client.queue_pair.as_ptr();
        self.server = route.server.queue_pair.as_ptr();
    }

    /// Makes queue pairs where there are none, and connects them. What fails leaves a part, for `close`. PASSIVE_LEVEL.
    pub fn connect(&mut self, route: &Route<'_>, interruption: &Interruption<'_>) -> Result<(), Status> {
        if !self.borrowed {
            self.client = self.create_queue_pair(route.client, route.client_shape)?;
            self.server = self.create_queue_pair(route.server, route.server_shape)?;
        }
        self.client_connector = self.create_connector(route.client)?;
        let connecting = self.begin(route);
        self.server_connector = self.arrival(route, connecting, interruption)?;
        let accepting = self.accept(route);
        self.connecting.wait_unless(connecting, interruption)?;
        self.complete(route, interruption)?;
        self.accepting.wait_unless(accepting, interruption)
    }

    fn create_queue_pair(&self, side: &Side, shape: QueuePairShape) -> Result<*mut NDK_QP, Status> {
        let (domain, queue) = (&side.domain, side.queue.as_ptr());
        let mut place = ptr::null_mut();
        // SAFETY: NDKPI: NDK_FN_CREATE_QP with arguments that live for the call, which is waited for.
        let status = unsafe {
            (domain.table().NdkCreateQp)(
                domain.as_ptr(),
                queue,
                queue,
                ptr::null_mut(),
                shape.receive_depth,
                shape.initiator_depth,
                shape.sges,
                shape.sges,
                shape.inline_data,
                Some(create_done),
                self.answer.context(),
                &raw mut place,
            )
        };
        self.answer.object(status, place)
    }

    fn create_connector(&self, side: &Side) -> Result<*mut NDK_CONNECTOR, Status> {
        let adapter = &side.adapter;
        let mut place = ptr::null_mut();
        // SAFETY: NDKPI: NDK_FN_CREATE_CONNECTOR with arguments that live for the call, which is waited for.
        let status = unsafe {
            (adapter.table().NdkCreateConnector)(
                adapter.as_ptr(),
                Some(create_done),
                self.answer.context(),
                &raw mut place,
            )
        };
        self.answer.object(status, place)
    }

    fn begin(&self, route: &Route<'_>) -> i32 {
        let (source, destination) = (&route.source, &route.destination);
        let (connector, table) = Self::open(self.client_connector);
        // SAFETY: NDKPI: NDK_FN_CONNECT with addresses that live for the call; the answer outlives the connector.
        unsafe {
            (table.NdkConnect)(
                connector,
                self.client,
                (&raw const source.0).cast::<SOCKADDR>(),
                source.1,
                (&raw const destination.0).cast::<SOCKADDR>(),
                destination.1,
                route.read_limit,
                route.read_limit,
                ptr::null(),
                0,
                Some(request_done),
                self.connecting.context(),
            )
        }
    }

    /// Waits for the connection to come to the listener. Its port is the system's choice and one connection is made at a time, so that
    /// what comes is ours; if it is an unrelated one, ours gets no answer and the measurement fails.
    fn arrival(
        &self,
        route: &Route<'_>,
        connecting: i32,
        interruption: &Interruption<'_>,
    ) -> Result<*mut NDK_CONNECTOR, Status> {
        if connecting != ndkpi_sys::nt::STATUS_PENDING {
            check(connecting)?;
        }
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

    fn accept(&self, route: &Route<'_>) -> i32 {
        let (connector, table) = Self::open(self.server_connector);
        let (event, context) = route.disconnected;
        // SAFETY: NDKPI: NDK_FN_ACCEPT; the event's context and the answer outlive the connector.
        unsafe {
            (table.NdkAccept)(
                connector,
                self.server,
                route.read_limit,
                route.read_limit,
                ptr::null(),
                0,
                Some(event),
                context,
                Some(request_done),
                self.accepting.context(),
            )
        }
    }

    fn complete(&self, route: &Route<'_>, interruption: &Interruption<'_>) -> Result<(), Status> {
        let (connector, table) = Self::open(self.client_connector);
        let (event, context) = route.disconnected;
        // SAFETY: NDKPI: NDK_FN_COMPLETE_CONNECT; the event's context and the answer outlive the connector.
        let status = unsafe {
            (table.NdkCompleteConnect)(connector, Some(event), context, Some(request_done), self.answer.context())
        };
        self.answer.wait_unless(status, interruption)
    }

    /// Ends an established connection in agreement: each end's disconnect waits for the other's.
    pub fn disconnect(&self, interruption: &Interruption<'_>) -> Result<(), Status> {
        let disconnect = |connector, answer: &CallStatus| {
            let (connector, table) = Self::open(connector);
            // SAFETY: NDKPI: NDK_FN_DISCONNECT; the answer outlives the connector.
            unsafe { (table.NdkDisconnect)(connector, Some(request_done), answer.context()) }
        };
        let client = disconnect(self.client_connector, &self.connecting);
        let server = disconnect(self.server_connector, &self.accepting);
        self.connecting.wait_unless(client, interruption)?;
        self.accepting.wait_unless(server, interruption)
    }

    /// A connector of ours that is open, and its functions.
    fn open<'a>(connector: *mut NDK_CONNECTOR) -> (*mut NDK_CONNECTOR, &'a <NDK_CONNECTOR as Tabled>::Table) {
        // SAFETY: the callers have made the connector, and only `close` closes it.
        (connector, unsafe { table_of(connector) })
    }

    /// Closes what there is, and waits: then nothing posted is outstanding, borrowed queue pairs excepted. PASSIVE_LEVEL.
    pub fn close(&mut self) {
        // A queue pair's close waits for its connector's.
        for place in [&mut self.client_connector, &mut self.server_connector] {
            // SAFETY: made here and used by nothing else any more.
            unsafe { close(&self.answer, place) };
        }
        if self.borrowed {
            return;
        }
        for place in [&mut self.client, &mut self.server] {
            // SAFETY: as above.
            unsafe { close(&self.answer, place) };
        }
    }
}

/// Closes an object, if there is one, and waits.
///
/// # Safety
/// The place is null or an open object that nothing else uses.
unsafe fn close<T: Tabled>(answer: &CallStatus, place: &mut *mut T) {
    let object = core::mem::replace(place, ptr::null_mut());
    if object.is_null() {
        return;
    }
    // SAFETY: open (the caller's promise).
    let close: NDK_FN_CLOSE_OBJECT = T::close(unsafe { table_of(object) });
    // SAFETY: closed once; the answer outlives the close, which is waited for.
    let status = unsafe { close(object.cast::<NDK_OBJECT_HEADER>(), Some(close_done), answer.context()) };
    answer.wait(status);
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
