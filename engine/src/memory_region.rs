use core::marker::PhantomData;
use crate::*;
#[derive(Clone)]
pub struct MemoryRegion<P: Platform>(PhantomData<fn() -> P>);
/// What to register: `base` is the label of the first byte, `length` ≤ the memory's length.
pub struct Registration<P: Platform> { pub memory: P::Memory, pub base: u64, pub length: u64, pub rights: Rights }
impl<P: Platform> MemoryRegion<P> {
    /// True for a fast-register region.
    pub fn is_fast_register(&self) -> bool { todo!() }
    /// Publishes mapped memory. The front end maps first (asynchronously if it likes, with a [`Self::hold`]).
    pub fn register(&self, _registration: Registration<P>) -> Result<(), (RegionError, P::Memory)> { todo!() }
    pub fn deregister(&self, _callback: P::RequestCallback) -> Result<Deregistered<P>, RegionError> { todo!() }
    pub fn initialize_fast_register(&self, _pages: u32, _remote_access: bool) -> Result<(), RegionError> { todo!() }
    /// For local elements; [`MemoryToken::NONE`] before the region is registered or initialised.
    pub fn local_token(&self) -> MemoryToken { todo!() }
    /// For the peer. The same over all cycles of a fast-register region.
    pub fn remote_token(&self) -> MemoryToken { todo!() }
    /// Keeps the close from completing while the front end's own asynchronous request on it is under way.
    pub fn hold(&self) -> Hold<P> { todo!() }
    pub fn close(&self, _callback: P::CloseCallback) -> Close<P> { todo!() }
}
