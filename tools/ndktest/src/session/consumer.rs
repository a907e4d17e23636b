//! What a consumer's calls wait with, and what it owns: objects closed when dropped, an open adapter, completion queue signals, a listener.

use core::{
    ffi::c_void,
    net::{IpAddr, SocketAddr},
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

use ndkpi_sys::{
    ndkpi::{
        NDK_ADAPTER, NDK_CONNECTOR, NDK_CQ, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_LISTENER, NDK_OBJECT_HEADER, NDK_PD,
        NDK_QP, NDK_SRQ,
    },
    nt::{GROUP_AFFINITY, NTSTATUS, PVOID, STATUS_NOT_FOUND, STATUS_PENDING, STATUS_SUCCESS},
};
use softndk_ioctl::Status;
use softndk_kernel::{clock, event::Event, irql, pool::PoolBox};

use super::object::{
    Callback, Closable, Completion, CreateCompletion, Created, Handle, PendingCall, QueuePairShape, Reporting,
};
use crate::{control::adapter_list, driver::Driver, interface::Addresses, socket, tags, wsk};

/// What NDK calls are answered to: one request at a time.
pub struct Waiter {
    /// Stays set once the completion has come.
    done: Event,
    status: AtomicI32,
    /// Of a create call.
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

// SAFETY: the event is set when all else is stored, and waited for.
unsafe impl PendingCall for Waiter {
    fn begin(&self) {
        self.done.clear();
        self.status.store(STATUS_PENDING, Ordering::Release);
    }

    fn complete(&self, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        self.object.store(object, Ordering::Release);
        self.status.store(status, Ordering::Release);
        self.done.set();
    }

    fn wait(&self, status: NTSTATUS) -> NTSTATUS {
        if status != STATUS_PENDING {
            return status;
        }
        self.done.wait();
        self.status.load(Ordering::Acquire)
    }

    fn object(&self) -> *mut NDK_OBJECT_HEADER {
        self.object.load(Ordering::Acquire)
    }
}

impl Waiter {
    pub fn try_new() -> Result<Self, Status> {
        let done = Event::try_notification(tags::EVENT).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        Ok(Self { done, status: AtomicI32::new(STATUS_PENDING), object: AtomicPtr::new(ptr::null_mut()) })
    }

    /// The completion has come.
    pub fn is_done(&self) -> bool {
        self.status.load(Ordering::Acquire) != STATUS_PENDING
    }

    /// As [`PendingCall::wait`], but gives up with the error of `wait`, which says whether the event has come. Then the request is
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

    /// As [`PendingCall::wait`], for so many nanoseconds at most. A request that is late is still pending.
    pub fn finish_within(&self, status: NTSTATUS, limit: u64) {
        if status == STATUS_PENDING {
            self.done.wait_with(&[], Some(limit));
        }
    }

    /// What a thread waits for that waits for something else, too.
    pub fn event(&self) -> &Event {
        &self.done
    }

    /// Makes a request and waits for it. PASSIVE_LEVEL.
    pub fn wait_for(call: impl FnOnce(Completion<'_>) -> NTSTATUS) -> Result<(), Status> {
        let waiter = Self::try_new()?;
        // SAFETY: the request is waited for.
        let status = call(unsafe { waiter.completion() });
        check(waiter.wait(status))
    }
}

/// Turns a final status into a result.
pub fn check(status: NTSTATUS) -> Result<(), Status> {
    if status == STATUS_SUCCESS { Ok(()) } else { Err(Status(status)) }
}

/// What a call answers that may pend.
pub fn check_begun(status: NTSTATUS) -> Result<(), Status> {
    if status == STATUS_PENDING { Ok(()) } else { check(status) }
}

/// An object that is closed, and waited for, when dropped. PASSIVE_LEVEL.
pub struct Owned<T: Closable> {
    object: Handle<'static, T>,
    waiter: Waiter,
    closed: AtomicBool,
}

impl<T: Closable> Owned<T> {
    fn of(object: Handle<'static, T>, waiter: Waiter) -> Self {
        Self { object, waiter, closed: AtomicBool::new(false) }
    }

    /// What a create call makes, which is waited for.
    pub fn create(call: impl FnOnce(CreateCompletion<'_>) -> Created<T>) -> Result<Self, Status> {
        let waiter = Waiter::try_new()?;
        Ok(Self::of(waiter.create(call)?, waiter))
    }

    /// The object's functions.
    pub fn handle(&self) -> Handle<'_, T> {
        self.object
    }

    /// Closes the object before it is dropped, and waits. PASSIVE_LEVEL. Another time it does nothing.
    ///
    /// # Safety
    /// Nothing uses the object any more.
    pub unsafe fn close_early(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.close_with(|waiter, status| _ = waiter.wait(status)) };
    }

    /// As [`Owned::close_early`]; `wait` waits.
    ///
    /// # Safety
    /// As [`Owned::close_early`], and the close is over when `wait` returns.
    unsafe fn close_with(&self, wait: impl FnOnce(&Waiter, NTSTATUS)) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // SAFETY: closed once, and waited for; the caller's promise.
        wait(&self.waiter, unsafe { self.waiter.close(self.object) });
    }
}

impl<T: Closable> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the owner goes, and with it every use.
        unsafe { self.close_early() };
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

    /// The adapter's functions.
    pub fn handle(&self) -> Handle<'_, NDK_ADAPTER> {
        self.open.handle()
    }

    /// The index of its interface.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// An address to listen on and to connect from: IPv4 before IPv6. PASSIVE_LEVEL.
    pub fn first_address(&self) -> Result<IpAddr, Status> {
        Addresses::read()?.first_of(self.interface).ok_or(Status::INVALID_ADDRESS)
    }

    /// A completion queue that sets off a signal, on the processor that the signal prefers.
    pub fn create_completion_queue(&self, depth: u32, signal: &QueueSignal) -> Result<Owned<NDK_CQ>, Status> {
        let notification: NDK_FN_CQ_NOTIFICATION_CALLBACK =
            if signal.home.is_some() { notified::<true> } else { notified::<false> };
        // SAFETY: the signal outlives the queue.
        let notification = unsafe { Callback::new(notification, signal.context()) };
        let home = signal.home.and_then(irql::affinity);
        let mut home = home.map(|(mask, group)| GROUP_AFFINITY { Mask: mask as _, Group: group, Reserved: [0; 3] });
        Owned::create(|done| self.handle().create_completion_queue(depth, &notification, home.as_mut(), done))
    }

    pub fn create_listener(&self) -> Result<PairListener, Status> {
        let arrivals = PoolBox::try_new(tags::SESSION, Arrivals::try_new()?);
        let arrivals = arrivals.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        // SAFETY: the arrivals outlive the listener.
        let event = unsafe { Callback::new(connection_arrived as _, arrivals.context()) };
        let listener = Owned::create(|done| self.handle().create_listener(&event, done))?;
        Ok(PairListener { listener, arrivals })
    }
}

