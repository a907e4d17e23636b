//! A consumer's view of NDK objects: created through the dispatch tables, closed when dropped, waited for with events.
//!
//! Every call goes through the `Dispatch` of the object it is made on, because that is what a foreign consumer does (and what
//! the layer in between has replaced).

use core::{
    ffi::c_void,
    mem::size_of,
    net::{IpAddr, SocketAddr},
    ptr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

use ndkpi_sys::{
    ndkinfo::NDK_ADAPTER_INFO,
    ndkpi::{
        NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_CQ, NDK_CQ_DISPATCH,
        NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_SOLICITED, NDK_FN_CLOSE_OBJECT, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_LISTENER,
        NDK_LISTENER_DISPATCH, NDK_MR, NDK_MR_DISPATCH, NDK_MW, NDK_MW_DISPATCH, NDK_OBJECT_HEADER, NDK_PD,
        NDK_PD_DISPATCH, NDK_QP, NDK_QP_DISPATCH, NDK_RESULT, NDK_RESULT_EX, NDK_SHARED_ENDPOINT,
        NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ, NDK_SRQ_DISPATCH,
    },
    nt::{
        FALSE, GROUP_AFFINITY, NTSTATUS, PVOID, SOCKADDR, SOCKADDR_INET, STATUS_INSUFFICIENT_RESOURCES,
        STATUS_NOT_FOUND, STATUS_PENDING, STATUS_SUCCESS, TRUE,
    },
};
use softndk_ioctl::Status;
use softndk_kernel::{clock, event::Event, irql, pool::PoolBox};

use crate::{control::adapter_list, driver::Driver, interface::Addresses, socket, tags, wsk};

/// What NDK calls are answered to: one request at a time.
pub struct Waiter {
    /// Stays set once the completion has come.
    done: Event,
    status: AtomicI32,
}

impl Waiter {
    pub fn try_new() -> Result<Self, Status> {
        let done = Event::try_notification(tags::EVENT).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        Ok(Self { done, status: AtomicI32::new(STATUS_PENDING) })
    }

    /// Ready for another request. None is under way.
    pub fn reset(&self) {
        self.done.clear();
        self.status.store(STATUS_PENDING, Ordering::Release);
    }

    /// The completion has come.
    pub fn is_done(&self) -> bool {
        self.status.load(Ordering::Acquire) != STATUS_PENDING
    }

    fn context(&self) -> PVOID {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Waits for a request that answered PENDING; any other answer is final.
    pub fn finish(&self, status: NTSTATUS) -> NTSTATUS {
        if status != STATUS_PENDING {
            return status;
        }
        self.done.wait();
        self.status.load(Ordering::Acquire)
    }

    /// As [`Waiter::finish`], but gives up with the error of `wait`, which says whether the event has come. Then the request is
    /// still pending: the object it was made on has to be closed before the waiter goes.
    pub fn finish_unless(
        &self,
        status: NTSTATUS,
        wait: impl Fn(&Event) -> Result<bool, Status>,
    ) -> Result<NTSTATUS, Status> {
        if status != STATUS_PENDING {
            return Ok(status);
        }
        while !wait(&self.done)? {}
        Ok(self.status.load(Ordering::Acquire))
    }

    /// As [`Waiter::finish`], for so many nanoseconds at most. A request that is late is still pending.
    pub fn finish_within(&self, status: NTSTATUS, limit: u64) {
        if status == STATUS_PENDING {
            self.done.wait_with(&[], Some(limit));
        }
    }

    /// What a thread waits for that waits for something else, too.
    pub fn event(&self) -> &Event {
        &self.done
    }
}

/// NDK_FN_REQUEST_COMPLETION of a [`Waiter`].
unsafe extern "C" fn request_done(context: PVOID, status: NTSTATUS) {
    // SAFETY: the waiter lives until the request is complete or its object closed.
    if let Some(waiter) = unsafe { context.cast::<Waiter>().as_ref() } {
        waiter.status.store(status, Ordering::Release);
        waiter.done.set();
    }
}

/// NDK_FN_CLOSE_COMPLETION of a [`Waiter`].
unsafe extern "C" fn close_done(context: PVOID) {
    // SAFETY: as `request_done`.
    unsafe { request_done(context, STATUS_SUCCESS) };
}

/// Turns a final status into a result.
pub fn check(status: NTSTATUS) -> Result<(), Status> {
    if status == STATUS_SUCCESS { Ok(()) } else { Err(Status(status)) }
}

/// An NDK object with a dispatch table and a close.
pub trait Tabled: Sized {
    type Table: 'static;

    /// The table the object points to now.
    ///
    /// # Safety
    /// `object` is open.
    unsafe fn dispatch(object: *mut Self) -> *const Self::Table;

    fn close(table: &Self::Table) -> NDK_FN_CLOSE_OBJECT;
}

macro_rules! tabled {
    ($($Object:ident, $Table:ident, $close:ident;)*) => {$(
        impl Tabled for $Object {
            type Table = $Table;

            unsafe fn dispatch(object: *mut Self) -> *const $Table {
                // SAFETY: an open object (the caller's promise).
                unsafe { (*object).Dispatch }
            }

            fn close(table: &$Table) -> NDK_FN_CLOSE_OBJECT {
                table.$close
            }
        }
    )*};
}

tabled! {
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

/// The table of an object that is not owned (yet).
///
/// # Safety
/// `object` is open and stays so while the table is used.
pub unsafe fn table_of<'a, T: Tabled>(object: *mut T) -> &'a T::Table {
    // SAFETY: the caller's promise.
    let table = unsafe { T::dispatch(object) };
    // SAFETY: an open object points to a complete table.
    unsafe { &*table }
}

/// An object that is closed, and waited for, when dropped. PASSIVE_LEVEL.
pub struct Owned<T: Tabled> {
    object: *mut T,
    waiter: Waiter,
    closed: AtomicBool,
}

// SAFETY: NDK objects may be used from every thread; the owner serialises what the contract wants serialised.
unsafe impl<T: Tabled> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T: Tabled> Sync for Owned<T> {}

impl<T: Tabled> Owned<T> {
    pub fn as_ptr(&self) -> *mut T {
        self.object
    }

    /// The object's functions.
    pub fn table(&self) -> &T::Table {
        // SAFETY: open as long as it is owned.
        unsafe { table_of(self.object) }
    }

    /// Closes the object before it is dropped, and waits. PASSIVE_LEVEL. Another time it does nothing.
    ///
    /// # Safety
    /// Nothing uses the object or its table any more.
    pub unsafe fn close_early(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let close = T::close(self.table());
        // SAFETY: an object of ours, closed once; the waiter outlives the close, which is waited for.
        let status = unsafe { close(self.object.cast::<NDK_OBJECT_HEADER>(), Some(close_done), self.waiter.context()) };
        self.waiter.finish(status);
    }
}

impl<T: Tabled> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the owner goes, and with it every use.
        unsafe { self.close_early() };
    }
}

/// A create call: answered inline, or later to the create completion, which is waited for.
macro_rules! create {
    (|$place:ident, $done:ident, $context:ident| $call:expr) => {{
        let creation = Creation::try_new()?;
        let waiter = Waiter::try_new()?;
        let mut object = ptr::null_mut();
        let $place = &raw mut object;
        let ($done, $context) = (Some(create_done as _), creation.context());
        let status = $call;
        let object = creation.finish(status, object)?;
        Ok(Owned { object, waiter, closed: AtomicBool::new(false) })
    }};
}

/// What a create call that pends answers to.
pub struct Creation {
    waiter: Waiter,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

impl Creation {
    pub fn try_new() -> Result<Self, Status> {
        Ok(Self { waiter: Waiter::try_new()?, object: AtomicPtr::new(ptr::null_mut()) })
    }

    pub fn context(&self) -> PVOID {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub fn finish<T>(&self, status: NTSTATUS, inline: *mut T) -> Result<*mut T, Status> {
        let pended = status == STATUS_PENDING;
        check(self.waiter.finish(status))?;
        let object = if pended { self.object.load(Ordering::Acquire).cast() } else { inline };
        if object.is_null() { Err(Status(STATUS_INSUFFICIENT_RESOURCES)) } else { Ok(object) }
    }
}

/// NDK_FN_CREATE_COMPLETION of a [`Creation`].
pub unsafe extern "C" fn create_done(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: the creation waits on its stack until this has run.
    if let Some(creation) = unsafe { context.cast::<Creation>().as_ref() } {
        creation.object.store(object, Ordering::Release);
        creation.waiter.status.store(status, Ordering::Release);
        creation.waiter.done.set();
    }
}

/// An open adapter, closed when dropped.
pub struct OpenedAdapter {
    open: wsk::Open,
    interface: u32,
}

impl OpenedAdapter {
    /// Opens the NDK adapter of an interface. PASSIVE_LEVEL.
    pub fn open(driver: &'static Driver, interface: u32) -> Result<Self, Status> {
        match driver.client.open(interface) {
            Ok(open) => Ok(Self { open, interface }),
            Err(STATUS_NOT_FOUND) => Err(Status::DEVICE_DOES_NOT_EXIST),
            Err(status) if adapter_list::is_off(status) => Err(Status::DEVICE_NOT_READY),
            Err(status) => Err(Status(status)),
        }
    }

    pub fn as_ptr(&self) -> *mut NDK_ADAPTER {
        self.open.as_ptr()
    }

    /// The index of its interface.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// Limits and abilities.
    pub fn information(&self) -> Result<NDK_ADAPTER_INFO, Status> {
        let mut information = NDK_ADAPTER_INFO::zeroed();
        let mut length = size_of::<NDK_ADAPTER_INFO>() as u32;
        // SAFETY: NDKPI: NDK_FN_QUERY_ADAPTER_INFO with room for the longest form.
        let status =
            unsafe { (self.table().NdkQueryAdapterInfo)(self.as_ptr(), &raw mut information, &raw mut length) };
        check(status).map(|()| information)
    }

    /// An address to listen on and to connect from: IPv4 before IPv6. PASSIVE_LEVEL.
    pub fn first_address(&self) -> Result<IpAddr, Status> {
        Addresses::read()?.first_of(self.interface).ok_or(Status::INVALID_ADDRESS)
    }

    /// The adapter's functions.
    pub fn table(&self) -> &NDK_ADAPTER_DISPATCH {
        // SAFETY: open as long as it is owned.
        let table = unsafe { (*self.as_ptr()).Dispatch };
        // SAFETY: an open adapter points to a complete table.
        unsafe { &*table }
    }

    /// A completion queue that sets off a signal, on the processor that the signal prefers.
    pub fn create_completion_queue(&self, depth: u32, signal: &QueueSignal) -> Result<CompletionQueue, Status> {
        let notification: NDK_FN_CQ_NOTIFICATION_CALLBACK = if signal.home.is_some() { notified_at } else { notified };
        let notification = Some(notification);
        let context = signal.context();
        let home = signal.home.and_then(irql::affinity);
        let mut home = home.map(|(mask, group)| GROUP_AFFINITY { Mask: mask as _, Group: group, Reserved: [0; 3] });
        let home = home.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let created: Result<Owned<NDK_CQ>, Status> = create!(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_CQ with arguments that live for the call; the signal outlives the queue.
            unsafe { (self.table().NdkCreateCq)(self.as_ptr(), depth, notification, context, home, done, asked, place) }
        });
        created.map(|object| CompletionQueue { object })
    }

    pub fn create_protection_domain(&self) -> Result<Owned<NDK_PD>, Status> {
        create!(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_PD with arguments that live for the call.
            unsafe { (self.table().NdkCreatePd)(self.as_ptr(), done, asked, place) }
        })
    }

    pub fn create_connector(&self) -> Result<Owned<NDK_CONNECTOR>, Status> {
        create!(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_CONNECTOR with arguments that live for the call.
            unsafe { (self.table().NdkCreateConnector)(self.as_ptr(), done, asked, place) }
        })
    }

    pub fn create_listener(&self) -> Result<PairListener, Status> {
        let arrivals = PoolBox::try_new(tags::SESSION, Arrivals::try_new()?);
        let arrivals = arrivals.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        let creation = Creation::try_new()?;
        let waiter = Waiter::try_new()?;
        let mut object = ptr::null_mut();
        // SAFETY: NDKPI: NDK_FN_CREATE_LISTENER with arguments that live for the call; the arrivals outlive the listener.
        let status = unsafe {
            (self.table().NdkCreateListener)(
                self.as_ptr(),
                Some(connection_arrived),
                arrivals.context(),
                Some(create_done),
                creation.context(),
                &raw mut object,
            )
        };
        let object = creation.finish(status, object)?;
        Ok(PairListener { object, waiter, arrivals })
    }
}

