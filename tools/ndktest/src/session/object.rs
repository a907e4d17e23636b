//! Handles of open NDK objects: the functions of their dispatch tables with typed arguments.
//!
//! Every call goes through the `Dispatch` that the object has at that moment, because that is what a foreign consumer does (and
//! what the layer in between has replaced). A method relies on what NDKPI says of the function that its first line names:
//!
//! - An object is open: a [`Handle`] of it says so.
//! - Numbers, tokens and flags are the provider's to check.
//! - Memory that is lent for the call (a list of results, an address, private data) is a reference.
//! - What the provider uses after the call was vouched for when its type was made: [`Callback`], [`SgeList`].
//! - A method that asks for more is `unsafe`.

use core::{ffi::c_void, marker::PhantomData, net::SocketAddr, ptr, ptr::NonNull};

use ndkpi_sys::{
    ndkinfo::NDK_ADAPTER_INFO,
    ndkpi::{
        NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_CQ, NDK_CQ_DISPATCH,
        NDK_FN_CLOSE_COMPLETION, NDK_FN_CLOSE_OBJECT, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK,
        NDK_FN_CREATE_COMPLETION, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_REQUEST_COMPLETION,
        NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_LISTENER, NDK_LISTENER_DISPATCH, NDK_LOGICAL_ADDRESS,
        NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR, NDK_MR_DISPATCH, NDK_MR_FLAGS, NDK_MW, NDK_MW_DISPATCH, NDK_OBJECT_HEADER,
        NDK_OP_FLAGS, NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_QP_DISPATCH, NDK_RESULT, NDK_RESULT_EX, NDK_SGE,
        NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ, NDK_SRQ_DISPATCH,
    },
    nt::{FALSE, GROUP_AFFINITY, MDL, NTSTATUS, PVOID, SOCKADDR, SOCKADDR_INET, STATUS_PENDING, STATUS_SUCCESS, TRUE},
};
use softndk_ioctl::Status;

use super::consumer::check;
use crate::socket::{self, WireAddress};

/// An NDK object with a dispatch table.
pub trait Tabled: Sized + 'static {
    /// Its functions.
    type Table: 'static;

    /// The table the object points to now.
    fn dispatch(object: Handle<'_, Self>) -> *const Self::Table;
}

/// An NDK object that its consumer closes.
pub trait Closable: Tabled {
    /// NdkClose… of its kind.
    fn close(table: &Self::Table) -> NDK_FN_CLOSE_OBJECT;
}

/// An NDK object that a request can invalidate.
pub trait Invalidatable: Tabled {}

impl Invalidatable for NDK_MR {}
impl Invalidatable for NDK_MW {}

macro_rules! tabled {
    ($($Object:ident, $Table:ident $(, $close:ident)?;)*) => {$(
        impl Tabled for $Object {
            type Table = $Table;

            fn dispatch(object: Handle<'_, Self>) -> *const $Table {
                // SAFETY: an open object (`Handle::new`).
                unsafe { (*object.as_ptr()).Dispatch }
            }
        }

        $(impl Closable for $Object {
            fn close(table: &$Table) -> NDK_FN_CLOSE_OBJECT {
                table.$close
            }
        })?
    )*};
}

tabled! {
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH;
    NDK_CQ, NDK_CQ_DISPATCH, NdkCloseCq;
    NDK_PD, NDK_PD_DISPATCH, NdkClosePd;
    NDK_MR, NDK_MR_DISPATCH, NdkCloseMr;
    NDK_QP, NDK_QP_DISPATCH, NdkCloseQp;
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NdkCloseConnector;
    NDK_LISTENER, NDK_LISTENER_DISPATCH, NdkCloseListener;
    NDK_SRQ, NDK_SRQ_DISPATCH, NdkCloseSrq;
    NDK_MW, NDK_MW_DISPATCH, NdkCloseMw;
    NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NdkCloseSharedEndpoint;
}

/// An object that is open for `'a`. One of a `'static` handle is open until its holder closes it, which is unsafe.
pub struct Handle<'a, T: Tabled> {
    object: NonNull<T>,
    open: PhantomData<&'a T>,
}

impl<T: Tabled> Clone for Handle<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Tabled> Copy for Handle<'_, T> {}

// SAFETY: NDK objects may be used from every thread; the holder serialises what the contract wants serialised.
unsafe impl<T: Tabled> Send for Handle<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Tabled> Sync for Handle<'_, T> {}

