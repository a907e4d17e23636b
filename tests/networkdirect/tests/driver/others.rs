//! One process's threads are preempted, suspended or busy at every point of a request: other processes, and adapters that halt, do not
//! wait for them. Times are of the kernel's clock, as far as it is skipped because every thread waits: the same on a slow machine.

use super::program::*;
use kernel_host::dispatcher;
use kernel_host::interruption::{preempted, suspended};
use kernel_host::io::file;
use kernel_host::schedule;
use networkdirect::machine::{Machine, MachineSetup, ip};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::rings::{OperationFlags, RequestType};
use softndk_ioctl::{AdapterListRequest, Request, RequestHeader, Status};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerocopy::IntoBytes;

pub const CASES: &[Case] = cases![
    a_preempted_doorbell_holds_up_no_other_process,
    a_preempted_free_holds_up_no_other_process,
    a_suspended_thread_holds_up_no_halt,
    a_preempted_create_holds_up_no_other_adapter,
    objects_made_without_end_hold_up_no_other_adapter,
];

/// How long a thread is away.
pub const AWAY: Duration = Duration::from_secs(3);
/// How long others may wait, at most.
const LONGEST: Duration = Duration::from_millis(20);

/// Processors of a machine whose driver polls.
const POLLING: usize = 4;
const ACCESS: u32 = kernel_host::io::GENERIC_READ | kernel_host::io::GENERIC_WRITE;

fn polling() -> Machine {
    polling_with(&[])
}

pub fn polling_with(keywords: &[(&str, &str)]) -> Machine {
    Machine::of(&MachineSetup { processors: POLLING, keywords, ..MachineSetup::default() })
}

/// The longest time that something took.
#[derive(Default)]
pub struct Longest(Mutex<Duration>);

impl Longest {
    pub fn time<R>(&self, act: impl FnOnce() -> R) -> R {
        let begun = dispatcher::skipped();
        let result = act();
        let taken = Duration::from_nanos(100 * (dispatcher::skipped() - begun));
        let mut longest = self.0.lock().unwrap();
        *longest = taken.max(*longest);
        result
    }

    #[track_caller]
    pub fn check(&self, what: &str, points: u64) {
        let longest = *self.0.lock().unwrap();
        println!("{what}: {longest:?} at most, at {points} points");
        assert!(points > 5, "{what}: {points} points");
        assert!(longest < LONGEST, "{what}: {longest:?}");
    }
}

/// Two programs of other processes, connected. Their posts are polled.
pub fn others() -> (Program, Program) {
    let (server, client) = (Program::start(300, 1), Program::start(400, 2));
    connect(&server, &client);
    (server, client)
}

/// Traffic between two programs, without a doorbell where the driver polls, and objects that come and go.
pub fn work(server: &Program, client: &Program) {
    server.pair.write_receive(1, &[server.region.sge(0, 64)]);
    ring(&server.nd, &server.pair);
    client.pair.write_entry(entry(RequestType::Send, 2, OperationFlags::empty()), &[client.region.sge(0, 64)], &[]);
    ring(&client.nd, &client.pair);
    for (program, peer) in [(server, client), (client, server)] {
        let found = program.queue.find(1);
        let state = |of: &Program| (of.pair.taken(), of.pair.waiting(), of.pair.is_polled());
        assert_eq!(found.len(), 1, "{:?} {:?}", state(program), state(peer));
    }
    for program in [server, client] {
        let domain = program.nd.create(PD_CREATE, program.adapter);
        assert_eq!(program.nd.free(PD_FREE, domain), Status::SUCCESS);
    }
}

fn ring(nd: &Nd, pair: &Pair) {
    if !pair.is_polled() {
        assert_eq!(nd.doorbell(pair.handle), Status::SUCCESS);
    }
}

/// Runs `attempt` with the numbers of all points until there is none; how many there were.
fn at_every_point(attempt: impl Fn(u64) -> bool) -> u64 {
    if schedule::is_on() {
        return 100;
    }
    (0..1_000_000).find(|point| !attempt(*point)).expect("a request has an end")
}

fn a_preempted_doorbell_holds_up_no_other_process() {
    // Queues stay polled for what a busy machine takes between two entries. The poller runs for as long at each point: no longer.
    let machine = polling_with(&[("NetworkDirectPollUs", "10000")]);
    let (server, client, ..) = pair_of_programs();
    let (theirs, ours) = others();
    let longest = Longest::default();
    let points = at_every_point(|point| {
        server.pair.write_receive(1, &[server.region.sge(0, 64)]);
        assert_eq!(server.nd.doorbell(server.pair.handle), Status::SUCCESS);
        // So that the poller has the queues of the others, which need it then, and this one, too.
        work(&theirs, &ours);
        client.pair.write_entry(entry(RequestType::Send, 2, OperationFlags::empty()), &[client.region.sge(0, 64)], &[]);
        let met = preempted(
            point,
            AWAY,
            || {
                client.pair.write_entry(
                    entry(RequestType::Write, 3, OperationFlags::empty()),
                    &[client.region.sge(0, 0)],
                    &[],
                );
                // The poller comes to this queue between the two.
                longest.time(|| (0..2).for_each(|_| work(&theirs, &ours)));
            },
            || assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS),
        );
        assert_eq!(client.nd.doorbell(client.pair.handle), Status::SUCCESS);
        server.queue.wait(1);
        client.queue.wait(1 + usize::from(met));
        met
    });
    longest.check("beside a preempted doorbell", points);
    drop([server, client, theirs, ours].map(Program::close));
    machine.finish();
}