/// Creates a region of a protection domain.
pub fn create_memory_region(domain: &Owned<NDK_PD>, fast_register: bool) -> Result<Owned<NDK_MR>, Status> {
    let fast_register = if fast_register { TRUE } else { FALSE };
    create!(|place, done, asked| {
        // SAFETY: NDKPI: NDK_FN_CREATE_MR with arguments that live for the call.
        unsafe { (domain.table().NdkCreateMr)(domain.as_ptr(), fast_register, done, asked, place) }
    })
}

/// Creates a memory window of a protection domain.
pub fn create_memory_window(domain: &Owned<NDK_PD>) -> Result<Owned<NDK_MW>, Status> {
    create!(|place, done, asked| {
        // SAFETY: NDKPI: NDK_FN_CREATE_MW with arguments that live for the call.
        unsafe { (domain.table().NdkCreateMw)(domain.as_ptr(), done, asked, place) }
    })
}

/// Depths and widths of a queue pair.
#[derive(Clone, Copy)]
pub struct QueuePairShape {
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub sges: u32,
    pub inline_data: u32,
}

/// Creates a shared receive queue without a notification of how full it is.
pub fn create_shared_receive_queue(domain: &Owned<NDK_PD>, shape: QueuePairShape) -> Result<Owned<NDK_SRQ>, Status> {
    create!(|place, done, asked| {
        // SAFETY: NDKPI: NDK_FN_CREATE_SRQ with arguments that live for the call.
        unsafe {
            (domain.table().NdkCreateSrq)(
                domain.as_ptr(),
                shape.receive_depth,
                shape.sges,
                0,
                None,
                ptr::null_mut(),
                ptr::null_mut(),
                done,
                asked,
                place,
            )
        }
    })
}

