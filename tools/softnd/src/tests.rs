//! The provider through its interfaces, over a simulated driver that records what it is asked and plays its side of the rings.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a test's calls through interfaces have one reason")]
#![allow(clippy::cast_ptr_alignment, reason = "the layout of a ring aligns its parts")]

use core::{ffi::c_void, mem::size_of, ptr};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    vec::Vec,
};

use softnd_interfaces::{
    Status,
    constants::{VERSION_2, notify, operation_flag, region_flag},
    structures::{Overlapped, SocketAddressList},
    unknown::{IClassFactory, IUnknown},
    v1, v2,
};
use softndk_ioctl::nd::{control, private, rings};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::{
    argument::{Argument, Unknown},
    com,
    exports::{DllCanUnloadNow, DllGetClassObject},
    imports::simulated::{Call, Driver, Pended, install},
    ring::{QueueMemory, driver},
    v2::V2QueuePair,
};

/// One test at a time: whether the DLL can be unloaded is a property of the process.
static SERIAL: Mutex<()> = Mutex::new(());

pub fn serial() -> MutexGuard<'static, ()> {
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that was made: its code, the handle that it is about, and how long it was.
type Seen = (u32, u64, usize);

#[derive(Default)]
struct State {
    next: u64,
    seen: Vec<Seen>,
    pended: Vec<(u32, Pended)>,
    /// Memory that queues were given, the last for each.
    attached: HashMap<u64, usize>,
    /// Answers other than the usual.
    answers: HashMap<u32, Status>,
    /// Where the answer to the last registration goes.
    reply: usize,
}

#[derive(Default)]
struct TestDriver(Mutex<State>);

impl TestDriver {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests with a code, since the last look.
    fn take(&self, code: u32) -> Vec<u64> {
        let mut state = self.state();
        let found = state.seen.iter().filter(|seen| seen.0 == code).map(|seen| seen.1).collect();
        state.seen.retain(|seen| seen.0 != code);
        found
    }

    fn answer_with(&self, code: u32, status: Status) {
        self.state().answers.insert(code, status);
    }

    /// Ends the oldest request with a code that pends.
    fn finish(&self, code: u32, status: Status) {
        let pended = {
            let mut state = self.state();
            let place = state.pended.iter().position(|pended| pended.0 == code).expect("none pends");
            state.pended.remove(place).1
        };
        pended.finish(status, 0);
    }

    /// The completion ring that a queue was given last, as its flags and its entries.
    fn complete(&self, queue: u64, entries: u32, result: rings::ResultEntry) {
        let base = self.state().attached[&queue] as *mut u8;
        // SAFETY: memory that the provider has given, as the layout says.
        unsafe {
            let producer = base.cast::<u32>();
            let place = rings::COMPLETION_ENTRIES + (producer.read() % entries) as usize * 32;
            base.add(place).cast::<rings::ResultEntry>().write(result);
            producer.write(producer.read() + 1);
        }
    }

    fn set_flags(&self, queue: u64, flags: rings::CompletionFlags) {
        let base = self.state().attached[&queue] as *mut u32;
        // SAFETY: as above.
        unsafe { base.add(1).write(flags.bits()) };
    }
}

const FREES: [u32; 10] = [
    control::ADAPTER_CLOSE,
    control::PD_FREE,
    control::CQ_FREE,
    control::MR_FREE,
    control::MW_FREE,
    control::SRQ_FREE,
    control::CONNECTOR_FREE,
    control::LISTENER_FREE,
    control::QP_FREE,
    0,
];

