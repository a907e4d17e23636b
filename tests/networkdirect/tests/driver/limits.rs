//! What one process may have: limits of the registry, charged to the process, and a process that has all of it and is killed.

use super::others::{AWAY, Longest, others, polling_with, work};
use super::program::*;
use kernel_host::interruption::preempted;
use kernel_host::io::{PendingIrp, file};
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::schedule;
use networkdirect::machine::{Machine, across_streams, address, ip, rest};
use networkdirect::{cases, cases::Case, refusals};
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::*;
use softndk_ioctl::nd::rings::QueueSizes;
use softndk_ioctl::{
    AdapterEntry, AdapterListReply, AdapterListRequest, NdkCall, ObjectSummaryReply, ObjectSummaryRequest,
    ProcessLimits, RefusalCause, Request, RequestHeader, Status,
};
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    a_process_makes_so_many_objects,
    the_files_of_a_process_have_one_account,
    queues_are_charged_with_their_pool,
    a_queue_that_is_made_longer_is_charged,
    connectors_of_streams_are_charged_with_buffers,
    connectors_of_loopback_are_charged_without,
    a_stream_is_small_until_it_is_accepted,
    memory_is_charged_while_it_is_locked,
    requests_are_charged_while_they_pend,
    values_out_of_range_are_replaced,
    the_limits_are_shown,
    a_process_with_all_that_it_may_have_is_killed_at_200_points,
];

const QUOTA_EXCEEDED: Status = Status(0xC000_0044_u32.cast_signed());

fn control() -> file::File {
    let access = kernel_host::io::GENERIC_READ | kernel_host::io::GENERIC_WRITE;
    file::open(softndk_ioctl::WIN32_DEVICE_NAME, access, file::Opener::default()).expect("the control device opens")
}

/// Objects and pool that there are.
fn summary() -> ObjectSummaryReply {
    let (file, mut output) = (control(), vec![0; size_of::<ObjectSummaryReply>()]);
    let head = RequestHeader::of::<ObjectSummaryRequest>();
    file.ioctl(ObjectSummaryRequest::CODE, head.as_bytes(), &mut output);
    file.close();
    ObjectSummaryReply::read_from_bytes(&output).expect("a whole answer")
}

#[track_caller]
fn is_refused_for(process: u32, cause: RefusalCause) {
    let refusal = refusals::kept().pop().expect("something was refused");
    let found = (refusal.call, refusal.cause, refusal.status(), refusal.object);
    assert_eq!(found, (NdkCall::NETWORK_DIRECT, cause, QUOTA_EXCEEDED, u64::from(process)));
}

/// Makes domains until that is refused; they.
fn domains(nd: &Nd, adapter: u64) -> (Vec<u64>, Status) {
    let mut made = Vec::new();
    loop {
        match nd.try_ask::<u64>(PD_CREATE, &handle(adapter)) {
            Ok(domain) => made.push(domain),
            Err(status) => return (made, status),
        }
    }
}

fn a_process_makes_so_many_objects() {
    let machine = Machine::with(&[("NetworkDirectObjects", "41")]);
    let (nd, other) = (Nd::start(104), Nd::start(208));
    let adapter = nd.open_adapter(ip(1));
    let (made, status) = domains(&nd, adapter);
    // Beside the file, the context and the adapter.
    assert_eq!((made.len(), status), (38, QUOTA_EXCEEDED));
    is_refused_for(104, RefusalCause::QUOTA_OBJECTS);
    assert_eq!(open_as(kernel_host::io::Caller::Administrator, 104).err(), Some(QUOTA_EXCEEDED.0));
    // Others have limits of their own, and what is freed may be made again.
    let theirs = other.open_adapter(ip(1));
    assert_eq!(domains(&other, theirs).0.len(), 38);
    assert_eq!(nd.free(PD_FREE, made[7]), Status::SUCCESS);
    nd.create(PD_CREATE, adapter);
    assert_eq!(domains(&nd, adapter).0.len(), 0);
    nd.close();
    // The next process with this number begins anew.
    let nd = Nd::start(104);
    let adapter = nd.open_adapter(ip(1));
    assert_eq!(domains(&nd, adapter).0.len(), 38);
    nd.close();
    other.close();
    machine.finish();
}

