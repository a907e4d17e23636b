//! A program as the driver meets it: files, handles, memory, and its side of the rings.

use kernel_host::io::{Caller, File, GENERIC_READ, GENERIC_WRITE, Opener, PendingIrp};
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::rest;
use softndk_ioctl::Status;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::*;
use softndk_ioctl::nd::rings::{
    COMPLETION_ENTRIES, CONSUMER_OFFSET, CompletionFlags, InitiatorEntry, LAYOUT, OperationFlags, POLLING_OFFSET,
    QueueLayout, QueuePairState, QueuePairTaken, QueueSizes, ReceiveEntry, RequestType, ResultEntry, Ring, Sge,
    TAKEN_OFFSET, completion_layout,
};
use softndk_ioctl::nd::{INFO_VERSION, VERSION, WIN32_DEVICE_NAME};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Statuses that the tools' ABI has no name for.
pub const ACCESS_DENIED: Status = Status(0xC000_0022_u32.cast_signed());
pub const BUFFER_TOO_SMALL: Status = Status(0xC000_0023_u32.cast_signed());
pub const CONNECTION_INVALID: Status = Status(0xC000_023A_u32.cast_signed());
pub const CONNECTION_ACTIVE: Status = Status(0xC000_023B_u32.cast_signed());
pub const CONNECTION_REFUSED: Status = Status(0xC000_0236_u32.cast_signed());
pub const CONNECTION_ABORTED: Status = Status(0xC000_0241_u32.cast_signed());
pub const CONNECTION_DISCONNECTED: Status = Status(0xC000_020C_u32.cast_signed());
pub const ADDRESS_ALREADY_ASSOCIATED: Status = Status(0xC000_0238_u32.cast_signed());
pub const ADDRESS_NOT_ASSOCIATED: Status = Status(0xC000_0239_u32.cast_signed());
pub const ADDRESS_ALREADY_EXISTS: Status = Status(0xC000_020A_u32.cast_signed());
pub const SHARING_VIOLATION: Status = Status(0xC000_0043_u32.cast_signed());
pub const BAD_NETWORK_NAME: Status = Status(0xC000_00CC_u32.cast_signed());
pub const INVALID_BUFFER_SIZE: Status = Status(0xC000_0206_u32.cast_signed());
pub const INVALID_DEVICE_STATE: Status = Status(0xC000_0184_u32.cast_signed());
pub const INVALID_HANDLE: Status = Status(0xC000_0008_u32.cast_signed());
pub const INVALID_ADDRESS: Status = Status(0xC000_0141_u32.cast_signed());
pub const ACCESS_VIOLATION: Status = Status(0xC000_0005_u32.cast_signed());
pub const DATA_OVERRUN: Status = Status(0xC000_003C_u32.cast_signed());
pub const DEVICE_BUSY: Status = Status(0x8000_0011_u32.cast_signed());
pub const RESOURCE_IN_USE: Status = Status(0xC000_0708_u32.cast_signed());
pub const REMOTE_RESOURCES: Status = Status(0xC000_013D_u32.cast_signed());
pub const BUFFER_OVERFLOW: Status = Status(0x8000_0005_u32.cast_signed());
pub const NOT_SUPPORTED: Status = Status(0xC000_00BB_u32.cast_signed());
pub const HOST_UNREACHABLE: Status = Status(0xC000_023D_u32.cast_signed());

pub const fn invalid_parameter(number: i32) -> Status {
    Status(0xC000_00EE_u32.cast_signed() + number)
}

/// A file of the device.
pub struct Nd {
    pub file: File,
    /// As PROVIDER_INIT answered.
    pub token: u64,
}

pub fn open_as(caller: Caller, process: u32) -> Result<File, i32> {
    kernel_host::io::file::open(WIN32_DEVICE_NAME, GENERIC_READ | GENERIC_WRITE, Opener { caller, process })
}

/// A file without a context.
pub fn open(process: u32) -> File {
    open_as(Caller::Administrator, process).expect("the device opens")
}