impl Driver for TestDriver {
    fn control(&self, call: &Call<'_>) -> (Status, usize) {
        let mut state = self.state();
        assert_eq!(call.input[..4], 1_u32.to_le_bytes(), "the version");
        // Structures name their object in different places; these are what the tests look at.
        let offset = if call.code == control::CQ_MODIFY { 16 } else { 8 };
        let handle =
            call.input.get(offset..offset + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        state.seen.push((call.code, handle, call.input.len()));
        if let Some(status) = state.answers.remove(&call.code) {
            return (status, 0);
        }
        match call.code {
            control::PROVIDER_INIT => call.answer(&77_u64.to_le_bytes()),
            control::PROVIDER_BIND_FILE => {
                assert_eq!(handle, 77);
                (Status::SUCCESS, 0)
            }
            control::PROVIDER_RESOLVE_ADDRESS => call.answer(&5_u64.to_le_bytes()),
            private::QUERY_ADDRESSES => {
                let mut answer = private::AddressListReply { count: 1, returned: 1 }.as_bytes().to_vec();
                answer.extend_from_slice(address().as_bytes());
                call.answer(&answer)
            }
            control::ADAPTER_QUERY => call.answer(info().as_bytes()),
            control::ADAPTER_OPEN
            | control::CQ_CREATE
            | control::SRQ_CREATE
            | control::QP_CREATE
            | control::QP_CREATE_WITH_SRQ => {
                state.next += 1;
                call.answer(control::ResourceDescriptor { handle: state.next, ..FromZeros::new_zeroed() }.as_bytes())
            }
            control::PD_CREATE
            | control::MR_CREATE
            | control::MW_CREATE
            | control::CONNECTOR_CREATE
            | control::LISTENER_CREATE => {
                state.next += 1;
                call.answer(&state.next.to_le_bytes())
            }
            private::ATTACH => {
                state.attached.insert(handle, call.output.0 as usize);
                (Status::PENDING, 0)
            }
            private::BIND_WINDOW => call.answer(private::BindWindowReply { remote_token: 55, reserved: 0 }.as_bytes()),
            control::MR_REGISTER => {
                state.reply = call.output.0 as usize;
                (Status::PENDING, 0)
            }
            private::LOCK_FOR_READING
            | private::LOCK_FOR_WRITING
            | control::MR_DEREGISTER
            | control::CQ_NOTIFY
            | control::CONNECTOR_CONNECT
            | control::CONNECTOR_DISCONNECT => (Status::PENDING, 0),
            control::LISTENER_GET_ADDRESS | control::CONNECTOR_GET_ADDRESS => call.answer(address().as_bytes()),
            private::GET_PRIVATE_DATA => {
                let mut answer = private::PrivateDataReply { length: 3, returned: 3 }.as_bytes().to_vec();
                answer.extend_from_slice(b"abc");
                call.answer(&answer)
            }
            _ => (Status::SUCCESS, 0),
        }
    }

    fn pend(&self, code: u32, pended: Pended) {
        self.state().pended.push((code, pended));
    }
}

fn address() -> control::SocketAddress {
    let mut address = control::SocketAddress { family: 2, port: [0x12, 0x34], rest: [0; 24] };
    address.rest[..4].copy_from_slice(&[10, 0, 0, 1]);
    address
}

/// What a registration may have of the 2^40 bytes that the driver would give: one request brings the memory, and its length has 32 bits.
const REGISTRATION: usize = 4_294_963_200;

/// No two numbers are alike.
fn info() -> control::AdapterInfo {
    control::AdapterInfo {
        info_version: VERSION_2,
        vendor_id: 0x1234,
        device_id: 0x5678,
        adapter_id: 0x0102_0304_0506_0708,
        max_registration_size: 1 << 40,
        max_window_size: 1 << 39,
        max_initiator_sge: 16,
        max_receive_sge: 15,
        max_read_sge: 14,
        max_transfer_length: 1 << 20,
        max_inline_data_size: 256,
        max_inbound_read_limit: 17,
        max_outbound_read_limit: 19,
        max_receive_queue_depth: 1023,
        max_initiator_queue_depth: 1024,
        max_shared_receive_queue_depth: 1022,
        max_completion_queue_depth: 4096,
        inline_request_threshold: 128,
        large_request_threshold: 70_000,
        max_caller_data: 56,
        max_callee_data: 57,
        adapter_flags: 0x1_0101,
    }
}

#[test]
fn every_limit_is_that_of_its_name() {
    let (known, world) = (info(), Client2Side::new());
    let mut told = v2::AdapterInfo { info_version: VERSION_2, ..v2::AdapterInfo::default() };
    let mut length = size_of::<v2::AdapterInfo>() as u32;
    // SAFETY: an interface of this test, and places of its own.
    let status = unsafe { v2::IND2Adapter::query(world.adapter.0, &raw mut told, &raw mut length) };
    assert_eq!(status, Status::SUCCESS);
    let expected = v2::AdapterInfo {
        info_version: VERSION_2,
        vendor_id: known.vendor_id,
        device_id: known.device_id,
        adapter_id: known.adapter_id,
        max_registration_size: REGISTRATION,
        max_window_size: 1 << 39,
        max_initiator_sge: 16,
        max_receive_sge: 15,
        max_read_sge: 14,
        max_transfer_length: 1 << 20,
        max_inline_data_size: 256,
        max_inbound_read_limit: 17,
        max_outbound_read_limit: 19,
        max_receive_queue_depth: 1023,
        max_initiator_queue_depth: 1024,
        max_shared_receive_queue_depth: 1022,
        max_completion_queue_depth: 4096,
        inline_request_threshold: 128,
        large_request_threshold: 70_000,
        max_caller_data: 56,
        max_callee_data: 57,
        adapter_flags: 0x1_0101,
    };
    assert_eq!(told, expected);
}

#[test]
fn version_1_every_limit_is_that_of_its_name() {
    let world = Client1Side::new();
    let mut told = v1::AdapterInfo1::default();
    let mut length = size_of::<v1::AdapterInfo1>();
    // SAFETY: an interface of this test, and places of its own.
    let status = unsafe { v1::INDAdapter::query(world.adapter.0, 1, &raw mut told, &raw mut length) };
    assert_eq!(status, Status::SUCCESS);
    let expected = v1::AdapterInfo1 {
        vendor_id: 0x1234,
        device_id: 0x5678,
        max_inbound_sge: told.max_inbound_sge,
        max_inbound_requests: 1023,
        max_inbound_length: 1 << 20,
        max_outbound_sge: told.max_outbound_sge,
        max_outbound_requests: 1024,
        max_outbound_length: 1 << 20,
        max_inline_data: 256,
        max_inbound_read_limit: 17,
        max_outbound_read_limit: 19,
        max_completion_queue_entries: 4096,
        max_registration_size: REGISTRATION,
        max_window_size: 1 << 39,
        large_request_threshold: 70_000,
        max_caller_data: 56,
        max_callee_data: 57,
    };
    assert_eq!(told, expected);
    assert!(told.max_inbound_sge <= 15 && told.max_outbound_sge <= 16);
}

/// A reference of the client's, given up when it goes.
struct Client<I>(*mut I);

impl<I> Client<I> {
    fn unknown(&self) -> *mut c_void {
        self.0.cast()
    }
}

impl<I> Drop for Client<I> {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's.
        unsafe { IUnknown::release(self.0.cast()) };
    }
}

