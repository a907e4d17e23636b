//! Every allocation and every mapping of what two programs do made to fail once: the request that needed it fails as documented, the programs
//! go on without it, the same works right afterwards, and nothing is left.
//!
//! The sites are found by running the scenario once while the host records them; what a failing path reaches for the first time is added.
//! Each is failed at its first hit, with SOFTNDK_ALL_FAULTS at its last one, too, on a freshly loaded driver.

use super::program::*;
use kernel_host::fault::{self, Site};
use kernel_host::image::stack_trace;
use kernel_host::io::PendingIrp;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::{Machine, across_streams, address, ip, pass};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{BIND_WINDOW, BindWindow, BindWindowReply};
use softndk_ioctl::nd::rings::{OperationFlags, QueueLayout, QueueSizes, RequestType, ResultEntry};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

pub const CASES: &[Case] = cases![every_allocation_of_two_programs_fails_once];

/// A step that did not succeed, and its status.
type Failure = (&'static str, Status);

/// No step waits longer than that for a peer that ran short.
const PATIENCE: Duration = Duration::from_secs(30);
const LARGE: usize = (4 << 20) + 4096;

#[derive(Default)]
struct Steps(Vec<Failure>);

impl Steps {
    fn done(&mut self, step: &'static str, status: Status) -> Option<()> {
        self.take(step, if status == Status::SUCCESS { Ok(()) } else { Err(status) })
    }

    fn take<T>(&mut self, step: &'static str, result: Result<T, Status>) -> Option<T> {
        result.map_err(|status| self.0.push((step, status))).ok()
    }

    /// A request that pends until something happens.
    fn ended(&mut self, step: &'static str, request: &PendingIrp) -> Option<()> {
        let status = request.wait_for(PATIENCE).map_or(Status::IO_TIMEOUT, |result| Status(result.status));
        request.cancel();
        self.done(step, status)
    }
}

/// What a program has of a queue in shared memory; it goes behind the file.
#[derive(Default)]
struct Parts {
    adapter: u64,
    domain: u64,
    queue: Option<Queue>,
    pair: Option<Pair>,
    region: Option<Region>,
}

fn parts(steps: &mut Steps, nd: &Nd, host: u8, parts: &mut Parts) -> Option<()> {
    let asked = ResolveAddress { version: VERSION, reserved: 0, address: socket(SocketAddr::new(ip(host), 0)) };
    let adapter_id: u64 = steps.take("resolve", nd.try_ask(PROVIDER_RESOLVE_ADDRESS, &asked))?;
    let asked = OpenAdapter { version: VERSION, adapter_id, ..OpenAdapter::default() };
    parts.adapter = steps.take("open adapter", nd.try_ask::<ResourceDescriptor>(ADAPTER_OPEN, &asked))?.handle;
    parts.domain = steps.take("domain", nd.try_ask(PD_CREATE, &handle(parts.adapter)))?;
    let queue = steps.take("queue", nd.create_queue(parts.adapter, 64))?;
    parts.queue = Some(steps.take("attach queue", Queue::try_attach(nd, queue, 64))?);
    let pair = try_create_pair(nd, parts.domain, (queue, queue), SIZES, PAIR_CONTEXT);
    let pair = steps.take("pair", pair)?;
    let memory = UserBuffer::new(QueueLayout::new(SIZES).expect("a layout").length);
    parts.pair = Some(steps.take("attach pair", Pair::try_attach(nd, pair, SIZES, memory))?);
    let flags = REMOTE_WRITE | REMOTE_READ;
    let region = Region::try_register(nd, parts.domain, UserBuffer::new(65_536), flags);
    parts.region = Some(steps.take("region", region)?);
    Some(())
}

/// A program with all that it needs, if it gets that.
fn program(steps: &mut Steps, process: u32, host: u8) -> Option<Program> {
    let nd = steps.take("open", Nd::try_start(process))?;
    let mut made = Parts::default();
    if parts(steps, &nd, host, &mut made).is_none() {
        nd.close();
        return None;
    }
    let Parts { adapter, domain, queue, pair, region } = made;
    Some(Program { nd, adapter, domain, queue: queue?, pair: pair?, region: region?, host })
}

/// Makes and frees what does not need a connection: a shared receive queue, a window, a resized queue, large memory, requests that pend.
fn alone(steps: &mut Steps, program: &mut Program) {
    let nd = &program.nd;
    let sizes = QueueSizes { receive_depth: 16, receive_sges: 2, ..QueueSizes::default() };
    let asked = CreateSharedReceiveQueue {
        version: VERSION,
        queue_depth: 16,
        max_request_sge: 2,
        notify_threshold: 4,
        domain: program.domain,
        ..CreateSharedReceiveQueue::default()
    };
    if let Some(made) = steps.take("shared queue", nd.try_ask::<ResourceDescriptor>(SRQ_CREATE, &asked)) {
        let memory = UserBuffer::new(QueueLayout::new(sizes).expect("a layout").length);
        let shared = steps.take("attach shared queue", Pair::try_attach(nd, made.handle, sizes, memory));
        let told = nd.begin(SRQ_NOTIFY, &handle(made.handle));
        steps.ended("shared queue notify", &told);
        steps.done("free shared queue", nd.free(SRQ_FREE, made.handle));
        drop(shared);
    }
    let waiting = nd.notify(&program.queue, 1);
    if waiting.is_completed() {
        steps.done("notify", status(&waiting));
    }
    steps.done("cancel notify", nd.free(CQ_CANCEL_IO, program.queue.handle));
    let asked = ModifyCompletionQueue {
        version: VERSION,
        queue_depth: 100,
        handle: program.queue.handle,
        ..ModifyCompletionQueue::default()
    };
    if steps.done("resize", nd.call(CQ_MODIFY, &asked)).is_some()
        && let Some(new) = steps.take("attach again", Queue::try_attach(nd, program.queue.handle, 100))
    {
        drop(std::mem::replace(&mut program.queue, new));
    }
    let large = Region::try_register(nd, program.domain, UserBuffer::new(LARGE), LOCAL_WRITE);
    if let Some(region) = steps.take("large region", large) {
        let ending = nd.begin(MR_DEREGISTER, &handle(region.handle));
        steps.ended("deregister", &ending);
        steps.ended("large memory", &region.lock);
        steps.done("free region", nd.free(MR_FREE, region.handle));
    }
}

/// Connects; the connectors of both.
fn connected(steps: &mut Steps, server: &Program, client: &Program) -> Option<(u64, u64)> {
    let connector = |steps: &mut Steps, program: &Program| {
        steps.take("connector", program.nd.try_ask(CONNECTOR_CREATE, &handle(program.adapter)))
    };
    let (theirs, ours) = (connector(steps, server)?, connector(steps, client)?);
    let listener: u64 = steps.take("listener", server.nd.try_ask(LISTENER_CREATE, &handle(server.adapter)))?;
    steps.done("bind listener", server.bind(LISTENER_BIND, listener, address(server.host, 5000)))?;
    let asked = Listen { version: VERSION, backlog: 2, listener };
    steps.done("listen", server.nd.call(LISTENER_LISTEN, &asked))?;
    let arriving = server.get_request(listener, theirs);
    steps.done("bind connector", client.bind(CONNECTOR_BIND, ours, address(client.host, 0)))?;
    let connecting = client.connect(ours, address(server.host, 5000), b"data");
    if arriving.is_completed() || connecting.is_completed() {
        // One of both ran short; the other one would wait for it.
        for (step, request) in [("get request", &arriving), ("connect", &connecting)] {
            if request.is_completed() {
                steps.done(step, status(request));
            }
        }
    }
    if !steps.0.is_empty() && connecting.is_completed() {
        arriving.cancel();
        return None;
    }
    steps.ended("get request", &arriving)?;
    let accepting = server.accept(theirs, b"back");
    if accepting.is_completed() {
        steps.done("accept", status(&accepting));
        connecting.cancel();
        return None;
    }
    steps.ended("connect", &connecting)?;
    steps.done("complete", client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)))?;
    steps.ended("accept", &accepting)?;
    Some((theirs, ours))
}

