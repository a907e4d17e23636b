//! Pairs: made, refused, owned by one file, closed.

use super::handles::File;
use super::machine::{CompletionMode, Machine, ORDINARY, Wish, ask, list, refused, region, send, send_direct};
use super::replay::replay;
use super::transfers::{arrived, prepare, transfer_request};
use super::{Case, cases};
use kernel_host::fault::{self, Site, SiteRecord};
use kernel_host::image::stack_trace;
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE};
use ndkctl::script::{encode, parse};
use softndk_ioctl::{
    AddressFamily, ObjectSummaryReply, ObjectSummaryRequest, Operation, PairCloseRequest, PairCreateReply,
    PairCreateRequest, PairFlags, Request, RequestHeader, Status, TransferRequest,
};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub const CASES: &[Case] = cases![
    pair_connects_over_the_wanted_family,
    pair_connects_an_adapter_to_itself,
    defaults_are_filled_in,
    pair_parameters_out_of_range_are_refused,
    unknown_adapters_do_not_exist,
    adapters_on_different_wires_are_unreachable,
    a_missing_family_is_an_invalid_address,
    pair_ids_belong_to_their_file,
    closed_pairs_are_not_found,
    many_pairs_at_once,
    unrelated_peers_at_the_port_are_not_taken_for_the_client,
    unrelated_peers_at_the_port_of_a_pair_whose_connect_fails,
    closing_the_file_closes_its_pairs,
];

/// A request with all defaults between the first two adapters.
pub fn create_request(machine: &Machine) -> PairCreateRequest {
    let file = machine.open();
    let adapters = list(&file);
    file.close();
    let mut request = PairCreateRequest::new_zeroed();
    request.header = RequestHeader::of::<PairCreateRequest>();
    request.client_adapter = adapters[0].index;
    request.server_adapter = adapters[1].index;
    request
}

pub fn close_request(pair: u32) -> PairCloseRequest {
    PairCloseRequest { header: RequestHeader::of::<PairCloseRequest>(), pair, reserved: 0 }
}

/// Closes a pair; the answer.
pub fn close(file: &File, pair: u32) -> Status {
    let (status, output) = send(file, PairCloseRequest::CODE, close_request(pair).as_bytes(), 0);
    assert!(output.is_empty());
    status
}

/// Live objects.
pub fn objects(file: &File) -> ObjectSummaryReply {
    ask(file, &ObjectSummaryRequest { header: RequestHeader::of::<ObjectSummaryRequest>() })
}

fn with_machine(work: impl FnOnce(&Machine)) {
    let machine = Machine::start();
    work(&machine);
    machine.finish();
}

fn pair_connects_over_the_wanted_family() {
    with_machine(|machine| {
        let file = machine.open();
        for (family, found) in [
            (AddressFamily::UNSPECIFIED, AddressFamily::IPV4),
            (AddressFamily::IPV4, AddressFamily::IPV4),
            (AddressFamily::IPV6, AddressFamily::IPV6),
        ] {
            let pair = ask(&file, &PairCreateRequest { family, ..create_request(machine) });
            assert_ne!(pair.pair, 0);
            assert_eq!(pair.header, RequestHeader::of::<PairCreateReply>());
            assert_eq!((pair.client.address.family, pair.server.address.family), (found, found));
            let ends: [Option<IpAddr>; 2] = [pair.client.address.ip(), pair.server.address.ip()];
            assert!(ends[0].is_some() && ends[1].is_some() && ends[0] != ends[1]);
            assert!(pair.client.port != 0 && pair.server.port != 0);
            assert_eq!(close(&file, pair.pair), Status::SUCCESS);
        }
        file.close();
    });
}

fn pair_connects_an_adapter_to_itself() {
    with_machine(|machine| {
        let file = machine.open();
        let request = create_request(machine);
        let pair = ask(&file, &PairCreateRequest { server_adapter: request.client_adapter, ..request });
        assert_eq!(pair.client.address.ip(), pair.server.address.ip());
        assert_ne!(pair.client.port, pair.server.port);
        assert_eq!(close(&file, pair.pair), Status::SUCCESS);
        file.close();
    });
}

fn defaults_are_filled_in() {
    with_machine(|machine| {
        let file = machine.open();
        let limits = list(&file)[0].limits;
        let pair = ask(&file, &create_request(machine));
        assert_eq!((pair.initiator_queue_depth, pair.receive_queue_depth), (128, 128));
        assert_eq!(pair.max_request_sge, limits.max_read_request_sge);
        assert_eq!(pair.read_limit, limits.max_inbound_read_limit.min(limits.max_outbound_read_limit));
        assert_eq!(pair.reserved, 0);
        close(&file, pair.pair);
        file.close();
    });
}