/// The out pointer of a call that has to succeed.
fn made<I>(call: impl FnOnce(*mut *mut c_void) -> Status) -> Client<I> {
    let mut out = ptr::null_mut();
    assert_eq!(call(&raw mut out), Status::SUCCESS);
    assert!(!out.is_null());
    Client(out.cast())
}

/// Everything that a client has before it connects.
struct Client2Side {
    queue_pair: Client<v2::IND2QueuePair>,
    queue: Client<v2::IND2CompletionQueue>,
    adapter: Client<v2::IND2Adapter>,
    file: *mut c_void,
    driver: Arc<TestDriver>,
    queue_handle: u64,
    _serial: MutexGuard<'static, ()>,
}

const DEPTH: u32 = 40;

impl Client2Side {
    fn new() -> Self {
        let serial = serial();
        let driver = Arc::new(TestDriver::default());
        install(driver.clone());
        // SAFETY: calls as the interfaces say, in all of these tests.
        unsafe {
            let provider: Client<v2::IND2Provider> =
                made(|out| DllGetClassObject(ptr::null(), &v2::IND2Provider::IID, out));
            let adapter: Client<v2::IND2Adapter> =
                made(|out| v2::IND2Provider::open_adapter(provider.0, &v2::IND2Adapter::IID, 5, out));
            let mut file = ptr::null_mut();
            assert_eq!(v2::IND2Adapter::create_overlapped_file(adapter.0, &raw mut file), Status::SUCCESS);
            let queue: Client<v2::IND2CompletionQueue> = made(|out| {
                v2::IND2Adapter::create_completion_queue(adapter.0, &v2::IND2CompletionQueue::IID, file, 16, 0, 0, out)
            });
            let queue_handle = driver.state().next;
            let context = ptr::without_provenance_mut(0x99);
            let queue_pair: Client<v2::IND2QueuePair> = made(|out| {
                v2::IND2Adapter::create_queue_pair(
                    adapter.0,
                    &v2::IND2QueuePair::IID,
                    queue.unknown(),
                    queue.unknown(),
                    context,
                    DEPTH,
                    DEPTH,
                    1,
                    1,
                    64,
                    out,
                )
            });
            let created = driver.state().seen.iter().find(|seen| seen.0 == control::QP_CREATE).unwrap().2;
            assert_eq!(created, size_of::<control::CreateQueuePair>() + 8);
            Self { queue_pair, queue, adapter, file, driver, queue_handle, _serial: serial }
        }
    }

    /// Looks at the shared memory of the queue pair.
    fn memory<T>(&self, look: impl FnOnce(&QueueMemory) -> T) -> T {
        // SAFETY: an interface of this test.
        let pair = unsafe { Unknown::of(self.queue_pair.unknown()) }.recover::<V2QueuePair>().unwrap();
        look(pair.pair().queue().memory())
    }

    fn connect(&self) {
        self.memory(|memory| driver::set_state(memory, rings::QueuePairState::CONNECTED, 0));
    }

