//! The consumer in C of `tests/c-consumer` on the real driver image: two drivers in one kernel that share only
//! NDKPI. The consumer counts its requests and results and writes the counts to its registry key; these tests check that
//! they balance.
//!
//! One process has one kernel, so each test is a child process.

mod machine;
mod mistakes;
#[path = "../../../examples/foreign_driver/refusals.rs"]
#[allow(dead_code, reason = "the example uses the rest of it")]
mod refusals;
mod tally;

use std::time::Duration;

use kernel_host::Mode;
use machine::{AUTO, FORCE_ASYNC, FORCE_INLINE, Machine, root};
use softndk_images::c_consumer;
use softndk_images::workspace::Workspace;
use tally::{DONE, RUNNING, Tally};

/// As many requests as the consumer keeps in flight.
const SLOTS: i64 = 32;

/// Runs a body in a child process, with the consumer built.
fn trial(test: &str, body: fn()) {
    let build = || drop(c_consumer::build(&Workspace::at(&root())).expect("the consumer in C builds"));
    if let Some(outcome) = crate::child::in_child(test, build, body) {
        outcome.expect_success();
    }
}

const V4: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const V6: [&str; 2] = ["fd00::1", "fd00::2"];

#[test]
fn a_storage_initiator_and_its_target_in_c() {
    trial("a_storage_initiator_and_its_target_in_c", || {
        let machine = Machine::boot(Mode::Verify, AUTO);
        every_request_is_served(&machine, V4, 300);
        every_request_is_served(&machine, V6, 100);
        an_unassigned_address_ends_it_with_a_status(&machine);
        machine.end();
    });
}

#[test]
fn it_unloads_in_the_middle_of_traffic() {
    trial("it_unloads_in_the_middle_of_traffic", || {
        let machine = Machine::boot(Mode::Verify, AUTO);
        for requests in [1, 40, 90] {
            unload_after(&machine, requests);
        }
        machine.end();
    });
}

#[test]
fn everything_that_may_pend_pends() {
    trial("everything_that_may_pend_pends", || {
        let machine = Machine::boot(Mode::Verify, FORCE_ASYNC);
        let tally = every_request_is_served(&machine, V4, 100);
        assert_eq!(tally.mappings_pended, 100, "every NdkBuildLAM pends");
        unload_after(&machine, 20);
        machine.end();
    });
}

#[test]
fn nothing_pends_that_need_not() {
    trial("nothing_pends_that_need_not", || {
        let machine = Machine::boot(Mode::Verify, FORCE_INLINE);
        let tally = every_request_is_served(&machine, V4, 100);
        assert_eq!(tally.mappings_pended, 0, "no NdkBuildLAM pends");
        machine.end();
    });
}