/// Creates a queue pair with one completion queue for both directions, and its receives from a shared queue if there is one.
pub fn create_queue_pair(
    domain: &Owned<NDK_PD>,
    queue: &CompletionQueue,
    shared: Option<&Owned<NDK_SRQ>>,
    shape: QueuePairShape,
) -> Result<Owned<NDK_QP>, Status> {
    let queue = queue.object.as_ptr();
    create!(|place, done, asked| match shared {
        // SAFETY: NDKPI: NDK_FN_CREATE_QP with arguments that live for the call.
        None => unsafe {
            (domain.table().NdkCreateQp)(
                domain.as_ptr(),
                queue,
                queue,
                ptr::null_mut(),
                shape.receive_depth,
                shape.initiator_depth,
                shape.sges,
                shape.sges,
                shape.inline_data,
                done,
                asked,
                place,
            )
        },
        // SAFETY: NDKPI: NDK_FN_CREATE_QP_WITH_SRQ with arguments that live for the call, all of one protection domain.
        Some(shared) => unsafe {
            (domain.table().NdkCreateQpWithSrq)(
                domain.as_ptr(),
                queue,
                queue,
                shared.as_ptr(),
                ptr::null_mut(),
                shape.initiator_depth,
                shape.sges,
                shape.inline_data,
                done,
                asked,
                place,
            )
        },
    })
}