// Rule: IOCTL-4, IOCTL-10
fn pair_parameters_out_of_range_are_refused() {
    with_machine(|machine| {
        let file = machine.open();
        let limits = list(&file)[0].limits;
        let good = create_request(machine);
        let refuse = |change: &dyn Fn(&mut PairCreateRequest)| {
            let mut request = good;
            change(&mut request);
            refused(&file, &request, Status::INVALID_PARAMETER);
        };
        refuse(&|request| request.initiator_queue_depth = limits.max_initiator_queue_depth + 1);
        refuse(&|request| request.initiator_queue_depth = u32::MAX);
        refuse(&|request| request.receive_queue_depth = limits.max_receive_queue_depth + 1);
        refuse(&|request| request.receive_queue_depth = u32::MAX);
        refuse(&|request| request.max_request_sge = limits.max_read_request_sge + 1);
        refuse(&|request| request.max_request_sge = u32::MAX);
        refuse(&|request| request.read_limit = limits.max_inbound_read_limit + 1);
        refuse(&|request| request.read_limit = u32::MAX);
        refuse(&|request| request.flags = PairFlags::from_bits_retain(1 << 31));
        refuse(&|request| request.flags = PairFlags::from_bits_retain(u32::MAX));
        refuse(&|request| request.family = AddressFamily(1));
        refuse(&|request| request.family = AddressFamily(u16::MAX));
        assert_eq!(objects(&file).queue_pairs, 0);
        // The largest of everything is in range.
        let pair = ask(
            &file,
            &PairCreateRequest {
                initiator_queue_depth: limits.max_initiator_queue_depth,
                receive_queue_depth: limits.max_receive_queue_depth,
                max_request_sge: limits.max_read_request_sge,
                read_limit: limits.max_inbound_read_limit.min(limits.max_outbound_read_limit),
                flags: PairFlags::NOTIFY,
                ..good
            },
        );
        assert_eq!(close(&file, pair.pair), Status::SUCCESS);
        file.close();
    });
}

fn unknown_adapters_do_not_exist() {
    with_machine(|machine| {
        let file = machine.open();
        let good = create_request(machine);
        for index in [2, 1000, u32::MAX] {
            refused(&file, &PairCreateRequest { client_adapter: index, ..good }, Status::DEVICE_DOES_NOT_EXIST);
            refused(&file, &PairCreateRequest { server_adapter: index, ..good }, Status::DEVICE_DOES_NOT_EXIST);
        }
        file.close();
    });
}

fn adapters_on_different_wires_are_unreachable() {
    let machine = Machine::with(&[ORDINARY, Wish { wire: 1, ..ORDINARY }]);
    let file = machine.open();
    refused(&file, &create_request(&machine), Status::HOST_UNREACHABLE);
    assert_eq!(objects(&file).queue_pairs, 0);
    file.close();
    machine.finish();
}

fn a_missing_family_is_an_invalid_address() {
    let machine = Machine::with(&[ORDINARY, Wish { ipv4: false, ..ORDINARY }]);
    let file = machine.open();
    let good = create_request(&machine);
    refused(&file, &PairCreateRequest { family: AddressFamily::IPV4, ..good }, Status::INVALID_ADDRESS);
    let pair = ask(&file, &good);
    assert_eq!(pair.server.address.family, AddressFamily::IPV6);
    close(&file, pair.pair);
    file.close();
    machine.finish();
}

// Rule: IOCTL-4, IOCTL-6
fn pair_ids_belong_to_their_file() {
    with_machine(|machine| {
        let (owner, other) = (machine.open(), machine.open());
        let pair = ask(&owner, &create_request(machine)).pair;
        for id in [pair, 0, pair + 1, u32::MAX] {
            assert_eq!(close(&other, id), Status::NOT_FOUND, "{id}");
        }
        let mut request = close_request(pair);
        request.reserved = 1;
        refused(&owner, &request, Status::INVALID_PARAMETER);
        assert_eq!(close(&owner, pair), Status::SUCCESS);
        other.close();
        owner.close();
    });
}

fn closed_pairs_are_not_found() {
    with_machine(|machine| {
        let file = machine.open();
        let first = ask(&file, &create_request(machine)).pair;
        assert_eq!(close(&file, first), Status::SUCCESS);
        assert_eq!(close(&file, first), Status::NOT_FOUND);
        // A new pair does not make the old id valid again.
        let second = ask(&file, &create_request(machine)).pair;
        assert_ne!(first, second);
        assert_eq!(close(&file, first), Status::NOT_FOUND);
        assert_eq!(close(&file, second), Status::SUCCESS);
        file.close();
    });
}

fn many_pairs_at_once() {
    with_machine(|machine| {
        let file = machine.open();
        let request = PairCreateRequest { initiator_queue_depth: 1, receive_queue_depth: 1, ..create_request(machine) };
        let pairs: Vec<u32> = (0..16).map(|_| ask(&file, &request).pair).collect();
        assert_eq!((objects(&file).pairs, objects(&file).queue_pairs), (16, 32));
        for pair in pairs.iter().rev() {
            assert_eq!(close(&file, *pair), Status::SUCCESS);
        }
        let left = objects(&file);
        assert_eq!((left.pairs, left.queue_pairs, left.completion_queues, left.connectors), (0, 0, 0, 0));
        file.close();
    });
}