fn the_files_of_a_process_have_one_account() {
    let machine = Machine::with(&[("NetworkDirectObjects", "41")]);
    // Of one list with another process, which goes first.
    let (early, nd, late) = (Nd::start(104 + 256), Nd::start(104), Nd::start(104 + 512));
    let second = Nd::start(104);
    early.close();
    let adapter = nd.open_adapter(ip(1));
    let theirs = second.open_adapter(ip(2));
    assert_eq!(domains(&nd, adapter).0.len(), 41 - 6);
    assert_eq!(domains(&second, theirs), (Vec::new(), QUOTA_EXCEEDED));
    // The first file is closed, and the account stays.
    nd.close();
    assert_eq!(domains(&second, theirs).0.len(), 38);
    late.close();
    second.close();
    machine.finish();
}

fn queues_are_charged_with_their_pool() {
    let machine = Machine::with(&[("NetworkDirectPoolMiB", "40")]);
    let nd = Nd::start(104);
    let adapter = nd.open_adapter(ip(1));
    let domain = nd.create(PD_CREATE, adapter);
    let queue = nd.create_queue(adapter, 16).expect("a queue");
    let limits = nd.query(adapter);
    let before = summary().pool_bytes;
    for sges in [1, limits.max_initiator_sge] {
        let sizes = QueueSizes {
            initiator_depth: limits.max_initiator_queue_depth,
            initiator_sges: sges,
            inline_data: limits.max_inline_data_size,
            receive_depth: limits.max_receive_queue_depth,
            receive_sges: sges,
        };
        let mut pairs = Vec::new();
        let refused = loop {
            match try_create_pair(&nd, domain, (queue, queue), sizes, 0) {
                Ok(pair) => pairs.push(pair),
                Err(status) => break status,
            }
        };
        assert_eq!(refused, QUOTA_EXCEEDED);
        is_refused_for(104, RefusalCause::QUOTA_POOL);
        let taken = summary().pool_bytes - before;
        println!("{} queue pairs with {sges} elements a request take {taken} bytes", pairs.len());
        assert!(!pairs.is_empty() && taken <= 41 << 20, "{taken} bytes of pool");
        assert!(taken / pairs.len() as u64 * (pairs.len() as u64 + 1) > 36 << 20, "charged with more than they take");
        for pair in pairs {
            assert_eq!(nd.free(QP_FREE, pair), Status::SUCCESS);
        }
    }
    nd.close();
    machine.finish();
}

fn a_queue_that_is_made_longer_is_charged() {
    let machine = Machine::with(&[("NetworkDirectPoolMiB", "3")]);
    let nd = Nd::start(104);
    let adapter = nd.open_adapter(ip(1));
    let depth = nd.query(adapter).max_completion_queue_depth;
    let queues = [(); 2].map(|()| nd.create_queue(adapter, 16).expect("a queue"));
    let longer = |handle| {
        nd.call(
            CQ_MODIFY,
            &ModifyCompletionQueue { version: VERSION, queue_depth: depth, handle, ..ModifyCompletionQueue::default() },
        )
    };
    assert_eq!(longer(queues[0]), Status::SUCCESS);
    assert_eq!(longer(queues[1]), QUOTA_EXCEEDED);
    is_refused_for(104, RefusalCause::QUOTA_POOL);
    assert_eq!(nd.create_queue(adapter, depth), Err(QUOTA_EXCEEDED));
    assert_eq!(nd.free(CQ_FREE, queues[0]), Status::SUCCESS);
    assert_eq!(longer(queues[1]), Status::SUCCESS);
    assert_eq!(nd.free(CQ_FREE, queues[1]), Status::SUCCESS);
    shared_queues_are_charged(&nd, adapter);
    nd.close();
    machine.finish();
}