/// Some of each kind of request, and the end of the connection.
fn talk(steps: &mut Steps, server: &Program, client: &Program, (theirs, ours): (u64, u64)) {
    let told = server.nd.begin(CONNECTOR_NOTIFY_DISCONNECT, &handle(theirs));
    server.pair.write_receive(1, &[server.region.sge(0, 4096)]);
    steps.done("doorbell", server.nd.doorbell(server.pair.handle));
    let remote = server.region.sge(8192, 0);
    for (kind, count) in [(RequestType::Send, 2), (RequestType::Write, 3), (RequestType::Read, 3)] {
        let head = softndk_ioctl::nd::rings::InitiatorEntry {
            remote_address: remote.address,
            remote_token: remote.token,
            ..entry(kind, 2, OperationFlags::empty())
        };
        let sges: Vec<_> = (0..count).map(|index| client.region.sge(index * 5000, 1000)).collect();
        client.pair.write_entry(head, &sges, &[]);
    }
    steps.done("doorbell", client.nd.doorbell(client.pair.handle));
    if let Some(window) = steps.take("window", client.nd.try_ask(MW_CREATE, &handle(client.domain))) {
        let asked = BindWindow {
            version: VERSION,
            flags: 0x18,
            queue_pair: client.pair.handle,
            region: client.region.handle,
            window,
            context: 3,
            address: client.region.address(),
            length: 4096,
        };
        steps.take("bind window", client.nd.try_ask::<BindWindowReply>(BIND_WINDOW, &asked));
    }
    pass(20);
    let failed = |result: &ResultEntry| (result.status != 0).then_some(Status(result.status));
    let results: Vec<_> = [client.queue.poll(), server.queue.poll()].concat();
    for status in results.iter().filter_map(failed) {
        steps.done("result", status);
    }
    if steps.0.is_empty() {
        assert_eq!(results.len(), 5, "results are missing: {results:?}");
    }
    let ending = client.nd.begin(CONNECTOR_DISCONNECT, &handle(ours));
    steps.ended("disconnect", &ending);
    if told.is_completed() || steps.0.is_empty() {
        steps.ended("notify disconnect", &told);
    }
}

