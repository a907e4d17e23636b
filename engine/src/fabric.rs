use core::marker::PhantomData;
use softndk_cells::NoMemory;
use crate::{Adapter, AdapterSettings, Budget, CreateError, Platform, Sink, Turn};
/// One engine instance: the adapters of a driver, their wire, their work lists.
#[derive(Clone)]
pub struct Fabric<P: Platform>(PhantomData<fn() -> P>);
impl<P: Platform> Fabric<P> {
    /// `processors` is the number of processors that may ever call in (≤ [`limits::PROCESSORS`](crate::limits::PROCESSORS)).
    pub fn try_new(_platform: P, _processors: u32) -> Result<Self, NoMemory> { todo!() }
    pub fn platform(&self) -> &P { todo!() }
    pub fn add_adapter(&self, _settings: AdapterSettings) -> Result<Adapter<P>, CreateError> { todo!() }
    /// Works off the list of a processor: call from a DPC or a thread of ours, no lock held, not under a dispatch function.
    pub fn turn(&self, _processor: u32, _budget: Budget, _sink: &mut impl Sink<P>) -> Turn { todo!() }
}