/// Pool of one end of a connection over a stream, at most.
const STREAM: u64 = 736 << 10;

/// How many connectors can be made of three mebibytes.
fn connectors_of_three_mebibytes(transport: &'static str) -> usize {
    let machine = Machine::with(&[("Transport", transport), ("NetworkDirectPoolMiB", "3")]);
    let nd = Nd::start(104);
    let adapter = nd.open_adapter(ip(1));
    let create = || nd.try_ask::<u64>(CONNECTOR_CREATE, &handle(adapter));
    let made: Vec<_> = iter::from_fn(|| create().ok()).collect();
    is_refused_for(104, RefusalCause::QUOTA_POOL);
    assert_eq!(nd.free(CONNECTOR_FREE, made[0]), Status::SUCCESS);
    assert!(create().is_ok());
    nd.close();
    machine.finish();
    made.len()
}

fn connectors_of_streams_are_charged_with_buffers() {
    assert_eq!(connectors_of_three_mebibytes("1"), 4);
}

fn connectors_of_loopback_are_charged_without() {
    assert!(connectors_of_three_mebibytes("0") > 1500);
}

/// What a peer takes of this machine's pool is a start-up frame, unless a consumer accepts.
fn a_stream_is_small_until_it_is_accepted() {
    let machine = Machine::with(&[("Transport", "2")]);
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let listener = server.listen(5000, 0);
    let (theirs, ours) = (server.connector(), client.connector());
    let arriving = server.get_request(listener, theirs);
    assert_eq!(client.bind(CONNECTOR_BIND, ours, address(2, 0)), Status::SUCCESS);
    let before = summary().pool_bytes;
    let connecting = client.connect(ours, address(1, 5000), b"");
    assert_eq!(status(&arriving), Status::SUCCESS);
    let asked = summary().pool_bytes - before;
    let accepting = server.accept(theirs, b"");
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
    assert_eq!(status(&accepting), Status::SUCCESS);
    let accepted = summary().pool_bytes - before - asked;
    println!("{asked} bytes of pool for both ends of a request, {accepted} more from the acceptance on");
    assert!(asked <= STREAM + (16 << 10), "{asked} bytes for a request");
    assert!((STREAM / 2..STREAM).contains(&accepted), "{accepted} bytes for an acceptance");
    drop(server.close());
    drop(client.close());
    machine.finish();
}

/// One of all its adapter's depth fits, and not a second one that begins short.
fn shared_queues_are_charged(nd: &Nd, adapter: u64) {
    let (depth, domain) = (nd.query(adapter).max_shared_receive_queue_depth, nd.create(PD_CREATE, adapter));
    let queues = [(); 2].map(|()| {
        let asked = CreateSharedReceiveQueue {
            version: VERSION,
            queue_depth: 16,
            max_request_sge: 4,
            domain,
            ..CreateSharedReceiveQueue::default()
        };
        nd.ask::<ResourceDescriptor>(SRQ_CREATE, &asked).handle
    });
    let longer = |handle| {
        let asked = ModifySharedReceiveQueue { version: VERSION, queue_depth: depth, handle, ..Default::default() };
        nd.call(SRQ_MODIFY, &asked)
    };
    assert_eq!(longer(queues[0]), Status::SUCCESS);
    assert_eq!(longer(queues[1]), QUOTA_EXCEEDED);
    is_refused_for(104, RefusalCause::QUOTA_POOL);
    for queue in queues {
        assert_eq!(nd.free(SRQ_FREE, queue), Status::SUCCESS);
    }
}

