//! Device control requests: which codes there are, and what answers each.
//!
//! Three kinds: most are answered at once; some lists may be answered in part; those that a program waits for by its completion port
//! or event always pend, because it counts on that. Requests come at PASSIVE_LEVEL: user mode has no other.

use super::{
    adapter,
    completion_queue::{self, Attach},
    connector,
    file::{self, File},
    listener, memory_region, memory_window, notify,
    object::HandleKind,
    poller::{self, Polled},
    queue_pair, refused,
    request::{Call, Cancellable, answer, check_output, input, named},
    shared_receive_queue,
    status::Answered,
};
use crate::driver::Driver;
use ndkpi_sys::nt::{
    DEVICE_OBJECT, IRP, NTSTATUS, STATUS_CANCELLED, STATUS_DEVICE_REMOVED, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_REVISION_MISMATCH, STATUS_SUCCESS,
};
use softndk_ioctl::{
    RefusalWay,
    nd::{
        VERSION,
        control::{self, Handle},
        private::{self, ProviderToken},
        rings::LAYOUT,
    },
};
use softndk_kernel::{
    event::CriticalRegion,
    irp::{Buffer, Request},
    irql,
};

/// IRP_MJ_DEVICE_CONTROL. PASSIVE_LEVEL. What each code does has a frame of its own: here all of them would be one.
///
/// # Safety
/// The I/O manager passes the driver's device and an IRP of this kind.
pub unsafe extern "C" fn device_control(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter_below_dispatch();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let Some(_passage) = Driver::get().and_then(|driver| driver.network_direct.requests.enter()) else {
        return complete(request, STATUS_DEVICE_REMOVED, 0);
    };
    if irql::current() != 0 {
        return complete(request, STATUS_INVALID_DEVICE_REQUEST, 0);
    }
    dispatch(request)
}

fn complete(request: Request, status: NTSTATUS, information: usize) -> NTSTATUS {
    refused::record(&request, status, RefusalWay::CALL);
    request.complete(status, information);
    status
}

/// A request that is answered at once.
type Handler = fn(&Call, &mut Buffer) -> Answered;
/// One that may be answered in part: a warning and bytes.
type ListHandler = fn(&Call, &mut Buffer) -> (NTSTATUS, usize);
/// One that pends; it fails at once with the status that comes with the request.
type PendingHandler = fn(&Call, Request) -> Result<NTSTATUS, (Request, NTSTATUS)>;

#[inline(never)]
fn dispatch(request: Request) -> NTSTATUS {
    let code = request.device_control().code;
    let mut buffer = Buffer::of(&request);
    let Some(file) = file::of(&request) else { return complete(request, STATUS_DEVICE_REMOVED, 0) };
    let Some(way) = kind_of(code) else { return complete(request, STATUS_INVALID_DEVICE_REQUEST, 0) };
    if version_of(buffer.input()) != Some(VERSION) {
        return complete(request, STATUS_INVALID_DEVICE_REQUEST, 0);
    }
    if let RequestKind::Provider(handler) = way {
        let answered = handler(&file, &request, &mut buffer);
        return complete(request, answered.err().unwrap_or(STATUS_SUCCESS), answered.unwrap_or(0));
    }
    let call = match file.context() {
        Ok(context) => Call { file, context },
        Err(status) => return complete(request, status, 0),
    };
    match way {
        RequestKind::Provider(_) => complete(request, STATUS_INVALID_DEVICE_REQUEST, 0),
        RequestKind::AtOnce(handler) => {
            let answered = handler(&call, &mut buffer);
            complete(request, answered.err().unwrap_or(STATUS_SUCCESS), answered.unwrap_or(0))
        }
        RequestKind::List(handler) => {
            let (status, information) = handler(&call, &mut buffer);
            complete(request, status, information)
        }
        RequestKind::Pending(handler) => match handler(&call, request) {
            Ok(status) => status,
            Err((request, status)) => complete(request, status, 0),
        },
    }
}

