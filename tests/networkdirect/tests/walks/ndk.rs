//! Calls of the dispatch tables, by a consumer at PASSIVE_LEVEL on a machine with one processor: what a service pass does for a call runs
//! in its caller's thread.

use conformance::consumer::{Buffer, End, Pair, QueuePairShape, Window, WindowKind};
use conformance::machine::{Machine, Setup};
use kernel_host::step::{self, Steps};
use kernel_host::{FrameOrder, Mode, irql};
use ndkpi_sys::ndkpi::NDK_OP_FLAGS;

use super::{Recording, Walk, stable};

const NONE: NDK_OP_FLAGS = NDK_OP_FLAGS::empty();

/// More than a post at DISPATCH_LEVEL copies in place.
const LARGE: usize = 68 << 10;

/// Records between two connected ends, each with a buffer.
fn between(record: impl Fn(&End<'_>, &Window<'_>, &End<'_>, &Window<'_>) -> Recording) -> Walk {
    let mut setup = Setup::default();
    setup.kernel.mode = Mode::Fast;
    setup.kernel.processors = 1;
    let machine = Machine::start(&setup);
    let walk = {
        let (here, there) = (machine.open(0), machine.open(1));
        let pair = Pair::connect_with(&here, &there, QueuePairShape::default());
        let (near, far) = (&pair.active, &pair.passive);
        let open = |end| Window::open(end, Buffer::new(LARGE, 0, FrameOrder::Contiguous), WindowKind::Registered);
        let (local, remote) = (open(near), open(far));
        stable(|| Some(record(near, &local, far, &remote)))
    };
    machine.stop();
    walk
}

pub fn small_read() -> Walk {
    between(|near, local, _, remote| {
        let list = local.first_in_sges(8, 1);
        let post = step::count(|| assert_eq!(near.queue_pair.read(1, &list, remote.remote(0), NONE), 0));
        vec![("`NdkRead`", post), ("`NdkGetCqResults`", take(near))]
    })
}

/// In four elements. What its post leaves is done by a service pass when the caller goes below DISPATCH_LEVEL.
pub fn large_read() -> Walk {
    between(|near, local, _, remote| {
        let list = local.first_in_sges(LARGE, 4);
        let post = step::count(|| {
            let level = irql::raise(irql::DISPATCH);
            assert_eq!(near.queue_pair.read(1, &list, remote.remote(0), NONE), 0);
            irql::lower(level);
        });
        vec![("`NdkRead`", post), ("`NdkGetCqResults`", take(near))]
    })
}

pub fn send() -> Walk {
    between(|near, local, far, remote| {
        let (source, sink) = (local.first_in_sges(8, 1), remote.first_in_sges(8, 1));
        let receive = step::count(|| assert_eq!(far.queue_pair.receive(2, &sink), 0));
        let send = step::count(|| assert_eq!(near.queue_pair.send(1, &source, NONE), 0));
        assert_eq!(far.receive.take(1).len(), 1, "the message has come");
        vec![("`NdkReceive`", receive), ("`NdkSend`", send), ("`NdkGetCqResults`", take(near))]
    })
}

/// Takes the result, which is there.
fn take(end: &End<'_>) -> Steps {
    step::count(|| {
        let results = end.initiator.take(1);
        assert!(results.len() == 1 && results[0].Status == 0, "{results:x?}");
    })
}
