//! A first NDK consumer: it opens two adapters through Winsock Kernel, connects one to the other, reads 4096 bytes from the other's
//! memory by RDMA Read, and closes everything in order. DriverEntry does all of it and returns how it went.
//!
//! Each NDK object has an owner that closes it when dropped and waits for that, so the order of the closes is the order of the drops: what
//! is declared last goes first.
#![no_std]

extern crate wdk_panic;

use core::{
    cell::{Cell, UnsafeCell},
    ffi::c_void,
    mem::MaybeUninit,
    ptr,
};

use ndkpi_sys::{
    ndkinfo::NDK_VERSION,
    ndkpi::{
        NDK_ADAPTER, NDK_CONNECTOR, NDK_CQ, NDK_FN_CLOSE_OBJECT, NDK_LISTENER, NDK_MR, NDK_MR_FLAG_ALLOW_LOCAL_WRITE,
        NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_RDMA_READ_SINK, NDK_MR_FLAGS, NDK_OBJECT_HEADER, NDK_OP_FLAGS,
        NDK_PD, NDK_QP, NDK_RESULT_EX, NDK_SGE, NDK_SGE_ADDRESS,
    },
    nt::{AF_INET, IN_ADDR, NTSTATUS, PVOID, SOCKADDR, SOCKADDR_IN, STATUS_PENDING},
    wsk::{
        WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0,
        WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
    },
    wskndk::{WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH},
};
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, _MODE, _WAIT_TYPE, DRIVER_OBJECT, KEVENT, KPROCESSOR_MODE, LARGE_INTEGER,
    PCUNICODE_STRING, PMDL, POOL_FLAG_NON_PAGED, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
    ntddk::{
        DbgPrint, ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, KeDelayExecutionThread,
        KeInitializeEvent, KeSetEvent, KeWaitForMultipleObjects, KeWaitForSingleObject, MmBuildMdlForNonPagedPool,
    },
};

const BYTES: u32 = 4096;
const PORT: u16 = 5000;
const TAG: u32 = u32::from_le_bytes(*b"Rust");
const KERNEL_MODE: KPROCESSOR_MODE = _MODE::KernelMode as KPROCESSOR_MODE;
const CLIENT: WSK_CLIENT_DISPATCH = WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

type Result<T> = core::result::Result<T, NTSTATUS>;

fn check(status: NTSTATUS) -> Result<()> {
    if status < 0 { Err(status) } else { Ok(()) }
}

/// Calls a function of an object's dispatch table.
macro_rules! ndk {
    // SAFETY of each use: the object is open, and the arguments live as long as the contract of the function asks.
    ($object:expr, $function:ident($($argument:expr),*)) => {
        unsafe { ((*(*$object).Dispatch).$function)($object, $($argument),*) }
    };
}

/// A call that may pend. It is declared before the object that the call is made on, so that it outlives the object's close, which ends
/// every call.
struct Waiter {
    event: UnsafeCell<KEVENT>,
    status: Cell<NTSTATUS>,
    object: Cell<*mut NDK_OBJECT_HEADER>,
}

impl Waiter {
    fn new() -> Self {
        let event = UnsafeCell::new(KEVENT::default());
        Self { event, status: Cell::new(STATUS_SUCCESS), object: Cell::new(ptr::null_mut()) }
    }

    /// The context of the next call. The waiter stays where it is from here on.
    fn begin(&self) -> PVOID {
        // SAFETY: nothing waits for the event.
        unsafe { KeInitializeEvent(self.event.get(), _EVENT_TYPE::NotificationEvent, 0) };
        ptr::from_ref(self).cast_mut().cast()
    }

    /// How the call ended that returned this.
    fn end(&self, status: NTSTATUS) -> Result<()> {
        if status != STATUS_PENDING {
            return check(status);
        }
        // SAFETY: initialised in `begin`; PASSIVE_LEVEL.
        let _ = unsafe {
            KeWaitForSingleObject(self.event.get().cast(), _KWAIT_REASON::Executive, KERNEL_MODE, 0, ptr::null_mut())
        };
        check(self.status.get())
    }

