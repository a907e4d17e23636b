use core::marker::PhantomData;
use core::net::SocketAddr;
use crate::*;
#[derive(Clone)]
pub struct Connector<P: Platform>(PhantomData<fn() -> P>);
/// Reads a side lets in and sends out at a time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadLimits { pub inbound: u32, pub outbound: u32 }
pub struct Connect<'a, P: Platform> {
    pub queue_pair: &'a QueuePair<P>,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub limits: ReadLimits,
    pub private_data: &'a [u8],
    pub callback: P::RequestCallback,
}
pub struct Accept<'a, P: Platform> {
    pub queue_pair: &'a QueuePair<P>,
    pub limits: ReadLimits,
    pub private_data: &'a [u8],
    pub disconnect: Option<P::DisconnectCallback>,
    pub callback: P::RequestCallback,
}
#[derive(Clone, Copy, Debug)]
pub struct ConnectionData {
    pub limits: ReadLimits,
    /// Bytes a buffer needs (the contract's "required private data buffer size").
    pub required: u32,
    /// Bytes copied into the buffer.
    pub copied: u32,
}
impl<P: Platform> Connector<P> {
    pub fn connect(&self, _request: Connect<'_, P>) -> Result<Requested, ConnectError> { todo!() }
    pub fn complete_connect(&self, _disconnect: Option<P::DisconnectCallback>, _callback: P::RequestCallback) -> Result<Requested, ConnectError> { todo!() }
    pub fn accept(&self, _request: Accept<'_, P>) -> Result<Requested, ConnectError> { todo!() }
    pub fn reject(&self, _private_data: &[u8]) -> Result<(), ConnectError> { todo!() }
    pub fn disconnect(&self, _callback: P::RequestCallback) -> Result<Requested, ConnectError> { todo!() }
    /// What the peer sent, copied into `buffer` as far as it goes. `InvalidState` when there is nothing yet.
    pub fn connection_data(&self, _buffer: &mut [u8]) -> Result<ConnectionData, ConnectError> { todo!() }
    pub fn local_address(&self) -> Option<SocketAddr> { todo!() }
    pub fn peer_address(&self) -> Option<SocketAddr> { todo!() }
    pub fn close(&self, _callback: P::CloseCallback) -> Close<P> { todo!() }
}
impl<P: Platform> Arrival<P> {
    /// Makes the connector the consumer's, with the front end's block.
    pub fn adopt(self, _block: P::Block) -> Connector<P> { todo!() }
}