    fn send(&self, flags: u32) -> Status {
        // SAFETY: as above.
        unsafe { v2::IND2QueuePair::send(self.queue_pair.0, ptr::null_mut(), ptr::null(), 0, flags) }
    }

    fn results(&self, count: u32) -> Vec<u64> {
        let none = v2::RequestResult {
            status: Status::SUCCESS,
            bytes_transferred: 0,
            queue_pair_context: ptr::null_mut(),
            request_context: ptr::null_mut(),
            request_type: 0,
        };
        let mut results = std::vec![none; count as usize];
        // SAFETY: as above.
        let taken = unsafe { v2::IND2CompletionQueue::get_results(self.queue.0, results.as_mut_ptr(), count) };
        results.iter().take(taken as usize).map(|result| result.request_context as u64).collect()
    }

    fn notify(&self, overlapped: &mut Overlapped) {
        // SAFETY: as above.
        let status = unsafe { v2::IND2CompletionQueue::notify(self.queue.0, notify::ANY, overlapped) };
        assert_eq!(status, Status::PENDING);
    }

    fn doorbells(&self) -> usize {
        self.driver.take(private::DOORBELL).len()
    }
}

fn result(context: u64) -> rings::ResultEntry {
    rings::ResultEntry { request_context: context, request_type: 1, ..FromZeros::new_zeroed() }
}

/// A peer may wait for a request although the client does nothing more.
#[test]
fn every_post_tells_the_driver() {
    let world = Client2Side::new();
    world.connect();
    world.doorbells();
    for _ in 0..3 {
        assert_eq!(world.send(0), Status::SUCCESS);
        assert_eq!(world.doorbells(), 1);
    }
    assert_eq!(world.results(4), []);
    // SAFETY: as above.
    assert_eq!(unsafe { v2::IND2QueuePair::flush(world.queue_pair.0) }, Status::SUCCESS);
    assert_eq!(world.doorbells(), 0, "nothing was put off");
}

#[test]
fn driver_that_polls_is_told_nothing() {
    let world = Client2Side::new();
    world.memory(|memory| driver::set_state(memory, rings::QueuePairState::CONNECTED, 1));
    for _ in 0..DEPTH {
        assert_eq!(world.send(0), Status::SUCCESS);
    }
    assert_eq!(world.doorbells(), 0);
}

#[test]
fn full_queue_is_looked_at_again_before_it_refuses() {
    let world = Client2Side::new();
    world.connect();
    for _ in 0..DEPTH {
        assert_eq!(world.send(0), Status::SUCCESS);
    }
    world.doorbells();
    assert_eq!(world.send(0), Status::NO_MORE_ENTRIES);
    assert_eq!(world.doorbells(), 1);
    world.memory(|memory| driver::set_counts(memory, &memory.initiator, DEPTH, 1));
    assert_eq!(world.send(0), Status::SUCCESS);
    assert_eq!(world.send(0), Status::NO_MORE_ENTRIES);
}

#[test]
fn requests_are_refused_with_the_number_of_their_parameter() {
    let world = Client2Side::new();
    assert_eq!(world.send(0), Status::CONNECTION_INVALID);
    assert_eq!(world.send(operation_flag::ALLOW_READ), Status::INVALID_PARAMETER_4);
    let long = v2::Sge { buffer: ptr::null_mut(), buffer_length: 1 << 21, memory_region_token: 0 };
    let pair = world.queue_pair.0;
    // SAFETY: as above; lists are locals.
    unsafe {
        // A receive is legal before the connection.
        assert_eq!(v2::IND2QueuePair::receive(pair, ptr::null_mut(), ptr::null(), 0), Status::SUCCESS);
        world.connect();
        let send = |count| v2::IND2QueuePair::send(pair, ptr::null_mut(), &raw const long, count, 0);
        assert_eq!(send(1), Status::BUFFER_OVERFLOW);
        assert_eq!(
            v2::IND2QueuePair::read(pair, ptr::null_mut(), ptr::null(), 0, 0, 0, operation_flag::INLINE),
            Status::INVALID_PARAMETER_6
        );
        let list = [v2::Sge { buffer_length: 1, ..long }; 6];
        let status = v2::IND2QueuePair::send(pair, ptr::null_mut(), list.as_ptr(), 6, 0);
        assert_eq!(status, Status::DATA_OVERRUN);
        assert_eq!(v2::IND2QueuePair::send(pair, ptr::null_mut(), list.as_ptr(), 5, 0), Status::SUCCESS);
        let status = v2::IND2QueuePair::invalidate(pair, ptr::null_mut(), world.queue.unknown(), 0);
        assert_eq!(status, Status::INVALID_PARAMETER_2);
    }
}

