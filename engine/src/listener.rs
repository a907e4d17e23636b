use core::marker::PhantomData;
use core::net::SocketAddr;
use crate::*;
#[derive(Clone)]
pub struct Listener<P: Platform>(PhantomData<fn() -> P>);
impl<P: Platform> Listener<P> {
    /// Port 0 picks one. Always finishes at once.
    pub fn listen(&self, _address: SocketAddr) -> Result<(), ConnectError> { todo!() }
    pub fn local_address(&self) -> Option<SocketAddr> { todo!() }
    /// True: behave as if nobody listened.
    pub fn pause(&self, _pause: bool) { todo!() }
    pub fn close(&self, _callback: P::CloseCallback) -> Close<P> { todo!() }
}
