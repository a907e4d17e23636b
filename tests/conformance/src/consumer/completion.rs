//! One asynchronous call: the context that goes with it, the callbacks that find it, and the check that the callback
//! came exactly once if and only if the call pended.
//!
//! What the contract allows inside a callback, a trial can do there ([`reacting`]), and what it allows at DISPATCH_LEVEL, a
//! trial can do at that level ([`calling_at`]).
//!
//! Contexts are never freed: a provider that calls back twice, or after a close completed, must find the counter and
//! not freed memory. [`verify_all`] looks at every one at the end of a trial.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kernel_host::callback;
use kernel_host::irql::{self, IrqlRange};
use kernel_host::thread::Thread;
use ndkpi_sys::ndkpi::NDK_OBJECT_HEADER;
use ndkpi_sys::nt::{NTSTATUS, PVOID, STATUS_PENDING};
use ndkpi_sys::windows_abi;

use super::border::distorted_status;
use super::refusals;
use super::signal::Signal;

/// What a trial does inside a callback, with the status and the object that it brings.
type CompletionReaction = Box<dyn FnOnce(NTSTATUS, *mut NDK_OBJECT_HEADER) + Send>;

/// The value in the place for the object of a create, which a create that pends must not write.
const NOBODYS_OBJECT: usize = 0x0B1E_C700_0000_0000;

thread_local! {
    /// For the next asynchronous call of this thread.
    static NEXT_REACTION: RefCell<Option<CompletionReaction>> = const { RefCell::new(None) };
    static LEVEL: Cell<u8> = const { Cell::new(irql::PASSIVE) };
}

/// Makes one asynchronous call; if it pends, the reaction runs inside its completion, before any other context sees it.
pub fn reacting<T>(
    reaction: impl FnOnce(NTSTATUS, *mut NDK_OBJECT_HEADER) + Send + 'static,
    call: impl FnOnce() -> T,
) -> T {
    NEXT_REACTION.with(|place| *place.borrow_mut() = Some(Box::new(reaction)));
    let result = call();
    NEXT_REACTION.with(|place| place.borrow_mut().take());
    result
}

/// Makes the asynchronous calls inside at a level. The waits between them are at PASSIVE_LEVEL.
pub fn calling_at<T>(level: u8, calls: impl FnOnce() -> T) -> T {
    LEVEL.set(level);
    let result = calls();
    LEVEL.set(irql::PASSIVE);
    result
}

/// [`calling_at`] DISPATCH_LEVEL.
pub fn calling_at_dispatch<T>(calls: impl FnOnce() -> T) -> T {
    calling_at(irql::DISPATCH, calls)
}

fn at_the_level<T>(call: impl FnOnce() -> T) -> T {
    if LEVEL.get() == irql::PASSIVE {
        return call();
    }
    let before = irql::raise(LEVEL.get());
    let result = call();
    irql::lower(before);
    result
}

/// What became of the call itself.
const NOT_RETURNED: u32 = 0;
const RETURNED_PENDING: u32 = 1;
const RETURNED_FINAL: u32 = 2;

pub struct Completion {
    name: &'static str,
    returned: AtomicU32,
    calls: AtomicU32,
    status: AtomicI32,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
    /// The processor of the call, and of the callback.
    processors: [AtomicUsize; 2],
    /// When it ended, in the order of all ends: not before the first, not after the second.
    finished: [AtomicU64; 2],
    signal: Signal,
    reaction: Mutex<Option<CompletionReaction>>,
}

/// The next number in the order of all beginnings and ends.
fn next_end() -> u64 {
    static ENDS: AtomicU64 = AtomicU64::new(1);
    ENDS.fetch_add(1, Ordering::AcqRel)
}

static ALL: Mutex<Vec<&'static Completion>> = Mutex::new(Vec::new());

