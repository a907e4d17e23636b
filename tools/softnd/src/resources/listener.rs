//! A listener.

use core::ptr;

use softnd_interfaces::Status;
use softndk_ioctl::nd::{
    VERSION,
    control::{
        Bind, GetConnectionRequest, Handle, LISTENER_BIND, LISTENER_CANCEL_IO, LISTENER_CREATE, LISTENER_FREE,
        LISTENER_GET_ADDRESS, LISTENER_GET_CONNECTION_REQUEST, LISTENER_LISTEN, Listen, SocketAddress,
    },
};
use zerocopy::IntoBytes;

use super::{Resource, adapter::Adapter, connector::Connector};
use crate::{argument::Overlap, imports::RawHandle, overlapped::RequestFile, shared::Shared};

pub struct Listener {
    resource: Resource,
    file: RequestFile,
}

impl Listener {
    pub fn new(adapter: &Shared<Adapter>, file: RawHandle) -> Result<Self, Status> {
        let file = RequestFile::of(adapter.device(), file)?;
        Ok(Self { resource: Resource::under(adapter, LISTENER_CREATE, LISTENER_FREE, adapter.handle())?, file })
    }

    fn handle(&self) -> u64 {
        self.resource.handle()
    }

    pub fn bind(&self, address: SocketAddress) -> Result<(), Status> {
        let input = Bind { version: VERSION, reserved: 0, handle: self.handle(), address, padding: 0 };
        self.resource.device().tell(LISTENER_BIND, &input)
    }

    /// A backlog of 0 is none.
    pub fn listen(&self, backlog: u32) -> Result<(), Status> {
        self.resource.device().tell(LISTENER_LISTEN, &Listen { version: VERSION, backlog, listener: self.handle() })
    }

    pub fn local_address(&self) -> Result<SocketAddress, Status> {
        let input = Handle { version: VERSION, reserved: 0, handle: self.handle() };
        self.resource.device().ask(LISTENER_GET_ADDRESS, &input)
    }

    /// Puts the next request into a connector. INVALID_PARAMETER_1 for one of another provider.
    pub fn connection_request(&self, connector: &Connector, overlapped: Overlap) -> Status {
        if !self.resource.shares_handles(connector.adapter()) {
            return Status::INVALID_PARAMETER_1;
        }
        let input = GetConnectionRequest {
            version: VERSION,
            reserved: 0,
            listener: self.handle(),
            connector: connector.handle(),
        };
        self.file.start(overlapped, LISTENER_GET_CONNECTION_REQUEST, input.as_bytes(), (ptr::null_mut(), 0))
    }

    pub fn cancel(&self) -> Result<(), Status> {
        self.resource.call(LISTENER_CANCEL_IO)
    }
}