/// A completion queue and how it is read.
pub struct CompletionQueue {
    object: Owned<NDK_CQ>,
}

impl CompletionQueue {
    pub fn as_ptr(&self) -> *mut NDK_CQ {
        self.object.as_ptr()
    }

    /// Takes completions; how many.
    pub fn poll(&self, results: &mut [NDK_RESULT_EX]) -> usize {
        let queue = self.object.as_ptr();
        let capacity = results.len() as u32;
        // SAFETY: NDKPI: NDK_FN_GET_CQ_RESULTS_EX with room for as many results as are asked for.
        unsafe { (self.object.table().NdkGetCqResultsEx)(queue, results.as_mut_ptr(), capacity) as usize }
    }

    /// As [`CompletionQueue::poll`], by the function of NDKPI 1.
    pub fn poll_first_form(&self, results: &mut [NDK_RESULT]) -> usize {
        let queue = self.object.as_ptr();
        let capacity = results.len() as u32;
        // SAFETY: NDKPI: NDK_FN_GET_CQ_RESULTS with room for as many results as are asked for.
        unsafe { (self.object.table().NdkGetCqResults)(queue, results.as_mut_ptr(), capacity) as usize }
    }

    /// Asks for a notification of the next completion.
    pub fn arm(&self) {
        self.arm_for(NDK_CQ_NOTIFY_ANY);
    }

    /// Asks for a notification of the next solicited completion or error.
    pub fn arm_solicited(&self) {
        self.arm_for(NDK_CQ_NOTIFY_SOLICITED);
    }

    fn arm_for(&self, kind: u32) {
        let queue = self.object.as_ptr();
        // SAFETY: NDKPI: NDK_FN_ARM_CQ.
        unsafe { (self.object.table().NdkArmCq)(queue, kind) };
    }

