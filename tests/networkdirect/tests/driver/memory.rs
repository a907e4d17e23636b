//! Memory regions and the requests that keep their memory locked.

use super::program::*;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::{Machine, ip, rest};
use networkdirect::{cases, cases::Case};
use softndk_ioctl::Status;
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{LOCK_FOR_READING, LOCK_FOR_WRITING, LockMemory};

pub const CASES: &[Case] = cases![
    memory_is_locked_registered_and_deregistered,
    registrations_that_make_no_sense_are_refused,
    memory_that_is_lent_for_reading_is_not_written,
    a_cancelled_lock_takes_the_registration_along,
    a_freed_region_gives_its_memory_back,
    the_end_of_the_file_gives_the_memory_back,
];

struct Bench {
    nd: Nd,
    domain: u64,
}

impl Bench {
    fn start() -> Self {
        let nd = Nd::start(7);
        let adapter = nd.open_adapter(ip(1));
        let domain = nd.create(PD_CREATE, adapter);
        Self { nd, domain }
    }

    fn lock(&self, code: u32, region: u64, memory: &UserBuffer) -> kernel_host::io::PendingIrp {
        self.nd.begin_direct(code, &LockMemory { version: VERSION, reserved: 0, region }, memory)
    }
}

fn memory_is_locked_registered_and_deregistered() {
    let machine = Machine::start();
    let bench = Bench::start();
    let nd = &bench.nd;
    // Once more after the end, in another order of sizes: small ones are unmapped in place, large ones by a thread.
    for length in [4096, 8 << 20, 100, 5 << 20] {
        let region = nd.region(bench.domain, length, REMOTE_WRITE | REMOTE_READ);
        let again = bench.lock(LOCK_FOR_WRITING, region.handle, &region.buffer);
        assert_eq!(status(&again), INVALID_DEVICE_STATE, "there is memory");
        assert!(!region.lock.is_completed());
        assert_eq!(status(&nd.begin(MR_DEREGISTER, &handle(region.handle))), Status::SUCCESS);
        assert_eq!(status_now(&region.lock), Status::SUCCESS);
        assert_eq!(nd.call(MR_DEREGISTER, &handle(region.handle)), INVALID_DEVICE_STATE);
        // The object takes other memory.
        let other = UserBuffer::new(4096);
        let lock = bench.lock(LOCK_FOR_WRITING, region.handle, &other);
        let reply: RegisterReply = nd.ask(MR_REGISTER, &registration(region.handle, &other, LOCAL_WRITE));
        assert_ne!(reply.local_token, region.token, "each registration has a token of its own");
        assert_eq!(nd.free(MR_FREE, region.handle), Status::SUCCESS);
        assert_eq!(status_now(&lock), Status::SUCCESS);
    }
    bench.nd.close();
    machine.finish();
}

fn registrations_that_make_no_sense_are_refused() {
    let machine = Machine::start();
    let bench = Bench::start();
    let nd = &bench.nd;
    let memory = UserBuffer::new(8192);
    let region = nd.create(MR_CREATE, bench.domain);
    let good = registration(region, &memory, LOCAL_WRITE);
    let try_it = |asked: &Register| nd.try_ask::<RegisterReply>(MR_REGISTER, asked).map(|_| ());
    assert_eq!(try_it(&good), Err(INVALID_DEVICE_STATE), "no memory yet");
    for (wrong, expected) in [
        (Register { address: 0, ..good }, Status::INVALID_PARAMETER),
        (Register { length: 0, ..good }, INVALID_BUFFER_SIZE),
        (Register { length: 8193, ..good }, Status::INVALID_PARAMETER),
        (Register { length: u64::MAX, ..good }, Status::INVALID_PARAMETER),
        (Register { address: good.address + 1, ..good }, Status::INVALID_PARAMETER),
        (Register { flags: 0x10, ..good }, Status::INVALID_PARAMETER),
        // The remote bit alone.
        (Register { flags: 4, ..good }, Status::INVALID_PARAMETER),
    ] {
        let lock = bench.lock(LOCK_FOR_WRITING, region, &memory);
        assert_eq!(try_it(&wrong), Err(expected), "{wrong:?}");
        assert_eq!(status_now(&lock), Status::CANCELLED, "the memory goes back with the failure");
    }
    let lock = bench.lock(LOCK_FOR_WRITING, region, &memory);
    assert_eq!(nd.call(MR_REGISTER, &good), BUFFER_TOO_SMALL);
    assert_eq!(nd.call(MR_DEREGISTER, &handle(region)), INVALID_DEVICE_STATE);
    assert_eq!(try_it(&Register { flags: 0x8000_0001, ..good }), Ok(()));
    for again in [good, Register { flags: 0x10, ..good }] {
        assert!(try_it(&again).is_err(), "registered already");
        assert!(!lock.is_completed(), "what stands keeps its memory");
    }
    let empty = LockMemory { version: VERSION, reserved: 0, region };
    assert_eq!(nd.call(LOCK_FOR_READING, &empty), INVALID_BUFFER_SIZE);
    assert_eq!(status(&bench.lock(LOCK_FOR_READING, 99, &memory)), INVALID_HANDLE);
    bench.nd.close();
    assert!(lock.is_completed());
    drop(lock);
    machine.finish();
}