/// An unrelated peer connects to the port of a pair that is being made, again and again: each pair still joins its own two ends.
fn unrelated_peers_at_the_port_are_not_taken_for_the_client() {
    with_unrelated_peers(ORDINARY, |machine, file| {
        for _ in 0..60 {
            let pair = ask(file, &PairCreateRequest { port: PORT, ..create_request(machine) });
            check_and_close(file, &pair);
        }
    });
}

/// Whatever may pend does: while the failure of a connect is not completed yet, the client's connector has no address to compare
/// an unrelated peer's with. The creation of the pair fails with this status and no other.
fn unrelated_peers_at_the_port_of_a_pair_whose_connect_fails() {
    with_unrelated_peers(Wish { completion_mode: CompletionMode::Pending, ..ORDINARY }, |machine, file| {
        let request = PairCreateRequest { port: PORT, ..create_request(machine) };
        fault::start_recording();
        let pair = ask(file, &request);
        let sites = fault::sites();
        fault::stop();
        check_and_close(file, &pair);
        // Of the pair's own connect: the unrelated peer's are steps of a script.
        let calls = |record: &SiteRecord, name| {
            stack_trace::name(&record.stack).iter().any(|frame| frame.to_string().contains(name))
        };
        let own =
            |record: &SiteRecord| calls(record, "session::table::connect") && calls(record, "ndk::connector::connect(");
        let sites: Vec<Site> = sites.iter().filter(|record| own(record)).map(|record| record.site).collect();
        assert!(!sites.is_empty(), "nothing of a connect can fail");
        let mut short = 0;
        for (attempt, site) in sites.iter().cycle().take(60).enumerate() {
            fault::fail(*site, 1);
            let (status, output) =
                send(file, PairCreateRequest::CODE, request.as_bytes(), size_of::<PairCreateReply>());
            fault::stop();
            if status == Status::SUCCESS {
                // A completion record failed; the answer then came inline.
                check_and_close(file, &PairCreateReply::read_from_bytes(&output).expect("a whole reply"));
            } else {
                assert_eq!(status, Status::INSUFFICIENT_RESOURCES, "attempt {attempt}");
                short += 1;
            }
        }
        assert!(short > 0, "no connect has failed");
    });
}

const PORT: u16 = 4321;

/// Moves a message over a new pair, and closes it.
fn check_and_close(file: &File, pair: &PairCreateReply) {
    assert_eq!(pair.server.port, PORT);
    let request = TransferRequest { operation: Operation::SEND, ..transfer_request(pair.pair, 4096) };
    let mut buffer = region(4096);
    prepare(&mut buffer, 4096);
    assert_eq!(send_direct(file, &request, &mut buffer), Status::SUCCESS);
    assert!(arrived(&buffer, 4096));
    assert_eq!(close(file, pair.pair), Status::SUCCESS);
}

/// Does something while an unrelated peer connects to the port all the time, more often at once than the listener's backlog holds.
fn with_unrelated_peers(adapter: Wish, work: impl FnOnce(&Machine, &File)) {
    let mut script =
        String::from("open A0 adapter=0 -> SUCCESS\nopen A1 adapter=1 -> SUCCESS\npd P0 adapter=A0 -> SUCCESS\n");
    script += "cq C0 adapter=A0 depth=16 -> SUCCESS\n";
    for number in 0..24 {
        writeln!(
            script,
            "qp Q{number} domain=P0 receive=C0 initiator=C0 receive-depth=1 initiator-depth=1 receive-elements=1 initiator-elements=1 inline=0 -> SUCCESS\n\
             connector K{number} adapter=A0 -> SUCCESS\n\
             connect K{number} qp=Q{number} to=none host=A1 port={PORT} source=0 inbound=1 outbound=1 data=0"
        )
        .expect("text");
    }
    let steps = encode(&parse(&script).expect("a script"));
    let machine = Machine::with(&[adapter, adapter]);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let unrelated = kernel_host::thread::spawn("unrelated", move || {
        let file = super::machine::open("", GENERIC_READ | GENERIC_WRITE).expect("the device opens");
        let mut rounds = 0;
        while !seen.load(Ordering::SeqCst) {
            // The results of its connects are not checked.
            let _reply = replay(&file, &steps);
            rounds += 1;
        }
        file.close();
        rounds
    });
    let file = machine.open();
    work(&machine, &file);
    stop.store(true, Ordering::SeqCst);
    println!("{} scripts of an unrelated peer", unrelated.join());
    file.close();
    machine.finish();
}

// Rule: IOCTL-8
fn closing_the_file_closes_its_pairs() {
    with_machine(|machine| {
        let (watcher, owner) = (machine.open(), machine.open());
        for _ in 0..3 {
            ask(&owner, &create_request(machine));
        }
        assert_eq!(objects(&watcher).pairs, 3);
        owner.close();
        let left = objects(&watcher);
        assert_eq!((left.pairs, left.queue_pairs, left.listeners, left.connectors), (0, 0, 0, 0));
        watcher.close();
    });
}