impl Completion {
    /// A context for one call of the function `name`.
    pub fn new(name: &'static str) -> &'static Self {
        let completion = &*Box::leak(Box::new(Self {
            name,
            returned: AtomicU32::new(NOT_RETURNED),
            calls: AtomicU32::new(0),
            status: AtomicI32::new(STATUS_PENDING),
            object: AtomicPtr::new(ptr::null_mut()),
            processors: [AtomicUsize::new(Thread::current().processor()), AtomicUsize::new(usize::MAX)],
            finished: [const { AtomicU64::new(0) }; 2],
            signal: Signal::new(),
            reaction: Mutex::new(NEXT_REACTION.with(|place| place.borrow_mut().take())),
        }));
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        completion
    }

    pub fn context(&'static self) -> *const c_void {
        ptr::from_ref(self).cast()
    }

    /// Records what the call returned.
    ///
    /// `begun` is when the call was made; a call that did not pend ended some time after it.
    pub fn returned(&self, status: NTSTATUS, begun: u64) {
        let state = if status == STATUS_PENDING { RETURNED_PENDING } else { RETURNED_FINAL };
        self.returned.store(state, Ordering::Release);
        if state == RETURNED_FINAL {
            self.status.store(status, Ordering::Release);
            self.ended(begun, next_end());
        }
    }

    fn ended(&self, earliest: u64, latest: u64) {
        self.finished[0].store(earliest, Ordering::Release);
        self.finished[1].store(latest, Ordering::Release);
    }

    /// The callback has come.
    pub fn is_done(&self) -> bool {
        self.calls.load(Ordering::Acquire) != 0
    }

    /// Waits for the callback of a call that pended and gives its status.
    pub fn wait(&self) -> NTSTATUS {
        assert!(self.signal.wait(), "{} returned STATUS_PENDING and its completion never came", self.name);
        self.status.load(Ordering::Acquire)
    }

    /// The object that a create completion brought.
    pub fn object(&self) -> *mut NDK_OBJECT_HEADER {
        self.object.load(Ordering::Acquire)
    }

    fn complete(&self, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        refusals::expect(self.name, status);
        let reaction = self.reaction.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reaction) = reaction {
            reaction(status, object);
        }
        self.processors[1].store(Thread::current().processor(), Ordering::Release);
        self.status.store(status, Ordering::Release);
        self.object.store(object, Ordering::Release);
        let end = next_end();
        self.ended(end, end);
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        assert!(before == 0, "the completion of {} came {} times", self.name, before + 1);
        assert!(
            self.returned.load(Ordering::Acquire) != RETURNED_FINAL,
            "the completion of {} came, although it did not return STATUS_PENDING",
            self.name
        );
        self.signal.set();
    }

    fn verify(&self) {
        let calls = self.calls.load(Ordering::Acquire);
        let wanted = u32::from(self.returned.load(Ordering::Acquire) == RETURNED_PENDING);
        assert!(calls == wanted, "the completion of {} came {calls} times, not {wanted}", self.name);
    }
}

/// Every call so far was completed exactly once if it pended, and never otherwise.
pub fn verify_all() {
    for completion in ALL.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        completion.verify();
    }
}

/// One asynchronous call that is over.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub name: &'static str,
    pub pended: bool,
    pub status: NTSTATUS,
    /// The callback came from another processor than the call.
    pub elsewhere: bool,
}

/// Every asynchronous call since the last time, in the order of their beginnings. All of them are over.
pub fn take_calls() -> Vec<Call> {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = SEEN.swap(all.len(), Ordering::AcqRel);
    let call = |completion: &&'static Completion| Call {
        name: completion.name,
        pended: completion.returned.load(Ordering::Acquire) == RETURNED_PENDING,
        status: completion.status.load(Ordering::Acquire),
        elsewhere: completion.processors[0].load(Ordering::Acquire) != completion.processors[1].load(Ordering::Acquire),
    };
    all[seen..].iter().map(call).collect()
}

/// The context that a callback was given.
///
/// # Safety
/// `context` came from [`Completion::context`].
unsafe fn find(context: PVOID) -> &'static Completion {
    // SAFETY: contexts are leaked, so the reference is good for ever.
    unsafe { &*context.cast::<Completion>() }
}

windows_abi! {
    unsafe fn close_completion(context: PVOID) {
        callback::enter_consumer_callback("NDK_FN_CLOSE_COMPLETION", IrqlRange::DISPATCH_ONLY);
        // SAFETY: the provider passes the context of the call.
        let completion = unsafe { find(context) };
        completion.complete(0, ptr::null_mut());
    }

    unsafe fn request_completion(context: PVOID, status: NTSTATUS) {
        callback::enter_consumer_callback("NDK_FN_REQUEST_COMPLETION", IrqlRange::DISPATCH_ONLY);
        assert!(status != STATUS_PENDING, "a request completes with STATUS_PENDING");
        // SAFETY: the provider passes the context of the call.
        let completion = unsafe { find(context) };
        completion.complete(distorted_status("NDK_FN_REQUEST_COMPLETION", status), ptr::null_mut());
    }

    unsafe fn create_completion(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        callback::enter_consumer_callback("NDK_FN_CREATE_COMPLETION", IrqlRange::DISPATCH_ONLY);
        let status = distorted_status("NDK_FN_CREATE_COMPLETION", status);
        assert!(status < 0 || !object.is_null(), "a create succeeds without an object");
        assert!(status >= 0 || object.is_null(), "a create fails and brings an object");
        // SAFETY: the provider passes the context of the call.
        let completion = unsafe { find(context) };
        completion.complete(status, object);
    }
}

/// The pointer that image code may call for a callback of the consumer, made once.
pub fn stub(slot: &'static OnceLock<usize>, function: *const c_void, arguments: usize) -> *const c_void {
    let address = *slot.get_or_init(|| callback::host_function(function, arguments) as usize);
    address as *const c_void
}