/// Sends bytes, waits, and returns status and output.
pub fn send(file: &File, code: u32, input: &[u8], room: usize) -> (Status, Vec<u8>) {
    let mut output = vec![0; room];
    let result = file.ioctl(code, input, &mut output);
    output.truncate(result.information);
    (Status(result.status), output)
}

pub fn handle(handle: u64) -> Handle {
    Handle { version: VERSION, reserved: 0, handle }
}

pub fn socket(address: SocketAddr) -> SocketAddress {
    let mut form = SocketAddress { family: 2, port: address.port().to_be_bytes(), rest: [0; 24] };
    match address {
        SocketAddr::V4(address) => form.rest[..4].copy_from_slice(&address.ip().octets()),
        SocketAddr::V6(address) => {
            form.family = 23;
            form.rest[4..20].copy_from_slice(&address.ip().octets());
            form.rest[20..].copy_from_slice(&address.scope_id().to_le_bytes());
        }
    }
    form
}

pub fn address_of(form: &SocketAddress) -> SocketAddr {
    let port = u16::from_be_bytes(form.port);
    if form.family == 23 {
        let octets: [u8; 16] = form.rest[4..20].try_into().unwrap();
        let zone = u32::from_le_bytes(form.rest[20..].try_into().unwrap());
        return SocketAddrV6::new(octets.into(), port, 0, zone).into();
    }
    let octets: [u8; 4] = form.rest[..4].try_into().unwrap();
    SocketAddr::from((octets, port))
}

impl Nd {
    /// A program with a context.
    pub fn start(process: u32) -> Self {
        Self::try_start(process).expect("the device opens")
    }

    pub fn try_start(process: u32) -> Result<Self, Status> {
        let file = open_as(Caller::Administrator, process).map_err(Status)?;
        let (status, output) = send(&file, PROVIDER_INIT, handle(0).as_bytes(), size_of::<ProviderToken>());
        if status != Status::SUCCESS {
            return Err(status);
        }
        Ok(Self { file, token: ProviderToken::read_from_bytes(&output).unwrap().token })
    }

    pub fn call(&self, code: u32, input: &(impl IntoBytes + Immutable)) -> Status {
        send(&self.file, code, input.as_bytes(), 0).0
    }

    /// A request with an answer, which must succeed.
    #[track_caller]
    pub fn ask<R: FromBytes>(&self, code: u32, input: &(impl IntoBytes + Immutable)) -> R {
        self.try_ask(code, input).unwrap_or_else(|status| panic!("{code:#x}: {status:?}"))
    }

    pub fn try_ask<R: FromBytes>(&self, code: u32, input: &(impl IntoBytes + Immutable)) -> Result<R, Status> {
        let (status, output) = send(&self.file, code, input.as_bytes(), size_of::<R>());
        if status == Status::SUCCESS { Ok(R::read_from_bytes(&output).expect("a whole answer")) } else { Err(status) }
    }

    /// Begins a request that pends.
    pub fn begin(&self, code: u32, input: &(impl IntoBytes + Immutable)) -> PendingIrp {
        self.file.start_ioctl(code, input.as_bytes(), 0).expect("the I/O manager takes it")
    }

    pub fn begin_direct(&self, code: u32, input: &(impl IntoBytes + Immutable), memory: &UserBuffer) -> PendingIrp {
        self.file.start_ioctl_direct(code, input.as_bytes(), memory).expect("the I/O manager takes it")
    }

    /// A request that has to pend while it lends memory.
    pub fn lend(
        &self,
        code: u32,
        input: &(impl IntoBytes + Immutable),
        memory: &UserBuffer,
    ) -> Result<PendingIrp, Status> {
        let request = self.begin_direct(code, input, memory);
        if request.is_completed() { Err(status(&request)) } else { Ok(request) }
    }

