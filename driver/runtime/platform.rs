//! What the engine needs from the kernel: locks, copies, scheduling, clock, processor, callback types.

use core::{any::Any, ffi::c_void, net::SocketAddr, ptr::NonNull};

use ndkpi_sys::{
    ndkpi::{
        NDK_CONNECTOR, NDK_FN_CLOSE_COMPLETION, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK,
        NDK_FN_CREATE_COMPLETION, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
        NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER,
    },
    nt::{NTSTATUS, STATUS_CONNECTION_ABORTED, ULONG},
};
use softndk_cells::{Erased, NoMemory};
use softndk_engine::{
    AccessFault, Arrival, ConnectError, ConnectionRecord, Lock, Memory, ObjectKind, Operation, Platform, Terminate,
};
use softndk_ioctl::{NdkCall, RefusalCause, RefusalWay};
use softndk_kernel::{clock::Clock, copy, irql, pool::AnyPoolBox, random, spin_lock::SpinLock, timer};
use wdk_sys::ntddk::KeShouldYieldProcessor;

use crate::runtime::{
    event,
    memory::Mapping,
    refusal::{Refusal, refuse_by},
    service::ProcessorServices,
    sockets::{TcpListeningSocket, TcpSocket},
    status,
};

/// A consumer's context word. Only ever given back.
#[derive(Clone, Copy, Debug)]
pub struct Context(pub *mut c_void);

// SAFETY: the consumer's word is never followed here; it goes back to the consumer in whatever context the callback runs.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A callback of the consumer with its context. It is called with no lock held, and that of a call once, when that has answered
/// STATUS_PENDING.
#[derive(Clone, Copy)]
pub struct Callback<F: Copy> {
    function: F,
    context: Context,
}

impl<F: Copy> Callback<F> {
    /// # Safety
    /// `function` may be called with `context` as its prototype says: it is what a consumer gave with a call.
    pub unsafe fn new(function: F, context: *mut c_void) -> Self {
        Self { function, context: Context(context) }
    }

    fn map<G: Copy>(self, form: fn(F) -> G) -> Callback<G> {
        Callback { function: form(self.function), context: self.context }
    }
}

impl Callback<NDK_FN_REQUEST_COMPLETION> {
    pub fn complete(self, status: NTSTATUS) {
        // SAFETY: `new`.
        unsafe { (self.function)(self.context.0, status) };
    }
}

impl Callback<NDK_FN_CREATE_COMPLETION> {
    pub fn complete(self, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        // SAFETY: `new`.
        unsafe { (self.function)(self.context.0, status, object) };
    }
}

/// How a close is reported.
pub type CloseCallback = Callback<Option<NDK_FN_CLOSE_COMPLETION>>;

impl CloseCallback {
    pub fn is_there(&self) -> bool {
        self.function.is_some()
    }

    /// Nothing where the consumer gave no function.
    pub fn complete(self) {
        if let Some(function) = self.function {
            // SAFETY: `new`.
            unsafe { function(self.context.0) };
        }
    }
}

impl Callback<NDK_FN_CQ_NOTIFICATION_CALLBACK> {
    pub fn notify(self, status: NTSTATUS) {
        // SAFETY: `new`; the queue is not closed before its notification has returned.
        unsafe { (self.function)(self.context.0, status) };
    }
}

impl Callback<NDK_FN_CONNECT_EVENT_CALLBACK> {
    pub fn connect(self, connector: *mut NDK_CONNECTOR) {
        // SAFETY: `new`; the listener is not closed before its event has returned.
        unsafe { (self.function)(self.context.0, connector) };
    }
}

impl Callback<DisconnectFunction> {
    pub fn disconnected(self, reason: ULONG) {
        match self.function {
            // SAFETY: `new`.
            DisconnectFunction::Plain(function) => unsafe { function(self.context.0) },
            // SAFETY: `new`.
            DisconnectFunction::Extended(function) => unsafe { function(self.context.0, reason) },
            // SAFETY: `new`.
            DisconnectFunction::UserMode(function, number) => unsafe { function(self.context.0, number) },
        }
    }
}

