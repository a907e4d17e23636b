use core::marker::PhantomData;
use crate::*;
#[derive(Clone)]
pub struct ProtectionDomain<P: Platform>(PhantomData<fn() -> P>);
impl<P: Platform> ProtectionDomain<P> {
    /// Grants local access to logical addresses, never remote access.
    pub fn privileged_token(&self) -> MemoryToken { todo!() }
    pub fn create_memory_region(&self, _fast_register: bool, _block: P::Block) -> Result<MemoryRegion<P>, CreateError> { todo!() }
    pub fn create_queue_pair(&self, _settings: QueuePairSettings<'_, P>, _block: P::Block) -> Result<QueuePair<P>, CreateError> { todo!() }
    pub fn close(&self, _callback: P::CloseCallback) -> Close<P> { todo!() }
}
