//! A connector: one end of a connection, from its establishment to its end.

use alloc::vec::Vec;
use core::{mem::size_of, ptr};

use softnd_interfaces::Status;
use softndk_ioctl::nd::{
    VERSION,
    control::{
        Accept, Bind, CONNECTOR_ACCEPT, CONNECTOR_BIND, CONNECTOR_CANCEL_IO, CONNECTOR_COMPLETE_CONNECT,
        CONNECTOR_CONNECT, CONNECTOR_CREATE, CONNECTOR_DISCONNECT, CONNECTOR_FREE, CONNECTOR_GET_ADDRESS,
        CONNECTOR_GET_PEER_ADDRESS, CONNECTOR_GET_READ_LIMITS, CONNECTOR_NOTIFY_DISCONNECT, CONNECTOR_REJECT, Connect,
        Handle, ReadLimits, Reject, SocketAddress,
    },
    private::{GET_PRIVATE_DATA, PrivateDataReply},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Resource, adapter::Adapter, queue_pair::QueuePair, request_queue::RequestQueue};
use crate::{
    argument::{Bytes, Overlap, Place, Target},
    heap::try_zeroes,
    imports::RawHandle,
    overlapped::RequestFile,
    shared::Shared,
    socket_address::Length,
    spin_lock::SpinLock,
};

pub struct Connector {
    resource: Resource,
    file: RequestFile,
    /// The queue of the queue pair that it was last given, for what waits there when it disconnects.
    queue: SpinLock<Option<Shared<RequestQueue>>>,
}

/// Private data as a client gives it: its place and its length.
pub type PrivateData = (Bytes, usize);

impl Connector {
    pub fn new(adapter: &Shared<Adapter>, file: RawHandle) -> Result<Self, Status> {
        let file = RequestFile::of(adapter.device(), file)?;
        let resource = Resource::under(adapter, CONNECTOR_CREATE, CONNECTOR_FREE, adapter.handle())?;
        Ok(Self { resource, file, queue: SpinLock::new(None) })
    }

    pub fn handle(&self) -> u64 {
        self.resource.handle()
    }

    pub fn adapter(&self) -> &Shared<Adapter> {
        self.resource.adapter()
    }

    pub fn bind(&self, address: SocketAddress) -> Result<(), Status> {
        let input = Bind { version: VERSION, reserved: 0, handle: self.handle(), address, padding: 0 };
        self.resource.device().tell(CONNECTOR_BIND, &input)
    }

    /// Remembers the queue pair, and has the driver take what was posted to it: receives have to be there before the peer sends.
    fn use_queue_pair(&self, pair: &QueuePair) {
        pair.submit();
        let old = self.queue.lock().replace(pair.queue().clone());
        drop(old);
    }

    /// Asks the peer at `destination`. INVALID_BUFFER_SIZE for too much private data.
    pub fn connect(
        &self,
        pair: &QueuePair,
        destination: SocketAddress,
        read_limits: ReadLimits,
        private_data: PrivateData,
        overlapped: Overlap,
    ) -> Status {
        let head = Connect {
            version: VERSION,
            read_limits,
            private_data_length: private_data.1 as u32,
            private_data_offset: size_of::<Connect>() as u32,
            connector: self.handle(),
            queue_pair: pair.handle(),
            destination,
            ..Connect::default()
        };
        match with_private_data(&head, private_data, self.adapter().info().max_caller_data) {
            Ok(input) => {
                self.use_queue_pair(pair);
                self.file.start(overlapped, CONNECTOR_CONNECT, &input, (ptr::null_mut(), 0))
            }
            Err(status) => status,
        }
    }

    pub fn complete_connect(&self, overlapped: Overlap) -> Status {
        self.submit();
        self.file.start_on(overlapped, CONNECTOR_COMPLETE_CONNECT, self.handle())
    }

    /// Answers a request that a listener has put into this connector. INVALID_BUFFER_SIZE for too much private data.
    pub fn accept(
        &self,
        pair: &QueuePair,
        read_limits: ReadLimits,
        private_data: PrivateData,
        overlapped: Overlap,
    ) -> Status {
        let head = Accept {
            version: VERSION,
            reserved: 0,
            read_limits,
            private_data_length: private_data.1 as u32,
            private_data_offset: size_of::<Accept>() as u32,
            connector: self.handle(),
            queue_pair: pair.handle(),
        };
        match with_private_data(&head, private_data, self.adapter().info().max_callee_data) {
            Ok(input) => {
                self.use_queue_pair(pair);
                self.file.start(overlapped, CONNECTOR_ACCEPT, &input, (ptr::null_mut(), 0))
            }
            Err(status) => status,
        }
    }

