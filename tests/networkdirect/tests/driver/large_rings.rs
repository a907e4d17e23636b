//! Rings of megabytes, whose memory is taken back where time is short.

use super::program::*;
use kernel_host::irql;
use networkdirect::machine::{Machine, ip, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::{QueueLayout, QueueSizes};

pub const CASES: &[Case] = cases![large_rings_that_are_cancelled_at_dispatch_level_are_unmapped_by_a_thread];

/// With one processor no other thread takes a lock while this one is at DISPATCH_LEVEL.
fn large_rings_that_are_cancelled_at_dispatch_level_are_unmapped_by_a_thread() {
    let machine = Machine::with_one_processor();
    let nd = Nd::start(7);
    let adapter = nd.open_adapter(ip(1));
    let domain = nd.create(PD_CREATE, adapter);
    let queue = nd.create_queue(adapter, 16).expect("a queue");
    let limits = nd.query(adapter);
    let deep = QueueSizes {
        initiator_depth: limits.max_initiator_queue_depth,
        initiator_sges: limits.max_initiator_sge,
        inline_data: limits.max_inline_data_size,
        receive_depth: limits.max_receive_queue_depth,
        receive_sges: limits.max_receive_sge,
    };
    for (sizes, large) in [(SIZES, false), (deep, true)] {
        assert_eq!(QueueLayout::new(sizes).unwrap().length > 4 << 20, large);
        let pair = new_pair(&nd, domain, (queue, queue), sizes);
        let level = irql::raise(irql::DISPATCH);
        assert!(pair.attach.cancel());
        let ended = pair.attach.is_completed();
        irql::lower(level);
        assert_eq!(ended, !large, "the request of rings of {} bytes", pair.memory.len());
        assert_eq!(status(&pair.attach), Status::CANCELLED);
        rest();
        assert_eq!(nd.free(QP_FREE, pair.handle), Status::SUCCESS);
    }
    // At PASSIVE_LEVEL the caller has the time.
    let pair = new_pair(&nd, domain, (queue, queue), deep);
    assert_eq!(nd.free(QP_FREE, pair.handle), Status::SUCCESS);
    assert_eq!(status_now(&pair.attach), Status::SUCCESS);
    drop(pair);
    nd.close();
    machine.finish();
}
