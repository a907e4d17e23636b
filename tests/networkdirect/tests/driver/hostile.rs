//! Rings that say what they like.

use super::program::*;
use networkdirect::machine::{Machine, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::rings::{CONSUMER_OFFSET, InitiatorEntry, OperationFlags, QueuePairState, RequestType};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub const CASES: &[Case] = cases![
    entries_that_make_no_sense_end_their_queue_pair,
    counts_that_make_no_sense_end_their_queue_pair,
    random_bytes_in_rings_leave_others_alone,
    a_consumer_count_that_makes_no_sense_stops_its_own_queue,
];

fn entries_that_make_no_sense_end_their_queue_pair() {
    let machine = Machine::start();
    let good = entry(RequestType::Send, 1, OperationFlags::empty());
    for wrong in [
        InitiatorEntry { request_type: 0, ..good },
        InitiatorEntry { request_type: 2, ..good },
        InitiatorEntry { request_type: 6, ..good },
        InitiatorEntry { request_type: RequestType::ReceiveAndInvalidate as u32, ..good },
        InitiatorEntry { request_type: RequestType::ReceiveWriteImmediate as u32, ..good },
        InitiatorEntry { request_type: u32::MAX, ..good },
        InitiatorEntry { flags: 0x8, ..good },
        InitiatorEntry { flags: 0x40, ..good },
        InitiatorEntry { flags: u32::MAX, ..good },
        InitiatorEntry { request_type: 4, flags: 0x20, ..good },
        // Immediate data of a Read and of an Invalidate, beside a token to invalidate, and a Write that is solicited without it.
        InitiatorEntry { request_type: 4, flags: OperationFlags::IMMEDIATE.bits(), ..good },
        InitiatorEntry { request_type: 3, flags: OperationFlags::IMMEDIATE.bits(), ..good },
        InitiatorEntry { flags: (OperationFlags::IMMEDIATE | OperationFlags::INVALIDATE_REMOTE).bits(), ..good },
        InitiatorEntry { request_type: 5, flags: OperationFlags::SEND_AND_SOLICIT_EVENT.bits(), ..good },
        InitiatorEntry { request_type: 3, window: 0x1_0000_0001, ..good },
    ] {
        let (server, client, ..) = pair_of_programs();
        client.pair.receive(&client.nd, 9, &[]);
        client.pair.write_entry(wrong, &[], &[]);
        assert!(is_refused(client.nd.doorbell(client.pair.handle)), "{wrong:?}");
        rest();
        assert!(client.pair.state().contains(QueuePairState::ENDED));
        assert_eq!(Status(client.queue.wait(1)[0].status), Status::CANCELLED);
        assert_eq!(client.nd.doorbell(client.pair.handle), INVALID_DEVICE_STATE);
        drop((server.close(), client.close()));
    }
    let (server, client, ..) = pair_of_programs();
    // More elements and more inline bytes than the queue pair was made for.
    let place = client.pair.layout.initiator.place(0);
    client.pair.write_entry(good, &[], &[]);
    write(&client.pair.memory, place, InitiatorEntry { sge_count: SIZES.initiator_sges + 1, ..good });
    assert!(is_refused(client.nd.doorbell(client.pair.handle)));
    server.pair.write_entry(good, &[], &[]);
    let long = InitiatorEntry { flags: 0x20, inline_length: SIZES.inline_data + 1, ..good };
    write(&server.pair.memory, server.pair.layout.initiator.place(0), long);
    assert!(is_refused(server.nd.doorbell(server.pair.handle)));
    drop((server.close(), client.close()));
    machine.finish();
}

fn counts_that_make_no_sense_end_their_queue_pair() {
    let machine = Machine::start();
    for offset in [0, 4] {
        for count in [17_u32, 1 << 31, u32::MAX] {
            let program = Program::start(7, 1);
            write(&program.pair.memory, offset, count);
            assert_eq!(program.nd.doorbell(program.pair.handle), Status::INVALID_PARAMETER, "{offset} {count}");
            assert_eq!(program.nd.doorbell(program.pair.handle), INVALID_DEVICE_STATE);
            drop(program.close());
        }
    }
    machine.finish();
}

/// One process fills its rings with noise and rings all the time, on two threads, while another has traffic.
fn random_bytes_in_rings_leave_others_alone() {
    const ROUNDS: u64 = 60;
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let noise = kernel_host::thread::spawn("noise", move || {
        let mut random = fastrand::Rng::with_seed(7);
        let mut rounds = 0_u32;
        while !seen.load(Ordering::SeqCst) || rounds < 20 {
            let (one, other) = (Program::start(301, 1), Program::start(302, 2));
            if random.bool() {
                connect(&one, &other);
            }
            for _ in 0..30 {
                for program in [&one, &other] {
                    for memory in [&program.pair.memory, &program.queue.memory] {
                        for _ in 0..random.usize(0..40) {
                            let offset = random.usize(0..memory.len() / 4) * 4;
                            let value = if random.bool() { random.u32(..) } else { random.u32(0..20) };
                            write(memory, offset, value);
                        }
                        if random.u8(..) < 128 {
                            write(memory, 0, random.u32(0..20));
                            write(memory, CONSUMER_OFFSET, random.u32(0..40));
                        }
                    }
                    let handle = if random.bool() { program.pair.handle } else { program.queue.handle };
                    let _answer = program.nd.doorbell(handle);
                }
            }
            drop((one.close(), other.close()));
            rounds += 1;
        }
    });
    for round in 0..ROUNDS {
        server.pair.receive(&server.nd, round, &[server.region.sge(0, 64)]);
        client.pair.send(&client.nd, round, OperationFlags::empty(), &[client.region.sge(0, 64)]);
        assert_eq!(client.queue.wait(1)[0].status, 0);
        let received = server.queue.wait(1);
        assert_eq!((received[0].status, received[0].request_context), (0, round));
    }
    stop.store(true, Ordering::SeqCst);
    noise.join();
    drop((server.close(), client.close()));
    machine.finish();
}

fn a_consumer_count_that_makes_no_sense_stops_its_own_queue() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    for count in [1_u32, 1000, u32::MAX] {
        write(&server.queue.memory, CONSUMER_OFFSET, count);
        server.pair.receive(&server.nd, 1, &[]);
        client.pair.send(&client.nd, 2, OperationFlags::empty(), &[]);
        rest();
        assert_eq!(client.queue.wait(1)[0].status, 0);
    }
    drop((server.close(), client.close()));
    machine.finish();
}