impl From<Callback<NDK_FN_DISCONNECT_EVENT_CALLBACK>> for Callback<DisconnectFunction> {
    fn from(callback: Callback<NDK_FN_DISCONNECT_EVENT_CALLBACK>) -> Self {
        callback.map(DisconnectFunction::Plain)
    }
}

impl From<Callback<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>> for Callback<DisconnectFunction> {
    fn from(callback: Callback<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>) -> Self {
        callback.map(DisconnectFunction::Extended)
    }
}

/// How the end of a request is reported.
#[derive(Clone, Copy)]
pub enum RequestCallback {
    Consumer(ConsumerRequest),
    /// To the user-mode front end, which makes a status of its own of the result.
    UserMode(Callback<UserModeRequest>),
}

/// The callback of a kernel consumer, and which request it is.
#[derive(Clone, Copy)]
pub struct ConsumerRequest {
    pub callback: Callback<NDK_FN_REQUEST_COMPLETION>,
    pub call: NdkCall,
}

impl From<ConsumerRequest> for RequestCallback {
    fn from(request: ConsumerRequest) -> Self {
        Self::Consumer(request)
    }
}

/// What the user-mode front end gives with a request.
pub type UserModeRequest = unsafe fn(*mut c_void, Result<(), ConnectError>);

impl Callback<UserModeRequest> {
    pub fn complete(self, result: Result<(), ConnectError>) {
        // SAFETY: `new`; the object is not closed before its request has been reported.
        unsafe { (self.function)(self.context.0, result) };
    }
}

/// A pended request that has been cancelled, as its owner sees it.
#[derive(Clone, Copy)]
pub struct CancelledRequest(NonNull<c_void>);

impl CancelledRequest {
    /// # Safety
    /// The block of the request lives until its owner has been asked ([`UserModeObject::cancelled`]).
    pub unsafe fn new(block: NonNull<c_void>) -> Self {
        Self(block)
    }

    pub fn block(self) -> NonNull<c_void> {
        self.0
    }
}

/// An object of the user-mode front end as the engine keeps it, and as its pended requests know it.
pub trait UserModeObject: Any + Send + Sync {
    /// A pended request of the object has been cancelled. `IRQL <= DISPATCH_LEVEL`, no lock held. The request is not kept.
    fn cancelled(&self, request: CancelledRequest);
}

/// What the engine keeps of a front end while one of its objects exists. Dropping it frees it.
#[expect(
    dead_code,
    reason = "the blocks are owned here and reached through the pointers that their front ends gave away"
)]
pub enum ConsumerObject {
    /// A block that a kernel consumer has the address of.
    Block(AnyPoolBox),
    UserMode(Erased<dyn UserModeObject>),
}

/// How incoming connections are reported.
#[derive(Clone, Copy)]
pub enum ConnectCallback {
    Consumer(ConsumerListener),
    UserMode(Callback<UserModeConnect>),
}

/// The callback of a kernel consumer, and how it gets its connectors.
#[derive(Clone, Copy)]
pub struct ConsumerListener {
    pub callback: Callback<NDK_FN_CONNECT_EVENT_CALLBACK>,
    /// The open that the listener belongs to; it outlives its listeners.
    pub open: Context,
    /// Makes a connector of that open for the arrival and reports it.
    pub deliver: fn(Self, Arrival<KernelPlatform>),
}

/// What the user-mode front end gives with a listener.
pub type UserModeConnect = unsafe fn(*mut c_void, Arrival<KernelPlatform>);

impl Callback<UserModeConnect> {
    pub fn connect(self, arrival: Arrival<KernelPlatform>) {
        // SAFETY: `new`; the listener is not closed before its event has returned.
        unsafe { (self.function)(self.context.0, arrival) };
    }
}

/// How the end of a connection is reported.
#[derive(Clone, Copy)]
pub enum DisconnectFunction {
    Plain(NDK_FN_DISCONNECT_EVENT_CALLBACK),
    Extended(NDK_FN_DISCONNECT_EVENT_CALLBACK_EX),
    /// To the user-mode front end, with the number of its attempt.
    UserMode(UserModeDisconnect, u64),
}

/// What the user-mode front end gives with an attempt.
pub type UserModeDisconnect = unsafe fn(*mut c_void, u64);

/// The kernel as the engine's platform.
pub struct KernelPlatform {
    pub services: ProcessorServices,
    clock: Clock,
}