#[test]
fn a_trace_has_a_line_for_every_call_and_callback() {
    const REQUESTS: u32 = 8;
    let test = "a_trace_has_a_line_for_every_call_and_callback";
    if std::env::var_os("KERNEL_HOST_TRACE").is_some() {
        let served = || {
            let machine = Machine::boot(Mode::Verify, AUTO);
            every_request_is_served(&machine, V4, REQUESTS);
            machine.end();
        };
        assert!(crate::child::in_child(test, || {}, served).is_none(), "this is the child");
        return;
    }
    drop(c_consumer::build(&Workspace::at(&root())).expect("the consumer in C builds"));
    let outcome = crate::child::in_child_with(test, &[("KERNEL_HOST_TRACE", "ndk")]);
    outcome.expect_success();
    let requests = REQUESTS as usize;
    let by = |function: &str| format!("  by c-consumer.sys!{function}");
    let exactly: [(usize, &[&str]); 5] = [
        (2, &["Adapter#", "WskOpenNdkAdapter", &by("AdapterOpen")]),
        (
            1,
            &[
                "PASSIVE",
                "Connector#",
                "NdkConnect(pNdkQp=QueuePair#",
                "pSrcAddress=10.0.0.1:",
                "= 0x00000103 STATUS_PENDING",
                &by("Connect"),
            ],
        ),
        (
            1,
            &[
                "c-consumer.sys!WaiterRequestDone",
                "is called as NDK_FN_REQUEST_COMPLETION of NdkConnect(Context=0x",
                "Status=0x00000000 STATUS_SUCCESS",
            ],
        ),
        (requests, &["NdkFastRegister(RequestContext=0x", "pMr=MemoryRegion#", "= 0x00000000 STATUS_SUCCESS"]),
        (
            2,
            &[
                "NdkCreateQp(",
                " InitiatorQueueDepth=128, MaxReceiveRequestSge=1,",
                "made QueuePair#",
                &by("EndpointCreate"),
            ],
        ),
    ];
    for (count, words) in exactly {
        let traced = outcome.text();
        let alike = traced.lines().filter(|line| words.iter().filter(|word| line.contains(**word)).count() > 1);
        let alike: Vec<&str> = alike.collect();
        assert_eq!(outcome.lines_with(words), count, "{words:?}, but\n{}", alike.join("\n"));
    }
    let at_least: [(usize, &[&str]); 3] = [
        (requests, &["NdkSend(RequestContext=0x", "pSgl=[0x", "+64 token 0x"]),
        (requests, &["NdkGetCqResultsEx(", " results, STATUS_SUCCESS"]),
        (1, &["c-consumer.sys!Notified", "is called as NDK_FN_CQ_NOTIFICATION_CALLBACK of NdkCreateCq"]),
    ];
    for (count, words) in at_least {
        assert!(outcome.lines_with(words) >= count, "{words:?}");
    }
}

#[test]
fn it_keeps_its_books_in_real_time() {
    trial("it_keeps_its_books_in_real_time", || {
        let machine = Machine::boot(Mode::Fast, AUTO);
        every_request_is_served(&machine, V4, 1000);
        unload_after(&machine, 100);
        machine.end();
    });
}

/// The target gets the results of its last answers long after the initiator has the answers: the end waits for the receives that they give back.
#[test]
fn a_target_with_late_results_posts_its_last_receives_again() {
    trial("a_target_with_late_results_posts_its_last_receives_again", || {
        let mut machine = Machine::boot(Mode::Verify, AUTO);
        machine.target_moderation = Duration::from_millis(5);
        every_request_is_served(&machine, V4, 100);
        machine.end();
    });
}

/// `while (poll() > 0) { post another }`: in the notification with Writes, in the DPC of a timer with messages.
fn every_result_brings_another_post(pattern: u32) -> Tally {
    /// More results than this without an empty queue are a loop without end.
    const WITHOUT_END: i64 = 10_000;
    let mut machine = Machine::boot(Mode::Verify, AUTO);
    machine.pattern = pattern;
    let consumer = machine.start_consumer(V4, POSTS);
    let tally = machine.wait("all posts", |_| false);
    assert!(tally.longest < WITHOUT_END, "{} results in one loop that ends when the queue is empty", tally.longest);
    consumer.unload();
    tally.check_books();
    assert_eq!((tally.status, tally.requests), (0, i64::from(POSTS)), "{tally:#?}");
    machine.end();
    tally
}

const POSTS: u32 = 20_000;
const WRITES_BY_NOTIFICATION: u32 = 1;
const MESSAGES_BY_TIMER: u32 = 2;
const WRITES_BY_POLLING: u32 = 3;

#[test]
fn a_drain_in_the_notification_that_posts_ends() {
    trial("a_drain_in_the_notification_that_posts_ends", || {
        let tally = every_result_brings_another_post(WRITES_BY_NOTIFICATION);
        let [.., write] = tally.kinds;
        assert_eq!((write.completed, write.failed), (i64::from(POSTS), 0), "{tally:#?}");
        assert_eq!(tally.notifications, tally.notifications_at_dispatch, "callbacks come at DISPATCH_LEVEL");
    });
}