impl<'a, T: Tabled> Handle<'a, T> {
    /// # Safety
    /// The object stays open as long as the handle or a copy is used.
    pub unsafe fn new(object: NonNull<T>) -> Self {
        Self { object, open: PhantomData }
    }

    /// What the provider knows the object by.
    pub fn as_ptr(self) -> *mut T {
        self.object.as_ptr()
    }

    #[inline]
    fn table(self) -> &'a T::Table {
        // SAFETY: an open object points to a complete table.
        unsafe { &*T::dispatch(self) }
    }
}

impl<T: Closable> Handle<'_, T> {
    /// NDKPI: NDK_FN_CLOSE_OBJECT.
    ///
    /// # Safety
    /// No context uses the handle or a copy any more, or closes the object.
    pub unsafe fn close(self, done: Callback<'_, NDK_FN_CLOSE_COMPLETION>) -> NTSTATUS {
        let (close, (done, context)) = (T::close(self.table()), done.into_raw());
        // SAFETY: closed once (the caller's promise), with an owner's completion.
        unsafe { close(self.as_ptr().cast(), done, context) }
    }

    /// As [`Handle::close`], for an object whose end nothing waits for.
    ///
    /// # Safety
    /// As [`Handle::close`].
    pub unsafe fn close_unowned(self) {
        // SAFETY: the caller's promise.
        let _status = unsafe { self.close(Callback::IGNORED) };
    }
}

unsafe extern "C" fn ignore(_context: PVOID) {}

/// A function of this driver that the provider calls, with its context: for one request, or for an object until it is closed.
pub struct Callback<'a, F> {
    function: Option<F>,
    context: PVOID,
    owner: PhantomData<&'a ()>,
}

impl Callback<'_, NDK_FN_CLOSE_COMPLETION> {
    /// No context waits for the close completion.
    pub const IGNORED: Self = Self { function: Some(ignore), ..Self::NONE };
}

/// What a request that pends answers to.
pub type Completion<'a> = Callback<'a, NDK_FN_REQUEST_COMPLETION>;

/// What a create call that pends answers to.
pub type CreateCompletion<'a> = Callback<'a, NDK_FN_CREATE_COMPLETION>;

impl<F> Callback<'_, F> {
    /// No call is wanted.
    pub const NONE: Self = Self { function: None, context: ptr::null_mut(), owner: PhantomData };

    /// # Safety
    /// `function` may be called with `context` until the request that this is given to is complete, or its object closed.
    pub unsafe fn new(function: F, context: PVOID) -> Self {
        Self { function: Some(function), context, owner: PhantomData }
    }

    /// For one call.
    fn into_raw(self) -> (Option<F>, PVOID) {
        (self.function, self.context)
    }
}

/// The answer of a create call.
pub struct Created<T> {
    status: NTSTATUS,
    object: *mut T,
}

/// What calls that pend report to, one call at a time.
///
/// # Safety
/// `wait` returns a status other than PENDING, and only after `complete` has returned, or what it stores, if the call pended. `object`
/// is what `complete` was given last.
pub unsafe trait PendingCall: Sized {
    /// Ready for another call. None is under way.
    fn begin(&self);

    /// The call is over. `IRQL <= DISPATCH_LEVEL`.
    fn complete(&self, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER);

    /// Waits for a call that answered PENDING; any other answer is final. PASSIVE_LEVEL.
    fn wait(&self, status: NTSTATUS) -> NTSTATUS;

    /// What a create call has made that is complete.
    fn object(&self) -> *mut NDK_OBJECT_HEADER;

    /// For one call.
    ///
    /// # Safety
    /// This stays where it is until the call is complete or its object closed, and `function` is one of those below for `Self`.
    unsafe fn callback<'a, F>(&self, function: F) -> Callback<'a, F> {
        self.begin();
        // SAFETY: the caller's promise.
        unsafe { Callback::new(function, ptr::from_ref(self).cast_mut().cast()) }
    }

    /// For one request.
    ///
    /// # Safety
    /// This stays where it is until the request is complete or its object closed.
    unsafe fn completion<'a>(&self) -> Completion<'a> {
        // SAFETY: the caller's promise.
        unsafe { self.callback(completed::<Self> as _) }
    }