    /// NdkControlCqInterruptModeration.
    pub fn moderate(&self, interval: u32, count: u32) -> Result<(), Status> {
        let queue = self.object.as_ptr();
        // SAFETY: NDKPI: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION.
        check(unsafe { (self.object.table().NdkControlCqInterruptModeration)(queue, interval, count) })
    }
}

/// What the notifications of a completion queue come to.
pub struct QueueSignal {
    pub arrived: Event,
    pub notifications: AtomicU32,
    failure: AtomicI32,
    /// The processor that is to make the notifications. Then they leave time and processor here and set no event.
    home: Option<u32>,
    /// The performance counter at the last notification's begin, and the index of the processor that made it.
    pub ticks: AtomicU64,
    pub processor: AtomicU32,
}

impl QueueSignal {
    pub fn try_new(home: Option<u32>) -> Result<Self, Status> {
        let arrived = Event::try_synchronization(tags::EVENT, false).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        Ok(Self {
            arrived,
            notifications: AtomicU32::new(0),
            failure: AtomicI32::new(0),
            home,
            ticks: AtomicU64::new(0),
            processor: AtomicU32::new(0),
        })
    }

    fn context(&self) -> PVOID {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub fn failed(&self) -> bool {
        self.failure.load(Ordering::Acquire) != STATUS_SUCCESS
    }
}

/// NDK_FN_CQ_NOTIFICATION_CALLBACK of a [`QueueSignal`].
unsafe extern "C" fn notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: the signal outlives its completion queue.
    if let Some(signal) = unsafe { context.cast::<QueueSignal>().as_ref() } {
        signal.notifications.fetch_add(1, Ordering::Relaxed);
        if status != STATUS_SUCCESS {
            signal.failure.store(status, Ordering::Release);
        }
        signal.arrived.set();
    }
}

/// NDK_FN_CQ_NOTIFICATION_CALLBACK of a [`QueueSignal`] with a home: the first thing that it does is to read the time.
unsafe extern "C" fn notified_at(context: PVOID, status: NTSTATUS) {
    let ticks = clock::ticks();
    // SAFETY: as `notified`.
    if let Some(signal) = unsafe { context.cast::<QueueSignal>().as_ref() } {
        signal.ticks.store(ticks, Ordering::Relaxed);
        signal.processor.store(irql::processor(), Ordering::Relaxed);
        if status != STATUS_SUCCESS {
            signal.failure.store(status, Ordering::Release);
        }
        // Releases what is stored above to the thread that waits for the count.
        signal.notifications.fetch_add(1, Ordering::Release);
    }
}

/// The listener of a pair. Dropping it closes it, and every connector that arrived and was not taken.
pub struct PairListener {
    object: *mut NDK_LISTENER,
    waiter: Waiter,
    pub arrivals: PoolBox<Arrivals>,
}

// SAFETY: as Owned.
unsafe impl Send for PairListener {}
// SAFETY: as Owned.
unsafe impl Sync for PairListener {}

impl PairListener {
    fn table(&self) -> &NDK_LISTENER_DISPATCH {
        // SAFETY: open as long as it is owned.
        unsafe { table_of(self.object) }
    }

    pub fn listen(&self, address: SocketAddr) -> Result<(), Status> {
        let waiter = Waiter::try_new()?;
        let (address, length) = socket::wire_form(&address);
        let (done, context) = completion(&waiter);
        // SAFETY: NDKPI: NDK_FN_LISTEN with an address that lives for the call; the request is waited for.
        let status = unsafe {
            (self.table().NdkListen)(self.object, (&raw const address).cast::<SOCKADDR>(), length, done, context)
        };
        check(waiter.finish(status))
    }

    /// From now on it is as if there were no listener.
    pub fn pause(&self) {
        // SAFETY: NDKPI: NDK_FN_CONTROL_CONNECT_EVENTS.
        unsafe { (self.table().NdkControlConnectEvents)(self.object, TRUE) };
    }

    pub fn address(&self) -> Result<SocketAddr, Status> {
        read_address(|address, length| {
            // SAFETY: NDKPI: NDK_FN_GET_LISTENER_LOCAL_ADDRESS.
            unsafe { (self.table().NdkGetLocalAddress)(self.object, address, length) }
        })
    }
}