fn version_of(input: &[u8]) -> Option<u32> {
    input.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

/// How a code is answered.
enum RequestKind {
    /// By a file that may have no context.
    Provider(fn(&File, &Request, &mut Buffer) -> Answered),
    AtOnce(Handler),
    List(ListHandler),
    Pending(PendingHandler),
}

fn kind_of(code: u32) -> Option<RequestKind> {
    let pending: PendingHandler = match code {
        control::CQ_NOTIFY => notify::notify,
        control::SRQ_NOTIFY => shared_receive_queue::notify,
        control::MR_REGISTER => memory_region::register,
        control::MR_DEREGISTER => memory_region::deregister,
        control::CONNECTOR_CONNECT => connector::connect,
        control::CONNECTOR_COMPLETE_CONNECT => connector::complete_connect,
        control::CONNECTOR_ACCEPT => connector::accept,
        control::CONNECTOR_NOTIFY_DISCONNECT => connector::notify_disconnect,
        control::CONNECTOR_DISCONNECT => connector::disconnect,
        control::LISTENER_GET_CONNECTION_REQUEST => listener::get_connection_request,
        private::LOCK_FOR_WRITING => memory_region::lock_for_writing,
        private::LOCK_FOR_READING => memory_region::lock_for_reading,
        private::ATTACH => attach,
        _ => return way_at_once(code),
    };
    Some(RequestKind::Pending(pending))
}

fn way_at_once(code: u32) -> Option<RequestKind> {
    let handler: Handler = match code {
        control::PROVIDER_INIT => return Some(RequestKind::Provider(init)),
        control::PROVIDER_BIND_FILE => return Some(RequestKind::Provider(bind_file)),
        control::PROVIDER_QUERY_ADDRESS_LIST => return Some(RequestKind::List(adapter::provider_addresses)),
        control::PROVIDER_RESOLVE_ADDRESS => adapter::resolve,
        control::ADAPTER_OPEN => adapter::open,
        control::ADAPTER_CLOSE => free::<adapter::OpenedAdapter>,
        control::ADAPTER_QUERY => adapter::query,
        control::ADAPTER_QUERY_ADDRESS_LIST => return Some(RequestKind::List(adapter::adapter_addresses)),
        control::PD_CREATE => adapter::create_domain,
        control::PD_FREE => free::<adapter::Domain>,
        control::CQ_CREATE => completion_queue::create,
        control::CQ_FREE => free::<completion_queue::CompletionQueue>,
        control::CQ_CANCEL_IO => cancel_io::<completion_queue::CompletionQueue>,
        control::CQ_GET_AFFINITY => completion_queue::affinity,
        control::CQ_MODIFY => completion_queue::modify,
        control::MR_CREATE => memory_region::create,
        control::MR_FREE => free::<memory_region::MemoryRegion>,
        control::MR_CANCEL_IO => cancel_io::<memory_region::MemoryRegion>,
        control::MW_CREATE => memory_window::create,
        control::MW_FREE => free::<memory_window::MemoryWindow>,
        control::SRQ_CREATE => shared_receive_queue::create,
        control::SRQ_FREE => free::<shared_receive_queue::SharedReceiveQueue>,
        control::SRQ_CANCEL_IO => cancel_io::<shared_receive_queue::SharedReceiveQueue>,
        control::SRQ_GET_AFFINITY => shared_receive_queue::affinity,
        control::SRQ_MODIFY => shared_receive_queue::modify,
        control::QP_CREATE => queue_pair::create,
        control::QP_CREATE_WITH_SRQ => queue_pair::create_with_shared_queue,
        control::QP_FREE => free::<queue_pair::QueuePair>,
        control::QP_FLUSH => queue_pair::flush,
        private::DOORBELL => doorbell,
        private::BIND_WINDOW => queue_pair::bind_window,
        private::QUERY_ADDRESSES => adapter::query_addresses,
        _ => return way_of_connections(code),
    };
    Some(RequestKind::AtOnce(handler))
}

fn way_of_connections(code: u32) -> Option<RequestKind> {
    let handler: Handler = match code {
        control::CONNECTOR_CREATE => connector::create,
        control::CONNECTOR_FREE => free::<connector::Connector>,
        control::CONNECTOR_CANCEL_IO => cancel_io::<connector::Connector>,
        control::CONNECTOR_BIND => connector::bind,
        control::CONNECTOR_REJECT => connector::reject,
        control::CONNECTOR_GET_READ_LIMITS => connector::read_limits,
        control::CONNECTOR_GET_PRIVATE_DATA => return Some(RequestKind::List(connector::plain_private_data)),
        control::CONNECTOR_GET_PEER_ADDRESS => connector::peer_address,
        control::CONNECTOR_GET_ADDRESS => connector::local_address,
        control::LISTENER_CREATE => listener::create,
        control::LISTENER_FREE => free::<listener::Listener>,
        control::LISTENER_CANCEL_IO => cancel_io::<listener::Listener>,
        control::LISTENER_BIND => listener::bind,
        control::LISTENER_LISTEN => listener::listen,
        control::LISTENER_GET_ADDRESS => listener::local_address,
        private::GET_PRIVATE_DATA => connector::private_data,
        _ => return None,
    };
    Some(RequestKind::AtOnce(handler))
}

fn init(file: &File, request: &Request, buffer: &mut Buffer) -> Answered {
    let _asked: Handle = input(buffer)?;
    let token = file.init(request.process())?;
    if check_output::<ProviderToken>(buffer).is_err() {
        return Ok(0);
    }
    answer(buffer, &ProviderToken { token })
}

fn bind_file(file: &File, request: &Request, buffer: &mut Buffer) -> Answered {
    let asked: Handle = input(buffer)?;
    file.bind_to(asked.handle, request.process())?;
    Ok(0)
}

/// *_FREE: DEVICE_BUSY while others are made from the object.
fn free<T: HandleKind>(call: &Call, buffer: &mut Buffer) -> Answered {
    let object = call.context.remove::<T>(input::<Handle>(buffer)?.handle)?;
    T::closable(&object).close(STATUS_CANCELLED);
    Ok(0)
}

/// *_CANCEL_IO.
fn cancel_io<T: HandleKind + Cancellable>(call: &Call, buffer: &mut Buffer) -> Answered {
    named::<T>(call, buffer)?.cancel_all();
    Ok(0)
}

/// DOORBELL, of whatever has rings.
fn doorbell(call: &Call, buffer: &mut Buffer) -> Answered {
    let handle = input::<Handle>(buffer)?.handle;
    if let Ok(pair) = call.context.object::<queue_pair::QueuePair>(handle) {
        pair.doorbell()?;
        poller::offer(Polled::Pair(pair));
        return Ok(0);
    }
    if let Ok(queue) = call.context.object::<completion_queue::CompletionQueue>(handle) {
        queue.drain();
        return Ok(0);
    }
    let queue = call.context.object::<shared_receive_queue::SharedReceiveQueue>(handle)?;
    queue.doorbell()?;
    poller::offer(Polled::SharedQueue(queue));
    Ok(0)
}

/// ATTACH, of whatever has rings.
fn attach(call: &Call, request: Request) -> Result<NTSTATUS, (Request, NTSTATUS)> {
    let asked = match input::<private::Attach>(&Buffer::of(&request)) {
        Ok(asked) if asked.layout != LAYOUT => return Err((request, STATUS_REVISION_MISMATCH)),
        Ok(asked) => asked,
        Err(status) => return Err((request, status)),
    };
    if let Ok(pair) = call.context.object::<queue_pair::QueuePair>(asked.handle) {
        return pair.attach(call, request);
    }
    if let Ok(queue) = call.context.object::<completion_queue::CompletionQueue>(asked.handle) {
        return queue.attach(call, request);
    }
    match call.context.object::<shared_receive_queue::SharedReceiveQueue>(asked.handle) {
        Ok(queue) => queue.attach(call, request),
        Err(status) => Err((request, status)),
    }
}