    /// Opens the adapter with an address.
    pub fn open_adapter(&self, ip: IpAddr) -> u64 {
        self.try_open_adapter(self.adapter_id(ip)).expect("the adapter opens")
    }

    /// By which the adapter with an address is opened.
    pub fn adapter_id(&self, ip: IpAddr) -> u64 {
        let asked = ResolveAddress { version: VERSION, reserved: 0, address: socket(SocketAddr::new(ip, 0)) };
        self.ask(PROVIDER_RESOLVE_ADDRESS, &asked)
    }

    pub fn try_open_adapter(&self, adapter_id: u64) -> Result<u64, Status> {
        let asked = OpenAdapter { version: VERSION, adapter_id, ..OpenAdapter::default() };
        self.try_ask::<ResourceDescriptor>(ADAPTER_OPEN, &asked).map(|answer| answer.handle)
    }

    pub fn query(&self, adapter: u64) -> AdapterInfo {
        self.ask(ADAPTER_QUERY, &AdapterQuery { version: VERSION, info_version: INFO_VERSION, adapter })
    }

    pub fn create(&self, code: u32, parent: u64) -> u64 {
        self.ask(code, &handle(parent))
    }

    pub fn free(&self, code: u32, object: u64) -> Status {
        self.call(code, &handle(object))
    }

    pub fn create_queue(&self, adapter: u64, depth: u32) -> Result<u64, Status> {
        let asked =
            CreateCompletionQueue { version: VERSION, queue_depth: depth, adapter, ..CreateCompletionQueue::default() };
        self.try_ask::<ResourceDescriptor>(CQ_CREATE, &asked).map(|answer| answer.handle)
    }

    /// A completion queue with its ring.
    pub fn queue(&self, adapter: u64, depth: u32) -> Queue {
        let handle = self.create_queue(adapter, depth).expect("a queue");
        Queue::attach(self, handle, depth)
    }

    pub fn notify(&self, queue: &Queue, kind: u32) -> PendingIrp {
        self.begin(CQ_NOTIFY, &Notify { version: VERSION, kind, handle: queue.handle })
    }

    /// Registered memory.
    pub fn region(&self, domain: u64, length: usize, flags: u32) -> Region {
        Region::register(self, domain, UserBuffer::new(length), flags)
    }

    pub fn doorbell(&self, object: u64) -> Status {
        self.call(DOORBELL, &handle(object))
    }

    /// Closes the file: whatever pends ends.
    pub fn close(self) {
        self.file.close();
        rest();
    }
}

pub fn status(request: &PendingIrp) -> Status {
    Status(request.wait().status)
}

/// The status of a request that must be over.
#[track_caller]
pub fn status_now(request: &PendingIrp) -> Status {
    assert!(request.is_completed(), "it pends");
    status(request)
}

/// Memory that the driver writes, too.
fn word(memory: &UserBuffer, offset: usize) -> &AtomicU32 {
    assert!(offset + 4 <= memory.len());
    // SAFETY: inside of the buffer, aligned, and accessed atomically on this side.
    unsafe { AtomicU32::from_ptr((memory.address() + offset) as *mut u32) }
}

fn read<T: FromBytes>(memory: &UserBuffer, offset: usize) -> T {
    assert!(offset + size_of::<T>() <= memory.len());
    // SAFETY: inside of the buffer; every byte pattern is a value.
    unsafe { ((memory.address() + offset) as *const T).read_volatile() }
}

pub fn write<T: IntoBytes + FromBytes>(memory: &UserBuffer, offset: usize, mut value: T) {
    assert!(offset + size_of::<T>() <= memory.len());
    kernel_host::distortion::bytes(short_name::<T>(), value.as_mut_bytes());
    // SAFETY: inside of the buffer, which the driver reads by copies.
    unsafe { ((memory.address() + offset) as *mut T).write_volatile(value) };
}

/// A type's name without its module.
fn short_name<T>() -> &'static str {
    std::any::type_name::<T>().rsplit("::").next().unwrap_or_default()
}