#[test]
fn results_of_a_full_ring_come_after_a_doorbell() {
    let world = Client2Side::new();
    for number in 0..3 {
        world.driver.complete(world.queue_handle, 32, result(number));
    }
    world.driver.set_flags(world.queue_handle, rings::CompletionFlags::MORE);
    world.driver.take(private::DOORBELL);
    assert_eq!(world.results(2), [0, 1]);
    assert_eq!(world.driver.take(private::DOORBELL), []);
    assert_eq!(world.results(2), [2]);
    assert_eq!(world.driver.take(private::DOORBELL), [world.queue_handle]);
}

#[test]
fn resize_keeps_results_of_the_old_ring_before_those_of_the_new() {
    let world = Client2Side::new();
    let queue = world.queue_handle;
    world.driver.complete(queue, 32, result(1));
    let old = world.driver.state().attached[&queue];
    // SAFETY: as above.
    unsafe {
        assert_eq!(v2::IND2CompletionQueue::resize(world.queue.0, 0), Status::INVALID_PARAMETER);
        assert_eq!(v2::IND2CompletionQueue::resize(world.queue.0, 4097), Status::INVALID_PARAMETER);
        assert_eq!(v2::IND2CompletionQueue::resize(world.queue.0, 100), Status::SUCCESS);
    }
    assert_eq!(world.driver.take(control::CQ_MODIFY), [queue]);
    let new = world.driver.state().attached[&queue];
    assert_ne!(old, new);
    world.driver.complete(queue, 128, result(2));
    // The old ring is not marked yet.
    assert_eq!(world.results(8), [1]);
    // SAFETY: the old ring is the driver's until it has ended the request that brought it.
    unsafe { (old as *mut u32).add(1).write(rings::CompletionFlags::MOVED.bits()) };
    assert_eq!(world.results(8), [2]);
    world.driver.complete(queue, 128, result(3));
    assert_eq!(world.results(8), [3]);
}

#[test]
fn registration_lends_the_memory_and_gets_its_tokens() {
    let world = Client2Side::new();
    let mut memory = [0_u8; 64];
    let mut overlapped = Overlapped::new(ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        let region: Client<v2::IND2MemoryRegion> = made(|out| {
            v2::IND2Adapter::create_memory_region(world.adapter.0, &v2::IND2MemoryRegion::IID, world.file, out)
        });
        let mut register = |flags, overlapped: *mut Overlapped| {
            v2::IND2MemoryRegion::register(region.0, memory.as_mut_ptr().cast(), 64, flags, overlapped)
        };
        // The memory is not there.
        world.driver.answer_with(private::LOCK_FOR_READING, Status::ACCESS_VIOLATION);
        assert_eq!(register(region_flag::ALLOW_REMOTE_READ, &raw mut overlapped), Status::ACCESS_VIOLATION);
        assert_eq!(register(region_flag::ALLOW_LOCAL_WRITE, &raw mut overlapped), Status::PENDING);
        assert_eq!(overlapped.internal, Status::PENDING.0 as usize);
        assert_eq!(v2::IND2MemoryRegion::get_local_token(region.0), 0);
        let reply = world.driver.state().reply as *mut [u32; 2];
        reply.write([7, 8]);
        world.driver.finish(control::MR_REGISTER, Status::SUCCESS);
        assert_eq!(v2::IND2Overlapped::get_overlapped_result(region.0.cast(), &raw mut overlapped, 0), Status::SUCCESS);
        assert_eq!(v2::IND2MemoryRegion::get_local_token(region.0), 7);
        assert_eq!(v2::IND2MemoryRegion::get_remote_token(region.0), 8);

        world.driver.answer_with(control::MR_DEREGISTER, Status::RESOURCE_IN_USE);
        assert_eq!(v2::IND2MemoryRegion::deregister(region.0, &raw mut overlapped), Status::DEVICE_BUSY);
        assert_eq!(v2::IND2MemoryRegion::deregister(region.0, &raw mut overlapped), Status::PENDING);
        assert_eq!(register(0x100, &raw mut overlapped), Status::INVALID_PARAMETER);
        assert_eq!(register(0, ptr::null_mut()), Status::INVALID_PARAMETER);
    }
}