/// The host compares the memory of an IN_DIRECT request when that ends.
fn memory_that_is_lent_for_reading_is_not_written() {
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let lent = client.nd.region(client.domain, 4096, REMOTE_READ);
    let handle_only = client.nd.create(MR_CREATE, client.domain);
    let buffer = UserBuffer::new(4096);
    let locked = client.nd.begin_direct(
        LOCK_FOR_READING,
        &LockMemory { version: VERSION, reserved: 0, region: handle_only },
        &buffer,
    );
    let asked = registration(handle_only, &buffer, LOCAL_WRITE);
    assert_eq!(client.nd.try_ask::<RegisterReply>(MR_REGISTER, &asked).map(|_| ()), Err(ACCESS_VIOLATION));
    client.pair.receive(&client.nd, 1, &[lent.sge(0, 64)]);
    server.pair.send(&server.nd, 2, softndk_ioctl::nd::rings::OperationFlags::empty(), &[server.region.sge(0, 64)]);
    let received = client.queue.wait(1);
    assert_eq!(Status(received[0].status), ACCESS_VIOLATION);
    drop(server.close());
    drop(client.close());
    drop((locked, lent));
    machine.finish();
}

fn a_cancelled_lock_takes_the_registration_along() {
    let machine = Machine::start();
    let bench = Bench::start();
    let nd = &bench.nd;
    // Before it is registered, and after.
    let memory = UserBuffer::new(8192);
    let region = nd.create(MR_CREATE, bench.domain);
    let lock = bench.lock(LOCK_FOR_WRITING, region, &memory);
    assert!(lock.cancel());
    assert_eq!(status_now(&lock), Status::CANCELLED);
    for length in [4096, 6 << 20] {
        let region = nd.region(bench.domain, length, REMOTE_WRITE);
        assert!(region.lock.cancel());
        assert_eq!(status(&region.lock), Status::CANCELLED);
        assert_eq!(nd.call(MR_DEREGISTER, &handle(region.handle)), INVALID_DEVICE_STATE);
        assert_eq!(nd.free(MR_FREE, region.handle), Status::SUCCESS);
    }
    bench.nd.close();
    machine.finish();
}

fn a_freed_region_gives_its_memory_back() {
    let machine = Machine::start();
    let bench = Bench::start();
    let region = bench.nd.region(bench.domain, 9 << 20, LOCAL_WRITE);
    assert_eq!(bench.nd.free(MR_FREE, region.handle), Status::SUCCESS);
    assert_eq!(status(&region.lock), Status::SUCCESS);
    rest();
    drop(region);
    bench.nd.close();
    machine.finish();
}

fn the_end_of_the_file_gives_the_memory_back() {
    let machine = Machine::start();
    let bench = Bench::start();
    let regions: Vec<_> =
        [4096, 100, 9 << 20].map(|length| bench.nd.region(bench.domain, length, REMOTE_WRITE)).into_iter().collect();
    let memory = UserBuffer::new(4096);
    let region = bench.nd.create(MR_CREATE, bench.domain);
    let lock = bench.lock(LOCK_FOR_WRITING, region, &memory);
    bench.nd.close();
    assert!(regions.iter().all(|region| region.lock.is_completed()) && lock.is_completed());
    drop((regions, lock));
    machine.finish();
}