/// A completion queue.
pub struct Queue {
    pub handle: u64,
    pub memory: UserBuffer,
    pub attach: PendingIrp,
    ring: Ring,
    taken: AtomicU32,
}

impl Queue {
    #[track_caller]
    pub fn attach(nd: &Nd, handle: u64, depth: u32) -> Self {
        Self::try_attach(nd, handle, depth).unwrap_or_else(|status| panic!("{status:?}"))
    }

    pub fn try_attach(nd: &Nd, handle: u64, depth: u32) -> Result<Self, Status> {
        let (ring, length) = completion_layout(depth).unwrap();
        assert_eq!(ring.offset, COMPLETION_ENTRIES);
        let memory = UserBuffer::new(length);
        let attach = nd.lend(ATTACH, &Attach { version: VERSION, layout: LAYOUT, handle }, &memory)?;
        Ok(Self { handle, memory, attach, ring, taken: AtomicU32::new(0) })
    }

    pub fn flags(&self) -> CompletionFlags {
        CompletionFlags::from_bits_retain(word(&self.memory, 4).load(Ordering::Acquire))
    }

    /// Results there are now.
    pub fn written(&self) -> u32 {
        word(&self.memory, 0).load(Ordering::Acquire)
    }

    /// Results there are that were not taken.
    pub fn unread(&self) -> u32 {
        self.written().wrapping_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Takes at most so many results.
    pub fn take(&self, most: usize) -> Vec<ResultEntry> {
        let mut results = Vec::new();
        while results.len() < most && self.taken.load(Ordering::Relaxed) != self.written() {
            let mut result: ResultEntry = read(&self.memory, self.ring.place(self.taken.load(Ordering::Relaxed)));
            kernel_host::distortion::bytes("ResultEntry", result.as_mut_bytes());
            results.push(result);
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        word(&self.memory, CONSUMER_OFFSET).store(self.taken.load(Ordering::Relaxed), Ordering::Release);
        results
    }

    pub fn poll(&self) -> Vec<ResultEntry> {
        self.take(usize::MAX)
    }

    /// Waits for so many results.
    #[track_caller]
    pub fn wait(&self, count: usize) -> Vec<ResultEntry> {
        let results = self.find(count);
        assert_eq!(results.len(), count, "{results:?}");
        results
    }

    /// As [`Self::wait`], for at most a second.
    pub fn find(&self, count: usize) -> Vec<ResultEntry> {
        let mut results = self.poll();
        for _ in 0..1000 {
            if results.len() >= count {
                break;
            }
            networkdirect::machine::pass(1);
            results.extend(self.poll());
        }
        networkdirect::machine::settle();
        results
    }
}

/// Registered memory.
pub struct Region {
    pub handle: u64,
    pub buffer: UserBuffer,
    pub lock: PendingIrp,
    pub token: u32,
}

pub const LOCAL_WRITE: u32 = 1;
pub const REMOTE_READ: u32 = 2;
pub const REMOTE_WRITE: u32 = 5;
pub const READ_SINK: u32 = 8;

pub fn registration(handle: u64, buffer: &UserBuffer, flags: u32) -> Register {
    let address = buffer.address() as u64;
    let length = buffer.len() as u64;
    Register { version: VERSION, flags, length, target_address: address, handle, address }
}

impl Region {
    #[track_caller]
    pub fn register(nd: &Nd, domain: u64, buffer: UserBuffer, flags: u32) -> Self {
        Self::try_register(nd, domain, buffer, flags).unwrap_or_else(|status| panic!("{status:?}"))
    }

    /// A registration that fails gives the memory back before it answers.
    pub fn try_register(nd: &Nd, domain: u64, buffer: UserBuffer, flags: u32) -> Result<Self, Status> {
        let handle: u64 = nd.try_ask(MR_CREATE, &handle(domain))?;
        let code = if flags & (LOCAL_WRITE | READ_SINK) == 0 { LOCK_FOR_READING } else { LOCK_FOR_WRITING };
        let lock = nd.lend(code, &LockMemory { version: VERSION, reserved: 0, region: handle }, &buffer)?;
        match nd.try_ask::<RegisterReply>(MR_REGISTER, &registration(handle, &buffer, flags)) {
            Ok(reply) => {
                assert_eq!(reply.local_token, reply.remote_token);
                Ok(Self { handle, buffer, lock, token: reply.local_token })
            }
            Err(refused) => {
                assert_eq!(status(&lock), Status::CANCELLED);
                assert_eq!(nd.free(MR_FREE, handle), Status::SUCCESS);
                Err(refused)
            }
        }
    }

    pub fn address(&self) -> u64 {
        self.buffer.address() as u64
    }

    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: self.address() + offset, length, token: self.token }
    }