fn memory_is_charged_while_it_is_locked() {
    let machine = Machine::with(&[("NetworkDirectLockedMiB", "1")]);
    let nd = Nd::start(104);
    let adapter = nd.open_adapter(ip(1));
    let domain = nd.create(PD_CREATE, adapter);
    let try_region = |length| Region::try_register(&nd, domain, UserBuffer::new(length), REMOTE_WRITE).ok();
    let whole = try_region(1 << 20).expect("all that it may have");
    let region = nd.create(MR_CREATE, domain);
    for (code, length) in [(LOCK_FOR_WRITING, 1), (LOCK_FOR_READING, 4096)] {
        let memory = UserBuffer::new(length);
        let refused = nd.lend(code, &LockMemory { version: VERSION, reserved: 0, region }, &memory).err();
        assert_eq!(refused, Some(QUOTA_EXCEEDED));
        is_refused_for(104, RefusalCause::QUOTA_LOCKED);
    }
    let queue = nd.create_queue(adapter, 16).expect("a queue");
    assert_eq!(Queue::try_attach(&nd, queue, 16).err(), Some(QUOTA_EXCEEDED), "rings are locked, too");
    assert_eq!(nd.free(MR_FREE, whole.handle), Status::SUCCESS);
    assert_eq!(status(&whole.lock), Status::SUCCESS);
    // A page that is used in part is locked as a whole.
    let parts: Vec<_> = iter::from_fn(|| try_region(1)).collect();
    assert_eq!(parts.len(), 256);
    nd.close();
    drop(parts);
    machine.finish();
}

fn requests_are_charged_while_they_pend() {
    let machine = Machine::with(&[("NetworkDirectRequests", "17")]);
    let nd = Nd::start(104);
    let adapter = nd.open_adapter(ip(1));
    let queue = nd.queue(adapter, 16);
    let waiting: Vec<_> = (0..16).map(|_| nd.notify(&queue, 1)).collect();
    assert!(!waiting.iter().any(PendingIrp::is_completed));
    assert_eq!(status_now(&nd.notify(&queue, 1)), QUOTA_EXCEEDED);
    is_refused_for(104, RefusalCause::QUOTA_REQUESTS);
    assert!(waiting[3].cancel());
    assert_eq!(status(&waiting[3]), Status::CANCELLED);
    let next = nd.notify(&queue, 1);
    assert!(!next.is_completed());
    nd.close();
    drop((waiting, next, queue));
    machine.finish();
}

fn values_out_of_range_are_replaced() {
    let machine = Machine::with(&[("NetworkDirectObjects", "15"), ("NetworkDirectRequests", "1048577")]);
    let nd = Nd::start(104);
    let adapter = nd.open_adapter(ip(1));
    for _ in 0..100 {
        nd.create(PD_CREATE, adapter);
    }
    nd.close();
    machine.finish();
}

fn the_limits_are_shown() {
    let machine = Machine::with(&[
        ("NetworkDirectObjects", "1111"),
        ("NetworkDirectPoolMiB", "222"),
        ("NetworkDirectLockedMiB", "33"),
        ("NetworkDirectRequests", "4444"),
    ]);
    let (file, mut output) = (control(), vec![0; 4096]);
    let head = RequestHeader::of::<AdapterListRequest>();
    file.ioctl(AdapterListRequest::CODE, head.as_bytes(), &mut output);
    file.close();
    let (_, entries) = AdapterListReply::read_from_prefix(&output).unwrap();
    let (entry, _) = AdapterEntry::read_from_prefix(entries).unwrap();
    let expected = ProcessLimits { objects: 1111, pool_mib: 222, locked_mib: 33, requests: 4444 };
    assert_eq!(entry.process_limits, expected);
    machine.finish();
}

/// A process with all that it may have of everything.
struct Victim {
    program: Program,
    _parts: (Vec<Region>, Vec<PendingIrp>, Vec<PendingIrp>),
}