    /// Makes an object by a call that is given a context and a place for the object.
    fn create<T>(&self, call: impl FnOnce(PVOID, *mut *mut T) -> NTSTATUS) -> Result<*mut T> {
        let mut made = ptr::null_mut();
        let status = call(self.begin(), &raw mut made);
        self.end(status)?;
        // After it pended, the object comes with the completion.
        Ok(if status == STATUS_PENDING { self.object.get().cast() } else { made })
    }

    /// What came with the completion so far; null before it.
    fn object(&self) -> *mut NDK_OBJECT_HEADER {
        // SAFETY: this waiter's own place, which a completion on another processor may be writing.
        unsafe { self.object.as_ptr().read_volatile() }
    }

    /// Waits for this or another.
    fn wait_with(&self, other: &Self) {
        let mut events: [PVOID; 2] = [self.event.get().cast(), other.event.get().cast()];
        // SAFETY: both are initialised; PASSIVE_LEVEL.
        let _ = unsafe {
            KeWaitForMultipleObjects(
                2,
                events.as_mut_ptr(),
                _WAIT_TYPE::WaitAny,
                _KWAIT_REASON::Executive,
                KERNEL_MODE,
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
    }
}

unsafe extern "C" fn request_done(context: PVOID, status: NTSTATUS) {
    // SAFETY: the context of `Waiter::begin`, whose waiter waits for this.
    let waiter = unsafe { &*context.cast::<Waiter>() };
    waiter.status.set(status);
    // SAFETY: initialised in `begin`. The waiter may be gone when this returns.
    unsafe { KeSetEvent(waiter.event.get(), 0, 0) };
}

unsafe extern "C" fn create_done(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: as in `request_done`.
    unsafe { (*context.cast::<Waiter>()).object.set(object) };
    // SAFETY: as above.
    unsafe { request_done(context, status) };
}

unsafe extern "C" fn close_done(context: PVOID) {
    // SAFETY: as in `request_done`.
    unsafe { request_done(context, STATUS_SUCCESS) };
}

/// A connector for a connection request: one arrives, since there is one peer.
unsafe extern "C" fn arrived(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context of a waiter that lives longer than the listener.
    unsafe { create_done(context, STATUS_SUCCESS, connector.cast()) };
}

/// An NDK object that is closed when this is dropped; the drop waits for the end of the close.
struct Owned<T> {
    object: *mut T,
    close: NDK_FN_CLOSE_OBJECT,
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let waiter = Waiter::new();
        // SAFETY: an open object and its own close function.
        let status = unsafe { (self.close)(self.object.cast(), Some(close_done), waiter.begin()) };
        // A close cannot fail.
        let _ = waiter.end(status);
    }
}

macro_rules! owned {
    ($object:expr, $close:ident) => {{
        let object = $object;
        // SAFETY: the object has just been made.
        Owned { object, close: unsafe { (*(*object).Dispatch).$close } }
    }};
}

/// Non-paged memory and its memory descriptor list.
struct Buffer {
    memory: *mut u8,
    mdl: PMDL,
}

impl Buffer {
    fn new() -> Result<Self> {
        // SAFETY: any level up to DISPATCH.
        let memory = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, BYTES.into(), TAG) };
        let mut buffer = Self { memory: memory.cast(), mdl: ptr::null_mut() };
        if !memory.is_null() {
            // SAFETY: memory of that length.
            buffer.mdl = unsafe { IoAllocateMdl(memory, BYTES, 0, 0, ptr::null_mut()) };
        }
        if buffer.mdl.is_null() {
            return Err(STATUS_INSUFFICIENT_RESOURCES);
        }
        // SAFETY: an MDL of non-paged pool.
        unsafe { MmBuildMdlForNonPagedPool(buffer.mdl) };
        Ok(buffer)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: memory of that length, which nothing else uses while this is borrowed.
        unsafe { core::slice::from_raw_parts_mut(self.memory, BYTES as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.mdl.is_null() {
            // SAFETY: made in `new`.
            unsafe { IoFreeMdl(self.mdl) };
        }
        if !self.memory.is_null() {
            // SAFETY: made in `new`.
            unsafe { ExFreePoolWithTag(self.memory.cast(), TAG) };
        }
    }
}

/// The captured provider of Winsock Kernel.
struct Wsk<'registration> {
    registration: &'registration UnsafeCell<WSK_REGISTRATION>,
    provider: WSK_PROVIDER_NPI,
    ndk: WSK_PROVIDER_NDK_DISPATCH,
}