    pub fn fill(&mut self, byte: u8) {
        self.buffer.as_mut_slice().fill(byte);
    }
}

/// A queue pair, or with no initiator ring a shared receive queue.
pub struct Pair {
    pub handle: u64,
    pub memory: UserBuffer,
    pub attach: PendingIrp,
    pub layout: QueueLayout,
    sizes: QueueSizes,
    sent: AtomicU32,
    received: AtomicU32,
}

pub const SIZES: QueueSizes =
    QueueSizes { initiator_depth: 16, initiator_sges: 4, inline_data: 64, receive_depth: 16, receive_sges: 4 };

impl Pair {
    pub fn attach(nd: &Nd, handle: u64, sizes: QueueSizes) -> Self {
        Self::attach_in(nd, handle, sizes, UserBuffer::new(QueueLayout::new(sizes).unwrap().length))
    }

    /// With memory that may be longer than it has to be.
    #[track_caller]
    pub fn attach_in(nd: &Nd, handle: u64, sizes: QueueSizes, memory: UserBuffer) -> Self {
        Self::try_attach(nd, handle, sizes, memory).unwrap_or_else(|status| panic!("{status:?}"))
    }

    pub fn try_attach(nd: &Nd, handle: u64, sizes: QueueSizes, memory: UserBuffer) -> Result<Self, Status> {
        let layout = QueueLayout::new(sizes).unwrap();
        let attach = nd.lend(ATTACH, &Attach { version: VERSION, layout: LAYOUT, handle }, &memory)?;
        Ok(Self { handle, memory, attach, layout, sizes, sent: AtomicU32::new(0), received: AtomicU32::new(0) })
    }

    pub fn taken(&self) -> QueuePairTaken {
        read(&self.memory, TAKEN_OFFSET)
    }

    /// Whether the driver looks at the rings by itself: posts need no doorbell.
    pub fn is_polled(&self) -> bool {
        fence(Ordering::SeqCst);
        word(&self.memory, POLLING_OFFSET).load(Ordering::Acquire) != 0
    }

    /// Entries of both rings that were written and not taken, by the counts.
    pub fn waiting(&self) -> (u32, u32) {
        let taken = self.taken();
        let sent = self.sent.load(Ordering::Relaxed).wrapping_sub(taken.initiator_taken);
        (sent, self.received.load(Ordering::Relaxed).wrapping_sub(taken.receive_taken))
    }

    pub fn state(&self) -> QueuePairState {
        QueuePairState::from_bits_retain(self.taken().state)
    }

    /// Slots of the initiator queue that are free, by the counts.
    pub fn free(&self) -> u32 {
        self.sizes.initiator_depth - self.sent.load(Ordering::Relaxed).wrapping_sub(self.taken().initiator_retired)
    }