/// What two programs do from their first open to their last close; the steps that failed.
fn scenario() -> Vec<Failure> {
    let mut steps = Steps::default();
    let server = program(&mut steps, 100, 1);
    let client = program(&mut steps, 200, 2);
    if let (Some(mut server), Some(client)) = (server, client) {
        alone(&mut steps, &mut server);
        if let Some(connectors) = connected(&mut steps, &server, &client) {
            talk(&mut steps, &server, &client, connectors);
        }
        drop((server.close(), client.close()));
    }
    steps.0
}

/// How the programs may see one shortage: a request says so, or a peer's.
fn is_documented(failures: &[Failure]) -> bool {
    failures.first().is_none_or(|(step, status)| match *status {
        Status::INSUFFICIENT_RESOURCES => true,
        Status::CONNECTION_REFUSED | Status::CONNECTION_ABORTED | Status::IO_TIMEOUT => {
            ["connect", "complete", "accept", "get request"].contains(step) || across_streams()
        }
        // A call of a socket that fails ends its connection.
        Status::CANCELLED | Status::CONNECTION_INVALID => across_streams(),
        _ => false,
    })
}

/// A call that is to fail.
struct Target {
    site: Site,
    hit: u64,
    stack: String,
}

fn new_targets(known: &mut BTreeSet<Site>) -> Vec<Target> {
    let new = fault::sites().into_iter().filter(|record| known.insert(record.site));
    let targets = new.flat_map(|record| {
        let frames = stack_trace::name(&record.stack);
        let stack = frames.iter().fold(record.export.to_owned(), |text, frame| text + "\n    " + &frame.to_string());
        let last = if std::env::var_os("SOFTNDK_ALL_FAULTS").is_some() { record.hits } else { 1 };
        let hits = BTreeSet::from([1, last]);
        hits.into_iter().map(move |hit| Target { site: record.site, hit, stack: stack.clone() })
    });
    targets.collect()
}

fn every_allocation_of_two_programs_fails_once() {
    let mut machine = Machine::with_one_processor();
    let mut known = BTreeSet::new();
    fault::start_recording();
    assert_eq!(scenario(), [], "without a fault");
    fault::stop();
    let mut targets = new_targets(&mut known);
    let (mut fired, mut refused) = (0, 0);
    while let Some(Target { site, hit, stack }) = targets.pop() {
        // A bugcheck names its own stack; this line names the fault that led there.
        eprintln!("failing hit {hit} of {stack}");
        machine = machine.restart();
        let before = fault::failures();
        fault::fail(site, hit);
        let failures = scenario();
        fault::stop();
        let injected = fault::failures() - before;
        eprintln!("ended in {failures:x?}");
        assert!(is_documented(&failures), "the programs saw {failures:x?} after failing hit {hit} of {stack}");
        assert!(injected > 0 || failures.is_empty(), "{failures:x?} without a fault at {stack}");
        assert_eq!(scenario(), [], "after the programs had seen {failures:x?}");
        fired += injected;
        refused += u64::from(!failures.is_empty());
        targets.extend(new_targets(&mut known));
    }
    println!("faults: {} sites, {fired} faults, {refused} scenarios with a refused request", known.len());
    assert!(fired > 30 && refused > 20, "of {} sites {fired} failed and {refused} showed", known.len());
    machine.finish();
}