impl Victim {
    fn start() -> Self {
        let program = Program::start(104, 1);
        let nd = &program.nd;
        let regions =
            iter::from_fn(|| Region::try_register(nd, program.domain, UserBuffer::new(65_536), REMOTE_WRITE).ok());
        let regions: Vec<_> = regions.collect();
        let listener = program.listen(0, 8);
        let arriving: Vec<_> = (0..4).map(|_| program.get_request(listener, program.connector())).collect();
        let deep = QueueSizes { initiator_depth: 1024, receive_depth: 1024, ..SIZES };
        let queues = (program.queue.handle, program.queue.handle);
        while try_create_pair(nd, program.domain, queues, deep, 0).is_ok() {}
        program.pair.receive(nd, 1, &[program.region.sge(0, 64)]);
        let mut waiting = Vec::new();
        loop {
            let notify = nd.notify(&program.queue, 1);
            if notify.is_completed() {
                assert_eq!(status(&notify), QUOTA_EXCEEDED);
                break;
            }
            waiting.push(notify);
        }
        assert_eq!(domains(nd, program.adapter).1, QUOTA_EXCEEDED);
        Self { program, _parts: (regions, arriving, waiting) }
    }

    /// Goes on making, freeing and posting until it is dead.
    fn live(&self, dead: &AtomicBool) {
        let (nd, pair) = (&self.program.nd, &self.program.pair);
        let steps: &[&dyn Fn() -> Status] = &[
            &|| nd.free(MR_FREE, self.program.region.handle),
            &|| nd.call(PD_CREATE, &handle(self.program.adapter)),
            &|| {
                pair.write_receive(2, &[]);
                nd.doorbell(pair.handle)
            },
            &|| nd.call(CQ_CANCEL_IO, &handle(self.program.queue.handle)),
            &|| nd.try_ask::<u64>(CONNECTOR_CREATE, &handle(self.program.adapter)).err().unwrap_or(Status::SUCCESS),
            &|| if nd.notify(&self.program.queue, 1).is_completed() { QUOTA_EXCEEDED } else { Status::SUCCESS },
            &|| nd.free(QP_FREE, pair.handle),
            &|| nd.call(PROVIDER_QUERY_ADDRESS_LIST, &handle(0)),
        ];
        for step in steps {
            // Whatever it answers: the process may be dead by then.
            if !dead.load(Ordering::SeqCst) {
                let _answer = step();
            }
        }
    }
}

/// At each point the thread of the process is away, others go on, and then it is killed there.
fn a_process_with_all_that_it_may_have_is_killed_at_200_points() {
    if schedule::is_on() {
        return;
    }
    let limits = [
        ("NetworkDirectObjects", "48"),
        // Four connectors across streams take half of it.
        ("NetworkDirectPoolMiB", if across_streams() { "3" } else { "2" }),
        ("NetworkDirectLockedMiB", "1"),
        ("NetworkDirectRequests", "64"),
    ];
    let machine = polling_with(&limits);
    let (theirs, ours) = others();
    let longest = Longest::default();
    let objects = |of: &ObjectSummaryReply| {
        let all = [of.ndk_adapters, of.completion_queues, of.protection_domains, of.memory_regions, of.queue_pairs];
        (all, of.listeners, of.connectors, of.shared_endpoints)
    };
    let before = summary();
    for point in 0..200 {
        let victim = Victim::start();
        let dead = AtomicBool::new(false);
        let kill = || {
            longest.time(|| work(&theirs, &ours));
            dead.store(true, Ordering::SeqCst);
            victim.program.nd.file.close_now();
        };
        assert!(preempted(point, AWAY, kill, || victim.live(&dead)), "the process has no point {point}");
        longest.time(|| work(&theirs, &ours));
        rest();
        let after = summary();
        assert_eq!(objects(&after), objects(&before), "left behind at point {point}");
        assert!(
            after.pool_bytes <= before.pool_bytes + (64 << 10),
            "point {point}: {} bytes more",
            after.pool_bytes - before.pool_bytes
        );
        drop(victim);
    }
    longest.check("others beside a process with all that it may have", 200);
    drop([theirs, ours].map(Program::close));
    machine.finish();
}