    /// Writes an entry without ringing.
    pub fn write_entry(&self, mut entry: InitiatorEntry, sges: &[Sge], inline: &[u8]) {
        let place = self.layout.initiator.place(self.sent.load(Ordering::Relaxed));
        (entry.sge_count, entry.inline_length) = (sges.len() as u32, inline.len() as u32);
        write(&self.memory, place, entry);
        for (index, sge) in sges.iter().enumerate() {
            write(&self.memory, place + size_of::<InitiatorEntry>() + index * size_of::<Sge>(), *sge);
        }
        for (index, byte) in inline.iter().enumerate() {
            write(&self.memory, place + size_of::<InitiatorEntry>() + index, *byte);
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        word(&self.memory, 0).store(self.sent.load(Ordering::Relaxed), Ordering::Release);
    }

    pub fn write_receive(&self, context: u64, sges: &[Sge]) {
        let place = self.layout.receive.place(self.received.load(Ordering::Relaxed));
        write(&self.memory, place, ReceiveEntry { context, sge_count: sges.len() as u32, reserved: 0 });
        for (index, sge) in sges.iter().enumerate() {
            write(&self.memory, place + size_of::<ReceiveEntry>() + index * size_of::<Sge>(), *sge);
        }
        self.received.fetch_add(1, Ordering::Relaxed);
        word(&self.memory, 4).store(self.received.load(Ordering::Relaxed), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    #[track_caller]
    pub fn receive(&self, nd: &Nd, context: u64, sges: &[Sge]) {
        self.write_receive(context, sges);
        assert_eq!(nd.doorbell(self.handle), Status::SUCCESS);
    }

    #[track_caller]
    pub fn post(&self, nd: &Nd, entry: InitiatorEntry, sges: &[Sge]) {
        self.write_entry(entry, sges, &[]);
        assert_eq!(nd.doorbell(self.handle), Status::SUCCESS);
    }

    pub fn send(&self, nd: &Nd, context: u64, flags: OperationFlags, sges: &[Sge]) {
        self.post(nd, entry(RequestType::Send, context, flags), sges);
    }

    pub fn send_inline(&self, nd: &Nd, context: u64, data: &[u8]) {
        self.write_entry(entry(RequestType::Send, context, OperationFlags::INLINE), &[], data);
        assert_eq!(nd.doorbell(self.handle), Status::SUCCESS);
    }

    pub fn rdma(&self, nd: &Nd, kind: RequestType, context: u64, sges: &[Sge], (address, token): (u64, u32)) {
        let head = InitiatorEntry {
            remote_address: address,
            remote_token: token,
            ..entry(kind, context, OperationFlags::empty())
        };
        self.post(nd, head, sges);
    }
}

pub fn entry(kind: RequestType, context: u64, flags: OperationFlags) -> InitiatorEntry {
    InitiatorEntry { context, request_type: kind as u32, flags: flags.bits(), ..InitiatorEntry::default() }
}

/// Everything on one adapter that traffic needs.
pub struct Program {
    pub nd: Nd,
    pub adapter: u64,
    pub domain: u64,
    pub queue: Queue,
    pub pair: Pair,
    pub region: Region,
    pub host: u8,
}

/// What a queue pair of a program is called in its results.
pub const PAIR_CONTEXT: u64 = 0xA11_0000;

impl Program {
    pub fn start(process: u32, host: u8) -> Self {
        Self::with(process, host, SIZES, 64)
    }

    pub fn with(process: u32, host: u8, sizes: QueueSizes, depth: u32) -> Self {
        let nd = Nd::start(process);
        let adapter = nd.open_adapter(networkdirect::machine::ip(host));
        let domain = nd.create(PD_CREATE, adapter);
        let queue = nd.queue(adapter, depth);
        let pair = new_pair(&nd, domain, (queue.handle, queue.handle), sizes);
        let region = nd.region(domain, 65_536, REMOTE_WRITE | REMOTE_READ);
        Self { nd, adapter, domain, queue, pair, region, host }
    }

    pub fn close(self) -> (Queue, Pair, Region) {
        let Self { nd, queue, pair, region, .. } = self;
        nd.close();
        (queue, pair, region)
    }

    /// Takes another queue pair in the place of its own.
    #[track_caller]
    pub fn replace_pair(&mut self, pair: Pair) {
        let old = std::mem::replace(&mut self.pair, pair);
        assert_eq!(self.nd.free(QP_FREE, old.handle), Status::SUCCESS);
    }

    pub fn connector(&self) -> u64 {
        self.nd.create(CONNECTOR_CREATE, self.adapter)
    }

    pub fn bind(&self, code: u32, object: u64, address: SocketAddr) -> Status {
        let asked = Bind { version: VERSION, reserved: 0, handle: object, address: socket(address), padding: 0 };
        self.nd.call(code, &asked)
    }

    /// A listener on a port of this program's adapter.
    pub fn listen(&self, port: u16, backlog: u32) -> u64 {
        let listener = self.nd.create(LISTENER_CREATE, self.adapter);
        assert_eq!(
            self.bind(LISTENER_BIND, listener, networkdirect::machine::address(self.host, port)),
            Status::SUCCESS
        );
        assert_eq!(self.nd.call(LISTENER_LISTEN, &Listen { version: VERSION, backlog, listener }), Status::SUCCESS);
        listener
    }

    pub fn get_request(&self, listener: u64, connector: u64) -> PendingIrp {
        let asked = GetConnectionRequest { version: VERSION, reserved: 0, listener, connector };
        self.nd.begin(LISTENER_GET_CONNECTION_REQUEST, &asked)
    }

    pub fn connect(&self, connector: u64, to: SocketAddr, data: &[u8]) -> PendingIrp {
        let head = Connect {
            version: VERSION,
            read_limits: ReadLimits { inbound: 4, outbound: 8 },
            private_data_length: data.len() as u32,
            private_data_offset: size_of::<Connect>() as u32,
            connector,
            queue_pair: self.pair.handle,
            destination: socket(to),
            ..Connect::default()
        };
        let input = [head.as_bytes(), data].concat();
        self.nd.file.start_ioctl(CONNECTOR_CONNECT, &input, 0).expect("the I/O manager takes it")
    }

    pub fn accept(&self, connector: u64, data: &[u8]) -> PendingIrp {
        let head = Accept {
            version: VERSION,
            reserved: 0,
            read_limits: ReadLimits { inbound: 6, outbound: 3 },
            private_data_length: data.len() as u32,
            private_data_offset: size_of::<Accept>() as u32,
            connector,
            queue_pair: self.pair.handle,
        };
        let input = [head.as_bytes(), data].concat();
        self.nd.file.start_ioctl(CONNECTOR_ACCEPT, &input, 0).expect("the I/O manager takes it")
    }

    pub fn reject(&self, connector: u64, data: &[u8]) -> Status {
        let head = Reject {
            version: VERSION,
            reserved: 0,
            private_data_length: data.len() as u32,
            private_data_offset: size_of::<Reject>() as u32,
            connector,
        };
        send(&self.nd.file, CONNECTOR_REJECT, &[head.as_bytes(), data].concat(), 0).0
    }

    /// The private data of a connector, as far as there is room for.
    pub fn private_data(&self, connector: u64, room: usize) -> (u32, Vec<u8>) {
        let room = room + size_of::<PrivateDataReply>();
        let (status, output) = send(&self.nd.file, GET_PRIVATE_DATA, handle(connector).as_bytes(), room);
        assert_eq!(status, Status::SUCCESS);
        let (head, data) = PrivateDataReply::read_from_prefix(&output).unwrap();
        assert_eq!(head.returned as usize, data.len());
        (head.length, data.to_vec())
    }

    pub fn address_of(&self, code: u32, object: u64) -> Result<SocketAddr, Status> {
        self.nd.try_ask::<SocketAddress>(code, &handle(object)).map(|form| address_of(&form))
    }
}

pub fn new_pair(nd: &Nd, domain: u64, queues: (u64, u64), sizes: QueueSizes) -> Pair {
    let handle = create_pair(nd, domain, queues, sizes, PAIR_CONTEXT);
    Pair::attach(nd, handle, sizes)
}

/// A queue pair without rings, and what comes with its results.
#[track_caller]
pub fn create_pair(nd: &Nd, domain: u64, queues: (u64, u64), sizes: QueueSizes, context: u64) -> u64 {
    try_create_pair(nd, domain, queues, sizes, context).unwrap_or_else(|status| panic!("{status:?}"))
}

/// `receives`: the sizes of its receive queue, or a shared one.
fn asked_pair(domain: u64, (receive, initiator): (u64, u64), sizes: QueueSizes, receives: u64) -> CreateQueuePair {
    CreateQueuePair {
        version: VERSION,
        max_inline_data: sizes.inline_data,
        initiator_queue_depth: sizes.initiator_depth,
        max_initiator_request_sge: sizes.initiator_sges,
        receive_queue: receive,
        initiator_queue: initiator,
        domain,
        receive: receives,
        ..CreateQueuePair::default()
    }
}

pub fn try_create_pair(
    nd: &Nd,
    domain: u64,
    queues: (u64, u64),
    sizes: QueueSizes,
    context: u64,
) -> Result<u64, Status> {
    let asked = asked_pair(domain, queues, sizes, u64::from(sizes.receive_sges) << 32 | u64::from(sizes.receive_depth));
    let input = [asked.as_bytes(), QueuePairContext { context }.as_bytes()].concat();
    let (status, output) = send(&nd.file, QP_CREATE, &input, size_of::<ResourceDescriptor>());
    if status == Status::SUCCESS {
        Ok(ResourceDescriptor::read_from_bytes(&output).unwrap().handle)
    } else {
        Err(status)
    }
}

/// A queue pair that takes its receives from a shared receive queue.
#[track_caller]
pub fn new_pair_with_shared(nd: &Nd, domain: u64, queues: (u64, u64), sizes: QueueSizes, shared: &Pair) -> Pair {
    let sizes = QueueSizes { receive_depth: 0, receive_sges: 0, ..sizes };
    let asked = asked_pair(domain, queues, sizes, shared.handle);
    Pair::attach(nd, nd.ask::<ResourceDescriptor>(QP_CREATE_WITH_SRQ, &asked).handle, sizes)
}

/// Connects two programs; the connectors of both.
#[track_caller]
pub fn connect(server: &Program, client: &Program) -> (u64, u64) {
    let listener = server.listen(0, 0);
    let to = server.address_of(LISTENER_GET_ADDRESS, listener).unwrap();
    let (theirs, ours) = (server.connector(), client.connector());
    let arriving = server.get_request(listener, theirs);
    assert!(!arriving.is_completed());
    assert_eq!(client.bind(CONNECTOR_BIND, ours, networkdirect::machine::address(client.host, 0)), Status::SUCCESS);
    let connecting = client.connect(ours, to, b"");
    assert_eq!(status(&arriving), Status::SUCCESS);
    let accepting = server.accept(theirs, b"");
    assert_eq!(status(&connecting), Status::SUCCESS);
    assert!(!accepting.is_completed());
    assert_eq!(client.nd.call(CONNECTOR_COMPLETE_CONNECT, &handle(ours)), Status::SUCCESS);
    assert_eq!(status(&accepting), Status::SUCCESS);
    for pair in [&server.pair, &client.pair] {
        assert!(pair.state().contains(QueuePairState::CONNECTED));
    }
    assert_eq!(server.nd.free(LISTENER_FREE, listener), Status::SUCCESS);
    (theirs, ours)
}

/// Two connected programs, on the two adapters.
pub fn pair_of_programs() -> (Program, Program, u64, u64) {
    let (server, client) = (Program::start(100, 1), Program::start(200, 2));
    let (theirs, ours) = connect(&server, &client);
    (server, client, theirs, ours)
}

/// The doorbell that finds an entry without sense says so; one behind the poller finds a queue that takes nothing any more.
pub fn is_refused(doorbell: Status) -> bool {
    doorbell == Status::INVALID_PARAMETER || doorbell == INVALID_DEVICE_STATE
}