pub fn close_callback() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, close_completion as *const c_void, 1)
}

pub fn request_callback() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, request_completion as *const c_void, 2)
}

windows_abi! {
    unsafe fn never_called(_context: PVOID, status: NTSTATUS) {
        panic!("the completion of a call that may not pend, with {status:#010x}");
    }
}

/// For a call that may not pend.
pub fn no_request_callback() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, never_called as *const c_void, 2)
}

pub fn create_callback() -> *const c_void {
    static SLOT: OnceLock<usize> = OnceLock::new();
    stub(&SLOT, create_completion as *const c_void, 3)
}

/// An asynchronous request: calls it with callback and context, waits if it pended, and gives the final status.
pub fn request(name: &'static str, call: impl FnOnce(*const c_void, *const c_void) -> NTSTATUS) -> NTSTATUS {
    let started = begin_request(name, call);
    started.wait()
}

/// A request that may still be pending.
#[derive(Clone, Copy)]
pub struct Started {
    completion: &'static Completion,
    status: NTSTATUS,
}

impl Started {
    /// What the function returned.
    pub fn inline(&self) -> NTSTATUS {
        self.status
    }

    pub fn is_done(&self) -> bool {
        self.status != STATUS_PENDING || self.completion.is_done()
    }

    /// Whether it may have ended before `other`. A call that did not pend ended between its beginning and its return, and others
    /// may have ended meanwhile.
    pub fn may_precede(&self, other: &Self) -> bool {
        let [earliest, _] = &self.completion.finished;
        let [_, latest] = &other.completion.finished;
        earliest.load(Ordering::Acquire) < latest.load(Ordering::Acquire)
    }

    pub fn wait(&self) -> NTSTATUS {
        if self.status == STATUS_PENDING { self.completion.wait() } else { self.status }
    }
}

/// A request whose function or context of completion is null, so that its status must come inline.
pub fn inline_request(call: impl FnOnce() -> NTSTATUS) -> NTSTATUS {
    at_the_level(call)
}

/// As [`request`], without the wait.
pub fn begin_request(name: &'static str, call: impl FnOnce(*const c_void, *const c_void) -> NTSTATUS) -> Started {
    begin(name, request_callback(), call)
}

/// A close, without the wait. It may not fail.
pub fn begin_close(name: &'static str, call: impl FnOnce(*const c_void, *const c_void) -> NTSTATUS) -> Started {
    let started = begin(name, close_callback(), call);
    assert!(started.status == 0 || started.status == STATUS_PENDING, "{name} failed with {:#010x}", started.status);
    started
}

fn begin(
    name: &'static str,
    callback: *const c_void,
    call: impl FnOnce(*const c_void, *const c_void) -> NTSTATUS,
) -> Started {
    let completion = Completion::new(name);
    let begun = next_end();
    let status = at_the_level(|| call(callback, completion.context()));
    completion.returned(status, begun);
    Started { completion, status }
}

/// An asynchronous create: calls it with callback, context and out pointer, waits if it pended, and gives the object.
pub fn create<T>(
    name: &'static str,
    call: impl FnOnce(*const c_void, *const c_void, *mut *mut T) -> NTSTATUS,
) -> Result<*mut T, NTSTATUS> {
    begin_create(name, call).finish()
}

/// As [`create`], without the wait.
pub fn begin_create<T>(
    name: &'static str,
    call: impl FnOnce(*const c_void, *const c_void, *mut *mut T) -> NTSTATUS,
) -> Creating<T> {
    let out = Box::into_raw(Box::new(poisoned_object()));
    let started = begin(name, create_callback(), |callback, context| call(callback, context, out));
    Creating { started, out }
}

fn poisoned_object<T>() -> *mut T {
    ptr::without_provenance_mut(NOBODYS_OBJECT)
}

/// A create that may still be pending.
pub struct Creating<T> {
    started: Started,
    /// Where an inline answer puts the object. Leaked, so that a provider that writes it late is found out.
    out: *mut *mut T,
}

impl<T> Creating<T> {
    pub fn started(&self) -> Started {
        self.started
    }

    /// Waits for the object.
    pub fn finish(self) -> Result<*mut T, NTSTATUS> {
        let name = self.started.completion.name;
        let status = self.started.wait();
        // SAFETY: our own memory, which is never freed.
        let out = unsafe { self.out.read_volatile() };
        let object = if self.started.inline() == STATUS_PENDING {
            assert!(out == poisoned_object(), "{name} pended and wrote its out pointer");
            self.started.completion.object().cast()
        } else {
            out
        };
        match status {
            0 => {
                assert!(!object.is_null(), "{name} succeeded without an object");
                Ok(object)
            }
            failure => Err(failure),
        }
    }
}