    /// Makes an object and waits for it. PASSIVE_LEVEL.
    fn create<T: Closable>(
        &self,
        call: impl FnOnce(CreateCompletion<'_>) -> Created<T>,
    ) -> Result<Handle<'static, T>, Status> {
        // SAFETY: the call is waited for.
        let created = call(unsafe { self.callback(created::<Self> as _) });
        check(self.wait(created.status))?;
        let object = if created.status == STATUS_PENDING { self.object().cast() } else { created.object };
        let object = NonNull::new(object).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        // SAFETY: just made, and the caller's to close.
        Ok(unsafe { Handle::new(object) })
    }

    /// Begins to close an object.
    ///
    /// # Safety
    /// As [`Handle::close`] and [`PendingCall::completion`].
    unsafe fn close<T: Closable>(&self, object: Handle<'_, T>) -> NTSTATUS {
        // SAFETY: the caller's promise.
        let done = unsafe { self.callback(closed::<Self> as _) };
        // SAFETY: as above.
        unsafe { object.close(done) }
    }
}

/// NDK_FN_CREATE_COMPLETION of a [`PendingCall`].
unsafe extern "C" fn created<C: PendingCall>(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: it stays until the call is complete or its object closed.
    if let Some(call) = unsafe { context.cast::<C>().as_ref() } {
        call.complete(status, object);
    }
}

/// NDK_FN_REQUEST_COMPLETION of a [`PendingCall`].
unsafe extern "C" fn completed<C: PendingCall>(context: PVOID, status: NTSTATUS) {
    // SAFETY: as above.
    unsafe { created::<C>(context, status, ptr::null_mut()) };
}

/// NDK_FN_CLOSE_COMPLETION of a [`PendingCall`].
unsafe extern "C" fn closed<C: PendingCall>(context: PVOID) {
    // SAFETY: as above.
    unsafe { created::<C>(context, STATUS_SUCCESS, ptr::null_mut()) };
}

/// The scatter/gather elements of requests.
#[derive(Clone, Copy)]
pub struct SgeList {
    first: *const NDK_SGE,
    count: u32,
}

impl SgeList {
    /// Of a request without data.
    pub const EMPTY: Self = Self { first: ptr::null(), count: 0 };

    /// # Safety
    /// The elements stay as they are while requests are posted with the list, and their memory, inline data excepted, is left to
    /// the adapter until those complete or the queue pair is closed.
    pub unsafe fn new(sges: &[NDK_SGE]) -> Self {
        Self { first: sges.as_ptr(), count: sges.len() as u32 }
    }

    /// # Safety
    /// As [`SgeList::new`], of `count` elements from `first` on.
    #[inline]
    pub unsafe fn from_raw(first: *const NDK_SGE, count: u32) -> Self {
        Self { first, count }
    }
}

/// Depths and widths of a queue pair.
#[derive(Clone, Copy)]
pub struct QueuePairShape {
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_sges: u32,
    pub initiator_sges: u32,
    pub inline_data: u32,
}

/// What a queue pair reports to: the completion queues of its receives and of its requests, and its name in results.
#[derive(Clone, Copy)]
pub struct Reporting<'a> {
    pub receive: Handle<'a, NDK_CQ>,
    pub initiator: Handle<'a, NDK_CQ>,
    pub context: PVOID,
}

/// What one side of a connection brings.
pub struct ConnectParameters<'a> {
    pub queue_pair: Handle<'a, NDK_QP>,
    pub inbound_read_limit: u32,
    pub outbound_read_limit: u32,
    pub private_data: &'a [u8],
}

impl ConnectParameters<'_> {
    fn data(&self) -> *const c_void {
        if self.private_data.is_empty() { ptr::null() } else { self.private_data.as_ptr().cast() }
    }

    fn data_length(&self) -> u32 {
        self.private_data.len() as u32
    }
}

/// Pages that a region gets, and the label of their first byte.
#[derive(Clone, Copy)]
pub struct FastRegistration<'a> {
    pub region: Handle<'a, NDK_MR>,
    pub pages: &'a [NDK_LOGICAL_ADDRESS],
    pub first_byte_offset: u32,
    pub length: usize,
    pub base: u64,
}

fn label(address: u64) -> PVOID {
    ptr::without_provenance_mut(address as usize)
}

