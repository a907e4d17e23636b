use core::marker::PhantomData;
use crate::*;
#[derive(Clone)]
pub struct QueuePair<P: Platform>(PhantomData<fn() -> P>);
pub struct QueuePairSettings<'a, P: Platform> {
    pub receive_queue: &'a CompletionQueue<P>,
    pub initiator_queue: &'a CompletionQueue<P>,
    pub context: u64,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_elements: u32,
    pub initiator_elements: u32,
    pub inline_data: u32,
}
/// What a fast registration makes of its region; the pages come as an iterator beside it.
#[derive(Clone, Copy, Debug)]
pub struct FastRegistration { pub first_byte_offset: u32, pub length: u64, pub base: u64, pub rights: Rights }
impl<P: Platform> QueuePair<P> {
    pub fn send(&self, _context: u64, _flags: RequestFlags, _elements: impl ExactSizeIterator<Item = Element>) -> Result<(), PostError> { todo!() }
    pub fn send_and_invalidate(&self, _context: u64, _flags: RequestFlags, _elements: impl ExactSizeIterator<Item = Element>, _token: MemoryToken) -> Result<(), PostError> { todo!() }
    pub fn receive(&self, _context: u64, _elements: impl ExactSizeIterator<Item = Element>) -> Result<(), PostError> { todo!() }
    pub fn read(&self, _context: u64, _flags: RequestFlags, _elements: impl ExactSizeIterator<Item = Element>, _address: u64, _token: MemoryToken) -> Result<(), PostError> { todo!() }
    pub fn write(&self, _context: u64, _flags: RequestFlags, _elements: impl ExactSizeIterator<Item = Element>, _address: u64, _token: MemoryToken) -> Result<(), PostError> { todo!() }
    pub fn fast_register(&self, _context: u64, _flags: RequestFlags, _region: &MemoryRegion<P>, _registration: FastRegistration, _pages: impl ExactSizeIterator<Item = LogicalAddress>) -> Result<(), PostError> { todo!() }
    pub fn invalidate(&self, _context: u64, _flags: RequestFlags, _region: &MemoryRegion<P>) -> Result<(), PostError> { todo!() }
    /// The front end refused a post by itself: held requests are processed.
    pub fn kick_held(&self) { todo!() }
    pub fn flush(&self) { todo!() }
    pub fn close(&self, _callback: P::CloseCallback) -> Close<P> { todo!() }
}