fn a_preempted_free_holds_up_no_other_process() {
    let machine = polling();
    let victim = Program::start(100, 1);
    let (theirs, ours) = others();
    let longest = Longest::default();
    let points = at_every_point(|point| {
        let pair = new_pair(&victim.nd, victim.domain, (victim.queue.handle, victim.queue.handle), SIZES);
        pair.receive(&victim.nd, 1, &[victim.region.sge(0, 64)]);
        preempted(
            point,
            AWAY,
            || longest.time(|| work(&theirs, &ours)),
            || assert_eq!(victim.nd.free(QP_FREE, pair.handle), Status::SUCCESS),
        )
    });
    longest.check("beside a preempted free", points);
    drop([victim, theirs, ours].map(Program::close));
    machine.finish();
}

/// A way into the driver: its name, and what it does.
type Way<'a> = (&'a str, &'a dyn Fn());

/// Suspended at every point of each way into the driver, while the adapter that it is about halts.
fn a_suspended_thread_holds_up_no_halt() {
    let machine = Machine::start();
    let nd = Nd::start(100);
    let id = nd.adapter_id(ip(2));
    let opened = Cell::new(None);
    let open_again = || opened.set(Some(open(200)));
    let control = || file::open(softndk_ioctl::WIN32_DEVICE_NAME, ACCESS, file::Opener::default());
    let tools = control().expect("the control device opens");
    let head = RequestHeader::of::<AdapterListRequest>();
    let ways: &[Way<'_>] = &[
        ("create", &open_again),
        ("cleanup and close", &|| drop(opened.take())),
        // It finds the adapter or does not, as those that follow.
        ("an open and what is made of it", &|| {
            let Ok(adapter) = nd.try_open_adapter(id) else { return };
            if let Ok(domain) = nd.try_ask::<u64>(PD_CREATE, &handle(adapter)) {
                nd.free(PD_FREE, domain);
            }
            nd.free(ADAPTER_CLOSE, adapter);
        }),
        ("an address list", &|| drop(send(&nd.file, PROVIDER_QUERY_ADDRESS_LIST, handle(0).as_bytes(), 64))),
        ("a handle of the tools", &|| control().expect("opens").close()),
        ("a list of the tools", &|| {
            tools.ioctl(AdapterListRequest::CODE, head.as_bytes(), &mut [0; 4096]);
        }),
    ];
    for (what, way) in ways {
        let longest = Longest::default();
        let points = at_every_point(|point| {
            if opened.take().is_none() || *what == "cleanup and close" {
                open_again();
            }
            let halt = || longest.time(|| machine.adapters[1].surprise_remove().expect("is pulled out"));
            let met = suspended(point, AWAY, halt, way);
            if met {
                machine.adapters[1].start().unwrap_or_else(|error| panic!("starting: {error}"));
            }
            met
        });
        longest.check(&format!("a halt while a thread is suspended in {what}"), points);
    }
    drop(opened.take());
    tools.close();
    nd.close();
    machine.finish();
}

fn a_preempted_create_holds_up_no_other_adapter() {
    let machine = Machine::start();
    let program = Program::start(100, 1);
    let longest = Longest::default();
    let points = at_every_point(|point| {
        let met = preempted(
            point,
            AWAY,
            || longest.time(|| machine.adapters[1].surprise_remove().expect("is pulled out")),
            || {
                let domain = program.nd.create(PD_CREATE, program.adapter);
                assert_eq!(program.nd.free(PD_FREE, domain), Status::SUCCESS);
            },
        );
        if met {
            machine.adapters[1].start().unwrap_or_else(|error| panic!("starting: {error}"));
        }
        met
    });
    longest.check("a halt while a create of the other adapter's is preempted", points);
    drop(program.close());
    machine.finish();
}

/// Several threads make and free objects of one adapter, without a pause, until the other one has halted.
fn objects_made_without_end_hold_up_no_other_adapter() {
    let machine = Machine::start();
    let program = std::sync::Arc::new(Program::start(100, 1));
    let longest = Longest::default();
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let (program, over) = (program.clone(), over.clone());
            kernel_host::thread::spawn("busy", move || {
                while !over.load(Ordering::Relaxed) {
                    let domain = program.nd.create(PD_CREATE, program.adapter);
                    assert_eq!(program.nd.free(PD_FREE, domain), Status::SUCCESS);
                }
            })
        })
        .collect();
    for _ in 0..10 {
        longest.time(|| machine.adapters[1].surprise_remove().expect("is pulled out"));
        machine.adapters[1].start().unwrap_or_else(|error| panic!("starting: {error}"));
    }
    over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(kernel_host::thread::JoinHandle::join);
    longest.check("a halt while objects of the other adapter come and go", 10);
    drop(std::sync::Arc::into_inner(program).expect("no other pointer").close());
    machine.finish();
}
