//! The asynchronous contract in its three profiles: `force-async`, `force-inline` and `auto`. The other suites run
//! in each profile, too, and check the rest of the contract there.

use kernel_host::schedule;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conformance::case;
use conformance::consumer::completion::{self, Call};
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, Connector, End, Listener, Mapping, Object, Pair, ProtectionDomain, QueuePair,
    QueuePairShape, Remote, SharedEndpoint, Started,
};
use conformance::machine::{Setup, wait_until_idle, with_machine};
use conformance::peers;
use conformance::trial::Case;
use kernel_host::FrameOrder;
use kernel_host::irql;
use kernel_host::memory::pool;
use kernel_host::processor;
use kernel_host::thread::Thread;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::*;

pub const CASES: &[Case] = &[
    case!(everything_that_may_pend_does: "NDK-ASY-1", "NDK-ASY-3", "NDK-ASY-7", "NDK-ASY-8"),
    case!(failures_that_may_come_later_do: "NDK-ASY-4", "NDK-ASY-7"),
    case!(misuse_is_answered_inline_where_everything_pends: "NDK-ASY-1"),
    case!(nothing_pends_that_can_finish_inline: "NDK-ASY-9"),
    case!(nothing_large_pends_where_all_is_inline: "NDK-ASY-9"),
    case!(deep_queues_are_made_at_dispatch_without_being_zeroed: "BUG-7"),
    case!(what_is_large_pends_by_itself: "NDK-ASY-12"),
    case!(only_the_longest_mappings_at_dispatch_pend_by_itself: "NDK-ASY-13", "NDK-ASY-11", "NDK-LAM-1", "NDK-LAM-2"),
    case!(every_mapping_with_a_completion_pends: "NDK-ASY-7", "NDK-ASY-11", "NDK-LAM-1", "NDK-LAM-2"),
    case!(no_mapping_pends_where_all_is_inline: "NDK-ASY-9", "NDK-LAM-1"),
    case!(deepest_queue_holds_what_it_promises: "NDK-ASY-12", "NDK-LIM-1"),
    case!(queue_closed_while_a_queue_pair_is_made_for_it: "NDK-CLOSE-2", "NDK-ASY-6"),
    case!(parent_closed_before_the_childs_completion: "NDK-CLOSE-2", "NDK-ASY-6"),
    case!(object_closed_in_its_create_completion: "NDK-ASY-5", "NDK-CLOSE-4"),
    case!(one_processor_makes_everything_pend_too: "NDK-ASY-7"),
];

const AUTO: &str = "0";
const PENDING: &str = "1";
const INLINE: &str = "2";

/// The usual machine, whatever the environment says about completion mode.
fn setup(completion_mode: &'static str) -> Setup {
    let mut setup = Setup::default();
    for adapter in &mut setup.adapters {
        adapter.keywords.push(("CompletionMode", completion_mode));
    }
    setup
}

fn with_completion_mode(completion_mode: &'static str, trial: impl FnOnce(&Adapter, &Adapter)) {
    with_machine(&setup(completion_mode), |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        trial(&first, &second);
    });
}

/// Every function that may pend, once at least, with nothing in the way of the closes.
fn whole_scenario(first: &Adapter, second: &Adapter) {
    let buffer = Buffer::scattered(20_000);
    let domain = ProtectionDomain::new(first).expect("a protection domain");
    let region = domain.register(&buffer, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    assert_eq!(region.deregister(), 0);
    assert_eq!(region.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE), 0);
    let fast = domain.fast_region(4, true);
    let queue = CompletionQueue::new(first, 10).expect("a completion queue");
    assert_eq!(queue.resize(20), 0);
    let endpoint = SharedEndpoint::new(first, first.address()).expect("a shared endpoint");
    let connector = Connector::new(first).expect("a connector");
    let pair = Pair::connect(first, second);
    let ends = [&pair.active, &pair.passive].map(|end| end.connector().begin_disconnect());
    assert_eq!(ends.map(|end| end.wait()), [0, 0]);
    drop(connector);
    drop(endpoint);
    drop(queue);
    drop(fast);
    drop(region);
    drop(domain);
    drop(pair);
}

