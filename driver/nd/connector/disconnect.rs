//! The requests about the end of a connection: NotifyDisconnect and Disconnect.

use ndkpi_sys::nt::{NTSTATUS, STATUS_PENDING, STATUS_SUCCESS};
use softndk_cells::Shared;
use softndk_engine::Connector as EngineConnector;
use softndk_kernel::irp::{Buffer, Request};

use super::{
    super::{
        object,
        pending::{NotTaken, Pended, complete_pended},
        request::{Call, named},
    },
    Connector,
    late_call::{self, LateCall},
    machine::{ConnectorEvent, ConnectorMachine},
};
use crate::runtime::platform::KernelPlatform;

/// CONNECTOR_NOTIFY_DISCONNECT: from the beginning of an attempt on.
pub fn notify_disconnect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let prepared = named::<Connector>(call, &Buffer::of(&request)).and_then(|connector| {
        let end = connector.with_machine(ConnectorMachine::end_of_connection)?;
        Ok((connector, end))
    });
    let (connector, end) = match prepared {
        Ok(prepared) => prepared,
        Err(status) => return Err((request, status)),
    };
    if let Some(status) = end {
        return Ok(complete_pended(request, status, 0));
    }
    let number = connector.next_number();
    let pended = match Pended::begin(request, call, object::owner(&connector), number) {
        Ok(pended) => pended,
        Err(refused) => return Err((refused.request, refused.status)),
    };
    if let Err(not_taken) = connector.wait_for_end(pended) {
        not_taken.finish();
    }
    Ok(STATUS_PENDING)
}

impl Connector {
    /// The request waits for the end of the connection, unless that has come meanwhile.
    fn wait_for_end(&self, pended: Pended) -> Result<(), NotTaken> {
        let mut guarded = self.guarded.lock();
        match guarded.machine.end_of_connection() {
            Ok(None) => guarded.notifies.push(pended),
            Ok(Some(status)) | Err(status) => Err(NotTaken::new(pended, status)),
        }
    }
}

/// CONNECTOR_DISCONNECT.
pub fn disconnect(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let connector = match named::<Connector>(call, &Buffer::of(&request)) {
        Ok(connector) => connector,
        Err(status) => return Err((request, status)),
    };
    // Requests that the process has posted before come first: the poller takes those of a polled ring later.
    if let Some(pair) = connector.queue_pair() {
        let _taken = pair.doorbell();
    }
    if let Err(status) = connector.with_machine(ConnectorMachine::may_disconnect) {
        return Err((request, status));
    }
    let number = connector.next_number();
    let (request, refused) = match Pended::begin(request, call, object::owner(&connector), number) {
        Ok(pended) => (Some(pended), None),
        Err(refused) => (None, Some(refused.request)),
    };
    let begun = connector.process(ConnectorEvent::Disconnect { number, request });
    if let Some(request) = refused {
        // Without memory for a request that waits, the connection ends all the same.
        return Ok(complete_pended(request, begun.err().unwrap_or(STATUS_SUCCESS), 0));
    }
    if let Ok(Some(engine)) = begun.map(|proceed| proceed.engine) {
        disconnect_now(&connector, &engine, number);
    }
    Ok(STATUS_PENDING)
}

fn disconnect_now(connector: &Shared<Connector>, engine: &EngineConnector<KernelPlatform>, number: u64) {
    let call = LateCall { connector: connector.clone(), number, misfit: STATUS_SUCCESS };
    if let Err(no_memory) = call.make(|callback| engine.disconnect(callback)) {
        let _ending = engine.disconnect(late_call::ignored());
        connector.request_ended(number, Err(no_memory));
    }
    if let Some(pair) = connector.queue_pair() {
        pair.publish();
    }
}