#[test]
fn objects_are_freed_children_first_whatever_the_client_releases_first() {
    let world = Client2Side::new();
    let Client2Side { queue_pair, queue, adapter, file: _, driver, queue_handle: _, _serial } = world;
    let mut memory = [0_u8; 64];
    let mut overlapped = Overlapped::new(ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        let mut file = ptr::null_mut();
        assert_eq!(v2::IND2Adapter::create_overlapped_file(adapter.0, &raw mut file), Status::SUCCESS);
        let region: Client<v2::IND2MemoryRegion> =
            made(|out| v2::IND2Adapter::create_memory_region(adapter.0, &v2::IND2MemoryRegion::IID, file, out));
        let window: Client<v2::IND2MemoryWindow> =
            made(|out| v2::IND2Adapter::create_memory_window(adapter.0, &v2::IND2MemoryWindow::IID, out));
        assert_eq!(
            v2::IND2MemoryRegion::register(region.0, memory.as_mut_ptr().cast(), 64, 1, &raw mut overlapped),
            Status::PENDING
        );
        // SAFETY: an interface of this test.
        let pair = Unknown::of(queue_pair.unknown()).recover::<V2QueuePair>().unwrap();
        driver::set_state(pair.pair().queue().memory(), rings::QueuePairState::CONNECTED, 0);
        drop(pair);
        let status = v2::IND2QueuePair::bind(
            queue_pair.0,
            ptr::null_mut(),
            region.unknown(),
            window.unknown(),
            memory.as_ptr().cast(),
            64,
            0,
        );
        assert_eq!(status, Status::SUCCESS);
        assert_eq!(v2::IND2MemoryWindow::get_remote_token(window.0), 55);
        assert_eq!(v2::IND2QueuePair::send(queue_pair.0, ptr::null_mut(), ptr::null(), 0, 0), Status::SUCCESS);

        driver.state().seen.clear();
        drop((adapter, queue, region));
        assert_eq!(DllCanUnloadNow(), Status::COM_FALSE);
        drop((queue_pair, window));
        assert_eq!(DllCanUnloadNow(), Status::SUCCESS);
    }
    let frees = driver.state().seen.iter().map(|seen| seen.0).filter(|code| FREES.contains(code)).collect::<Vec<_>>();
    assert_eq!(
        frees,
        [
            control::QP_FREE,
            control::CQ_FREE,
            control::MW_FREE,
            control::MR_FREE,
            control::PD_FREE,
            control::ADAPTER_CLOSE
        ]
    );
}

#[test]
fn provider_without_a_driver_has_no_addresses() {
    let _serial = serial();
    // SAFETY: as above.
    unsafe {
        let factory: Client<IClassFactory> = made(|out| DllGetClassObject(ptr::null(), &IClassFactory::IID, out));
        let provider: Client<v2::IND2Provider> =
            made(|out| IClassFactory::create_instance(factory.0, ptr::null_mut(), &v2::IND2Provider::IID, out));
        let mut length = 0_u32;
        let list = ptr::null_mut::<SocketAddressList>();
        let query = v2::IND2Provider::query_address_list(provider.0, list, &raw mut length);
        assert_eq!((query, length), (Status::BUFFER_OVERFLOW, 24));
        let mut out = ptr::null_mut();
        let status = v2::IND2Provider::open_adapter(provider.0, &v2::IND2Adapter::IID, 5, &raw mut out);
        assert_eq!((status, out), (Status::DEVICE_NOT_READY, ptr::null_mut()));
        let outer = provider.unknown();
        let status = IClassFactory::create_instance(factory.0, outer, &v2::IND2Provider::IID, &raw mut out);
        assert_eq!(status, Status::COM_NO_AGGREGATION);
        let status = DllGetClassObject(ptr::null(), &v2::IND2Adapter::IID, &raw mut out);
        assert_eq!(status, Status::COM_NO_INTERFACE);
        assert_eq!(IClassFactory::lock_server(factory.0, 1), Status::SUCCESS);
        drop((factory, provider));
        assert!(!com::can_unload());
        com::lock_module(false);
        assert!(com::can_unload());
    }
}

#[test]
fn private_data_is_cut_and_its_length_told() {
    let world = Client2Side::new();
    // SAFETY: as above.
    unsafe {
        let connector: Client<v2::IND2Connector> =
            made(|out| v2::IND2Adapter::create_connector(world.adapter.0, &v2::IND2Connector::IID, world.file, out));
        let get = |target: *mut u8, mut length: u32| {
            let status = v2::IND2Connector::get_private_data(connector.0, target.cast(), &raw mut length);
            (status, length)
        };
        // A length that was never set.
        assert_eq!(get(ptr::null_mut(), 0xCCCC_CCCC), (Status::BUFFER_OVERFLOW, 3));
        let mut data = [0_u8; 4];
        assert_eq!(get(data.as_mut_ptr(), 2), (Status::BUFFER_OVERFLOW, 3));
        assert_eq!(data, *b"ab\0\0");
        assert_eq!((get(data.as_mut_ptr(), 4), data), ((Status::SUCCESS, 3), *b"abc\0"));
        let mut overlapped = Overlapped::new(ptr::null_mut());
        let mut connect = |length| {
            let destination = address();
            v2::IND2Connector::connect(
                connector.0,
                world.queue_pair.unknown(),
                ptr::from_ref(&destination).cast(),
                16,
                1,
                1,
                data.as_ptr().cast(),
                length,
                &raw mut overlapped,
            )
        };
        assert_eq!(connect(57), Status::INVALID_BUFFER_SIZE);
        assert_eq!(connect(4), Status::PENDING);
        assert_eq!(world.driver.state().seen.last().unwrap().2, size_of::<control::Connect>() + 4);
        assert_eq!(IUnknown::add_ref(connector.0.cast()), 2);
        assert_eq!(IUnknown::release(connector.0.cast()), 1);
    }
}