impl KernelPlatform {
    pub fn new(services: ProcessorServices) -> Self {
        Self { services, clock: Clock::new() }
    }
}

/// A spin lock as the engine takes it.
pub struct EngineLock<T>(SpinLock<T>);

impl<T: Send> Lock<T> for EngineLock<T> {
    fn new(value: T) -> Self {
        Self(SpinLock::new(value))
    }

    fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.0.lock())
    }
}

impl Memory for Mapping {
    fn length(&self) -> u64 {
        self.length()
    }
}

impl Platform for KernelPlatform {
    type Lock<T: Send> = EngineLock<T>;
    type Memory = Mapping;
    type ConsumerObject = ConsumerObject;
    type CloseCallback = CloseCallback;
    type RequestCallback = RequestCallback;
    type NotifyCallback = Callback<NDK_FN_CQ_NOTIFICATION_CALLBACK>;
    type ConnectCallback = ConnectCallback;
    type DisconnectCallback = Callback<DisconnectFunction>;
    type Socket = TcpSocket<Self>;
    type ListeningSocket = TcpListeningSocket<Self>;

    fn connect(&self, from: SocketAddr, to: SocketAddr) -> Result<TcpSocket<Self>, ConnectError> {
        TcpSocket::connect(from, to)
    }

    fn listen(&self, at: SocketAddr) -> Result<TcpListeningSocket<Self>, ConnectError> {
        TcpListeningSocket::listen(at)
    }

    fn secret(&self) -> Result<[u32; 4], NoMemory> {
        random::numbers()
    }

    fn copy(&self, to: (&Mapping, u64), from: (&Mapping, u64), length: usize) {
        Mapping::copy(to, from, length);
    }

    fn copy_last(&self, to: (&Mapping, u64), from: (&Mapping, u64), length: usize) {
        Mapping::copy_last(to, from, length);
    }

    #[inline]
    fn copy_message(&self, to: (&Mapping, u64), from: (&Mapping, u64), length: usize) {
        Mapping::copy_message(to, from, length);
    }

    fn store(&self, to: (&Mapping, u64), bytes: &[u8]) {
        to.0.store(to.1, bytes);
    }

    fn load(&self, into: &mut [u8], from: (&Mapping, u64)) {
        from.0.load(from.1, into);
    }

    fn read_inline(&self, address: u64, into: &mut [u8]) {
        let source: *const u8 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: NDKPI: with NDK_OP_FLAG_INLINE the SGE's address can be read at DISPATCH_LEVEL until the call returns.
        unsafe { copy::bytes(into.as_mut_ptr(), source, into.len()) };
    }

    fn processor(&self) -> u32 {
        irql::processor()
    }

    fn schedule(&self, processor: u32) {
        self.services.schedule(processor);
    }

    fn wake_at(&self, processor: u32, deadline: u64) {
        self.services.wake_at(processor, deadline, self.now());
    }

    fn timer_resolution(&self) -> u64 {
        timer::resolution()
    }

    fn at_dispatch(&self) -> bool {
        irql::at_dispatch()
    }

    fn should_yield(&self) -> bool {
        // SAFETY: IRQL <= DISPATCH_LEVEL.
        unsafe { KeShouldYieldProcessor() != 0 }
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn raised<R>(&self, piece: impl FnOnce(bool) -> R) -> R {
        irql::raised(piece)
    }

    fn connection_changed(&self, record: &ConnectionRecord) {
        event::connection(record);
    }

    fn peer_refused(&self, queue_pair: (ObjectKind, u64), operation: Operation, fault: AccessFault) {
        let _ = refuse_by(RefusalWay::PEER, status::call_of(operation), &queue_pair, status::of_peer(operation, fault));
    }

    fn stream_terminated(&self, queue_pair: (ObjectKind, u64), terminate: Terminate) {
        let Terminate { is_of_peer, layer, kind, code } = terminate;
        let way = if is_of_peer { RefusalWay::PEER_TERMINATE } else { RefusalWay::TERMINATE };
        let refusal = Refusal::new(RefusalCause::of_terminate(layer, kind, code), STATUS_CONNECTION_ABORTED);
        let _ = refuse_by(way, NdkCall::STREAM, &queue_pair, refusal);
    }
}
