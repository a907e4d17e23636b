use core::marker::PhantomData;
use core::net::IpAddr;
use softndk_cells::NoMemory;
use crate::*;
/// What an adapter is made with.
#[derive(Clone, Copy, Debug)]
pub struct AdapterSettings {
    pub limits: Limits,
    /// Adapters of one wire number reach one another.
    pub wire: u32,
}
/// One miniport adapter.
#[derive(Clone)]
pub struct Adapter<P: Platform>(PhantomData<fn() -> P>);
impl<P: Platform> Adapter<P> {
    pub fn limits(&self) -> &Limits { todo!() }
    /// Replaces the addresses; listeners and connections of vanished ones end.
    pub fn set_addresses(&self, _addresses: &[IpAddr]) -> Result<(), NoMemory> { todo!() }
    /// One NDK_ADAPTER (or one user-mode open). Refused with `AdapterGone` after [`Self::shut_down`].
    pub fn open(&self, _semantics: Semantics, _block: P::Block) -> Result<Opening<P>, CreateError> { todo!() }
    /// Ends every listener and connection and refuses new objects: before halt and NDK-disable.
    pub fn shut_down(&self) { todo!() }
    /// Opens again after [`Self::shut_down`] (NDK enabled again).
    pub fn start(&self) { todo!() }
    /// Takes the adapter out of the fabric for good (halt); openings must be closed before.
    pub fn remove(&self) { todo!() }
    /// Openings not yet fully closed.
    pub fn openings(&self) -> usize { todo!() }
    pub fn counters(&self) -> Counters { todo!() }
    /// Calls `each` for every established connection; no lock of the engine is held meanwhile.
    pub fn connections(&self, _each: &mut dyn FnMut(ConnectionEntry)) { todo!() }
    /// Calls `each` for every listening endpoint.
    pub fn endpoints(&self, _each: &mut dyn FnMut(EndpointEntry)) { todo!() }
    /// Calls `each` for every live object of the adapter.
    pub fn objects(&self, _each: &mut dyn FnMut(ObjectSnapshot)) { todo!() }
}
