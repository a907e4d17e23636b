use core::marker::PhantomData;
use crate::*;
/// One open of an adapter: NDK_ADAPTER.
#[derive(Clone)]
pub struct Opening<P: Platform>(PhantomData<fn() -> P>);
/// What [`Opening::build_mapping`] made: page i is `first + i * PAGE`.
#[derive(Clone, Copy, Debug)]
pub struct LogicalMapping { pub first: LogicalAddress, pub pages: u32 }
impl<P: Platform> Opening<P> {
    pub fn adapter(&self) -> Adapter<P> { todo!() }
    pub fn semantics(&self) -> &Semantics { todo!() }
    /// `home` is the processor to prefer for notifications.
    pub fn create_completion_queue(&self, _depth: u32, _notify: Option<P::NotifyCallback>, _home: Option<u32>, _block: P::Block) -> Result<CompletionQueue<P>, CreateError> { todo!() }
    pub fn create_protection_domain(&self, _block: P::Block) -> Result<ProtectionDomain<P>, CreateError> { todo!() }
    pub fn create_connector(&self, _block: P::Block) -> Result<Connector<P>, CreateError> { todo!() }
    pub fn create_listener(&self, _connect: P::ConnectCallback, _block: P::Block) -> Result<Listener<P>, CreateError> { todo!() }
    /// Publishes mapped memory as logical addresses: offset 0 of the memory is the first byte of the first page.
    pub fn build_mapping(&self, _memory: P::Memory) -> Result<LogicalMapping, (RegionError, P::Memory)> { todo!() }
    /// Revokes a mapping by any of its addresses; false when this opening has no such mapping. The memory comes back by
    /// [`Sink::retired`].
    pub fn release_mapping(&self, _address: LogicalAddress) -> bool { todo!() }
    pub fn hold(&self) -> Hold<P> { todo!() }
    pub fn close(&self, _callback: P::CloseCallback) -> Close<P> { todo!() }
}