    pub fn reject(&self, private_data: PrivateData) -> Result<(), Status> {
        let head = Reject {
            version: VERSION,
            reserved: 0,
            private_data_length: private_data.1 as u32,
            private_data_offset: size_of::<Reject>() as u32,
            connector: self.handle(),
        };
        let input = with_private_data(&head, private_data, self.adapter().info().max_callee_data)?;
        self.resource.device().call(CONNECTOR_REJECT, &input, &mut []).map(drop)
    }

    fn ask<Reply: FromBytes + IntoBytes>(&self, code: u32) -> Result<Reply, Status> {
        self.resource.device().ask(code, &Handle { version: VERSION, reserved: 0, handle: self.handle() })
    }

    pub fn read_limits(&self) -> Result<ReadLimits, Status> {
        self.ask(CONNECTOR_GET_READ_LIMITS)
    }

    /// Writes what fits of the private data of the peer, and its whole length. BUFFER_OVERFLOW when not all fits; no memory is
    /// memory of no bytes, whatever its length says.
    pub fn private_data<L: Length>(&self, target: Target, length: Place<L>) -> Result<(), Status> {
        let room = length.read().ok_or(Status::INVALID_PARAMETER)?;
        let room = if target.is_none() { 0 } else { room.into_usize() };
        let info = self.adapter().info();
        let header = size_of::<PrivateDataReply>();
        let most = info.max_caller_data.max(info.max_callee_data) as usize;
        let mut answer = try_zeroes(header.saturating_add(most))?;
        let input = Handle { version: VERSION, reserved: 0, handle: self.handle() };
        let returned = self.resource.device().call(GET_PRIVATE_DATA, input.as_bytes(), &mut answer)?;
        answer.truncate(returned);
        let (reply, data) = PrivateDataReply::read_from_prefix(&answer).map_err(|_| Status::INTERNAL_ERROR)?;
        let data = data.get(..reply.returned as usize).unwrap_or(data);
        target.write(data.get(..room).unwrap_or(data));
        length.write(L::from_usize(reply.length as usize))?;
        if reply.length as usize > room { Err(Status::BUFFER_OVERFLOW) } else { Ok(()) }
    }

    pub fn local_address(&self) -> Result<SocketAddress, Status> {
        self.ask(CONNECTOR_GET_ADDRESS)
    }

    pub fn peer_address(&self) -> Result<SocketAddress, Status> {
        self.ask(CONNECTOR_GET_PEER_ADDRESS)
    }

    pub fn notify_disconnect(&self, overlapped: Overlap) -> Status {
        self.file.start_on(overlapped, CONNECTOR_NOTIFY_DISCONNECT, self.handle())
    }

    pub fn disconnect(&self, overlapped: Overlap) -> Status {
        self.submit();
        self.file.start_on(overlapped, CONNECTOR_DISCONNECT, self.handle())
    }

    fn submit(&self) {
        let queue = self.queue.lock().clone();
        if let Some(queue) = queue {
            queue.submit();
        }
    }

    pub fn cancel(&self) -> Result<(), Status> {
        self.resource.call(CONNECTOR_CANCEL_IO)
    }
}

/// A request with private data behind it. INVALID_BUFFER_SIZE for more than `most`, ACCESS_VIOLATION for no memory, NO_MEMORY.
fn with_private_data(
    head: &(impl IntoBytes + Immutable),
    (data, length): PrivateData,
    most: u32,
) -> Result<Vec<u8>, Status> {
    if length > most as usize {
        return Err(Status::INVALID_BUFFER_SIZE);
    }
    let head = head.as_bytes();
    let mut input = try_zeroes(head.len().saturating_add(length))?;
    let (first, behind) = input.split_at_mut_checked(head.len()).ok_or(Status::INTERNAL_ERROR)?;
    first.copy_from_slice(head);
    if data.copy_to(behind) { Ok(input) } else { Err(Status::ACCESS_VIOLATION) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_stands_behind_the_request() {
        let data = [1_u8, 2, 3];
        // SAFETY: a local.
        let given = unsafe { Bytes::at(data.as_ptr().cast()) };
        // SAFETY: no memory.
        let none = unsafe { Bytes::at(ptr::null()) };
        let head = Reject::default();
        let input = with_private_data(&head, (given, 3), 3).unwrap();
        assert_eq!((input.len(), &input[size_of::<Reject>()..]), (size_of::<Reject>() + 3, &data[..]));
        assert_eq!(with_private_data(&head, (given, 3), 2), Err(Status::INVALID_BUFFER_SIZE));
        assert_eq!(with_private_data(&head, (none, 3), 3), Err(Status::ACCESS_VIOLATION));
        assert_eq!(with_private_data(&head, (none, 0), 3).unwrap().len(), size_of::<Reject>());
    }
}
