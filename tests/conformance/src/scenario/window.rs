//! Memory windows: bound, written through, bound again and invalidated, remotely and here.

use ndkpi_sys::ndkpi::*;

use super::{Connection, Side, Stop, at, check, open};
use crate::consumer::{Buffer, MemoryWindow, Remote};
use crate::machine::Setup;

pub(super) fn walk(adapters: &[kernel_host::Adapter], setup: &Setup) -> Result<(), Stop> {
    const LENGTH: usize = 8_000;
    let first = open(adapters, setup, 0)?;
    let second = open(adapters, setup, 1)?;
    let (near, peer) = (Side::new(&first)?, Side::new(&second)?);
    let connection = Connection::new(&first, &near.queue_pair, &second, &peer.queue_pair)?;
    let (local, remote) = (Buffer::scattered(LENGTH), Buffer::scattered(LENGTH));
    let source = at("CreateMr", near.domain.create_region(false))?;
    check("RegisterMr", source.register(&local, NDK_MR_FLAG_ALLOW_LOCAL_WRITE))?;
    let lent = at("CreateMr", peer.domain.create_region(false))?;
    check("RegisterMr", lent.register(&remote, NDK_MR_FLAG_ALLOW_LOCAL_WRITE))?;
    let windows = [at("CreateMw", MemoryWindow::new(&peer.domain))?, at("CreateMw", MemoryWindow::new(&peer.domain))?];
    let none = NDK_OP_FLAGS::empty();
    for window in &windows {
        let range = (remote.label(), LENGTH);
        check("Bind", peer.queue_pair.bind(1, lent.object(), window.object(), range, NDK_OP_FLAG_ALLOW_REMOTE_WRITE))?;
        peer.done()?;
        let place = Remote { address: remote.label(), token: window.remote_token() };
        check("Write", near.queue_pair.write(2, &[local.whole(source.local_token())], place, none))?;
        near.done()?;
    }
    let [here, there] = &windows;
    check("Invalidate", peer.queue_pair.invalidate(3, here.object(), none))?;
    peer.done()?;
    check("Receive", peer.queue_pair.receive(4, &[remote.whole(lent.local_token())]))?;
    let sge = [local.whole(source.local_token())];
    check("SendAndInvalidate", near.queue_pair.send_and_invalidate(5, &sge, none, there.remote_token()))?;
    near.done()?;
    check("a completion", peer.receive.wait_for_one().Status)?;
    check("DeregisterMr", lent.deregister())?;
    connection.disconnect()
}