impl<'registration> Wsk<'registration> {
    /// The registration stays where it is for as long as this lives.
    fn capture(registration: &'registration UnsafeCell<WSK_REGISTRATION>) -> Result<Self> {
        let mut client = WSK_CLIENT_NPI { ClientContext: ptr::null_mut(), Dispatch: &CLIENT };
        // SAFETY: PASSIVE_LEVEL; the table is constant.
        check(unsafe { WskRegister(&raw mut client, registration.get()) })?;
        let mut provider = WSK_PROVIDER_NPI::zeroed();
        // SAFETY: registered.
        let captured = check(unsafe { WskCaptureProviderNPI(registration.get(), u32::MAX, &raw mut provider) });
        if let Err(status) = captured {
            // SAFETY: registered.
            unsafe { WskDeregister(registration.get()) };
            return Err(status);
        }
        let mut ndk = MaybeUninit::<WSK_PROVIDER_NDK_DISPATCH>::uninit();
        // SAFETY: a captured provider, and room for exactly the table.
        let status = unsafe {
            ((*provider.Dispatch).WskControlClient)(
                provider.Client,
                WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH,
                0,
                ptr::null_mut(),
                size_of::<WSK_PROVIDER_NDK_DISPATCH>() as _,
                ndk.as_mut_ptr().cast(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if let Err(status) = check(status) {
            // SAFETY: captured and registered.
            unsafe { WskReleaseProviderNPI(registration.get()) };
            // SAFETY: registered.
            unsafe { WskDeregister(registration.get()) };
            return Err(status);
        }
        // SAFETY: the call filled it.
        Ok(Self { registration, provider, ndk: unsafe { ndk.assume_init() } })
    }

    fn open(&self, interface: u32) -> Result<Adapter<'_>> {
        let mut object = ptr::null_mut();
        let version = NDK_VERSION { Major: 2, Minor: 0 };
        // SAFETY: PASSIVE_LEVEL; captured.
        check(unsafe { (self.ndk.WskOpenNdkAdapter)(self.provider.Client, version, interface, &raw mut object) })?;
        Ok(Adapter { wsk: self, object })
    }
}

impl Drop for Wsk<'_> {
    fn drop(&mut self) {
        // SAFETY: captured and registered.
        unsafe { WskReleaseProviderNPI(self.registration.get()) };
        // SAFETY: registered.
        unsafe { WskDeregister(self.registration.get()) };
    }
}

/// An open adapter.
struct Adapter<'wsk> {
    wsk: &'wsk Wsk<'wsk>,
    object: *mut NDK_ADAPTER,
}

impl Drop for Adapter<'_> {
    fn drop(&mut self) {
        // SAFETY: PASSIVE_LEVEL; opened by this client, and everything made from it is closed.
        unsafe { (self.wsk.ndk.WskCloseNdkAdapter)(self.wsk.provider.Client, self.object) };
    }
}

/// One end of the connection. Fields are dropped from the first to the last.
struct Side<'wsk> {
    pair: Owned<NDK_QP>,
    region: Region,
    _domain: Owned<NDK_PD>,
    queue: Owned<NDK_CQ>,
    adapter: Adapter<'wsk>,
}

impl<'wsk> Side<'wsk> {
    fn new(wsk: &'wsk Wsk<'wsk>, interface: u32, flags: NDK_MR_FLAGS) -> Result<Self> {
        let waiter = Waiter::new();
        let adapter = wsk.open(interface)?;
        let object = adapter.object;
        let (none, done) = (ptr::null_mut(), Some(create_done as _));
        let queue = waiter
            .create(|context, place| ndk!(object, NdkCreateCq(8, None, none, ptr::null_mut(), done, context, place)))?;
        let queue: Owned<NDK_CQ> = owned!(queue, NdkCloseCq);
        let domain = waiter.create(|context, place| ndk!(object, NdkCreatePd(done, context, place)))?;
        let domain: Owned<NDK_PD> = owned!(domain, NdkClosePd);
        let region = Region::new(domain.object, flags)?;
        let pair = waiter.create(|context, place| {
            let (domain, queue) = (domain.object, queue.object);
            ndk!(domain, NdkCreateQp(queue, queue, none, 4, 4, 1, 1, 0, done, context, place))
        })?;
        Ok(Self { pair: owned!(pair, NdkCloseQp), region, _domain: domain, queue, adapter })
    }
}

