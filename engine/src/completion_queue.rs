use core::marker::PhantomData;
use crate::*;
#[derive(Clone)]
pub struct CompletionQueue<P: Platform>(PhantomData<fn() -> P>);
/// How a completion queue is armed, weakest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Arm { Errors, Solicited, Any }
/// One completion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    /// The consumer's value given with the request.
    pub context: u64,
    /// The consumer's value given with the queue pair.
    pub queue_pair_context: u64,
    pub outcome: Outcome,
    pub operation: Operation,
    /// Satisfies a solicited arm.
    pub solicited: bool,
    /// Bytes received; 0 for initiator requests.
    pub bytes: u32,
    /// The token a `ReceiveAndInvalidate` invalidated.
    pub output: MemoryToken,
}
impl<P: Platform> CompletionQueue<P> {
    pub fn depth(&self) -> u32 { todo!() }
    /// Takes up to `most` completions, oldest first, and gives each with its index to `each` (which must not call the engine).
    pub fn poll(&self, _most: u32, _each: impl FnMut(u32, &Completion)) -> u32 { todo!() }
    pub fn arm(&self, _arm: Arm) { todo!() }
    pub fn close(&self, _callback: P::CloseCallback) -> Close<P> { todo!() }
}
