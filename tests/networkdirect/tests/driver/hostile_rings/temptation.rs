//! One entry whose flag says by turns that its data stands behind it and that it is elsewhere: memory of another process. Read once, it is
//! either; read twice, it sends that memory.

use super::super::program::*;
use super::guarded::{Guarded, SECRET};
use super::round::SIZES;
use networkdirect::machine::Machine;
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::{InitiatorEntry, OperationFlags, RequestType, Sge};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const ROUNDS: u64 = 120;

pub fn flags_that_change_while_an_entry_is_taken_send_no_other_memory() {
    let machine = Machine::start();
    let neighbour = Program::start(300, 1);
    let (mut guilty, mut peer) = (Program::with(100, 1, SIZES, 64), Program::with(500, 2, SIZES, 64));
    let secret = Guarded::new(&neighbour.nd, neighbour.domain, 4096, SECRET);
    let sink = Guarded::new(&peer.nd, peer.domain, 4096, 0x22);
    for program in [&guilty, &peer] {
        assert_eq!(program.nd.free(QP_FREE, program.pair.handle), Status::SUCCESS);
    }
    for _ in 0..ROUNDS {
        for program in [&mut guilty, &mut peer] {
            let queue = program.queue.handle;
            program.pair = new_pair(&program.nd, program.domain, (queue, queue), SIZES);
        }
        let connectors = connect(&peer, &guilty);
        tempt(&guilty, &secret, &sink);
        sink.assert_no_secrets();
        for (program, connector) in [(&peer, connectors.0), (&guilty, connectors.1)] {
            assert_eq!(program.nd.free(CONNECTOR_FREE, connector), Status::SUCCESS);
            assert_eq!(program.nd.free(QP_FREE, program.pair.handle), Status::SUCCESS);
            program.queue.take(64);
        }
    }
    drop((guilty.close(), peer.close(), neighbour.close()));
    drop((secret, sink));
    machine.finish();
}

fn tempt(guilty: &Program, secret: &Guarded, sink: &Guarded) {
    let head = InitiatorEntry {
        remote_address: sink.region.address(),
        remote_token: sink.region.token,
        ..entry(RequestType::Write, 1, OperationFlags::empty())
    };
    let elsewhere = Sge { address: secret.region.address(), length: 64, token: guilty.region.token };
    guilty.pair.write_entry(head, &[elsewhere], &[]);
    let flags =
        guilty.pair.memory.address() + guilty.pair.layout.initiator.place(0) + offset_of!(InitiatorEntry, flags);
    let (runs, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the ring's memory stays mapped, and the thread ends before it goes.
            let word = unsafe { AtomicU32::from_ptr(flags as *mut u32) };
            while !stop.load(Ordering::Relaxed) {
                word.store(OperationFlags::INLINE.bits(), Ordering::Relaxed);
                word.store(0, Ordering::Relaxed);
                runs.store(true, Ordering::Relaxed);
            }
        });
        while !runs.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let _taken_either_way = guilty.nd.doorbell(guilty.pair.handle);
        stop.store(true, Ordering::Relaxed);
    });
}