/// An adapter of version 1 and a queue pair of it.
struct Client1Side {
    endpoint: Client<v1::INDEndpoint>,
    queue: Client<v1::INDCompletionQueue>,
    adapter: Client<v1::INDAdapter>,
    driver: Arc<TestDriver>,
    queue_handle: u64,
    endpoint_handle: u64,
    _serial: MutexGuard<'static, ()>,
}

impl Client1Side {
    fn new() -> Self {
        let serial = serial();
        let driver = Arc::new(TestDriver::default());
        install(driver.clone());
        let address = address();
        // SAFETY: as above.
        unsafe {
            let provider: Client<v1::INDProvider> =
                made(|out| DllGetClassObject(ptr::null(), &v1::INDProvider::IID, out));
            let adapter: Client<v1::INDAdapter> =
                made(|out| v1::INDProvider::open_adapter(provider.0, ptr::from_ref(&address).cast(), 16, out));
            let queue: Client<v1::INDCompletionQueue> =
                made(|out| v1::INDAdapter::create_completion_queue(adapter.0, 16, out));
            let queue_handle = driver.state().next;
            let connector: Client<v1::INDConnector> = made(|out| v1::INDAdapter::create_connector(adapter.0, out));
            let mut inline = 0_usize;
            let endpoint: Client<v1::INDEndpoint> = made(|out| {
                let queue = queue.unknown();
                v1::INDConnector::create_endpoint(connector.0, queue, queue, 8, 8, 1, 1, 4, 4, &raw mut inline, out)
            });
            assert_eq!(inline, 128);
            let endpoint_handle = driver.state().next;
            let world = Self { endpoint, queue, adapter, driver, queue_handle, endpoint_handle, _serial: serial };
            // The state, in the driver's part of the header.
            let base = world.driver.state().attached[&endpoint_handle] as *mut u32;
            base.byte_add(rings::TAKEN_OFFSET + 16).write(rings::QueuePairState::CONNECTED.bits());
            world
        }
    }

    /// The head of the first entry of the initiator's ring.
    fn first_entry(&self) -> rings::InitiatorEntry {
        let base = self.driver.state().attached[&self.endpoint_handle] as *const u8;
        // SAFETY: memory that the provider has given, as the layout says.
        let bytes = unsafe {
            std::slice::from_raw_parts(base.add(rings::QUEUE_PAIR_ENTRIES), size_of::<rings::InitiatorEntry>())
        };
        rings::InitiatorEntry::read_from_bytes(bytes).unwrap()
    }
}

#[test]
fn version_1_knows_requests_by_their_results() {
    let world = Client1Side::new();
    let mut data = [1_u8, 2, 3];
    let mut result = v1::Result1 { status: Status::PENDING, bytes_transferred: 0 };
    let sge = v1::Sge1 { address: data.as_mut_ptr().cast(), length: 3, region: ptr::null_mut() };
    // SAFETY: as above.
    unsafe {
        let mut send = |sge: &v1::Sge1, flags| v1::INDEndpoint::send(world.endpoint.0, &raw mut result, sge, 1, flags);
        assert_eq!(send(&sge, operation_flag::INLINE), Status::INVALID_PARAMETER_4);
        assert_eq!(send(&v1::Sge1 { length: 129, ..sge }, 0), Status::DATA_OVERRUN);
        assert_eq!(send(&sge, 0), Status::SUCCESS);
        let entry = world.first_entry();
        assert_eq!((entry.flags, entry.inline_length), (operation_flag::INLINE, 3));
        assert_eq!(entry.context, &raw const result as u64);
        world.driver.complete(
            world.queue_handle,
            32,
            rings::ResultEntry { request_context: entry.context, request_type: 1, ..FromZeros::new_zeroed() },
        );
        let mut results = [ptr::null_mut(); 2];
        assert_eq!(v1::INDCompletionQueue::get_results(world.queue.0, results.as_mut_ptr(), 2), 1);
        assert_eq!(results[0], &raw mut result);
        assert_eq!(*results[0], v1::Result1 { status: Status::SUCCESS, bytes_transferred: 3 });
    }
}