/// A registered buffer.
struct Region {
    object: Owned<NDK_MR>,
    registered: bool,
    buffer: Buffer,
}

impl Region {
    fn new(domain: *mut NDK_PD, flags: NDK_MR_FLAGS) -> Result<Self> {
        let waiter = Waiter::new();
        let buffer = Buffer::new()?;
        let object = waiter.create(|context, place| ndk!(domain, NdkCreateMr(0, Some(create_done), context, place)))?;
        let mut region = Self { object: owned!(object, NdkCloseMr), registered: false, buffer };
        let (mdl, context) = (region.buffer.mdl.cast(), waiter.begin());
        waiter.end(ndk!(object, NdkRegisterMr(mdl, BYTES as _, flags, Some(request_done), context)))?;
        region.registered = true;
        Ok(region)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.registered {
            let (waiter, object) = (Waiter::new(), self.object.object);
            let _ = waiter.end(ndk!(object, NdkDeregisterMr(Some(request_done), waiter.begin())));
        }
    }
}

/// What the passive side tells the active one with its accept: where its memory is.
#[repr(C)]
struct RemoteMemory {
    address: u64,
    token: u32,
}

/// 10.0.0.LAST with a port.
fn address(last: u8, port: u16) -> SOCKADDR_IN {
    let sin_addr = IN_ADDR { S_addr: u32::from_ne_bytes([10, 0, 0, last]) };
    SOCKADDR_IN { sin_family: AF_INET, sin_port: port.to_be(), sin_addr, sin_zero: [0; 8] }
}

const ADDRESS_LENGTH: u32 = size_of::<SOCKADDR_IN>() as u32;

fn listen(passive: &Side<'_>, arrival: &Waiter) -> Result<Owned<NDK_LISTENER>> {
    let (waiter, adapter) = (Waiter::new(), passive.adapter.object);
    let event = arrival.begin();
    let listener = waiter.create(|context, place| {
        ndk!(adapter, NdkCreateListener(Some(arrived), event, Some(create_done), context, place))
    })?;
    let owner = owned!(listener, NdkCloseListener);
    let (here, context) = (address(2, PORT), waiter.begin());
    let here: *const SOCKADDR = (&raw const here).cast();
    waiter.end(ndk!(listener, NdkListen(here, ADDRESS_LENGTH, Some(request_done), context)))?;
    Ok(owner)
}

/// Connects both sides, reads, and disconnects.
fn talk(active: &mut Side<'_>, passive: &mut Side<'_>) -> Result<()> {
    let (waiter, connected, accepted, arrival) = (Waiter::new(), Waiter::new(), Waiter::new(), Waiter::new());
    let _listener = listen(passive, &arrival)?;
    let adapter = active.adapter.object;
    let connector =
        waiter.create(|context, place| ndk!(adapter, NdkCreateConnector(Some(create_done), context, place)))?;
    let mut _arrived: Option<Owned<NDK_CONNECTOR>> = None;
    let _connector = owned!(connector, NdkCloseConnector);
    let (from, to) = (address(1, 0), address(2, PORT));
    let (from, to): (*const SOCKADDR, *const SOCKADDR) = ((&raw const from).cast(), (&raw const to).cast());
    let (pair, context, done) = (active.pair.object, connected.begin(), Some(request_done as _));
    let (length, nothing) = (ADDRESS_LENGTH, ptr::null::<c_void>());
    let connecting = ndk!(connector, NdkConnect(pair, from, length, to, length, 1, 1, nothing, 0, done, context));
    if connecting != STATUS_PENDING {
        return connected.end(connecting).and(Err(STATUS_UNSUCCESSFUL));
    }
    arrival.wait_with(&connected);
    let peer: *mut NDK_CONNECTOR = arrival.object().cast();
    if peer.is_null() {
        return connected.end(connecting);
    }
    _arrived = Some(owned!(peer, NdkCloseConnector));

    let region = passive.region.object.object;
    let token = unsafe { ((*(*region).Dispatch).NdkGetRemoteTokenFromMr)(region) };
    let memory = RemoteMemory { address: passive.region.buffer.memory as u64, token };
    let (pair, context, size) = (passive.pair.object, accepted.begin(), size_of::<RemoteMemory>() as u32);
    let data: *const c_void = (&raw const memory).cast();
    let accepting = ndk!(peer, NdkAccept(pair, 1, 1, data, size, None, ptr::null_mut(), done, context));
    connected.end(if accepting < 0 { accepting } else { connecting })?;
    let context = waiter.begin();
    waiter.end(ndk!(connector, NdkCompleteConnect(None, ptr::null_mut(), done, context)))?;
    accepted.end(accepting)?;

    let read = read(active, passive, connector);
    // A disconnect completes when the peer has answered with its own; neither side has an event function to learn of it by.
    let context = connected.begin();
    let disconnecting = ndk!(connector, NdkDisconnect(done, context));
    let context = accepted.begin();
    let answered = accepted.end(ndk!(peer, NdkDisconnect(done, context)));
    read.and(answered).and(connected.end(disconnecting))
}

