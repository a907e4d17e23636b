//! A connection and a transfer by every kind of memory.

use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED};

use super::{Connection, Side, Stop, check, open};
use crate::consumer::{Adapter, Buffer, FastRegistration, Mapping, Remote, sge};
use crate::machine::{Setup, wait_until_idle};
use crate::peers;

pub(super) fn walk(adapters: &[kernel_host::Adapter], setup: &Setup) -> Result<(), Stop> {
    let first = open(adapters, setup, 0)?;
    let second = open(adapters, setup, 1)?;
    let (near, peer) = (Side::new(&first)?, Side::new(&second)?);
    let connection = Connection::new(&first, &near.queue_pair, &second, &peer.queue_pair)?;
    transfers(&first, &near, &second, &peer)?;
    connection.disconnect()
}

/// What the receive completes with. Across a stream what was sent may be lost with the connection.
fn received(peer: &Side) -> NTSTATUS {
    if !peers::across_streams() {
        return peer.receive.wait_for_one().Status;
    }
    wait_until_idle();
    peer.receive.take(1).first().map_or(STATUS_CANCELLED, |result| result.Status)
}

/// A Send, a Read of registered memory and a Write to fast-registered memory out of mapped memory.
fn transfers(first: &Adapter, near: &Side, second: &Adapter, peer: &Side) -> Result<(), Stop> {
    const LENGTH: usize = 20_000;
    let none = NDK_OP_FLAGS::empty();
    let (local, remote) = (Buffer::scattered(LENGTH), Buffer::scattered(LENGTH));
    let rights = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
    let near_region = near.domain.create_region(false).map_err(|status| ("CreateMr", status))?;
    check("RegisterMr", near_region.register(&local, rights))?;
    let peer_region = peer.domain.create_region(false).map_err(|status| ("CreateMr", status))?;
    check("RegisterMr", peer_region.register(&remote, rights))?;
    let place = Remote { address: remote.label(), token: peer_region.remote_token() };
    check("Read", near.queue_pair.read(1, &[local.whole(near_region.local_token())], place, none))?;
    near.done()?;

    let mapping = Mapping::build(second, &remote).map_err(|status| ("BuildLAM", status))?;
    let fast = peer.domain.create_region(true).map_err(|status| ("CreateMr", status))?;
    check("InitializeFastRegisterMr", fast.initialize_fast_register(8, true))?;
    let registration = FastRegistration {
        pages: mapping.pages(),
        first_byte_offset: mapping.first_byte_offset(),
        length: LENGTH,
        base: remote.label(),
    };
    let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
    check("FastRegister", peer.queue_pair.fast_register(2, fast.object(), &registration, flags))?;
    peer.done()?;
    let source = Mapping::build(first, &local).map_err(|status| ("BuildLAM", status))?;
    let sge = sge(source.address_of(0), source.first_run(LENGTH), near.domain.privileged_token());
    let place = Remote { address: remote.label(), token: fast.remote_token() };
    check("Write", near.queue_pair.write(3, &[sge], place, none))?;
    near.done()?;
    check("Invalidate", peer.queue_pair.invalidate(4, fast.object(), none))?;
    peer.done()?;

    check("Receive", peer.queue_pair.receive(5, &[remote.whole(peer_region.local_token())]))?;
    check("Send", near.queue_pair.send(6, &[local.whole(near_region.local_token())], none))?;
    near.done()?;
    check("a completion", received(peer))?;
    check("DeregisterMr", near_region.deregister())
}