#[test]
fn version_1_frees_a_region_when_its_memory_is_back() {
    let world = Client1Side::new();
    let memory = [0_u8; 64];
    let mut overlapped = Overlapped::new(ptr::null_mut());
    let mut handle = ptr::null_mut();
    // SAFETY: as above.
    unsafe {
        let mut register = |handle: &mut *mut c_void| {
            v1::INDAdapter::register_memory(world.adapter.0, memory.as_ptr().cast(), 64, &raw mut overlapped, handle)
        };
        assert_eq!(register(&mut handle), Status::PENDING);
        let first = handle;
        let mut second = ptr::null_mut();
        assert_eq!(register(&mut second), Status::PENDING);
        assert_ne!(first, second);
        let deregister = |handle| {
            let mut overlapped = Overlapped::new(ptr::null_mut());
            v1::INDAdapter::deregister_memory(world.adapter.0, handle, &raw mut overlapped)
        };
        assert_eq!(deregister(first), Status::PENDING);
        assert_eq!(deregister(first), Status::INVALID_HANDLE);
        assert_eq!(world.driver.take(control::MR_FREE), []);
        world.driver.finish(private::LOCK_FOR_WRITING, Status::SUCCESS);
        assert_eq!(deregister(ptr::null_mut()), Status::INVALID_HANDLE);
        assert_eq!(world.driver.take(control::MR_FREE).len(), 1);
        // A registration that fails leaves no handle.
        world.driver.answer_with(private::LOCK_FOR_WRITING, Status::ACCESS_VIOLATION);
        let mut third = second;
        assert_eq!(register(&mut third), Status::ACCESS_VIOLATION);
        assert!(third.is_null());
    }
}

#[test]
fn version_1_batches_wait_for_their_end() {
    let world = Client1Side::new();
    let mut overlapped = Overlapped::new(ptr::null_mut());
    let mut result = v1::Result1 { status: Status::PENDING, bytes_transferred: 0 };
    // SAFETY: as above.
    unsafe {
        let notify = v1::INDCompletionQueue::notify(world.queue.0, notify::ANY, &raw mut overlapped);
        assert_eq!(notify, Status::PENDING);
        world.driver.take(private::DOORBELL);
        v1::INDEndpoint::start_request_batch(world.endpoint.0);
        for _ in 0..3 {
            let status = v1::INDEndpoint::receive(world.endpoint.0, &raw mut result, ptr::null(), 0);
            assert_eq!(status, Status::SUCCESS);
        }
        assert_eq!(world.driver.take(private::DOORBELL), []);
        v1::INDEndpoint::submit_request_batch(world.endpoint.0);
        assert_eq!(world.driver.take(private::DOORBELL), [world.endpoint_handle]);
    }
}

#[test]
fn released_queue_pair_is_told_of_nothing_more() {
    let client = Client2Side::new();
    client.connect();
    client.send(0);
    let Client2Side { queue_pair, queue, driver, .. } = client;
    drop(queue_pair);
    driver.take(private::DOORBELL);
    // SAFETY: as above; nothing is taken.
    unsafe { v2::IND2CompletionQueue::get_results(queue.0, ptr::null_mut(), 0) };
    assert_eq!(driver.take(private::DOORBELL), []);
}

#[test]
fn memory_of_a_registration_that_was_not_sent_is_asked_back_before_the_next() {
    let client = Client2Side::new();
    let mut memory = [0_u8; 64];
    let mut overlapped = Overlapped::new(ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        let region: Client<v2::IND2MemoryRegion> = made(|out| {
            v2::IND2Adapter::create_memory_region(client.adapter.0, &v2::IND2MemoryRegion::IID, client.file, out)
        });
        let mut register = |overlapped: *mut Overlapped| {
            v2::IND2MemoryRegion::register(region.0, memory.as_mut_ptr().cast(), 64, 1, overlapped)
        };
        // It does not reach the driver, which has the memory already.
        client.driver.answer_with(control::MR_REGISTER, Status::INSUFFICIENT_RESOURCES);
        assert_eq!(register(&raw mut overlapped), Status::INSUFFICIENT_RESOURCES);
        // Asked for, and back: the next try is repeated once.
        client.driver.finish(private::LOCK_FOR_WRITING, Status::CANCELED);
        client.driver.answer_with(private::LOCK_FOR_WRITING, Status::INVALID_DEVICE_STATE);
        assert_eq!(register(&raw mut overlapped), Status::PENDING);
    }
}