/// Reads the peer's memory and polls for the result, since the queue has no notification function.
fn read(active: &mut Side<'_>, passive: &mut Side<'_>, connector: *mut NDK_CONNECTOR) -> Result<()> {
    // The length of a connection's private data is the adapter's, whatever was sent; what we need stands at its front.
    let mut data = [0_u64; 32];
    let (mut length, limit) = (size_of_val(&data) as u32, ptr::null_mut());
    check(ndk!(connector, NdkGetConnectionData(limit, limit, (&raw mut data).cast(), &raw mut length)))?;
    let remote = RemoteMemory { address: data[0], token: data[1] as u32 };
    let region = active.region.object.object;
    let token = unsafe { ((*(*region).Dispatch).NdkGetLocalTokenFromMr)(region) };
    let sink = NDK_SGE_ADDRESS { VirtualAddress: active.region.buffer.memory.cast() };
    let element = NDK_SGE { Address: sink, Length: BYTES, MemoryRegionToken: token };
    let (pair, flags, none) = (active.pair.object, NDK_OP_FLAGS::empty(), ptr::null_mut());
    check(ndk!(pair, NdkRead(none, &raw const element, 1, remote.address, remote.token, flags)))?;
    let (queue, mut result) = (active.queue.object, NDK_RESULT_EX::zeroed());
    while ndk!(queue, NdkGetCqResultsEx(&raw mut result, 1)) == 0 {
        let mut millisecond = LARGE_INTEGER { QuadPart: -10_000 };
        // SAFETY: PASSIVE_LEVEL.
        let _ = unsafe { KeDelayExecutionThread(KERNEL_MODE, 0, &raw mut millisecond) };
    }
    check(result.Status)?;
    let same = active.region.buffer.bytes() == passive.region.buffer.bytes();
    if same { Ok(()) } else { Err(STATUS_UNSUCCESSFUL) }
}

fn run() -> Result<()> {
    let registration = UnsafeCell::new(WSK_REGISTRATION::zeroed());
    let wsk = Wsk::capture(&registration)?;
    let mut passive = Side::new(&wsk, 12, NDK_MR_FLAG_ALLOW_REMOTE_READ)?;
    let mut active = Side::new(&wsk, 11, NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_RDMA_READ_SINK)?;
    passive.region.buffer.bytes().fill(0x5A);
    talk(&mut active, &mut passive)
}

unsafe extern "C" fn unload(_driver: *mut DRIVER_OBJECT) {}

/// # Safety
/// The system calls it once, at PASSIVE_LEVEL.
// SAFETY: the loader looks for this name, and nothing else in the image has it.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(driver: &mut DRIVER_OBJECT, _registry_path: PCUNICODE_STRING) -> NTSTATUS {
    driver.DriverUnload = Some(unload);
    match run() {
        Ok(()) => {
            // SAFETY: a format with its argument.
            unsafe { DbgPrint(c"read %u bytes from the other adapter\n".as_ptr(), BYTES) };
            STATUS_SUCCESS
        }
        Err(status) => {
            // SAFETY: as above.
            unsafe { DbgPrint(c"TEST-FAILED: 0x%08X\n".as_ptr(), status) };
            status
        }
    }
}
