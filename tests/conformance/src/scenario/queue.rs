//! Queues that are made, armed, resized and flushed, shared receive queues with them.

use ndkpi_sys::ndkpi::*;

use super::{Connection, Side, Stop, at, check, open};
use crate::consumer::{Buffer, CompletionQueue, QueuePair, QueuePairShape, SharedReceiveQueue, SharedShape};
use crate::machine::{Setup, wait_until_idle};

pub(super) fn walk(adapters: &[kernel_host::Adapter], setup: &Setup) -> Result<(), Stop> {
    const LENGTH: usize = 4_000;
    let first = open(adapters, setup, 0)?;
    let second = open(adapters, setup, 1)?;
    let near = Side::new(&first)?;
    let peer = Side::new(&second)?;
    let shape = second.fit(QueuePairShape::default());
    let receive = at("CreateCq", CompletionQueue::new(&second, 16))?;
    let initiator = at("CreateCq", CompletionQueue::silent(&second, 16))?;
    let wanted = SharedShape { depth: 8, sges: 1, threshold: 4, silent: false };
    let shared = at("CreateSrq", SharedReceiveQueue::new(&peer.domain, wanted))?;
    let pair = QueuePair::with_shared(&peer.domain, &receive, &initiator, &shared, shape);
    let pair = at("CreateQpWithSrq", pair)?;
    let connection = Connection::new(&first, &near.queue_pair, &second, &pair)?;

    let (local, remote) = (Buffer::scattered(LENGTH), Buffer::scattered(LENGTH));
    let source = at("CreateMr", near.domain.create_region(false))?;
    check("RegisterMr", source.register(&local, NDK_MR_FLAG_ALLOW_LOCAL_WRITE))?;
    let target = at("CreateMr", peer.domain.create_region(false))?;
    check("RegisterMr", target.register(&remote, NDK_MR_FLAG_ALLOW_LOCAL_WRITE))?;
    receive.arm(NDK_CQ_NOTIFY_ANY);
    for request in 0..6 {
        check("SrqReceive", shared.receive(request, &[remote.whole(target.local_token())]))?;
    }
    check("ModifySrq", shared.modify(12, 2))?;
    check("ResizeCq", receive.resize(24))?;
    for request in 0..3 {
        let sge = [local.whole(source.local_token())];
        check("Send", near.queue_pair.send(request, &sge, NDK_OP_FLAGS::empty()))?;
        near.done()?;
        check("a completion", receive.wait_for_one().Status)?;
    }
    check("ResizeCq", receive.resize(8))?;
    pair.flush();
    near.queue_pair.flush();
    wait_until_idle();
    connection.disconnect()
}