#[track_caller]
fn assert_calls(calls: &[Call], right: impl Fn(&Call) -> bool) {
    let wrong: Vec<_> = calls.iter().filter(|call| !right(call)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Makes calls whose callbacks come from another processor than the one that decided. An unbound caller that finds its processor
/// taken goes to a free one in the middle of a call, and the callback may come from where it was before.
fn at_one_processor(calls: impl FnOnce()) {
    processor::bound_to(Thread::current().processor(), calls);
}

fn everything_that_may_pend_does() {
    with_completion_mode(PENDING, |first, second| {
        at_one_processor(|| whole_scenario(first, second));
        let calls = completion::take_calls();
        assert!(calls.len() > 30, "{} calls are no whole scenario", calls.len());
        assert_calls(&calls, |call| call.pended);
        // Connection requests that pend in every mode are completed on the processor of their service pass.
        let prompt = |call: &Call| {
            // A stream goes on to its end by itself, and closes may wait for it.
            let alone = ["NDK_FN_LISTEN", "NDK_PD", "NDK_MR", "NDK_CQ"];
            call.name.starts_with("NDK_FN_CREATE")
                || call.name.contains("REGISTER")
                || alone.contains(&call.name) && !peers::across_streams()
                || call.name == "NDK_FN_RESIZE_CQ"
        };
        let decided: Vec<_> = calls.iter().copied().filter(prompt).collect();
        let least = if peers::across_streams() { 12 } else { 20 };
        assert!(decided.len() > least, "{} calls decided at once", decided.len());
        assert_calls(&decided, |call| call.elsewhere);
    });
}

fn one_processor_makes_everything_pend_too() {
    let mut setup = setup(PENDING);
    setup.kernel.processors = 1;
    with_machine(&setup, |machine| {
        let (first, second) = (machine.open(0), machine.open(1));
        whole_scenario(&first, &second);
        assert_calls(&completion::take_calls(), |call| call.pended && !call.elsewhere);
    });
}

fn failures_that_may_come_later_do() {
    with_completion_mode(PENDING, |first, second| {
        let taken = Listener::new(first).expect("a listener");
        assert_eq!(taken.listen(first.address()), 0);
        let late = Listener::new(first).expect("a listener");
        completion::take_calls();
        at_one_processor(|| {
            assert_eq!(late.listen(taken.local_address()), STATUS_SHARING_VIOLATION);
            assert_eq!(late.listen(second.address()), STATUS_INVALID_ADDRESS);
            assert_eq!(SharedEndpoint::new(first, second.address()).err(), Some(STATUS_INVALID_ADDRESS));
        });
        assert_calls(&completion::take_calls(), |call| call.pended && call.elsewhere);
    });
}

fn misuse_is_answered_inline_where_everything_pends() {
    with_completion_mode(PENDING, |first, _| {
        let info = first.info();
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        let region = domain.create_region(true).expect("a region");
        completion::take_calls();
        let depth = info.MaxCqDepth + 1;
        assert_eq!(CompletionQueue::new(first, depth).err(), Some(STATUS_INVALID_PARAMETER));
        let pages = info.FRMRPageCount + 1;
        assert_eq!(region.initialize_fast_register(pages, true), STATUS_IMPLEMENTATION_LIMIT);
        assert_calls(&completion::take_calls(), |call| !call.pended);
    });
}

/// Bytes that are more than a caller at DISPATCH_LEVEL should wait for.
const LARGE: usize = 5 << 20;

/// The largest queue pair there may be.
fn deepest(adapter: &Adapter) -> QueuePairShape {
    let info = adapter.info();
    QueuePairShape {
        receive_depth: info.MaxReceiveQueueDepth,
        initiator_depth: info.MaxInitiatorQueueDepth,
        receive_sges: info.MaxReceiveRequestSge,
        initiator_sges: info.MaxInitiatorRequestSge,
        inline_size: info.MaxInlineDataSize,
        ..QueuePairShape::default()
    }
}

/// A queue, a queue pair and a region that need as much.
fn large_objects(adapter: &Adapter) {
    let info = adapter.info();
    let queue = CompletionQueue::new(adapter, info.MaxCqDepth).expect("a deep queue");
    let domain = ProtectionDomain::new(adapter).expect("a protection domain");
    let queue_pair = QueuePair::new(&domain, &queue, &queue, deepest(adapter)).expect("a queue pair");
    let buffer = Buffer::new(LARGE, 0, FrameOrder::Contiguous);
    let region = domain.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let mapping = Mapping::build(adapter, &buffer).expect("a mapping");
    drop(mapping);
    // A release cannot say when the memory is unmapped.
    wait_until_idle();
    assert_eq!(region.deregister(), 0);
    assert_eq!(region.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE), 0);
    drop(region);
    drop(queue_pair);
}

/// With the limits that large resources need.
fn with_capacity(completion_mode: &'static str, trial: impl FnOnce(&Adapter)) {
    let mut setup = setup(completion_mode);
    for adapter in &mut setup.adapters {
        adapter.keywords.push(("LimitsProfile", "0"));
    }
    with_machine(&setup, |machine| trial(&machine.open(0)));
}

fn nothing_pends_that_can_finish_inline() {
    with_completion_mode(INLINE, |first, second| {
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        domain.fast_region(4, true);
        let listener = Listener::new(second).expect("a listener");
        assert_eq!(listener.listen(second.address()), 0);
        drop(listener);
        drop(domain);
        // A port that has to be asked of the system is none that can finish inline.
        let pends = |call: &Call| ["NDK_FN_LISTEN", "NDK_LISTENER"].contains(&call.name) && peers::across_streams();
        assert_calls(&completion::take_calls(), |call| !call.pended || pends(call));
    });
}

fn nothing_large_pends_where_all_is_inline() {
    with_capacity(INLINE, |adapter| {
        large_objects(adapter);
        wait_until_idle();
        // The queue pair drains before it is closed.
        assert_calls(&completion::take_calls(), |call| !call.pended || call.name == "NDK_QP");
    });
}

/// The greatest of everything that has queues, inline, by a caller at DISPATCH_LEVEL: none of their memory is written to.
fn deep_queues_are_made_at_dispatch_without_being_zeroed() {
    const LITTLE: usize = 64 << 10;
    with_capacity(INLINE, |adapter| {
        let info = adapter.info();
        let domain = ProtectionDomain::new(adapter).expect("a protection domain");
        let shape = deepest(adapter);
        completion::calling_at_dispatch(|| {
            let queue = CompletionQueue::new(adapter, info.MaxCqDepth).expect("a deep queue");
            assert_eq!(queue.resize(info.MaxCqDepth / 2), 0);
            QueuePair::new(&domain, &queue, &queue, shape).expect("a queue pair");
        });
        let most = pool::most_zeroes_at_dispatch();
        assert!(most > 0 && most <= LITTLE, "{most} bytes zeroed at DISPATCH_LEVEL");
    });
}

fn what_is_large_pends_by_itself() {
    with_capacity(AUTO, |adapter| {
        large_objects(adapter);
        let large = ["NDK_FN_CREATE_CQ", "NDK_FN_CREATE_QP", "NDK_FN_REGISTER_MR", "NDK_FN_DEREGISTER_MR", "NDK_MR"];
        let small = ["NDK_FN_CREATE_PD", "NDK_FN_CREATE_MR"];
        let calls = completion::take_calls();
        assert_calls(&calls, |call| call.pended || !large.contains(&call.name));
        assert_calls(&calls, |call| !call.pended || !small.contains(&call.name));
        let queue = CompletionQueue::new(adapter, 64).expect("a completion queue");
        completion::take_calls();
        assert_eq!(queue.resize(adapter.info().MaxCqDepth), 0);
        assert_eq!(queue.resize(64), 0);
        let calls: Vec<_> = completion::take_calls().iter().map(|call| call.pended).collect();
        assert_eq!(calls, [true, false]);
    });
}

/// The longest mapping that every caller gets inline.
const LONG: usize = 64 << 20;

fn is_whole(mapping: &Mapping<'_>, buffer_offset: usize, length: usize) {
    assert_eq!(mapping.first_byte_offset() as usize, buffer_offset);
    assert_eq!(mapping.pages().len(), (buffer_offset + length).div_ceil(4096));
    let pages = mapping.pages();
    // Up where they adjoin, down where they are scattered.
    let distance = pages[1].wrapping_sub(pages[0]);
    let in_order = pages.windows(2).all(|two| two[1].wrapping_sub(two[0]) == distance);
    assert!(distance.cast_signed().abs() == 4096 && in_order, "{pages:#x?}");
    assert!(pages[0].is_multiple_of(4096), "{pages:#x?}");
}

/// BuildLAM of several sizes at every level, with a completion, with one without a context, and without: what is built is the
/// same, and it pends only with a completion and where `pends` says so of length and level.
fn mappings_pend(completion_mode: &'static str, pends: fn(usize, u8) -> bool) {
    with_capacity(completion_mode, |adapter| {
        let scattered = [5000, LARGE].map(Buffer::scattered);
        let long = [LONG, LONG + 1].map(|length| Buffer::new(length, 0, FrameOrder::Contiguous));
        for (buffer, offset) in scattered.iter().map(|buffer| (buffer, 1016)).chain(long.iter().map(|long| (long, 0))) {
            let length = buffer.length();
            for level in [irql::PASSIVE, irql::APC, irql::DISPATCH] {
                let (answer, built) = completion::calling_at(level, || Mapping::build_with_completion(adapter, buffer));
                assert_eq!(answer == STATUS_PENDING, pends(length, level), "{length} bytes at level {level}");
                is_whole(&built.expect("a mapping"), offset, length);
                let built = completion::calling_at(level, || Mapping::build(adapter, buffer));
                is_whole(&built.expect("a mapping without a completion"), offset, length);
                if !pends(length, level) {
                    let built = completion::calling_at(level, || Mapping::build_without_context(adapter, buffer));
                    is_whole(&built.expect("a mapping without a context"), offset, length);
                }
            }
        }
    });
}

fn only_the_longest_mappings_at_dispatch_pend_by_itself() {
    mappings_pend(AUTO, |length, level| length > LONG && level == irql::DISPATCH);
}

fn every_mapping_with_a_completion_pends() {
    mappings_pend(PENDING, |_, _| true);
}

fn no_mapping_pends_where_all_is_inline() {
    mappings_pend(INLINE, |_, _| false);
}

fn deepest_queue_holds_what_it_promises() {
    with_completion_mode(AUTO, |first, second| {
        let deep = CompletionQueue::new(first, first.info().MaxCqDepth).expect("a deep queue");
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        let queue_pair = QueuePair::new(&domain, &deep, &deep, QueuePairShape::default()).expect("a queue pair");
        let active = End {
            connector: None,
            queue_pair,
            initiator: deep,
            receive: CompletionQueue::new(first, 1).expect("a completion queue"),
            domain,
            adapter: first,
        };
        let pair = Pair::join(active, End::new(second, QueuePairShape::default()), first.address(), second.address());
        let nowhere = Remote { address: 0, token: 0 };
        for request in 0..100 {
            assert_eq!(pair.active.queue_pair.read(request, &[], nowhere, NDK_OP_FLAGS::empty()), 0);
            assert_eq!(pair.active.initiator.wait_for_one().RequestContext as u64, request);
        }
    });
}

fn queue_closed_while_a_queue_pair_is_made_for_it() {
    with_capacity(AUTO, |adapter| {
        let info = adapter.info();
        let queue = CompletionQueue::new(adapter, 64).expect("a completion queue");
        let domain = ProtectionDomain::new(adapter).expect("a protection domain");
        let shape = QueuePairShape {
            receive_depth: info.MaxReceiveQueueDepth,
            receive_sges: info.MaxReceiveRequestSge,
            ..QueuePairShape::default()
        };
        let creating = QueuePair::begin_create(&domain, &queue, &queue, shape);
        assert_eq!(creating.started().inline(), STATUS_PENDING);
        let closing = queue.object().begin_close();
        assert_eq!(closing.inline(), STATUS_PENDING);
        let queue_pair = QueuePair::adopt(&domain, creating).expect("a queue pair");
        wait_until_idle();
        assert!(!closing.is_done(), "the queue closed before the queue pair that uses it");
        queue_pair.close();
        closing.wait();
    });
}

fn parent_closed_before_the_childs_completion() {
    with_completion_mode(PENDING, |first, _| {
        let domain = ProtectionDomain::new(first).expect("a protection domain");
        let before = irql::raise(2);
        let creating = domain.begin_create_region(false);
        let closing = domain.object().begin_close();
        irql::lower(before);
        assert_eq!((creating.started().inline(), closing.inline()), (STATUS_PENDING, STATUS_PENDING));
        let region = Object::<NDK_MR>::adopt(creating.finish().expect("a region"), first.version());
        wait_until_idle();
        assert!(!closing.is_done(), "the domain closed before the region in it");
        region.close();
        closing.wait();
    });
}

fn object_closed_in_its_create_completion() {
    with_completion_mode(PENDING, |first, _| {
        let version = first.version();
        let inside: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let closing: &OnceLock<Started> = Box::leak(Box::new(OnceLock::new()));
        let reaction = move |status, object: *mut NDK_OBJECT_HEADER| {
            assert_eq!(status, 0);
            inside.store(true, Ordering::SeqCst);
            let domain = Object::<NDK_PD>::adopt(object.cast(), version);
            let started = completion::reacting(
                |_, _| assert!(!inside.load(Ordering::SeqCst), "closed before the create's completion returned"),
                || domain.begin_close(),
            );
            assert_eq!(started.inline(), STATUS_PENDING, "the close cannot be over before this callback is");
            // Time for another processor to do what it should not, on a busy machine too.
            schedule::linger(Duration::from_millis(200));
            assert!(!started.is_done());
            inside.store(false, Ordering::SeqCst);
            assert!(closing.set(started).is_ok());
        };
        let creating = completion::reacting(reaction, || ProtectionDomain::begin_create(first));
        creating.finish().expect("a protection domain");
        closing.get().expect("a close").wait();
    });
}