/// Creates a queue pair with one completion queue for both directions, and its receives from a shared queue if there is one.
pub fn create_queue_pair(
    domain: &Owned<NDK_PD>,
    queue: &Owned<NDK_CQ>,
    shared: Option<&Owned<NDK_SRQ>>,
    shape: QueuePairShape,
) -> Result<Owned<NDK_QP>, Status> {
    let to = Reporting { receive: queue.handle(), initiator: queue.handle(), context: ptr::null_mut() };
    Owned::create(|done| match shared {
        None => domain.handle().create_queue_pair(to, shape, done),
        Some(shared) => domain.handle().create_queue_pair_shared(to, shared.handle(), shape, done),
    })
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

/// NDK_FN_CQ_NOTIFICATION_CALLBACK of a [`QueueSignal`]. With a home the first thing that it does is to read the time.
unsafe extern "C" fn notified<const HOME: bool>(context: PVOID, status: NTSTATUS) {
    let ticks = if HOME { clock::ticks() } else { 0 };
    // SAFETY: the signal outlives its completion queue.
    let Some(signal) = (unsafe { context.cast::<QueueSignal>().as_ref() }) else { return };
    if HOME {
        signal.ticks.store(ticks, Ordering::Relaxed);
        signal.processor.store(irql::processor(), Ordering::Relaxed);
    }
    if status != STATUS_SUCCESS {
        signal.failure.store(status, Ordering::Release);
    }
    // Releases what is stored above to the thread that waits for the count.
    signal.notifications.fetch_add(1, Ordering::Release);
    if !HOME {
        signal.arrived.set();
    }
}

/// The listener of a pair. Dropping it closes it, and every connector that arrived and was not taken.
pub struct PairListener {
    listener: Owned<NDK_LISTENER>,
    pub arrivals: PoolBox<Arrivals>,
}

impl PairListener {
    /// The listener's functions.
    pub fn handle(&self) -> Handle<'_, NDK_LISTENER> {
        self.listener.handle()
    }

    pub fn listen(&self, address: SocketAddr) -> Result<(), Status> {
        let address = socket::wire_form(&address);
        Waiter::wait_for(|done| self.handle().listen(&address, done))
    }
}

impl Drop for PairListener {
    fn drop(&mut self) {
        let wait = |waiter: &Waiter, status| {
            if status == STATUS_PENDING {
                // The close waits for connectors that were not taken.
                self.arrivals.discard();
                while waiter.done.wait_with(&[&self.arrivals.arrived], None) != Some(0) {
                    self.arrivals.discard();
                }
            }
        };
        // SAFETY: the owner goes, and with it every use; `wait` waits for the close.
        unsafe { self.listener.close_with(wait) };
    }
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
        Ok(self.take_unowned().map(|object| Owned::of(object, waiter)))
    }

    /// As [`Arrivals::take`]; the caller closes it.
    pub fn take_unowned(&self) -> Option<Handle<'static, NDK_CONNECTOR>> {
        self.connectors.iter().find_map(Self::take_from)
    }

    fn take_from(place: &AtomicPtr<NDK_CONNECTOR>) -> Option<Handle<'static, NDK_CONNECTOR>> {
        let object = NonNull::new(place.swap(ptr::null_mut(), Ordering::AcqRel))?;
        // SAFETY: a connector handed to us, open until the taker closes it.
        Some(unsafe { Handle::new(object) })
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
            // SAFETY: a connector handed to us and taken by no other context.
            unsafe { object.close_unowned() };
        }
    }
}

/// NDK_FN_CONNECT_EVENT_CALLBACK of [`Arrivals`].
unsafe extern "C" fn connection_arrived(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the arrivals outlive the listener.
    let Some(arrivals) = (unsafe { context.cast::<Arrivals>().as_ref() }) else { return };
    if !arrivals.keep(connector)
        && let Some(refused) = Arrivals::take_from(&AtomicPtr::new(connector))
    {
        // Closing refuses this one.
        // SAFETY: a connector handed to us that no other context knows.
        unsafe { refused.close_unowned() };
    }
    arrivals.arrived.set();
}