#[test]
fn a_drain_in_a_timer_that_posts_ends() {
    trial("a_drain_in_a_timer_that_posts_ends", || {
        let tally = every_result_brings_another_post(MESSAGES_BY_TIMER);
        let [receive, send, ..] = tally.kinds;
        let posts = i64::from(POSTS);
        assert_eq!((send.completed, receive.completed - receive.failed), (posts, posts), "{tally:#?}");
        assert_eq!((tally.target_bytes, tally.initiator_bytes), (64 * posts, 64 * posts));
        assert_eq!(tally.notifications, 0, "no queue was armed");
    });
}

#[test]
fn a_poll_at_dispatch_level_for_each_write_finds_it() {
    trial("a_poll_at_dispatch_level_for_each_write_finds_it", || {
        let tally = every_result_brings_another_post(WRITES_BY_POLLING);
        let [.., write] = tally.kinds;
        assert_eq!((write.completed, write.failed), (i64::from(POSTS), 0), "{tally:#?}");
        assert_eq!((tally.notifications, tally.longest), (0, 1), "no queue was armed, and one request at a time");
    });
}

fn every_request_is_served(machine: &Machine, addresses: [&str; 2], requests: u32) -> Tally {
    let consumer = machine.start_consumer(addresses, requests);
    let tally = machine.wait("all requests", |tally| tally.state == DONE);
    tally.check_books();
    let requests = i64::from(requests);
    assert_eq!((tally.status, tally.requests), (0, requests), "as many as asked: {tally:#?}");
    assert_eq!(tally.initiator_bytes, tally.target_bytes);
    assert_eq!(tally.initiator_checksum, tally.target_checksum);
    assert!(tally.initiator_bytes > requests * 4096, "{tally:#?}");
    let [receive, send, send_and_invalidate, fast_register, invalidate, read, write] = tally.kinds;
    assert_eq!((fast_register.silent, fast_register.completed), (requests, 0), "one registration a request");
    assert_eq!(read.completed + write.silent, requests, "each is a Read or a Write of the target");
    assert_eq!(
        send.completed,
        requests + invalidate.completed,
        "a command a request, and the answers that keep the token"
    );
    assert_eq!(send_and_invalidate.completed + invalidate.completed, requests, "each token is invalidated by one side");
    assert_eq!(invalidate.completed, requests / 4, "every fourth by the initiator");
    assert_eq!(receive.completed - receive.failed, 2 * requests, "a message each way");
    assert_eq!(receive.failed, 2 * SLOTS, "the receives that are left are flushed");
    assert!(tally.notifications_at_dispatch > 0 && tally.notifications >= tally.notifications_at_dispatch);
    consumer.unload();
    tally
}

fn unload_after(machine: &Machine, requests: i64) {
    let consumer = machine.start_consumer(V4, 0);
    let before = machine.wait("traffic", |tally| tally.state == RUNNING && tally.requests >= requests);
    assert_eq!((before.state, before.status), (RUNNING, 0), "{before:#?}");
    consumer.unload();
    let tally = Tally::read().expect("a tally");
    tally.check_books();
    assert_eq!(tally.status, 0, "{tally:#?}");
    assert!(tally.requests >= requests, "{tally:#?}");
    assert!(tally.kinds.iter().any(|kind| kind.failed > 0), "something was under way: {tally:#?}");
}

fn an_unassigned_address_ends_it_with_a_status(machine: &Machine) {
    const STATUS_INVALID_ADDRESS: u32 = 0xC000_0141;
    let consumer = machine.start_consumer(["10.0.0.1", "10.9.9.9"], 10);
    let tally = machine.wait("the end", |tally| tally.state == DONE);
    tally.check_books();
    assert_eq!((tally.status, tally.requests), (STATUS_INVALID_ADDRESS, 0), "{tally:#?}");
    consumer.unload();
}