/// Methods of an object's handle, one a function of its table: the method's parameters, and the function's after the object. Behind
/// the word `create` those that make an object, whose last three parameters are added here.
macro_rules! functions {
    ($Object:ident: $(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $Type:ty),*) $(-> $Result:ty)? = $Function:ident($($raw:expr),*);
    )*) => {
        impl Handle<'_, $Object> {$(
            $(#[$doc])*
            #[inline]
            pub fn $name(self $(, $argument: $Type)*) $(-> $Result)? {
                // SAFETY: the function that the method's doc names, of an open object, with arguments as the module says.
                unsafe { (self.table().$Function)(self.as_ptr() $(, $raw)*) }
            }
        )*}
    };
    (create $Object:ident: $(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $Type:ty),*) -> $Made:ident = $Function:ident($($raw:expr),*);
    )*) => {
        impl Handle<'_, $Object> {$(
            $(#[$doc])*
            pub fn $name(self $(, $argument: $Type)*, done: CreateCompletion<'_>) -> Created<$Made> {
                let mut object = ptr::null_mut();
                let (create, place) = (self.table().$Function, &raw mut object);
                // SAFETY: as above; an object that is made in the call has its place.
                let status = unsafe { create(self.as_ptr() $(, $raw)*, done.function, done.context, place) };
                Created { status, object }
            }
        )*}
    };
}