impl Drop for PairListener {
    fn drop(&mut self) {
        let close = self.table().NdkCloseListener;
        // SAFETY: a listener of ours, closed once; the waiter outlives the close, which is waited for.
        let status = unsafe { close(self.object.cast(), Some(close_done), self.waiter.context()) };
        if status == STATUS_PENDING {
            // The close waits for connectors that were not taken.
            self.arrivals.discard();
            while self.waiter.done.wait_with(&[&self.arrivals.arrived], None) != Some(0) {
                self.arrivals.discard();
            }
        }
    }
}

/// Asks for an address.
pub fn read_address(ask: impl FnOnce(*mut SOCKADDR, *mut u32) -> NTSTATUS) -> Result<SocketAddr, Status> {
    let mut address = SOCKADDR_INET::zeroed();
    let mut length = size_of::<SOCKADDR_INET>() as u32;
    check(ask((&raw mut address).cast(), &raw mut length))?;
    socket::socket_address(&address).ok_or(Status::INVALID_ADDRESS)
}

/// Connections that arrived and were not looked at yet; more at a time are refused.
const ARRIVALS: usize = 16;

/// What has arrived at a pair's listener: the pair's own connection, and perhaps unrelated ones before it.
pub struct Arrivals {
    pub arrived: Event,
    connectors: [AtomicPtr<NDK_CONNECTOR>; ARRIVALS],
}

impl Arrivals {
    pub fn try_new() -> Result<Self, Status> {
        let arrived = Event::try_synchronization(tags::EVENT, false).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        Ok(Self { arrived, connectors: [const { AtomicPtr::new(ptr::null_mut()) }; ARRIVALS] })
    }

    fn context(&self) -> PVOID {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// A connector that arrived, each once.
    pub fn take(&self) -> Result<Option<Owned<NDK_CONNECTOR>>, Status> {
        if self.connectors.iter().all(|place| place.load(Ordering::Acquire).is_null()) {
            return Ok(None);
        }
        let waiter = Waiter::try_new()?;
        let object = self.take_unowned();
        Ok(object.map(|object| Owned { object, waiter, closed: AtomicBool::new(false) }))
    }

    /// As [`Arrivals::take`]; the caller closes it.
    pub fn take_unowned(&self) -> Option<*mut NDK_CONNECTOR> {
        self.connectors.iter().find_map(Self::take_from)
    }

    fn take_from(place: &AtomicPtr<NDK_CONNECTOR>) -> Option<*mut NDK_CONNECTOR> {
        let object = place.swap(ptr::null_mut(), Ordering::AcqRel);
        (!object.is_null()).then_some(object)
    }

    /// Keeps a connector; false when there is no room.
    fn keep(&self, connector: *mut NDK_CONNECTOR) -> bool {
        let put = |place: &AtomicPtr<NDK_CONNECTOR>| {
            place.compare_exchange(ptr::null_mut(), connector, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        self.connectors.iter().any(put)
    }

    /// Closes connectors that came when nothing waited any more: once the listener has been paused, and again while it closes.
    pub fn discard(&self) {
        for object in self.connectors.iter().filter_map(Self::take_from) {
            // SAFETY: a connector handed to us and not taken.
            unsafe { close_unowned(object) };
        }
    }
}

/// Closes a connector that nothing waits for.
///
/// # Safety
/// `connector` was handed to us and is closed by no other context.
pub unsafe fn close_unowned(connector: *mut NDK_CONNECTOR) {
    // SAFETY: open (the caller's promise).
    let close = unsafe { table_of(connector) }.NdkCloseConnector;
    // SAFETY: closed once; no completion is needed.
    let _status = unsafe { close(connector.cast(), Some(ignore), ptr::null_mut()) };
}

unsafe extern "C" fn ignore(_context: PVOID) {}

/// NDK_FN_CONNECT_EVENT_CALLBACK of [`Arrivals`].
unsafe extern "C" fn connection_arrived(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the arrivals outlive the listener.
    let Some(arrivals) = (unsafe { context.cast::<Arrivals>().as_ref() }) else { return };
    if !arrivals.keep(connector) {
        // Closing refuses this one.
        // SAFETY: a connector handed to us that no other context knows.
        unsafe { close_unowned(connector) };
    }
    arrivals.arrived.set();
}

/// The completion and context for a request on `waiter`.
pub fn completion(waiter: &Waiter) -> (Option<ndkpi_sys::ndkpi::NDK_FN_REQUEST_COMPLETION>, PVOID) {
    (Some(request_done), waiter.context())
}