functions! { create NDK_ADAPTER:
    /// NDKPI: NDK_FN_CREATE_PD.
    create_protection_domain() -> NDK_PD = NdkCreatePd();
    /// NDKPI: NDK_FN_CREATE_CQ.
    create_completion_queue(
        depth: u32,
        notification: &Callback<'_, NDK_FN_CQ_NOTIFICATION_CALLBACK>,
        affinity: Option<&mut GROUP_AFFINITY>
    ) -> NDK_CQ = NdkCreateCq(
        depth,
        notification.function,
        notification.context,
        affinity.map_or(ptr::null_mut(), ptr::from_mut)
    );
    /// NDKPI: NDK_FN_CREATE_LISTENER.
    create_listener(event: &Callback<'_, NDK_FN_CONNECT_EVENT_CALLBACK>) -> NDK_LISTENER =
        NdkCreateListener(event.function, event.context);
    /// NDKPI: NDK_FN_CREATE_CONNECTOR.
    create_connector() -> NDK_CONNECTOR = NdkCreateConnector();
    /// NDKPI: NDK_FN_CREATE_SHARED_ENDPOINT.
    create_shared_endpoint(address: &WireAddress) -> NDK_SHARED_ENDPOINT =
        NdkCreateSharedEndpoint(address.as_ptr(), address.length());
}

functions! { create NDK_PD:
    /// NDKPI: NDK_FN_CREATE_MR.
    create_memory_region(fast_register: bool) -> NDK_MR = NdkCreateMr(if fast_register { TRUE } else { FALSE });
    /// NDKPI: NDK_FN_CREATE_MW.
    create_memory_window() -> NDK_MW = NdkCreateMw();
    /// NDKPI: NDK_FN_CREATE_SRQ.
    create_shared_receive_queue(
        depth: u32,
        sges: u32,
        threshold: u32,
        notification: &Callback<'_, NDK_FN_SRQ_NOTIFICATION_CALLBACK>
    ) -> NDK_SRQ =
        NdkCreateSrq(depth, sges, threshold, notification.function, notification.context, ptr::null_mut());
    /// NDKPI: NDK_FN_CREATE_QP.
    create_queue_pair(to: Reporting<'_>, shape: QueuePairShape) -> NDK_QP = NdkCreateQp(
        to.receive.as_ptr(),
        to.initiator.as_ptr(),
        to.context,
        shape.receive_depth,
        shape.initiator_depth,
        shape.receive_sges,
        shape.initiator_sges,
        shape.inline_data
    );
    /// NDKPI: NDK_FN_CREATE_QP_WITH_SRQ. The shape's receives are not used.
    create_queue_pair_shared(to: Reporting<'_>, shared: Handle<'_, NDK_SRQ>, shape: QueuePairShape) -> NDK_QP =
        NdkCreateQpWithSrq(
            to.receive.as_ptr(),
            to.initiator.as_ptr(),
            shared.as_ptr(),
            to.context,
            shape.initiator_depth,
            shape.initiator_sges,
            shape.inline_data
        );
}

functions! { NDK_CQ:
    /// NDKPI: NDK_FN_GET_CQ_RESULTS_EX. How many.
    poll(results: &mut [NDK_RESULT_EX]) -> u32 = NdkGetCqResultsEx(results.as_mut_ptr(), results.len() as u32);
    /// NDKPI: NDK_FN_GET_CQ_RESULTS, the function of NDKPI 1. How many.
    poll_first_form(results: &mut [NDK_RESULT]) -> u32 = NdkGetCqResults(results.as_mut_ptr(), results.len() as u32);
    /// NDKPI: NDK_FN_ARM_CQ.
    arm(kind: u32) = NdkArmCq(kind);
    /// NDKPI: NDK_FN_RESIZE_CQ.
    resize(depth: u32, done: Completion<'_>) -> NTSTATUS = NdkResizeCq(depth, done.function, done.context);
    /// NDKPI: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION.
    moderate(interval: u32, count: u32) -> NTSTATUS = NdkControlCqInterruptModeration(interval, count);
}

functions! { NDK_SRQ:
    /// NDKPI: NDK_FN_SRQ_RECEIVE.
    receive(context: PVOID, sges: SgeList) -> NTSTATUS = NdkSrqReceive(context, sges.first, sges.count);
    /// NDKPI: NDK_FN_MODIFY_SRQ.
    modify(depth: u32, threshold: u32, done: Completion<'_>) -> NTSTATUS =
        NdkModifySrq(depth, threshold, done.function, done.context);
}

functions! { NDK_MR:
    /// NDKPI: NDK_FN_DEREGISTER_MR.
    deregister(done: Completion<'_>) -> NTSTATUS = NdkDeregisterMr(done.function, done.context);
    /// NDKPI: NDK_FN_INITIALIZE_FAST_REGISTER_MR.
    initialize(pages: u32, remote: bool, done: Completion<'_>) -> NTSTATUS =
        NdkInitializeFastRegisterMr(pages, if remote { TRUE } else { FALSE }, done.function, done.context);
    /// NDKPI: NDK_FN_GET_LOCAL_TOKEN_FROM_MR.
    local_token() -> u32 = NdkGetLocalTokenFromMr();
    /// NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MR.
    remote_token() -> u32 = NdkGetRemoteTokenFromMr();
}

functions! { NDK_MW:
    /// NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MW.
    remote_token() -> u32 = NdkGetRemoteTokenFromMw();
}

functions! { NDK_QP:
    /// NDKPI: NDK_FN_SEND.
    send(context: PVOID, sges: SgeList, flags: NDK_OP_FLAGS) -> NTSTATUS =
        NdkSend(context, sges.first, sges.count, flags);
    /// NDKPI: NDK_FN_SEND_AND_INVALIDATE.
    send_and_invalidate(context: PVOID, sges: SgeList, flags: NDK_OP_FLAGS, token: u32) -> NTSTATUS =
        NdkSendAndInvalidate(context, sges.first, sges.count, flags, token);
    /// NDKPI: NDK_FN_RECEIVE.
    receive(context: PVOID, sges: SgeList) -> NTSTATUS = NdkReceive(context, sges.first, sges.count);
    /// NDKPI: NDK_FN_READ.
    read(context: PVOID, sges: SgeList, address: u64, token: u32, flags: NDK_OP_FLAGS) -> NTSTATUS =
        NdkRead(context, sges.first, sges.count, address, token, flags);
    /// NDKPI: NDK_FN_WRITE.
    write(context: PVOID, sges: SgeList, address: u64, token: u32, flags: NDK_OP_FLAGS) -> NTSTATUS =
        NdkWrite(context, sges.first, sges.count, address, token, flags);
    /// NDKPI: NDK_FN_BIND. Region and window are of the queue pair's protection domain.
    bind(
        context: PVOID,
        region: Handle<'_, NDK_MR>,
        window: Handle<'_, NDK_MW>,
        address: u64,
        length: usize,
        flags: NDK_OP_FLAGS
    ) -> NTSTATUS = NdkBind(context, region.as_ptr(), window.as_ptr(), label(address), length, flags);
    /// NDKPI: NDK_FN_FLUSH.
    flush() = NdkFlush();
}

functions! { NDK_LISTENER:
    /// NDKPI: NDK_FN_LISTEN.
    listen(address: &WireAddress, done: Completion<'_>) -> NTSTATUS =
        NdkListen(address.as_ptr(), address.length(), done.function, done.context);
    /// NDKPI: NDK_FN_CONTROL_CONNECT_EVENTS. While paused it is as if there were no listener.
    pause(pause: bool) = NdkControlConnectEvents(if pause { TRUE } else { FALSE });
}

functions! { NDK_CONNECTOR:
    /// NDKPI: NDK_FN_CONNECT.
    connect(
        source: &WireAddress,
        destination: &WireAddress,
        with: &ConnectParameters<'_>,
        done: Completion<'_>
    ) -> NTSTATUS = NdkConnect(
        with.queue_pair.as_ptr(),
        source.as_ptr(),
        source.length(),
        destination.as_ptr(),
        destination.length(),
        with.inbound_read_limit,
        with.outbound_read_limit,
        with.data(),
        with.data_length(),
        done.function,
        done.context
    );
    /// NDKPI: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT.
    connect_shared(
        endpoint: Handle<'_, NDK_SHARED_ENDPOINT>,
        destination: &WireAddress,
        with: &ConnectParameters<'_>,
        done: Completion<'_>
    ) -> NTSTATUS = NdkConnectWithSharedEndpoint(
        with.queue_pair.as_ptr(),
        endpoint.as_ptr(),
        destination.as_ptr(),
        destination.length(),
        with.inbound_read_limit,
        with.outbound_read_limit,
        with.data(),
        with.data_length(),
        done.function,
        done.context
    );
    /// NDKPI: NDK_FN_ACCEPT.
    accept(
        with: &ConnectParameters<'_>,
        disconnected: &Callback<'_, NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        done: Completion<'_>
    ) -> NTSTATUS = NdkAccept(
        with.queue_pair.as_ptr(),
        with.inbound_read_limit,
        with.outbound_read_limit,
        with.data(),
        with.data_length(),
        disconnected.function,
        disconnected.context,
        done.function,
        done.context
    );
    /// NDKPI: NDK_FN_COMPLETE_CONNECT.
    complete_connect(
        disconnected: &Callback<'_, NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        done: Completion<'_>
    ) -> NTSTATUS =
        NdkCompleteConnect(disconnected.function, disconnected.context, done.function, done.context);
    /// NDKPI: NDK_FN_REJECT.
    reject(data: &[u8]) -> NTSTATUS =
        NdkReject(if data.is_empty() { ptr::null() } else { data.as_ptr().cast() }, data.len() as u32);
    /// NDKPI: NDK_FN_DISCONNECT.
    disconnect(done: Completion<'_>) -> NTSTATUS = NdkDisconnect(done.function, done.context);
}

impl Handle<'_, NDK_ADAPTER> {
    /// NDKPI: NDK_FN_QUERY_ADAPTER_INFO, with room for the longest form.
    pub fn information(self) -> Result<NDK_ADAPTER_INFO, Status> {
        let mut information = NDK_ADAPTER_INFO::zeroed();
        let mut length = size_of::<NDK_ADAPTER_INFO>() as u32;
        let (place, capacity) = (&raw mut information, &raw mut length);
        // SAFETY: an open adapter, and as much room as is said.
        check(unsafe { (self.table().NdkQueryAdapterInfo)(self.as_ptr(), place, capacity) }).map(|()| information)
    }

    /// NDKPI: NDK_FN_BUILD_LAM without a completion, so inline. `size` is the capacity in bytes, then what is needed.
    ///
    /// # Safety
    /// `mapping` has so many bytes; the memory that the list describes stays locked until the mapping is released.
    pub unsafe fn build_logical_mapping(
        self,
        (list, length): (*mut MDL, usize),
        mapping: &mut [NDK_LOGICAL_ADDRESS],
        size: &mut u32,
        first_byte_offset: &mut u32,
    ) -> NTSTATUS {
        let place: *mut NDK_LOGICAL_ADDRESS_MAPPING =
            if mapping.is_empty() { ptr::null_mut() } else { mapping.as_mut_ptr().cast() };
        let (build, object) = (self.table().NdkBuildLAM, self.as_ptr());
        // SAFETY: an open adapter; the caller's promise.
        unsafe { build(object, list, length, None, ptr::null_mut(), place, size, first_byte_offset) }
    }

    /// NDKPI: NDK_FN_RELEASE_LAM.
    ///
    /// # Safety
    /// `mapping` is one of this adapter that nothing uses any more and that is released once.
    pub unsafe fn release_logical_mapping(self, mapping: &mut [NDK_LOGICAL_ADDRESS]) {
        // SAFETY: the caller's promise.
        unsafe { (self.table().NdkReleaseLAM)(self.as_ptr(), mapping.as_mut_ptr().cast()) };
    }
}

impl Handle<'_, NDK_PD> {
    /// NDKPI: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN.
    pub fn privileged_token(self) -> u32 {
        let mut token = 0;
        // SAFETY: an open domain, and a place for the token.
        unsafe { (self.table().NdkGetPrivilegedMemoryRegionToken)(self.as_ptr(), &raw mut token) };
        token
    }
}

impl Handle<'_, NDK_MR> {
    /// NDKPI: NDK_FN_REGISTER_MR.
    ///
    /// # Safety
    /// The list stays as it is until the request is complete, its memory until the region is deregistered or closed.
    pub unsafe fn register(
        self,
        (list, length): (*mut MDL, usize),
        rights: NDK_MR_FLAGS,
        done: Completion<'_>,
    ) -> NTSTATUS {
        let (done, context) = done.into_raw();
        // SAFETY: an open region; the caller's promise.
        unsafe { (self.table().NdkRegisterMr)(self.as_ptr(), list, length, rights, done, context) }
    }
}

impl Handle<'_, NDK_QP> {
    /// NDKPI: NDK_FN_FAST_REGISTER.
    ///
    /// # Safety
    /// The pages are of a mapping that stays until the region is invalidated or closed.
    #[inline]
    pub unsafe fn fast_register(self, context: PVOID, what: &FastRegistration<'_>, flags: NDK_OP_FLAGS) -> NTSTATUS {
        // SAFETY: an open queue pair and region, and a list that is read in the call; the caller's promise.
        unsafe {
            (self.table().NdkFastRegister)(
                self.as_ptr(),
                context,
                what.region.as_ptr(),
                what.pages.len() as u32,
                what.pages.as_ptr(),
                what.first_byte_offset,
                what.length,
                label(what.base),
                flags,
            )
        }
    }

    /// NDKPI: NDK_FN_INVALIDATE, of a region or window of the queue pair's protection domain.
    #[inline]
    pub fn invalidate<T: Invalidatable>(self, context: PVOID, target: Handle<'_, T>, flags: NDK_OP_FLAGS) -> NTSTATUS {
        // SAFETY: an open queue pair, and an open object.
        unsafe { (self.table().NdkInvalidate)(self.as_ptr(), context, target.as_ptr().cast(), flags) }
    }
}

impl Handle<'_, NDK_LISTENER> {
    /// NDKPI: NDK_FN_GET_LISTENER_LOCAL_ADDRESS.
    pub fn address(self) -> Result<SocketAddr, Status> {
        // SAFETY: an open listener, and as much room as is said.
        read_address(|place, length| unsafe { (self.table().NdkGetLocalAddress)(self.as_ptr(), place, length) })
    }
}

impl Handle<'_, NDK_CONNECTOR> {
    /// NDKPI: NDK_FN_GET_LOCAL_ADDRESS.
    pub fn address(self) -> Result<SocketAddr, Status> {
        // SAFETY: an open connector, and as much room as is said.
        read_address(|place, length| unsafe { (self.table().NdkGetLocalAddress)(self.as_ptr(), place, length) })
    }

    /// NDKPI: NDK_FN_GET_PEER_ADDRESS.
    pub fn peer_address(self) -> Result<SocketAddr, Status> {
        // SAFETY: as above.
        read_address(|place, length| unsafe { (self.table().NdkGetPeerAddress)(self.as_ptr(), place, length) })
    }

    /// NDKPI: NDK_FN_GET_CONNECTION_DATA. Without a buffer it asks for sizes and limits: inbound and outbound Reads.
    pub fn read_limits(self) -> Result<[u32; 2], Status> {
        let (mut inbound, mut outbound, mut length) = (0, 0, 0);
        let (none, size) = (ptr::null_mut(), &raw mut length);
        let (get, object) = (self.table().NdkGetConnectionData, self.as_ptr());
        // SAFETY: an open connector, and places for the numbers.
        check(unsafe { get(object, &raw mut inbound, &raw mut outbound, none, size) }).map(|()| [inbound, outbound])
    }
}

fn read_address(ask: impl FnOnce(*mut SOCKADDR, *mut u32) -> NTSTATUS) -> Result<SocketAddr, Status> {
    let mut address = SOCKADDR_INET::zeroed();
    let mut length = size_of::<SOCKADDR_INET>() as u32;
    check(ask((&raw mut address).cast(), &raw mut length))?;
    socket::socket_address(&address).ok_or(Status::INVALID_ADDRESS)
}
